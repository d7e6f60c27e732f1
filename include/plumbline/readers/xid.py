"""Xid and SXid lines of the NVIDIA driver, and RAS lines of amdgpu, in a kernel log.

`NVRM: Xid (PCI:0000:9b:00): 119, pid=1, name=x, …` since 2014; without `PCI:` before; since R570 codes 144 to 150
carry a sub-code, severity, link and status words. An SXid of an NVSwitch is followed by Severity and Data lines,
which belong to it. A GPU that the driver finds off the bus as it loads has no Xid line: it counts as an Xid 79 too, for
that is what it is, once for each device. Source: NVIDIA Xid catalog, Fabric Manager user guide appendix D.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any

from plumbline.errors import ConfigError, OutputError
from plumbline.model import Scalar
from plumbline.readers import _kernel_log
from plumbline.readers._expectations import expected_flag
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source, strip_ansi

NAME = "xid"
TOOL = "kernel logs (dmesg, journalctl, syslog, kmsg): NVRM Xid, NVSwitch SXid, amdgpu RAS"
INDICATORS: Mapping[str, tuple[str, str]] = {
    "xid_events": ("count", "Xid lines (params device, code; without params: 0 in the whole log)"),
    "sxid_events": ("count", "SXid lines of NVSwitches (params device, code, severity)"),
    "amdgpu_ras_events": ("count", "RAS lines of amdgpu (params device, kind, block)"),
}
FACTS: Mapping[str, str] = {
    "events": "number of Xid events",
    "by_code": "number of Xid events for each code",
    "devices": "PCI addresses that had an Xid, in order of appearance",
    "xids": "the first 1000 Xid events: time as printed, device, code, pid, process, message, sub-code",
    "sxid_events": "number of SXid events",
    "sxid_by_code": "number of SXid events for each code",
    "sxids": "the first 1000 SXid events",
    "amdgpu_ras": "the first 1000 RAS lines of amdgpu, with the counters that they print",
    "gpu_uuids": "UUIDs by PCI address, where the driver names them",
    "lost_messages": "lines by which the log says that it lost others",
    "first_time": "first time in the log, as printed",
    "last_time": "last time in the log, as printed",
}
EXPECTATIONS: Mapping[str, str] = {
    "covers": "true: the log is known to cover the time in question, so that no Xid in it means none happened",
    "since": "ISO time (UTC) from which on the log must reach",
    "until": "ISO time (UTC) to which the log must reach",
}

_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<device>[0-9A-Fa-f]{1,8}:[0-9A-Fa-f:.]{1,12})[^()]{0,60}\):? {0,2}"
    r"(?P<code>\d{1,4})(?P<rest>(?![\w.-]).*)",
    re.DOTALL,
)
_SXID = re.compile(r"SXid \((?:PCI:)?(?P<device>[0-9A-Fa-f:.]{5,16})\): (?P<code>\d{3,6}), (?P<rest>.*)", re.DOTALL)
_SEVERITY = re.compile(r"(Fatal|Non-fatal)\b")
_PID = re.compile(r"[, ] ?pid=(?:(\d{1,10})|[^,]{0,40})")
_PROCESS = re.compile(r", name=([^,]{0,64})")
_SUBCODE = re.compile(
    r", ?(?P<subcode>[A-Z][A-Z0-9_]{1,40}),? +(?P<severity>Fatal|Nonfatal|Non-fatal),? +XC(?P<unit>\d{1,3}) +"
    r"i(?P<injected>\d{1,3}) +Link +(?P<link>-?\d{1,3})\b"
)
_RAS = re.compile(
    r"amdgpu (?P<device>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]): (?:amdgpu: )?[^\n]{0,80}?"
    r"(?<![\w.])(?P<count>\d{1,18}) (?:new )?(?P<kind>uncorrectable|correctable|deferred) hardware errors detected in "
    r"(?P<block>\w{1,20}) block"
)
_UUID = re.compile(r"NVRM: GPU at (?:PCI:)?([0-9A-Fa-f:.]{7,16}): (GPU-[0-9a-f-]{36})(?![\w-])")
_PROBED_GPU = re.compile(r"NVRM: The NVIDIA GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{4,9})\s*$")
_OFF_THE_BUS = "fallen off the bus and is not responding to commands"
"""What the driver says of a GPU on the last of three lines; the first one, the last `_PROBED_GPU`, names it."""
_LOST = re.compile(
    r"\d{1,9} printk messages dropped|Missed \d{1,9} kernel messages|Suppressed \d{1,9} messages from kernel"
)
_MARKS = re.compile(rb"NVRM|SXid|amdgpu|essages")
_SHOWN = 1000
_MOST_KEYS = 200_000
_MOST_TEXTS = 16_384
_SAME_MOMENT = 64
"""So many different events of one code, device and microsecond are told from copies of each other."""
_PROBED_LINES = 2000


@dataclass(slots=True)
class _Log:
    """What has been seen of a log so far."""

    xids: Counter[tuple[str, str]] = field(default_factory=Counter)
    shown: list[dict[str, Any]] = field(default_factory=list)
    sxids: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    shown_sxids: list[dict[str, Any]] = field(default_factory=list)
    ras: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    shown_ras: list[dict[str, Any]] = field(default_factory=list)
    uuids: dict[str, str] = field(default_factory=dict)
    probed: tuple[str, str | None] | None = None
    off_the_bus: dict[str, str | None] = field(default_factory=dict)
    """Time by PCI address of GPUs that the driver found off the bus, without an Xid."""
    lost: list[str] = field(default_factory=list)
    told: dict[tuple[str, ...], dict[int, str | list[str]]] = field(default_factory=dict)
    """What events' lines say, by device and code, then by microseconds since boot: mostly one line."""
    told_count: int = 0
    texts: dict[str, str] = field(default_factory=dict)
    """Lines say the same again and again: they share their text."""
    unreadable: int = 0
    kernel_lines: int = 0
    first: str = ""
    last: bytes = b""


