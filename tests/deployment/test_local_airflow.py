"""The Airflow of a checkout: its secrets stay private, its settings are loaded once and again when they change."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from deployment.local_airflow import ONE_SHOT, SERVICES, environment, private, write_private

from deployment import local_airflow


def test_secrets_are_made_once_and_readable_by_their_owner_only(tmp_path: Path) -> None:
    first = private(tmp_path / "home")
    assert private(tmp_path / "home") == first
    assert stat.S_IMODE((tmp_path / "home" / "secrets.json").stat().st_mode) == 0o600
    assert len(set(first.values())) == 3


def test_a_private_file_is_private_from_its_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    replace = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.append(stat.S_IMODE(self.stat().st_mode))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watched)
    write_private(tmp_path / "login.json", {"admin": "secret"})
    assert seen == [0o600]


def test_a_run_without_daemons_stays_out_of_the_services_database() -> None:
    key = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
    ours = {name: local_airflow.environment(name) for name in (ONE_SHOT, SERVICES)}
    assert ours[ONE_SHOT]["AIRFLOW_HOME"] == ours[SERVICES]["AIRFLOW_HOME"]
    assert key in ours[ONE_SHOT]
    assert ONE_SHOT != SERVICES


def test_what_the_caller_set_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__PARALLELISM", "2")
    assert environment(ONE_SHOT)["AIRFLOW__CORE__PARALLELISM"] == "2"


def test_the_settings_reach_airflow_and_are_loaded_again_only_when_they_change(
    airflow_database: Path, tmp_path: Path
) -> None:
    from airflow.models import Connection, Pool, Variable
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    def load(text: str) -> bool:
        path = tmp_path / "settings.yaml"
        path.write_text(text)
        return local_airflow.load_settings(ONE_SHOT, path)

    text = """
airflow:
  connections:
    - {conn_id: tests_mail, conn_type: smtp, conn_host: one.example.org, conn_port: 25,
       conn_password: hush, conn_extra: {a: 1}}
    - {conn_id: , conn_type: }
  pools:
    - {pool_name: tests_pool, pool_slot: 3, pool_description: tests}
    - {pool_name: }
  variables:
    - {variable_name: tests_variable, variable_value: one}
    - {variable_name: }
"""
    assert load(text) is True
    assert load(text) is False
    assert load(text.replace("one", "two")) is True
    with create_session() as session:
        wanted = select(Connection).where(Connection.conn_id == "tests_mail")
        connection = session.scalar(wanted)
        assert (connection.host, connection.port, connection.password) == ("two.example.org", 25, "hush")
        assert connection.extra_dejson == {"a": 1}
        assert session.scalar(select(func.count()).select_from(wanted.subquery())) == 1
        assert session.scalar(select(Pool).where(Pool.pool == "tests_pool")).slots == 3
    assert Variable.get("tests_variable") == "two"


def test_the_shipped_settings_have_what_the_dags_need(airflow_database: Path) -> None:
    (airflow_database / f"{ONE_SHOT}.settings").unlink(missing_ok=True)
    assert local_airflow.load_settings(ONE_SHOT) is True
    from airflow.models import Variable

    assert (Variable.get("plumbline_cluster"), Variable.get("plumbline_suite")) == ("local", "nightly")
