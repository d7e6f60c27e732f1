"""fio's text reports of 1.x to 3.x: read line by line.

A report is: what each job is, one block a job, then one status section a group. Only the sections tell that the
report is whole. `--status-interval` repeats the report: a later block of the same process replaces the earlier.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from plumbline.readers._fio_model import Job, Run
from plumbline.readers._fio_report import Block, Host, Report, follows_begun, runs_of
from plumbline.readers._fio_terse import TERSE, terse_job
from plumbline.readers._row_shapes import ANY_DIGIT, MOST_SHAPES
from plumbline.readers.framing import strip_prefix

_HEADER = re.compile(
    r"\s*(?:<(?P<host>[^<>]{1,255})>\s*)?(?P<name>\S.*?)\s*: \(groupid=(?P<group>\d{1,9}), jobs=(?P<members>\d{1,9})\):"
    r" err=\s*(?P<error>\d{1,9})(?: \((?P<what>.*)\))?: pid=(?P<pid>\d{1,10})"
)
_DEFINITION = re.compile(
    r"\s*(?:<(?P<host>[^<>]{1,255})>\s*)?(?P<name>\S.*?): \(g=(?P<group>\d{1,9})\): rw=(?P<rw>\w{1,20}), "
    r"bs(?:\(seq/rand\))?=(?P<bs>.{1,300}?), ioengine=(?P<ioengine>[\w.-]{1,60}), iodepth=(?P<iodepth>\d{1,9})\s*"
)
_HOST_ONLY = re.compile(r".*<(?P<host>[^<>\s]{1,255})>\s*")
_RATE = re.compile(
    r"(?:[ ]*+|.*?[\s>])(?P<way>read|write|trim|mixed)\s*: IOPS=(?P<iops>[\d.]+[kKMGTPE]?), "
    r"BW=\s*(?P<bw>[\d.]+)(?P<unit>[kKMGTPE]?i?(?:B|bit|b)?)(?:/s)? \([^()]*\)"
    r"\((?P<io>[\d.]+)(?P<iounit>[kKMGTPE]?i?B?)/(?P<run>\d{1,18})msec\)"
)
_OLD_RATE = re.compile(
    r".*?(?:^|[\s>])(?P<way>read|write|trim|mixed)\s*: io=\s*(?P<io>[\d.]+)\s?(?P<iounit>[kKMGTPE]?i?B?), "
    r"bw=\s*(?P<bw>[\d.]+)\s?(?P<unit>[kKMGTPE]?i?(?:B|bit|b)?)/s\s*, iops=\s*(?P<iops>[\d.]+\s?[kKMGTPE]?)\s*, "
    r"runt=\s*(?P<run>\d{1,18})msec"
)
_LATENCY = re.compile(
    r"(?:[ ]*+|.*?\b)(slat|clat|lat) \((nsec|usec|msec|sec)\)\s*: min=[^,]*, max=[^,]*, avg=\s*"
    r"(\d{1,30}(?:\.\d{1,30})?), stdev=\s*[\d.]+\s*"
)
_PERCENTILES = re.compile(r"\s*(?P<kind>\S.*?) percentiles \((?P<unit>nsec|usec|msec|sec)\):")
_NUMBER = re.compile(r"\d{1,30}(?:\.\d{1,30})?")
_CELL = re.compile(r"(\d{1,3}\.\d{1,9})th=\[\s*(\d{1,18})\]")
_LONGEST_SHAPE = 400
_GROUP = re.compile(r".*Run status group (\d{1,9}) \(all jobs\)")
_GROUP_LINE = re.compile(r".*?(?:^|\s)(READ|WRITE|TRIM|MIXED): .*(?:run=\d+-\d+msec|maxt=\s*\d+msec)\s*")
_STARTING = re.compile(r".*?\bStarting (?:(\d{1,9}) threads?)?(?: and )?(?:(\d{1,9}) process(?:es)?)?\s*$")
_VERSION = re.compile(r"(?:fio-\d[\w.+-]{0,60}|fio \d\.\d[\w.+-]{0,60})")
_BANNER = re.compile(r"hostname=(?P<host>[^,]{0,255}), be=.*\bfio=(?P<version>[^,]{1,80})")

_FRAME = re.compile(r"[\d\[{>]|[ ]?\d|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) ")
"""How a line begins that a launcher or collector may have put something before."""
_TAGGED = 8
"""Where all lines are tagged, one of so many shows it."""
_TO_US = {"nsec": 1e-3, "usec": 1.0, "msec": 1e3, "sec": 1e6}
_POWER = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_KINDS = {"clat": "completion", "lat": "total", "slat": "submission"}


class TextReports:
    """Takes lines, gives the runs that they report."""

    def __init__(self) -> None:
        """Begin with no run."""
        self._report = Report()
        self._runs: list[Run] = []
        """Those of the reports before this one."""
        self._connected = self._announced = 0
        """What reports before this one told that show no job."""
        self._lost = False
        """Whether such a report follows a run that began and reported nothing."""
        self._terse: list[Job] = []
        self._terse_cut = False
        self._terse_version: str | None = None
        self._host = ""
        self._block: Block | None = None
        self._way = ""
        self._kind: tuple[str, float] | None = None
        self._cells: dict[str, list[tuple[slice, slice]]] = {}
        """Shape of a line of percentiles → where each percentile and its latency stand in it."""

    def feed(self, lines: Sequence[str], *, whole: bool = True) -> None:
        """Take lines. `whole` is False when the last is without its end: only a full status line counts then."""
        if any("]<std" in line for line in lines[:_TAGGED]):  # by mpirun, and perhaps indented as a block
            lines = [strip_prefix(line) for line in lines]
        for line in lines if whole else lines[:-1]:
            if line[:2] != "  ":
                self._feed_line(_without_frame(line), whole=True)
            elif "th=[" in line and "msec" not in line:
                self._add_percentiles(line)
            elif "lat (" in line and "run=" not in line and "maxt=" not in line and "th=[" not in line:
                self._add_latency(line)
            else:
                self._feed_line(line, whole=True)
        if lines and not whole:
            self._feed_line(_without_frame(lines[-1]), whole=False)

    def _feed_line(self, line: str, *, whole: bool) -> None:
        if "=" in line:
            self._feed_values(line, whole=whole)
        elif not whole:
            return
        elif " percentiles (" in line and (match := _PERCENTILES.match(line)):
            kind = _KINDS.get(match["kind"])
            self._kind = (kind, _TO_US[match["unit"]]) if kind else None
        elif "Run status group" in line and (match := _GROUP.match(line)):
            self._open_group(int(match[1]))
        elif "Starting " in line and (match := _STARTING.match(line)) and (match[1] or match[2]):
            self._start(line, int(match[1] or 0) + int(match[2] or 0))
        elif line == "...":
            self._report.hosts.setdefault(self._host, Host()).defined += 1  # the job above it has clones
        elif _VERSION.fullmatch(line.strip()):
            self._report.version = line.strip()
        elif line.endswith(">") or "> " in line:
            self._see_host(line)

    def _feed_values(self, line: str, *, whole: bool) -> None:
        if "msec" in line and ("run=" in line or "maxt=" in line) and (match := _GROUP_LINE.fullmatch(line)):
            self._close_group(match[1].lower())
        elif not whole:
            self._terse_cut |= bool(TERSE.match(line))
        elif "th=[" in line:
            self._add_percentiles(line)
        elif "min=" in line:
            self._add_latency(line)
        elif "msec" in line:
            self._add_rate(line)
        elif "groupid=" in line:
            self._open_job(line)
        elif "(g=" in line:
            self._define(line)
        elif line.startswith("hostname="):
            self._see_banner(line)
        elif TERSE.match(line):
            self._add_terse(line)

    # -- what the run is

    def _new_report(self, *, begun: bool = True) -> Report:
        """Begin a report, or go on with one that has no block yet. No line changes a report once the next is begun."""
        if not begun:
            return self._report
        self._runs += runs_of(self._report)
        self._lost |= follows_begun(self._report)
        self._connected, self._announced = self.connected(), self.announced()
        self._report = Report()
        self._block = self._kind = None
        return self._report

    def _define(self, line: str) -> None:
        if (match := _DEFINITION.match(line)) is None:
            return
        report = self._new_report(begun=bool(self._report.blocks))
        self._host = match["host"] or ""
        report.hosts.setdefault(self._host, Host()).defined += 1
        report.options[_job_name(match["name"]), int(match["group"])] = {
            "rw": match["rw"],
            "ioengine": match["ioengine"],
            "iodepth": match["iodepth"],
            **_block_size(match["bs"], match["rw"]),
        }

    def _see_banner(self, line: str) -> None:
        if match := _BANNER.match(line):
            report = self._new_report(begun=bool(self._report.blocks))
            report.version = match["version"].strip()
            report.banners += 1

    def _see_host(self, line: str) -> None:
        if match := _HOST_ONLY.fullmatch(line):
            self._host = match["host"]

    def _start(self, line: str, count: int) -> None:
        host = match["host"] if (match := re.match(r"\s*<(?P<host>[^<>]{1,255})>", line)) else ""
        report = self._new_report(begun=bool(self._report.blocks))
        machine = report.hosts.setdefault(host, Host())
        machine.started, machine.starts = machine.started + count, machine.starts + 1

    # -- the blocks

    def _open_job(self, line: str) -> None:
        if (match := _HEADER.match(line)) is None:
            return
        if match["host"]:
            self._host = match["host"]
        self._way, self._kind = "", None
        self._block = block = Block(
            name=_job_name(match["name"]),
            group=int(match["group"]),
            hostname=self._host or None,
            pid=int(match["pid"]),
            members=int(match["members"]),
            error=int(match["error"]),
            error_text=(match["what"] or "").rpartition("error=")[2],
        )
        report = self._report
        if block.name == "All clients" and block.pid == 0 and report.blocks:
            report.all_clients = block
            return
        key = (self._host, block.name, block.group, block.pid)
        host = report.hosts.setdefault(self._host, Host())
        if host.status and key in report.blocks:  # --status-interval: the same report again
            host.status, host.group = {}, None
        elif host.status:
            report = self._new_report()
            report.hosts[self._host] = Host()
            self._block = block
        report.blocks[key] = block

    def _add_rate(self, line: str) -> None:
        match = _RATE.match(line)
        old = None if match else _OLD_RATE.match(line)
        match = match or old
        if match is None or self._block is None:
            return
        # Old versions print K for 1024; new ones Ki for 1024 and k for 1000.
        rate, amount = (
            _scaled(match[value], match[unit], thousand=1024 if old or "i" in match[unit][:2] else 1000)
            for value, unit in (("bw", "unit"), ("io", "iounit"))
        )
        self._kind, self._way = None, match["way"]
        self._block.transfers[self._way] = {
            "direction": self._way,
            "bytes_per_s": rate,
            "bw_kib": None if rate is None else rate / 1024,
            "iops": _scaled(match["iops"], "", thousand=1000),
            "runtime_ms": float(match["run"]),
            "total_bytes": None if amount is None else int(amount),
        }

    def _add_latency(self, line: str) -> None:
        if self._block is not None and "lat (" in line and (match := _LATENCY.fullmatch(line)):
            kind, unit, average = match.groups()
            self._block.kind(self._way, _KINDS[kind]).mean_us = float(average) * _TO_US[unit]

    def _add_percentiles(self, line: str) -> None:
        if self._kind is None or self._block is None:
            return
        kind, scale = self._kind
        percentiles = self._block.kind(self._way, kind).percentiles
        shape = line.translate(ANY_DIGIT)
        cells = self._cells.get(shape)
        if cells is None:
            cells = [(slice(*match.span(1)), slice(*match.span(2))) for match in _CELL.finditer(line)]
            if len(self._cells) < MOST_SHAPES and len(shape) < _LONGEST_SHAPE:
                self._cells[shape] = cells
        for place, value in cells:
            if (percentile := _percentile(line[place])) is not None:
                percentiles[percentile] = int(line[value]) * scale

    # -- the status sections

    def _open_group(self, group: int) -> None:
        host = self._report.hosts.setdefault(self._host, Host())
        host.group = group
        host.status[group] = set()
        self._kind = None

    def _close_group(self, way: str) -> None:
        host = self._report.hosts.get(self._host)
        if host is not None and host.group is not None:
            host.status[host.group].add(way)

    # -- terse

    def _add_terse(self, line: str) -> None:
        job = terse_job(line)
        if job is None:
            self._terse_cut = True
        else:
            self._terse.append(job)
            self._terse_version = line.split(";", 2)[1] if line[0] != "2" else None

    # -- the result

    def runs(self) -> list[Run]:
        """Give the runs seen, text first, then the terse lines as one run."""
        found = [*self._runs, *runs_of(self._report)]
        if self._terse or self._terse_cut:
            problems = ("a terse line is cut or of another layout",) if self._terse_cut else ()
            found.append(
                Run(container="terse", version=self._terse_version, jobs=tuple(self._terse), problems=problems)
            )
        return found

    def connected(self) -> int:
        """Give how many clients fio's server mode said it had, in reports that show no job."""
        return max(self._connected, 0 if self._report.blocks else self._report.banners)

    def announced(self) -> int:
        """Give how many processes were announced in reports that show no job."""
        hosts = {} if self._report.blocks else self._report.hosts
        return self._announced + sum(host.started for host in hosts.values())

    def begun(self) -> list[str]:
        """Say which runs began beside those that report their jobs, and reported nothing."""
        last, found = self._report, []
        if self._lost or follows_begun(last):
            found.append("a run that began before another reported nothing")
        if self._runs and (last.options or last.hosts or last.banners) and not (last.blocks or last.all_clients):
            found.append("a run that began after the others reported nothing")
        return found