def sniff(head: str) -> float:
    """Look for the driver's lines, then for lines of a kernel log."""
    if "NVRM: Xid (" in head or " SXid (" in head:
        lines = head.splitlines()[:200]
        logs = sum(_kernel_log.is_kernel_line(line) for line in lines)
        return 0.97 if logs * 2 >= len(lines) else 0.7
    lines = [line for line in head.splitlines()[:200] if line.strip()]
    kernel = sum(
        _kernel_log.is_kernel_line(line) and ("kernel" in line or line[:1] in "[<0123456789") for line in lines
    )
    marks = sum(
        word in head for word in ("kernel: ", "Linux version", "NVRM:", "nvidia-nvswitch", "systemd[1]", "BIOS-e820")
    )
    return 0.5 if marks and kernel * 2 > len(lines) else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give the number of events for each device and code, at the end of the log."""
    log = _Log()
    pending: bytes | None = None
    raw = last = b""
    lines, marked = source.byte_lines(), _MARKS.search
    for raw in islice(lines, _PROBED_LINES):
        _probe(log, raw)
        last = raw or last
        if pending is not None:
            _line(log, pending, ended=True)
        pending = raw if marked(raw) else None
    for raw in lines:  # the long rest: only what costs nothing
        if pending is not None:
            _line(log, pending, ended=True)
            pending = None
        if marked(raw):
            pending = raw
        last = raw
    if pending is not None:
        _line(log, pending, ended=source.ends_whole)
    log.last = last
    _take_off_the_bus(log)
    if not log.kernel_lines and not log.xids and not log.sxids and not log.unreadable:
        raise OutputError("no line of a kernel log in it", source=source.name, excerpt=log.first)
    yield from _readings(log)
    yield from _facts(log)
    yield _completeness(log, expect, ended=source.ends_whole)


def _probe(log: _Log, raw: bytes) -> None:
    """Look at a line near the log's start: is this a kernel's log, and where does it begin?"""
    text = strip_ansi(raw[:400].decode("utf-8", "replace"))
    if text.strip():
        log.first = log.first or text
        log.kernel_lines += _kernel_log.is_kernel_line(text)


def _line(log: _Log, raw: bytes, *, ended: bool) -> None:
    """Take one line that may hold an event."""
    line = strip_ansi(raw.decode("utf-8", "replace"))
    text, stamp = _kernel_log.unwrap(line)
    time = stamp or _kernel_log.printed_time(line) or _kernel_log.printed_time(text)
    if "NVRM: Xid (" in text:
        matches = list(_XID.finditer(text))
        log.unreadable += not matches
        for match in matches:
            _xid(log, match, time, ended=ended or match["rest"] != "")
    elif "SXid (" in text:
        _sxid(log, text, time, ended=ended)
    elif "hardware errors detected in" in text:
        _ras(log, text, time)
    else:
        _note(log, text, time)


def _note(log: _Log, text: str, time: str | None) -> None:
    """Take a line that names a GPU, says that it is off the bus, or that messages were lost."""
    if match := _UUID.search(text):
        log.uuids.setdefault(match[1], match[2])
    elif match := _PROBED_GPU.search(text):
        log.probed = (match[1].partition(".")[0], time)
    elif _OFF_THE_BUS in text and log.probed and len(log.off_the_bus) < _SHOWN:
        log.off_the_bus.setdefault(*log.probed)
    elif (match := _LOST.search(text)) and len(log.lost) < _SHOWN:
        log.lost.append(match[0])


def _is_new(log: _Log, before: str, rest: str, *parts: str) -> bool:
    """Say whether an event is told for the first time: logs of one machine are often captured twice.

    A copy that is cut short (`rest` begins the same) is one too.
    """
    since_boot = _kernel_log.monotonic(before)
    if since_boot is None:
        return True
    moment = int(since_boot.replace(".", ""))
    times = log.told.get(parts, {})
    told = times.get(moment)
    texts = [told] if isinstance(told, str) else told or []
    if any(one.startswith(rest) for one in texts):
        return False
    if (texts or log.told_count < _MOST_KEYS) and len(texts) < _SAME_MOMENT:
        log.told_count += not texts
        rest = log.texts.setdefault(rest, rest) if len(log.texts) < _MOST_TEXTS else log.texts.get(rest, rest)
        log.told.setdefault(parts, times)[moment] = [*texts, rest] if texts else rest
    return True


def _xid(log: _Log, match: re.Match[str], time: str | None, *, ended: bool) -> None:
    before, rest = match.string[: match.start()], match["rest"]
    if not ended:
        log.unreadable += 1
        return
    device, code = match["device"], str(int(match["code"]))
    if not _is_new(log, before, rest[:200], device, code):
        return
    log.xids[device, code] += _kernel_log.repeats(before)
    if len(log.shown) < _SHOWN:
        log.shown.append(_plain(device, code, rest.removesuffix("]") if "repeated" in before else rest, time))


def _take_off_the_bus(log: _Log) -> None:
    """Count GPUs off the bus as Xid 79, but those of which an Xid line says so."""
    told = {device.partition(".")[0] for device, code in log.xids if code == "79"}
    for device, time in log.off_the_bus.items():
        if device not in told:
            log.xids[device, "79"] += 1
            log.shown.append(_plain(device, "79", f"{_OFF_THE_BUS} (no Xid line)", time))


def _plain(device: str, code: str, rest: str, time: str | None) -> dict[str, Any]:
    """Give an event as plain data: what the line says, without the keys that it doesn't have."""
    pid, process, subcode = _PID.match(rest), _PROCESS.search(rest), _SUBCODE.match(rest)
    message = rest[max(part.end() for part in (pid, process) if part is not None) :] if pid or process else rest
    event: dict[str, Any] = {"time": time, "device": device, "code": int(code)}
    if pid and pid[1]:
        event["pid"] = int(pid[1])
    if process and "<unknown>" not in process[1]:
        event["process"] = process[1]
    event["message"] = message.lstrip(",: ").strip()[:500]
    if subcode:
        event |= {
            "subcode": subcode["subcode"], "severity": subcode["severity"].replace("-", "").capitalize(),
            "link": int(subcode["link"]),
        }  # fmt: skip
    return event


