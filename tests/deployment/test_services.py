"""`make up` and `make down` without starting Airflow: finding what was started, ports, the login."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deployment import services


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def started(home: Path) -> Iterator[subprocess.Popen]:
    """Start a service that hides its environment, as Airflow's do, with a child that left its session."""
    child = f"import os, time; os.setsid(); open({str(home / 'child')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    program = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); time.sleep(600)"
    process = subprocess.Popen(
        [sys.executable, "-c", program], start_new_session=True, env={**os.environ, services.MARK: str(home)}
    )
    sessions = {str(process.pid): services._started_at(process.pid)}
    (home / "services.json").write_text(json.dumps({"boot": services._boot(), "sessions": sessions}))
    end = time.monotonic() + 120
    while not (home / "child").exists() or not (home / "child").read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    yield process
    for pid in (process.pid, int((home / "child").read_text())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def test_what_was_started_is_found_with_what_it_started(home: Path, started: subprocess.Popen) -> None:
    assert set(services.running()) == {started.pid, int((home / "child").read_text())}


def test_a_child_that_left_the_session_is_found_when_its_parent_is_gone(home: Path, started: subprocess.Popen) -> None:
    started.kill()
    started.wait()
    assert services.running() == [int((home / "child").read_text())]


def test_a_service_without_the_mark_is_found_by_its_session(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's programs write their title over their environment."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        sessions = {str(process.pid): services._started_at(process.pid)}
        (home / "services.json").write_text(json.dumps({"boot": services._boot(), "sessions": sessions}))
        assert services.running() == [process.pid]
    finally:
        process.kill()
        process.wait()


def test_a_process_that_only_has_an_old_number_is_left_alone(home: Path) -> None:
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        for boot, since in ((services._boot(), "1"), ("another boot", services._started_at(process.pid))):
            (home / "services.json").write_text(json.dumps({"boot": boot, "sessions": {str(process.pid): since}}))
            assert services.running() == []
    finally:
        process.kill()
        process.wait()


def test_down_stops_all_of_it(home: Path, started: subprocess.Popen) -> None:
    assert services.down() == 0
    assert services.running() == []
    assert not (home / "services.json").exists()


def test_down_says_when_there_was_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert services.down() == 0
    assert capsys.readouterr().out == "nothing was running\n"


def test_a_port_in_use_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("AIRFLOW_PORT", str(port))
        with pytest.raises(SystemExit, match=f"port {port} cannot be used .* AIRFLOW_PORT=… make up"):
            services._port("AIRFLOW_PORT", 8080)


def test_two_services_do_not_share_a_port(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    for variable in ("AIRFLOW_PORT", "MLFLOW_PORT"):
        monkeypatch.setenv(variable, port)
    with pytest.raises(SystemExit, match=f"are both {port}"):
        services.up()


@pytest.mark.parametrize("text", ["", "x", "0", "70000", "-1"])
def test_what_is_no_port_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_PORT", text)
    with pytest.raises(SystemExit, match="is not a port"):
        services._port("MLFLOW_PORT", 5000)


def test_the_login_is_made_once(home: Path) -> None:
    assert services._make_login(home) is True
    password = json.loads((home / "login.json").read_text())["admin"]
    assert len(password) >= 16
    assert services._make_login(home) is False
    assert json.loads((home / "login.json").read_text())["admin"] == password


def test_nothing_is_told_to_listen_beyond_this_machine() -> None:
    listening = {"mlflow", "api-server"}
    for service in services.services(8080, 5000):
        if service.name in listening:
            assert service.argv[service.argv.index("--host") + 1] == "127.0.0.1"
        if service.name in ("scheduler", "triggerer"):
            assert "--skip-serve-logs" in service.argv  # that server binds every interface
    assert services.service_environment(8080, 5000)["AIRFLOW__API__HOST"] == "127.0.0.1"


def test_wrong_use_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert services.main(["restart"]) == 2
    assert "up | down" in capsys.readouterr().err
