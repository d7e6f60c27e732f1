"""What a simulated night leaves behind: the same seed the same bytes, a fault only where its component takes part."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.test_truth import a_fault
from tests.simulation.two_ways import MOMENT, print_night

from plumbline.clusters.profile import load_profile
from plumbline.simulation import launcher
from plumbline.simulation.faults import Scenario
from plumbline.suites.suite import Suite, load_suite
from plumbline.tracking.run_directory import RunDirectory

PROFILE = load_profile("simulated-8")
SUITE = load_suite("nightly")
RUN_ID = "20260301T020000Z-0000ab"
LOADED = {"fio", "nccl_tests", "hpl_mxp", "mlperf_gpt3", "mlperf_bert"}
OVER_FABRIC = {"nccl_tests", "mlperf_gpt3", "mlperf_bert"}


def printed(folder: Path, *faults: Any, seed: int = 1, days: int = 0, suite: Suite = SUITE) -> RunDirectory:
    folder.mkdir()
    return print_night(
        PROFILE, suite, Scenario(seed=seed, faults=faults), MOMENT + timedelta(days=days), RUN_ID, folder
    )  # fmt: skip


def files(run: RunDirectory, *names: str) -> dict[str, bytes]:
    """Give every file of the folders of evidence, by path."""
    return {
        path.relative_to(run.evidence).as_posix(): path.read_bytes()
        for name in names
        for path in sorted((run.evidence / name).rglob("*"))
        if path.is_file()
    }


def timeless(data: bytes | None) -> bytes | None:
    """Give a file without the moments that it tells: a launch that takes longer moves what comes after it."""
    return None if data is None else re.sub(rb"\b1[67]\d{8}(\d{3})?\b", b"moment", data)


def differing(one: Mapping[str, bytes], other: Mapping[str, bytes]) -> set[str]:
    """Give the launches whose files differ."""
    return {
        name.split("/")[1].partition(".a1")[0]
        for name in one.keys() | other.keys()
        if timeless(one.get(name)) != timeless(other.get(name))
    }


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return printed(tmp_path_factory.mktemp("healthy") / "night")


def launches_with(run: RunDirectory, *nodes: str, benchmarks: set[str] = LOADED, least: int = 1) -> set[str]:
    return {
        spec.launch_id
        for spec in run.plan().launches
        if set(nodes) & set(spec.nodes) and spec.benchmark in benchmarks and spec.node_count >= least
    }


def test_the_same_seed_prints_the_same_bytes(healthy: RunDirectory, tmp_path: Path) -> None:
    again = printed(tmp_path / "again")
    assert files(again, "raw", "records") == files(healthy, "raw", "records")


@pytest.mark.parametrize("change", [{"seed": 2}, {"days": 1}])
def test_another_seed_or_night_prints_other_numbers_everywhere(
    change: dict[str, int], healthy: RunDirectory, tmp_path: Path
) -> None:
    other = printed(tmp_path / "other", **change)
    every = {spec.launch_id for spec in healthy.plan().launches}
    assert differing(files(healthy, "raw"), files(other, "raw")) == every


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        ({"kind": "slow_nic", "severity": 0.6}, {"least": 2, "benchmarks": OVER_FABRIC}),
        ({"kind": "nvlink_lane_down", "severity": 0.6}, {"benchmarks": {"nccl_tests", "hpl_mxp"}}),
        ({"kind": "thermal_throttle", "severity": 0.6}, {"benchmarks": {"hpl_mxp", "mlperf_gpt3", "mlperf_bert"}}),
        ({"kind": "slow_client", "severity": 0.6}, {"benchmarks": {"fio"}}),
        ({"kind": "missing_gpu"}, {}),
        ({"kind": "node_lost"}, {}),
        ({"kind": "hang"}, {}),
        ({"kind": "truncated_output"}, {}),
        ({"kind": "truncated_output", "benchmark": "hpl_mxp"}, {"benchmarks": {"hpl_mxp"}}),
        ({"kind": "clock_drift", "severity": 1.0}, {"benchmarks": set()}),
        ({"kind": "retired_memory", "severity": 1.0}, {"benchmarks": {"hpl_mxp", "mlperf_gpt3", "mlperf_bert"}}),
        ({"kind": "silent_corruption", "severity": 1.0}, {"benchmarks": {"nccl_tests", "hpl_mxp"}}),
    ],
    ids=lambda value: value.get("kind", "") if isinstance(value, dict) else "",
)  # fmt: skip
def test_a_fault_of_a_node_changes_the_output_of_its_launches_only(
    fault: dict[str, Any], where: dict[str, Any], healthy: RunDirectory, tmp_path: Path
) -> None:
    """All of them, and no other: every benchmark that physics says, at every rung."""
    broken = printed(tmp_path / "broken", a_fault(**fault))
    assert differing(files(healthy, "raw"), files(broken, "raw")) == launches_with(healthy, "n0003", **where)


@pytest.mark.parametrize(
    ("fault", "benchmarks", "least"),
    [
        ({"kind": "noisy_neighbour", "resource": "storage", "severity": 0.9}, {"fio"}, 1),
        ({"kind": "slow_storage_server", "severity": 1.0}, {"fio"}, 1),
        ({"kind": "congested_spine", "severity": 0.9}, OVER_FABRIC, 8),
        ({"kind": "leaf_misconfigured", "severity": 0.9}, OVER_FABRIC, 8),
    ],
    ids=lambda value: value.get("kind", "") if isinstance(value, dict) else "",
)
def test_a_fault_of_what_is_shared_changes_what_shares_it(
    fault: dict[str, Any], benchmarks: set[str], least: int, healthy: RunDirectory, tmp_path: Path
) -> None:
    """Eight nodes lie on two leaves: only groups of all of them cross the spine."""
    broken = printed(tmp_path / "broken", a_fault(**fault))
    every = [node.name for node in healthy.plan().inventory]
    assert differing(files(healthy, "raw"), files(broken, "raw")) == launches_with(
        healthy, *every, benchmarks=benchmarks, least=least
    )


def test_a_launch_that_has_a_record_is_left_alone(healthy: RunDirectory, tmp_path: Path) -> None:
    """A batch is taken up where it was left: what is printed anew is what was there."""
    run = printed(tmp_path / "night")
    (run.evidence / "manifest.json").unlink()
    before = files(run, "raw", "records")
    plan = run.plan()
    batch = plan.batch("hpl_mxp-n1")
    for spec in batch[2:5]:
        (run.evidence / "records" / f"{spec.launch_id}.a1.json").unlink()
        for path in (run.evidence / "raw" / f"{spec.launch_id}.a1").iterdir():
            path.unlink()
        (run.evidence / "raw" / f"{spec.launch_id}.a1").rmdir()
    told: list[str] = []
    launcher.launch(PROFILE, batch, run.evidence, told.append)
    assert told == ["3 launches simulated: SIMULATED, nothing was measured"]
    assert files(run, "raw") == {name: data for name, data in before.items() if name.startswith("raw")}


def test_records_tell_the_simulated_time_and_origin(healthy: RunDirectory) -> None:
    records = [json.loads(data) for data in files(healthy, "records").values()]
    assert {record["origin"] for record in records} == {"simulated"}
    assert all(record["hardware"]["simulated"] for record in records)
    begin = min(record["started_at"] for record in records)
    assert begin == MOMENT.isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert launcher.clock_of(healthy.evidence) == healthy.sealed_at()
