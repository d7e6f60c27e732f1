"""What two runs must have in common to be set against each other, and in what they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plumbline.model import Origin, canonical_json
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


def differing_settings(a: JudgedRun, b: JudgedRun) -> dict[str, str]:
    """Give benchmark → what differs in its version or parameters, for benchmarks that are in both plans."""
    left, right = _settings(a), _settings(b)
    found = {}
    for name in sorted(left.keys() & right.keys()):
        (old_version, old), (new_version, new) = left[name], right[name]
        if old_version != new_version:
            found[name] = f"benchmark version {old_version} → {new_version}"
            continue
        differing = [
            f"{key}: {_setting(old.get(key))} → {_setting(new.get(key))}"
            for key in sorted({*old, *new})
            if old.get(key) != new.get(key) and not _selects(key, old.get(key), new.get(key))
        ]
        if differing:
            found[name] = f"parameters differ: {'; '.join(differing)}"
    return found


def _settings(run: JudgedRun) -> dict[str, tuple[str, Mapping[str, Any]]]:
    return {spec.benchmark: (spec.benchmark_version, spec.params) for spec in run.plan.launches}


def _selects(key: str, old: Any, new: Any) -> bool:
    """Say whether a parameter only chooses which rows there are; the rows that both have stay comparable."""
    lists = any(isinstance(value, str) and "," in value for value in (old, new))
    return lists or key in _SELECTING


_SELECTING = ("operations", "operation", "jobs", "min_bytes", "max_bytes", "size_count")


def _setting(value: Any) -> str:
    return "absent" if value is None else canonical_json(value)
