import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_history, build_run, rewrite_json

from plumbline.errors import TrackingError
from plumbline.tracking import mlflow_tracking
from plumbline.tracking.judged_run import JudgedRun
from plumbline.tracking.mlflow_payload import run_payload
from plumbline.tracking.mlflow_tracking import (
    ARTIFACTS,
    begin,
    experiment_name,
    rebuild,
    record_decisions,
    run_url,
    track,
)
from plumbline.tracking.run_directory import RunDirectory

SMALL = Scenario(nodes=1)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One SQLite store for the module: making its tables takes seconds. Every test has a cluster of its own."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


@pytest.fixture
def client(store: str):
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=store)


def runs_of(client, cluster: str, suite: str = "nightly") -> list:
    experiment = client.get_experiment_by_name(experiment_name(cluster, suite))
    return client.search_runs([experiment.experiment_id]) if experiment else []


def content(client, cluster: str) -> dict[str, dict]:
    """Everything that MLflow holds of a cluster, without ids and times of logging."""
    return {
        run.data.tags["mlflow.runName"]: {
            "points": sorted(
                (key, m.step, m.value, m.timestamp)
                for key in run.data.metrics
                for m in client.get_metric_history(run.info.run_id, key)
            ),
            "params": run.data.params,
            "tags": {k: v for k, v in run.data.tags.items() if k != "mlflow.parentRunId"},
            "status": run.info.status,
            "times": (run.info.start_time, run.info.end_time),
        }
        for run in runs_of(client, cluster)
    }


def expected_points(run: RunDirectory) -> dict[str, list]:
    payload = run_payload(JudgedRun(run))
    return {
        part.name: sorted((p.key, p.step, p.value, p.timestamp_ms) for p in part.points)
        for part in (payload.parent, *payload.children)
    }


# -- once ------------------------------------------------------------------------------------------------------------


def test_a_run_is_logged_as_parent_and_children(tmp_path: Path, store: str, client):
    run = build_run(tmp_path, SMALL, cluster="once")
    parent_id = track(run, store)
    found = content(client, "once")
    assert {name: item["points"] for name, item in found.items()} == expected_points(run)
    parent = client.get_run(parent_id)
    assert parent.info.run_name == run.run_id and parent.info.status == "FINISHED"
    assert parent.data.tags["plumbline.verdict"] == "PASS" and parent.data.tags["plumbline.complete"] == "true"
    children = [r for r in runs_of(client, "once") if r.data.tags.get("mlflow.parentRunId") == parent_id]
    assert len(children) == len(found) - 1 == len(run.plan().batches)


def test_derived_files_are_artifacts_byte_for_byte(tmp_path: Path, store: str, client):
    run = build_run(tmp_path, SMALL, cluster="artifacts")
    run.write_derived("report.html", "<html>report</html>")
    run.write_derived_json("findings.json", [])
    parent_id = track(run, store)
    assert {item.path for item in client.list_artifacts(parent_id)} == set(ARTIFACTS)
    for name in ARTIFACTS:
        local = client.download_artifacts(parent_id, name, str(tmp_path))
        assert Path(local).read_bytes() == (run.derived / name).read_bytes()
    assert "artifacts/plumbline/artifacts/nightly" in client.get_run(parent_id).info.artifact_uri


def test_a_closed_gate_shows_in_status_and_tags(tmp_path: Path, store: str, client):
    run = build_run(tmp_path, SMALL, cluster="closed", speed={"fio": 0.4})
    found = client.get_run(track(run, store))
    assert found.info.status == "FAILED"
    assert (found.data.tags["plumbline.verdict"], found.data.tags["plumbline.gate"]) == ("FAIL", "closed")


def test_where_it_went_is_remembered_without_secrets(tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch):
    run = build_run(tmp_path, SMALL, cluster="remembered")
    assert run_url(run) is None
    parent_id = track(run, store)
    assert run.read_derived("mlflow.json") == {
        "run_id": parent_id,
        "experiment_id": JudgedRun(run).mlflow["experiment_id"],
        "experiment": "plumbline/remembered/nightly",
        "tracking_uri": store,
    }
    assert run_url(run) is None, "no server is known to show it"
    monkeypatch.setenv("PLUMBLINE_MLFLOW_UI", "http://127.0.0.1:5000/")
    assert run_url(run).endswith(f"/runs/{parent_id}") and run_url(run).startswith("http://127.0.0.1:5000/#/exp")
    monkeypatch.setenv("PLUMBLINE_MLFLOW_UI", "javascript:alert(1)")
    assert run_url(run) is None


