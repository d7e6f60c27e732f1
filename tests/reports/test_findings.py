import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_run

from plumbline.commands.running import print_verdict
from plumbline.model import KIND_OF_CODE, Code, Device, VerdictKind, verdict
from plumbline.reports.actions import ADVICE, advice
from plumbline.reports.findings import Finding, find, findings
from plumbline.tracking.judged_run import JudgedRun

CLUSTER = Scenario(cluster="h100", nodes=6, device=Device.GPU)


def of(results: Path, scenario: Scenario = CLUSTER, **changes) -> list[Finding]:
    return find(JudgedRun(build_run(results, scenario, **changes)))


def test_every_code_has_a_label_and_an_action():
    assert set(ADVICE) == set(Code)
    assert all(item.label and item.action[0].isupper() and item.action.endswith(".") for item in ADVICE.values())


def test_a_value_beyond_its_warning_limit_is_not_called_close_to_it():
    """The warning limit is what near_limit rows have broken, by little or by much."""
    assert advice(Code.NEAR_LIMIT).label == "beyond a warning limit"


def test_a_code_of_a_later_version_is_named_as_it_is():
    assert advice("melted_down").label == "melted down"


def test_a_good_run_has_no_finding(tmp_path: Path):
    assert of(tmp_path) == []


def test_a_slow_node_is_one_finding_with_the_groups_it_slows(tmp_path: Path):
    found = of(tmp_path, slow_nodes={"n0002": 0.5})
    assert len(found) == 1
    node = found[0]
    assert (node.kind, node.component.type, node.component.name) == (VerdictKind.FAIL, "node", "n0002")
    assert node.blocks and set(node.benchmarks) == {"fio", "hpl_mxp", "mlperf_gpt3", "nccl_tests"}
    assert "more on its own" in node.problem and "group" in node.problem
    assert node.component.identity["hardware_id"] == "test-n0002"
    assert node.evidence_count > len(node.evidence) and {item["node_count"] for item in node.evidence} >= {1, 2}


def test_evidence_shows_one_of_each_kind_before_more_of_the_same(tmp_path: Path):
    node = of(tmp_path, slow_nodes={"n0002": 0.5})[0]
    kinds = [(item["benchmark"], item["indicator"], item["node_count"]) for item in node.evidence]
    assert len(set(kinds)) == len(kinds)


def test_two_slow_nodes_are_two_findings(tmp_path: Path):
    found = of(tmp_path, slow_nodes={"n0002": 0.5, "n0005": 0.6})
    assert sorted(item.component.name for item in found) == ["n0002", "n0005"]


def test_the_same_fault_on_many_nodes_is_one_finding(tmp_path: Path):
    found = of(tmp_path, speed={"hpl_mxp": 0.5})
    assert [(item.component.type, item.component.name) for item in found] == [("nodes", "6 nodes")]
    assert found[0].component.members == tuple(f"n000{n}" for n in range(1, 7))


def test_a_slow_group_without_a_slow_member_is_a_finding_of_its_own(tmp_path: Path):
    run = build_run(tmp_path, CLUSTER)
    launch = next(spec for spec in run.plan().launches if spec.benchmark == "nccl_tests" and spec.node_count == 4)
    fault = verdict(
        Code.OUTSIDE_REFERENCE,
        "nccl_tests at 4 nodes",
        "100 GB/s, expected 300",
        benchmark="nccl_tests",
        indicator="bus_bandwidth",
        node_count=4,
        group=launch.group,
        launch_id=launch.launch_id,
        actual=100.0,
        unit="GB/s",
    )
    found = of(tmp_path, seed=2, extra=[fault])
    assert len(found) == 1 and found[0].component.type == "group"
    assert found[0].component.name.startswith("nccl_tests at 4 nodes, group")
    assert len(found[0].component.members) == 4


def test_missing_values_belong_to_the_launch_that_failed(tmp_path: Path):
    found = of(tmp_path, failing_launches={"hpl_mxp-n1-g0-r1": "exit code 137"})
    assert len(found) == 1 and found[0].code == Code.BENCHMARK_FAILED
    assert found[0].missing_values == 2 and "2 values missing for it" in found[0].problem
    assert found[0].component.type == "node"


def test_a_launch_without_a_record_is_a_gap_that_blocks(tmp_path: Path):
    found = of(tmp_path, missing_launches=["nccl_tests-n4-g0-r1"])
    assert [(item.kind, item.code, item.blocks) for item in found] == [(VerdictKind.NOT_RUN, Code.NO_RECORD, True)]
    assert found[0].missing_values > 20


