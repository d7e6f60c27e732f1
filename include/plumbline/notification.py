"""What people are told of a run: the verdict of verdict.json in one subject line, a short text, and the links.

Airflow's connections send it in production; `send` is for the command line and for clusters without them.
"""

from __future__ import annotations

import html
import os
import smtplib
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate, make_msgid
from typing import Literal
from urllib.parse import quote

from plumbline import stages
from plumbline.errors import ConfigError, NotificationError, OutputError, near_match
from plumbline.execution.asked import asked_in_words
from plumbline.model import VerdictKind
from plumbline.reports.findings import Finding, find, told_suspicions
from plumbline.reports.news import Since, since_previous
from plumbline.reports.wording import clean, plural, shortened
from plumbline.tracking.cost import cost
from plumbline.tracking.derived_seal import remedy
from plumbline.tracking.judged_run import (
    LAUNCHES,
    MEASUREMENTS,
    PROXIES,
    STAMPS,
    VERDICT,
    VERDICTS,
    JudgedRun,
    why_untrusted,
)
from plumbline.tracking.mlflow_tracking import run_url
from plumbline.tracking.run_directory import RunDirectory

MOST_FINDINGS = 6
MOST_CHANGES = 5
LONGEST_LINE = 600
"""Header lines are not folded before: a folded subject begins with a space. RFC 5322 allows 998 characters."""
_TONES = {"PASS": "#166534", "WAIVED": "#475569", "WARN": "#8a5a00", "FAIL": "#a3180f", "INVALID": "#7a1f6b"}
Security = Literal["none", "starttls", "tls"]
_PORTS: dict[Security, int] = {"none": 25, "starttls": 587, "tls": 465}


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message. `verdict` and `gate` are verdict.json's own words; `news` says whether anything is new."""

    subject: str
    text: str
    html: str
    verdict: str
    gate: str
    news: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpSettings:
    """Where messages go. `security` is none, starttls or tls; the password is never shown."""

    host: str
    port: int
    sender: str
    recipients: tuple[str, ...]
    user: str | None = None
    password: str | None = None
    security: Security = "none"
    timeout_s: float = 15.0

    def __repr__(self) -> str:
        return f"SmtpSettings({self.sender} → {', '.join(self.recipients)} by {self.host}:{self.port}, {self.security})"


# -- what is said ----------------------------------------------------------------------------------------------------


def compose(run: RunDirectory, *, report_url: str | None = None) -> Message:
    """Write the message of a judged run. Raises OutputError for one that is not judged.

    A verdict that the gate would not take (derived/ is not what the judge wrote of this evidence, or contradicts
    itself) is told as a closed gate, with the reason and nothing of what it says. Without `report_url` the report's
    address is PLUMBLINE_REPORTS_URL and the path below the results folder, or the file's path where that is not set.
    """
    if not (run.derived / VERDICT).is_file():
        raise OutputError("is not judged: it has no verdict to tell", source=run.run_id)
    if reason := _untrusted(run):
        return _refusal(run, reason)
    judged = JudgedRun(run)
    found, since = find(judged), since_previous(judged)
    links = [("Report", report_url or _report_address(run))]
    if address := run_url(run):
        links.append(("MLflow", address))
    parts = list(_parts(judged, found, since))
    return Message(
        subject=subject(judged),
        text="\n".join(_text(judged, parts, links)),
        html=_html(judged, parts, links),
        verdict=judged.verdict.value,
        gate=str(judged.summary["gate"]),
        news=is_news(judged, since),
    )


def _untrusted(run: RunDirectory) -> str | None:
    """Say why the run's word can't be passed on: what closes `plumbline.stages.gate`, or a file that is told from."""
    try:
        stages.gate(run.path)
    except OutputError as error:
        return str(error)
    return why_untrusted(run, VERDICT, VERDICTS, LAUNCHES, MEASUREMENTS)


def _refusal(run: RunDirectory, reason: str) -> Message:
    """Tell a closed gate: names come from the run's place, for what it says of itself is not to be believed."""
    cluster, suite = run.path.parts[-3:-1]
    head = f"{VerdictKind.INVALID.value}, gate closed"
    title = f"{head}: {cluster} {suite} {_day(run.run_id)}, the verdict can't be trusted"
    lines = [
        head, f"Cluster {cluster}, suite {suite}, run {run.run_id}", "", f"The verdict can't be trusted: {reason}", "",
        f"What helps: {remedy(run)}", f"Run directory: {run.path}",
    ]  # fmt: skip
    page = "".join(f"<p>{html.escape(clean(line))}</p>" for line in lines if line)
    return Message(
        subject=clean(title), text="\n".join(map(clean, lines)), html=page, verdict=VerdictKind.INVALID.value,
        gate="closed", news=True,
    )  # fmt: skip


