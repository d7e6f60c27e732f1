"""What a run was asked for otherwise than its suite says."""

from __future__ import annotations

from typing import Any

import pytest

from plumbline.clusters.profile import load_profile
from plumbline.execution.asked import asked_in_words, asked_otherwise, narrowed
from plumbline.suites.suite import load_suite


def asked(**settings: Any) -> dict[str, tuple[Any, Any]]:
    given = {key.replace("__", "."): value for key, value in settings.items()}
    found = asked_otherwise(load_profile("local"), load_suite("nightly"), load_suite("nightly", given))
    return {one["setting"]: (one["run"], one["suite"]) for one in found}


@pytest.mark.parametrize(
    ("settings", "found"),
    [
        ({}, {}),
        ({"note": "rack 7"}, {}),
        ({"benchmarks": "hpl_mxp"}, {}),
        ({"node_counts": "1,2"}, {"node_counts": ([1, 2], "ladder")}),
        ({"repeats": 2}, {"repeats": (2, 1)}),
        ({"fio__jobs": "seq_read"}, {"fio.jobs": ("seq_read", "seq_write,seq_read,rand_read,rand_write")}),
        ({"nccl_tests__operations": "all_reduce,all_gather"}, {}),
        ({"nccl_tests__operations": "all_gather"}, {"nccl_tests.operations": ("all_gather", "all_reduce,all_gather")}),
    ],
)
def test_what_a_setting_changes_is_told_beside_what_the_suite_says(settings: Any, found: Any) -> None:
    assert asked(**settings) == found


def test_a_profiles_own_parameters_are_no_change() -> None:
    profile = load_profile("local").model_copy(update={"benchmarks": {"fio": {"jobs": "seq_read"}}})
    plain, chosen = load_suite("nightly"), load_suite("nightly", {"fio.jobs": "seq_read"})
    assert asked_otherwise(profile, plain, chosen) == []


def test_only_asking_for_more_repeats_narrows_nothing() -> None:
    more, fewer = ({"setting": "repeats", "run": run, "suite": 3} for run in (5, 1))
    assert (narrowed([more]), narrowed([fewer])) == ([], [fewer])
    assert asked_in_words([fewer]) == "repeats 1 (the suite: 3)" and asked_in_words([]) == ""
