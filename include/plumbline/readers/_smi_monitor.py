"""Small listings of nvidia-smi: -L, nvlink -s, dmon."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from plumbline.model import Scalar
from plumbline.readers._quantities import quantity
from plumbline.readers.reading import Reading, readings_where_there

_GPU = re.compile(r"GPU (\d{1,3}): (.{1,80}?) \(UUID: ([\w-]{8,80})\)\s*")
_MIG = re.compile(r"\s{1,8}MIG (\S{2,20})\s+Device\s+(\d{1,3}): \(UUID: ([\w/-]{8,80})\)\s*")
_LINK = re.compile(r"\s{1,20}(C2C )?Link (\d{1,3}): (?:(\d{1,6}(?:\.\d{1,6})?) GB/s|(<?inactive>?|N/A))\s*")
_REFUSED = re.compile(r"(Nvlink queries are not supported .{0,80}|Device does not have or support Nvlink.{0,40})\s*")
_DMON = {
    "pwr": ("power", "W"), "gtemp": ("temperature", "degC"), "temp": ("temperature", "degC"),
    "mtemp": ("memory_temperature", "degC"), "sm": ("utilization", "%"), "mem": ("memory_utilization", "%"),
    "enc": ("encoder_utilization", "%"), "dec": ("decoder_utilization", "%"), "jpg": ("jpeg_utilization", "%"),
    "ofa": ("ofa_utilization", "%"), "mclk": ("clock_memory", "MHz"), "pclk": ("clock_sm", "MHz"),
}  # fmt: skip
_CELL = re.compile(r"-|[\d.:]{1,20}")
_MOST_KNOWN = 4096
_DMON_UNITS = {"W": "W", "C": "degC", "%": "%", "MHz": "MHz", "Idx": "", "#": ""}
LINK_INDICATORS = {
    "nvlinks": ("count", "NVLinks that join two GPUs (params gpu, peer)"),
    "nvlink_bandwidth": ("GB/s", "rate of one NVLink in one direction, as `nvlink -s` names it (params gpu, link)"),
    "c2c_bandwidth": ("GB/s", "rate of one chip-to-chip link (params gpu, link)"),
}


@dataclass(slots=True)
class Listing:
    """GPUs as -L and nvlink list them, with their MIG devices and links."""

    gpus: dict[int, dict[str, Any]] = field(default_factory=dict)
    current: int | None = None
    inactive: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    links: int = 0

    def take(self, line: str, *, ended: bool) -> Iterator[Reading] | None:
        """Take a line; None when it is of another listing."""
        if line.startswith("GPU ") and (match := _GPU.fullmatch(line)):
            self.current = int(match[1])
            self.gpus.setdefault(self.current, {"index": self.current, "name": match[2], "uuid": match[3]})
            return iter(())
        if self.current is None:
            return None
        if match := _LINK.fullmatch(line):
            return self._link(match)
        if self._note(line, ended):
            return iter(())
        return None

    def _note(self, line: str, ended: bool) -> bool:
        """Take a line without a number; False when it is of another listing."""
        gpu = self.gpus[self.current or 0]
        if match := _MIG.fullmatch(line):
            profile, index, uuid = match.groups()
            gpu.setdefault("mig_devices", []).append({"profile": profile, "index": int(index), "uuid": uuid})
        elif match := _REFUSED.fullmatch(line):
            gpu["nvlink"] = match[1].strip()
        elif not ended and re.match(r"\s{1,20}(?:C2C |MIG |Link)", line):
            self.damaged.append(line.strip()[:40])
        else:
            return False
        return True

    def _link(self, match: re.Match[str]) -> Iterator[Reading]:
        kind = "c2c_bandwidth" if match[1] else "nvlink_bandwidth"
        if match[3] is None:
            self.inactive.append(f"GPU {self.current} link {match[2]}")
            return
        self.links += 1
        value = quantity(match[3], "GB/s")
        if value is not None:
            yield Reading(kind, value, "GB/s", {"gpu": str(self.current), "link": int(match[2])})


@dataclass(slots=True)
class Monitor:
    """`nvidia-smi dmon`: a header of names, one of units, a row for each GPU and poll."""

    names: list[str]
    units: list[str] = field(default_factory=list)
    poll: int = 0
    seen: set[str] = field(default_factory=set)
    gpus: set[str] = field(default_factory=set)
    damaged: int = 0
    values: dict[str, float | None] = field(default_factory=dict)
    """Cells of rows before → their numbers: telemetry repeats itself."""
    plan: list[tuple[int, str, str]] = field(default_factory=list)
    """(column, indicator, unit) of the columns that are read, once there was a row below this header."""

    def take(self, line: str, *, ended: bool) -> Iterable[Reading] | None:
        """Take a line; None when it is none of this table."""
        if line.startswith("#"):
            words = line[1:].split()
            if words[:1] in (["Idx"], ["YYYYMMDD"]):
                self.units, self.plan = words, []
            return () if words in (self.units, self.names) else None
        cells = line.split()
        if not cells or not all(_CELL.fullmatch(cell) for cell in cells) or "gpu" not in self.names:
            return None
        if len(cells) != len(self.names) or not ended:
            self.damaged += 1
            return ()
        return self.rows([line], {})[1]

    def rows(self, lines: Iterable[str], more: Mapping[str, Scalar]) -> tuple[int, list[Reading]]:
        """Take lines with their ends as long as they are rows: how many, and their readings.

        `more` are params that every reading gets.
        """
        taken, width = 0, len(self.names)
        numbers: list[float | None] = []
        places: list[dict[str, Scalar]] = []
        for line in lines:
            cells = line.split()
            if len(cells) != width:
                break
            try:
                values = [self.values[cell] for cell in cells]
            except KeyError:
                if not all(_CELL.fullmatch(cell) for cell in cells):
                    break
                values = [self._number(cell) for cell in cells]
            taken += 1
            place = self._place(cells, more)
            numbers += values
            places.append(place)
        if not taken:
            return 0, []
        return taken, self._readings(numbers, places)

    def _place(self, cells: list[str], more: Mapping[str, Scalar]) -> dict[str, Scalar]:
        gpu = cells[self.names.index("gpu")]
        if gpu in self.seen:
            self.poll += 1
            self.seen.clear()
        self.seen.add(gpu)
        if len(self.gpus) < 1024:
            self.gpus.add(gpu)
        return {"gpu": gpu, "poll": self.poll, **more}

    def _readings(self, numbers: list[float | None], places: list[dict[str, Scalar]]) -> list[Reading]:
        """Give the readings of rows whose cells `numbers` are, row by row."""
        plan = self.plan or self._planned()
        columns = [numbers[column :: len(self.names)] for column, _, _ in plan]
        read = [(at, column) for at, column in enumerate(columns) if column.count(None) < len(places)]
        values = list(chain.from_iterable(zip(*(column for _, column in read), strict=True)))
        names = [plan[at][1] for at, _ in read] * len(places)
        units = [plan[at][2] for at, _ in read] * len(places)
        where = [place for place in places for _ in read]
        return readings_where_there(names, values, units, where)

    def _number(self, cell: str) -> float | None:
        """Give the number in a cell, which never has a unit of its own."""
        if len(self.values) >= _MOST_KNOWN:
            self.values.clear()
        value = self.values[cell] = quantity(cell, "count")
        return value

    def _planned(self) -> list[tuple[int, str, str]]:
        """Find the columns that are read: those whose unit, where the header names units, is the known one."""
        told = self.units if len(self.units) == len(self.names) else None
        self.plan = [
            (column, *_DMON[name])
            for column, name in enumerate(self.names)
            if name in _DMON and (told is None or _DMON_UNITS.get(told[column]) == _DMON[name][1])
        ]
        return self.plan


def monitor_header(line: str) -> Monitor | None:
    """Read the first header line of dmon ('# gpu    pwr  gtemp …'), or give None."""
    if not line.startswith("#") or " gpu " not in f"{line} ":
        return None
    names = line[1:].split()
    return (
        Monitor(names) if "gpu" in names and sum(name in _DMON for name in names) >= 2 and "pid" not in names else None
    )
