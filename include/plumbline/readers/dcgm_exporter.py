"""The metrics page of NVIDIA's dcgm-exporter: Prometheus text with DCGM_FI_* and DCGM_EXP_* samples.

DCGM's sentinels for no data, NaN and infinities are absent. The classic text format has no end mark; OpenMetrics
ends with `# EOF`. Several scrapes in one file become param `scrape`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plumbline.errors import ConfigError, OutputError
from plumbline.model import Scalar
from plumbline.readers._dcgm_fields import DCGM_FIELDS, DcgmField
from plumbline.readers._expectations import expected_count, expected_words
from plumbline.readers._kernel_log import parse_time
from plumbline.readers._quantities import is_blank
from plumbline.readers.framing import strip_prefix
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source
from plumbline.units import convert

NAME = "dcgm_exporter"
TOOL = "dcgm-exporter's metrics page (Prometheus text format, OpenMetrics)"
INDICATORS: Mapping[str, tuple[str, str]] = {name: (item.unit, item.what) for name, item in DCGM_FIELDS.items()}
FACTS: Mapping[str, str] = {
    "samples": "samples of known fields that hold a number",
    "gpus": "number of different GPUs",
    "metrics": "names of the DCGM fields in it",
    "devices": "for each GPU what its labels say: gpu, uuid, pci_bus_id, model, hostname, driver",
    "absent": "for each field the number of samples without data (sentinel, NaN, infinity, text)",
    "unknown_fields": "DCGM fields in it that this reader has no unit for",
    "scrapes": "how often the page was read into this file",
    "eof": "whether the end mark of OpenMetrics is there",
}
EXPECTATIONS: Mapping[str, str] = {
    "gpus": "number of GPUs that must have every expected field",
    "fields": "comma-separated DCGM fields that must be there (DCGM_FI_DEV_GPU_TEMP,…)",
    "scrapes": "number of scrapes that must be there",
    "not_before": "ISO time (UTC): samples with an older timestamp are stale",
}

_SERIES = re.compile(r'(DCGM_[A-Z]{2,5}_[A-Za-z0-9_]{1,100})(?:\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]')
_SAMPLE = re.compile(r"[ \t]*(\S.*?)(?:[ \t]+(-?\d{10,16}(?:\.\d{1,9})?))?[ \t]*")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"')
_VALUE = re.compile(r"[-+]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][-+]?\d{1,3})?")
_HELP = re.compile(r"# HELP (DCGM_\w{1,100}) ?(.*)")
_TIMES_AND_ENERGIES = {"ns": ("us", "ms"), "mJ": ("J",)}
"""The units that a help text may name instead of the dictionary's."""
_HELP_UNIT = re.compile(r"\(in (ns|us|ms|mJ|J)\)")
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}
_CONSTANT = ("device", "modelName", "model_name", "pci_bus_id", "UUID", "uuid", "gpu_uuid", "gpu")
_RENAMED = {"Hostname": "node", "hostname": "node", "GPU_I_ID": "mig", "GPU_I_PROFILE": "mig_profile"}
_MOST = float(1 << 63)
"""DCGM's fields are whole numbers of 64 bits, or smaller ones with a fraction."""
_MOST_HELD = 65536
_MOST_NAMES = 2000
_MOST_KNOWN = 50_000


@dataclass(frozen=True, slots=True)
class _Series:
    """One field of one place: what stands before the value, and what it means."""

    key: tuple[str, str]
    """(field, labels as printed)."""
    place: dict[str, Scalar]
    field: DcgmField | None


