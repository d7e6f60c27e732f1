"""Runs of the fake cluster: prepared run directories, and batch pods put into it without Airflow."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.clusters.inventory import InventoryNode
from plumbline.execution import pods
from plumbline.execution.plan import Batch, Plan, plan_data
from plumbline.kubernetes.api import Access, Api
from plumbline.model import LaunchSpec
from plumbline.suites.suite import Suite
from plumbline.tracking.run_directory import RunDirectory, new_run_id
from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.profiles import profile, spec

ROOT = Path(__file__).resolve().parents[2]
PYTHON = str(getattr(sys, "_base_executable", sys.executable))
"""The interpreter without the project's environment: what pods run must not need it."""
WAITS = {"start_s": 120, "unschedulable_s": 60, "orphan_s": 60, "node_lost_s": 1, "grace_s": 30, "outage_s": 120}
"""None of them is over by itself on a busy machine. A test of what happens when one is over shortens that one."""
LONG_S = 300.0
"""The limit of a benchmark that lasts until a test has done something to it."""
UNTIL_THE_END = f"n=0; while [ ! -e ../../../end ] && [ $n -lt {LONG_S * 5:.0f} ]; do sleep 0.2; n=$((n+1)); done"
"""What a benchmark does until a test lets it end, by a file in the run's folder. It ends by itself after LONG_S: where
a test kills what started it, nobody else ends it."""


def let_all_end(results: Path) -> None:
    """Let every benchmark of every run end: what a test has killed the parents of too."""
    for run in results.glob("*/*/*"):
        (run / "end").touch()


def shell(script: str) -> tuple[str, ...]:
    """Give the argv of a benchmark of one node."""
    return ("sh", "-c", script)


def ranks(script: str, nodes: Sequence[str], python: str = PYTHON) -> tuple[str, ...]:
    """Give the argv of a benchmark of several nodes, as the real ones are started: one rank a node."""
    hosts = ("--hosts", ",".join(nodes), "--per-node", "1")
    return (python, "-m", "plumbline_bench.mpi_ranks", *hosts, "--", "sh", "-c", script)


def launches(
    groups: Sequence[Sequence[str]],
    script: str,
    timeout_s: float = LONG_S,
    python: str = PYTHON,
    programs: str = str(ROOT / "docker" / "bench"),
    **changes: Any,
) -> list[LaunchSpec]:
    """Give one launch of a shell script for each group of nodes."""
    return [
        spec(
            nodes, group=group, argv=ranks(script, nodes, python) if len(nodes) > 1 else shell(script),
            env={"PYTHONPATH": programs}, timeout_s=timeout_s, **changes,
        )
        for group, nodes in enumerate(groups)
    ]  # fmt: skip


def prepare(
    results: Path, specs: Sequence[LaunchSpec], changes: Mapping[str, Any] | None = None, nodes: Sequence[str] = ()
) -> RunDirectory:
    """Write an unsealed run of one batch on a cluster whose volume is `results`; its inventory holds `nodes`."""
    chosen = profile(
        {"python": PYTHON, "kubernetes": {
            "results": {"claim": None, "host_path": str(results), "mount": str(results)},
            "package": str(ROOT / "include"), "waits": WAITS, "retries": 0, "idle": {"wait_s": 0},
        }},
        changes or {},
    )  # fmt: skip
    run_id = new_run_id()
    launched = [LaunchSpec(**{**_fields(one), "run_id": run_id}) for one in specs]
    batch = Batch(
        batch_id=f"nccl_tests-n{launched[0].node_count}", benchmark="nccl_tests", node_count=launched[0].node_count,
        launch_ids=tuple(one.launch_id for one in launched),
    )  # fmt: skip
    plan = Plan(
        run_id=run_id, cluster="lab", suite="tiny", seed=1, inventory=tuple(InventoryNode(name=n) for n in nodes),
        launches=tuple(launched), batches=(batch,),
    )  # fmt: skip
    suite = Suite.model_validate(
        {"name": "tiny", "title": "Tiny", "kind": "nightly", "gate": {}, "benchmarks": [{"benchmark": "fio"}]}
    )
    run = RunDirectory.create(results, "lab", "tiny", run_id)
    run.write_evidence("profile", chosen.model_dump(mode="json"))
    run.write_evidence("suite", suite.model_dump(mode="json"))
    run.write_evidence("plan", plan_data(plan))
    return run


def _fields(one: LaunchSpec) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


def api_of(cluster: FakeCluster) -> Api:
    """Give a client of the fake cluster that never waits."""
    return Api(Access(server=cluster.api.url), patience_s=0)


def start(cluster: FakeCluster, run: RunDirectory, name: str | None = None) -> str:
    """Put the batch's pod into the cluster; give its name."""
    plan = run.plan()
    pod = pods.batch_pod(run.read_evidence("profile"), plan.batches[0].batch_id, plan.launches, run.evidence)
    pod["metadata"]["name"] = name or pod["metadata"]["name"]
    cluster.store.create("pods", "plumbline", {**pod, "status": {"phase": "Pending", "conditions": []}})
    return str(pod["metadata"]["name"])


def pod(cluster: FakeCluster, name: str) -> dict[str, Any] | None:
    """Give a pod of the project's namespace, or None."""
    return cluster.store.get(("pods", "plumbline", name))


def finish(cluster: FakeCluster, name: str, seconds: float = 240) -> int:
    """Wait for a pod's end; give its exit code."""

    def over() -> bool:
        body = pod(cluster, name)
        return body is None or body["status"]["phase"] in ("Succeeded", "Failed")

    wait_for(over, seconds, lambda: log(cluster, name))
    body = pod(cluster, name)
    assert body is not None, log(cluster, name)
    statuses = body["status"].get("containerStatuses")
    return statuses[0]["state"]["terminated"]["exitCode"] if statuses else 128


def log(cluster: FakeCluster, name: str) -> str:
    """Give what a pod printed, however it ended."""
    return "\n".join(
        line for one in cluster.containers.values() if one.pod["metadata"]["name"] == name for _, line in one.lines
    )


def records(run: RunDirectory) -> dict[str, dict[str, Any]]:
    """Give the records by file name without suffix."""
    return {p.stem: json.loads(p.read_text()) for p in sorted((run.evidence / "records").glob("*.json"))}


def outcomes(run: RunDirectory) -> dict[str, str]:
    """Give the outcome, and the code of those that have one, of each record."""
    return {name: ":".join(filter(None, (r["outcome"], r["code"]))) for name, r in records(run).items()}


def wait_for(condition: Callable[[], Any], seconds: float = 120, told: Callable[[], str] = str) -> Any:
    """Wait until something is true; give it."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"never happened; {told()}"
        time.sleep(0.03)
    return value
