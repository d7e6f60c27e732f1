"""The reaper: the DAG's task and the command find the same, and leave clusters of another kind alone."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from tests.execution.test_lock import acquire_and_die
from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.profiles import GOOD
from tests.kubernetes.runs import UNTIL_THE_END, api_of, launches, let_all_end, prepare, start, wait_for

from plumbline import cli, stages
from plumbline.clusters.profile import load_profile
from plumbline.errors import ConfigError
from plumbline.execution import lock
from plumbline.kubernetes import lease, reaper
from plumbline_airflow.reaping import remove_left_over


def call(cluster: str) -> list[str]:
    dag = SimpleNamespace(params={"cluster": None})
    params = {"cluster": cluster, "suite": "nightly"}
    return remove_left_over.function(params=params, dag=dag, dag_run=SimpleNamespace(conf={"cluster": cluster}))


@pytest.fixture(name="profile")
def _profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(reaper, "YOUNG", timedelta(seconds=-5))
    with FakeCluster(tmp_path / "cluster", nodes=["n1", "n2"]) as cluster:
        data = {**GOOD, "kubernetes": {**GOOD["kubernetes"], "access": {"kubeconfig": str(cluster.kubeconfig())}}}
        path = tmp_path / "lab.yaml"
        path.write_text(yaml.safe_dump(data))
        run = prepare(tmp_path / "results", launches([["n1"], ["n2"]], UNTIL_THE_END))
        start(cluster, run)
        wait_for(lambda: len(cluster.workers()) == 2)
        monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path / "results"))
        yield cluster, str(path)
    let_all_end(tmp_path / "results")


def test_the_task_removes_what_is_left_and_names_it(profile: Any) -> None:
    cluster, path = profile
    assert any(name.startswith("pl-") for name in call(path))
    wait_for(lambda: not cluster.store.all("pods"))
    assert call(path) == []


def test_the_task_fails_when_something_stays(profile: Any) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    cluster, path = profile
    cluster.api.fail("DELETE", "/jobs/", 403, times=1, reason="Forbidden", message="no")
    with pytest.raises(AirflowFailException, match=r"1 of \d could not be removed: Job pl-.*Forbidden"):
        call(path)


def test_a_cluster_of_another_kind_is_left_alone() -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    with pytest.raises(AirflowSkipException, match="local is of launcher local"):
        call("local")


def test_the_command_does_the_same(profile: Any, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, path = profile
    cluster.api.fail("DELETE", "/jobs/", 403, times=1, reason="Forbidden", message="no")
    assert cli.main(["reap", path, "--json"]) == 5
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {one["kind"] for one in told} == {"Job", "Pod"}
    wait_for(lambda: not cluster.store.all("pods"))
    assert cli.main(["reap", path]) == 0
    assert capsys.readouterr().out == "lab: nothing was left over\n"
    assert cli.main(["reap", "local"]) == 2


def test_a_run_whose_process_was_killed_loses_the_cluster(
    profile: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster, path = profile
    chosen, run_id = load_profile(path), cluster.workers()[0]["metadata"]["labels"]["plumbline/run"]
    acquire_and_die(tmp_path / "results" / "lab", run_id)
    lease.acquire(api_of(cluster), chosen, run_id, "cli nightly", timedelta(hours=1))
    assert cli.main(["reap", path]) == 0
    assert f"run {run_id}: its process is gone" in capsys.readouterr().out
    wait_for(lambda: not cluster.store.all("pods"))
    assert lease.current(api_of(cluster), chosen) is None


def test_a_run_that_lives_keeps_the_cluster(profile: Any, tmp_path: Path) -> None:
    cluster, path = profile
    chosen, run_id = load_profile(path), cluster.workers()[0]["metadata"]["labels"]["plumbline/run"]
    lock.acquire(tmp_path / "results" / "lab", run_id, "cli nightly", timedelta(hours=1), os.getpid())
    lease.acquire(api_of(cluster), chosen, run_id, "cli nightly", timedelta(hours=1))
    assert cli.main(["reap", path]) == 0
    assert len(cluster.workers()) == 2
    assert lease.current(api_of(cluster), chosen) is not None


def test_the_next_run_takes_the_cluster_of_one_whose_process_was_killed(profile: Any, tmp_path: Path) -> None:
    cluster, path = profile
    chosen, run_id = load_profile(path), cluster.workers()[0]["metadata"]["labels"]["plumbline/run"]
    acquire_and_die(tmp_path / "results" / "lab", run_id)
    lease.acquire(api_of(cluster), chosen, run_id, "cli nightly", timedelta(hours=1))
    with pytest.raises(ConfigError, match="volume: results"):  # told once the Lease was held
        stages.prepare(path, "nightly", {"benchmarks": "nccl_tests"}, trigger="cli", holder_pid=os.getpid())
    assert not cluster.store.all("pods")
    assert lease.current(api_of(cluster), chosen) is None
