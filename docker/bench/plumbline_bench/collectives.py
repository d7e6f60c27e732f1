"""Collective operations over torch.distributed, reported as nccl-tests reports them.

One process is one rank: an emulated node on CPU (backend gloo, loopback only), or a GPU (backend nccl) where CUDA is
there. All operations run in one process start. The table is nccl-tests' so that one reader serves both; the comment
lines above it say what really ran. Bandwidths have up to four decimals: loopback is slow.

The time of a row is the mean of its iterations on each rank, then the maximum over the ranks, as
nccl-tests reports with `-a 3`. Out of place, all_reduce is torch's in-place operation on a fresh copy of the input.

    python -m plumbline_bench.collectives --nodes 4 --operations all_reduce,all_gather --min-bytes 8K --max-bytes 16M
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

import torch
import torch.distributed as dist

from plumbline_bench.collective_operations import (
    DTYPES,
    OPERATIONS,
    Operation,
    count_of,
    expected,
    fill,
    input_count,
    output_count,
    sizes,
    wrong_elements,
)

_WRONG_RESULTS = 7
"""How a rank ends when results were wrong; nccl-tests' own status for it. A rank that crashes ends otherwise."""
_SUFFIXES = {"K": 10, "M": 20, "G": 30}


@dataclass(slots=True, kw_only=True)
class Bench:
    """One rank's measuring: its place, its device and how often to run."""

    rank: int
    ranks: int
    device: torch.device
    dtype: torch.dtype
    warmup: int
    iterations: int
    check: bool

    def buffers(self, operation: Operation, count: int, in_place: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Give (output, input), the input filled, the output holding -1. In place they share memory."""
        source = fill(input_count(operation, count, self.ranks), self.rank, self.ranks, self.dtype).to(self.device)
        if in_place and operation.name == "all_reduce":
            return source, source
        output = torch.full((output_count(operation, count, self.ranks),), -1, dtype=self.dtype, device=self.device)
        if in_place:
            mine = output[self.rank * count : (self.rank + 1) * count]
            mine.copy_(source)
            return output, mine
        return output, source

    def synchronize(self) -> None:
        """Wait for the device, then for all ranks."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        dist.barrier()

    def time_s(self, operation: Operation, count: int, in_place: bool) -> float:
        """Give the mean time of one operation on the slowest rank, in seconds."""
        output, source = self.buffers(operation, count, in_place)
        for _ in range(self.warmup):
            operation.run(output, source)
        self.synchronize()
        begin = time.perf_counter()
        for _ in range(self.iterations):
            operation.run(output, source)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        mean = (time.perf_counter() - begin) / self.iterations
        return float(self._over_ranks(mean, dist.ReduceOp.MAX))

    def wrong(self, operation: Operation, count: int, in_place: bool) -> int | None:
        """Run once on fresh values and count the wrong elements of all ranks; None when checks are off."""
        if not self.check:
            return None
        output, source = self.buffers(operation, count, in_place)
        operation.run(output, source)
        self.synchronize()
        wanted = expected(operation, count, self.rank, self.ranks, self.dtype)
        return int(self._over_ranks(wrong_elements(output, wanted), dist.ReduceOp.SUM))

    def _over_ranks(self, value: float, how: dist.ReduceOp.RedOpType) -> float:
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.all_reduce(shared, op=how)
        return shared.item()


# ---------------------------------------------------------------------------------------------------------------
# The report


def _text_of(value: float, width: int, decimals: int) -> str:
    """Write a number with at most so many decimals, fewer where the width has no room, as nccl-tests does."""
    for places in range(decimals, -1, -1):
        text = f"{value:{width}.{places}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.0e}"


class Report:
    """Writes the table of one operation; only rank 0 has one."""

    def __init__(self, options: argparse.Namespace, operation: Operation, places: Sequence[bool]) -> None:
        """Write everything above the rows."""
        self._operation = operation
        self._dtype = options.dtype
        self._busbw: list[float] = []
        self._bad_rows = 0
        print(f"# Collective test starting: {operation.name}")
        print(
            f"# nThread 1 nGpus 1 minBytes {options.min_bytes} maxBytes {options.max_bytes} "
            f"step: {options.step_factor}(factor) warmup iters: {options.warmup} iters: {options.iterations} "
            f"agg iters: 1 validation: {options.check} graph: 0"
        )
        print("#\n# Using devices")
        for rank, (pid, host, device, model) in enumerate(options.places):
            place = f"Pid {pid:6d} on {host:>10} device {device:2d} [{options.device}]"
            print(f"#  Rank {rank:2d} Group {0:2d} {place} {model}")
        names = {False: "out-of-place", True: "in-place"}
        print("#\n#" + " " * 62 + (" " * 23).join(f"{names[place]:<12}" for place in places))
        group = "     time   algbw   busbw  #wrong"
        units = "     (us)  (GB/s)  (GB/s)        "
        print("#       size         count      type   redop    root" + group * len(places))
        print("#        (B)    (elements)                        " + "  " + units * len(places), flush=True)

    def row(self, size: int, count: int, cells: Sequence[tuple[float, float, float, int | None]]) -> None:
        """Write one row; each placement has (time in us, algorithm and bus bandwidth in GB/s, wrong elements)."""
        line = f"{size:12d}  {count:12d}  {self._dtype:>8}  {self._operation.redop:>6}  {-1:6d}"
        for time_us, algbw, busbw, wrong in cells:
            line += f"  {_text_of(time_us, 7, 2)}  {_text_of(algbw, 6, 4)}  {_text_of(busbw, 6, 4)}"
            line += f"  {'N/A':>6}" if wrong is None else f"  {wrong:6g}"
            self._busbw.append(busbw)
            self._bad_rows += bool(wrong)
        print(line, flush=True)

    def close(self) -> int:
        """Write everything below the rows. Gives the number of measurements with wrong results."""
        print(f"# {'Out of bounds values':<20} : {self._bad_rows} {'FAILED' if self._bad_rows else 'OK'}")
        print(f"# {'Avg bus bandwidth':<20} : {sum(self._busbw) / len(self._busbw):g} ")
        print(f"#\n# Collective test concluded: {self._operation.name}\n#\n", flush=True)
        return self._bad_rows


def measure(bench: Bench, options: argparse.Namespace, operation: Operation) -> int:
    """Sweep one operation. Gives the number of measurements with wrong results (0 on ranks other than 0)."""
    places = (False, True) if options.in_place and operation.in_place else (False,)
    report = Report(options, operation, places) if bench.rank == 0 else None
    bench.synchronize()  # what is about to run is said before any rank can die of it
    element_bytes = bench.dtype.itemsize
    for asked in sizes(options.min_bytes, options.max_bytes, options.step_factor):
        count = count_of(operation, asked, bench.ranks, element_bytes)
        size = count * element_bytes * (bench.ranks if operation.divided else 1)
        cells = []
        for place in places:
            seconds = bench.time_s(operation, count, place)
            wrong = bench.wrong(operation, count, place)
            algbw = size / seconds / 1e9
            cells.append((seconds * 1e6, algbw, algbw * operation.factor(bench.ranks), wrong))
        if report is not None:
            report.row(size, count, cells)
    return report.close() if report is not None else 0


# ---------------------------------------------------------------------------------------------------------------
# Processes


def _device_of(options: argparse.Namespace, rank: int) -> tuple[torch.device, str]:
    if options.device == "cpu":
        return torch.device("cpu"), _cpu_model()
    torch.cuda.set_device(rank)
    return torch.device("cuda", rank), torch.cuda.get_device_name(rank)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "CPU"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "CPU")


