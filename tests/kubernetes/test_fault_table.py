"""docs/kubernetes_faults.md: what each fault leads to, written from the data that the tests of the faults run on."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plumbline.kubernetes.diagnosis import TRANSIENT
from plumbline.model import KIND_OF_CODE, Code
from tests.kubernetes import test_gang as gang
from tests.kubernetes import test_gang_launcher as launcher
from tests.plugins import test_launch_kubernetes as operator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kubernetes_faults.md"
HEAD = """\
# Faults on Kubernetes, and how each ends

Written by tests/kubernetes/test_fault_table.py (`UPDATE_GOLDEN=1`) from what the tests run on. The last columns say
how a fault was tried: on the launcher and its workers, and through LaunchOperator; on launches of one node, on gangs.
Nothing stays of pods, Jobs and Leases in any row, but for pods on a node that doesn't answer: Kubernetes keeps those
until the node is back or somebody forces them. Nothing runs twice at once, and what had been measured is kept.

| fault | the record says | verdict | tried again | launcher | LaunchOperator |
|---|---|---|---|---|---|
"""
Test = Callable[..., Any] | None
NUMBERS = "by its numbers"
OTHERS: tuple[tuple[str, str, str, Test, Test], ...] = (
    ("API down while it runs", "exited", NUMBERS,
     gang.test_an_api_that_is_down_while_the_benchmark_runs_changes_nothing,
     operator.test_an_api_that_is_down_while_the_pod_runs),
    ("watch closed, then too old (410)", "exited", NUMBERS,
     gang.test_a_watch_that_is_closed_or_forgotten_goes_on, None),
    ("kubelet silent, node alive", "exited", NUMBERS, gang.test_a_node_whose_kubelet_is_silent_still_measures, None),
    ("log endpoint missing", "exited", NUMBERS, None, operator.test_a_log_that_is_missing_loses_nothing),
    ("launcher killed", "exited, by its successor", NUMBERS,
     launcher.test_a_launcher_that_was_killed_is_followed_by_another, None),
    ("launcher's node lost", "infrastructure, `node_lost`; exited, by its successor", NUMBERS,
     None, operator.test_a_launcher_whose_node_is_lost_is_followed_by_another),
    ("two launchers at once", "exited; the second leaves", NUMBERS,
     launcher.test_two_launchers_never_run_the_same_batch_at_once, None),
    ("Airflow's worker killed", "exited, the same pod", NUMBERS,
     None, operator.test_a_second_try_goes_on_with_the_pod_of_the_first),
    ("pod ended while Airflow was down", "exited, the same pod", NUMBERS,
     None, operator.test_a_pod_that_ended_meanwhile_is_accounted_for_and_not_run_again),
    ("node lost, another one free", "infrastructure; exited, on the free node", "NOT_RUN of the lost node",
     launcher.test_a_lost_node_is_replaced_by_a_free_one_where_there_is_one, None),
    ("launcher silent", "workers end by themselves", "NOT_RUN",
     launcher.test_workers_end_by_themselves_when_their_launcher_is_silent, None),
    ("task killed, or marked as failed", "stopped", "NOT_RUN",
     None, operator.test_a_task_that_is_killed_takes_its_pods_along),
    ("launcher asked to stop", "stopped", "NOT_RUN",
     launcher.test_a_launcher_that_is_asked_to_stop_leaves_records_and_nothing_else, None),
)  # fmt: skip


def rows() -> list[str]:
    passing = _tried(gang.test_what_passes_by_itself_changes_nothing)
    found = [_row(fault, "exited", NUMBERS, "no", passing, "") for fault in gang.PASSING]
    found += [
        _row(fault, said, verdict, "no", _tried(inner), _tried(outer)) for fault, said, verdict, inner, outer in OTHERS
    ]
    for inside, inner, outside, outer in (
        (gang.ENDING, gang.test_what_ends_a_worker_is_named_and_ends_only_its_group,
         operator.FAULTS, operator.test_what_ends_the_pod_is_recorded_and_tried_again_only_where_that_may_help),
        (gang.STARTING, gang.test_what_can_not_start_is_given_up_soon_and_explained,
         operator.STARTS, operator.test_a_pod_that_can_not_start_is_given_up_with_the_reason),
    ):  # fmt: skip
        for fault, (_, code, *_more) in inside.items():
            again = "once (`retries`)" if Code(code) in TRANSIENT else "no"
            through = _tried(outer) if fault in outside else ""
            found.append(
                _row(fault, f"infrastructure, `{code}`", str(KIND_OF_CODE[Code(code)]), again, _tried(inner), through)
            )
    return found


def _tried(test: Test) -> str:
    """Say on what a test tries its fault, by what it takes or names."""
    if test is None:
        return ""
    if "groups" in inspect.signature(test).parameters:
        return "one node, gang"
    return "gang" if "GANG" in inspect.getsource(test) else "one node"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def test_the_page_is_what_the_tests_hold() -> None:
    text = HEAD + "\n".join(rows()) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text


def test_the_operator_says_the_same_as_the_launcher() -> None:
    for outside, inside in ((operator.FAULTS, gang.ENDING), (operator.STARTS, gang.STARTING)):
        assert {fault: row[1] for fault, row in outside.items()}.items() <= {f: r[1] for f, r in inside.items()}.items()
