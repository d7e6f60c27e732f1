"""The torch.distributed program: real processes, real checks, and its table read back."""

from __future__ import annotations

import subprocess

import pytest
from tests.bench_programs.bench_python import NEEDED, run_python

from plumbline.readers import Completeness, Fact, Reading, Source, Status, read

pytestmark = NEEDED


def start(*arguments: str, code: str | None = None) -> subprocess.CompletedProcess[str]:
    return run_python(*(("-c", code) if code else ("-m", "plumbline_bench.collectives")), *arguments)


SMALL = ("--min-bytes", "8K", "--max-bytes", "32K", "--warmup", "1", "--iterations", "2")


@pytest.fixture(scope="module")
def two_ranks() -> subprocess.CompletedProcess[str]:
    return start("--nodes", "2", "--in-place", "1", *SMALL)


def test_all_operations_are_measured_checked_and_read_back(two_ranks):
    assert two_ranks.returncode == 0, two_ranks.stderr
    items = list(
        read("nccl_tests", Source.of_text(two_ranks.stdout), {"nranks": 2, "check": 1, "min_bytes": 8192, "rows": 3})
    )
    status = items[-1]
    assert isinstance(status, Completeness)
    assert status.status is Status.COMPLETE, status.reason
    facts = {item.name: item.value for item in items if isinstance(item, Fact)}
    assert facts["operations"] == ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"]
    assert (facts["rows"], facts["nranks"], facts["wrong_or_error_max"]) == (15, 2, 0.0)
    assert facts["program"].startswith("plumbline collectives: torch ")
    assert "backend gloo, device cpu, loopback only" in facts["program"]
    readings = [item for item in items if isinstance(item, Reading)]
    places = {(r.params["operation"], r.params["in_place"]) for r in readings if r.indicator == "time"}
    assert {name for name, in_place in places if in_place} == {"all_reduce", "all_gather"}
    assert all(r.value > 0 for r in readings if r.indicator in ("time", "algorithm_bandwidth"))


def test_bandwidths_follow_from_times(two_ranks):
    factors = {"all_reduce": 1.0, "all_gather": 0.5, "reduce_scatter": 0.5, "alltoall": 0.5, "sendrecv": 1.0}
    rows: dict[tuple, dict[str, float]] = {}
    for item in read("nccl_tests", Source.of_text(two_ranks.stdout)):
        if isinstance(item, Reading) and "message_bytes" in item.params:
            key = (item.params["operation"], item.params["message_bytes"], item.params["in_place"])
            rows.setdefault(key, {})[item.indicator] = item.value
    assert len(rows) == 21
    for (operation, size, _), cells in rows.items():
        assert cells["algorithm_bandwidth"] == pytest.approx(size / cells["time"] / 1e3, rel=0.002, abs=6e-5)
        assert cells["bus_bandwidth"] == pytest.approx(cells["algorithm_bandwidth"] * factors[operation], abs=1.1e-4)


def test_sizes_of_three_ranks_are_whole_shares():
    done = start("--nodes", "3", "--operations", "all_gather,alltoall", "--dtype", "half", *SMALL)
    assert done.returncode == 0, done.stderr
    items = list(read("nccl_tests", Source.of_text(done.stdout), {"max_bytes": 32768, "min_bytes": 8192}))
    assert items[-1].status is Status.COMPLETE, items[-1].reason
    sizes = {item.params["message_bytes"] for item in items if isinstance(item, Reading) and item.params.get("count")}
    assert sizes == {8160, 16368, 32736}


CHECKS = """
import torch
from plumbline_bench.collective_operations import *
for dtype in DTYPES.values():
    for operation in OPERATIONS.values():
        for ranks in (1, 2, 5):
            wanted = expected(operation, 8, ranks - 1, ranks, dtype)
            assert wanted.numel() == output_count(operation, 8, ranks), operation.name
            assert wrong_elements(wanted.clone(), wanted) == 0
            for at in range(wanted.numel()):
                damaged = wanted.clone()
                damaged[at] += 1
                assert wrong_elements(damaged, wanted) == 1, (operation.name, dtype)
            assert wrong_elements(torch.full_like(wanted, -1), wanted) == wanted.numel()
nan = torch.tensor([float("nan"), 1.0])
assert wrong_elements(nan, torch.tensor([1.0, 1.0])) == 1
inputs = [fill(64, rank, 4, torch.float16) for rank in range(4)]
assert all((a != b).any() for i, a in enumerate(inputs) for b in inputs[:i]), "ranks must differ"
exact = sum(values.to(torch.int64) for values in inputs)
assert (expected(OPERATIONS["all_reduce"], 64, 0, 4, torch.float16).to(torch.int64) == exact).all()
print("checked")
"""


BROKEN = """
import sys, torch.distributed as dist
import plumbline_bench.collectives as program
from plumbline_bench.collective_operations import OPERATIONS, Operation
import dataclasses
def lazy(output, source):
    output.copy_(source)
    if dist.get_rank() == 1:
        output[3] = -5
    dist.barrier()
program.OPERATIONS["all_reduce"] = dataclasses.replace(OPERATIONS["all_reduce"], run=lazy)
sys.exit(program.run(program.parse_options(sys.argv[1:])))
"""


def test_a_collective_that_does_not_communicate_fails_its_check():
    done = start("--nodes", "2", "--operations", "all_reduce", *SMALL, code=BROKEN)
    assert done.returncode == 1
    items = list(read("nccl_tests", Source.of_text(done.stdout)))
    assert items[-1].status is Status.FAILED
    assert sum(item.value for item in items if isinstance(item, Reading) and item.indicator == "wrong") > 0


CRASHING = BROKEN.replace("output.copy_(source)", "assert dist.get_rank() == 0, 'lost'")


def test_a_rank_that_dies_ends_the_run_and_no_table_is_complete():
    done = start("--nodes", "2", "--operations", "all_reduce", *SMALL, code=CRASHING)
    assert done.returncode == 2
    assert "plumbline: error: rank" in done.stderr
    assert "# Collective test starting: all_reduce" in done.stdout, "what was about to run is said first"
    items = list(read("nccl_tests", Source.of_text(done.stdout)))
    assert items[-1].status in (Status.INCOMPLETE, Status.NOT_STARTED)


ARGUMENTS = """
import contextlib, io, plumbline_bench.collectives as program
for arguments, sentence in (
    (["--nodes", "0"], "must be at least 1"),
    (["--nodes", "2", "--operations", "allreduce"], "no operation 'allreduce'; known: all_reduce"),
    (["--nodes", "2", "--min-bytes", "1M", "--max-bytes", "1K"], "is larger than"),
    (["--nodes", "2", "--max-bytes", "much"], "not a size in bytes: 'much'"),
):
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            program.parse_options(arguments)
        except SystemExit as end:
            assert end.code == 2
        else:
            raise AssertionError(arguments)
    assert sentence in said.getvalue(), said.getvalue()
print("refused")
"""


def test_wrong_arguments_are_named_and_wrong_elements_are_found():
    """One process start for both: importing torch takes seconds."""
    done = start(code=CHECKS + ARGUMENTS)
    assert done.stdout == "checked\nrefused\n", done.stderr
