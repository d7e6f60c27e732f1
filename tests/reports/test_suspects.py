import json
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_run
from tests.simulated_run import simulate

from plumbline import stages
from plumbline.model import Code, Device, Verdict, verdict
from plumbline.reports.findings import find, findings, told_suspicions
from plumbline.reports.report import write_report
from plumbline.reports.suspects import Suspicion
from plumbline.tracking.judged_run import JudgedRun
from plumbline.tracking.run_directory import RunDirectory

CLUSTER = Scenario(cluster="h100", nodes=8, device=Device.GPU)


def slow(run: RunDirectory, *launch_ids: str, code: Code = Code.OUTSIDE_REFERENCE) -> list[Verdict]:
    """Give a FAIL of the headline on each of these launches."""
    launches = {spec.launch_id: spec for spec in run.plan().launches}
    return [
        verdict(
            code, f"{name} is slow", "100 GB/s, expected 300", benchmark=launches[name].benchmark,
            indicator="bus_bandwidth_headline", node_count=launches[name].node_count, group=launches[name].group,
            launch_id=name, actual=100.0, unit="GB/s",
        )
        for name in launch_ids
    ]  # fmt: skip


def of(results: Path, scenario: Scenario, *launch_ids: str) -> tuple[Suspicion, ...]:
    plan = build_run(results / "plan", scenario)
    return told_suspicions(find(JudgedRun(build_run(results, scenario, extra=slow(plan, *launch_ids)))))


def members(scenario: Scenario, results: Path, launch_id: str) -> set[str]:
    run = build_run(results / "members", scenario)
    return set(next(spec.nodes for spec in run.plan().launches if spec.launch_id == launch_id))


def test_a_good_run_has_no_suspect(tmp_path: Path):
    assert of(tmp_path, CLUSTER) == ()


def test_the_slow_node_of_all_its_groups_is_the_suspect_with_its_evidence(tmp_path: Path):
    run = build_run(tmp_path, CLUSTER, slow_nodes={"n0002": 0.5})
    (told,) = told_suspicions(find(JudgedRun(run)))
    assert told.label == "Suspect" and told.text.startswith("n0002 (leaf01): in all ")
    assert "none of the" in told.text and "nccl_tests at 1, 2, 4 and 8 nodes" in told.text
    (suspect,) = told.suspects
    assert (suspect["type"], suspect["name"], suspect["leaf"]) == ("node", "n0002", "leaf01")
    assert suspect["bad_groups"] == told.bad_groups == len(told.bad) == 10 and suspect["good_groups"] == 0
    assert all("n0002" in group["nodes"] for group in told.bad)


def test_nodes_that_cannot_be_told_apart_are_all_named(tmp_path: Path):
    pair = members(CLUSTER, tmp_path, "nccl_tests-n2-g1-r1")
    (told,) = of(tmp_path, CLUSTER, "nccl_tests-n2-g1-r1")
    assert told.label == "Suspects" and {item["name"] for item in told.suspects} == pair
    assert "each is in the one bad group" in told.text and "nothing measured tells them apart" in told.text
    assert "measured alone, each passed" in told.text


def test_good_groups_that_speak_against_a_suspect_are_counted_and_named(tmp_path: Path):
    (told,) = of(tmp_path, CLUSTER, "nccl_tests-n2-g1-r1")
    assert told.good_groups == 6  # three pairs, two fours, one eight; nobody failed alone
    assert all(item["good_groups"] == 2 and len(item["good"]) == 2 for item in told.suspects)
    assert "in 2 of the 6 good ones, which speak against it" in told.text
    assert {group["node_count"] for item in told.suspects for group in item["good"]} == {4, 8}


def test_groups_with_nothing_in_common_have_no_suspect_and_say_so(tmp_path: Path):
    (told,) = of(tmp_path, CLUSTER, "nccl_tests-n2-g0-r1", "nccl_tests-n2-g1-r1", "nccl_tests-n2-g2-r1")
    assert told.label == "No suspect" and told.suspects == ()
    assert told.text.startswith("no node, leaf or rack is in all 3 bad groups (nccl_tests at 2 nodes)")


