"""dcgmi diag without -j: tables of DCGM 3 and 4 in the words of their stencils, texts cut every 45 characters."""

from __future__ import annotations

import pytest
from tests.readers.infra_outputs import DATA, check_cuts, outcome

from plumbline.readers import _dcgm_table
from plumbline.readers import dcgmi_diag as reader
from plumbline.readers.reading import Status

RULE = f"+{'-' * 27}+{'-' * 48}+\n"
HEAD = f"Successfully ran diagnostic for group.\n{RULE}| {'Diagnostic':25} | {'Result':46} |\n+{'=' * 27}+{'=' * 48}+\n"


def section(name):
    edge = "|" if name in ("Metadata", "Deployment") else "+"
    return f"{edge}{f'-----  {name}  ':-<27}+{'-' * 48}{edge}\n"


def row(name, text):
    return f"| {name:25} | {text:46} |\n"


def said(name, text):
    pieces = [text[at : at + 45] for at in range(0, len(text), 45)]
    return "".join(row("" if at else name, piece) for at, piece in enumerate(pieces))


def table(*parts, version="3.3.9"):
    return HEAD + section("Metadata") + row("DCGM Version", version) + "".join(parts) + RULE


LINKS = (
    "GPU 0 GPU to Host bandwidth:  25.31 GB/s, GPU 0 Host to GPU bandwidth:  24.86 GB/s, "
    "GPU 0 bidirectional bandwidth: 44.02 GB/s, GPU 0 GPU to Host latency:  1.522 us"
)
COMPUTED = (
    "GPU 0 Running with precisions: FP64 1, FP32 1, FP16 1, "
    "GPU 0 GPU 0 calculated at approximately 19455.25 gigaflops during this test"
)
THREE = table(
    row("Driver Version Detected", "560.35.03"), section("Deployment"), row("Denylist", "Pass"), row("Inforom", "Pass"),
    section("Integration"), row("PCIe", "Pass - All"), said("Info", LINKS), section("Hardware"),
    row("Diagnostic", "Pass - All"),
    said("Info", COMPUTED),
    section("Stress"), row("Targeted Stress", "Pass - All"), said("Info", "GPU 0 GPU 0 relative stress level 2048"),
)  # fmt: skip
FAILED = table(
    section("Deployment"), row("Page Retirement/Row Remap", "Fail"),
    said("Error", "GPU 2 has uncorrectable memory errors and row remappings are pending"),
    section("Integration"), row("PCIe", "Pass - GPUs: 0, 1, 3   "), row("", "Fail - GPU: 2   "),
    said("Warning", "GPU 2 Detected 11 PCIe replays per minute for GPU 2 : 11 Reconnect PCIe card."),
    section("Hardware"), row("GPU Memory", "Skip - All"), section("Stress"),
)  # fmt: skip
FOUR = table(
    section("Deployment"), row("software", "Pass"), row("", "GPU0: Pass"), row("", "GPU1: Pass"), section("Hardware"),
    row("memory", "Fail"), row("", "GPU0: Pass"), said("Info: GPU0", "Allocated 41943040000 bytes (97.1%)"),
    row("", "GPU1: Fail"), said("Warning: GPU1", "GPU 1 Memory test failed: 3 mismatches were found in its memory."),
    version="4.2.3",
)  # fmt: skip


def test_numbers_stand_in_texts_that_are_cut_anywhere():
    read = outcome(reader, THREE)
    assert read.status is Status.COMPLETE
    assert read.value("pcie_bandwidth", gpu="0", direction="h2d") == 24.86
    assert read.value("pcie_bandwidth", gpu="0", direction="bidirectional") == 44.02
    assert read.value("pcie_latency", gpu="0", direction="d2h") == 1.522
    assert read.value("compute_rate", test="Diagnostic") == 19455.25
    assert read.value("stress_level", gpu="0") == 2048
    assert (read.facts["root"], read.facts["version"], read.facts["driver"]) == ("table", "3.3.9", "560.35.03")
    assert list(read.facts["tests"]) == ["Denylist", "Inforom", "PCIe", "Diagnostic", "Targeted Stress"]
    assert reader.sniff(THREE) > 0.9


