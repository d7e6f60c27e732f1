"""How fast line readers are and whether their memory stays constant: python -m benchmarks.readers NAME KIND BYTES."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

from benchmarks.child import answer, in_child
from benchmarks.section import Options, Row, Section
from plumbline.errors import OutputError
from plumbline.readers import Completeness, Source, reader

METHOD = """\
Each figure comes from a fresh process that reads a stream made in memory, so that no disk takes part: *noise* is what
surrounds records (NCCL INFO lines, training progress, kernel messages) with one whole output in the middle, *table* is
records only. MB/s is 10⁶ bytes per CPU second of that one thread. Growth is the difference of the peak resident
memory between a long stream and one of a quarter of that length: constant memory means next to none."""

NOISE_LEAST, TABLE_LEAST = 50.0, 10.0
GROWTH_MOST_MIB = 8.0
Block = tuple[bytes, bytes, bytes]
"""What comes once in the middle, and two blocks that are repeated before and behind it."""


class Stream:
    """A binary stream of at least the given length, out of whole pieces; nothing of it is kept."""

    def __init__(self, pieces: Iterator[bytes], length: int) -> None:
        self._pieces, self._left, self._rest = pieces, length, b""

    def read(self, size: int = -1) -> bytes:
        """Give the next bytes, at most `size`; none at the end."""
        if self._left <= 0 and not self._rest:
            return b""
        if not self._rest:
            self._rest = next(self._pieces, b"")
            self._left -= len(self._rest)
        if not self._rest:
            self._left = 0
        taken, self._rest = (self._rest, b"") if size < 0 else (self._rest[:size], self._rest[size:])
        return taken


def nccl_table() -> bytes:
    """Give one operation's output of nccl-tests on eight GPUs: 28 sizes, out of place and in place."""
    from plumbline.simulation.printers import nccl_tests

    sizes = [1 << power for power in range(3, 31)]
    table = nccl_tests.Table(
        operation="all_reduce", sizes=sizes, times_us=[20.0 + size / 4e5 for size in sizes], wrong=[0] * len(sizes),
        factor=1.75, devices=[("n0001", g, f"0000:{g:02x}:00", "NVIDIA H100 80GB HBM3") for g in range(8)],
        nccl="2.27.3", step_factor=2, warmup=5, iterations=20,
    )  # fmt: skip
    return nccl_tests.text(table).encode()


def nccl_info(number: int) -> str:
    channel, rank = number % 32, number % 8
    return (
        f"n0001:{4100 + rank}:{4200 + rank} [{rank}] NCCL INFO Channel {channel:02d}/0 : {rank}[{rank}] -> "
        f"{(rank + 1) % 8}[{(rank + 1) % 8}] via P2P/CUMEM/read\n"
    )


def training(number: int) -> str:
    return (
        f" iteration {number:8d}/ 500000 | consumed samples: {number * 1536:12d} | elapsed time per iteration (ms): "
        f"{3000 + number % 97:.1f} | learning rate: 2.000E-05 | global batch size: 1536 | "
        f"lm loss: 2.7{number % 100:02d}E+00\n"
    )


def mllog_line(number: int) -> str:
    return (
        f':::MLLOG {{"namespace": "", "time_ms": {1795971265604 + 3000 * number}, "event_type": "POINT_IN_TIME", '
        f'"key": "tracked_stats", "value": {{"throughput": {512 + number % 7}.25}}, '
        f'"metadata": {{"file": "train.py", "lineno": 12, "step": {number}}}}}\n'
    )


def mllog_frame() -> tuple[bytes, bytes]:
    def line(key: str, value: str, at: int, kind: str = "POINT_IN_TIME", more: str = "") -> str:
        return (
            f':::MLLOG {{"namespace": "", "time_ms": {at}, "event_type": "{kind}", "key": "{key}", "value": {value}, '
            f'"metadata": {{"file": "train.py", "lineno": 1{more}}}}}\n'
        )

    begin = line("submission_benchmark", '"gpt3"', 1795971260000) + line(
        "run_start", "null", 1795971265000, "INTERVAL_START"
    )
    end = line("run_stop", "null", 1799971265000, "INTERVAL_END", ', "status": "success"')
    return begin.encode(), end.encode()


def kernel(number: int) -> str:
    stamp = f"[{number:8d}.{number % 1000000:06d}]"
    return f"{stamp} eth{number % 4}: link is up, 400000 Mbps full duplex\n"


def xid_line(number: int) -> str:
    return (
        f"[{number:8d}.000001] NVRM: Xid (PCI:0000:{number % 200:02x}:00): 31, pid={number % 9999}, name=burn, "
        "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x7f12_34560000.\n"
    )


def smi_row(number: int) -> str:
    return (
        f"2026/01/31 04:{number // 60 % 60:02d}:{number % 60:02d}.123, {number % 8}, GPU-0a1b2c3d-0000-0000-0000-"
        f"00000000000{number % 8}, NVIDIA H100 80GB HBM3, {60 + number % 9}, {655 + number % 9}.25 W, 1980 MHz\n"
    )


