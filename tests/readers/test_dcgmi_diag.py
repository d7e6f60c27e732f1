"""dcgmi diag -j of DCGM 2 to 4: Skip is not Pass, a missing GPU is seen, sentinels are absent."""

from __future__ import annotations

import contextlib
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import DATA, check_cuts, outcome

from plumbline.errors import OutputError
from plumbline.readers import dcgmi_diag as reader
from plumbline.readers.reading import Status

OLD = (DATA / "dcgmi_diag" / "dcgm3_level3.json").read_text()
NEW = (DATA / "dcgmi_diag" / "dcgm4_level2.json").read_text()
RAN = "PCIe,GPU Memory,Diagnostic,Targeted Stress,Targeted Power"


def changed(text, change):
    document = json.loads(text)
    change(document)
    return json.dumps(document)


def results(document, test):
    root = document.get("DCGM Diagnostic") or document["DCGM GPU Diagnostic"]
    return next(one for part in root["test_categories"] for one in part["tests"] if one["name"] == test)["results"]


def test_numbers_of_dcgm_3_are_those_of_the_gpu_that_the_text_names():
    read = outcome(reader, OLD)
    assert read.value("pcie_bandwidth", gpu="1", direction="d2h") == 54.1
    assert read.value("pcie_bandwidth", gpu="0", direction="h2d") == 55.4
    assert read.value("pcie_bandwidth", gpu="1", direction="bidirectional") == 101.7
    assert read.value("pcie_latency", gpu="1", direction="d2h") == 1.611
    assert read.value("memory_allocated", gpu="1") == 83885031425
    assert read.value("compute_rate", gpu="1") == 42124.45
    assert read.value("stress_level", gpu="0") == 21000
    assert read.value("power_average", gpu="1") == 689.5
    assert read.values("power_max") == [701.2, 701.2]
    assert read.facts["version"] == "3.3.7"
    assert read.facts["driver"] == "535.183.01"
    assert read.facts["overall"] == "pass"
    assert read.facts["has_skip"] is True
    assert read.facts["tests"]["EUD Test"] == {"n": 2, "results": ["Skip", "Skip"], "summary": None}


def test_a_skip_settles_nothing_until_somebody_says_what_had_to_run():
    assert outcome(reader, OLD).status is Status.UNKNOWN
    assert outcome(reader, OLD, {"tests": RAN, "gpus": 2}).status is Status.COMPLETE
    skipped = outcome(reader, OLD, {"tests": RAN + ",eud test"})
    assert skipped.status is Status.INCOMPLETE
    assert "eud test" in skipped.end.reason


def test_dcgm_4_by_entity_and_sentinels_absent():
    read = outcome(reader, NEW)
    assert read.status is Status.COMPLETE
    assert read.value("pcie_bandwidth", gpu="1") == 52.81
    assert read.values("memory_allocated") == [83885031424]
    assert read.facts["entities"] == {"GPU": ["0", "1"]}
    assert read.facts["tests"]["memory"]["summary"] == "Pass"


def test_a_gpu_on_which_a_test_did_not_run_is_missed():
    read = outcome(reader, changed(NEW, lambda doc: results(doc, "memory").pop()))
    assert read.status is Status.INCOMPLETE
    assert read.end.reason == "test memory has no result for GPU 1"
    assert outcome(reader, NEW, {"gpus": 8}).status is Status.INCOMPLETE
    assert outcome(reader, NEW, {"gpus": 2, "tests": "memory,pcie"}).status is Status.COMPLETE


@pytest.mark.parametrize(
    ("status", "overall", "end"),
    [
        ("Fail", "fail", Status.FAILED),
        ("fail", "fail", Status.FAILED),
        ("Warn", "warn", Status.COMPLETE),
        ("Skip", "pass", Status.UNKNOWN),
        ("Not Run", "pass", Status.INCOMPLETE),
        ("", "pass", Status.INCOMPLETE),
        ("Error", "pass", Status.INCOMPLETE),
    ],
)
def test_each_status_is_taken_for_what_it_is(status, overall, end):
    read = outcome(reader, changed(NEW, lambda doc: results(doc, "pcie")[1].update(status=status)))
    assert read.facts["overall"] == overall
    assert read.status is end