@dataclass(slots=True)
class _Page:
    """What has been seen: the scrape under way, and what the facts need."""

    scrape: int = 0
    series: dict[tuple[str, str], str] = field(default_factory=dict)
    documented: str = ""
    """The field of the last HELP or TYPE line, until another field's sample comes."""
    announced: bool = False
    """Whether a HELP or TYPE line came since the last sample."""
    printed: dict[str, str] = field(default_factory=dict)
    """The unit that a HELP line gives a field, where it is not DCGM's own."""
    held: list[Reading] | None = field(default_factory=list)
    covered: dict[str, set[str]] = field(default_factory=dict)
    short: dict[str, int] = field(default_factory=dict)
    """Fewest GPUs of a field in the scrapes that have ended."""
    samples: int = 0
    absent: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    devices: dict[str, dict[str, str]] = field(default_factory=dict)
    malformed: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    known: dict[str, _Series] = field(default_factory=dict)
    """Series seen before, by the text up to the closing brace: a page repeats them at every scrape."""
    places: dict[str, dict[str, Scalar]] = field(default_factory=dict)
    eof: bool = False
    cut: bool = False
    oldest: float | None = None
    stamped: int = 0


def sniff(head: str) -> float:
    """Look for samples of DCGM fields."""
    return 1.0 if re.search(r"^(?:# (?:HELP|TYPE) )?DCGM_(?:FI|EXP)_\w+[ {]", head, re.MULTILINE) else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give every sample with a number. Params: gpu (UUID or index), index, and the labels that tell samples apart."""
    page = _Page()
    first = ""
    for block in source.blocks():
        for raw in block.decode("latin-1").split("\n"):  # str is searched several times faster than bytes
            if "DCGM_" in raw or raw[:5] == "# EOF":
                line = raw if raw.isascii() else raw.encode("latin-1").decode("utf-8", "replace")
                page.eof = False
                if source.ends_whole or line.strip() == "# EOF":
                    yield from _line(page, line)
            elif not first and raw.strip():
                first = raw[:80].encode("latin-1").decode("utf-8", "replace")
    page.cut = not source.ends_whole and not page.eof
    if not page.samples and not page.absent and not page.unknown:
        raise OutputError("no sample of a DCGM field", source=source.name, excerpt=first)
    _end_scrape(page)
    yield from _flush(page)
    yield from _facts(page)
    yield _completeness(page, expect)


def _line(page: _Page, raw: str) -> Iterable[Reading]:
    line = raw.strip()
    if not line.startswith(("DCGM_", "#")):
        line = strip_prefix(line)
    if line.startswith("#"):
        _comment(page, line)
        return ()
    if not line.startswith("DCGM_"):
        return ()
    head, brace, tail = line.rpartition("} ")
    series = page.known.get(head) if brace else None
    if series is None:
        match = _SERIES.match(line)
        if match is None or _LABEL.sub("", match[2] or "").strip(", \t"):
            _damaged(page, line)
            return ()
        tail = line[match.end() :]
        series = _series(page, match[1], match[2] or "")
        if brace and len(page.known) < _MOST_KNOWN:
            page.known[line[: match.end() - 2]] = series
    if _VALUE.fullmatch(tail):
        return _sample(page, series, tail, None)
    sample = _SAMPLE.fullmatch(tail)
    if sample is None:
        _damaged(page, line)
        return ()
    return _sample(page, series, sample[1], sample[2])


def _series(page: _Page, name: str, labels: str) -> _Series:
    place = page.places.get(labels)
    return _Series((name, labels), _place(page, labels) if place is None else place, DCGM_FIELDS.get(name))


def _damaged(page: _Page, line: str) -> None:
    if len(page.malformed) < _MOST_NAMES:
        page.malformed.append(line[:120])


def _comment(page: _Page, line: str) -> None:
    page.eof = line.strip() == "# EOF"
    if match := _HELP.match(line):
        unit, item = _HELP_UNIT.search(match[2]), DCGM_FIELDS.get(match[1])
        if unit and item and unit[1] != item.unit:
            if unit[1] in _TIMES_AND_ENERGIES.get(item.unit, ()):
                page.printed[match[1]] = unit[1]
            else:  # a help text of another field: which of the two the numbers are of, nobody can say
                _damaged(page, line)
    parts = line.split(" ", 3)
    if len(parts) > 2 and parts[1] in ("HELP", "TYPE"):
        page.announced = page.announced or page.documented == parts[2]
        page.documented = parts[2]


def _sample(page: _Page, series: _Series, printed: str, stamp: str | None) -> list[Reading]:
    name, place = series.key[0], series.place
    due: list[Reading] = []
    before = page.series.get(series.key)
    if before is not None:
        same_block = page.documented == name and not page.announced and not stamp
        if same_block:
            if before != printed and len(page.conflicts) < _MOST_NAMES:
                page.conflicts.append(f"{name}{{{series.key[1][:80]}}}: {before} and {printed}")
            return []
        _end_scrape(page)
        due = _flush(page, several=True)
    if page.documented != name:
        page.documented = ""
    page.announced = False
    page.series[series.key] = printed
    value = float(printed) if _VALUE.fullmatch(printed) else math.nan
    if not -_MOST < value < _MOST or is_blank(value):
        _count(page.absent, name)
    else:
        if "gpu" in place and len(page.covered) < _MOST_NAMES:
            page.covered.setdefault(name, set()).add(str(place["gpu"]))
        if series.field is None:
            _count(page.unknown, name)
        else:
            page.samples += 1
            due += _give(page, name, series.field, value, _stamped(page, place, stamp))
    return due


def _count(counts: dict[str, int], name: str) -> None:
    if name in counts or len(counts) < _MOST_NAMES:
        counts[name] = counts.get(name, 0) + 1


def _place(page: _Page, text: str) -> dict[str, Scalar]:
    """Give the params that a sample's labels stand for, and remember what they say of the GPU."""
    labels = {key: _unescape(value) for key, value in _LABEL.findall(text)}
    uuid = next((labels[key] for key in ("UUID", "gpu_uuid", "uuid") if labels.get(key)), "")
    place: dict[str, Scalar] = {}
    if uuid or labels.get("gpu"):
        place["gpu"] = uuid or labels["gpu"]
        if (index := labels.get("gpu", "")).isascii() and index.isdigit() and len(index) < 6:
            place["index"] = int(index)
        if len(page.devices) < _MOST_NAMES:
            page.devices.setdefault(str(place["gpu"]), _device(labels, uuid))
    for key, value in labels.items():
        if value and key not in _CONSTANT and not key.startswith("DCGM_FI_"):
            place[_RENAMED.get(key, key)] = value
    if len(page.places) < _MOST_NAMES:
        page.places[text] = place
    return place