def _sxid(log: _Log, text: str, time: str | None, *, ended: bool) -> None:
    match = _SXID.search(text)
    if match is None:
        log.unreadable += not ended
        return
    severity = _SEVERITY.match(match["rest"])
    if severity is None:  # the Severity and Data lines of the event before, or a line cut short
        log.unreadable += not ended
        return
    device, code = match["device"], match["code"]
    before = text[: match.start()]
    if not _is_new(log, re.sub(r"nvidia-nvswitch\d{1,3}: $", "", before), match["rest"][:200], device, code):
        return
    log.sxids[device, code, severity[1]] += _kernel_log.repeats(before)
    if len(log.shown_sxids) < _SHOWN:
        log.shown_sxids.append(
            {"time": time, "device": device, "code": int(code), "severity": severity[1], "message": match["rest"][:500]}
        )


def _ras(log: _Log, text: str, time: str | None) -> None:
    match = _RAS.search(text)
    if match is None:
        return
    device, kind, block = match["device"], match["kind"], match["block"]
    if not _is_new(log, match.string[: match.start()], match["count"], device, kind, block):
        return
    log.ras[device, kind, block] += 1
    if len(log.shown_ras) < _SHOWN:
        log.shown_ras.append(
            {"time": time, "device": device, "kind": kind, "block": block, "counter": int(match["count"])}
        )


