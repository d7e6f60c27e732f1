"""One run of stress-ng as it is being read, and what its YAML says of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,12})?(?:[eE][+-]?\d{1,2})?")
_TIMES = (("day", 86400.0), ("hour", 3600.0), ("min", 60.0), ("sec", 1.0))
_YAML_KEYS = {
    "bogo-ops": "bogo_ops", "bogo-ops-per-second-usr-sys-time": "bogo_ops_per_s_usrsys",
    "bogo-ops-per-second-real-time": "bogo_ops_per_s_real", "wall-clock-time": "real_time", "user-time": "usr_time",
    "system-time": "sys_time", "cpu-usage-per-instance": "cpu_used_per_instance", "max-rss": "rss_max",
}  # fmt: skip


@dataclass(slots=True)
class Run:
    """One run of stress-ng, or one YAML file."""

    rows: list[tuple[str, dict[str, float]]] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    header: bool = False
    begun: bool = False
    """Whether its first line was there, which says for how long each stressor runs."""
    dispatched: dict[str, int] = field(default_factory=dict)
    summary: dict[str, dict[str, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    not_here: dict[str, int] = field(default_factory=dict)
    """Stressor → how many of its instances said that this system does not have what they need."""
    miscellaneous: list[dict[str, Any]] = field(default_factory=list)
    in_miscellaneous: bool = False
    failures: list[str] = field(default_factory=list)
    damaged: int = 0
    end: str | None = None
    run_time: float | None = None
    version: str | None = None
    yaml: bool = False
    yaml_ended: bool = False
    yaml_per_instance: bool = False

    def seen(self) -> bool:
        """Say whether anything of it was read."""
        return self.begun or self.works() or bool(self.failures or self.yaml or self.damaged)

    def works(self) -> bool:
        """Say whether stressors were started, or anything of what they did was read."""
        return bool(self.rows or self.header or self.dispatched or self.end)


def take_yaml_start(runs: list[Run], text: str) -> None:
    """Take the line by which a YAML file begins, or the one that names its version."""
    run = runs[-1]
    if text.startswith("---"):
        if run.seen():
            runs.append(run := Run())
        run.yaml = True
    else:
        run.yaml, run.version = True, text.partition(":")[2].strip()


def take_yaml(run: Run, text: str) -> None:
    """Take a line of the YAML file."""
    key, colon, value = text.strip().partition(":")
    key, value = key.removeprefix("- ").strip(), value.strip()
    if text.strip() == "...":
        run.yaml_ended = True
    elif not colon:
        return
    elif key == "stressor":
        run.rows.append((value, {}))
        run.yaml_per_instance = False
    elif key == "instances" or not text.startswith(" "):
        run.yaml_per_instance = True  # values of single instances, or another section
    elif key == "run-time" and NUMBER.fullmatch(value):
        run.run_time = float(value)
    elif run.rows and not run.yaml_per_instance and key in _YAML_KEYS:
        if NUMBER.fullmatch(value):
            run.rows[-1][1].setdefault(_YAML_KEYS[key], float(value))
        else:
            run.damaged += 1


def seconds(text: str) -> float | None:
    """Read '5.00s', '60.01s (1 min, 0.01 secs)', '2 mins, 5.45 secs'."""
    if match := re.match(r"(\d{1,12}(?:\.\d{1,6})?)s\b", text):
        return float(match[1])
    total, found = 0.0, False
    for name, length in _TIMES:
        if match := re.search(rf"(\d{{1,9}}(?:\.\d{{1,6}})?) {name}s?\b", text):
            total, found = total + float(match[1]) * length, True
    return total if found else None
