import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_run

from plumbline.model import Code, Device, Origin, verdict
from plumbline.tracking.judged_run import JudgedRun
from plumbline.tracking.mlflow_payload import (
    MOST_HEADLINES,
    MOST_METRICS,
    experiment_name,
    metric_name,
    qualifying_params,
    run_payload,
)

ALLOWED = re.compile(r"^[A-Za-z0-9_.\-/]+$")
LOCAL = Scenario(nodes=4)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory):
    return run_payload(JudgedRun(build_run(tmp_path_factory.mktemp("results"), LOCAL)))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    scenario = Scenario(cluster="h100", nodes=6, device=Device.GPU, slow_nodes={"n0002": 0.5})
    return run_payload(JudgedRun(build_run(tmp_path_factory.mktemp("results"), scenario)))


@pytest.mark.parametrize(
    ("unit", "written"),
    [("GB/s", "GB_per_s"), ("1", "ratio"), ("%", "percent"), ("1/s", "per_s"), ("us", "us"), ("count", "count"),
     ("tokens/s", "tokens_per_s"), ("log-perplexity", "log-perplexity")],
)  # fmt: skip
def test_units_are_spelled_in_the_characters_that_mlflow_takes(unit: str, written: str):
    assert metric_name("b", "x", unit) == f"b/x_{written}" and ALLOWED.match(metric_name("b", "x", unit))


def test_qualifiers_come_before_the_indicator_and_are_cleaned():
    assert metric_name("b", "x", "s", ("all_reduce", "a b/c")) == "b/all_reduce_a_b_c_x_s"


def test_the_experiment_names_cluster_and_suite():
    assert experiment_name("local", "nightly") == "plumbline/local/nightly"


def test_the_parent_holds_headline_figures_and_the_runs_own(local):
    keys = {point.key for point in local.parent.points}
    assert {"fio/read_bandwidth_MB_per_s", "hpl_mxp/effective_flops_GFLOPS", "run/failed_count"} <= keys
    assert "nccl_tests/all_reduce_bus_bandwidth_headline_GB_per_s" in keys
    assert "fio/read_latency_p99_us" not in keys, "not a headline"
    assert len(keys) <= MOST_HEADLINES and all(ALLOWED.match(key) for key in keys)
    assert local.parent.name == local.parent.tags["plumbline.run_id"]


def test_steps_of_the_parent_are_node_counts_where_there_are_several(local):
    steps: dict[str, list[int]] = {}
    for point in local.parent.points:
        steps.setdefault(point.key, []).append(point.step)
    assert steps["nccl_tests/all_reduce_bus_bandwidth_headline_GB_per_s"] == [1, 2, 4]
    assert steps["fio/read_bandwidth_MB_per_s"] == [0] and steps["run/passed_count"] == [0]


def test_children_are_batches_with_curves_over_size(local):
    children = {child.name: child for child in local.children}
    assert set(children) == {
        "fio-n1", "hpl_mxp-n1", "nccl_tests-n1", "nccl_tests-n2", "nccl_tests-n4",
        "mlperf_gpt3-n1", "mlperf_gpt3-n2", "mlperf_gpt3-n4",
    }  # fmt: skip
    curve = [p for p in children["nccl_tests-n2"].points if p.key == "nccl_tests/all_reduce_bus_bandwidth_GB_per_s"]
    assert [p.step for p in curve] == list(range(13, 31, 2)) and curve[-1].value > curve[0].value
    single = [p for p in children["nccl_tests-n2"].points if "headline" in p.key or "smallest" in p.key]
    assert {p.step for p in single} == {0}, "one size is a value and no curve"
    assert all(len({p.key for p in child.points}) <= MOST_METRICS for child in children.values())
    assert all(len({(p.key, p.step) for p in child.points}) == len(child.points) for child in children.values())


def test_several_places_give_the_typical_and_the_worst(cluster):
    child = next(c for c in cluster.children if c.name == "hpl_mxp-n1")
    values = {p.key: p.value for p in child.points}
    assert values["hpl_mxp/worst_effective_flops_GFLOPS"] < 0.6 * values["hpl_mxp/effective_flops_GFLOPS"]
    assert values["hpl_mxp/worst_residual_ratio"] >= values["hpl_mxp/residual_ratio"]


