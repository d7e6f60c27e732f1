"""What a DAG run was asked for: unknown keys are refused, what is not given is the suite's own."""

from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowFailException

from plumbline_airflow import request
from plumbline_airflow.request import read_request

KNOWN = ("cluster", "suite", "node_counts", "repeats", "note")


def test_settings_are_handed_on_and_empty_ones_left_to_the_suite() -> None:
    params = {"cluster": "local", "suite": "acceptance", "node_counts": [1, 2], "repeats": None, "note": "rack 7"}
    found = read_request(params, params, KNOWN)
    assert (found.cluster, found.suite) == ("local", "acceptance")
    assert found.settings == {"node_counts": [1, 2], "note": "rack 7"}


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(AirflowFailException, match="no parameter 'node_count'; did you mean 'node_counts'"):
        read_request({"cluster": "local", "suite": "nightly"}, {"node_count": [1]}, KNOWN)


def test_without_a_cluster_the_variable_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"plumbline_cluster": "hgx-7", "plumbline_suite": "nightly"}
    monkeypatch.setattr(request.Variable, "get", lambda name, default=None: values.get(name, default))
    found = read_request({"cluster": None, "suite": None}, None, KNOWN)
    assert (found.cluster, found.suite, found.settings) == ("hgx-7", "nightly", {})


def test_without_either_the_message_says_where_to_set_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request.Variable, "get", lambda name, default=None: default)
    with pytest.raises(AirflowFailException, match=r"variable plumbline_cluster \(airflow_settings.yaml does\)"):
        read_request({}, {}, KNOWN)


def test_every_setting_that_is_handed_on_is_one_that_suites_take() -> None:
    from plumbline.suites.suite import SETTINGS

    assert set(request.SETTINGS) <= set(SETTINGS)
