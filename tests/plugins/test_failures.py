"""Which errors are final, which are retried, and that no error of Plumbline's is in neither list."""

from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from plumbline import errors
from plumbline_airflow.failures import FINAL, RETRY, errors_explained


@pytest.mark.parametrize("kind", [errors.ConfigError, errors.OutputError, errors.ValidationError])
def test_what_another_try_would_meet_again_is_final(kind: type[Exception]) -> None:
    with pytest.raises(AirflowFailException, match=f"{kind.__name__}: file and key"), errors_explained():
        raise kind("file and key")


@pytest.mark.parametrize("kind", [errors.LaunchError, errors.ClusterBusyError, errors.TrackingError])
def test_what_may_pass_is_left_to_retries(kind: type[Exception]) -> None:
    with pytest.raises(AirflowException, match=f"{kind.__name__}: busy") as caught, errors_explained():
        raise kind("busy")
    assert not isinstance(caught.value, AirflowFailException)


def test_a_defect_keeps_its_own_traceback() -> None:
    with pytest.raises(ZeroDivisionError), errors_explained():
        raise ZeroDivisionError


def test_every_error_is_one_or_the_other() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, errors.PlumblineError)]
    for kind in kinds:
        if kind is not errors.PlumblineError:
            assert issubclass(kind, FINAL) != issubclass(kind, RETRY), kind
