"""Log runs to MLflow, once however often it is asked, and rebuild MLflow from run directories.

A run is found again by its tags. What is complete is left alone, what is half-logged is completed, and what holds other
numbers (after a reader was fixed and the run judged anew) is deleted and logged anew. The store is never on the way
to the gate: when it is down, TrackingError says so and nothing is lost.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from plumbline.configuration import project_root
from plumbline.errors import OutputError, TrackingError
from plumbline.tracking.approvals import approval
from plumbline.tracking.judged_run import LAUNCHES, MEASUREMENTS, MLFLOW, VERDICT, VERDICTS, JudgedRun
from plumbline.tracking.mlflow_payload import Payload, RunPayload, experiment_name, run_payload
from plumbline.tracking.run_directory import RunDirectory, find_runs

__all__ = [
    "begin", "default_tracking_uri", "experiment_name", "open_store", "rebuild", "record_decisions", "run_url", "track",
]  # fmt: skip

ARTIFACTS = ("report.html", VERDICT, "findings.json", "gx.json", LAUNCHES, MEASUREMENTS, VERDICTS)
CONTENT, COMPLETE = "plumbline.content_sha256", "plumbline.complete"
_LIMITS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""Unless the environment says otherwise: MLflow's own defaults block for minutes when a server is down."""
_EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
"""Makes MLflow's pages show runs and metrics rather than traces and prompts."""
_BATCH = 1000
"""The most points that MLflow takes in one call."""


def default_tracking_uri() -> str:
    """Give MLFLOW_TRACKING_URI, or the SQLite file <project root>/mlflow/mlflow.db."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{project_root().resolve()}/mlflow/mlflow.db"


def shown_uri(uri: str) -> str:
    """Give a tracking URI without what may be secret: user, password, query."""
    scheme, separator, rest = uri.partition("://")
    if not separator or rest.startswith("/"):
        return uri.partition("?")[0]
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def begin(run: RunDirectory, tracking_uri: str | None = None, payload: RunPayload | None = None) -> str:
    """Find or create the parent, write derived/mlflow.json, give the parent's id. Raises TrackingError, OutputError.

    `payload` is the run's own, where it was made before: that takes seconds with a thousand nodes.
    """
    uri = tracking_uri or default_tracking_uri()
    payload = payload or run_payload(JudgedRun(run))
    with _client(uri) as client:
        experiment, parent = _parent(client, uri, payload)
        return _remember(run, uri, payload, experiment, parent)


def track(run: RunDirectory, tracking_uri: str | None = None, payload: RunPayload | None = None) -> str:
    """Log the whole run and give the parent's id. Raises TrackingError (try again), OutputError (judge first)."""
    uri = tracking_uri or default_tracking_uri()
    payload = payload or run_payload(JudgedRun(run))
    with _client(uri) as client:
        experiment, parent = _parent(client, uri, payload)
        parent_id = _remember(run, uri, payload, experiment, parent)
        if parent.data.tags.get(COMPLETE) != "true":
            _log_missing(client, parent, payload.parent)
        _log_children(client, experiment, parent_id, payload)
        for name in ARTIFACTS:
            if (run.derived / name).is_file():
                client.log_artifact(parent_id, str(run.derived / name))
        _set_tags(client, parent_id, {**payload.parent.tags, **_decision_tags(run), COMPLETE: "true"})
        _end(client, parent_id, payload)
    return parent_id


def open_store(tracking_uri: str | None = None) -> None:
    """Open a SQLite store ahead of time: engine and schema take longer than logging a small run. Raises TrackingError.

    A server is left alone: one that is down would keep waiting whoever prepares for it.
    """
    uri = tracking_uri or default_tracking_uri()
    if uri.startswith("sqlite:///"):
        with _client(uri) as client:
            client.search_experiments(max_results=1)


def record_decisions(run: RunDirectory, tracking_uri: str | None = None) -> None:
    """Set the last decision on the run's evidence as tags of the parent. Raises TrackingError."""
    uri = tracking_uri or default_tracking_uri()
    payload = run_payload(JudgedRun(run))
    with _client(uri) as client:
        _, parent = _parent(client, uri, payload)
        _set_tags(client, parent.info.run_id, _decision_tags(run))


def rebuild(results: Path, tracking_uri: str | None = None, *, cluster: str | None = None) -> dict[str, str]:
    """Log every finished and judged run below `results`; give run id → MLflow run id, and leave out unjudged runs."""
    clusters = [cluster] if cluster else sorted(path.name for path in results.iterdir() if path.is_dir())
    found = {}
    for name in clusters:
        for run in find_runs(results, name):
            if (run.derived / VERDICT).is_file():
                found[run.run_id] = track(run, tracking_uri)
    return found


