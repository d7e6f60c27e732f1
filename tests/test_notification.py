import email
import json
import re
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from email.policy import default
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller

from plumbline.errors import ConfigError, NotificationError, OutputError
from plumbline.model import Code, Device, Origin, verdict
from plumbline.notification import MOST_CHANGES, MOST_FINDINGS, Message, SmtpSettings, compose, send, smtp_settings
from plumbline.tracking.run_directory import RunDirectory
from tests.run_builder import Scenario, build_run, rewrite_json

LOCAL = Scenario(nodes=1)
MESSAGE = Message(
    subject="FAIL, gate closed: ü", text="text ü", html="<p>html ü</p>", verdict="FAIL", gate="closed", news=True
)


class Mailbox:
    """Takes mail as a server would; refuses whom it is told to."""

    def __init__(self) -> None:
        self.mails: list[email.message.EmailMessage] = []
        self.recipients: list[list[str]] = []

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server, session, envelope):
        self.mails.append(email.message_from_bytes(envelope.content, policy=default))
        self.recipients.append(list(envelope.rcpt_tos))
        return "250 OK"


@pytest.fixture
def mail() -> Iterator[tuple[Mailbox, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    box = Mailbox()
    controller = Controller(box, hostname="127.0.0.1", port=port, ready_timeout=60)
    controller.start()
    try:
        yield box, port
    finally:
        controller.stop()


def settings(port: int, *recipients: str) -> SmtpSettings:
    return SmtpSettings(host="127.0.0.1", port=port, sender="plumbline@test", recipients=recipients, timeout_s=60)


# -- what is said ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ("PASS", "open")),
        ({"speed": {"fio": 0.4}}, ("FAIL", "closed")),
        ({"invalid": ["fio-n1-g0-r1"]}, ("INVALID", "closed")),
        ({"missing_launches": ["fio-n1-g0-r1"]}, ("NOT_RUN", "closed")),
        ({"extra": [verdict(Code.NO_BASELINE, "run", "none yet")]}, ("WARN", "open")),
        ({"extra": [verdict(Code.NO_BASELINE, "run", "none yet")], "suite": "acceptance"}, ("WARN", "closed")),
    ],
)
def test_the_message_tells_the_verdict_of_verdict_json(tmp_path: Path, changes: dict, words: tuple[str, str]):
    run = build_run(tmp_path, replace(LOCAL, **changes))
    data, message = run.read_derived("verdict.json"), compose(run)
    assert (message.verdict, message.gate) == (data["verdict"], data["gate"]) == words
    said = f"{words[0]}, gate {words[1]}"
    assert message.subject.startswith(said) and message.text.startswith(said) and said in message.html


def test_the_node_that_all_bad_groups_share_is_told(tmp_path: Path):
    cluster = Scenario(cluster="h100", nodes=8, device=Device.GPU)
    message = compose(build_run(tmp_path / "bad", replace(cluster, slow_nodes={"n0002": 0.5})))
    assert "What the bad groups have in common:\n  - Suspect: n0002 (leaf01): in all " in message.text
    assert "Suspect: n0002" in message.html
    assert "in common" not in compose(build_run(tmp_path / "good", cluster)).text


def test_it_is_verdict_jsons_word_that_is_told_not_a_new_judgement(tmp_path: Path):
    run = build_run(tmp_path, LOCAL)
    rewrite_json(run, "verdict.json", verdict="FAIL", gate="closed")
    assert compose(run).subject.startswith("FAIL, gate closed")


def edited(run: RunDirectory, name: str, **changes: object) -> None:
    path = run.derived / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def opened(run: RunDirectory) -> None:
    edited(run, "verdict.json", gate="open", verdict="PASS", reasons=[])


def another_nights(run: RunDirectory) -> None:
    other = build_run(run.path.parents[2], LOCAL, when=LOCAL.when - timedelta(days=1))
    shutil.rmtree(run.derived)
    shutil.copytree(other.derived, run.derived)


def contradicting(run: RunDirectory) -> None:
    """Even under a seal that fits: open, and something that closes."""
    rewrite_json(run, "verdict.json", gate="open", verdict="PASS")


def resealed(run: RunDirectory) -> None:
    (run.evidence / "manifest.json").unlink()
    run.seal(LOCAL.when + timedelta(days=9))


