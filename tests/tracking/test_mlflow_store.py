"""Which MLflow store runs go to, and what is said of one that is none, or that nobody reaches."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_run

from plumbline.errors import TrackingError
from plumbline.tracking.mlflow_tracking import default_tracking_uri, shown_uri, track

SMALL = Scenario(nodes=1)


def test_the_default_is_a_file_below_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setenv("PLUMBLINE_HOME", str(tmp_path))
    assert default_tracking_uri() == f"sqlite:///{tmp_path}/mlflow/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    assert default_tracking_uri() == "http://mlflow:5000"


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://ann:secret@host:5000/x?token=secret", "http://host:5000/x"),
        ("postgresql://u:secret@db/mlflow", "postgresql://db/mlflow"),
        ("sqlite:////a@b/c.db", "sqlite:////a@b/c.db"),
        ("http://ann:se/cr@et@host", "http://host"),
        ("/some/where", "/some/where"),
    ],
)
def test_secrets_are_never_shown(uri: str, shown: str):
    assert shown_uri(uri) == shown


def test_an_unreachable_server_is_a_tracking_error_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    run = build_run(tmp_path, SMALL, cluster="nobody")
    before = sorted((p.name, p.read_bytes()) for p in run.derived.iterdir())
    with pytest.raises(TrackingError, match=r"^MLflow at http://127\.0\.0\.1:9: ") as caught:
        track(run, "http://ann:s3cr3t@127.0.0.1:9")
    assert "s3cr3t" not in str(caught.value) and "ann" not in str(caught.value)
    assert caught.value.__cause__ is None and sorted((p.name, p.read_bytes()) for p in run.derived.iterdir()) == before


@pytest.mark.parametrize("uri", ["sqlite:///{}/file/mlflow.db", "sqlite:///{}/folder"])
def test_a_store_that_cannot_be_made_is_a_tracking_error(tmp_path: Path, uri: str):
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder").mkdir()
    run = build_run(tmp_path / "results", SMALL)
    with pytest.raises(TrackingError, match="MLflow at sqlite"):
        track(run, uri.format(tmp_path))


@pytest.mark.parametrize(
    "uri",
    ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true", "SQLite+pysqlite://"],
)
def test_a_store_in_memory_is_refused(tmp_path: Path, uri: str):
    run = build_run(tmp_path / "results", SMALL)
    with pytest.raises(TrackingError, match=r"MLflow at .*: a database in memory keeps nothing"):
        track(run, uri)
    assert not (run.derived / "mlflow.json").exists()


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("http://[bad", "MLflow at http://[bad: this is no address; check MLFLOW_TRACKING_URI"),
        ("http://ann:s3cr3t@[bad", "MLflow at http://[bad: this is no address"),
        ("http://ann:s3cr3t@host:port/", "MLflow at http://host:port/: this is no address"),
        ("http://ann:s3cr3t@h\u2100st", "this is no address"),
        (
            "postgresql+pg8000://ann:s3cr3t@127.0.0.1/mlflow",
            "the module pg8000, which such an address needs, is not installed",
        ),
        ("postgresql://ann:s3cr3t@host:port/mlflow", "MLflow at postgresql://host:port/mlflow: "),
        ("sqlite://ann:s3cr3t@host/x.db", "MLflow at sqlite://host/x.db: "),
        ("gopher://ann:s3cr3t@host", "MLflow at gopher://host: "),
        ("http://" + "a" * 300, "MLflow at http://aaa"),
    ],
)
def test_what_is_no_store_is_a_tracking_error_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, words: str
):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    run = build_run(tmp_path / "results", SMALL)
    with pytest.raises(TrackingError) as caught:
        track(run, uri)
    assert words in str(caught.value) and "s3cr3t" not in str(caught.value)


def test_several_may_be_the_first_to_open_a_store(tmp_path: Path):
    code = (
        "import sys; from plumbline.tracking.mlflow_tracking import open_store; sys.stdin.readline(); "
        "open_store(sys.argv[1])"
    )
    command = [sys.executable, "-c", code, f"sqlite:///{tmp_path}/mlflow.db"]
    several = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for one in several:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    told = [one.communicate()[1] for one in several]
    assert [one.returncode for one in several] == [0, 0, 0], told