def test_two_benchmarks_without_a_common_node_are_told_of_one_by_one(tmp_path: Path):
    told = of(tmp_path, CLUSTER, "nccl_tests-n2-g0-r1", "mlperf_gpt3-n2-g1-r1")
    assert sorted(item.benchmarks for item in told) == [("mlperf_gpt3",), ("nccl_tests",)]


def test_single_nodes_without_a_place_in_common_are_left_to_their_findings(tmp_path: Path):
    assert of(tmp_path, CLUSTER, "nccl_tests-n1-g0-r1", "nccl_tests-n1-g5-r1") == ()


def test_every_finding_of_a_bad_group_has_the_statement_and_others_have_none(tmp_path: Path):
    plan = build_run(tmp_path / "plan", CLUSTER)
    extra = slow(plan, "nccl_tests-n2-g1-r1", "nccl_tests-n8-g0-r1")
    run = build_run(tmp_path, CLUSTER, extra=extra, missing_launches=["hpl_mxp-n1-g0-r1"])
    found = json.loads(json.dumps(findings(run), allow_nan=False))
    told = {item["kind"]: item["suspect"] for item in found}
    assert told["NOT_RUN"] is None and told["FAIL"]["suspects"] and told["FAIL"]["bad_groups"] == 2
    assert all(f"{s['label']}: {s['text']}" in i["ticket"]["text"] for i in found if (s := i["suspect"]))


def test_what_is_invalid_waived_or_near_a_limit_speaks_for_nobody(tmp_path: Path):
    plan = build_run(tmp_path / "plan", CLUSTER)
    run = build_run(tmp_path, CLUSTER, extra=slow(plan, "nccl_tests-n2-g1-r1"), invalid=["nccl_tests-n8-g0-r1"])
    (told,) = told_suspicions(find(JudgedRun(run)))
    assert (told.good_groups, told.undecided) == (5, 1)


def test_emulated_nodes_are_one_machine_and_never_suspected(tmp_path: Path):
    assert of(tmp_path, Scenario(nodes=4), "nccl_tests-n2-g0-r1") == ()


def test_the_report_says_it_once_at_the_top_and_with_evidence_below(tmp_path: Path):
    run = build_run(tmp_path, CLUSTER, slow_nodes={"n0002": 0.5})
    text = write_report(run).read_text("utf-8")
    (told,) = told_suspicions(find(JudgedRun(run)))
    assert text.count(f"<b>Suspect:</b> {told.text}") == 2  # at the top and in the one finding
    assert "no verdict depends on it" in text and "Good groups that have it" in text


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    """Give a simulated night, judged, with one slow NIC that only groups can see."""
    folder = tmp_path_factory.mktemp("night")
    faults = folder / "faults.yaml"
    faults.write_text("faults: [{kind: slow_nic, node: n0006, rail: 3, severity: 0.5}]\n")
    run = simulate(folder / "results", "simulated-8", [f"faults={faults}", "benchmarks=nccl_tests"])
    stages.judge(run.path)
    stages.report(run.path)
    return run


def test_a_simulated_night_suspects_the_planted_node(night: RunDirectory):
    told = next(item["suspect"] for item in night.read_derived("findings.json") if item["suspect"])
    assert "n0006" in {item["name"] for item in told["suspects"] if item["type"] == "node"}
    assert told["bad_groups"] == 3 and all(item["bad_groups"] == 3 for item in told["suspects"])
    assert all(item["good_groups"] == 0 for item in told["suspects"])
    assert told["text"] in (night.derived / "report.html").read_text("utf-8")


def test_a_suspect_changes_no_verdict(night: RunDirectory):
    verdict_data = night.read_derived("verdict.json")
    assert verdict_data["gate"] == "closed" and "suspect" not in json.dumps(verdict_data)


@pytest.mark.parametrize("nodes", [3, 6])
def test_when_only_the_whole_cluster_is_slow_no_node_is_a_suspect(tmp_path: Path, nodes: int):
    """Some nodes make up the last group of a rung, and have one good group more than the others."""
    cluster = Scenario(cluster="h100", nodes=nodes, device=Device.GPU)
    (told,) = of(tmp_path, cluster, f"nccl_tests-n{nodes}-g0-r1")
    assert (told.label, told.suspect_count) == ("No suspect", 0)
