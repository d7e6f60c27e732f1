"""Which errors are final, which are retried, and that each is said to the person who waits."""

from __future__ import annotations

import os

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from plumbline import errors
from plumbline_airflow.failures import errors_explained
from plumbline_airflow.progress import PROGRESS_FD, LaunchStopped

FINAL = [errors.ConfigError, errors.OutputError, errors.ValidationError, ZeroDivisionError, KeyError]
PASSING = [
    errors.LaunchError, errors.ClusterBusyError, errors.TrackingError, errors.StageLostError,
    errors.NotificationError, OSError,
]  # fmt: skip


@pytest.mark.parametrize("kind", FINAL)
def test_what_another_try_would_meet_again_is_final(kind: type[Exception]) -> None:
    with pytest.raises(AirflowFailException, match=f"{kind.__name__}: .*file and key"), errors_explained():
        raise kind("file and key")


@pytest.mark.parametrize("kind", PASSING)
def test_what_may_pass_is_left_to_retries(kind: type[Exception]) -> None:
    with pytest.raises(AirflowException, match=f"{kind.__name__}: busy") as caught, errors_explained():
        raise kind("busy")
    assert not isinstance(caught.value, AirflowFailException)


def test_a_stop_stays_a_stop() -> None:
    with pytest.raises(LaunchStopped), errors_explained():
        raise LaunchStopped("asked to")
    with pytest.raises(KeyboardInterrupt), errors_explained():
        raise KeyboardInterrupt


def test_the_cause_is_chained_for_the_log() -> None:
    with pytest.raises(AirflowFailException) as caught, errors_explained():
        raise ZeroDivisionError
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_the_person_who_waits_reads_why(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = os.pipe()
    monkeypatch.setenv(PROGRESS_FD, str(target))
    with pytest.raises(AirflowException), errors_explained():
        raise errors.ClusterBusyError("cluster local is busy")
    os.close(target)
    with os.fdopen(source) as lines:
        assert lines.read() == "ClusterBusyError: cluster local is busy\n"


def test_every_error_of_plumbline_is_in_one_list() -> None:
    kinds = {k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.PlumblineError)}
    assert kinds - {errors.PlumblineError} == {k for k in FINAL + PASSING if issubclass(k, errors.PlumblineError)}
