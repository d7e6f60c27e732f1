"""Under which hardware, software and tool versions a run's numbers came about, for spotting drift between runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_HARDWARE = ("product_name", "cpu_model", "cpu_count", "memory_bytes")
_SKIPPED_SOFTWARE = ("env", "machine", "affinity_cpus")


def surroundings(launches: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Give name → value → number of launches that had it; one value means that all launches agreed.

    `launches` is launches.json. Names are those of the evidence (kernel, nvidia_driver, cpu_model …), `gpu` for the
    GPU models of a node, `env NAME` for variables that steer a tool, and `<benchmark> <fact>` for tool versions.
    """
    found: dict[str, Counter[str]] = {}
    for launch in launches:
        for name, value in {*_of_launch(launch)}:
            found.setdefault(name, Counter())[value] += 1
    return dict(sorted(found.items()))


def _of_launch(launch: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    hardware, environment = launch.get("hardware") or {}, launch.get("environment") or {}
    for name in _HARDWARE:
        if hardware.get(name) is not None:
            yield name, str(hardware[name])
    if gpus := hardware.get("gpus"):
        models = Counter(str(gpu.get("name")) for gpu in gpus if isinstance(gpu, Mapping))
        yield "gpu", ", ".join(f"{count} × {model}" for model, count in sorted(models.items()))
    for name, value in environment.items():
        if name not in _SKIPPED_SOFTWARE and isinstance(value, (str, int, float)):
            yield name, str(value)
    steering = environment.get("env")
    for name, value in steering.items() if isinstance(steering, Mapping) else ():
        yield f"env {name}", str(value)
    for name, value in (launch.get("facts") or {}).items():
        if name.endswith("version"):
            for item in value if isinstance(value, list) else [value]:
                yield f"{launch['benchmark']} {name}", str(item)


def uniform(found: Mapping[str, Counter[str]]) -> dict[str, str]:
    """Give each name's one value, or how many different values there are."""
    return {
        name: next(iter(values)) if len(values) == 1 else f"{len(values)} different values"
        for name, values in found.items()
    }


def differences(before: Mapping[str, Counter[str]], after: Mapping[str, Counter[str]]) -> list[str]:
    """Say in words what differs between two runs' surroundings; a name that only one run knows is said so."""
    lines = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None or set(old) != set(new):
            lines.append(f"{name}: {_shown(old)} → {_shown(new)}")
    return lines


def _shown(values: Counter[str] | None) -> str:
    if values is None:
        return "not recorded"
    shown = [value for value, _ in values.most_common(3)]
    return ", ".join(shown) + (f" and {len(values) - 3} more" if len(values) > 3 else "")
