"""gpu-burn's output, in the words of its printf formats: overwritten progress, verdicts, and lies of omission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers.infra_outputs import Outcome, outcome

from plumbline.errors import OutputError
from plumbline.readers import detect, gpu_burn
from plumbline.readers.reading import Status

DATA = Path(__file__).parents[1] / "data" / "gpu_burn"
FILES = sorted(DATA.iterdir())


def output_of(data: bytes | str, **expect: Any) -> Outcome:
    return outcome(gpu_burn, data, expect)


def text(name: str) -> str:
    return (DATA / name).read_bytes().decode()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_output_is_found_by_itself_and_in_known_units(path: Path) -> None:
    assert detect(path).NAME == "gpu_burn"
    assert output_of(path.read_bytes()).readings


def test_a_good_burn() -> None:
    output = output_of(text("good.txt"), gpus=2, duration_s=60, precision="floats", errors=0)
    assert output.status is Status.COMPLETE, output.end.reason
    assert output.value("gflops", gpu=0) == 48377
    assert output.value("gflops_median", gpu=0) == 48377
    assert output.value("gflops_max", gpu=0) == 48390
    assert output.value("gflops_min", gpu=1) == 47650
    assert output.value("temperature_max", gpu=1) == 64
    assert output.value("errors", gpu=1) == 0
    assert output.facts["precision"] == "FLOATS"
    assert output.facts["tensor_cores"] is True
    assert output.facts["progress_percent"] == 100
    assert [gpu["uuid"][:12] for gpu in output.facts["gpus"]] == ["GPU-00000000", "GPU-55555555"]


def test_errors_are_counted_over_the_summaries_that_reset_them() -> None:
    output = output_of(text("faulty.txt"))
    assert output.status is Status.FAILED
    assert output.value("errors", gpu=1) == 4 + 7
    assert output.facts["faulty"] == 1
    lying = text("faulty.txt").replace("FAULTY", "OK")
    assert output_of(lying).status is Status.FAILED, "errors count even when the verdict is lost"


def test_a_gpu_that_died_fails_although_the_verdict_says_ok() -> None:
    output = output_of(text("died.txt"))
    assert output.facts["verdicts"] == {"0": "OK", "1": "OK"}
    assert output.facts["died"] == 1
    assert output.status is Status.FAILED
    assert "the process of GPU 1 died" in output.end.reason


def test_a_count_that_ran_over_is_no_small_one_and_a_dead_process_has_none() -> None:
    over = output_of(text("faulty.txt").replace("0 - 7  (WARNING!)", "0 - -524288000  (WARNING!)"))
    assert over.value("errors", gpu=1) == 4 + 2**32 - 524288000
    line = (
        "50.0%  proc'd: 280 (48211 Gflop/s) - -1 (0 Gflop/s)   errors: 0 - 1641686072  (DIED!)  temps: 33 C - 29 C \n"
    )
    dead = output_of(line)
    assert dead.value("errors", gpu=1) == 0
    assert dead.facts["died"] == 1
    assert dead.status is Status.FAILED


@pytest.mark.parametrize(
    ("line", "rates"),
    [
        (
            "100.0%  proc'd: 840 (3310 Gflop/s)/ 820 (3204 Gflop/s)  errors: 0 / 3  (WARNING!)  temps: 70 C / -- ",
            [3310, 3204],
        ),
        ("100.0%  proc'd: 840 / 820   errors: 0 / 3  (WARNING!)  temps: 70 C / -- ", []),
    ],
    ids=["0.7", "0.5"],
)
def test_old_versions_part_gpus_by_slashes(line: str, rates: list[int]) -> None:
    whole = f"\r{line}\nKilling processes.. done\n\nTested 2 GPUs:\n\tGPU 0: OK\n\tGPU 1: FAULTY\n"
    assert gpu_burn.sniff(whole) > 0.9
    output = output_of(whole)
    assert [r.value for r in output.readings if r.indicator == "gflops"] == rates
    assert (output.value("iterations", gpu=0), output.value("errors", gpu=1)) == (840, 3)
    assert output.value("temperature", gpu=0) == 70
    assert output.end.reason == "GPU 1 is FAULTY; GPU 1 computed 3 wrong elements"
    good = whole.replace("3  (WARNING!)", "0 ").replace("FAULTY", "OK")
    assert output_of(good).status is Status.COMPLETE


def test_a_run_that_was_cut_is_missed_beside_a_whole_one() -> None:
    whole = text("good.txt")
    lines = whole.splitlines(keepends=True)
    alone = {(r.indicator, r.value, r.params["gpu"]) for r in output_of(whole).readings}
    for kept in range(1, len(lines) - 2):
        cut = "".join(lines[:kept])
        for place, both in enumerate((cut + whole, whole + cut)):
            output = output_of(both)
            assert output.status is Status.INCOMPLETE, kept
            if not place:
                assert output.facts["duration_s"] == 60
            assert output.end.reason.startswith(f"run {place}: "), output.end.reason
            at = {"run": 1 - place}
            assert {
                (r.indicator, r.value, r.params["gpu"]) for r in output.readings if at.items() <= r.params.items()
            } == alone


def test_progress_that_goes_back_is_another_run() -> None:
    lines = text("good.txt").splitlines(keepends=True)
    progress = [line for line in lines if "proc'd" in line]
    output = output_of("".join([*progress[:3], *lines[lines.index(progress[0]) :]]))
    assert output.end.reason == "run 0: it stops before the verdict"
    assert output.value("iterations", gpu=0, run=1) == 2240


def test_what_each_process_of_a_run_prints_again_is_no_other_run() -> None:
    """Standard output into a pipe: what stood in the buffer when a process began comes again with its own lines."""
    lines = text("good.txt").splitlines(keepends=True)
    start, listed, first, second = lines[:2], lines[2:4], lines[4:6], lines[6:8]
    piped = "".join([*listed, *lines[8:13], *start, *first, *start, *second, *start, *lines[13:]])
    assert output_of(piped, gpus=2, duration_s=60, precision="floats").status is Status.COMPLETE
    output = output_of("".join([*listed, *lines]))  # somebody listed the GPUs before
    assert output.status is Status.COMPLETE, output.end.reason


def test_a_gpu_that_did_nothing_is_not_ok() -> None:
    idle = text("good.txt").replace("280 (47650", "0 (0").replace("1120 (47702", "0 (0").replace("1960 (47698", "0 (0")
    output = output_of(idle)
    assert output.status is Status.INCOMPLETE
    assert "GPU 1 did no work" in output.end.reason
    assert not [r for r in output.readings if r.indicator == "gflops" and r.params["gpu"] == 1]


def test_no_verdict_no_result() -> None:
    whole = text("good.txt")
    assert output_of(whole[: whole.index("Tested")]).status is Status.INCOMPLETE
    assert output_of(whole[: whole.index("\tGPU 1")]).status is Status.INCOMPLETE
    assert output_of(whole.replace("Tested 2", "Tested 3")).status is Status.INCOMPLETE
    assert output_of(whole.replace("proc'd", "procd")).status is Status.INCOMPLETE
    assert output_of("Burning for 60 seconds.\n").status is Status.NOT_STARTED


@pytest.mark.parametrize(
    "message",
    [
        'Couldn\'t init a GPU test: Error in "init" (gpu_burn-drv.cpp:80): out of memory\n',
        "No CUDA devices\n",
        "\n\nNo clients are alive!  Aborting\n",
        "gpu_burn: error while loading shared libraries: libcublas.so.12: cannot open shared object file\n",
    ],
)
def test_what_it_says_when_it_cannot_run(message: str) -> None:
    output = output_of(message)
    assert output.status is Status.FAILED
    assert output.readings == []


def test_missing_temperatures_are_absent() -> None:
    output = output_of(
        "Could not invoke nvidia-smi, no temps available\n" + text("good.txt").replace("66 C - 64 C", "-- - --")
    )
    assert output.status is Status.COMPLETE
    assert output.value("temperature", gpu=0) == 63


@pytest.mark.parametrize(
    ("expect", "status"),
    [
        ({"gpus": 8}, Status.INCOMPLETE),
        ({"duration_s": 3600}, Status.FAILED),
        ({"precision": "DOUBLES"}, Status.FAILED),
    ],
)
def test_expectations(expect: dict[str, Any], status: Status) -> None:
    assert output_of(text("good.txt"), **expect).status is status


def test_a_progress_line_that_other_output_overwrote_is_not_read() -> None:
    torn = text("good.txt").replace("2240 (48377 Gflop/s) - 1960", "2240 (4837Freed memory for dev 0\n - 1960")
    output = output_of(torn)
    assert output.value("gflops", gpu=0) == 48390
    assert output.status is Status.COMPLETE


def test_two_burns_in_one_file() -> None:
    output = output_of(text("good.txt") + text("faulty.txt"))
    assert output.status is Status.FAILED
    assert output.value("gflops", gpu=0, run=0) == 48377
    assert output.value("errors", gpu=1, run=1) == 11
    assert output.facts["ok"] == 3


@pytest.mark.parametrize("prefix", ["2026-01-01T00:00:00.123456789Z stdout F ", "[1,0]<stdout>:"])
def test_prefixes(prefix: str) -> None:
    framed = "".join(prefix + line + "\n" for line in text("good.txt").replace("\r", "\n").split("\n"))
    assert {(r.indicator, r.value) for r in output_of(framed).readings} == {
        (r.indicator, r.value) for r in output_of(text("good.txt")).readings
    }


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_cut_output_is_never_complete(path: Path) -> None:
    data = path.read_bytes()
    whole = output_of(data)
    for point in range(len(data)):
        try:
            output = output_of(data[:point])
        except OutputError:
            continue
        if output.status is Status.COMPLETE:
            assert len(output.readings) == len(whole.readings)
            assert output.facts["ok"] == whole.facts["ok"]


@pytest.mark.parametrize("garbage", ["", "hello\n", "GPU 0: OK\n", "{}\n"])
def test_what_is_not_gpu_burn_is_refused(garbage: str) -> None:
    with pytest.raises(OutputError):
        output_of(garbage)


LINES = st.sampled_from([line for path in FILES for line in path.read_bytes().decode().splitlines(keepends=True)])


@settings(max_examples=150, deadline=None)
@given(st.lists(LINES | st.text(max_size=10), max_size=20))
def test_any_mixture_of_lines_is_read_or_refused(lines: list[str]) -> None:
    try:
        output = output_of("".join(lines))
    except OutputError:
        return
    assert all(reading.value >= 0 for reading in output.readings)
