"""`make up`, a person at the pages, `make down`: Airflow and MLflow for real, in headless Chromium and over REST."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest
import yaml
from deployment.services import STORE, running
from tests.end_to_end.conftest import FIO, ROOT, needs_fio

from plumbline.tracking.run_directory import RunDirectory

pytestmark = [pytest.mark.services, needs_fio, pytest.mark.timeout(2400)]
needs_browser = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")), reason="Chromium or its driver is not installed"
)


@dataclass(frozen=True, slots=True)
class Services:
    """What `up` started, and how to speak to it."""

    home: Path
    variables: dict[str, str]
    airflow_port: int
    mlflow_port: int
    output: str

    @property
    def airflow(self) -> str:
        return f"http://127.0.0.1:{self.airflow_port}"

    @property
    def password(self) -> str:
        return json.loads((self.home / "login.json").read_text())["admin"]

    def processes(self) -> set[int]:
        """Give all that `up` started and all that this started, by the program's own account."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AIRFLOW_HOME", str(self.home))
            return set(running())

    def api(self, method: str, path: str, data: Any = None) -> Any:
        return call(method, f"{self.airflow}/api/v2/{path}", data, log_in(self.airflow, self.password))

    def trigger(self, dag_id: str, **conf: Any) -> str:
        answer = self.api("POST", f"dags/{dag_id}/dagRuns", {"logical_date": None, "conf": conf})
        return answer["dag_run_id"]

    def task(self, dag_id: str, run_id: str, task_id: str) -> str | None:
        return self.api("GET", f"dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/{task_id}")["state"]

    def wait(self, dag_id: str, run_id: str) -> str:
        """Wait for the end of a DAG run; give its state."""
        path = f"dags/{dag_id}/dagRuns/{quote(run_id)}"
        return wait_for(lambda: (s := self.api("GET", path)["state"]) in ("success", "failed") and s)

    def run_directory(self, dag_id: str, run_id: str) -> RunDirectory:
        path = f"dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances/prepare/xcomEntries/run_dir"
        return RunDirectory.open(Path(self.api("GET", path)["value"].strip('"')))


@functools.cache
def log_in(airflow: str, password: str) -> str:
    """Give a token, which lasts a day; to log in for each of many questions keeps a busy server busy."""
    return str(call("POST", f"{airflow}/auth/token", {"username": "admin", "password": password})["access_token"])


