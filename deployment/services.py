"""Airflow and MLflow on loopback, in the background: what `make up` and `make down` do.

    python -m deployment.services up | down

Ports: AIRFLOW_PORT (8080) and MLFLOW_PORT (5000). Every service leads a session of its own, and everything carries one
variable in its environment: by these `down` finds it and all that it started, benchmarks included, whatever became of
their parents.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deployment.local_airflow import (
    ROOT,
    SERVICES,
    airflow_home,
    environment,
    prepare_database,
    private,
    write_private,
)

HOST = "127.0.0.1"
MARK = "PLUMBLINE_SERVICES"
"""Its value is the AIRFLOW_HOME that a process belongs to."""
STORE = "PLUMBLINE_MLFLOW_STORE"
"""Where MLflow keeps its database and artifacts, when not in the checkout's mlflow/."""
START_S, STOP_S = 240, 60
USER = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One program in the background. `health` is asked until it answers, where it has a port."""

    name: str
    argv: tuple[str, ...]
    health: str | None = None


def services(airflow_port: int, mlflow_port: int) -> tuple[Service, ...]:
    """Give what is started, in order.

    The scheduler and the triggerer don't serve logs here: those servers bind all interfaces, with no setting to
    change that, and on one machine the API server reads the log files themselves.
    """
    airflow = (sys.executable, "-m", "airflow")
    store = _store()
    return (
        Service(
            name="mlflow",
            argv=(sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", str(mlflow_port),
                  "--workers", "1", "--backend-store-uri", f"sqlite:///{store / 'mlflow.db'}", "--serve-artifacts",
                  "--artifacts-destination", str(store / "artifacts"),
                  "--x-frame-options", "NONE"),  # or Airflow's tab "MLflow run" stays empty
            health=f"http://{HOST}:{mlflow_port}/health",
        ),
        Service(
            name="api-server",
            argv=(*airflow, "api-server", "--host", HOST, "--port", str(airflow_port), "--workers", "1"),
            health=f"http://{HOST}:{airflow_port}/api/v2/version",
        ),
        Service(name="scheduler", argv=(*airflow, "scheduler", "--skip-serve-logs")),
        Service(name="dag-processor", argv=(*airflow, "dag-processor")),
        Service(name="triggerer", argv=(*airflow, "triggerer", "--skip-serve-logs")),
    )  # fmt: skip


def service_environment(airflow_port: int, mlflow_port: int) -> dict[str, str]:
    """Give what the services' environment has beside the Airflow environment of the checkout."""
    home = airflow_home()
    address = f"http://{HOST}:{airflow_port}"
    return {
        MARK: str(home),
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(airflow_port),
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "login.json"),
        "MLFLOW_TRACKING_URI": f"http://{HOST}:{mlflow_port}",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }


def up() -> int:
    """Start everything, wait until it is healthy, and say where it is. Starting twice starts once."""
    if running():
        print(_addresses())
        return 0
    airflow_port, mlflow_port = _port("AIRFLOW_PORT", 8080), _port("MLFLOW_PORT", 5000)
    if airflow_port == mlflow_port:
        raise SystemExit(f"AIRFLOW_PORT and MLFLOW_PORT are both {airflow_port}: choose another for one of them")
    home = airflow_home()
    logs = home / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    _store().mkdir(parents=True, exist_ok=True)
    clock = time.monotonic()
    print("preparing the database", flush=True)
    os.environ.update({**environment(SERVICES), **private(home)})
    prepare_database(SERVICES, logs / "migrate.log")
    _load_settings_apart(logs / "migrate.log")
    new_login = _make_login(home)
    variables = {**os.environ, **service_environment(airflow_port, mlflow_port)}
    started = [(service, _start(service, variables, logs)) for service in services(airflow_port, mlflow_port)]
    write_private(
        home / "services.json",
        {
            "airflow_port": airflow_port,
            "mlflow_port": mlflow_port,
            "boot": _boot(),
            "sessions": {str(process.pid): _started_at(process.pid) for _, process in started},
        },
    )
    problem = _wait_healthy(started, airflow_port)
    if problem:
        print(f"{problem}\nlogs: {logs}", file=sys.stderr)
        down()
        return 5
    print(f"ready after {time.monotonic() - clock:.0f} s")
    print(_addresses())
    if new_login:
        print(f"login:    {USER} / {json.loads((home / 'login.json').read_text())[USER]}   (shown once)")
    return 0


def down() -> int:
    """Stop what `up` started, and all that it started; fail when something is left."""
    left = running()
    if not left:
        print("nothing was running")
    for number, patience in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, 10)):
        _signal(left, number)
        end = time.monotonic() + patience
        while (left := running()) and time.monotonic() < end:
            time.sleep(0.3)
    (airflow_home() / "services.json").unlink(missing_ok=True)
    if left:
        print(f"still running: {', '.join(map(str, sorted(left)))}", file=sys.stderr)
        return 5
    return 0


