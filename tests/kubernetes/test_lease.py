"""One run per cluster at a time, and nothing of finished runs stays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from plumbline.errors import ClusterBusyError
from plumbline.execution import kubernetes
from plumbline.kubernetes import lease, reaper
from plumbline.kubernetes.access import settings_of
from plumbline.kubernetes.api import Api, ApiError
from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.profiles import profile
from tests.kubernetes.runs import UNTIL_THE_END, api_of, launches, let_all_end, prepare, start, wait_for

HOUR = timedelta(hours=1)


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path / "cluster", nodes=["n1", "n2"]) as cluster:
        yield cluster
    let_all_end(tmp_path / "results")


@pytest.fixture(name="api")
def _api(cluster: FakeCluster) -> Api:
    return api_of(cluster)


def test_a_lease_names_its_holder_and_is_given_back(api: Api) -> None:
    lease.acquire(api, profile(), "run-1", "nightly", HOUR)
    with pytest.raises(
        ClusterBusyError, match=r"cluster lab is busy: Lease plumbline: run run-1 \(nightly\) on .* until"
    ):
        lease.acquire(api, profile(), "run-2", "acceptance", HOUR)
    lease.acquire(api, profile(), "run-1", "nightly", HOUR)
    lease.release(api, profile(), "run-2")
    assert (lease.current(api, profile()) or {})["run_id"] == "run-1"
    lease.release(api, profile(), "run-1")
    assert lease.current(api, profile()) is None
    lease.acquire(api, profile(), "run-2", "acceptance", HOUR)


def test_another_profile_of_the_same_cluster_waits_too(api: Api) -> None:
    lease.acquire(api, profile(), "run-1", "nightly", HOUR)
    with pytest.raises(ClusterBusyError, match="cluster rack-7 is busy"):
        lease.acquire(api, profile({"name": "rack-7"}), "run-2", "acceptance", HOUR)


def test_an_expired_lease_is_taken_over(api: Api) -> None:
    lease.acquire(api, profile(), "run-1", "nightly", timedelta(seconds=0))
    lease.acquire(api, profile(), "run-2", "nightly", HOUR)
    assert (lease.current(api, profile()) or {})["run_id"] == "run-2"


def test_of_many_who_ask_at_once_one_gets_it(api: Api) -> None:
    got: list[str] = []

    def ask(run_id: str) -> None:
        try:
            lease.acquire(api, profile(), run_id, "nightly", HOUR)
            got.append(run_id)
        except ClusterBusyError:
            pass

    threads = [threading.Thread(target=ask, args=(f"run-{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [(lease.current(api, profile()) or {})["run_id"]]


@pytest.fixture(name="process")
def _process() -> Iterator[subprocess.Popen[bytes]]:
    """Give another process, which lives until it is killed."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("pid", [os.getpid(), None], ids=["as a process", "as a task"])
def test_the_run_of_a_living_process_is_not_taken_up_again(
    api: Api, process: subprocess.Popen[bytes], pid: int | None
) -> None:
    lease.acquire(api, profile(), "run-1", "cli nightly", HOUR, process.pid)
    with pytest.raises(ClusterBusyError, match=rf"run run-1 \(cli nightly\) on .*, process {process.pid} holds it"):
        lease.acquire(api, profile(), "run-1", "cli resumed", HOUR, pid)
    lease.release(api, profile(), "run-1")
    assert (lease.current(api, profile()) or {})["process"]["pid"] == process.pid


def test_that_of_a_process_that_is_gone_is(api: Api, process: subprocess.Popen[bytes]) -> None:
    lease.acquire(api, profile(), "run-1", "cli nightly", HOUR, process.pid)
    process.kill()
    process.wait()
    lease.acquire(api, profile(), "run-1", "cli resumed", HOUR, os.getpid())
    lease.acquire(api, profile(), "run-1", "cli resumed", HOUR, os.getpid())  # renews its own
    assert (lease.current(api, profile()) or {})["process"]["pid"] == os.getpid()
    lease.release(api, profile(), "run-1")
    assert lease.current(api, profile()) is None


def test_a_process_does_not_take_up_a_run_of_airflow(api: Api) -> None:
    lease.acquire(api, profile(), "run-1", "nightly nightly", HOUR)
    with pytest.raises(ClusterBusyError):
        lease.acquire(api, profile(), "run-1", "cli resumed", HOUR, os.getpid())
    lease.acquire(api, profile(), "run-1", "nightly nightly", HOUR)