def test_excluded_nodes_are_gaps_that_a_nightly_tolerates_and_an_acceptance_not(tmp_path: Path):
    gaps = {"n0003": "GPU replaced"}
    nightly = of(tmp_path, excluded=gaps)
    assert [(item.kind, item.blocks, item.component.name) for item in nightly] == [
        (VerdictKind.NOT_RUN, False, "n0003")
    ]
    assert of(tmp_path, excluded=gaps, suite="acceptance")[0].blocks


def test_terminal_and_report_tell_one_number_of_indicators_without_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rows = [("write_iops", "n0001"), ("write_iops", "n0002"), ("read_iops", "n0001")]
    extra = [
        verdict(Code.NO_BASELINE, f"fio, node {node}", "has no history", benchmark="fio", indicator=name, node=node)
        for name, node in rows
    ]
    run = build_run(tmp_path, CLUSTER, extra=extra)
    print_verdict(run, run.read_derived("verdict.json"))
    told = capsys.readouterr().out
    (found,) = find(JudgedRun(run))
    assert "2 indicators have no reference here" in told
    assert found.title.startswith("2 indicators:")
    assert "3 values have nothing to compare with yet" in found.problem
    coverage = run.read_derived("verdict.json")["coverage"]
    assert f"{coverage['rows_measured']:,} of {coverage['rows_expected']:,} values" in told


def test_no_baseline_is_one_finding_for_the_run(tmp_path: Path):
    extra = [
        verdict(Code.NO_BASELINE, "fio", "5 rows without history", benchmark="fio", indicator=f"i{n}") for n in range(4)
    ]
    found = of(tmp_path, extra=extra)
    assert len(found) == 1 and found[0].title == "4 indicators: no approved history to compare with"
    assert not found[0].blocks
    assert f"plumbline approve {CLUSTER.run_id} --by NAME" in found[0].suggested_action


def test_what_closes_the_gate_comes_first(tmp_path: Path):
    found = of(tmp_path, slow_nodes={"n0002": 0.5}, excluded={"n0003": "x"}, missing_launches=["hpl_mxp-n1-g0-r1"])
    assert [item.blocks for item in found] == sorted((item.blocks for item in found), reverse=True)
    assert found[0].kind is VerdictKind.FAIL


@pytest.mark.parametrize("code", [code for code in Code if KIND_OF_CODE[code] is not VerdictKind.PASS])
def test_every_code_becomes_a_finding_somewhere(tmp_path: Path, code: Code):
    item = verdict(code, "somewhere", "because", benchmark="fio", node="local-0")
    found = of(tmp_path, Scenario(nodes=1), extra=[item])
    assert [(f.code, f.kind) for f in found] == [(code, KIND_OF_CODE[code])]
    assert found[0].suggested_action and found[0].ticket["title"].startswith("[local] ")


def test_a_verdict_json_of_fewer_fields_is_understood(tmp_path: Path):
    run = build_run(tmp_path, replace(CLUSTER, slow_nodes={"n0002": 0.5}, excluded={"n0003": "x"}))
    data = run.read_derived("verdict.json")
    kept = ("verdict", "code", "indicator", "place", "expected", "actual", "unit", "message")
    data["reasons"] = [{name: reason[name] for name in kept} for reason in data["reasons"]]
    run.write_derived_json("verdict.json", data)
    found = find(JudgedRun(run))
    assert any(item.blocks for item in found if item.kind is VerdictKind.FAIL)
    assert not any(item.blocks for item in found if item.code == Code.EXCLUDED)


def test_a_ticket_can_be_read_alone(tmp_path: Path):
    run = build_run(tmp_path, CLUSTER, slow_nodes={"n0002": 0.5})
    ticket = find(JudgedRun(run))[0].ticket
    assert ticket["title"] == "[h100] n0002: outside the reference for this hardware"
    for words in (run.run_id, "Component: node n0002", "hardware_id: test-n0002", "Suggested: ", "and "):
        assert words in ticket["text"]
    assert run.manifest_sha256() in ticket["text"] and "evidence/raw/" in ticket["text"]


def test_findings_are_plain_data_with_ids_of_their_own(tmp_path: Path):
    run = build_run(tmp_path, CLUSTER, slow_nodes={"n0002": 0.5, "n0004": 0.5}, excluded={"n0003": "x"})
    data = json.loads(json.dumps(findings(run), allow_nan=False))
    assert len({item["id"] for item in data}) == len(data) == 3
    assert set(data[0]) >= {"component", "evidence", "suggested_action", "ticket", "kind", "code", "blocks"}
    raw = run.path / data[0]["evidence"][0]["raw"]
    assert raw.is_dir() and (run.path / data[0]["evidence"][0]["record"]).is_file()