@pytest.mark.parametrize(
    ("forge", "words"),
    [
        (opened, "derived/ doesn't belong to this evidence: changed"),
        (another_nights, "derived/ doesn't belong to this evidence"),
        (contradicting, "verdict.json says open, PASS, with 1 reasons that close it"),
        (resealed, "derived/ doesn't belong to this evidence: stale_derived"),
        (lambda run: (run.derived / "launches.json").write_text("[]"), "launches.json was changed"),
        (lambda run: (run.derived / "verdicts.parquet").write_bytes(b""), "verdicts.parquet was changed"),
        (lambda run: (run.derived / "provenance.json").unlink(), "derived/ doesn't belong"),
        (lambda run: (run.derived / "verdict.json").write_text("{"), "verdict.json"),
    ],
)
def test_a_verdict_that_is_not_its_judges_is_told_as_a_closed_gate(tmp_path: Path, forge, words: str):
    run = build_run(tmp_path, LOCAL, extra=[verdict(Code.TIMEOUT, "run", "hung")])
    forge(run)
    message = compose(run)
    assert (message.verdict, message.gate, message.news) == ("INVALID", "closed", True)
    assert message.subject.startswith("INVALID, gate closed: local nightly 2026-03-0")
    assert "can't be trusted" in message.subject and "PASS" not in message.subject + message.text.replace(words, "")
    assert words in message.text and run.run_id in message.text
    assert "INVALID, gate closed" in message.html


def test_a_run_that_is_not_judged_has_no_message(tmp_path: Path):
    run = build_run(tmp_path, LOCAL)
    shutil.rmtree(run.derived)
    with pytest.raises(OutputError, match="not judged"):
        compose(run)


def test_the_subject_says_what_where_and_of_what_kind(tmp_path: Path):
    assert compose(build_run(tmp_path, LOCAL)).subject == ("PASS, gate open: local nightly 2026-03-01 [CPU ONLY]")
    gpu = build_run(tmp_path, LOCAL, cluster="h100", device=Device.GPU)
    assert compose(gpu).subject == "PASS, gate open: h100 nightly 2026-03-01"
    simulated = build_run(tmp_path, LOCAL, cluster="sim", device=Device.GPU, origin=Origin.SIMULATED)
    message = compose(simulated)
    assert message.subject.endswith("[SIMULATED]")
    assert "Nothing here was measured on hardware" in message.text and "SIMULATED" in message.html


def test_causes_gaps_coverage_and_cost_are_in_the_text(tmp_path: Path):
    scenario = Scenario(cluster="h100", nodes=4, device=Device.GPU)
    run = build_run(tmp_path, scenario, slow_nodes={"n0002": 0.5}, excluded={"n0003": "in repair"})
    text = compose(run).text
    for words in ("What closes the gate:", "n0002: outside the reference", "n0003: left out on purpose", "GPU-hours",
                  "expected values measured", run.run_id):  # fmt: skip
        assert words in text, words


def test_notes_that_find_no_room_are_counted(tmp_path: Path):
    notes = [
        verdict(code, f"{benchmark} {code}", "a note", benchmark=benchmark)
        for code in (Code.PAGE_CACHE, Code.WAIVER_UNUSED, Code.WAIVER_EXPIRED)
        for benchmark in ("fio", "nccl_tests", "hpl_mxp")
    ]
    text = compose(build_run(tmp_path, LOCAL, extra=notes)).text
    told = text.partition("Notes:")[2].partition("Coverage")[0].strip().splitlines()
    assert (len(told), told[-1].strip()) == (MOST_FINDINGS + 1, f"- and {len(notes) - MOST_FINDINGS} more")


def test_changes_that_find_no_room_are_counted(tmp_path: Path):
    build_run(tmp_path, LOCAL)
    slow = {"fio": 0.4, "nccl_tests": 0.4, "hpl_mxp": 0.4, "mlperf_gpt3": 0.4}
    text = compose(build_run(tmp_path, LOCAL, speed=slow, when=LOCAL.when + timedelta(days=1))).text
    told = text.partition("Since ")[2].partition("Coverage")[0].strip().splitlines()[1:]
    assert len(told) == MOST_CHANGES + 1 and re.fullmatch(r"\s+- and \d+ more", told[-1])


def test_only_what_changed_is_news(tmp_path: Path):
    good = build_run(tmp_path, LOCAL)
    bad = build_run(tmp_path, LOCAL, speed={"fio": 0.4}, when=LOCAL.when + timedelta(days=1))
    still_bad = build_run(tmp_path, LOCAL, speed={"fio": 0.4}, when=LOCAL.when + timedelta(days=2))
    well = build_run(tmp_path, LOCAL, when=LOCAL.when + timedelta(days=3))
    still_well = build_run(tmp_path, LOCAL, when=LOCAL.when + timedelta(days=4))
    assert [compose(run).news for run in (good, bad, still_bad, well, still_well)] == [True, True, False, True, False]


def test_links_lead_to_report_and_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = build_run(tmp_path, LOCAL)
    assert f"Report: {run.derived / 'report.html'}" in compose(run).text and "MLflow:" not in compose(run).text
    run.write_derived_json("mlflow.json", {"run_id": "abc", "experiment_id": "7", "tracking_uri": "http://mlflow:5000"})
    monkeypatch.setenv("PLUMBLINE_REPORTS_URL", "https://reports/x/")
    message = compose(run)
    report = f"https://reports/x/local/nightly/{run.run_id}/derived/report.html"
    assert f"Report: {report}" in message.text and f'<a href="{report}">Report</a>' in message.html
    assert "MLflow: http://mlflow:5000/#/experiments/7/runs/abc" in message.text
    assert "Report: https://elsewhere" in compose(run, report_url="https://elsewhere").text