def call(method: str, address: str, data: Any = None, token: str | None = None) -> Any:
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(address, data=body, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.loads(answer.read() or b"null")


def wait_for(condition: Any, seconds: float = 900) -> Any:
    end = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        assert time.monotonic() < end, "never happened"
        time.sleep(1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def services(command: str, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deployment.services", command], cwd=ROOT, env=variables, capture_output=True, text=True,
        check=False, timeout=500,
    )  # fmt: skip


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Start everything in a folder of its own, with a suite that takes seconds."""
    root = tmp_path_factory.mktemp("services")
    (root / "storage").mkdir()
    profile = {
        "name": "tiny", "title": "A cluster of the tests", "launcher": "local", "device": "cpu",
        "accelerator": {"model": "cpu", "per_node": 1}, "fabric": {"name": "loopback"}, "hardware": "local-cpu",
        "nodes": {"emulated": 1}, "storage": {"directory": str(root / "storage")}, "python": sys.executable,
    }  # fmt: skip
    suite = {
        "name": "tiny", "title": "Tiny", "kind": "nightly", "gate": {}, "node_counts": [1],
        "benchmarks": [{"benchmark": "fio", "params": FIO}],
    }  # fmt: skip
    for kind, data in (("profiles", profile), ("suites", suite)):
        (root / kind).mkdir()
        (root / kind / "tiny.yaml").write_text(yaml.safe_dump(data))
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "MLFLOW_", "PLUMBLINE_"))}
    variables = {
        **kept,
        "PYTHONPATH": os.pathsep.join(str(ROOT / folder) for folder in ("include", "plugins")),
        "AIRFLOW_HOME": str(root / "airflow"),
        "AIRFLOW_PORT": str(free_port()),
        "MLFLOW_PORT": str(free_port()),
        STORE: str(root / "mlflow"),
        "PLUMBLINE_PROFILES": str(root / "profiles"),
        "PLUMBLINE_SUITES": str(root / "suites"),
        "PLUMBLINE_RESULTS": str(root / "results"),
        # Unpausing nightly_baseline after its hour starts the night at once; it is to take seconds as well.
        "AIRFLOW_VAR_PLUMBLINE_CLUSTER": "tiny",
        "AIRFLOW_VAR_PLUMBLINE_SUITE": "tiny",
    }
    done = services("up", variables)
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        yield Services(
            root / "airflow", variables, int(variables["AIRFLOW_PORT"]), int(variables["MLFLOW_PORT"]), done.stdout
        )
    finally:
        services("down", variables)


def test_the_login_is_shown_once_and_kept_from_others(up: Services) -> None:
    assert up.password in up.output
    assert stat.S_IMODE((up.home / "login.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(up.home.stat().st_mode) == 0o700
    again = services("up", up.variables)
    assert again.returncode == 0
    assert up.airflow in again.stdout
    assert up.password not in again.stdout


def test_everything_listens_on_this_machine_only(up: Services) -> None:
    ours = up.processes()
    addresses = {
        (c.laddr.ip, c.laddr.port)
        for c in psutil.net_connections("inet")
        if c.status == psutil.CONN_LISTEN and c.pid in ours
    }
    assert {("127.0.0.1", up.airflow_port), ("127.0.0.1", up.mlflow_port)} <= addresses
    assert {ip for ip, _ in addresses} == {"127.0.0.1"}


def test_the_pages_ask_who_is_there(up: Services) -> None:
    for page in ("report", "mlflow"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{up.airflow}/plumbline/{page}?dag_id=nightly_baseline&run_id=x", timeout=300)
        assert caught.value.code == 401


@needs_browser
def test_a_person_triggers_watches_and_follows_the_links(up: Services, tmp_path: Path) -> None:
    from tests.end_to_end.browser import Browser

    with Browser(up.airflow, Path(os.environ.get("PLUMBLINE_SCREENSHOTS", tmp_path))) as browser:
        browser.log_in("admin", up.password)
        browser.trigger("nightly_baseline", cluster="tiny", suite="tiny")
        run_id = wait_for(
            lambda: (runs := up.api("GET", "dags/nightly_baseline/dagRuns")["dag_runs"]) and runs[0]["dag_run_id"]
        )
        assert up.wait("nightly_baseline", run_id) == "success"
        run = up.run_directory("nightly_baseline", run_id)
        report = browser.report_of("nightly_baseline", run_id, run.run_id)
        assert run.run_id in report
        address, page = browser.mlflow_run_of("nightly_baseline", run_id, run.run_id)
        assert address.startswith(f"http://127.0.0.1:{up.mlflow_port}/#/experiments/")
        assert run.run_id in page


def test_acceptance_refuses_what_it_does_not_understand(up: Services) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        up.trigger("acceptance", cluster="tiny", suite="tiny", node_counts=[0])
    assert caught.value.code == 400
    run_id = up.trigger("acceptance", cluster="tiny", suite="tiny", node_count=[1])
    assert up.wait("acceptance", run_id) == "failed"
    assert up.task("acceptance", run_id, "prepare") == "failed"
    log = up.api("GET", f"dags/acceptance/dagRuns/{quote(run_id)}/taskInstances/prepare/logs/1?full_content=true")
    assert "did you mean 'node_counts'" in json.dumps(log)


def answer(up: Services, run_id: str, choice: str, comment: str) -> RunDirectory:
    """Decide as a person does: once the question is there, and not before the scheduler knows that it waits."""
    wait_for(lambda: up.task("acceptance", run_id, "sign_off") == "awaiting_input")
    log = up.home / "logs" / "scheduler.log"
    paused = re.compile(rf"Received executor event .*task_id='sign_off', run_id='{re.escape(run_id)}'")
    wait_for(lambda: paused.search(log.read_text(errors="replace")))
    run = up.run_directory("acceptance", run_id)
    assert run.decisions() == []  # nothing is decided before somebody does
    path = f"dags/acceptance/dagRuns/{quote(run_id)}/taskInstances/sign_off/-1/hitlDetails"
    up.api("PATCH", path, {"chosen_options": [choice], "params_input": {"comment": comment}})
    return run


@pytest.mark.parametrize(
    ("choice", "state", "decision", "tag"),
    [("Approve", "success", "accept", "approved"), ("Reject", "failed", "reject", "rejected")],
)
def test_a_person_decides_over_rest(up: Services, choice: str, state: str, decision: str, tag: str) -> None:
    from mlflow import MlflowClient

    run_id = up.trigger("acceptance", cluster="tiny", suite="tiny", node_counts=[1], repeats=1, note="rack 7")
    run = answer(up, run_id, choice, "looked at rack 7")
    assert up.wait("acceptance", run_id) == state
    [line] = run.decisions()
    assert (line["decision"], line["by"], line["comment"]) == (decision, "admin", "looked at rack 7")
    client = MlflowClient(tracking_uri=f"http://127.0.0.1:{up.mlflow_port}")
    tags = client.get_run(run.read_derived("verdict.json")["mlflow_run_id"]).data.tags
    assert tags["plumbline.decision"] == tag
    assert tags["plumbline.decided_by"] == "admin"
    word = "Accepted (and part of the baseline)" if decision == "accept" else "Rejected"
    assert f"<b>{word}</b> by admin" in (run.derived / "report.html").read_text()


@needs_browser
def test_the_acceptance_form_can_be_sent_as_it_is(up: Services, tmp_path: Path) -> None:
    from tests.end_to_end.browser import Browser

    with Browser(up.airflow, Path(os.environ.get("PLUMBLINE_SCREENSHOTS", tmp_path))) as browser:
        browser.log_in("admin", up.password)
        assert browser.form_is_ready("acceptance")


def test_nothing_is_left_after_down(up: Services) -> None:
    """Last in this file: it takes the services away."""
    before = {psutil.Process(pid) for pid in up.processes()}
    assert len(before) >= 5
    assert services("down", up.variables).returncode == 0
    assert [p for p in before if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []
    for port in (up.airflow_port, up.mlflow_port):
        with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
            probe.connect(("127.0.0.1", port))
