"""LaunchOperator on the fake cluster: KubernetesPodOperator's pod, the cluster's outcome, and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.profiles import EVERYTHING
from tests.kubernetes.runs import (
    LONG_S,
    ROOT,
    UNTIL_THE_END,
    api_of,
    launches,
    let_all_end,
    outcomes,
    pod,
    prepare,
    records,
    start,
    wait_for,
)

from plumbline.execution import kubernetes
from plumbline.kubernetes import batch_pod, lease
from plumbline.tracking.run_directory import RunDirectory
from plumbline_airflow.launch import LaunchOperator, _plain

GPU = "nvidia.com/gpu"
SINGLE, GANG = [["n1"]], [["n1", "n2"]]


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCluster]:
    monkeypatch.setattr(batch_pod, "POLL_S", 0.1)
    with FakeCluster(tmp_path / "cluster", nodes=[]) as cluster:
        cluster.add_node("cpu", 0)
        for name in ("n1", "n2"):
            cluster.add_node(name, 8)
        yield cluster
    let_all_end(tmp_path / "results")


@pytest.fixture(params=[SINGLE, GANG], ids=["single-node", "gang"], name="groups")
def _groups(request: pytest.FixtureRequest) -> list[list[str]]:
    return request.param


def begin(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]], script: str = "true", **settings: Any
) -> RunDirectory:
    """Prepare a run of one launch that marks its beginning on every node."""
    changes = {
        "images": {"launcher": "registry.example/launcher@sha256:" + "c" * 64},
        "kubernetes": {"access": {"kubeconfig": str(cluster.kubeconfig())}, "retries": 1, **settings},
    }
    marked = f"touch ../../../began-$PLUMBLINE_NODE; {script}"
    return prepare(tmp_path / "results", launches(groups, marked), changes)


def operator(run: RunDirectory) -> LaunchOperator:
    return LaunchOperator(task_id="launch", run_dir=str(run.path), batch_id=run.plan().batches[0].batch_id)


def context(try_number: int = 1, max_tries: int = 1) -> Any:
    pushed: dict[str, Any] = {}
    ti = SimpleNamespace(
        dag_id="nightly_baseline", task_id="launch", map_index=0, try_number=try_number, max_tries=max_tries,
        xcom_push=lambda key, value: pushed.update({key: value}), pushed=pushed,
    )  # fmt: skip
    return {"ti": ti, "run_id": "manual__1", "dag": None}


def begun(run: RunDirectory, groups: list[list[str]]) -> None:
    wait_for(lambda: len(list(run.path.glob("began-*"))) == len(groups[0]), LONG_S)


def nothing_is_left(cluster: FakeCluster) -> None:
    wait_for(lambda: not cluster.store.all("pods") and not cluster.store.all("jobs"))


def meanwhile(act: Any, *args: Any) -> threading.Thread:
    thread = threading.Thread(target=act, args=args, daemon=True)
    thread.start()
    return thread


def test_a_batch_runs_in_its_pod_and_leaves_records_only(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    run = begin(cluster, tmp_path, groups)
    told = context()
    launch = operator(run)
    launch.pre_execute(told)
    assert launch.execution_timeout > timedelta(seconds=LONG_S + 120 + 300)
    launch.execute(told)
    assert list(outcomes(run).values()) == ["exited"]
    assert told["ti"].pushed["pod_name"].startswith("pl-")
    nothing_is_left(cluster)


def without_empty(data: Any) -> Any:
    """Leave out the empty lists that the provider writes for what it was not given."""
    if isinstance(data, dict):
        return {key: without_empty(value) for key, value in data.items() if value != []}
    return [without_empty(item) for item in data] if isinstance(data, list) else data


def test_the_pod_is_that_of_the_manifest_with_airflows_labels(cluster: FakeCluster, tmp_path: Path) -> None:
    everything = {key: value for key, value in EVERYTHING["kubernetes"].items() if key not in ("queue", "storage")}
    run = begin(cluster, tmp_path, SINGLE, **everything)
    launch = operator(run)
    launch._reach(run.profile())
    batch = batch_pod.BatchPod(run.profile(), launch.batch_id, run.plan().launches, run.evidence, print)
    launch.pod_template_dict = batch.manifest
    built = _plain(launch.build_pod_request_obj(context()))
    added = built["metadata"]["labels"].keys() - batch.manifest["metadata"]["labels"].keys()
    assert {"dag_id", "task_id", "run_id", "try_number", "kubernetes_pod_operator"} <= added
    assert built["metadata"]["name"] == batch.manifest["metadata"]["name"]
    assert without_empty(built["spec"]) == batch.manifest["spec"]


FAULTS = {
    "out of memory": (lambda cluster, body: cluster.oom(body), "out_of_memory", False),
    "eviction": (lambda cluster, body: cluster.evict(body), "evicted", True),
    "preemption": (lambda cluster, body: cluster.preempt(body), "preempted", False),
    "lost pod": (
        lambda cluster, body: cluster._delete(("pods", "plumbline", body["metadata"]["name"]), 0),
        "infrastructure", True,
    ),
    "node lost": (lambda cluster, body: cluster.lose_node(body["spec"]["nodeName"]), "node_lost", True),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("tries_left", [True, False], ids=["tries left", "last try"])
def test_what_ends_the_pod_is_recorded_and_tried_again_only_where_that_may_help(
    cluster: FakeCluster, tmp_path: Path, fault: str, tries_left: bool
) -> None:
    from airflow.sdk.exceptions import AirflowException, AirflowFailException

    act, code, transient = FAULTS[fault]
    # A pod on a lost node is waited for twice that long.
    run = begin(cluster, tmp_path, SINGLE, UNTIL_THE_END, waits={"grace_s": 1} if fault == "node lost" else {})
    caught: list[BaseException] = []

    def execute() -> None:
        try:
            operator(run).execute(context(try_number=1 if tries_left else 2))
        except BaseException as error:
            caught.append(error)

    thread = meanwhile(execute)
    begun(run, SINGLE)
    act(cluster, next(p for p in cluster.store.all("pods")))
    thread.join(LONG_S)
    assert list(outcomes(run).values())[-1] == f"infrastructure:{code}"
    raised = [type(error) for error in caught]
    assert raised == ([AirflowException] if transient and tries_left else []), caught
    assert AirflowFailException not in raised
    if fault != "node lost":
        nothing_is_left(cluster)


def quota_full(cluster: FakeCluster) -> None:
    cluster.api.quota_full = True


STARTS = {
    "quota": (quota_full, "quota", "exceeded quota"),
    "image pull back-off": (lambda c: c.bad_images.update({"nccl-tests": None}), "image_pull", "not found"),
    "7 of 8 GPUs": (
        lambda c: c.store.change(("nodes", "", "n1"), lambda n: n["status"]["allocatable"].update({GPU: "7"})),
        "missing_gpu", "Insufficient nvidia.com/gpu",
    ),
    "unschedulable": (
        lambda c: c.store.change(("nodes", "", "n1"), lambda n: n["spec"].update(unschedulable=True)),
        "unschedulable", "node(s) were unschedulable",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", STARTS)
def test_a_pod_that_can_not_start_is_given_up_with_the_reason(cluster: FakeCluster, tmp_path: Path, fault: str) -> None:
    act, code, words = STARTS[fault]
    act(cluster)
    run = begin(cluster, tmp_path, SINGLE, waits={"unschedulable_s": 1})
    operator(run).execute(context(try_number=2))
    [record] = records(run).values()
    assert (record["outcome"], record["code"]) == ("infrastructure", code)
    assert words in record["reason"]
    nothing_is_left(cluster)


def test_a_default_of_deferring_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE", "True")
    assert LaunchOperator(task_id="launch", run_dir="x", batch_id="y").deferrable is False


def test_an_api_that_is_down_while_the_pod_runs(cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]) -> None:
    run = begin(cluster, tmp_path, groups, UNTIL_THE_END)
    thread = meanwhile(operator(run).execute, context())
    begun(run, groups)
    cluster.api.outage(True)
    (run.path / "end").touch()
    wait_for(lambda: list((run.evidence / "records").glob("*.json")))
    cluster.api.outage(False)
    thread.join(LONG_S)
    assert list(outcomes(run).values()) == ["exited"]
    nothing_is_left(cluster)


@pytest.mark.parametrize("status", [404, 500, 0])
def test_a_log_that_is_missing_loses_nothing(cluster: FakeCluster, tmp_path: Path, status: int) -> None:
    cluster.api.fail("GET", "/log", status, times=1000)
    run = begin(cluster, tmp_path, SINGLE)
    operator(run).execute(context())
    assert list(outcomes(run).values()) == ["exited"]


def test_a_second_try_goes_on_with_the_pod_of_the_first(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    run = begin(cluster, tmp_path, groups, UNTIL_THE_END)
    name = start(cluster, run)  # as a worker that was killed since has left it
    begun(run, groups)
    threading.Timer(1.0, (run.path / "end").touch).start()
    operator(run).execute(context(try_number=2))
    assert list(outcomes(run).values()) == ["exited"]
    assert len({c.pod["metadata"]["uid"] for c in cluster.containers.values()}) == (1 if groups is SINGLE else 3)
    wait_for(lambda: pod(cluster, name) is None)


def test_a_pod_that_ended_meanwhile_is_accounted_for_and_not_run_again(cluster: FakeCluster, tmp_path: Path) -> None:
    run = begin(cluster, tmp_path, SINGLE)
    name = start(cluster, run)
    wait_for(lambda: (pod(cluster, name) or {})["status"]["phase"] == "Succeeded")
    operator(run).execute(context(try_number=2))
    assert list(outcomes(run)) == ["nccl_tests-n1-g0-r1.a1"]
    assert len(cluster.containers) == 1
    nothing_is_left(cluster)


def test_a_task_that_is_killed_takes_its_pods_along(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    """As Airflow does it, also when a task is marked failed: SIGTERM to its process, whose handler calls on_kill."""
    run = begin(cluster, tmp_path, groups, UNTIL_THE_END)
    program = f"""
