"""What a run was asked for otherwise than its suite: less than the suite must never be taken for the suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import entry_params
from plumbline.suites.suite import Suite, SuiteBenchmark

SUITE_SETTINGS = ("node_counts", "repeats")
"""What settings change for all benchmarks. Those that were left out are gaps of the plan, each with its verdict."""
Asked = list[dict[str, Any]]


def asked_otherwise(profile: ClusterProfile, suite: Suite, chosen: Suite) -> Asked:
    """Give {setting, run, suite} for everything that the chosen suite measures otherwise than the suite's file.

    A parameter is named benchmark.parameter; one that was given the value which it has anyway is not otherwise.
    """
    found = [
        {"setting": name, "run": _plain(getattr(chosen, name)), "suite": _plain(getattr(suite, name))}
        for name in SUITE_SETTINGS
        if getattr(chosen, name) != getattr(suite, name)
    ]
    before, known = dict(_numbered(suite.benchmarks)), {one["setting"] for one in found}
    for key, entry in _numbered(chosen.benchmarks):
        own, asked = (entry_params(profile, one, f"suite {suite.name}") for one in (before[key], entry))
        for name in own:
            setting = f"{entry.benchmark}.{name}"
            if own[name] != asked[name] and setting not in known:
                known.add(setting)
                found.append({"setting": setting, "run": asked[name], "suite": own[name]})
    return found


def _numbered(entries: Iterable[SuiteBenchmark]) -> Iterator[tuple[tuple[str, int], SuiteBenchmark]]:
    """Tell entries of the same benchmark apart by their order, which settings don't change."""
    seen: Counter[str] = Counter()
    for entry in entries:
        yield (entry.benchmark, seen[entry.benchmark]), entry
        seen[entry.benchmark] += 1


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def asked_in_words(asked: Iterable[Mapping[str, Any]]) -> str:
    """Say it for people: 'node_counts 1 (the suite: ladder)'; '' for the suite as it is."""
    return ", ".join(f"{one['setting']} {_shown(one['run'])} (the suite: {_shown(one['suite'])})" for one in asked)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def narrowed(asked: Iterable[Mapping[str, Any]]) -> Asked:
    """Leave out what only asks for more: whoever repeats a night's launches has measured that night."""
    return [dict(one) for one in asked if not (one["setting"] == "repeats" and one["run"] > one["suite"])]
