"""What an error in a stage means to Airflow: final, or worth the task's retries."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from plumbline.errors import LaunchError, NotificationError, PlumblineError, StageLostError, TrackingError
from plumbline_airflow.progress import LaunchStopped, tell

RETRY = (LaunchError, TrackingError, StageLostError, NotificationError, OSError)
"""What may pass by itself: infrastructure. Anything else would meet the same file, or the same defect, again."""


@contextlib.contextmanager
def errors_explained() -> Iterator[None]:
    """Turn what a stage raises into Airflow's errors: final ones fail the task at once, RETRY follows its `retries`."""
    try:
        yield
    except (LaunchStopped, AirflowException):
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        tell(text if isinstance(error, PlumblineError) else f"{text} (see the log)")
        if isinstance(error, RETRY):
            raise AirflowException(text) from error
        raise AirflowFailException(text) from error
