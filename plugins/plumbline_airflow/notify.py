"""Who is told, and by which way: whichever connections exist. Without one nothing is sent, and the log says so.

    smtp_default       e-mail to the addresses of the variable plumbline_recipients
    apprise_default    whatever Apprise reaches, when its provider is installed
    slack_api_default  Slack, channel of the variable plumbline_slack_channel, when its provider is installed

A verdict is sent when it is news, or always where the variable plumbline_notify says so. All ways are tried before a
failure of one is reported: a mail server that is down must not silence Slack.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from airflow.sdk import Connection, Variable, conf
from airflow.sdk.exceptions import AirflowNotFoundException

from plumbline.errors import NotificationError

log = logging.getLogger(__name__)


class Message(Protocol):
    """What is sent: plumbline.notification's message, or a Note. Without `html`, `text` is shown as it is."""

    @property
    def subject(self) -> str:
        """One line."""

    @property
    def text(self) -> str:
        """Plain text."""

    @property
    def html(self) -> str | None:
        """A page for mail programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A message about the measuring itself."""

    subject: str
    text: str
    html: str | None = None


def send_verdict(run_dir: Path, dag_id: str, run_id: str) -> None:
    """Send the summary of a judged run. Raises NotificationError, OutputError."""
    from plumbline.notification import compose  # noqa: PLC0415 - not needed to parse a DAG
    from plumbline.tracking.run_directory import RunDirectory  # noqa: PLC0415

    message = compose(RunDirectory.open(run_dir), report_url=f"{_run_url(dag_id, run_id)}/plugin/plumbline-report")
    if message.news or Variable.get("plumbline_notify", default="news") == "always":
        send(message)
    else:
        log.info("not sent, it is no news: %s", message.subject)


def stage_failed(context: Mapping[str, Any]) -> None:
    """Send word that a stage broke: the `on_failure_callback` of the task that watches for it."""
    ti = context["ti"]
    _send_or_log(
        f"{ti.dag_id}: a stage failed",
        f"{context.get('exception')}\n\nThis is the measuring, not the cluster. What was measured is kept.\n"
        f"DAG run: {_run_url(ti.dag_id, ti.run_id)}",
    )


def night_missing(context: Mapping[str, Any]) -> None:
    """Send word that there is no finished run of the night: the `on_failure_callback` of the watch."""
    ti = context["ti"]
    _send_or_log(
        "the night was not measured",
        f"{context.get('exception')}\n\nnightly_baseline may hang, be paused, or wait for a busy cluster.\n"
        f"DAG run: {_run_url(ti.dag_id, ti.run_id)}",
    )


def send(message: Message) -> None:
    """Send one message by every way that a connection opens. Raises NotificationError naming the ways that failed."""
    failed = []
    ways = {name: way for name, way in WAYS.items() if _has_connection(name)}
    if not ways:
        log.info("not sent, no connection says where to (%s): %s", ", ".join(WAYS), message.subject)
    for name, way in ways.items():
        try:
            way(message)
            log.info("sent by %s: %s", name, message.subject)
        except Exception as error:
            log.exception("not sent by %s", name)
            failed.append(f"{name}: {type(error).__name__}: {error}")
    if failed:
        raise NotificationError("; ".join(failed))


def _send_or_log(subject: str, text: str) -> None:
    """Send from a callback, where an exception would only end the callback."""
    try:
        send(Note(subject=subject, text=text))
    except NotificationError:
        log.exception("%s", subject)


def _mail(message: Message) -> None:
    from airflow.providers.smtp.hooks.smtp import SmtpHook  # noqa: PLC0415

    recipients = [r.strip() for r in str(Variable.get("plumbline_recipients", default="")).split(",") if r.strip()]
    if not recipients:
        raise NotificationError("the variable plumbline_recipients names nobody")
    page = message.html or f"<pre>{html.escape(message.text)}</pre>"
    with SmtpHook(smtp_conn_id="smtp_default") as hook:
        hook.send_email_smtp(to=recipients, subject=message.subject, html_content=page)


def _apprise(message: Message) -> None:
    from airflow.providers.apprise.hooks.apprise import AppriseHook  # noqa: PLC0415

    AppriseHook(apprise_conn_id="apprise_default").notify(title=message.subject, body=message.text)


def _slack(message: Message) -> None:
    from airflow.providers.slack.hooks.slack import SlackHook  # noqa: PLC0415

    channel = str(Variable.get("plumbline_slack_channel", default="#general"))
    text = f"*{message.subject}*\n{message.text}"
    SlackHook(slack_conn_id="slack_api_default").call("chat.postMessage", json={"channel": channel, "text": text})


WAYS: Mapping[str, Callable[[Message], None]] = {
    "smtp_default": _mail,
    "apprise_default": _apprise,
    "slack_api_default": _slack,
}


def _has_connection(name: str) -> bool:
    try:
        Connection.get(name)
    except AirflowNotFoundException:
        return False
    return True


def _run_url(dag_id: str, run_id: str) -> str:
    base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return f"{base}/dags/{dag_id}/runs/{run_id}"
