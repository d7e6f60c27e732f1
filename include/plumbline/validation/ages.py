"""How many nights ago everything was last measured: nodes, benchmarks, and each node at each rung of a benchmark.

A node that is busy whenever the collectives of four nodes run may well be measured alone every night: its age there
is counted there.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plumbline.errors import OutputError
from plumbline.model import Origin
from plumbline.tracking.history import load_history
from plumbline.tracking.judged_run import LAUNCHES, why_untrusted
from plumbline.tracking.run_directory import RunDirectory, run_time
from plumbline.validation.gate import rung_key

MOST_NIGHTS = 31
"""How far back is looked: no suite may tolerate a gap for longer (suites/suite.py)."""
MOST_RUNS = 60

Place = tuple[str, int, str]
"""benchmark, node count, node."""


def nights_since(results: Path, cluster: str, *, origin: Origin, run_id: str) -> dict[str, int]:
    """Give nights since each node, benchmark and rung was last measured before `run_id`, that run's night included.

    A node has an entry of its own at a rung only where it is older there than the rung is; one that was never measured
    there is as old as the rung's first measurement in sight. What was not measured in sight is absent.
    """
    newest: dict[Place, int] = {}
    first: dict[str, int] = {}
    for age, places in _measured(results, cluster, origin, run_id):
        for place in places:
            newest.setdefault(place, age)
            first[rung_key(*place[:2])] = age
    found: dict[str, int] = {}
    for (benchmark, node_count, node), age in newest.items():
        for key in (node, benchmark, rung_key(benchmark, node_count)):
            found[key] = min(age, found.get(key, age))
    nodes = {node for _, _, node in newest}
    for benchmark, node_count in {place[:2] for place in newest}:
        rung = rung_key(benchmark, node_count)
        for node in nodes:
            age = newest.get((benchmark, node_count, node), first[rung])
            if age > found[rung] or (benchmark, node_count, node) not in newest:
                found[rung_key(benchmark, node_count, node)] = age
    return found


def _measured(results: Path, cluster: str, origin: Origin, run_id: str) -> Iterator[tuple[int, set[Place]]]:
    """Give age and measured places of earlier usable runs, newest first."""
    before, columns = run_id, ("launch_id", "benchmark", "node_count")
    for _ in range(MOST_RUNS):
        history = load_history(results, cluster, origin=origin, before=before, newest=1, columns=columns)
        if not history.runs:
            return
        [run] = history.runs
        before, age = run.run_id, (run_time(run_id) - run_time(run.run_id)).days + 1
        if age > MOST_NIGHTS:
            return
        nodes = _nodes_of_launches(run)
        rows = history.table.group_by(list(columns)).aggregate([]).to_pylist()
        yield (
            age,
            {(row["benchmark"], row["node_count"], node) for row in rows for node in nodes.get(row["launch_id"], ())},
        )


def _nodes_of_launches(run: RunDirectory) -> dict[str, list[str]]:
    """Give launch → nodes; nothing where the list of launches is not what the judge wrote."""
    if why_untrusted(run, LAUNCHES):
        return {}
    try:
        return {item["launch_id"]: item["nodes"] for item in run.read_derived(LAUNCHES)}
    except (OutputError, KeyError, TypeError):
        return {}
