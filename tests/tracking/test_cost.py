import json
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_run

from plumbline.model import Device
from plumbline.tracking.cost import cost
from plumbline.tracking.judged_run import JudgedRun


def test_gpu_hours_are_duration_times_nodes_times_gpus(tmp_path: Path):
    run = build_run(tmp_path, Scenario(cluster="h100", nodes=4, device=Device.GPU))
    held = sum(spec.node_count * 8 for spec in run.plan().launches) * 12.5 / 3600
    found = cost(JudgedRun(run))
    assert found.hours == pytest.approx(held) and found.text().endswith("GPU-hours")
    assert found.launches == found.attempts == len(run.plan().launches)
    assert found.wall_s == pytest.approx(20 * (found.launches - 1) + 12.5)


def test_emulated_nodes_share_the_cpus_of_one_machine(tmp_path: Path):
    run = build_run(tmp_path, Scenario(nodes=4))
    found = cost(JudgedRun(run))
    assert found.hours == pytest.approx(len(run.plan().launches) * 2 * 12.5 / 3600) and found.unit == "CPU-hours"


def test_every_attempt_counts(tmp_path: Path):
    run = build_run(tmp_path, Scenario(cluster="h100", nodes=1, device=Device.GPU))
    before = cost(JudgedRun(run)).hours
    record = json.loads((run.evidence / "records" / "fio-n1-g0-r1.a1.json").read_text())
    (run.evidence / "records" / "fio-n1-g0-r1.a2.json").write_text(json.dumps({**record, "duration_s": 450.0}))
    launches = run.read_derived("launches.json")
    launches[0]["attempts"] = 2
    run.write_derived_json("launches.json", launches)
    found = cost(JudgedRun(run))
    assert found.hours == pytest.approx(before + 1.0) and found.attempts == found.launches + 1


def test_a_run_in_which_nothing_ran_cost_nothing(tmp_path: Path):
    ids = [spec.launch_id for spec in build_run(tmp_path / "x", Scenario(nodes=1)).plan().launches]
    found = cost(JudgedRun(build_run(tmp_path, Scenario(nodes=1, missing_launches=ids))))
    assert found.hours == 0 and found.wall_s is None
