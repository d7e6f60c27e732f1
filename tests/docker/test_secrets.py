"""Planted secrets are found nowhere: in no manifest, log or run directory, nor in what Airflow keeps, XCom included."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from plumbline.execution import pods
from plumbline.kubernetes import doctor
from tests.docker.images import ROOT
from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.profiles import EVERYTHING, plain, profile, spec
from tests.kubernetes.runs import finish, launches, log, prepare, start

MARK = "pl4nted"
PLANTED = {
    "AIRFLOW__CORE__FERNET_KEY": f"{MARK}-fernet-key-of-airflow-000000000000000000=",
    "AIRFLOW_CONN_SMTP_DEFAULT": f"smtp://mailer:{MARK}-smtp@127.0.0.1:9",
    "AIRFLOW_CONN_SLACK_API_DEFAULT": f"slack://:{MARK}-slack@",
    "AWS_SECRET_ACCESS_KEY": f"{MARK}-aws",
    "AWS_SESSION_TOKEN": f"{MARK}-session",
    "GITHUB_TOKEN": f"{MARK}-github",
    "HF_TOKEN": f"{MARK}-hugging-face",
    "NGC_API_KEY": f"{MARK}-ngc",
    "MLFLOW_TRACKING_URI": f"http://ann:{MARK}-mlflow@127.0.0.1:9/base?token={MARK}-query",
    "MLFLOW_TRACKING_PASSWORD": f"{MARK}-mlflow-password",
    "MLFLOW_TRACKING_TOKEN": f"{MARK}-mlflow-token",
    "PLUMBLINE_SMTP_HOST": "127.0.0.1",
    "PLUMBLINE_SMTP_USER": "mailer",
    "PLUMBLINE_SMTP_PASSWORD": f"{MARK}-smtp-password",
}
QUICK = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": "2"}
EVIDENCE = Path("/mnt/results/c/s/r/evidence")
LOOKS_SECRET = re.compile(
    r"AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{30}|xox[abp]-|hf_[A-Za-z0-9]{30}|nvapi-|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|://[^/\s:@]+:(?!\$|\{)[^/\s@]+@"
)


@pytest.fixture(name="planted")
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)


def holding(folder: Path, mark: str = MARK) -> list[str]:
    """Give the files below a folder that hold the mark, whatever their format."""
    assert folder.is_dir()
    return [
        str(p.relative_to(folder)) for p in sorted(folder.rglob("*")) if p.is_file() and mark.encode() in p.read_bytes()
    ]


def manifests() -> Iterator[object]:
    for data in (plain(), plain(EVERYTHING)):
        yield pods.batch_pod(data, "b", [spec(["n1"])], EVIDENCE)
        yield pods.batch_pod(data, "b", [spec(["n1", "n2"])], EVIDENCE)
        yield pods.worker_job(data, "b", spec(["n1", "n2"]), 1, EVIDENCE, ("p", "u"), "ssh-ed25519 public")
    chosen = profile()
    yield pods.batch_pod(plain(), "doctor", [doctor.probe_spec(chosen, "nccl_tests", "i", ["a"])], EVIDENCE)


@pytest.mark.usefixtures("planted")
def test_manifests_take_nothing_from_this_environment() -> None:
    for manifest in manifests():
        assert MARK not in json.dumps(manifest)


def test_a_planted_secret_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "run.bin").write_bytes(b"\x00" + PLANTED["HF_TOKEN"].encode())
    assert holding(tmp_path) == ["deep/run.bin"]
    for text in ("postgresql://ann:secret@db/x", "ghp_" + "a" * 36, "-----BEGIN OPENSSH PRIVATE KEY-----"):
        assert LOOKS_SECRET.search(text)


def test_what_is_committed_for_deployments_and_pods_holds_no_secret() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "docker", "tests/data/pods", "include/plumbline/clusters", "airflow_settings.yaml"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout.split()  # fmt: skip
    assert len(listed) > 30
    found = []
    for name in listed:
        path = ROOT / name
        if path.suffix == ".lock" or not path.is_file():
            continue
        # A URL that is put together from a secret, in the program that makes secrets, is none.
        text = re.sub(r"\{(airflow|mlflow)\}@", "@", path.read_text(encoding="utf-8"))
        found += [(name, match[0]) for match in LOOKS_SECRET.finditer(text)]
    assert found == []


def test_settings_of_airflow_hold_no_password() -> None:
    settings = yaml.safe_load((ROOT / "airflow_settings.yaml").read_text())["airflow"]
    assert not [one["conn_id"] for one in settings["connections"] if one.get("conn_password")]


@pytest.mark.usefixtures("planted")
def test_a_gang_leaves_neither_its_token_nor_what_its_launcher_knew(tmp_path: Path) -> None:
    """The benchmark prints all of its environment, as some do."""
    with FakeCluster(tmp_path / "cluster", nodes=["n1", "n2"]) as cluster:
        patient = {"kubernetes": {"waits": {"start_s": 120, "orphan_s": 60, "unschedulable_s": 60}}}
        run = prepare(tmp_path / "results", launches([["n1", "n2"]], "env; echo rank"), patient)
        name = start(cluster, run)
        assert finish(cluster, name, 180) == 0, log(cluster, name)
        said = log(cluster, name)
        tokens = {p.read_text().strip() for p in (tmp_path / "cluster").rglob("token") if p.is_file()}
    assert holding(tmp_path / "results", "OMPI_COMM_WORLD_RANK=0")  # it did
    assert MARK not in said
    assert holding(tmp_path / "results") == []
    assert tokens
    for token in tokens:
        assert token not in said
        assert holding(tmp_path / "results", token) == []


@pytest.mark.usefixtures("planted")
def test_a_run_from_the_command_line_leaves_no_secret(tmp_path: Path) -> None:
    """MLflow's address and mail have passwords and neither answers, so errors are told too."""
    results = tmp_path / "results"
    done = subprocess.run(
        [sys.executable, "-m", "plumbline.cli", "run", "--cluster", "simulated-8", "--suite", "nightly", "--set",
         "benchmarks=fio"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, **QUICK, "PLUMBLINE_RESULTS": str(results), "PYTHONPATH": str(ROOT / "include")},
    )  # fmt: skip
    assert done.returncode == 5, done.stderr[-2000:]  # MLflow could not be reached, and is named
    assert "127.0.0.1:9" in done.stdout + done.stderr
    assert MARK not in done.stdout + done.stderr
    assert len(list(results.rglob("report.html"))) == 1
    assert holding(results) == []


@pytest.mark.services
@pytest.mark.usefixtures("planted")
def test_a_dag_run_leaves_no_secret_in_logs_xcom_or_results(tmp_path: Path) -> None:
    home, results = tmp_path / "airflow", tmp_path / "results"
    fernet = "cGw0bnRlZC1mZXJuZXQta2V5LW9mLWFpcmZsb3ctMDA="  # Airflow takes only a real one
    done = subprocess.run(
        [sys.executable, "-m", "deployment.run_dag", "nightly_baseline", "--cluster", "simulated-8"],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, **QUICK, "AIRFLOW__CORE__FERNET_KEY": fernet, "AIRFLOW_HOME": str(home),
             "PLUMBLINE_RESULTS": str(results)},
    )  # fmt: skip
    assert done.returncode == 5, (done.stdout + done.stderr)[-3000:]
    assert MARK not in done.stdout + done.stderr
    assert holding(home, "127.0.0.1:9")  # logs tell where MLflow was looked for
    assert list(results.rglob("report.html"))
    assert holding(results) == []
    assert holding(home) == []
    kept = [path for path in home.rglob("*") if path.is_file() and fernet.encode() in path.read_bytes()]
    assert kept == []