@lru_cache(maxsize=256)  # reports ask for the same few
def _percentile(text: str) -> float | None:
    return percentile if 0 < (percentile := float(text)) <= 100 else None


def _without_frame(line: str) -> str:
    """Take off what collectors put before the line, unless the line is fio's own as it stands."""
    if line.startswith("  ") or not _FRAME.match(line) or TERSE.match(line):
        return line
    return strip_prefix(line)


def _job_name(text: str) -> str:
    """Give the job's name without the progress line that it may be glued to."""
    return text.rpartition("]")[2].strip() or text if "[eta " in text else text


@lru_cache(maxsize=64)
def _block_size(text: str, rw: str) -> Mapping[str, str]:
    """Give {'bs': …} from '4K-4K/4K-4K/…' or '(R) 4096B-4096B, (W) …': the size of the direction that `rw` names."""
    ranges = re.findall(r"([\d.]+[KMGT]?i?B?)-([\d.]+[KMGT]?i?B?)", text)
    index = 2 if rw in ("trim", "randtrim") else 1 if rw in ("write", "randwrite") else 0
    chosen = ranges[index] if index < len(ranges) else ranges[0] if ranges else None
    return {"bs": chosen[0]} if chosen and chosen[0] == chosen[1] else {}


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _scaled(digits: str, unit: str, *, thousand: int) -> float | None:
    """Give a number with fio's suffix in base units (bytes for bits too); `thousand` is 1000 or 1024."""
    digits = digits.replace(" ", "")
    if digits[-1:].isalpha():
        digits, unit = digits[:-1], digits[-1]
    number = _number(digits)
    if number is None:
        return None
    factor, bits = _factor(unit, thousand)
    return number * factor / 8 if bits else number * factor


@lru_cache(maxsize=64)
def _factor(unit: str, thousand: int) -> tuple[float, bool]:
    """Give what a unit's prefix multiplies with, and whether it counts bits."""
    return float(thousand ** _POWER.get(unit[:1].upper(), 0)), unit.endswith(("bit", "b"))