def test_every_test_skipped_is_no_run():
    def skip(document):
        for part in document["DCGM Diagnostic"]["test_categories"]:
            for test in part["tests"]:
                test["test_summary"]["status"] = "Skip"
                for result in test["results"]:
                    result["status"] = "Skip"

    read = outcome(reader, changed(NEW, skip))
    assert read.facts["overall"] == "skip"
    assert read.status is Status.INCOMPLETE


@pytest.mark.parametrize(
    "extra",
    [
        {"warnings": [{"warning": "Memory allocation failed", "error_id": 5}]},
        {"info": ["Couldn't allocate at least 75.0% of GPU memory on GPU 1"]},
    ],
)
def test_a_pass_that_reports_an_error_is_no_pass(extra):
    read = outcome(reader, changed(NEW, lambda doc: results(doc, "memory")[1].update(extra)))
    assert read.status is Status.INCOMPLETE
    assert "memory" in read.facts["contradictions"]


def test_a_document_that_says_why_it_could_not_run():
    text = (
        '{\n "DCGM Diagnostic" : {"runtime_error" : "Error: Unable to complete diagnostic.", "version" : "4.4.1"}\n}\n'
    )
    read = outcome(reader, text)
    assert read.status is Status.FAILED
    assert read.facts["runtime_error"] == "Error: Unable to complete diagnostic."
    refused = outcome(reader, "Error: unable to establish a connection to the specified host: localhost\n")
    assert refused.status is Status.NOT_STARTED
    text = 'Error: Unable to run diagnostic on unsupported GPU 0.\n{"DCGM GPU Diagnostic":{"version":"4.2.3"}}\n'
    assert outcome(reader, text).status is Status.NOT_STARTED


def test_iterations_are_runs():
    text = json.dumps({"iterations": [json.loads(NEW), json.loads(NEW)], "Overall Result": "Pass"})
    read = outcome(reader, text, {"iterations": 2})
    assert read.status is Status.COMPLETE
    assert read.values("pcie_bandwidth", run=1, gpu="0") == [52.75]
    failed = json.dumps({"iterations": [json.loads(NEW)], "Overall Result": "Fail", "warning": "killed"})
    assert outcome(reader, failed).status is Status.FAILED
    assert outcome(reader, text, {"iterations": 3}).status is Status.INCOMPLETE


def test_several_nodes_of_mndiag():
    result = {"host_id": 1, "entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Pass"}
    tests = [{"name": "mnubergemm", "status": "Pass", "test_summary": {"status": "Pass"}, "results": [result]}]
    document = {
        "DCGM Diagnostic": "DCGM Multi-Node Diagnostic",
        "metadata": {"version": "4.5.2"},
        "test_categories": [{"category": "Multi-Node Tests", "tests": tests}],
    }
    read = outcome(reader, json.dumps(document))
    assert read.status is Status.COMPLETE
    assert read.facts["version"] == "4.5.2"


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "Successfully ran diagnostic for group.\n" + text + "\nexit status 0 {}\n",
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "".join(f"2026-01-31T04:00:00.000000000Z stdout F {line}\n" for line in text.splitlines()),
        lambda text: "".join(f"[pod/dcgm-0/diag] {line}\n" for line in text.splitlines()),
        lambda text: '{"event": "start", "level": "info"}\n' + text,
        lambda text: json.dumps({"node": "a", "dcgm": json.loads(text)}),
    ],
)
@pytest.mark.parametrize("text", [OLD, NEW], ids=["dcgm3", "dcgm4"])
def test_wrapping_changes_no_value(change, text):
    assert outcome(reader, change(text)).rows() == outcome(reader, text).rows()


def failing(text):
    failed = re.sub('("status" ?: ?)"Pass"', r'\1"Fail"', text)
    assert failed != text
    return failed


@pytest.mark.parametrize("text", [OLD, NEW], ids=["dcgm3", "dcgm4"])
def test_a_second_run_is_never_lost(text):
    whole, bad = outcome(reader, NEW), failing(text)
    assert whole.status is Status.COMPLETE
    for prefix in ("", "1: ", "[1,1]<stdout>:", "node2: "):
        lines = "".join(prefix + line for line in bad.splitlines(keepends=True))
        assert outcome(reader, f"{NEW}\n{lines}").status is Status.FAILED
        assert outcome(reader, f"{lines}\n{NEW}").status is Status.FAILED
        half = lines[: lines.rindex('"Fail"') + 3]
        for both in (f"{NEW}\n{half}", f"{NEW}\n{half}\nKilled\n", f"{half}\n{NEW}"):
            read = outcome(reader, both)
            assert read.status is Status.INCOMPLETE
            assert read.rows() == whole.rows()