def _device(labels: Mapping[str, str], uuid: str) -> dict[str, str]:
    found = {
        "gpu": labels.get("gpu"), "uuid": uuid, "pci_bus_id": labels.get("pci_bus_id"),
        "model": labels.get("modelName", labels.get("model_name")),
        "hostname": labels.get("Hostname", labels.get("hostname")), "driver": labels.get("DCGM_FI_DRIVER_VERSION"),
    }  # fmt: skip
    return {key: value for key, value in found.items() if value}


def _unescape(value: str) -> str:
    return re.sub(r"\\.", lambda match: _ESCAPES.get(match[0], match[0]), value) if "\\" in value else value


def _stamped(page: _Page, place: dict[str, Scalar], stamp: str | None) -> dict[str, Scalar]:
    """Add a sample's own timestamp: milliseconds in the classic format, seconds in OpenMetrics."""
    if stamp is None:
        return place
    number = float(stamp)
    seconds = number / 1e3 if abs(number) > 1e11 else number
    page.stamped += 1
    page.oldest = seconds if page.oldest is None else min(page.oldest, seconds)
    return {**place, "timestamp": seconds}


def _give(page: _Page, name: str, item: DcgmField, value: float, place: dict[str, Scalar]) -> list[Reading]:
    if name in page.printed:
        value = convert(value, page.printed[name], item.unit)
    if page.held is None:
        return [Reading(name, value, item.unit, {**place, "scrape": page.scrape})]
    page.held.append(Reading(name, value, item.unit, place))
    return _flush(page) if len(page.held) > _MOST_HELD else []


