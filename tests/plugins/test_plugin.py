"""What Airflow's plugin loader finds, and who may see the pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.run_builder import build_run

from plumbline.tracking.run_directory import RunDirectory

ROOT = Path(__file__).resolve().parents[2]


def test_the_loader_reads_one_file_only() -> None:
    from airflow._shared.module_loading import find_path_from_directory

    found = {Path(p).name for p in find_path_from_directory(str(ROOT / "plugins"), ".airflowignore", "glob")}
    assert {name for name in found if name.endswith(".py")} == {"plumbline_ui.py"}


def test_the_plugin_loads_and_brings_the_operators_with_it(airflow_database: Path) -> None:
    import sys

    from airflow import plugins_manager

    plugins, problems = plugins_manager._get_plugins()
    assert problems == {}
    assert "plumbline" in {plugin.name for plugin in plugins}
    assert "airflow.providers.cncf.kubernetes.operators.pod" in sys.modules


def test_a_dag_run_has_links_to_its_report_and_its_mlflow_run() -> None:
    from plumbline_ui import PlumblinePlugin

    views = {view["name"]: view for view in PlumblinePlugin.external_views}
    assert set(views) == {"Report", "MLflow run"}
    for view in views.values():
        assert view["destination"] == "dag_run"
        assert "{DAG_ID}" in view["href"]
        assert "{RUN_ID}" in view["href"]
        assert view["url_route"]  # without one, Airflow doesn't show it on a DAG run's page


# -- the pages -------------------------------------------------------------------------------------------------------


class Database:
    """Answers the one question that the pages ask of Airflow's database."""

    def __init__(self, run: RunDirectory | None) -> None:
        self.run = run

    def scalar(self, query: Any) -> str | None:
        values = query.compile().params.values()
        assert {"nightly_baseline", "manual__1", "prepare", "run_dir"} <= set(values)
        return f'"{self.run.path}"' if self.run else None


@pytest.fixture
def database() -> Database:
    return Database(None)


@pytest.fixture
def client(database: Database) -> Iterator[TestClient]:
    """Serve the pages as the API server does, with everybody let in."""
    from airflow.api_fastapi.common.db.common import _get_session
    from airflow.api_fastapi.core_api.security import get_user

    from plumbline_airflow import pages

    guard = pages.MAY_READ_RUN.dependency
    pages.app.dependency_overrides = {guard: lambda: None, get_user: lambda: None, _get_session: lambda: database}
    server = FastAPI()
    server.mount("/plumbline", pages.app)
    yield TestClient(server, follow_redirects=False)
    pages.app.dependency_overrides = {}


QUERY = "dag_id=nightly_baseline&run_id=manual__1"


def test_the_report_is_served_alone_and_locked_in(client: TestClient, database: Database, tmp_path: Path) -> None:
    database.run = build_run(tmp_path)
    (database.run.derived / "report.html").write_text("<h1>PASS</h1>")
    answer = client.get(f"/plumbline/report?{QUERY}")
    assert (answer.status_code, answer.text) == (200, "<h1>PASS</h1>")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox")
    assert "allow-same-origin" not in policy


def test_a_run_without_a_report_says_so(client: TestClient, database: Database, tmp_path: Path) -> None:
    database.run = build_run(tmp_path)
    (database.run.derived / "report.html").unlink(missing_ok=True)
    answer = client.get(f"/plumbline/report?{QUERY}")
    assert answer.status_code == 404
    assert "has no report yet" in answer.text


def test_what_is_no_run_directory_is_not_served(client: TestClient, database: Database, tmp_path: Path) -> None:
    (tmp_path / "derived").mkdir()
    (tmp_path / "evidence").mkdir()
    (tmp_path / "derived" / "report.html").write_text("secret")
    database.run = RunDirectory(tmp_path)
    assert client.get(f"/plumbline/report?{QUERY}").status_code == 404


def test_the_mlflow_page_shows_the_run(
    client: TestClient, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLUMBLINE_MLFLOW_UI", "https://mlflow.example.org")
    database.run = build_run(tmp_path)
    database.run.write_derived_json(
        "mlflow.json", {"run_id": "abc", "experiment_id": "7", "experiment": "e", "tracking_uri": "sqlite:///x"}
    )
    answer = client.get(f"/plumbline/mlflow?{QUERY}")
    assert answer.status_code == 200
    assert "src='https://mlflow.example.org/#/experiments/7/runs/abc'" in answer.text


def test_a_run_that_is_not_in_mlflow_says_how_to_log_it(client: TestClient, database: Database, tmp_path: Path) -> None:
    database.run = build_run(tmp_path)
    answer = client.get(f"/plumbline/mlflow?{QUERY}")
    assert answer.status_code == 404
    assert f"plumbline track {database.run.run_id}" in answer.text


def test_every_page_asks_who_is_there(airflow_database: Path) -> None:
    """Airflow mounts a plugin's pages without any check of its own."""
    from plumbline_airflow import pages

    paths = [route for route in pages.app.routes if hasattr(route, "dependencies")]
    assert {route.path for route in paths} == {"/report", "/mlflow"}
    for route in paths:
        assert pages.MAY_READ_RUN in route.dependencies