@pytest.mark.parametrize("key", ["test_categories", "tests", "results"])
def test_a_list_that_holds_something_else_is_damage(key):
    def damage(value):
        if isinstance(value, dict):
            for name, below in value.items():
                damage(below)
                if name == key:
                    below.append("Fail")
        for below in value if isinstance(value, list) else []:
            damage(below)

    assert outcome(reader, changed(NEW, damage)).status is Status.INCOMPLETE


def test_what_is_left_of_a_run_whose_head_is_lost_is_not_lost():
    bad = failing(NEW)
    for begin in range(1, bad.rindex('"test_summary"'), 301):
        for text in (f"{NEW}\n{bad[begin:]}", f"{bad[begin:]}\n{NEW}"):
            assert outcome(reader, text).status is not Status.COMPLETE, bad[begin : begin + 80]


def test_a_summary_that_one_test_lacks():
    text = NEW.replace('"test_summary"', '"test_sumary"', 1)
    assert text != NEW
    assert outcome(reader, text).status is Status.INCOMPLETE


@pytest.mark.parametrize(
    "said",
    [
        "Error: unable to establish a connection to the specified host: localhost",
        "dcgmi: command not found",
        "node2: Error: Diagnostic could not be run because another one runs.",
    ],
)
def test_a_run_that_was_refused_beside_a_whole_one(said):
    for text in (f"{NEW}\n{said}\n", f"{said}\n{NEW}"):
        read = outcome(reader, text)
        assert read.status is Status.INCOMPLETE
        assert read.rows() == outcome(reader, NEW).rows()
    assert outcome(reader, f"{NEW}\nError: the disk is slow\n").status is Status.COMPLETE


def test_a_document_beside_a_whole_one_that_holds_no_diagnostic():
    strange = json.dumps({"DCGM Diagnostic": [{"category": "Deployment"}]})
    assert outcome(reader, f"{NEW}\n{strange}\n").status is Status.INCOMPLETE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"DCGM GPU Diagnostic": [{"category": "Deployment"}]}',
        '{"body": {"Overall Health": {"value": "Healthy"}}, "header": ["Health Monitor Report"]}',
        "| Diagnostic                | Finding  |\n|-----  Deployment  --------+----|\n| Denylist | Pass |\n",
        "{" * 50_000 + '"DCGM Diagnostic"',
        '{"a":' * 50_000 + '"DCGM Diagnostic"',
        NEW[: len(NEW) // 2],
    ],
)
def test_anything_else_is_refused(text):
    with pytest.raises(OutputError):
        outcome(reader, text)


@pytest.mark.parametrize("text", [OLD, NEW], ids=["dcgm3", "dcgm4"])
def test_a_cut_document_is_never_called_complete(text):
    check_cuts(reader, text.encode())


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damage_never_raises_anything_else(data):
    at, end = sorted(data.draw(st.tuples(st.integers(0, len(NEW)), st.integers(0, len(NEW)))))
    junk = data.draw(st.text(alphabet='{}[]",: \\0aP\n', max_size=30))
    with contextlib.suppress(OutputError):
        outcome(reader, NEW[:at] + junk + NEW[end:])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
        ["test_categories", "tests", "results", "status", "name", "gpu_id", "entity_id", "warnings", "info",
         "test_summary", "entity_groups", "entities", "metadata", "version", "iterations", "runtime_error"]
    ), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(JSON, st.sampled_from(["DCGM Diagnostic", "DCGM GPU Diagnostic"]))
def test_any_json_under_the_root_is_read_or_refused(value, root):
    with contextlib.suppress(OutputError):
        outcome(reader, json.dumps({root: value, "entity_groups": value}))


def test_sniff():
    assert reader.sniff(OLD) == 1 == reader.sniff(NEW)
    assert reader.sniff('{"a": 1}') == 0