def rank_main(rank: int, options: argparse.Namespace, rendezvous: str) -> None:
    """Run one rank from start to end; it exits with 7 when a result was wrong."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a killed run leaves no rank behind
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(1)
    device, model = _device_of(options, rank)
    dist.init_process_group(options.backend, init_method=f"file://{rendezvous}", rank=rank, world_size=options.nodes)
    options.places = [None] * options.nodes
    dist.all_gather_object(options.places, (os.getpid(), socket.gethostname().split(".")[0], device.index or 0, model))
    bench = Bench(
        rank=rank,
        ranks=options.nodes,
        device=device,
        dtype=DTYPES[options.dtype],
        warmup=options.warmup,
        iterations=options.iterations,
        check=bool(options.check),
    )
    if rank == 0:
        where = ", loopback only" if options.backend == "gloo" else ""
        what = f"torch {torch.__version__}, backend {options.backend}, device {options.device}"
        print(f"# plumbline collectives: {what}{where}")
        print("# time: mean of the iterations, then maximum over the ranks", flush=True)
    bad = sum([measure(bench, options, OPERATIONS[name]) for name in options.operations])
    dist.barrier()
    dist.destroy_process_group()
    sys.exit(_WRONG_RESULTS if bad else 0)


def run(options: argparse.Namespace) -> int:
    """Start one process a rank and wait. Gives 0, 1 when results were wrong, 2 when a rank failed (all are killed)."""
    if options.backend == "gloo":
        os.environ["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
    # torch is imported once, here; forked ranks have it at once. CUDA is not touched before the fork.
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="plumbline-collectives-") as folder:
        ranks = [
            context.Process(target=rank_main, args=(rank, options, f"{folder}/store"), daemon=True)
            for rank in range(options.nodes)
        ]
        for process in ranks:
            process.start()
        running = {process.sentinel: (rank, process) for rank, process in enumerate(ranks)}
        wrong = False
        while running:
            for ended in wait(list(running)):
                rank, process = running.pop(ended)  # type: ignore[index]
                process.join()
                if process.exitcode not in (0, _WRONG_RESULTS):
                    print(f"plumbline: error: rank {rank} ended with status {process.exitcode}", file=sys.stderr)
                    for other in ranks:
                        other.kill()
                    return 2
                wrong = wrong or process.exitcode == _WRONG_RESULTS
    return int(wrong)


def _bytes(text: str) -> int:
    suffix = text[-1:].upper()
    try:
        value = int(text[:-1]) << _SUFFIXES[suffix] if suffix in _SUFFIXES else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a size in bytes: {text!r}; write 8192, 8K, 16M or 1G") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"a size must be at least 1 byte: {text!r}")
    return value


def _operations(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in OPERATIONS:
            raise argparse.ArgumentTypeError(f"no operation {name!r}; known: {', '.join(OPERATIONS)}")
    if not names:
        raise argparse.ArgumentTypeError("name at least one operation")
    return names


def _at_least(least: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {value}")
        return value

    return whole


def parse_options(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line. Exits with status 2 and a sentence when it is wrong."""
    parser = argparse.ArgumentParser(prog="plumbline_bench.collectives", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--nodes", type=_at_least(1), required=True, help="ranks: emulated nodes, or GPUs")
    parser.add_argument("--operations", type=_operations, default=list(OPERATIONS), help="comma-separated")
    parser.add_argument("--min-bytes", type=_bytes, default=8 << 10)
    parser.add_argument("--max-bytes", type=_bytes, default=16 << 20)
    parser.add_argument("--step-factor", type=_at_least(2), default=2)
    parser.add_argument("--warmup", type=_at_least(0), default=5)
    parser.add_argument("--iterations", type=_at_least(1), default=20)
    parser.add_argument(
        "--check", type=int, choices=(0, 1), default=1, help="1: check every result, count wrong elements"
    )
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="float")
    parser.add_argument("--in-place", type=int, choices=(0, 1), default=0, help="1: also measure in place")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    options = parser.parse_args(arguments)
    if options.min_bytes > options.max_bytes:
        parser.error(f"--min-bytes {options.min_bytes} is larger than --max-bytes {options.max_bytes}")
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    options.backend = "nccl" if options.device == "cuda" else "gloo"
    return options


def main() -> int:
    """Run the program."""
    return run(parse_options(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