def test_one_place_has_no_worst(local):
    assert not any("/worst_" in p.key for child in local.children for p in child.points)


def test_params_tell_two_nights_apart(local, cluster, tmp_path: Path):
    params = local.parent.params
    expected = {"nodes": "4", "node_counts": "1,2,4", "accelerator": "cpu", "launcher": "local", "repeats": "1"}
    assert expected.items() <= params.items()
    assert params["kernel"] == "6.1.0-test" and params["benchmark_version.fio"] == "1"
    assert params["nccl_tests tool_version"] == "1.2.3-test"
    assert cluster.parent.params["gpu"] == "8 × Test H100"
    child = next(c for c in cluster.children if c.name == "nccl_tests-n4")
    assert child.params["node_count"] == "4" and child.params["groups"] == "2" and child.params["param.seconds"] == "10"


def test_tags_say_what_a_run_is(local, cluster):
    tags = local.parent.tags
    assert tags["plumbline.verdict"] == "PASS" and tags["plumbline.gate"] == "open"
    assert {tags["plumbline.origin"], tags["plumbline.device"]} == {"measured", "cpu"}
    assert len(tags["plumbline.manifest_sha256"]) == 64
    for child in cluster.children:
        assert child.tags["plumbline.verdict"] == cluster.parent.tags["plumbline.verdict"] == "FAIL"
        assert child.tags["plumbline.batch"] == child.name
    assert {c.tags["plumbline.batch_verdict"] for c in cluster.children} == {"FAIL"}


def test_the_description_names_verdict_causes_and_stamps(cluster, tmp_path: Path):
    note = cluster.parent.tags["mlflow.note.content"]
    assert note.startswith("**FAIL**, gate **closed**") and "n0002" in note
    hostile = verdict(Code.UNREADABLE, "x", "[click](http://evil) <img src=x> `code`\n# big", benchmark="fio")
    scenario = replace(LOCAL, nodes=1, origin=Origin.SIMULATED, device=Device.GPU, extra=[hostile])
    note = run_payload(JudgedRun(build_run(tmp_path, scenario))).parent.tags["mlflow.note.content"]
    assert "SIMULATED" in note and "\\[click\\]" in note and "\\<img" in note and "\n# " not in note


def test_a_missing_row_renames_no_other(tmp_path: Path):
    whole = build_run(tmp_path, LOCAL, nodes=2)
    rows = JudgedRun(whole).verdicts
    names = qualifying_params(rows)
    assert names["nccl_tests", "bus_bandwidth"] == ("operation",) and names["fio", "read_iops"] == ()
    gone = [dict(row) for row in rows]
    for row in gone:
        if row["params"] and "all_gather" in row["params"]:
            row["actual"] = None
    assert qualifying_params(gone) == names


def test_points_bear_the_runs_time_so_that_the_same_run_gives_the_same_points(tmp_path: Path, local):
    again = run_payload(JudgedRun(build_run(tmp_path, LOCAL)))
    assert again.parent.points == local.parent.points and again.parent.digest == local.parent.digest
    other = run_payload(JudgedRun(build_run(tmp_path, LOCAL, speed={"fio": 0.9}, seed=2)))
    assert other.parent.digest != local.parent.digest


def test_rows_judged_invalid_are_no_metrics(tmp_path: Path):
    payload = run_payload(JudgedRun(build_run(tmp_path, LOCAL, nodes=1, invalid=["fio-n1-g0-r1"])))
    keys = {p.key for p in payload.parent.points} | {p.key for c in payload.children for p in c.points}
    assert not any(key.startswith("fio/") for key in keys) and payload.parent.tags["plumbline.verdict"] == "INVALID"


def test_hundreds_of_indicators_are_cut_to_the_limit(tmp_path: Path):
    from plumbline.tracking.mlflow_payload import Point, _at_most

    points = [Point(key=f"b/{kind}x{n}", value=1.0, step=s, timestamp_ms=0)
              for kind in ("", "worst_") for n in range(400) for s in (0, 1)]  # fmt: skip
    kept = _at_most(MOST_METRICS, points, "b")
    keys = {p.key for p in kept}
    assert len(keys) == MOST_METRICS and sum("worst_" in key for key in keys) == 100
    assert json.dumps([p.step for p in kept[:2]]) == "[0, 1]"
