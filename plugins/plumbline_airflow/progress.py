"""Progress for people: one line a step, in the task's log, and wherever the program that runs the DAG asks for it."""

from __future__ import annotations

import logging
import os

from airflow.sdk.exceptions import AirflowException

PROGRESS_FD = "PLUMBLINE_PROGRESS_FD"
"""An open file descriptor that takes progress lines too; set where one process runs the whole DAG."""
STOP = "PLUMBLINE_STOP"
"""Set when the whole run, not only one task, shall end: no further stage starts."""

log = logging.getLogger(__name__)


class LaunchStopped(AirflowException):
    """The task was asked to stop: raised into the running launcher, which ends its benchmark and leaves a record."""


def say(text: str) -> None:
    """Report one step. Raises LaunchStopped when the run has been asked to stop."""
    if os.environ.get(STOP):
        raise LaunchStopped("the run was stopped")
    log.info("%s", text)
    tell(text)


def tell(text: str) -> None:
    """Report to the person who waits, if there is one; the log has it from elsewhere."""
    if descriptor := os.environ.get(PROGRESS_FD):
        os.write(int(descriptor), (text.replace("\n", " ") + "\n").encode())
