"""docker/compose: what its services name exists, nothing listens beyond this host, and secrets are files only."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docker.images import DOCKER, ROOT, program

FOLDER = DOCKER / "compose"
TEXT = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONCE = {"airflow-init", "mlflow-bucket"}
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:-|:\?)?([^}]*)\}")


def make_secrets() -> Any:
    """Give make_secrets.py as a module."""
    return program(FOLDER / "make_secrets.py")


def example() -> dict[str, str]:
    lines = (FOLDER / "env.example").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def airflow_services() -> dict[str, dict[str, Any]]:
    return {name: one for name, one in SERVICES.items() if "AIRFLOW_IMAGE" in one["image"]}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_names_what_exists(name: str) -> None:
    one = SERVICES[name]
    assert set(one["networks"]) <= set(COMPOSE["networks"])
    assert set(one.get("secrets", [])) <= set(COMPOSE["secrets"])
    for volume in one.get("volumes", []):
        source = VARIABLE.sub(lambda found: found[3], volume).split(":")[0]
        assert source in COMPOSE["volumes"] or source in ("./results", "./site"), volume
    for other, how in one.get("depends_on", {}).items():
        wanted = "service_completed_successfully" if other in ONCE else "service_healthy"
        assert how == {"condition": wanted}
        assert other in ONCE or "healthcheck" in SERVICES[other]


@pytest.mark.parametrize("name", sorted(set(SERVICES) - ONCE))
def test_a_service_is_watched_and_started_again(name: str) -> None:
    one = SERVICES[name]
    assert one["restart"] == "unless-stopped"
    assert {"test", "interval", "timeout", "retries", "start_period"} <= set(one["healthcheck"])
    assert one["logging"]["options"]["max-size"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_an_image_is_pinned_or_must_be_given(name: str) -> None:
    image = SERVICES[name]["image"]
    assert re.search(r":\d[\w.-]+@sha256:[0-9a-f]{64}$", image) or re.match(r"^\$\{\w+_IMAGE:\?", image), image


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_gains_no_privileges(name: str) -> None:
    one = SERVICES[name]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert not set(one) & {"privileged", "cap_add", "network_mode", "pid", "ipc"}
    if "_IMAGE" in one["image"]:
        assert one["cap_drop"] == ["ALL"]
        assert one["user"].startswith("${PLUMBLINE_UID:?")


def test_nothing_listens_beyond_this_host_unless_told() -> None:
    ports = {name: one["ports"] for name, one in SERVICES.items() if "ports" in one}
    assert set(ports) == {"airflow-api-server", "mlflow"}
    assert all(port.startswith("${BIND:-127.0.0.1}:") for found in ports.values() for port in found)
    assert example()["BIND"] == "127.0.0.1"
    for name in ("airflow-database", "mlflow-database", "object-store"):
        assert all(COMPOSE["networks"][network] == {"internal": True} for network in SERVICES[name]["networks"])


def test_every_variable_is_explained_and_none_is_left_over() -> None:
    assert {found[1] for found in VARIABLE.finditer(TEXT)} == set(example())
    for found in VARIABLE.finditer(TEXT):
        assert found[2] in (":-", ":?"), found[0]  # a default, or a refusal to start


# -- Airflow -------------------------------------------------------------------------------------------------------


def test_every_part_of_airflow_runs_with_the_same_settings() -> None:
    commands = {one["command"][-1].split()[-1] for one in airflow_services().values() if one != "airflow-init"}
    assert {"api-server", "scheduler", "dag-processor", "triggerer"} <= commands
    environments = [one["environment"] for one in airflow_services().values()]
    assert all(environment == environments[0] for environment in environments)
    assert environments[0]["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"


def test_every_command_that_gives_a_secret_reads_one_that_the_service_has() -> None:
    for name, one in airflow_services().items():
        granted = {*one["secrets"]}
        asked = [value for key, value in one["environment"].items() if key.endswith("_CMD")]
        assert len(asked) == 4
        for value in asked:
            assert re.fullmatch(r"cat /run/secrets/(\w+)", value), value
            assert value.rpartition("/")[2] in granted, f"{name}: {value}"
    copied = re.search(r"cp /run/secrets/(\w+) (\S+);", SERVICES["airflow-api-server"]["command"][-1])
    assert copied is not None
    assert copied[1] in SERVICES["airflow-api-server"]["secrets"]
    settings = SERVICES["airflow-api-server"]["environment"]
    assert copied[2] == settings["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"]


def test_airflow_reads_its_secrets_from_the_files(tmp_path: Path) -> None:
    """Airflow itself reads the environment of compose.yaml; every setting in it is one that Airflow knows."""
    secrets = tmp_path / "secrets"
    assert make_secrets().main(["--into", str(secrets), "--users", "admin:admin,ann:op"]) == 0
    settings = SERVICES["airflow-scheduler"]["environment"]
    given = {
        key: VARIABLE.sub(lambda found: found[3], value).replace("/run/secrets", str(secrets))
        for key, value in settings.items()
    }
    program = """