SMI_HEADER = b"timestamp, index, uuid, name, temperature.gpu, power.draw [W], clocks.current.sm [MHz]\n"


def exporter_line(number: int) -> str:
    return (
        f'DCGM_FI_DEV_POWER_USAGE{{gpu="{number % 8}",UUID="GPU-0a1b2c3d-0000-0000-0000-{number:012d}",'
        f'device="nvidia{number % 8}",modelName="NVIDIA H100 80GB HBM3",Hostname="node-{number // 8}"}} '
        f"{600 + number % 99}.5\n"
    )


def block(line: Callable[[int], str], lines: int = 8192) -> bytes:
    return "".join(line(number) for number in range(lines)).encode()


def _nccl_noise() -> Iterator[bytes]:
    noise = block(nccl_info)
    yield noise
    yield nccl_table()
    while True:
        yield noise


def _endless(piece: bytes, first: bytes = b"") -> Iterator[bytes]:
    if first:
        yield first
    while True:
        yield piece


def _mllog(line: Callable[[int], str]) -> Iterator[bytes]:
    begin, end = mllog_frame()
    yield begin + block(mllog_line, 20) + end
    yield from _endless(block(line))


def _mllog_records() -> Iterator[bytes]:
    begin, _ = mllog_frame()
    yield begin
    yield from _numbered(mllog_line)


def _numbered(line: Callable[[int], str], first: bytes = b"", lines: int = 8192) -> Iterator[bytes]:
    """Give lines that never repeat; making them costs, so the reader's CPU time is taken without it."""
    if first:
        yield first
    start = 0
    while True:
        yield "".join(line(number) for number in range(start, start + lines)).encode()
        start += lines


CASES: dict[tuple[str, str], Callable[[], Iterator[bytes]]] = {
    ("nccl_tests", "noise"): _nccl_noise,
    ("mllog", "noise"): lambda: _mllog(training),
    ("xid", "noise"): lambda: _endless(block(kernel), xid_line(1).encode()),
    ("nccl_tests", "table"): lambda: _endless(nccl_table() * 32),
    ("mllog", "table"): _mllog_records,
    ("xid", "table"): lambda: _numbered(xid_line),
    ("nvidia_smi_csv", "table"): lambda: _numbered(smi_row, SMI_HEADER),
    ("dcgm_exporter", "table"): lambda: _endless(block(exporter_line)),
}


def read_case(name: str, kind: str, length: int) -> dict[str, Any]:
    """Read one stream; give bytes, CPU seconds without those that making the stream took, items and the status."""
    making, given = 0.0, 0

    def timed(pieces: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal making, given
        while True:
            start = time.process_time()
            piece = next(pieces)
            making += time.process_time() - start
            given += len(piece)
            yield piece

    stream = cast(BinaryIO, Stream(timed(CASES[name, kind]()), length))
    module, items, status = reader(name), 0, None
    start = time.process_time()
    try:
        for item in module.read(Source(stream, f"{name} {kind}"), {}):
            items += 1
            if isinstance(item, Completeness):
                status = item.status.value
    except OutputError as error:
        status = f"refused: {error}"
    cpu = time.process_time() - start - making
    return {"bytes": given, "cpu_s": cpu, "items": items, "status": status, "mb_per_s": given / 1e6 / cpu}


def measure(options: Options) -> Section:
    """Measure every case at two lengths."""
    rows, raw = [], {}
    for name, kind in CASES:
        long = (
            (1 << 31) if options.huge else (16 << 20) if options.quick else (128 << 20 if kind == "noise" else 64 << 20)
        )
        short = min(long // 4, 64 << 20)
        found = [in_child("benchmarks.readers", [name, kind, str(length)]) for length in (short, long)]
        best, least = found[1].answer, NOISE_LEAST if kind == "noise" else TABLE_LEAST
        growth = found[1].peak_mib - found[0].peak_mib
        told = f"{long >> 20} MiB, {best['items']} items, status {best['status']}"
        rows.append(Row(name=f"{name}, {kind}", value=best["mb_per_s"], unit="MB/s", spread=told,
                        limit=f"≥ {least:g}", held=best["mb_per_s"] >= least))  # fmt: skip
        rows.append(Row(name=f"{name}, {kind}: growth from {short >> 20} MiB", value=growth, unit="MiB",
                        spread=f"peak {found[1].peak_mib:.0f} MiB", limit=f"≤ {GROWTH_MOST_MIB:g}",
                        held=growth <= GROWTH_MOST_MIB))  # fmt: skip
        raw[f"{name} {kind}"] = [{**cost.answer, "peak_mib": cost.peak_mib} for cost in found]
    return Section(name="readers", title="Readers: megabytes a second at constant memory", method=METHOD, rows=rows,
                   raw=raw)  # fmt: skip


if __name__ == "__main__":
    answer(read_case(sys.argv[1], sys.argv[2], int(sys.argv[3])))
