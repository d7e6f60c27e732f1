"""Plumbline's own HPL-MxP reference for one CPU or one CUDA GPU, on torch. Not a vendor's result, and it says so.

    python -m plumbline_bench.hpl_mxp --n 16384 [--nb 256] [--precision auto|bf16|fp16|fp32] [--device auto|cpu|cuda]

Solves Ax = b to double-precision accuracy: LU without pivoting of the reference generator's matrix with products in a
low precision, then FP64 GMRES with the factors as preconditioner, at most 50 iterations, until the scaled residual is
small. Prints NVIDIA's layout, so that one reader serves both; exit 1 when the residual check fails, 2 for wrong use.
Source: https://hpl-mxp.org/rules.md; matrix generator of icl/hpl-ai matgen.c.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from plumbline_bench.mxp_matrix import generate, row_sums
from plumbline_bench.mxp_products import PRECISIONS, choose_precision, product_rate, synchronize, timed
from plumbline_bench.mxp_solver import (
    EPS,
    MOST_ITERATIONS,
    THRESHOLD,
    Check,
    PivotError,
    factorize,
    refine,
    to_low_precision,
)

VERSION = "1.0.0"
RATE_SIZES = {"cpu": [2048, 4096], "cuda": [8192, 16384]}
"""Orders of the products that tell a device's matrix-product rate."""


def operations(n: int) -> float:
    """Give the operations of the whole solve: 2/3 n³ + 3/2 n². Source: HPL-MxP rules."""
    return n * (2.0 / 3.0 * n * n + 1.5 * n)


def factorization_operations(n: int) -> float:
    """Give the operations of the factorization: 2/3 n³ - 1/2 n². Source: HPL-MxP rules."""
    return n * (2.0 / 3.0 * n * n - 0.5 * n)


def device_name(device: torch.device) -> str:
    """Name the processor for people."""
    if device.type == "cuda":
        return f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    name = platform.processor() or platform.machine()
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as info:
            name = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{name}, {torch.get_num_threads()} threads"


def free_bytes(device: torch.device) -> int | None:
    """Give how much memory the device has free, a container's limit counted, or None where nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = []
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        found += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")]
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text(encoding="utf-8").strip()
        if limit.isdigit():
            found.append(int(limit) - int((group / "memory.current").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        pass  # no such file outside Linux or a container: what is known counts
    return min(found, default=None)


def needed_bytes(n: int, nb: int) -> int:
    """Give what a run holds at once: A in FP64, its factors, their diagonal blocks, GMRES vectors, and slack."""
    return 12 * n * n + 12 * n * nb + 16 * n * (MOST_ITERATIONS + 4) + (1 << 28)


def say(text: str = "") -> None:
    """Print a line at once."""
    print(text, flush=True)


def title(text: str) -> None:
    """Print one of NVIDIA's section titles."""
    say(f"\n ****** {text} ****** \n")


def spread(name: str, seconds: float) -> None:
    """Print a time as NVIDIA does for its processes; here there is one."""
    host = platform.node().partition(".")[0] or "localhost"
    say(f"{name} seconds: AVG = {seconds:.4f}, MAX = {seconds:.4f} (0->{host}), MIN = {seconds:.4f} (0->{host})\n")


class Progress:
    """Prints a line each time another tenth of the factorization's operations is done."""

    def __init__(self, n: int) -> None:
        """Start the clock."""
        self._n, self._start, self._next = n, time.perf_counter(), 0.1

    def __call__(self, columns: int) -> None:
        """Note that so many columns are finished."""
        fraction = 1.0 - (1.0 - columns / self._n) ** 3
        if fraction >= self._next:
            seconds = max(time.perf_counter() - self._start, 1e-9)
            rate = fraction * factorization_operations(self._n) / seconds / 1e9
            say(
                f" Prog= {100 * fraction:6.2f}% N_left= {self._n - columns:8d} Time= {seconds:8.2f} "
                f"Time_left= {seconds / fraction - seconds:10.2f} GF= {rate:12.2f}"
            )
            self._next = fraction + 0.1


@dataclass(frozen=True, slots=True)
class Result:
    """What one solve took and how it ended."""

    check: Check
    convert_s: float
    factor_s: float
    solve_s: float
    iterations: int


def solve_once(matrix: Tensor, b: Tensor, nb: int, precision: str) -> Result:
    """Convert, factorize, refine: all that the rules' clock counts. Raises PivotError."""
    device = matrix.device
    norm_a = row_sums(matrix).max().item()
    start = time.perf_counter()
    factors = to_low_precision(matrix, nb, PRECISIONS[precision])
    synchronize(device)
    convert_s = time.perf_counter() - start
    progress = Progress(len(b))
    factor_s = timed(lambda: factorize(factors, progress), device)
    spread("Conversion", convert_s)
    spread("LU", factor_s)

    def report(iteration: int, check: Check) -> None:
        say(f"Solver iteration {iteration:2d}, L-infinite residual = {check.residual:.8e}")

    start = time.perf_counter()
    _, check, iterations = refine(matrix, b, factors.solve, norm_a, report)
    synchronize(device)
    solve_s = time.perf_counter() - start
    spread("Iterative Solver", solve_s)
    return Result(check, convert_s, factor_s, solve_s, iterations)


