"""The collectives benchmark: its commands, its rows, and what its output says against it."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path

import pytest
from tests.benchmarks.launches import launch as planned
from tests.benchmarks.launches import record
from tests.readers import nccl_text

from plumbline.benchmarks import benchmark
from plumbline.benchmarks.benchmark import Placement
from plumbline.errors import ConfigError, OutputError
from plumbline.model import Code, Device, LaunchSpec, Origin, canonical_params
from plumbline.readers import Status
from plumbline.units import UNITS

MODULE = benchmark("nccl_tests")
launch = partial(planned, MODULE)
DATA = Path(__file__).resolve().parents[1] / "data" / "nccl_tests"


def placement(nodes=2, per_node=8, device=Device.GPU, launcher="kubernetes") -> Placement:
    return Placement(
        launcher=launcher,
        device=device,
        origin=Origin.MEASURED,
        nodes=tuple(f"node{i + 1}" for i in range(nodes)),
        accelerators_per_node=per_node,
        accelerator="H100-SXM5-80GB",
        fabric="ib-ndr",
        python="/usr/bin/python3",
        programs=Path("/opt/plumbline"),
        storage_dir="/scratch",
    )


def measure(spec: LaunchSpec, raw_dir: Path, **files: str):
    for name, text in files.items():
        (raw_dir / name.replace("__", ".")).write_text(text)
    measured = MODULE.measure(spec, record(spec, raw_dir=str(raw_dir)), raw_dir)
    known = {item.name: item.unit for item in MODULE.INDICATORS}
    for value in measured.values:
        assert known[value.indicator] == value.unit
        assert value.unit in UNITS
    expected = [(row.indicator, canonical_params(row.params)) for row in MODULE.expected(spec)]
    assert len(expected) == len(set(expected))
    assert {(v.indicator, canonical_params(v.params)) for v in measured.values} <= set(expected)
    return measured


def value(measured, indicator, **params):
    found = [v.value for v in measured.values if v.indicator == indicator and params.items() <= v.params.items()]
    assert len(found) == 1
    return found[0]


def codes(measured):
    return sorted({finding.code for finding in measured.findings})


GPU = {"min_bytes": "1M", "max_bytes": "1G", "step_factor": 2, "headline_message_bytes": "1G", "warmup": 5}


def gpu(**given) -> LaunchSpec:
    return launch(placement(), **{"operations": "all_reduce", **GPU, **given})


# -- commands ---------------------------------------------------------------------------------------------------------


def test_nightly_set_on_gpus():
    spec = launch(placement(nodes=4))
    assert spec.argv[:4] == ("/usr/bin/python3", "-m", "plumbline_bench.nccl_sweep", "--hosts")
    assert spec.argv[spec.argv.index("--hosts") + 1] == "node1,node2,node3,node4"
    assert spec.env["PYTHONPATH"] == "/opt/plumbline"
    assert spec.env["NCCL_DEBUG_SUBSYS"] == "INIT,NET"
    assert spec.outputs == ("stdout", "*.txt", "*.json")
    rows = list(MODULE.expected(spec))
    sizes = [row.params["message_bytes"] for row in rows if row.indicator == "bus_bandwidth"]
    assert len(sizes) == 24
    assert max(sizes) == 8 << 30
    headline = [row.params for row in rows if row.indicator == "bus_bandwidth_headline"]
    assert [p["message_bytes"] for p in headline] == [8 << 30] * 2
    assert spec.expect["nranks"] == 32


def test_nightly_set_on_this_machine():
    spec = launch(placement(nodes=4, per_node=1, device=Device.CPU, launcher="local"))
    assert spec.argv[2] == "plumbline_bench.collectives"
    assert spec.argv[spec.argv.index("--nodes") + 1] == "4"
    assert spec.outputs == ("stdout",)
    sizes = [r.params["message_bytes"] for r in MODULE.expected(spec) if r.indicator == "bus_bandwidth"]
    assert len(sizes) == 24
    assert (min(sizes), max(sizes)) == (8 << 10, 16 << 20)


def test_the_smallest_message_leaves_every_rank_a_share():
    spec = launch(placement(nodes=64))
    assert min(r.params["message_bytes"] for r in MODULE.expected(spec) if "message_bytes" in r.params) == 8 << 10
    with pytest.raises(ConfigError, match="write at least 8192"):
        launch(placement(nodes=64), min_bytes=8)
    launch(placement(nodes=64), min_bytes=8, operations="all_reduce")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"operations": "all_reduce,allgather"}, "no operation 'allgather'; did you mean 'all_gather'"),
        ({"operations": ""}, "must name operations"),
        ({"operations": "all_reduce,all_reduce"}, "once each"),
        ({"min_bytes": "2M", "max_bytes": "1M"}, "larger than max_bytes"),
        ({"max_bytes": "much"}, "not a size in bytes"),
        ({"dtype": "float8"}, "must be one of float"),
        ({"sizes": "1M"}, "no parameter 'sizes'"),
    ],
)
def test_wrong_parameters_are_named(given, sentence):
    with pytest.raises(ConfigError, match=sentence):
        launch(placement(), **given)


def test_a_headline_outside_the_sweep_stays_a_missing_row(tmp_path):
    spec = gpu(headline_message_bytes="8G")
    measured = measure(spec, tmp_path, all_reduce__txt=nccl_text.output("2026", ranks=16))
    assert not [v for v in measured.values if v.indicator == "bus_bandwidth_headline"]
    assert [r for r in MODULE.expected(spec) if r.indicator == "bus_bandwidth_headline"]


# -- output -----------------------------------------------------------------------------------------------------------


def test_recorded_output_of_this_machine(tmp_path):
    spec = launch(placement(nodes=2, per_node=1, device=Device.CPU, launcher="local"))
    measured = measure(spec, tmp_path, stdout=(DATA / "collectives_n2.txt").read_text())
    assert measured.findings == ()
    assert [c.status for c in measured.completeness] == [Status.COMPLETE]
    assert {(v.indicator, canonical_params(v.params)) for v in measured.values} == {
        (row.indicator, canonical_params(row.params)) for row in MODULE.expected(spec)
    }
    assert value(measured, "wrong_results", operation="all_reduce") == 0.0
    rows = [line.split() for line in (DATA / "collectives_n2.txt").read_text().splitlines() if line[:1] == " "]
    assert value(measured, "latency_smallest", operation="all_reduce") == float(rows[0][5])
    assert value(measured, "bus_bandwidth_headline", operation="all_reduce") == float(rows[11][7])
    facts = {fact.name: fact.value for fact in measured.facts}
    assert facts["nranks"] == 2
    assert "gloo" in facts["program"]


def test_one_rank_has_no_bus(tmp_path):
    place = placement(nodes=1, per_node=1, device=Device.CPU, launcher="local")
    spec = launch(place, operations="all_reduce", max_bytes="64K")
    assert {row.indicator for row in MODULE.expected(spec)} == {"latency_smallest", "wrong_results"}
    measured = measure(spec, tmp_path, stdout=(DATA / "collectives_n1.txt").read_text())
    assert {v.indicator for v in measured.values} == {"latency_smallest", "wrong_results"}
    assert measured.findings == ()


def test_reports_are_preferred_and_tables_do(tmp_path):
    exact = round(nccl_text.numbers(1 << 30, 16, "all_reduce", False)[2], 6)
    table, report = nccl_text.output("2026", ranks=16), nccl_text.report(ranks=16)
    assert value(measure(gpu(), tmp_path, all_reduce__txt=table), "bus_bandwidth_headline") == round(exact, 2)
    both = measure(gpu(), tmp_path, all_reduce__txt=table, all_reduce__json=report)
    assert value(both, "bus_bandwidth_headline") == exact
    assert value(both, "bus_bandwidth_peak") == exact
    assert len(both.completeness) == 2
    assert both.findings == ()
    assert {fact.name for fact in both.facts} >= {"nccl_version", "hosts", "environment"}


def test_operations_in_one_stdout(tmp_path):
    text = nccl_text.output("2026", "all_reduce", ranks=16) + nccl_text.output("2026", "sendrecv", ranks=16)
    measured = measure(gpu(operations="all_reduce,sendrecv"), tmp_path, stdout=text)
    assert measured.findings == ()
    assert value(measured, "bus_bandwidth_peak", operation="sendrecv") > 90


def test_an_unnamed_table_in_its_own_file_is_that_operation(tmp_path):
    measured = measure(gpu(operations="alltoall"), tmp_path, alltoall__txt=nccl_text.output("2022", "alltoall", 16))
    assert measured.completeness[0].status is Status.INCOMPLETE  # the table does not say that it is alltoall
    assert value(measured, "bus_bandwidth_headline", operation="alltoall") > 90


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (nccl_text.output("2026", ranks=15), Code.MISSING_RANK, "15 ranks took part, 16"),
        (nccl_text.output("2026", ranks=1), Code.MISSING_RANK, "1 ranks took part, 16"),
        (nccl_text.output("2026", ranks=32), Code.WRONG_PARAMETERS, "32 ranks took part, 16"),
        (nccl_text.output("2026", ranks=16, per_node=16), Code.MISSING_RANK, "on 1 hosts"),
        (nccl_text.output("2026", ranks=16, wrong=7), Code.WRONG_RESULT, "7 elements at 1 MiB"),
        (nccl_text.output("2026", ranks=16, out_of_bounds=4), Code.WRONG_RESULT, "out of bounds"),
        (nccl_text.output("2026", ranks=16, wrong="N/A"), Code.WRONG_PARAMETERS, "were not checked"),
        (nccl_text.output("2026", ranks=16).replace("iters: 20", "iters: 2"), Code.WRONG_PARAMETERS, "2 iterations"),
        (nccl_text.output("2026", ranks=16).replace(" float ", "  half "), Code.WRONG_PARAMETERS, "half instead of"),
        (nccl_text.output("2026", ranks=16) * 2, Code.DUPLICATE, "twice"),
        (nccl_text.output("2026", ranks=16, most=1 << 31), Code.WRONG_PARAMETERS, "nobody asked for"),
        ("".join(x for x in nccl_text.output("2026", ranks=16).splitlines(True) if "Rank" not in x),
         Code.INCOMPLETE_OUTPUT, "does not say how many ranks"),
        (nccl_text.output("2026", ranks=16).replace("algbw   busbw", "busbw   algbw"), Code.IMPOSSIBLE_VALUE, "GB/s"),
        (nccl_text.output("2026", "sendrecv", 16).replace("sendrecv", "all_reduce"), Code.IMPOSSIBLE_VALUE, "1.875 ×"),
    ],
)  # fmt: skip
def test_what_the_output_says_against_itself(tmp_path, text, code, words):
    measured = measure(gpu(), tmp_path, all_reduce__txt=text)
    assert code in codes(measured)
    assert any(words in finding.message for finding in measured.findings), measured.findings


def test_a_missing_size_is_a_missing_row_and_incomplete(tmp_path):
    lines = nccl_text.output("2026", ranks=16).splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == ["4194304"])
    measured = measure(gpu(), tmp_path, all_reduce__txt="".join(lines[:at] + lines[at + 1 :]))
    assert measured.completeness[0].status is Status.INCOMPLETE
    assert 4 << 20 not in [v.params.get("message_bytes") for v in measured.values]
    assert not [v for v in measured.values if v.indicator in ("bus_bandwidth_peak", "wrong_results")]


def test_a_shorter_sweep_than_asked_is_incomplete(tmp_path):
    measured = measure(gpu(), tmp_path, all_reduce__txt=nccl_text.output("2026", ranks=16, most=1 << 28))
    assert measured.completeness[0].status is Status.INCOMPLETE
    assert "sizes are missing" in measured.completeness[0].reason


def test_sizes_that_the_tool_rounds_keep_the_size_that_was_asked_for(tmp_path):
    spec = launch(
        placement(nodes=3),
        **{**GPU, "operations": "all_gather", "max_bytes": "1M"},
    )
    spec = dataclasses.replace(spec, params={**spec.params, "headline_message_bytes": "1M"})
    shown = (1 << 20) // (24 * 16) * 24 * 16
    text = nccl_text.banner("2026", 24, 1 << 20, 1 << 20, "all_gather") + nccl_text.header("2026", "all_gather")
    text += nccl_text.row("2026", "all_gather", shown, 24)
    average = sum(nccl_text.numbers(shown, 24, "all_gather", place)[2] for place in (False, True)) / 2
    measured = measure(spec, tmp_path, all_gather__txt=text + nccl_text.footer("2026", average, 0, "all_gather"))
    assert value(measured, "bus_bandwidth_headline", message_bytes=1 << 20) > 0
    assert measured.completeness[0].status is Status.COMPLETE, measured.completeness[0].reason


@pytest.mark.parametrize(("via", "expected"), [("NET/IB/0/GDRDMA", []), ("NET/Socket/0", [Code.WRONG_TRANSPORT])])
def test_transport_is_asserted_from_nccls_own_lines(tmp_path, via, expected):
    line = f"node1:1:2 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via {via}\n"
    text = nccl_text.output("2026", ranks=16)
    spec = gpu(transport="NET/IB")
    assert codes(measure(spec, tmp_path, all_reduce__txt=line + text)) == expected
    assert codes(measure(spec, tmp_path, all_reduce__txt=text)) == [Code.WRONG_TRANSPORT]
    assert codes(measure(gpu(), tmp_path, all_reduce__txt=line + text)) == []


def test_no_output_at_all(tmp_path):
    with pytest.raises(OutputError, match="no output of all_reduce"):
        measure(gpu(), tmp_path)
    with pytest.raises(OutputError):
        measure(gpu(), tmp_path, all_reduce__txt="", stdout="")


def test_a_report_of_another_operation_is_not_taken(tmp_path):
    measured = measure(gpu(), tmp_path, all_reduce__json=nccl_text.report("all_gather", ranks=16))
    assert measured.values == ()
    assert "no run of all_reduce" in measured.completeness[0].reason


def test_environment_keeps_no_secret(tmp_path):
    measured = measure(gpu(), tmp_path, all_reduce__json=nccl_text.report(ranks=16))
    assert "hunter2" not in json.dumps([str(fact) for fact in measured.facts])


@pytest.mark.parametrize("form", ["txt", "json"])
def test_output_that_took_longer_than_the_launch_is_an_earlier_ones(tmp_path, form):
    """A row's time is a mean over its iterations: the timed runs alone must fit into the launch."""
    text = nccl_text.output("2026", ranks=16) if form == "txt" else nccl_text.report(ranks=16)
    spec = gpu()
    (tmp_path / f"all_reduce.{form}").write_text(text)

    def found(lasted: float) -> list[Code]:
        measured = MODULE.measure(spec, record(spec, duration_s=lasted), tmp_path)
        return [finding.code for finding in measured.findings]

    # The text's times: size / (algorithm bandwidth), 20 iterations each, out of place and in place.
    timed = 20 * sum(
        nccl_text.numbers(1 << power, 16, "all_reduce", place)[0] / 1e6 for power in range(20, 31) for place in (0, 1)
    )
    assert found(timed * 1.001) == []
    assert found((timed - 0.1) / 1.02) == [Code.OLD_OUTPUT]
    assert found(0.0) == [Code.OLD_OUTPUT]
