"""Hold planted faults against the cluster before a run starts, and say which of them are there that night."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

from plumbline.amounts import plural
from plumbline.benchmarks import benchmarks
from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import ClusterProfile
from plumbline.configuration import at_line
from plumbline.errors import ConfigError, near_match
from plumbline.simulation.faults import TARGETS, Fault, Scenario, active_faults
from plumbline.simulation.hardware import hardware_model
from plumbline.simulation.truth import Places


def check_faults(scenario: Scenario, profile: ClusterProfile, path: str) -> None:
    """Refuse a fault on what the cluster doesn't have. Raises ConfigError with file, key, line and nearest choice."""
    places = Places.of(static_inventory(profile, date.min), hardware_model(profile.accelerator.model))
    for number, fault in enumerate(scenario.faults):
        for key, problem in _problems(fault, places):
            line = at_line(Path(path), "faults", number, key)
            raise ConfigError(f"{path}: faults[{number}].{key}: {profile.name} has {problem}{line}")


def _problems(fault: Fault, places: Places) -> Iterator[tuple[str, str]]:
    """Give the key and what is wrong, of each part that a fault names and the cluster doesn't have."""
    for key in TARGETS[fault.kind]:
        value = getattr(fault, key)
        try:
            if key == "nodes":
                for name in value:
                    places.node(name)
            elif key in ("node", "leaf"):
                getattr(places, key)(value)
            elif key != "resource":
                places.part(value, key)
        except ConfigError as error:
            yield key, str(error)
    if fault.benchmark is not None and fault.benchmark not in benchmarks():
        yield "benchmark", f"no benchmark {fault.benchmark!r}{near_match(fault.benchmark, benchmarks())}"


def planted(scenario: Scenario, path: str, moment: datetime, measured: Collection[str]) -> dict[str, Any]:
    """Give what is planted in a run that begins at a moment, as plain data for the run's environment.

    `measured` names the benchmarks of the run: a fault that is only in another touches nothing.
    """
    active = active_faults(scenario.faults, moment.date(), moment.hour)
    named = [_in_words(fault, measured) for fault in active]
    count = f"{len(active)} of {plural(len(scenario.faults), 'planted fault')}"
    when = f"on {moment.date()} at {moment.hour:02d} h UTC"
    more = f" and {len(named) - 5} more" if len(named) > 5 else ""
    words = f"{count} {'is' if len(active) == 1 else 'are'} active {when}: "
    words += f"{', '.join(named[:5])}{more}" if named else "a healthy cluster; a fault without start and end always is"
    return {"file": path, "faults": len(scenario.faults), "active": named, "words": f"SIMULATED: {words}"}


def _in_words(fault: Fault, measured: Collection[str]) -> str:
    where = f" in {fault.benchmark}" if fault.benchmark else ""
    idle = ", which this run leaves out" if fault.benchmark and fault.benchmark not in measured else ""
    return f"{fault.kind} at {fault.component}{where}{idle}"