def print_result(result: Result, nb: int, precision: str, unit: str) -> None:
    """Print the result block. `unit` is what a rate is per: GPU or CPU."""
    check, n = result.check, result.check.n
    title("HPL MxP Result   ")
    dots = ". . . . . . . . . . . . . . . . .          ="
    for name, value in (
        ("  EPS        ", EPS), ("  Threshold  ", THRESHOLD), ("||Ax-b||_oo  ", check.residual),
        ("||A   ||_oo  ", check.norm_a), ("||x   ||_oo  ", check.norm_x), ("||b   ||_oo  ", check.norm_b),
    ):  # fmt: skip
        say(f"  {name}   {dots} {value:15.6E}")
    verdict = "PASSED" if check.passed else "FAILED"
    say(f"  ||Ax-b||_oo / (EPS * (||A||_oo * ||x||_oo + ||b||_oo) * N) = {check.scaled:15.6E} ...... {verdict}\n")
    total = operations(n) / (result.convert_s + result.factor_s + result.solve_s) / 1e9
    factor = factorization_operations(n) / result.factor_s / 1e9
    say(f"    N = {n}, NB = {nb}, NPROW = 1, NPCOL = 1, SLOPPY-TYPE = {precision.upper()}")
    say(f"       GFLOPS = {total:.4e}, per {unit} = {total:10.2f} ------ The HPL-MxP performance to report")
    say(f"    LU GFLOPS = {factor:.4e}, per {unit} = {factor:10.2f} ------ The factorization alone")
    title("HPL MxP Result   ")


def print_settings(args: argparse.Namespace, precision: str, device: torch.device) -> None:
    """Say what runs, on what, with which settings."""
    line = "=" * 80
    say(f"{line}\nHPL-MxP-Plumbline {VERSION}  -- Plumbline's own reference on torch, not a vendor's program\n{line}")
    say(f"HPL-MxP device: {device_name(device)}, torch {torch.__version__}")
    title("HPL MxP Settings")
    settings = {
        "nprow": 1, "npcol": 1, "order": "row", "n": args.n, "nb": args.nb, "test-loop": args.loops, "seed": args.seed,
        "sloppy-type": f"{precision.upper()} (asked for: {args.precision})",
    }  # fmt: skip
    for name, value in settings.items():
        say(f"   --{name:<34} = {value}")


def run(args: argparse.Namespace, device: torch.device) -> int:
    """Do one run as asked; give the exit status."""
    precision = choose_precision(device, min(args.rate_sizes)) if args.precision == "auto" else args.precision
    print_settings(args, precision, device)
    title("test 1 of 1 starts")
    rates = [measure_rate(precision, args.rate_sizes, device, args.rate_seconds)]
    title("Matrix Generation")
    start = time.perf_counter()
    matrix, b = generate(args.n, args.seed, device)
    synchronize(device)
    spread("matgen", time.perf_counter() - start)
    passed = True
    for loop in range(1, args.loops + 1):
        title(f"test loop {loop} of {args.loops} starts")
        result = solve_once(matrix, b, args.nb, precision)
        rates.append(measure_rate(precision, args.rate_sizes, device, args.rate_seconds))
        rate, size = max(rates)
        say(f"Matrix product GFLOPS = {rate / 1e9:.4e}, size = {size}, precision = {precision.upper()} ------ the best")
        print_result(result, args.nb, precision, "GPU" if device.type == "cuda" else "CPU")
        passed &= result.check.passed
        title(f"test loop {loop} of {args.loops} done  ")
    title("test 1 of 1 done  ")
    return 0 if passed else 1


def measure_rate(precision: str, sizes: list[int], device: torch.device, seconds: float) -> tuple[float, int]:
    """Give the best matrix-product rate (operations a second) and the size it was reached at."""
    return max((product_rate(precision, size, device, seconds / len(sizes)), size) for size in sizes)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read and check the command line; exits with status 2 for wrong use."""
    parser = argparse.ArgumentParser(prog="plumbline_bench.hpl_mxp", description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, required=True, help="order of the matrix")
    parser.add_argument("--nb", type=int, default=256, help="block size of the factorization")
    parser.add_argument("--precision", choices=("auto", *PRECISIONS), default="auto", help="of the factorization")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: as many as this process may use")
    parser.add_argument("--loops", type=int, default=1, help="how often the system is solved; each is reported")
    parser.add_argument("--seed", type=int, default=1, help="seed of the matrix; the reference's is 1")
    parser.add_argument("--rate-sizes", type=_sizes, help="orders of the matrix products measured")
    parser.add_argument("--rate-seconds", type=float, default=1.0, help="time for each matrix-product rate, twice")
    args = parser.parse_args(argv)
    for name, least in (("n", 8), ("nb", 8), ("loops", 1), ("threads", 0), ("seed", 0)):
        if getattr(args, name) < least:
            parser.error(f"--{name} must be at least {least}, not {getattr(args, name)}")
    if args.nb > args.n:
        parser.error(f"--nb {args.nb} is larger than --n {args.n}")
    return args


def _sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main(argv: list[str] | None = None) -> int:
    """Run from the command line."""
    args = parse(argv)
    if args.device == "cuda" and not torch.cuda.is_available():
        say("ERROR: --device cuda, but torch finds no CUDA device")
        return 2
    on_gpu = args.device == "cuda" or (args.device == "auto" and torch.cuda.is_available())
    device = torch.device("cuda" if on_gpu else "cpu")
    args.rate_sizes = args.rate_sizes or RATE_SIZES[device.type]
    torch.set_num_threads(args.threads or len(os.sched_getaffinity(0)))
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False  # sums stay in FP32
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    needed, free = needed_bytes(args.n, args.nb), free_bytes(device)
    if free is not None and needed > free:
        fits = int(math.sqrt(max(free - (1 << 28), 0) / 12.5)) // args.nb * args.nb
        say(f"ERROR: --n {args.n} needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free; --n {fits} fits")
        return 2
    try:
        return run(args, device)
    except PivotError as error:
        say(f"ERROR: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
