"""What was asked of a DAG run: read from its params, refused before anything runs when it isn't understood."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.sdk import Variable
from airflow.sdk.exceptions import AirflowFailException

from plumbline.errors import near_match

SETTINGS = ("node_counts", "repeats", "note", "benchmarks", "faults")
"""Params that are handed on as settings of the suite; a param that is None leaves the suite's own value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Which suite on which cluster, and what differs from the suite's file."""

    cluster: str
    suite: str
    settings: Mapping[str, Any]


def read_request(params: Mapping[str, Any], conf: Mapping[str, Any] | None, known: Iterable[str]) -> Request:
    """Read a request from the merged params. `conf` is what the caller sent, `known` the DAG's own params.

    Airflow takes unknown keys of `conf` without a word: here they fail the run, with the nearest known key.
    """
    known = list(known)
    for key in conf or {}:
        if key not in known:
            raise AirflowFailException(f"no parameter {key!r}{near_match(key, known)}")
    return Request(
        cluster=params.get("cluster") or _variable("plumbline_cluster"),
        suite=params.get("suite") or _variable("plumbline_suite"),
        settings={key: params[key] for key in SETTINGS if params.get(key) is not None},
    )


def _variable(name: str) -> str:
    value = Variable.get(name, default=None)
    if not value:
        raise AirflowFailException(
            f"nothing says which {name.removeprefix('plumbline_')} to use: give it as a parameter, or set the Airflow "
            f"variable {name} (airflow_settings.yaml does)"
        )
    return str(value)
