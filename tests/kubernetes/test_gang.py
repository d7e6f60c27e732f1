"""The launcher and its workers on the fake cluster: what is measured is kept, and every fault has its right name."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from plumbline.tracking.run_directory import RunDirectory
from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.runs import (
    LONG_S,
    UNTIL_THE_END,
    finish,
    launches,
    let_all_end,
    log,
    outcomes,
    pod,
    prepare,
    records,
    start,
    wait_for,
)


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path / "cluster", nodes=[]) as cluster:
        cluster.add_node("cpu", 0)  # the first that fits a launcher
        for number in range(1, 5):
            cluster.add_node(f"n{number}", 8)
        yield cluster
    let_all_end(tmp_path / "results")


def nothing_is_left(cluster: FakeCluster) -> bool:
    return not cluster.workers() and not cluster.store.all("jobs")


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

ALONE, GANG = [["n1"], ["n2"]], [["n1", "n2"]]


@pytest.fixture(params=[ALONE, GANG], ids=["single-node", "gang"], name="groups")
def _groups(request: pytest.FixtureRequest) -> list[list[str]]:
    return request.param


def let_end(run: RunDirectory) -> None:
    """Let a benchmark that waits come to its end."""
    (run.path / "end").touch()


def running(cluster: FakeCluster, run: RunDirectory, count: int = 2) -> list[dict[str, Any]]:
    """Wait until the benchmark runs on every node; give its workers in the order of their nodes."""

    def begun() -> bool:
        files = list((run.evidence / "raw").glob("*/stdout"))
        return sum(text.read_text().count("begun") for text in files) + len(list(run.path.glob("began-*"))) >= count

    wait_for(begun, told=lambda: "\n".join(log(cluster, p["metadata"]["name"]) for p in cluster.store.all("pods")))
    return sorted(cluster.workers(), key=lambda p: p["spec"]["nodeName"])


def begin(
    cluster: FakeCluster,
    tmp_path: Path,
    groups: list[list[str]],
    at_once: bool = False,
    nodes: Sequence[str] = (),
    **changes: Any,
) -> RunDirectory:
    """Prepare a batch whose benchmark leaves a mark on every node, then ends at once or when `let_end` says so."""
    results = tmp_path / "results"
    wait = "" if at_once else f"{UNTIL_THE_END}; "
    script = f"touch ../../../began-$PLUMBLINE_NODE; {wait}echo done"
    images = {"launcher": "registry.example/launcher@sha256:" + "c" * 64}
    return prepare(results, launches(groups, script, timeout_s=LONG_S), {"images": images, **changes}, nodes)


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


# -- the launcher itself --------------------------------------------------------------------------------------------


def test_a_launcher_that_is_asked_to_stop_leaves_records_and_nothing_else(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    run = begin(cluster, tmp_path, groups)
    name = start(cluster, run)
    running(cluster, run)
    cluster._delete(("pods", "plumbline", name), None)
    wait_for(lambda: pod(cluster, name) is None and nothing_is_left(cluster))
    assert set(outcomes(run).values()) == {"stopped:stopped"}
    assert len(outcomes(run)) == len(groups)


def test_a_launcher_that_was_killed_is_followed_by_another(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    run = begin(cluster, tmp_path, groups)
    first = start(cluster, run)
    running(cluster, run)
    [launcher] = [p for p in cluster.store.all("pods") if p["metadata"]["name"] == first]
    cluster.oom(launcher)
    second = start(cluster, run, "second")
    let_end(run)
    assert finish(cluster, second) == 0, log(cluster, second)
    answers = [r for r in records(run).values() if r["outcome"] == "exited"]
    assert len({r["launch_id"] for r in answers}) == len(answers) == len(groups)
    cluster._delete(("pods", "plumbline", first), 0)
    wait_for(lambda: nothing_is_left(cluster))


def test_two_launchers_never_run_the_same_batch_at_once(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    run = begin(cluster, tmp_path, groups)
    first = start(cluster, run)
    running(cluster, run)
    second = start(cluster, run, "second")
    assert finish(cluster, second) == 76, log(cluster, second)
    let_end(run)
    assert finish(cluster, first) == 0, log(cluster, first)
    assert set(outcomes(run).values()) == {"exited"}


def test_a_launcher_finds_what_is_done_already(cluster: FakeCluster, tmp_path: Path) -> None:
    run = begin(cluster, tmp_path, GANG, at_once=True)
    finish(cluster, start(cluster, run))
    second = start(cluster, run, "second")
    assert finish(cluster, second) == 0
    assert "has an answer already" in log(cluster, second)
    assert list(outcomes(run)) == ["nccl_tests-n2-g0-r1.a1"]


def test_workers_end_by_themselves_when_their_launcher_is_silent(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    run = begin(cluster, tmp_path, groups, kubernetes={"waits": {"orphan_s": 8}})
    name = start(cluster, run)
    running(cluster, run)
    launcher = cluster.containers[(pod(cluster, name) or {})["metadata"]["uid"]]
    os.kill(launcher.process.pid, signal.SIGSTOP)
    workers = [cluster.containers[p["metadata"]["uid"]] for p in cluster.workers()]
    wait_for(lambda: all(worker.exit_code() is not None for worker in workers))
    os.kill(launcher.process.pid, signal.SIGCONT)


def test_of_all_that_ended_unseen_the_one_that_failed_is_blamed(cluster: FakeCluster, tmp_path: Path) -> None:
    """A Job whose pod failed removes the others: a launcher that looks late sees all of them gone at once."""
    run = begin(cluster, tmp_path, GANG)
    name = start(cluster, run)
    last = running(cluster, run)[-1]
    launcher = cluster.containers[(pod(cluster, name) or {})["metadata"]["uid"]]
    os.kill(launcher.process.pid, signal.SIGSTOP)
    try:
        cluster.oom(last)
        others = [
            one["metadata"]["name"] for one in cluster.workers() if one["metadata"]["uid"] != last["metadata"]["uid"]
        ]
        wait_for(
            lambda: all((one := pod(cluster, w)) is None or one["metadata"].get("deletionTimestamp") for w in others)
        )
    finally:
        os.kill(launcher.process.pid, signal.SIGCONT)
    assert finish(cluster, name) == 0, log(cluster, name)
    assert list(outcomes(run).values()) == ["infrastructure:out_of_memory"]


def test_a_fault_that_may_pass_is_tried_once_more_and_both_attempts_stay(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    run = begin(cluster, tmp_path, groups, kubernetes={"retries": 1})
    name = start(cluster, run)
    cluster.evict(running(cluster, run)[0])
    let_end(run)
    assert finish(cluster, name) == 0, log(cluster, name)
    of_first = [value for key, value in outcomes(run).items() if "-g0-" in key]
    assert of_first == ["infrastructure:evicted", "exited"]


def test_a_lost_node_is_replaced_by_a_free_one_where_there_is_one(cluster: FakeCluster, tmp_path: Path) -> None:
    run = begin(cluster, tmp_path, GANG, kubernetes={"retries": 1}, nodes=["n1", "n2", "n3"])
    name = start(cluster, run)
    cluster.evict(running(cluster, run)[0])
    let_end(run)
    assert finish(cluster, name) == 0, log(cluster, name)
    first, second = records(run).values()
    assert (first["code"], first["replaced"]) == ("evicted", {})
    assert (second["outcome"], second["hosts"], second["replaced"]) == ("exited", ["n3", "n2"], {"n1": "n3"})
    assert second["spec_sha256"] == run.plan().launches[0].digest()
    assert "n3 in place of n1" in log(cluster, name)


def test_a_command_that_fails_is_data_and_is_not_tried_again(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]
) -> None:
    results = tmp_path / "results"
    run = prepare(results, launches(groups, "exit 3"), {"kubernetes": {"retries": 1}})
    name = start(cluster, run)
    assert finish(cluster, name) == 0, log(cluster, name)
    assert {(r["outcome"], r["exit_code"], r["attempt"]) for r in records(run).values()} == {("exited", 3, 1)}


def test_a_command_that_hangs_is_a_timeout(cluster: FakeCluster, tmp_path: Path, groups: list[list[str]]) -> None:
    run = prepare(tmp_path / "results", launches(groups, "echo here; sleep 60", timeout_s=1.5))
    name = start(cluster, run)
    assert finish(cluster, name) == 0, log(cluster, name)
    assert set(outcomes(run).values()) == {"timeout"}


def test_an_image_without_sshd_is_named(cluster: FakeCluster, tmp_path: Path) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    run = begin(cluster, tmp_path, GANG, at_once=True, kubernetes={"environment": {"PATH": str(bare)}})
    name = start(cluster, run)
    assert finish(cluster, name) == 0, log(cluster, name)
    [record] = records(run).values()
    assert (record["outcome"], record["code"]) == ("infrastructure", "infrastructure")
    assert "no ssh" in record["reason"]


def test_what_ended_just_before_the_stop_is_kept(cluster: FakeCluster, tmp_path: Path) -> None:
    run = begin(cluster, tmp_path, GANG)
    name = start(cluster, run)
    running(cluster, run)
    cluster.lose_node("n1", kill=False)  # its worker never hears that it may end, so the launcher waits for it
    let_end(run)
    wait_for(lambda: not cluster.store.all("jobs"))  # the launcher has seen the end and asks its workers to end
    assert "done" in next((run.evidence / "raw").glob("*/stdout")).read_text()
    assert outcomes(run) == {}
    cluster._delete(("pods", "plumbline", name), None)
    wait_for(lambda: pod(cluster, name) is None)
    assert list(outcomes(run).values()) == ["exited"]


def test_times_of_a_failed_command_agree(cluster: FakeCluster, tmp_path: Path) -> None:
    run = prepare(tmp_path / "results", launches(GANG, "exit 3"))
    finish(cluster, start(cluster, run))
    [record] = records(run).values()
    wall = datetime.fromisoformat(record["ended_at"]) - datetime.fromisoformat(record["started_at"])
    assert abs(wall.total_seconds() - record["duration_s"]) < 2


def test_the_private_key_is_nowhere_but_in_the_launcher(cluster: FakeCluster, tmp_path: Path) -> None:
    run = begin(cluster, tmp_path, GANG)
    name = start(cluster, run)
    running(cluster, run)
    keys = [Path(word) for word in _command_lines(cluster, name) if word.endswith("/id")]
    assert keys
    secret = keys[0].read_text()
    seen = [path.read_text(errors="replace") for path in run.path.rglob("*") if path.is_file()]
    seen += [json.dumps(body) for body in cluster.store.objects.values()] + [log(cluster, name)]
    assert not [text for text in seen if secret in text]
    assert [text for text in seen if "PLUMBLINE_PUBLIC_KEY" in text]


def _command_lines(cluster: FakeCluster, name: str) -> list[str]:
    """Give the words of the command lines of a pod's processes."""
    [container] = [c for c in cluster.containers.values() if c.pod["metadata"]["name"] == name]
    assert container.process is not None
    return [word for one in psutil.Process(container.process.pid).children(recursive=True) for word in one.cmdline()]