def test_who_failed_and_why():
    read = outcome(reader, FAILED)
    assert read.status is Status.FAILED
    assert read.facts["failed"] == ["PCIe", "Page Retirement/Row Remap"]
    assert read.facts["skipped"] == ["GPU Memory"]
    assert "row remappings are pending" in read.end.reason
    pcie = [one for one in read.facts["results"] if one["test"] == "PCIe"]
    assert [(one["status"], one["entities"]) for one in pcie] == [("Pass", ["0", "1", "3"]), ("Fail", ["2"])]
    assert pcie[1]["warnings"][0].endswith("Reconnect PCIe card.")


def test_dcgm_4_tells_each_gpu_below_the_test():
    read = outcome(reader, FOUR)
    assert read.facts["tests"]["memory"] == {"n": 2, "results": ["Pass", "Fail"], "summary": "Fail"}
    assert read.facts["tests"]["software"] == {"n": 2, "results": ["Pass", "Pass"], "summary": "Pass"}
    assert read.value("memory_allocated", gpu="0") == 41943040000
    assert read.end.reason.startswith("test memory failed on GPU 1: GPU 1 Memory test failed")
    assert outcome(reader, FOUR, {"tests": "software,memory", "gpus": 2}).status is Status.FAILED


def test_several_tables_are_several_runs():
    read = outcome(reader, THREE + THREE)
    assert read.facts["iterations"] == 2
    assert read.value("stress_level", run=1) == 2048
    assert outcome(reader, THREE + FAILED).status is Status.FAILED


@pytest.mark.parametrize("prefix", ["0: ", "[1,0]<stdout>:", "2026-01-02T03:04:05.123456789Z "])
def test_prefixes(prefix):
    lines = "".join(prefix + line for line in THREE.splitlines(keepends=True))
    assert outcome(reader, lines).rows() == outcome(reader, THREE).rows()


@pytest.mark.parametrize("text", [THREE, FAILED, FOUR], ids=["dcgm3", "failed", "dcgm4"])
def test_a_cut_table_is_never_called_complete(text):
    check_cuts(reader, text.encode(), most=400)
    assert outcome(reader, text[: -len(RULE)]).status in (Status.INCOMPLETE, Status.FAILED)


def hardware(*rows):
    return table(section("Deployment"), row("Denylist", "Pass"), section("Hardware"), *rows)


NEXT = row("Pulse Test", "Pass - All")
NINE = "0, 1, 2, 3, 4, 5, 6, 7, 8, 9,"


@pytest.mark.parametrize(
    "rows",
    [
        row("GPU Memory", "FAIL"),
        row("GPU Memory", "fail - all"),
        row("GPU Memory", "Failed"),
        row("GPU Memory", "Failure (2 errors)"),
        row("GPU Memory", "Fail - Switches: 0"),
        row("GPU Memory", f"Fail - GPUs: {NINE}") + row("", "10, 11"),
        row("A test whose name is wider than its column", "Fail - All"),
        "| GPU Memory | Fail - All |\n",
        "|GPU Memory|Fail|\n",
        row("GPU Memory", "Fail")[:40] + "\n",
        row("GPU Memory", "Fail - GPUs: 1, 2")[:43] + "\n",
        row("GPU Memory", "Fail").lstrip("| "),
        row("memory", "Pass") + row("", "GPU0: Failed"),
        row("memory", "Pass") + row("", "GPU0: FAIL"),
        row("memory", "Pass") + said("Info: GPU0", "Allocated 10 bytes (97.1%)") + row("", "GPU1: Failed"),
    ],
)
def test_a_failure_in_any_words_fails(rows):
    read = outcome(reader, hardware(rows, NEXT))
    assert read.status is Status.FAILED
    assert len(read.facts["failed"]) == 1
    assert outcome(reader, hardware(NEXT, rows)).status is Status.FAILED