import json, os
from airflow import settings
from airflow.configuration import conf
known = {f"AIRFLOW__{section.upper()}__{option.upper()}" for section, options in conf.configuration_description.items()
         for option in options["options"]}
got = {key: conf.get(*key.removesuffix("_CMD").removeprefix("AIRFLOW__").lower().split("__"))
       for key in os.environ if key.endswith("_CMD")}
print("GOT " + json.dumps([sorted(known), got, settings.SQL_ALCHEMY_CONN_ASYNC]))
"""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW__")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        # As in a task's virtual environment: without an engine, whose driver only the image has.
        env={**kept, **given, "AIRFLOW_HOME": str(tmp_path / "home"), "PYTHON_OPERATORS_VIRTUAL_ENV_MODE": "1"},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if line.startswith("GOT ")]
    assert lines, done.stderr[-2000:]
    known, got, for_async = json.loads(lines[0].removeprefix("GOT "))
    assert {key.removesuffix("_CMD") for key in given if key.startswith("AIRFLOW__")} <= set(known)
    for key, value in got.items():
        assert value == (secrets / given[key].rpartition("/")[2]).read_text(), key
    assert for_async.startswith("postgresql+asyncpg://airflow:")
    assert "@airflow-database/airflow" in for_async


# -- secrets -------------------------------------------------------------------------------------------------------


def test_every_secret_is_a_file_that_is_made_and_never_committed() -> None:
    files = {name: one["file"] for name, one in COMPOSE["secrets"].items()}
    assert all(path == f"secrets/{name}" for name, path in files.items())
    assert set(files) == set(make_secrets().made(["admin"], None))
    assert "/secrets/" in (FOLDER / ".gitignore").read_text().splitlines()
    tracked = subprocess.run(
        ["git", "ls-files", str(FOLDER)], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.splitlines()
    assert not [path for path in tracked if "/secrets/" in path or path.endswith("/.env")]


def test_no_password_stands_in_the_file() -> None:
    for name, one in SERVICES.items():
        for key, value in one.get("environment", {}).items():
            if re.search(r"PASSWORD|SECRET|TOKEN|KEY|CONN|CREDENTIALS", key) and not key.endswith("_PORT"):
                assert str(value).startswith(("cat /run/secrets/", "/run/secrets/", "/tmp/")), f"{name}: {key}"
    assert "://" not in re.sub(r"https?://[\w.-]+(:\d+|:\$\{\w+[^}]*\})?(/[\w/.]*)?|s3://mlflow", "", TEXT)


def test_secrets_are_made_once_private_and_fitting_together(tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("apiVersion: v1\n")
    module = make_secrets()
    assert module.main(["--into", str(folder), "--kubeconfig", str(kubeconfig), "--users", "admin:admin,ann:op"]) == 0
    first = {path.name: path.read_text() for path in folder.iterdir()}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert first["airflow_database_password"] in first["airflow_database_url"]
    assert first["mlflow_database_password"] in first["mlflow_database_url"]
    assert set(json.loads(first["airflow_passwords"])) == {"admin", "ann"}
    [identity] = json.loads(first["object_store_identities"])["identities"]
    [pair] = identity["credentials"]
    assert f"aws_access_key_id = {pair['accessKey']}\n" in first["object_store_credentials"]
    assert f"aws_secret_access_key = {pair['secretKey']}\n" in first["object_store_credentials"]
    assert first["kubeconfig"] == "apiVersion: v1\n"
    assert not [name for name, text in first.items() if name.startswith("airflow_") and text.endswith("\n")]

    (folder / "airflow_jwt_secret").unlink()
    assert module.main(["--into", str(folder)]) == 0
    second = {path.name: path.read_text() for path in folder.iterdir()}
    assert {name for name in first if first[name] != second[name]} == {"airflow_jwt_secret"}


def test_half_of_a_pair_is_refused(tmp_path: Path) -> None:
    module = make_secrets()
    module.main(["--into", str(tmp_path)])
    (tmp_path / "mlflow_database_url").unlink()
    with pytest.raises(SystemExit, match="mlflow_database_password is there and its other form is not"):
        module.main(["--into", str(tmp_path)])
