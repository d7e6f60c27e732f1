"""The launcher itself on the fake cluster: how it ends, is followed, tries again, and what it keeps to itself."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests.kubernetes.fake import FakeCluster, store
from tests.kubernetes.gangs import GANG, begin, let_end, nothing_is_left, running
from tests.kubernetes.runs import finish, launches, log, outcomes, pod, prepare, records, start, wait_for


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


@pytest.mark.parametrize("second_uid", ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"])
def test_two_launchers_never_run_the_same_batch_at_once(
    cluster: FakeCluster, tmp_path: Path, groups: list[list[str]], monkeypatch: pytest.MonkeyPatch, second_uid: str
) -> None:
    """Not of the same second either, which is all that the API tells of their age."""
    run = begin(cluster, tmp_path, groups)
    first = start(cluster, run)
    running(cluster, run)
    created = (pod(cluster, first) or {})["metadata"]["creationTimestamp"]
    with cluster.store.lock, monkeypatch.context() as patched:
        patched.setattr(store, "now", lambda: created)
        patched.setattr(store, "uuid", SimpleNamespace(uuid4=lambda: second_uid))
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