def test_hostile_text_stays_text(tmp_path: Path):
    words = "<script>alert(1)</script>\x1b[31m\u202e<img src=x>"
    run = build_run(tmp_path, LOCAL, extra=[verdict(Code.UNREADABLE, words, words)])
    message = compose(run)
    assert "<script" not in message.html and "<img" not in message.html and "&lt;script&gt;" in message.html
    assert not re.search("[\x1b\u202e]", message.html + message.text)


# -- sending ---------------------------------------------------------------------------------------------------------


def test_a_message_arrives_whole(tmp_path: Path, mail):
    box, port = mail
    run = build_run(tmp_path, LOCAL, speed={"fio": 0.4})
    message = compose(run)
    send(message, settings(port, "ann@test", "bob@test"))
    got = box.mails[0]
    assert got["Subject"] == message.subject and got["From"] == "plumbline@test"
    assert got["To"] == "ann@test, bob@test" and box.recipients == [["ann@test", "bob@test"]]
    assert got.get_body(("plain",)).get_content().replace("\r\n", "\n").rstrip() == message.text.rstrip()
    assert "FAIL, gate closed" in got.get_body(("html",)).get_content()
    assert got["Auto-Submitted"] == "auto-generated" and got["Message-ID"]


def test_a_long_subject_is_not_folded(mail):
    box, port = mail
    send(replace(MESSAGE, subject="FAIL, gate closed: " + "long-name " * 12 + "end"), settings(port, "ann@test"))
    assert box.mails[0]["Subject"].startswith("FAIL, gate closed: long-name") and box.mails[0]["Subject"].endswith(
        "end"
    )


def test_whoever_is_refused_is_named_and_the_others_are_served(mail):
    box, port = mail
    with pytest.raises(NotificationError, match=r"127\.0\.0\.1:\d+ refused nobody@test"):
        send(MESSAGE, settings(port, "ann@test", "nobody@test"))
    assert box.recipients == [["ann@test"]]
    with pytest.raises(NotificationError, match="SMTPRecipientsRefused"):
        send(MESSAGE, settings(port, "nobody@test"))


def test_a_server_that_is_down_is_named():
    with pytest.raises(NotificationError, match=r"^mail server 127\.0\.0\.1:9: ConnectionRefusedError"):
        send(MESSAGE, settings(9, "ann@test"))


def test_a_server_without_tls_is_not_talked_to_in_the_clear(mail):
    box, port = mail
    with pytest.raises(NotificationError, match="STARTTLS"):
        send(MESSAGE, replace(settings(port, "ann@test"), security="starttls"))
    assert box.mails == []


# -- settings --------------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("PLUMBLINE_SMTP_HOST", "mail")
    monkeypatch.setenv("PLUMBLINE_MAIL_FROM", "plumbline@test")
    monkeypatch.setenv("PLUMBLINE_MAIL_TO", "ann@test, bob@test ,")
    return monkeypatch


def test_settings_come_from_arguments_and_environment(environment: pytest.MonkeyPatch):
    found = smtp_settings()
    assert (found.host, found.port, found.sender) == ("mail", 25, "plumbline@test")
    assert found.recipients == ("ann@test", "bob@test") and found.security == "none"
    assert smtp_settings(host="other", port=26, recipients=["eve@test"]).recipients == ("eve@test",)
    environment.setenv("PLUMBLINE_SMTP_SECURITY", "starttls")
    assert smtp_settings().port == 587


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="PLUMBLINE_SMTP_HOST, PLUMBLINE_MAIL_FROM, PLUMBLINE_MAIL_TO"):
        smtp_settings()
    with pytest.raises(ConfigError, match=r"without PLUMBLINE_MAIL_TO$"):
        smtp_settings(host="mail", sender="a@test")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("PLUMBLINE_SMTP_SECURITY", "startls", "did you mean 'starttls'"),
        ("PLUMBLINE_SMTP_PORT", "0", "positive whole number"),
        ("PLUMBLINE_SMTP_PORT", "smtp", "positive whole number, not 'smtp'"),
        ("PLUMBLINE_MAIL_TO", "ann", "not a mail address: 'ann'"),
        ("PLUMBLINE_MAIL_FROM", "a@test\nBcc: eve@test", "not a mail address"),
    ],
)
def test_wrong_settings_are_refused(environment: pytest.MonkeyPatch, name: str, value: str, message: str):
    environment.setenv(name, value)
    with pytest.raises(ConfigError, match=message):
        smtp_settings()


def test_the_password_is_never_shown(environment: pytest.MonkeyPatch):
    environment.setenv("PLUMBLINE_SMTP_USER", "ann")
    environment.setenv("PLUMBLINE_SMTP_PASSWORD", "s3cr3t")
    found = smtp_settings()
    assert found.password == "s3cr3t" and "s3cr3t" not in repr(found) + str(found)