def run_url(run: RunDirectory) -> str | None:
    """Give the address of the run's page, or None when it was not tracked, or no server is known to show it.

    A server is known when tracking went over HTTP, or when PLUMBLINE_MLFLOW_UI names one.
    """
    known = JudgedRun(run).mlflow
    if known is None:
        return None
    base = os.environ.get("PLUMBLINE_MLFLOW_UI") or known.get("tracking_uri", "")
    if not base.startswith(("http://", "https://")):
        return None
    return f"{base.rstrip('/')}/#/experiments/{known['experiment_id']}/runs/{known['run_id']}"


# -- the store -------------------------------------------------------------------------------------------------------


@contextmanager
def _client(uri: str) -> Iterator[Any]:
    """Give an MlflowClient; whatever goes wrong with the store inside becomes a TrackingError without secrets."""
    _check_uri(uri)
    for name, value in _LIMITS.items():
        os.environ.setdefault(name, value)
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if uri.startswith("sqlite:///"):
        _prepare_database(uri)
    import requests  # noqa: PLC0415 - mlflow's own client library
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    try:
        with _one_opens(uri):
            try:
                client = MlflowClient(tracking_uri=uri)
            except ValueError as error:  # SQLAlchemy's, of a part of the address
                raise TrackingError(f"MLflow at {shown_uri(uri)}: {_scrubbed(str(error), uri)}") from None
        yield client
    except ModuleNotFoundError as error:
        what = f"the module {error.name}, which such an address needs, is not installed"
        raise TrackingError(f"MLflow at {shown_uri(uri)}: {what}") from None
    except (MlflowException, SQLAlchemyError, requests.RequestException, OSError) as error:
        raise TrackingError(f"MLflow at {shown_uri(uri)}: {_scrubbed(str(error), uri)}") from None


def _check_uri(uri: str) -> None:
    """Refuse what is no address, and a database in memory: what is logged there is gone with this process."""
    try:
        parts = urlsplit(uri)
        _ = parts.port if parts.scheme in ("http", "https") else None
    except ValueError:  # its words may hold the password
        raise TrackingError(f"MLflow at {shown_uri(uri)}: this is no address; check MLFLOW_TRACKING_URI") from None
    if parts.scheme.partition("+")[0] != "sqlite":
        return
    path = uri.partition("://")[2].partition("?")[0]
    if path in ("", "/") or ":memory:" in path or "mode=memory" in parts.query:
        raise TrackingError(
            f"MLflow at {shown_uri(uri)}: a database in memory keeps nothing; name a file, such as "
            "sqlite:////var/lib/plumbline/mlflow.db, or a server"
        )


