"""An Airflow in this checkout: its environment, its database, its settings. Nothing of it leaves `.airflow/`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SERVICES, ONE_SHOT = "airflow.db", "one_shot.db"


def airflow_home() -> Path:
    """Give AIRFLOW_HOME: the environment's, or `.airflow` in the checkout."""
    return Path(os.environ.get("AIRFLOW_HOME") or ROOT / ".airflow").absolute()


def environment(database: str) -> dict[str, str]:
    """Give the variables that every Airflow process of this checkout needs; what the caller has set wins.

    `database` is SERVICES or ONE_SHOT: a DAG that one process runs by itself is kept out of the services' database,
    whose scheduler would otherwise take its tasks for its own.
    """
    home = airflow_home()
    ours = {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "True",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / database}",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
        "GX_ANALYTICS_ENABLED": "false",
        "PLUMBLINE_HOME": str(ROOT),
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT / "include"), *filter(None, [os.environ.get("PYTHONPATH", "")])],
        ),
    }
    return {**ours, **{key: os.environ[key] for key in ours if key in os.environ and key != "PYTHONPATH"}}


def private(home: Path) -> dict[str, str]:
    """Give the secrets of this Airflow, made once and readable by their owner only."""
    path = home / "secrets.json"
    if not path.exists():
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(
            path,
            {
                "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(48),
                "AIRFLOW__API__SECRET_KEY": secrets.token_urlsafe(48),
                "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            },
        )
    found: dict[str, str] = json.loads(path.read_text())
    return found


def write_private(path: Path, data: Any) -> None:
    """Write JSON to a file that only its owner can read, whatever the umask, from its first byte."""
    temporary = path.with_suffix(".tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        json.dump(data, stream, indent=1)
    temporary.replace(path)


def prepare_database(database: str, log: Path) -> None:
    """Bring the database to this Airflow's schema, once for each version. Raises RuntimeError naming the log."""
    home = airflow_home()
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.chmod(0o700)
    done = home / f"{database}.migrated"
    version = f"{sys.version_info[:2]} {hashlib.sha256((ROOT / 'requirements.lock').read_bytes()).hexdigest()}"
    if (home / database).exists() and done.exists() and done.read_text() == version:
        return
    with log.open("ab") as stream:
        status = subprocess.run(
            [sys.executable, "-m", "airflow", "db", "migrate"],
            env={**os.environ, **environment(database), **private(home)},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            check=False,
        ).returncode
    if status:
        raise RuntimeError(f"`airflow db migrate` failed: {log}")
    done.write_text(version)
    (home / f"{database}.settings").unlink(missing_ok=True)


def load_settings(database: str, path: Path = ROOT / "airflow_settings.yaml") -> bool:
    """Load connections, pools and variables of the file when it is new or changed; say whether it was loaded.

    What a person changed in the UI stays until the file itself changes. Entries with an empty name are the
    template's and are left out. Needs `environment()` in os.environ before the first import of airflow.
    """
    text = path.read_bytes()
    done = airflow_home() / f"{database}.settings"
    digest = hashlib.sha256(text).hexdigest()
    if done.exists() and done.read_text() == digest:
        return False
    import yaml  # noqa: PLC0415

    found = (yaml.safe_load(text) or {}).get("airflow") or {}
    from airflow.utils.session import create_session  # noqa: PLC0415 - reads the environment when imported

    with create_session() as session:
        for entry in found.get("connections") or []:
            if entry.get("conn_id"):
                _set_connection(entry, session)
        for entry in found.get("pools") or []:
            if entry.get("pool_name"):
                _set_pool(entry, session)
        for entry in found.get("variables") or []:
            if entry.get("variable_name"):
                _set_variable(entry, session)
    done.write_text(digest)
    return True


def _set_connection(entry: dict[str, Any], session: Any) -> None:
    from airflow.models import Connection  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    extra = entry.get("conn_extra")
    connection = session.scalar(select(Connection).where(Connection.conn_id == entry["conn_id"])) or Connection(
        conn_id=entry["conn_id"]
    )
    connection.conn_type = entry.get("conn_type")
    connection.host, connection.schema = entry.get("conn_host"), entry.get("conn_schema")
    connection.login, connection.port = entry.get("conn_login"), entry.get("conn_port")
    connection.password = entry.get("conn_password")
    connection.extra = json.dumps(extra) if isinstance(extra, (dict, list)) else extra
    session.add(connection)


def _set_pool(entry: dict[str, Any], session: Any) -> None:
    from airflow.models import Pool  # noqa: PLC0415

    Pool.create_or_update_pool(
        name=entry["pool_name"],
        slots=int(entry.get("pool_slot") or 1),
        description=entry.get("pool_description") or "",
        include_deferred=bool(entry.get("pool_include_deferred")),
        session=session,
    )


def _set_variable(entry: dict[str, Any], session: Any) -> None:
    from airflow.models import Variable  # noqa: PLC0415

    value = entry.get("variable_value")
    Variable.set(entry["variable_name"], value if isinstance(value, str) else json.dumps(value), session=session)
