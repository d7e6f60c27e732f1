"""Progress lines reach the log and whoever runs the DAG; a stopped run gets no further."""

from __future__ import annotations

import logging
import os

import pytest

from plumbline_airflow.progress import PROGRESS_FD, STOP, LaunchStopped, say


def test_a_line_reaches_log_and_descriptor(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    source, target = os.pipe()
    monkeypatch.setenv(PROGRESS_FD, str(target))
    with caplog.at_level(logging.INFO, logger="plumbline_airflow.progress"):
        say("judge\nand more")
    os.close(target)
    with os.fdopen(source) as lines:
        assert lines.read() == "judge and more\n"
    assert "judge" in caplog.text


def test_a_stopped_run_gets_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STOP, "1")
    with pytest.raises(LaunchStopped):
        say("launch")
