"""What kubectl printed, as recorded, and the same in other clothes."""

from __future__ import annotations

import json

import pytest
from tests.readers.infra_outputs import DATA

FOLDER = DATA / "kubernetes"
EVICTED, JOB, EVENTS, WIDE, PODS = (
    (FOLDER / f"{name}.txt").read_text()
    for name in ("describe_evicted", "describe_job_quota", "events", "get_events_wide", "get_pods")
)
SUCCEEDED, LIST = ((FOLDER / f"{name}.json").read_text() for name in ("pod_succeeded", "list_with_events"))


def as_yaml(text):
    """Give a JSON document as YAML."""
    return pytest.importorskip("yaml").safe_dump(json.loads(text), sort_keys=True)


def behind(prefix, text):
    """Put a prefix before every line."""
    return "".join(prefix + line for line in text.splitlines(keepends=True))
