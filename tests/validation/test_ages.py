"""How long ago places were measured, told from runs on disk."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

from tests.run_builder import Scenario, build_run

from plumbline.model import Device, Origin
from plumbline.tracking.run_directory import RunDirectory
from plumbline.validation.ages import MOST_NIGHTS, nights_since

FOUR = Scenario(cluster="h100", nodes=4, device=Device.GPU)


def night(results: Path, ago: int, **changes: object) -> RunDirectory:
    return build_run(results, FOUR, when=FOUR.when - timedelta(days=ago), seed=ago, **changes)


def ages(results: Path) -> dict[str, int]:
    return nights_since(results, "h100", origin=Origin.MEASURED, run_id="20260301T235959Z-000000")


def test_without_history_nothing_has_an_age(tmp_path: Path):
    assert ages(tmp_path) == {}


def test_what_was_measured_last_night_is_one_night_old(tmp_path: Path):
    night(tmp_path, 1)
    found = ages(tmp_path)
    assert set(found.values()) == {2}  # the night before and tonight
    assert {"n0001", "n0004", "fio", "nccl_tests", "fio-n1", "nccl_tests-n4", "mlperf_gpt3-n2"} <= set(found)
    assert not [key for key in found if "/" in key]


def test_a_rung_that_is_lost_every_night_ages_and_its_nodes_do_not(tmp_path: Path):
    night(tmp_path, 9)
    for ago in range(1, 9):
        night(tmp_path, ago, missing_launches=["nccl_tests-n4-g0-r1"])
    found = ages(tmp_path)
    assert (found["nccl_tests-n4"], found["nccl_tests-n2"], found["n0001"], found["nccl_tests"]) == (10, 2, 2, 2)


def without_fio_on(node: str, results: Path, ago: int) -> RunDirectory:
    """Give a night on which fio didn't run on one node: its launch has another number every night."""
    plan = night(results.parent / f"{results.name}-probe", ago).plan()
    [own] = [spec.launch_id for spec in plan.launches if spec.benchmark == "fio" and spec.nodes == (node,)]
    return night(results, ago, missing_launches=[own])


def test_one_node_that_a_benchmark_never_meets_is_older_than_its_rung(tmp_path: Path):
    night(tmp_path, 5)
    for ago in (1, 2, 3):
        without_fio_on("n0002", tmp_path, ago)
    found = ages(tmp_path)
    assert (found["fio-n1"], found["fio-n1/n0002"], found["n0002"]) == (2, 6, 2)
    assert [key for key in found if "/" in key] == ["fio-n1/n0002"]


def test_a_node_never_met_is_as_old_as_the_rung_is_known(tmp_path: Path):
    for ago in (4, 1):
        without_fio_on("n0003", tmp_path, ago)
    found = ages(tmp_path)
    assert (found["fio-n1"], found["fio-n1/n0003"]) == (2, 5)


def test_only_trusted_runs_in_sight_count(tmp_path: Path):
    night(tmp_path, MOST_NIGHTS + 1)
    assert ages(tmp_path) == {}
    edited = night(tmp_path, 2)
    path = edited.derived / "launches.json"
    path.write_text(json.dumps(json.loads(path.read_text())[:1]))
    assert ages(tmp_path) == {}
    night(tmp_path, 3)
    assert ages(tmp_path)["n0001"] == 4
    assert nights_since(tmp_path, "h100", origin=Origin.SIMULATED, run_id="20260301T235959Z-000000") == {}
