"""What two runs must have in common to be set against each other, and in what they differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plumbline.model import Origin, Params, canonical_json
from plumbline.tracking.judged_run import JudgedRun


def warnings(a: JudgedRun, b: JudgedRun) -> Iterator[str]:
    """Say what of cluster, suite, hardware and origin differs."""
    for name, left, right in (
        ("clusters", a.cluster, b.cluster),
        ("suites", a.suite_name, b.suite_name),
        ("devices", a.device.value, b.device.value),
        ("accelerators", a.profile.accelerator.model, b.profile.accelerator.model),
        ("fabrics", a.profile.fabric.name, b.profile.fabric.name),
    ):
        if left != right:
            yield f"different {name}: {left} and {right}"
    if a.origin is not b.origin:
        yield (
            f"{a.run_id} is {a.origin.value} and {b.run_id} is {b.origin.value}: "
            "the differences say nothing about hardware"
        )


def word(run: JudgedRun) -> str:
    """Give verdict and gate, such as 'FAIL, the gate is closed'."""
    stamp = f", {run.origin.value.upper()}" if run.origin is Origin.SIMULATED else ""
    return f"{run.verdict.value}, the gate is {'open' if run.gate_open else 'closed'}{stamp}"


_ASKED = ("node_counts", "repeats", "faults", "omitted", "gpu_hours")
"""What of a suite says how much is measured and of what; what a benchmark measures is in its parameters."""


def asked_otherwise(a: JudgedRun, b: JudgedRun) -> Iterator[str]:
    """Name the settings that differ: what the suites ask for, and the parameters that were given with --set."""
    left, right = a.suite.model_dump(mode="json"), b.suite.model_dump(mode="json")
    for name in _ASKED:
        if left[name] != right[name]:
            yield f"{name}: {_asked(left[name])} → {_asked(right[name])}"
    environments = [run.run.read_evidence("environment") for run in (a, b)]
    active = [one.get("planted", {}).get("active", []) for one in environments]
    if active[0] != active[1]:
        yield f"planted faults: {_some(active[0])} → {_some(active[1])}"
    given = [one.get("settings", {}) for one in environments]
    for name in sorted({key for one in given for key in one if "." in key}):
        if given[0].get(name) != given[1].get(name):
            yield f"{name}: {_asked(given[0].get(name))} → {_asked(given[1].get(name))}"


def _some(faults: Sequence[str]) -> str:
    return (", ".join(faults[:5]) or "none active") + (f" and {len(faults) - 5} more" if len(faults) > 5 else "")


def _asked(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a run measured a benchmark: its version, and its parameters, more than once where a suite names it twice."""

    version: str
    params: tuple[Params, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """In what two settings differ. With a `reason` no row of the one can be set against a row of the other.

    `selected` is coordinate → what selects other rows: rows that name the coordinate stay comparable one by one, a row
    that doesn't stands for all that were selected and is another number.
    """

    reason: str = ""
    selected: Mapping[str, str] = field(default_factory=dict)

    def summary(self, params: str) -> str | None:
        """Say why a row with these parameters (canonical JSON) stands for other rows; None when it doesn't."""
        if not self.selected:
            return None
        named = json.loads(params)
        return "; ".join(text for coordinate, text in self.selected.items() if coordinate not in named) or None


_SELECTING: Mapping[str, str | None] = {
    "operations": "operation",
    "min_bytes": "message_bytes",
    "max_bytes": "message_bytes",
    "jobs": None,
}
"""Parameters that only choose which rows there are, and the coordinate in which those rows differ; None where each has
an indicator of its own, and none stands for several."""


def difference(old: Setting, new: Setting) -> Difference | None:
    """Say in what a benchmark was measured otherwise; None where every row is comparable."""
    if old.version != new.version:
        return Difference(reason=f"benchmark version {old.version} → {new.version}")
    if len(old.params) != len(new.params):
        return Difference(reason=f"sets of parameters: {len(old.params)} → {len(new.params)}")
    told: dict[str, None] = {}
    selected: dict[str, str] = {}
    for one, other in zip(old.params, new.params, strict=True):
        for key in sorted({*one, *other}):
            if one.get(key) == other.get(key):
                continue
            text, coordinate = f"{key}: {_setting(one.get(key))} → {_setting(other.get(key))}", _SELECTING.get(key)
            if key not in _SELECTING:
                told[text] = None
            elif coordinate is not None:
                selected[coordinate] = f"{selected[coordinate]}; {text}" if coordinate in selected else text
    return Difference(reason="; ".join(told), selected={} if told else selected) if told or selected else None


def differing_settings(a: JudgedRun, b: JudgedRun) -> dict[str, Difference]:
    """Give benchmark → what differs in its version or parameters, for benchmarks that are in both plans."""
    left, right = _settings(a), _settings(b)
    both = sorted(left.keys() & right.keys())
    return {name: found for name in both if (found := difference(left[name], right[name])) is not None}


def _settings(run: JudgedRun) -> dict[str, Setting]:
    found: dict[str, tuple[str, list[Params]]] = {}
    for spec in run.plan.launches:
        _, params = found.setdefault(spec.benchmark, (spec.benchmark_version, []))
        if spec.params not in params:
            params.append(spec.params)
    return {name: Setting(version=version, params=tuple(params)) for name, (version, params) in found.items()}


def _setting(value: Any) -> str:
    return "absent" if value is None else canonical_json(value)