@contextmanager
def _one_opens(uri: str) -> Iterator[None]:
    """Let one process at a time open a SQLite store: whoever is first makes its tables, and two at once fail."""
    with ExitStack() as stack:
        if uri.startswith("sqlite:///"):
            path = _database(uri)
            with suppress(OSError):  # a folder that can't be written, a file system without locks: as without a lock
                lock = stack.enter_context(path.with_name(f".{path.name}.lock").open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _prepare_database(uri: str) -> None:
    """Make the folder of a SQLite store, and refuse at once what MLflow would try to open for minutes."""
    path = _database(uri)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrackingError(f"MLflow at {shown_uri(uri)}: cannot make its folder: {error}") from None
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise TrackingError(f"MLflow at {shown_uri(uri)}: {path} is not a file that can be written")


def _database(uri: str) -> Path:
    return Path(urlsplit(uri).path[1:])


def _scrubbed(text: str, uri: str) -> str:
    """Give the first line of an error without the URI's secrets."""
    text = text.replace(uri, shown_uri(uri))
    parts = urlsplit(uri)
    for secret in (parts.password, unquote(parts.password or ""), parts.query):
        if secret:
            text = text.replace(secret, "…")
    text = re.sub(r"//[^/\s@]+@", "//", text)
    return " ".join(text.split())[:300]


def _parent(client: Any, uri: str, payload: RunPayload) -> tuple[str, Any]:
    """Give the experiment's id and the parent run, created where there is none that holds these very numbers."""
    experiment = _experiment(client, uri, payload.experiment)
    digest = payload.parent.digest
    found = _runs(client, experiment, payload.parent.tags["plumbline.run_id"], "run")
    same = [run for run in found if run.data.tags.get(CONTENT) == digest]
    for run in found:
        if run is not same[0] if same else True:
            client.delete_run(run.info.run_id)
    if same:
        return experiment, same[0]
    tags = {**payload.parent.tags, CONTENT: digest, "mlflow.runName": payload.parent.name}
    created = client.create_run(experiment, start_time=payload.started_ms, tags=tags, run_name=payload.parent.name)
    return experiment, created


def _experiment(client: Any, uri: str, name: str) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        from mlflow.exceptions import MlflowException

        try:
            location = _artifact_location(uri, name)
            return str(client.create_experiment(name, artifact_location=location, tags=_EXPERIMENT_TAGS))
        except MlflowException:  # another process was faster, or the store refuses: the next call tells
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _artifact_location(uri: str, name: str) -> str | None:
    """Give a folder beside the SQLite file; a server decides for itself."""
    if not uri.startswith("sqlite:///"):
        return None
    return (_database(uri).resolve().parent / "artifacts" / name).as_uri()


def _runs(client: Any, experiment: str, run_id: str, level: str) -> Sequence[Any]:
    """Give the MLflow runs of a Plumbline run, oldest first."""
    wanted = f"tags.`plumbline.run_id` = '{run_id}' and tags.`plumbline.level` = '{level}'"
    return list(client.search_runs([experiment], filter_string=wanted, order_by=["attributes.start_time ASC"]))


def _log_missing(client: Any, logged: Any, payload: Payload) -> None:
    """Log the points and parameters that a run does not have yet."""
    from mlflow.entities import Metric, Param

    run_id = logged.info.run_id
    there = {(m.key, m.step) for key in logged.data.metrics for m in client.get_metric_history(run_id, key)}
    params = [Param(k, v) for k, v in payload.params.items() if k not in logged.data.params]
    metrics = [Metric(p.key, p.value, p.timestamp_ms, p.step) for p in payload.points if (p.key, p.step) not in there]
    client.log_batch(run_id, params=params, metrics=metrics[: _BATCH - len(params)])
    for start in range(_BATCH - len(params), len(metrics), _BATCH):
        client.log_batch(run_id, metrics=metrics[start : start + _BATCH])


def _log_children(client: Any, experiment: str, parent_id: str, payload: RunPayload) -> None:
    found = _runs(client, experiment, payload.parent.tags["plumbline.run_id"], "batch")
    wanted = {child.name: child for child in payload.children}
    done = set()
    for run in found:
        child = wanted.get(run.data.tags.get("plumbline.batch"))
        whole = child is not None and run.data.tags.get(CONTENT) == child.digest
        if child is None or child.name in done or not whole or run.data.tags.get("mlflow.parentRunId") != parent_id:
            client.delete_run(run.info.run_id)
            continue
        done.add(child.name)
        _finish_child(client, run, child, payload)
    for name, child in wanted.items():
        if name not in done:
            tags = {**child.tags, CONTENT: child.digest, "mlflow.parentRunId": parent_id, "mlflow.runName": name}
            created = client.create_run(experiment, start_time=payload.started_ms, tags=tags, run_name=name)
            _finish_child(client, created, child, payload)


def _finish_child(client: Any, run: Any, child: Payload, payload: RunPayload) -> None:
    if run.data.tags.get(COMPLETE) != "true":
        _log_missing(client, run, child)
        client.set_tag(run.info.run_id, COMPLETE, "true")
    changed = {k: v for k, v in child.tags.items() if run.data.tags.get(k) != v}
    if changed:
        _set_tags(client, run.info.run_id, changed)
    if run.info.status == "RUNNING":
        _end(client, run.info.run_id, payload)


def _end(client: Any, run_id: str, payload: RunPayload) -> None:
    """End an MLflow run at the time that the launches ended; a closed gate shows as FAILED in the list of runs."""
    status = "FINISHED" if payload.parent.tags["plumbline.gate"] == "open" else "FAILED"
    client.set_terminated(run_id, status=status, end_time=payload.ended_ms)


def _set_tags(client: Any, run_id: str, tags: Mapping[str, str]) -> None:
    from mlflow.entities import RunTag

    if tags:
        client.log_batch(run_id, tags=[RunTag(key, value[:5000]) for key, value in tags.items()])


def _remember(run: RunDirectory, uri: str, payload: RunPayload, experiment: str, parent: Any) -> str:
    """Write derived/mlflow.json, only when it differs: its digest is in the provenance."""
    data = {
        "run_id": parent.info.run_id,
        "experiment_id": experiment,
        "experiment": payload.experiment,
        "tracking_uri": shown_uri(uri),
    }
    if JudgedRun(run).mlflow != data:
        run.write_derived_json(MLFLOW, data)
    return str(parent.info.run_id)


def _decision_tags(run: RunDirectory) -> dict[str, str]:
    try:
        last = approval(run)
    except OutputError as error:
        return {"plumbline.decision": f"unreadable: {error}"}
    if last is None:
        return {}
    found = {
        "plumbline.decision": "approved" if last.approved else "rejected",
        "plumbline.decision_kind": last.kind,
        "plumbline.decided_by": last.by,
        "plumbline.decided_at": last.at,
        "plumbline.decision_comment": last.comment,
    }
    return {key: value for key, value in found.items() if value}