def test_no_clock_takes_the_cluster_from_a_process_that_lives(api: Api, process: subprocess.Popen[bytes]) -> None:
    lease.acquire(api, profile(), "run-1", "cli nightly", timedelta(seconds=-3600), process.pid)
    with pytest.raises(ClusterBusyError):
        lease.acquire(api, profile(), "run-2", "nightly nightly", HOUR)
    process.kill()
    process.wait()
    lease.acquire(api, profile(), "run-2", "nightly nightly", HOUR)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"pid": 1, "machine": "elsewhere"}'])
def test_a_process_that_can_not_be_asked_for_keeps_its_lease_until_it_expires(api: Api, text: str) -> None:
    lease.acquire(api, profile(), "run-1", "cli nightly", HOUR, os.getpid())
    path = f"/apis/coordination.k8s.io/v1/namespaces/{settings_of(profile()).namespace}/leases/{lease.NAME}"
    api.patch(path, {"metadata": {"annotations": {"plumbline/process": text}}})
    with pytest.raises(ClusterBusyError):
        lease.acquire(api, profile(), "run-1", "cli resumed", HOUR, os.getpid())
    lease.release(api, profile(), "run-1")
    assert lease.current(api, profile()) is not None
    api.patch(path, {"spec": {"leaseDurationSeconds": 0}})
    lease.acquire(api, profile(), "run-1", "cli resumed", HOUR, os.getpid())


def left_over(cluster: FakeCluster, tmp_path: Path) -> str:
    """Start a launcher and its workers that would run until the test is over; give their run."""
    run = prepare(tmp_path / "results", launches([["n1"], ["n2"]], UNTIL_THE_END))
    start(cluster, run)
    wait_for(lambda: len(cluster.workers()) == 2)
    return run.run_id


def gone(cluster: FakeCluster) -> bool:
    return not cluster.store.all("pods") and not cluster.store.all("jobs")


def test_only_the_holders_pods_stay(cluster: FakeCluster, api: Api, tmp_path: Path) -> None:
    run_id = left_over(cluster, tmp_path)
    later = datetime.now(UTC) + timedelta(minutes=3)
    lease.acquire(api, profile(), run_id, "nightly", HOUR)
    assert reaper.reap(api, profile(), later) == []
    lease.release(api, profile(), run_id)
    assert reaper.reap(api, profile()) == []  # too young to be sure
    found = reaper.reap(api, profile(), later)
    assert {one.kind for one in found} == {"Job", "Pod"}
    assert {one.run_id for one in found} == {run_id}
    wait_for(lambda: gone(cluster))


def test_what_can_not_be_removed_is_said(cluster: FakeCluster, api: Api, tmp_path: Path) -> None:
    left_over(cluster, tmp_path)
    cluster.api.fail("DELETE", "/jobs/", 403, times=1, reason="Forbidden", message="no")
    found = reaper.reap(api, profile(), datetime.now(UTC) + timedelta(minutes=3))
    assert [one.kind for one in found if one.error and "Forbidden" in one.error] == ["Job"]


def test_a_run_that_ends_leaves_nothing_and_gives_the_cluster_back(
    cluster: FakeCluster, api: Api, tmp_path: Path
) -> None:
    chosen = profile({"kubernetes": {"access": {"kubeconfig": str(cluster.kubeconfig())}, "waits": {"grace_s": 60}}})
    run_id = left_over(cluster, tmp_path)
    kubernetes.hold(chosen, run_id, "nightly", HOUR)
    kubernetes.let_go(chosen, run_id)
    assert gone(cluster)
    assert lease.current(api, chosen) is None


def test_a_cluster_that_does_not_answer_does_not_keep_a_run_from_ending(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: Any = profile({"kubernetes": {"access": {"kubeconfig": str(cluster.kubeconfig())}}})
    monkeypatch.setattr(kubernetes, "connect", lambda _: api_of(cluster))
    cluster.api.outage(True)
    kubernetes.let_go(chosen, "run-1")
    assert "could not be tidied up" in caplog.text
    with pytest.raises(ApiError):
        kubernetes.hold(chosen, "run-1", "nightly", HOUR)