def _end_scrape(page: _Page) -> None:
    """Close the scrape under way: how many GPUs had each field?"""
    names = set(page.short) | {name for name, _ in page.series}
    for name in names:
        count = len(page.covered.get(name, ()))
        page.short[name] = min(page.short.get(name, count), count)
    page.covered.clear()
    page.series.clear()
    page.scrape += 1


def _flush(page: _Page, *, several: bool = False) -> list[Reading]:
    """Give what was held back of the first scrape: with param scrape when another one has begun."""
    held, page.held = page.held or [], None
    if not several:
        return held
    return [Reading(item.indicator, item.value, item.unit, {**item.params, "scrape": 0}) for item in held]


def _facts(page: _Page) -> Iterator[Fact]:
    yield Fact("samples", page.samples)
    yield Fact("gpus", len(page.devices))
    yield Fact("metrics", sorted(page.short))
    yield Fact("devices", list(page.devices.values()))
    if page.absent:
        yield Fact("absent", page.absent)
    if page.unknown:
        yield Fact("unknown_fields", page.unknown)
    yield Fact("scrapes", page.scrape)
    yield Fact("eof", page.eof)


def _completeness(page: _Page, expect: Mapping[str, Scalar]) -> Completeness:
    expected = {key: value for key, value in expect.items() if key in EXPECTATIONS}
    found: dict[str, Any] = {"samples": page.samples, "gpus": len(page.devices), "scrapes": page.scrape}
    gpus, fields = expected_count(expect, "gpus"), expected_words(expect, "fields")
    scrapes = expected_count(expect, "scrapes")
    if problem := next(_problems(page, expect, gpus, fields, scrapes), None):
        return Completeness(NAME, Status.INCOMPLETE, expected, found, problem)
    settled = page.eof or (gpus is not None and bool(fields))
    if settled and (page.scrape == 1 or scrapes is not None):
        return Completeness(NAME, Status.COMPLETE, expected, found, "")
    reason = "no end mark; expect gpus and fields (and scrapes, where there are several) to settle it"
    return Completeness(NAME, Status.UNKNOWN, expected, found, reason)


def _problems(
    page: _Page, expect: Mapping[str, Scalar], gpus: int | None, fields: list[str], scrapes: int | None
) -> Iterator[str]:
    """Name what is damaged or missing."""
    if page.malformed:
        yield f"{len(page.malformed)} samples are damaged, the first: {page.malformed[0]}"
    if page.cut:
        yield "the last line has no line end: the page may be cut"
    if page.conflicts:
        yield f"{len(page.conflicts)} samples twice with different values: {page.conflicts[0]}"
    for name in fields:
        if name not in page.short:
            yield f"field {name} is not there"
        elif gpus is not None and page.short[name] != gpus:
            yield f"field {name} has data of {page.short[name]} GPUs, {gpus} expected"
    if gpus is not None and len(page.devices) != gpus:
        yield f"{len(page.devices)} GPUs, {gpus} expected"
    if scrapes is not None and scrapes != page.scrape:
        yield f"{page.scrape} scrapes, {scrapes} expected"
    yield from _stale(page, expect.get("not_before"))


def _stale(page: _Page, moment: Scalar) -> Iterator[str]:
    """Name samples that are older than expected, or whose age nobody can tell."""
    if moment is None:
        return
    try:
        earliest = parse_time(str(moment)).timestamp()
    except (ValueError, OverflowError):
        raise ConfigError(f"expectation not_before: an ISO time such as 2026-01-31T04:00Z, not {moment!r}") from None
    if page.oldest is None or page.stamped < page.samples:
        yield "samples without a timestamp: nobody can tell how old they are"
    elif page.oldest < earliest:
        yield f"stale: the oldest sample is from {page.oldest:.0f}, expected {earliest:.0f} or later"