def subject(run: JudgedRun) -> str:
    """Give one line: verdict and gate first, then what and where, and what must be said of such numbers."""
    short = [name for name in run.stamps if name != PROXIES]  # said in the text: it concerns training only
    stamp = f" [{', '.join(short)}]" if short else ""
    return f"{run.verdict.value}, gate {run.summary['gate']}: {run.cluster} {run.suite_name} {_day(run.run_id)}{stamp}"


def _day(run_id: str) -> str:
    return f"{run_id[:4]}-{run_id[4:6]}-{run_id[6:8]}"


def is_news(run: JudgedRun, since: Since) -> bool:
    """Say whether somebody should be told at once: a first run, another gate, a fault that is new or over."""
    if since.previous is None:
        return True
    changed = since.previous.summary["gate"] != run.summary["gate"]
    return changed or any(item.tone != "neutral" and item.text.startswith(("new: ", "over: ")) for item in since.items)


Part = tuple[str, list[str]]


def _parts(run: JudgedRun, found: Sequence[Finding], since: Since) -> Iterator[Part]:
    closing = [item for item in found if item.blocks]
    others = [item for item in found if not item.blocks]
    if closing:
        yield "What closes the gate", _listed(closing)
    if common := told_suspicions(found):
        yield "What the bad groups have in common", [f"{item.label}: {shortened(item.text, 300)}" for item in common]
    if others:
        yield "Notes", _listed(others)
    if since.previous is not None and since.items:
        marks = {"worse": "worse: ", "better": "better: ", "neutral": ""}
        lines = [f"{marks[item.tone]}{shortened(item.text, 200)}" for item in since.items[:MOST_CHANGES]]
        if len(since.items) > MOST_CHANGES:
            lines.append(f"and {len(since.items) - MOST_CHANGES} more")
        yield f"Since {since.previous.run_id}", lines
    coverage = run.summary["coverage"]
    spent = cost(run)
    yield (
        "Coverage and cost",
        [
            *([f"not the suite as it is: {words}"] if (words := asked_in_words(run.summary.get("asked", ()))) else []),
            f"{coverage['measured']:,} of {plural(coverage['expected'], 'node')} and {coverage['rows_measured']:,} of "
            f"{coverage['rows_expected']:,} expected values measured",
            f"{spent.text()}, {plural(spent.launches, 'launch', 'launches')}",
        ],
    )


def _listed(found: Sequence[Finding]) -> list[str]:
    lines = [f"{item.kind.value} {item.title}: {shortened(item.problem, 220)}" for item in found[:MOST_FINDINGS]]
    if len(found) > MOST_FINDINGS:
        lines.append(f"and {len(found) - MOST_FINDINGS} more")
    return lines


def _report_address(run: RunDirectory) -> str:
    path = run.derived / "report.html"
    base = os.environ.get("PLUMBLINE_REPORTS_URL", "").rstrip("/")
    return f"{base}/{quote(path.relative_to(run.path.parents[2]).as_posix())}" if base else str(path)