def _readings(log: _Log) -> Iterator[Reading]:
    for (device, code), events in log.xids.items():
        yield Reading("xid_events", float(events), "count", {"device": device, "code": int(code)})
    if not log.xids and not log.unreadable:
        yield Reading("xid_events", 0.0, "count")
    for (device, code, severity), events in log.sxids.items():
        place: dict[str, Scalar] = {"device": device, "code": int(code), "severity": severity}
        yield Reading("sxid_events", float(events), "count", place)
    for (device, kind, block), events in log.ras.items():
        yield Reading("amdgpu_ras_events", float(events), "count", {"device": device, "kind": kind, "block": block})


def _facts(log: _Log) -> Iterator[Fact]:
    yield Fact("events", sum(log.xids.values()))
    yield Fact("by_code", _by_code((code, events) for (_, code), events in log.xids.items()))
    yield Fact("devices", list(dict.fromkeys(device for device, _ in log.xids)))
    yield Fact("xids", log.shown)
    if log.sxids:
        yield Fact("sxid_events", sum(log.sxids.values()))
        yield Fact("sxid_by_code", _by_code((code, events) for (_, code, _), events in log.sxids.items()))
        yield Fact("sxids", log.shown_sxids)
    if log.shown_ras:
        yield Fact("amdgpu_ras", log.shown_ras)
    if log.uuids:
        yield Fact("gpu_uuids", log.uuids)
    if log.lost:
        yield Fact("lost_messages", log.lost)
    for name, line in (("first_time", log.first), ("last_time", _last(log))):
        if (time := _kernel_log.unwrap(line)[1] or _kernel_log.printed_time(line)) is not None:
            yield Fact(name, time)


def _by_code(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for code, events in pairs:
        counts[code] += events
    return dict(sorted(counts.items(), key=lambda pair: int(pair[0])))


def _last(log: _Log) -> str:
    return strip_ansi(log.last[:65536].decode("utf-8", "replace"))


def _completeness(log: _Log, expect: Mapping[str, Scalar], *, ended: bool) -> Completeness:
    expected = {key: value for key, value in expect.items() if key in EXPECTATIONS}
    found: dict[str, Any] = {"events": sum(log.xids.values()), "kernel_lines_at_start": log.kernel_lines}
    since, until = _moment(expect, "since"), _moment(expect, "until")
    covers = expected_flag(expect, "covers")
    status, reason = Status.UNKNOWN, "nothing says which time the log covers; expect since and until, or covers=true"
    if log.unreadable:
        status, reason = Status.INCOMPLETE, f"{log.unreadable} lines of Xids that are cut or damaged"
    elif log.lost:
        status, reason = Status.INCOMPLETE, f"the log lost messages: {log.lost[0]}"
    elif not expected:
        pass
    elif not ended:
        status, reason = Status.INCOMPLETE, "the last line has no line end: the log may be cut"
    elif (gap := _gap(log, since, until)) is not None:
        status, reason = Status.INCOMPLETE, gap
    elif (covers or (since and until)) and log.kernel_lines:
        status, reason = Status.COMPLETE, ""
    return Completeness(NAME, status, expected, found, reason)


def _moment(expect: Mapping[str, Scalar], key: str) -> datetime | None:
    value = expect.get(key)
    if value is None:
        return None
    try:
        return _kernel_log.parse_time(str(value))
    except ValueError:
        raise ConfigError(f"expectation {key}: an ISO time such as 2026-01-31T04:00:00Z, not {value!r}") from None


def _gap(log: _Log, since: datetime | None, until: datetime | None) -> str | None:
    """Say which part of the time in question the log does not reach, or None."""
    begins, ends = _kernel_log.time_of(log.first), _kernel_log.time_of(_last(log))
    if since is not None and (begins is None or begins > since):
        return f"the log begins at {begins.isoformat() if begins else 'no readable time'}, after {since.isoformat()}"
    if until is not None and (ends is None or ends < until):
        return f"the log ends at {ends.isoformat() if ends else 'no readable time'}, before {until.isoformat()}"
    return None
