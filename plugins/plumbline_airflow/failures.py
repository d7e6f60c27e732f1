"""What Plumbline's errors mean to Airflow: which are final, which may be tried again, and what a stop is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from plumbline.errors import ConfigError, LaunchError, OutputError, PlumblineError, TrackingError, ValidationError

FINAL = (ConfigError, OutputError, ValidationError)
"""Another try would meet the same file and the same bytes."""
RETRY = (LaunchError, TrackingError)


class LaunchStopped(AirflowException):
    """The task was asked to stop: raised into the running launcher, which ends its benchmark and leaves a record."""


@contextlib.contextmanager
def errors_explained() -> Iterator[None]:
    """Turn Plumbline's errors into Airflow's: final ones fail the task at once, the others follow its `retries`."""
    try:
        yield
    except FINAL as error:
        raise AirflowFailException(_named(error)) from error
    except PlumblineError as error:
        raise AirflowException(_named(error)) from error


def _named(error: PlumblineError) -> str:
    return f"{type(error).__name__}: {error}"