import signal, sys
from plumbline_airflow.launch import LaunchOperator, _plain
launch = LaunchOperator(task_id="launch", run_dir={str(run.path)!r}, batch_id={run.plan().batches[0].batch_id!r})
def stop(*_):
    launch.on_kill()
    sys.exit(1)
signal.signal(signal.SIGTERM, stop)
launch.execute({{}})
"""
    path = os.pathsep.join([str(ROOT / "include"), str(ROOT / "plugins")])
    task = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path})
    begun(run, groups)
    task.send_signal(signal.SIGTERM)
    assert task.wait(LONG_S) == 1
    nothing_is_left(cluster)
    assert list(outcomes(run).values()) == ["stopped:stopped"]


def test_the_command_line_does_the_same(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "RETRY_PAUSE_S", 0.1)
    run = begin(cluster, tmp_path, groups)
    kubernetes.launch(run.profile(), run.plan().launches, run.evidence, print)
    assert list(outcomes(run).values()) == ["exited"]
    nothing_is_left(cluster)


def test_a_launcher_whose_node_is_lost_is_followed_by_another(cluster: FakeCluster, tmp_path: Path) -> None:
    """The old pod can't be removed; its workers end without it, and only then anything starts anew."""
    from airflow.sdk.exceptions import AirflowException

    run = begin(cluster, tmp_path, GANG, UNTIL_THE_END, waits={"grace_s": 1})
    caught: list[BaseException] = []

    def execute() -> None:
        try:
            operator(run).execute(context())
        except BaseException as error:
            caught.append(error)

    first = meanwhile(execute)
    begun(run, GANG)
    cluster.lose_node("cpu")
    first.join(LONG_S)
    assert [type(error) for error in caught] == [AirflowException]
    assert list(outcomes(run).values()) == ["infrastructure:node_lost"]
    (run.path / "end").touch()
    operator(run).execute(context(try_number=2))
    assert list(outcomes(run).values())[-1] == "exited"
    cluster.node_back("cpu")
    nothing_is_left(cluster)


def test_a_launcher_that_runs_out_of_memory_is_not_the_benchmarks_fault(cluster: FakeCluster, tmp_path: Path) -> None:
    run = begin(cluster, tmp_path, GANG, UNTIL_THE_END)
    thread = meanwhile(operator(run).execute, context(try_number=2))
    begun(run, GANG)
    cluster.oom(next(p for p in cluster.store.all("pods") if "plumbline/launch" not in p["metadata"]["labels"]))
    thread.join(LONG_S)
    [record] = records(run).values()
    assert (record["outcome"], record["code"]) == ("infrastructure", "infrastructure")
    assert record["reason"].startswith("launcher on node cpu: OOMKilled")
    nothing_is_left(cluster)


def test_a_run_that_lost_the_cluster_starts_nothing_any_more(cluster: FakeCluster, tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowException

    run = begin(cluster, tmp_path, SINGLE)
    lease.acquire(api_of(cluster), run.profile(), "20990101T000000Z-ffffff", "nightly", timedelta(hours=1))
    with pytest.raises(AirflowException, match="the cluster has passed to run 20990101T000000Z-ffffff"):
        operator(run).execute(context())
    assert not cluster.containers
    assert outcomes(run) == {}
