"""What the machines said around the measurements: ranges of readings, and counters that rose while something ran."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plumbline.amounts import node_list
from plumbline.reports.wording import plain

GPU_READINGS = {
    "temperature.gpu": ("GPU temperature", "°C", True),
    "power.draw": ("GPU power", "W", True),
    "clocks.current.sm": ("GPU SM clock", "MHz", False),
    "pcie.link.width.current": ("GPU PCIe width", "lanes", False),
}
"""nvidia-smi's field → (title, unit, whether high is the bad side)."""
GPU_COUNTERS = {"ecc.errors.uncorrected.volatile.total": "uncorrected ECC errors"}
SHOWN_EVENTS = 20
_HIGHEST, _LOWEST = (math.inf, ""), (-math.inf, "")
Key = tuple[str, str, bool]
"""title, unit, whether high is the bad side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The range of one reading over all snapshots, and where its bad end was seen."""

    title: str
    unit: str
    least: float
    most: float
    where: str

    @property
    def text(self) -> str:
        """Write the range: '52 … 71 °C'."""
        ends = [plain(self.least)] + ([plain(self.most)] if self.most != self.least else [])
        return f"{' … '.join(ends)} {self.unit}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A counter that rose during a launch."""

    what: str
    rise: int
    where: str
    launch_id: str


def readings(launches: Iterable[Mapping[str, Any]]) -> list[Reading]:
    """Give the range of every reading that the machines have; what no machine has is not listed."""
    least: dict[Key, tuple[float, str]] = {}
    most: dict[Key, tuple[float, str]] = {}
    for launch in launches:
        for name, snapshot in _snapshots(launch):
            for key, value, part in _values(snapshot):
                lower, higher = value < least.get(key, _HIGHEST)[0], value > most.get(key, _LOWEST)[0]
                if lower or higher:
                    here = (value, f"{node_list(launch['nodes'], 3)}{part}, {name} {launch['launch_id']}")
                    least[key], most[key] = (here if lower else least[key]), (here if higher else most[key])
    return [
        Reading(title=key[0], unit=key[1], least=low, most=most[key][0], where=most[key][1] if key[2] else where)
        for key, (low, where) in least.items()
    ]


def _snapshots(launch: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in ("before", "after"):
        snapshot = (launch.get("snapshots") or {}).get(name)
        if isinstance(snapshot, Mapping):
            yield name, snapshot


def _values(snapshot: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, bool], float, str]]:
    if isinstance(load := snapshot.get("load_1m"), (int, float)):
        yield ("load average (1 min)", "", True), float(load), ""
    if isinstance(free := snapshot.get("memory_available_bytes"), (int, float)):
        yield ("memory available", "GiB", False), free / (1 << 30), ""
    for name, value in _mapping(snapshot.get("temperature_degc")).items():
        if isinstance(value, (int, float)):
            yield ("temperature", "°C", True), float(value), f" {name}"
    if clocks := _mapping(snapshot.get("cpu_clock_khz")):
        for value in clocks.values():
            yield ("CPU clock", "MHz", False), float(value) / 1000, ""
    for gpu in snapshot.get("gpus") or ():
        for field, key in GPU_READINGS.items():
            value = _number(_mapping(gpu).get(field))
            if value is not None:
                yield key, value, f" GPU {_mapping(gpu).get('index', '?')}"


def events(launches: Iterable[Mapping[str, Any]]) -> list[Event]:
    """Give the counters that rose between the snapshots of a launch, the largest rise first."""
    found = []
    for launch in launches:
        snapshots = dict(_snapshots(launch))
        if len(snapshots) < 2:
            continue
        before, after = (dict(_counters(snapshots[name])) for name in ("before", "after"))
        for key in before.keys() & after.keys():
            rise = after[key] - before[key]
            if rise > 0:
                where = node_list(launch["nodes"], 3)
                found.append(Event(what=key, rise=int(rise), where=where, launch_id=launch["launch_id"]))
    return sorted(found, key=lambda event: (-event.rise, event.launch_id, event.what))


def _counters(snapshot: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    if isinstance(count := snapshot.get("cpu_throttle_count"), int):
        yield "CPU throttle count", count
    for port, counters in _mapping(snapshot.get("network_counters")).items():
        for name, value in _mapping(counters).items():
            if isinstance(value, int) and name != "port_xmit_wait":
                yield f"{port} {name}", value
    for gpu in snapshot.get("gpus") or ():
        for field, title in GPU_COUNTERS.items():
            value = _number(_mapping(gpu).get(field))
            if value is not None:
                yield f"GPU {_mapping(gpu).get('index', '?')} {title}", value


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    """Read a number as nvidia-smi prints it; '[N/A]' is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
