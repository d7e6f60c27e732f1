"""Real outputs of kubectl, with what a person read from them."""

from __future__ import annotations

import pytest
from tests.readers.infra_outputs import CASES, cases, check_cuts, outcome

from plumbline.model import Code
from plumbline.readers import kubernetes
from plumbline.readers.reading import Status

FOUND = cases("kubectl")
pytestmark = pytest.mark.skipif(not FOUND, reason="no folder with recorded third-party outputs")
EXPLAINED = {
    "k8s/pending_insufficient_nvidia_gpu_describe.txt": (Code.MISSING_GPU, Status.NOT_STARTED),
    "k8s/image_pull_backoff_describe.txt": (Code.IMAGE_PULL, Status.NOT_STARTED),
    "k8s/node_not_ready_midrun_describe.txt": (Code.NODE_NOT_READY, Status.INCOMPLETE),
    "k8s/backoff_events_list.txt": (Code.BENCHMARK_FAILED, Status.UNKNOWN),
    "k8s/no_events_found.txt": (None, Status.UNKNOWN),
    "k8s/job_failed_but_events_all_normal.txt": (None, Status.UNKNOWN),
}


@pytest.mark.parametrize(("file", "oracle"), FOUND)
def test_every_value_is_the_one_that_a_person_reads(file, oracle):
    read = outcome(kubernetes, CASES / file)
    for name, value in oracle.items():
        if name == "message_has":
            assert value in read.facts["message"]
        else:
            assert read.facts[name] == value, name
    category, status = EXPLAINED[file]
    assert read.facts.get("category") == category
    assert read.status is status


@pytest.mark.parametrize(("file", "oracle"), FOUND)
def test_a_cut_case_is_never_called_complete(file, oracle):
    check_cuts(kubernetes, (CASES / file).read_bytes())