# -- however often ---------------------------------------------------------------------------------------------------


def test_tracking_again_changes_nothing(tmp_path: Path, store: str, client):
    run = build_run(tmp_path, SMALL, cluster="again")
    assert begin(run, store) == track(run, store)
    before, ids = content(client, "again"), {r.info.run_id for r in runs_of(client, "again")}
    assert track(run, store) == begin(run, store)
    assert content(client, "again") == before and {r.info.run_id for r in runs_of(client, "again")} == ids


@pytest.mark.parametrize("calls", [0, 1, 3, 6, 12])
def test_a_run_that_was_logged_half_way_is_completed(
    tmp_path: Path, store: str, client, calls: int, monkeypatch: pytest.MonkeyPatch
):
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException

    run = build_run(tmp_path, SMALL, cluster=f"half-{calls}")
    left = [calls]

    def counted(name: str):
        original = getattr(MlflowClient, name)

        def call(self, *args, **more):
            if not left[0]:
                raise MlflowException("the store went away")
            left[0] -= 1
            return original(self, *args, **more)

        return call

    with monkeypatch.context() as broken:
        for name in ("create_run", "log_batch", "set_tag", "set_terminated", "log_artifact"):
            broken.setattr(MlflowClient, name, counted(name))
        with pytest.raises(TrackingError, match=r"sqlite.*the store went away"):
            track(run, store)
    parent_id = track(run, store)
    found = content(client, f"half-{calls}")
    assert {name: item["points"] for name, item in found.items()} == expected_points(run)
    assert len(runs_of(client, f"half-{calls}")) == len(found), "each run is there once"
    assert {item["tags"]["plumbline.complete"] for item in found.values()} == {"true"}
    assert {r.data.tags.get("mlflow.parentRunId") for r in runs_of(client, f"half-{calls}")} == {None, parent_id}


def test_points_that_were_logged_are_not_doubled(tmp_path: Path, store: str, client):
    run = build_run(tmp_path, SMALL, cluster="doubled")
    parent_id = begin(run, store)
    first = run_payload(JudgedRun(run)).parent.points[0]
    client.log_metric(parent_id, first.key, first.value, timestamp=1, step=first.step)
    track(run, store)
    assert len([m for m in client.get_metric_history(parent_id, first.key) if m.step == first.step]) == 1


def test_two_that_began_at_once_are_settled_to_one(tmp_path: Path, store: str, client):
    run = build_run(tmp_path, SMALL, cluster="twins")
    first = client.get_run(begin(run, store))
    twin = client.create_run(
        first.info.experiment_id, start_time=first.info.start_time, tags=dict(first.data.tags), run_name=run.run_id
    )
    kept = track(run, store)
    assert kept in (first.info.run_id, twin.info.run_id)
    parents = [r for r in runs_of(client, "twins") if r.data.tags["plumbline.level"] == "run"]
    assert [r.info.run_id for r in parents] == [kept]


def test_a_run_judged_anew_with_other_numbers_replaces_the_old(tmp_path: Path, store: str, client):
    old = build_run(tmp_path / "old", SMALL, cluster="rejudged")
    new = build_run(tmp_path / "new", SMALL, cluster="rejudged", speed={"hpl_mxp": 0.97})
    assert old.run_id == new.run_id
    first, second = track(old, store), track(new, store)
    assert first != second and client.get_run(first).info.lifecycle_stage == "deleted"
    found = content(client, "rejudged")
    assert {name: item["points"] for name, item in found.items()} == expected_points(new)
    assert len(runs_of(client, "rejudged")) == len(found)


def test_a_verdict_that_changed_alone_is_told_anew(tmp_path: Path, store: str, client):
    run = build_run(tmp_path, SMALL, cluster="retold")
    first = track(run, store)
    rewrite_json(run, "verdict.json", verdict="FAIL", gate="closed")
    assert track(run, store) == first
    for found in runs_of(client, "retold"):
        assert (found.data.tags["plumbline.verdict"], found.data.tags["plumbline.gate"]) == ("FAIL", "closed")
    assert client.get_run(first).info.status == "FAILED"


def test_runs_of_two_nights_stand_beside_each_other(tmp_path: Path, store: str, client):
    runs = build_history(tmp_path, 2, replace(SMALL, cluster="nights"))
    ids = [track(run, store) for run in runs]
    track(runs[0], store)
    assert len(set(ids)) == 2
    parents = {
        r.data.tags["plumbline.run_id"] for r in runs_of(client, "nights") if r.data.tags["plumbline.level"] == "run"
    }
    assert parents == {run.run_id for run in runs}