def running() -> list[int]:
    """Give the processes that belong to this AIRFLOW_HOME.

    A session is ours while its leader is the one that was started: the kernel gives its number to nobody else while
    one member lives. What left the session (a benchmark leads its own) still has the mark; what writes its title over
    its environment, as Airflow's programs do, is still in the session.
    """
    mark = f"{MARK}={airflow_home()}".encode()
    sessions = _sessions()
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):  # gone, or somebody else's
            state, *fields = _status(int(path.name))
            ours = int(fields[2]) in sessions or mark in (path / "environ").read_bytes().split(b"\0")
            if ours and state != "Z" and int(path.name) != os.getpid():
                found.append(int(path.name))
    return found


def _sessions() -> set[int]:
    """Give the sessions that `up` started and that can still have members."""
    try:
        data = json.loads((airflow_home() / "services.json").read_text())
        if data["boot"] != _boot():
            return set()
        return {int(pid) for pid, since in data["sessions"].items() if _started_at(int(pid)) in (None, since)}
    except (OSError, ValueError, KeyError, AttributeError):
        return set()


def _status(pid: int) -> list[str]:
    """Give the fields of /proc/<pid>/stat from the state on; session is the fourth, start time the twentieth."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _started_at(pid: int) -> str | None:
    try:
        return _status(pid)[19]
    except (OSError, IndexError):
        return None


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _store() -> Path:
    return Path(os.environ.get(STORE) or ROOT / "mlflow").absolute()


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _port(variable: str, default: int) -> int:
    text = os.environ.get(variable, str(default))
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise SystemExit(f"{variable}={text!r} is not a port")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, int(text)))
        except OSError as error:
            raise SystemExit(
                f"port {text} cannot be used ({error.strerror}); choose another: {variable}=… make up"
            ) from None
    return int(text)


def _make_login(home: Path) -> bool:
    path = home / "login.json"
    if path.exists():
        path.chmod(0o600)
        return False
    write_private(path, {USER: secrets.token_urlsafe(15)})
    return True


def _load_settings_apart(log: Path) -> None:
    """Load airflow_settings.yaml in a process of its own: importing Airflow here would stay in memory for nothing."""
    with log.open("ab") as stream:
        code = f"from deployment.local_airflow import load_settings; load_settings({SERVICES!r})"
        status = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, check=False
        ).returncode
    if status:
        raise SystemExit(f"airflow_settings.yaml could not be loaded: {log}")


def _start(service: Service, variables: Mapping[str, str], logs: Path) -> subprocess.Popen[bytes]:
    with (logs / f"{service.name}.log").open("ab") as log:
        return subprocess.Popen(
            service.argv, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip


def _wait_healthy(started: list[tuple[Service, subprocess.Popen[bytes]]], airflow_port: int) -> str | None:
    """Wait for every service; give what is wrong, or None."""
    waiting = {service.name: service.health for service, _ in started if service.health}
    heartbeats = f"http://{HOST}:{airflow_port}/api/v2/monitor/health"
    components = ("scheduler", "dag_processor", "triggerer", "metadatabase")
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        for service, process in started:
            if process.poll() is not None:
                return f"{service.name} ended with status {process.returncode}"
        for name in [name for name, address in waiting.items() if _get(address) is not None]:
            print(f"{name} answers", flush=True)
            del waiting[name]
        states = _get(heartbeats) if not waiting else None
        if states is not None:
            data = json.loads(states)
            if all((data.get(name) or {}).get("status") == "healthy" for name in components):
                return None
        time.sleep(1)
    return f"not healthy after {START_S} s: {', '.join(waiting) or 'Airflow: ' + str(_get(heartbeats))}"


def _get(address: str | None) -> str | None:
    try:
        with urllib.request.urlopen(str(address), timeout=5) as answer:  # noqa: S310 - our own loopback address
            text: str = answer.read().decode()
            return text
    except (OSError, urllib.error.URLError):
        return None


def _addresses() -> str:
    try:
        ports = json.loads((airflow_home() / "services.json").read_text())
    except (OSError, ValueError):
        return "running; `make down` stops it"
    return (
        f"Airflow:  http://{HOST}:{ports['airflow_port']}\nMLflow:   http://{HOST}:{ports['mlflow_port']}\n"
        f"password: in {airflow_home() / 'login.json'}; `make down` stops everything"
    )


@contextlib.contextmanager
def _only_one() -> Iterator[None]:
    """Keep two `make up` apart."""
    import fcntl  # noqa: PLC0415

    home = airflow_home()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (home / ".services.lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit("another `make up` or `make down` is at work here") from None
        yield


def main(arguments: list[str] | None = None) -> int:
    """Run `up` or `down`."""
    chosen = (arguments if arguments is not None else sys.argv[1:]) or ["help"]
    commands = {"up": up, "down": down}
    if len(chosen) != 1 or chosen[0] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    with _only_one():
        return commands[chosen[0]]()


if __name__ == "__main__":
    sys.exit(main())
