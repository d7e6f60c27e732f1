"""The launcher and its workers on the fake cluster: what is measured is kept, and every fault has its right name."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.gangs import ALONE, GANG, begin, let_end, nothing_is_left, running
from tests.kubernetes.runs import finish, launches, log, outcomes, prepare, records, start, wait_for


def test_one_node_is_measured_by_its_own_pod(cluster: FakeCluster, tmp_path: Path) -> None:
    run = prepare(tmp_path / "results", launches([["n2"]], "echo on $PLUMBLINE_NODE"))
    assert finish(cluster, start(cluster, run)) == 0
    [record] = records(run).values()
    assert (record["outcome"], record["hosts"]) == ("exited", ["n2"])
    assert (run.evidence / record["raw_dir"] / "stdout").read_text() == "on n2\n"


def test_groups_of_one_node_run_at_once_under_a_launcher(cluster: FakeCluster, tmp_path: Path) -> None:
    run = prepare(tmp_path / "results", launches([["n1"], ["n2"], ["n3"]], "echo on $PLUMBLINE_NODE"))
    name = start(cluster, run)
    assert finish(cluster, name) == 0, log(cluster, name)
    assert {r["hosts"][0]: r["outcome"] for r in records(run).values()} == dict.fromkeys(("n1", "n2", "n3"), "exited")
    wait_for(lambda: nothing_is_left(cluster))


def test_a_gang_runs_on_all_its_nodes(cluster: FakeCluster, tmp_path: Path) -> None:
    run = prepare(
        tmp_path / "results",
        launches([["n1", "n2"], ["n4", "n3"]], "echo rank $OMPI_COMM_WORLD_RANK on $PLUMBLINE_NODE"),
    )
    name = start(cluster, run)
    assert finish(cluster, name) == 0, log(cluster, name)
    found = records(run)
    assert [(r["outcome"], r["exit_code"], r["hosts"]) for r in found.values()] == [
        ("exited", 0, ["n1", "n2"]), ("exited", 0, ["n4", "n3"])
    ]  # fmt: skip
    second = found["nccl_tests-n2-g1-r1.a1"]
    lines = (run.evidence / second["raw_dir"] / "stdout").read_text().splitlines()
    assert sorted(line for line in lines if line.startswith("rank")) == ["rank 0 on n4", "rank 1 on n3"]
    assert set(second["hardware"]["nodes"]) == {"n3", "n4"}
    assert all(second["snapshots"]["after"]["nodes"].values())
    wait_for(lambda: nothing_is_left(cluster))


# -- faults, for a group of one node and for a gang ----------------------------------------------------------------


def slow_job_controller(cluster: FakeCluster) -> None:
    cluster.job_delay_s = 1.5


def job_refused_for_a_while(status: int) -> Callable[[FakeCluster], None]:
    return lambda cluster: cluster.api.fail("POST", "/jobs", status, times=2) and None


def answer_lost(cluster: FakeCluster) -> None:
    cluster.api.fail("POST", "/jobs", 0, late=True)


def watch_refused(cluster: FakeCluster) -> None:
    cluster.api.fail("GET", "watch=true", 410, times=2)
    cluster.api.fail("GET", "watch=true", 500, times=1)


PASSING = {
    "slow job controller": slow_job_controller,
    "429": job_refused_for_a_while(429),
    "500": job_refused_for_a_while(500),
    "no answer": job_refused_for_a_while(0),
    "409 after a lost answer": answer_lost,
    "watch 410 and 500": watch_refused,
}


@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_by_itself_changes_nothing(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]], fault: str
) -> None:
    PASSING[fault](cluster)
    run = begin(cluster, tmp_path, groups, at_once=True)
    name = start(cluster, run)
    assert finish(cluster, name) == 0, log(cluster, name)
    assert set(outcomes(run).values()) == {"exited"}
    assert {name.rpartition(".")[2] for name in outcomes(run)} == {"a1"}
    wait_for(lambda: nothing_is_left(cluster))


def test_a_watch_that_is_closed_or_forgotten_goes_on(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    run = begin(cluster, tmp_path, groups)
    name = start(cluster, run)
    running(cluster, run)
    cluster.api.close_watches()
    time.sleep(0.3)
    cluster.store.forget_history()
    let_end(run)
    assert finish(cluster, name) == 0, log(cluster, name)
    assert set(outcomes(run).values()) == {"exited"}


def test_an_api_that_is_down_while_the_benchmark_runs_changes_nothing(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    run = begin(cluster, tmp_path, groups)
    name = start(cluster, run)
    running(cluster, run)
    cluster.api.outage(True)
    let_end(run)
    time.sleep(4)
    cluster.api.outage(False)
    assert finish(cluster, name) == 0, log(cluster, name)
    assert set(outcomes(run).values()) == {"exited"}
    wait_for(lambda: nothing_is_left(cluster))


ENDING = {
    "lost pod": (lambda cluster, pod: cluster._delete(("pods", "plumbline", pod["metadata"]["name"]), 0),
                 "infrastructure"),
    "out of memory": (lambda cluster, pod: cluster.oom(pod), "out_of_memory"),
    "eviction": (lambda cluster, pod: cluster.evict(pod), "evicted"),
    "preemption": (lambda cluster, pod: cluster.preempt(pod), "preempted"),
    "node lost": (lambda cluster, pod: cluster.lose_node(pod["spec"]["nodeName"]), "node_lost"),
}  # fmt: skip


@pytest.mark.parametrize("fault", ENDING)
def test_what_ends_a_worker_is_named_and_ends_only_its_group(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]], fault: str
) -> None:
    act, code = ENDING[fault]
    # A pod on a lost node is waited for twice that long.
    run = begin(cluster, tmp_path, groups, kubernetes={"waits": {"grace_s": 2} if fault == "node lost" else {}})
    name = start(cluster, run)
    act(cluster, running(cluster, run)[0])
    if groups is ALONE:
        wait_for(lambda: any("-g0-" in key for key in outcomes(run)), told=lambda: log(cluster, name))
        let_end(run)
    assert finish(cluster, name) == 0, log(cluster, name)
    last = {key.partition(".a")[0]: value for key, value in outcomes(run).items()}
    assert last["nccl_tests-n2-g0-r1" if groups is GANG else "nccl_tests-n1-g0-r1"] == f"infrastructure:{code}"
    if groups is ALONE:
        assert last["nccl_tests-n1-g1-r1"] == "exited"
    assert "n1" in [r["reason"] for key, r in records(run).items() if "-g0-" in key][-1]
    if fault != "node lost":
        wait_for(lambda: nothing_is_left(cluster))


def bad_image(cluster: FakeCluster) -> None:
    cluster.bad_images["nccl-tests"] = "n1"


def seven_gpus(cluster: FakeCluster) -> None:
    cluster.store.change(
        ("nodes", "", "n1"), lambda node: node["status"]["allocatable"].update({"nvidia.com/gpu": "7"})
    )


def others_hold_one(cluster: FakeCluster) -> None:
    resources = {"requests": {"nvidia.com/gpu": "1"}}
    spec = {"nodeName": "n1", "containers": [{"name": "x", "resources": resources}]}
    status = {"phase": "Running", "conditions": []}
    cluster.store.create("pods", "training", {"metadata": {"name": "job-0"}, "spec": spec, "status": status})


def quota_full(cluster: FakeCluster) -> None:
    cluster.api.quota_full = True


def cordoned(cluster: FakeCluster) -> None:
    cluster.store.change(("nodes", "", "n1"), lambda node: node["spec"].update(unschedulable=True))


STARTING = {
    "image pull back-off": (bad_image, "image_pull", "not found"),
    "7 of 8 GPUs": (seven_gpus, "missing_gpu", "node n1 offers 7 of 8 nvidia.com/gpu"),
    "GPUs held by others": (others_hold_one, "busy", "others hold GPUs of n1"),
    "quota": (quota_full, "quota", "exceeded quota"),
    "unschedulable": (cordoned, "unschedulable", "node(s) were unschedulable"),
}


@pytest.mark.parametrize("fault", STARTING)
def test_what_can_not_start_is_given_up_soon_and_explained(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]], fault: str
) -> None:
    act, code, words = STARTING[fault]
    act(cluster)
    run = begin(cluster, tmp_path, groups, at_once=True, kubernetes={"waits": {"unschedulable_s": 1}})
    name = start(cluster, run)
    assert finish(cluster, name) == 0, log(cluster, name)
    found = next(iter(records(run).values()))
    assert (found["outcome"], found["code"]) == ("infrastructure", code)
    assert words in found["reason"]
    wait_for(lambda: nothing_is_left(cluster))


def test_a_node_whose_kubelet_is_silent_still_measures(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    run = begin(cluster, tmp_path, groups)
    name = start(cluster, run)
    running(cluster, run)
    cluster.lose_node("n1", kill=False)
    let_end(run)
    assert finish(cluster, name) == 0, log(cluster, name)
    assert set(outcomes(run).values()) == {"exited"}
