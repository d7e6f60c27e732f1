"""Makes the secrets that compose.yaml names, once: files in docker/compose/secrets that only their owner can read.

    python3 docker/compose/make_secrets.py [--kubeconfig FILE] [--users admin:admin,ann:op] [--into DIR]

Standard library only. What exists is left alone; remove a file to have it made anew (passwords of databases are taken
when a database is created, and not looked at again).
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path


def made(users: Sequence[str], kubeconfig: Path | None) -> dict[str, str]:
    """Give each secret's file name and content, without line breaks at the end: Airflow takes every byte."""
    airflow, mlflow = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    access, secret = secrets.token_hex(10), secrets.token_urlsafe(32)
    identity = {
        "name": "mlflow",
        "credentials": [{"accessKey": access, "secretKey": secret}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    return {
        "airflow_database_password": airflow,
        "airflow_database_url": f"postgresql+psycopg2://airflow:{airflow}@airflow-database/airflow",
        "airflow_fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "airflow_jwt_secret": secrets.token_urlsafe(48),
        "airflow_passwords": json.dumps({user: secrets.token_urlsafe(18) for user in users}),
        "airflow_secret_key": secrets.token_urlsafe(48),
        "kubeconfig": kubeconfig.read_text(encoding="utf-8") if kubeconfig else "",
        "mlflow_database_password": mlflow,
        "mlflow_database_url": f"postgresql+psycopg2://mlflow:{mlflow}@mlflow-database/mlflow",
        "object_store_credentials": f"[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n",
        "object_store_identities": json.dumps({"identities": [identity]}),
    }


PAIRS = (
    ("airflow_database_password", "airflow_database_url"),
    ("mlflow_database_password", "mlflow_database_url"),
    ("object_store_credentials", "object_store_identities"),
)
"""Two forms of one secret: made together or not at all."""


def write(folder: Path, found: dict[str, str]) -> list[str]:
    """Write the secrets that are not there; give their names. Raises SystemExit where one of a pair is missing."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.chmod(0o700)
    for pair in PAIRS:
        there = [name for name in pair if (folder / name).exists()]
        if len(there) == 1:
            raise SystemExit(
                f"{folder}: {there[0]} is there and its other form is not: restore it, or remove {there[0]}"
            )
    missing = [name for name in found if not (folder / name).exists()]
    for name in missing:
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(found[name])
    return missing


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is missing; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--kubeconfig", type=Path, help="how Airflow reaches the cluster; none: simulated clusters only"
    )
    parser.add_argument("--users", default="admin:admin", help="as AIRFLOW_USERS in .env: name:role, comma-separated")
    parser.add_argument("--into", type=Path, default=Path(__file__).with_name("secrets"), help="the folder")
    options = parser.parse_args(arguments)
    users = [entry.partition(":")[0].strip() for entry in options.users.split(",")]
    names = write(options.into, made(users, options.kubeconfig))
    print(f"{options.into}: made {', '.join(names) or 'nothing, all of them exist'}")
    print(f"the passwords of Airflow's users are in {options.into / 'airflow_passwords'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