@pytest.mark.parametrize(
    "rows",
    [
        row("memory", "Pass") + row("", "GPU0: Pass") + row("", "GPU1: Error"),
        row("memory", "Pass") + said("Info: GPU0", "Allocated 10 bytes (97.1%)") + row("", "GPU1: Error"),
        row("GPU Memory", "Pass - Switches: 0"),
        row("GPU Memory", "Unknown"),
        row("GPU Memory", ""),
        row("Error", "GPU 0 lost"),
        row("Warning", "GPU 0 is hot"),
        row("", "GPU1: Pass"),
        row("GPU Memory", "Pass - All")[:50] + "\n",
        row("GPU Memory", "Pass - All")[:20] + "\n",
        row("GPU Memory", f"Pass - GPUs: {NINE}"),
        row("GPU Memory", "Pass - All") + row("Warning: GPU0", "something is wrong"),
        row("GPU Memory", "Pass - All") + row("Warning", "something is wrong")[:40] + "\n",
    ],
)
@pytest.mark.parametrize("after", ["", NEXT])
def test_a_row_that_the_tool_does_not_print_is_no_pass(rows, after):
    assert outcome(reader, hardware(rows, after)).status is Status.INCOMPLETE


def test_statuses_in_any_case_are_the_same():
    assert outcome(reader, hardware(row("GPU Memory", "PASS - ALL"), NEXT)).status is Status.COMPLETE
    read = outcome(reader, hardware(row("GPU Memory", f"pass - gpus: {NINE}"), row("", " 10, 11"), NEXT), {"gpus": 12})
    assert read.status is Status.COMPLETE
    assert read.facts["tests"]["GPU Memory"]["results"] == ["Pass"]


def test_what_is_told_of_a_gpu_without_a_row_is_told_of_the_test():
    read = outcome(reader, hardware(row("GPU Memory", "Pass - All"), row("Warning: GPU7", "retired pages"), NEXT))
    assert read.facts["contradictions"] == {"GPU Memory": "retired pages"}


def test_metadata_of_any_name_is_no_test():
    read = outcome(
        reader, table(row("GPU Device IDs Detected", "2330,2330"), row("", ",2330"), section("Hardware"), NEXT)
    )
    assert read.status is Status.COMPLETE
    assert list(read.facts["tests"]) == ["Pulse Test"]


def test_a_number_in_a_torn_text_is_none():
    text = said("Info", "GPU 0 GPU 0 " + "x" * 9 + " relative stress level 2048")
    assert text.count("\n") == 2
    torn = text.splitlines()[0] + "\n" + text.splitlines()[1][:31] + "\n"
    read = outcome(reader, hardware(row("Targeted Stress", "Pass - All"), torn))
    assert read.status is Status.INCOMPLETE
    assert read.values("stress_level") == []


def test_every_run_of_an_output_counts():
    json_run = (DATA / "dcgmi_diag" / "dcgm4_level2.json").read_text()
    assert outcome(reader, json_run + FAILED).status is Status.FAILED
    assert outcome(reader, json_run + THREE).status is Status.COMPLETE
    prefixed = "".join(f"node2: {line}" for line in FAILED.splitlines(keepends=True))
    assert outcome(reader, THREE + prefixed).status is Status.FAILED
    headless = FAILED[FAILED.index("PCIe") - 2 :]
    assert outcome(reader, THREE + headless).status is Status.FAILED
    assert outcome(reader, THREE + headless.replace("Fail", "Pass")).status is Status.INCOMPLETE
    assert outcome(reader, json_run + headless.replace("Fail", "Pass")).status is not Status.COMPLETE


def test_the_work_grows_with_the_rows(monkeypatch):
    looked = 0

    class Rows(list):
        def __iter__(self):
            nonlocal looked
            for one in list.__iter__(self):
                looked += 1
                yield one

    counted = _dcgm_table._Table._noted

    def noted(self):
        self._rows, self._notes = Rows(self._rows), Rows(self._notes)
        return counted(self)

    monkeypatch.setattr(_dcgm_table._Table, "_noted", noted)
    many = 300
    rows = "".join(row("", f"GPU{at % 7}: Pass") for at in range(many))
    notes = "".join(row(name, "x") for name in ("Warning: GPU1", "Warning") for _ in range(many))
    read = outcome(reader, hardware(row("memory", "Fail"), rows, notes))
    assert read.status is Status.FAILED
    assert sum(len(one["warnings"]) for one in read.facts["results"]) == many
    assert many < looked < 20 * many