def _text(run: JudgedRun, parts: Sequence[Part], links: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"{run.verdict.value}, gate {run.summary['gate']}"
    yield f"Cluster {run.cluster}, suite {run.suite_name}, run {run.run_id}"
    if run.stamps:
        yield from (f"{stamp}: {STAMPS[stamp]}" for stamp in run.stamps)
    for title, lines in parts:
        yield ""
        yield f"{title}:"
        yield from (f"  - {clean(line)}" for line in lines)
    yield ""
    yield from (f"{name}: {address}" for name, address in links)


def _html(run: JudgedRun, parts: Sequence[Part], links: Sequence[tuple[str, str]]) -> str:
    tone, gate = _TONES.get(run.verdict.value, "#5b3a9b"), str(run.summary["gate"])
    body = [
        '<div style="font:15px/1.45 Helvetica,Arial,sans-serif;color:#1a1f2b;max-width:720px">',
        f'<p style="margin:0 0 8px"><span style="background:{tone};color:#fff;font-weight:bold;font-size:20px;'
        f'padding:6px 14px;border-radius:5px">{run.verdict.value}, gate {html.escape(gate)}</span></p>',
        f"<p>Cluster <b>{html.escape(run.cluster)}</b>, suite <b>{html.escape(run.suite_name)}</b>, "
        f"run {run.run_id}</p>",
    ]
    body += [
        f'<p style="background:#fff3c4;border:1px solid #8a5a00;padding:5px 10px"><b>{stamp}</b>: {STAMPS[stamp]}</p>'
        for stamp in run.stamps
    ]
    for title, lines in parts:
        items = "".join(f"<li>{html.escape(clean(line))}</li>" for line in lines)
        body.append(f'<h3 style="font-size:15px;margin:14px 0 4px">{title}</h3><ul style="margin:0">{items}</ul>')
    body.append(f"<p>{' · '.join(_link(name, address) for name, address in links)}</p></div>")
    return "\n".join(body)


def _link(name: str, address: str) -> str:
    if address.startswith(("http://", "https://")):
        return f'<a href="{html.escape(address)}">{name}</a>'
    return f"{name}: <code>{html.escape(address)}</code>"


# -- sending ---------------------------------------------------------------------------------------------------------


def smtp_settings(
    *,
    host: str | None = None,
    port: int | None = None,
    sender: str | None = None,
    recipients: Sequence[str] | None = None,
) -> SmtpSettings:
    """Read the settings: arguments first, then the environment. Raises ConfigError naming what is missing or wrong.

    PLUMBLINE_SMTP_HOST, _PORT (25, or 587 and 465 with security), _USER, _PASSWORD, _SECURITY (none, starttls, tls),
    _TIMEOUT_S; PLUMBLINE_MAIL_FROM; PLUMBLINE_MAIL_TO (addresses with commas between them).
    """
    host = host or os.environ.get("PLUMBLINE_SMTP_HOST")
    sender = sender or os.environ.get("PLUMBLINE_MAIL_FROM")
    named = recipients or os.environ.get("PLUMBLINE_MAIL_TO", "").split(",")
    addresses = tuple(address.strip() for address in named if address.strip())
    needed = {"PLUMBLINE_SMTP_HOST": host, "PLUMBLINE_MAIL_FROM": sender, "PLUMBLINE_MAIL_TO": addresses}
    missing = [name for name, value in needed.items() if not value]
    if missing or host is None or sender is None:
        raise ConfigError(f"cannot send mail without {', '.join(missing)}")
    strange = [address for address in (sender, *addresses) if "@" not in address or not address.isprintable()]
    if strange:
        raise ConfigError(f"not a mail address: {', '.join(map(repr, strange))}")
    security = _security(os.environ.get("PLUMBLINE_SMTP_SECURITY", "none"))
    return SmtpSettings(
        host=host,
        port=port or _number("PLUMBLINE_SMTP_PORT", _PORTS[security]),
        sender=sender,
        recipients=addresses,
        user=os.environ.get("PLUMBLINE_SMTP_USER") or None,
        password=os.environ.get("PLUMBLINE_SMTP_PASSWORD") or None,
        security=security,
        timeout_s=float(_number("PLUMBLINE_SMTP_TIMEOUT_S", 15)),
    )


def _security(text: str) -> Security:
    for known in _PORTS:
        if text == known:
            return known
    raise ConfigError(f"PLUMBLINE_SMTP_SECURITY: no such kind {text!r}{near_match(text, _PORTS)}")


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdigit() or int(text) == 0:
        raise ConfigError(f"{name} must be a positive whole number, not {text!r}")
    return int(text)


def send(message: Message, settings: SmtpSettings) -> None:
    """Send one message to all recipients. Raises NotificationError naming the server, or who was refused."""
    mail = EmailMessage(policy=SMTP.clone(max_line_length=LONGEST_LINE))
    mail["Subject"] = clean(message.subject)
    mail["From"], mail["To"] = settings.sender, ", ".join(settings.recipients)
    mail["Date"], mail["Message-ID"] = formatdate(), make_msgid(domain="plumbline")
    mail["Auto-Submitted"] = "auto-generated"
    mail.set_content(message.text)
    mail.add_alternative(message.html, subtype="html")
    where = f"mail server {settings.host}:{settings.port}"
    try:
        with _connected(settings) as server:
            if settings.user and settings.password:
                server.login(settings.user, settings.password)
            refused = server.send_message(mail)
    except (OSError, smtplib.SMTPException) as error:
        raise NotificationError(f"{where}: {type(error).__name__}: {error}") from None
    if refused:
        raise NotificationError(f"{where} refused {', '.join(sorted(refused))}")


def _connected(settings: SmtpSettings) -> smtplib.SMTP:
    if settings.security == "tls":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(settings.host, settings.port, timeout=settings.timeout_s, context=context)
    server = smtplib.SMTP(settings.host, settings.port, timeout=settings.timeout_s)
    if settings.security == "starttls":
        try:
            server.starttls(context=ssl.create_default_context())
        except BaseException:
            server.close()
            raise
    return server
