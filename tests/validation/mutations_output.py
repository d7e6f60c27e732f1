"""Mutations of what the tools print: the record lists the file as it is, so only its content can tell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from tests.validation.mutant_night import FIO, HPL, NCCL, NCCL_ONE, TABLE, Broken, cells, last, rows_of, scaled
from tests.validation.mutation import Mutation

from plumbline.model import Code

Text = Callable[[str], str]


def table(name: str, change: Text, *codes: Code, launch: str = NCCL) -> Mutation:
    return Mutation(name=name, codes=codes, apply=lambda night: night.output(launch, TABLE, change), where="raw output")


def hpl(name: str, change: Text, *codes: Code) -> Mutation:
    return Mutation(name=name, codes=codes, apply=lambda night: night.output(HPL, "stdout", change), where="raw output")


def set_cell(at: int, text: str) -> Text:
    return lambda printed: cells(printed, lambda row: [*row[:at], text, *row[at + 1 :]], last)


def swap(one: int, other: int) -> Text:
    def swapped(row: list[str]) -> list[str]:
        found = list(row)
        found[one], found[other] = row[other], row[one]
        return found

    return lambda printed: cells(printed, swapped)


def times(at: tuple[int, ...], factor: float) -> Text:
    def grown(row: list[str]) -> list[str]:
        return [f"{float(cell) * factor:.2f}" if index in at else cell for index, cell in enumerate(row)]

    return lambda printed: cells(printed, grown)


def without_row(number: int) -> Text:
    return lambda printed: printed.replace(rows_of(printed)[number] + "\n", "")


def from_table(printed: str) -> str:
    return printed[: printed.index(rows_of(printed)[0])]


def slower(factor: float) -> Text:
    return lambda printed: cells(printed, lambda row: scaled(row, factor))


def fewer_ranks(printed: str) -> str:
    return re.sub(r"#  Rank (?: 8| 9|1\d) .*\n", "", printed)


def _copy_of_one_node(night: Broken) -> None:
    night.output(NCCL, TABLE, lambda _: night.raw(NCCL_ONE, TABLE).read_text())


def _fio(change: Callable[[dict[str, Any]], object]) -> Callable[[Broken], None]:
    def apply(night: Broken) -> None:
        folder = night.raw(FIO, "")
        name = min(p.name for p in folder.glob("fio-seq_read-*-c0.json"))

        def edit(printed: str) -> str:
            data = json.loads(printed)
            change(data["jobs"][0])
            return json.dumps(data)

        night.output(FIO, name, edit)

    return apply


def _fio_removed(night: Broken) -> None:
    min(night.raw(FIO, "").glob("fio-rand_read-*-c0.json")).unlink()
    night.relist(FIO)


def _fio_cut(night: Broken) -> None:
    name = min(p.name for p in night.raw(FIO, "").glob("fio-seq_write-*-c0.json"))
    night.output(FIO, name, lambda printed: printed[: len(printed) // 2])


def _printed_at_once(launch: str) -> Callable[[Broken], None]:
    """The program prints what an earlier launch of the night before printed, and exits: nothing is measured."""

    def apply(night: Broken) -> None:
        data = night.read_record(launch)
        began = datetime.fromisoformat(data["started_at"])
        ended = (began + timedelta(seconds=0.02)).isoformat()
        night.record(launch, ended_at=ended, duration_s=0.02)

    return apply


def _fio_of_the_night_before(night: Broken) -> None:
    """Every file of the launch tells of the day before, and the launch takes as long as it should."""
    moment = re.compile(r"(?<![\d.])1[78]\d{11}\b")  # epoch milliseconds, of reports and logs
    for path in night.raw(FIO, "").glob("fio-*-c*"):
        path.write_text(moment.sub(lambda m: str(int(m[0]) - 86_400_000), path.read_text()))
    night.relist(FIO)


def _fio_elsewhere(night: Broken) -> None:
    """fio opened files of another directory, and the facts say the one that was asked for."""
    for path in night.raw(FIO, "").glob("fio-*-c*.json"):
        path.write_text(path.read_text().replace("/mnt/shared/", "/tmp/"))
    night.relist(FIO)


def _fio_asked_elsewhere(night: Broken) -> None:
    for path in night.raw(FIO, "").glob("fio-facts-*.json"):
        path.write_text(path.read_text().replace('"/mnt/shared"', '"/dev/shm"', 1))
    night.relist(FIO)


NOT_WHOLE = (Code.INCOMPLETE_OUTPUT, Code.NO_MEASUREMENT)

TABLES = (
    table("the table ends after its second row", lambda t: t[: t.index(rows_of(t)[2])], *NOT_WHOLE),
    table("the table ends in the middle of a number", lambda t: t[: t.index(rows_of(t)[3]) + 52], *NOT_WHOLE),
    table("only the banner is there", from_table, *NOT_WHOLE, Code.ABORTED),
    table("the file is empty", lambda _: "", Code.UNREADABLE, *NOT_WHOLE),
    table("the file is not text", lambda _: "\x00\x01\x02" * 999, Code.UNREADABLE, *NOT_WHOLE),
    table("the footer is missing", lambda t: t[: t.index("# Out of bounds")], *NOT_WHOLE),
    table("a middle size is missing", without_row(1), *NOT_WHOLE),
    table("the largest size is missing", without_row(3), *NOT_WHOLE),
    table("every row is there twice", lambda t: re.sub(r"(?m)^( +\d+ +\d+ +float .*)$", r"\1\n\1", t), Code.DUPLICATE,
          *NOT_WHOLE),
    table("the whole output is there twice, the second better", lambda t: t + slower(0.97)(t), Code.DUPLICATE,
          Code.INCOMPLETE_OUTPUT),
    table("bus bandwidth is nan", set_cell(7, "nan"), *NOT_WHOLE, Code.NOT_A_NUMBER),
    table("bus bandwidth is inf", set_cell(7, "inf"), *NOT_WHOLE, Code.NOT_A_NUMBER),
    table("bus bandwidth is -1", set_cell(7, "-1.00"), Code.IMPOSSIBLE_VALUE, *NOT_WHOLE),
    table("bus bandwidth is 0", set_cell(7, "0.00"), Code.OUTSIDE_REFERENCE, Code.IMPOSSIBLE_VALUE),
    table("bus bandwidth is empty", lambda t: cells(t, lambda row: [*row[:7], *row[8:]], last), *NOT_WHOLE,
          Code.IMPOSSIBLE_VALUE),
    table("bus bandwidth alone is ten times as high", times((7,), 10), Code.IMPOSSIBLE_VALUE),
    table("everything is ten times as fast", slower(0.1), Code.ABOVE_CEILING),
    table("bandwidths are in Gbit/s", times((6, 7, 10, 11), 8), Code.IMPOSSIBLE_VALUE, Code.ABOVE_CEILING),
    table("times are in ms", times((5, 9), 0.001), Code.IMPOSSIBLE_VALUE),
    table("time and algorithm bandwidth are swapped", swap(5, 6), Code.IMPOSSIBLE_VALUE),
    table("algorithm and bus bandwidth are swapped", swap(6, 7), Code.IMPOSSIBLE_VALUE),
    table("one element is wrong", set_cell(8, "1"), Code.WRONG_RESULT),
    table("results were not checked", lambda t: cells(t, lambda row: [*row[:8], "N/A", *row[9:12], "N/A"]),
          Code.WRONG_PARAMETERS),
    table("the footer says FAILED", lambda t: t.replace("values : 0 OK", "values : 4 FAILED"), Code.WRONG_RESULT,
          Code.BENCHMARK_FAILED),
    table("half of the ranks are missing", fewer_ranks, Code.MISSING_RANK),
    table("all ranks are on one host", lambda t: re.sub(r"on +n\d{4} ", "on n0001 ", t), Code.MISSING_RANK),
    table("it is another operation's table", lambda t: t.replace("all_reduce_perf", "all_gather_perf"), *NOT_WHOLE,
          Code.IMPOSSIBLE_VALUE),
    table("another data type", lambda t: t.replace(" float ", "  half "), Code.WRONG_PARAMETERS),
    table("fewer iterations", lambda t: t.replace("iters: 20 ", "iters: 1 "), Code.WRONG_PARAMETERS),
    table("a seventh slower than its reference", slower(1.15), Code.OUTSIDE_REFERENCE, Code.WORSE_THAN_BASELINE),
    table("latency three times as high", lambda t: cells(t, lambda row: scaled(row, 3), lambda n: n == 0),
          Code.WORSE_THAN_BASELINE),
    table("one node slower than its peers", slower(1.12), Code.WORSE_THAN_PEERS, Code.OUTSIDE_REFERENCE,
          launch=NCCL_ONE),
    Mutation(name="one node's output in the place of two nodes'", codes=(Code.MISSING_RANK,), apply=_copy_of_one_node,
             where="raw output"),
)  # fmt: skip

MATRICES = (
    hpl("the residual check FAILED", lambda t: t.replace("PASSED", "FAILED"), Code.RESIDUAL_FAILED),
    hpl("the residual is above its bound, yet PASSED",
        lambda t: re.sub(r"\d\.\d+E-04(\s*\.+ ?PASSED)", r"9.9E+02\1", t), Code.RESIDUAL_FAILED),
    hpl("the reportable figure is missing", lambda t: re.sub(r" +GFLOPS = .*report\n", "", t), *NOT_WHOLE),
    hpl("the output ends before the result", lambda t: t[: t.index("HPL MxP Result")], *NOT_WHOLE, Code.ABORTED),
    hpl("another matrix", lambda t: t.replace("368640", "36864"), Code.WRONG_PARAMETERS, Code.UNPLANNED),
    hpl("another precision", lambda t: t.replace("FP16", "FP8"), Code.WRONG_PARAMETERS, Code.UNPLANNED),
    hpl("a rate above the dense peak", lambda t: re.sub(r"GFLOPS = 1\.", "GFLOPS = 91.", t), Code.ABOVE_CEILING,
        Code.IMPOSSIBLE_VALUE),
    hpl("half the rate", lambda t: re.sub(r"( GFLOPS = )(\d\.\d+)(e\+06, per GPU = +)([\d.]+)( -+ The HPL)",
                                          lambda m: f"{m[1]}{float(m[2]) / 2:.4f}{m[3]}{float(m[4]) / 2:.2f}{m[5]}", t),
        Code.OUTSIDE_REFERENCE),
)  # fmt: skip

DISKS = (
    Mutation(name="a client's file is missing", codes=NOT_WHOLE, apply=_fio_removed, where="raw output"),
    Mutation(name="a client's file is cut", codes=(*NOT_WHOLE, Code.UNREADABLE), apply=_fio_cut, where="raw output"),
    Mutation(
        name="a client had I/O errors",
        codes=(Code.STORAGE_UNAVAILABLE, Code.BENCHMARK_FAILED),
        apply=_fio(lambda job: job.update(error=5)),
        where="raw output",
    ),
    Mutation(
        name="a client's bytes are more than its rate by its runtime",
        codes=NOT_WHOLE,
        apply=_fio(lambda job: job["read"].update(io_bytes=int(job["read"]["io_bytes"] * 1.38))),
        where="raw output",
    ),
    Mutation(name="fio's files lie in another directory", codes=(Code.WRONG_PARAMETERS,), apply=_fio_elsewhere,
             where="raw output"),
    Mutation(name="another directory was asked for", codes=(Code.WRONG_PARAMETERS,), apply=_fio_asked_elsewhere,
             where="raw output"),
)  # fmt: skip

EARLIER = (
    Mutation(name="fio's files are of the night before", codes=(Code.OLD_OUTPUT,), apply=_fio_of_the_night_before,
             where="raw output"),
    *(
        Mutation(name=f"{launch.partition('-')[0]} prints an earlier launch's output and exits at once",
                 codes=(Code.OLD_OUTPUT,), apply=_printed_at_once(launch), where="raw output")
        for launch in (FIO, HPL, NCCL)
    ),
)  # fmt: skip
