"""Messages go by every way that a connection opens, and one way that fails does not silence the others."""

from __future__ import annotations

import email
import email.policy
import smtplib
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from airflow.sdk.exceptions import AirflowNotFoundException
from tests.run_builder import build_history, build_run

from plumbline.errors import NotificationError
from plumbline_airflow import notify
from plumbline_airflow.notify import Note, send

NOTE = Note(subject="local: FAIL", text="<slow> disk")


class Inbox:
    """A mail server of the test's own."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        self.messages.append(envelope)
        return "250 OK"


def read(mail: Any) -> tuple[str, str]:
    """Give subject and page of a mail."""
    message = email.message_from_bytes(mail.content, policy=email.policy.default)
    return message["Subject"], message.get_body(("html",)).get_content()


@pytest.fixture
def inbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[Inbox]:
    found = Inbox()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    controller = Controller(found, hostname="127.0.0.1", port=port)
    controller.start()
    monkeypatch.setenv(
        "AIRFLOW_CONN_SMTP_DEFAULT",
        f"smtp://127.0.0.1:{port}?disable_ssl=true&disable_tls=true&from_email=plumbline%40example.org",
    )
    monkeypatch.setenv("AIRFLOW_VAR_PLUMBLINE_RECIPIENTS", "ops@example.org, sre@example.org")
    yield found
    controller.stop()


@pytest.fixture(autouse=True)
def _no_other_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections come from the environment only: outside of a task there is nobody to ask."""
    import os

    from airflow.models import Connection

    def get(name: str) -> Any:
        if uri := os.environ.get(f"AIRFLOW_CONN_{name.upper()}"):
            return Connection(conn_id=name, uri=uri)
        raise AirflowNotFoundException(name)

    monkeypatch.setattr(notify.Connection, "get", get)


def test_a_mail_reaches_everyone_named(inbox: Inbox) -> None:
    send(NOTE)
    [mail] = inbox.messages
    assert mail.rcpt_tos == ["ops@example.org", "sre@example.org"]
    subject, page = read(mail)
    assert subject == "local: FAIL"
    assert "&lt;slow&gt; disk" in page  # shown, not interpreted


def test_without_a_connection_nothing_is_sent_and_nothing_fails(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="plumbline_airflow.notify"):
        send(NOTE)
    assert "not sent, no connection says where to" in caplog.text


def test_a_mail_server_that_is_down_fails_the_task(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = "smtp://127.0.0.1:9?disable_ssl=true&disable_tls=true&from_email=a%40b.c"
    monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", closed)
    with pytest.raises(NotificationError, match="smtp_default: "):
        send(NOTE)


def test_recipients_must_be_named(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_PLUMBLINE_RECIPIENTS", " , ")
    with pytest.raises(NotificationError, match="plumbline_recipients names nobody"):
        send(NOTE)


def test_one_way_that_fails_does_not_silence_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def broken(message: Any) -> None:
        raise smtplib.SMTPException("no route")

    monkeypatch.setattr(notify, "WAYS", {"smtp_default": broken, "apprise_default": sent.append})
    monkeypatch.setattr(notify, "_has_connection", lambda name: True)
    with pytest.raises(NotificationError, match="smtp_default: SMTPException: no route"):
        send(NOTE)
    assert sent == [NOTE]


def test_a_stage_that_failed_is_told_apart_from_the_cluster(inbox: Inbox) -> None:
    ti = SimpleNamespace(dag_id="nightly_baseline", run_id="r1")
    notify.stage_failed({"ti": ti, "exception": ValueError("failed: track")})
    subject, page = read(inbox.messages[0])
    assert subject == "nightly_baseline: a stage failed"
    assert "failed: track" in page
    assert "not the cluster" in page


def test_a_missing_night_is_told(inbox: Inbox) -> None:
    ti = SimpleNamespace(dag_id="nightly_watch", run_id="r1")
    notify.night_missing({"ti": ti, "exception": ValueError("local/nightly: no finished run at all")})
    subject, page = read(inbox.messages[0])
    assert subject == "the night was not measured"
    assert "no finished run at all" in page


def test_a_callback_never_raises(inbox: Inbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_PLUMBLINE_RECIPIENTS", "")
    notify.night_missing({"ti": SimpleNamespace(dag_id="nightly_watch", run_id="r1")})


# -- verdicts --------------------------------------------------------------------------------------------------------


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found: dict[str, str] = {"plumbline_recipients": "ops@example.org"}
    monkeypatch.setattr(notify.Variable, "get", lambda name, default=None: found.get(name, default))
    return found


def test_a_verdict_is_sent_with_a_link_to_the_dag_runs_report(
    inbox: Inbox, variables: dict[str, str], tmp_path: Path
) -> None:
    run = build_run(tmp_path)
    notify.send_verdict(run.path, "nightly_baseline", "scheduled__1")
    subject, page = read(inbox.messages[0])
    verdict = run.read_derived("verdict.json")
    assert subject.startswith(f"{verdict['verdict']}, gate {verdict['gate']}: local nightly")
    assert "/dags/nightly_baseline/runs/scheduled__1/plugin/plumbline-report" in page


def test_what_is_no_news_is_sent_only_where_that_is_wanted(
    inbox: Inbox, variables: dict[str, str], tmp_path: Path
) -> None:
    run = build_history(tmp_path, 2)[-1]
    notify.send_verdict(run.path, "nightly_baseline", "scheduled__2")
    assert inbox.messages == []
    variables["plumbline_notify"] = "always"
    notify.send_verdict(run.path, "nightly_baseline", "scheduled__2")
    assert len(inbox.messages) == 1