def test_an_experiment_that_somebody_deleted_is_restored(tmp_path: Path, store: str, client):
    first, second = build_history(tmp_path, 2, replace(SMALL, cluster="deleted"))
    track(first, store)
    client.delete_experiment(client.get_experiment_by_name("plumbline/deleted/nightly").experiment_id)
    track(second, store)
    assert {r.data.tags["plumbline.run_id"] for r in runs_of(client, "deleted")} >= {second.run_id}


# -- decisions, rebuilding -------------------------------------------------------------------------------------------


def test_decisions_become_tags(tmp_path: Path, store: str, client):
    run = build_run(tmp_path, SMALL, cluster="decided")
    parent_id = track(run, store)
    run.add_decision({"kind": "acceptance", "decision": "accept", "by": "ann", "comment": "as ordered"})
    record_decisions(run, store)
    tags = client.get_run(parent_id).data.tags
    assert tags["plumbline.decision"] == "approved" and tags["plumbline.decided_by"] == "ann"
    assert tags["plumbline.decision_comment"] == "as ordered" and tags["plumbline.decided_at"].endswith("Z")
    run.add_decision({"kind": "acceptance", "decision": "reject", "by": "bob"})
    track(run, store)
    tags = client.get_run(parent_id).data.tags
    assert (tags["plumbline.decision"], tags["plumbline.decided_by"]) == ("rejected", "bob")


def test_mlflow_is_rebuilt_from_run_directories(tmp_path: Path, store: str, client):
    runs = build_history(tmp_path / "results", 2, replace(SMALL, cluster="rebuilt"))
    for run in runs:
        track(run, store)
    before = content(client, "rebuilt")
    for found in runs_of(client, "rebuilt"):
        client.delete_run(found.info.run_id)
    unjudged = build_run(tmp_path / "results", SMALL, cluster="rebuilt", seed=77)
    (unjudged.derived / "verdict.json").unlink()
    assert content(client, "rebuilt") == {}
    assert set(rebuild(tmp_path / "results", store)) == {run.run_id for run in runs}
    assert content(client, "rebuilt") == before


# -- patience -------------------------------------------------------------------------------------------------------


def test_waiting_is_limited_unless_the_environment_says_otherwise(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    with mlflow_tracking._client(store):
        assert os.environ["MLFLOW_HTTP_REQUEST_MAX_RETRIES"] == "2"
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"


# -- a real server ---------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path: Path, store: str, client) -> Iterator[tuple[str, subprocess.Popen]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{tmp_path}/server.db", "--artifacts-destination", str(tmp_path / "served"),
    ]  # fmt: skip
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    client.search_experiments()  # the module's store has its tables now: a copy starts faster than an empty one
    shutil.copy(store.removeprefix("sqlite:///"), tmp_path / "server.db")
    log = (tmp_path / "server.log").open("w")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=tmp_path)
    uri = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                if urllib.request.urlopen(f"{uri}/health", timeout=20).status == 200:
                    break
            except OSError:
                assert process.poll() is None, (tmp_path / "server.log").read_text()
                time.sleep(0.5)
        else:
            pytest.fail("the server did not come up: " + (tmp_path / "server.log").read_text()[-2000:])
        yield uri, process
    finally:
        stop(process)
        log.close()


def stop(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.services
def test_a_server_takes_a_run_and_its_loss_loses_nothing(tmp_path: Path, server, monkeypatch: pytest.MonkeyPatch):
    from mlflow import MlflowClient

    uri, process = server
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    run = build_run(tmp_path / "results", SMALL, cluster="served")
    run.write_derived("report.html", "<html>report</html>")
    parent_id = track(run, uri)
    assert track(run, uri) == parent_id
    client = MlflowClient(tracking_uri=uri)
    found = content(client, "served")
    assert {name: item["points"] for name, item in found.items()} == expected_points(run)
    local = client.download_artifacts(parent_id, "report.html", str(tmp_path))
    assert Path(local).read_text() == "<html>report</html>"
    address = run_url(run)
    assert address == f"{uri}/#/experiments/{JudgedRun(run).mlflow['experiment_id']}/runs/{parent_id}"

    stop(process)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    later = build_run(tmp_path / "results", SMALL, cluster="served", seed=2)
    with pytest.raises(TrackingError, match=uri):
        track(later, uri)
    assert not [p for p in later.problems() if p["path"].startswith("evidence/")]
    assert JudgedRun(later).gate_open
