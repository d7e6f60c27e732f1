"""What the tools print, without end: the streams that the readers' benchmark reads. Nothing here is a measurement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, count, repeat

from benchmarks.section import ROOT

Pieces = Iterator[bytes]
_DATA = ROOT / "tests" / "data"
_LINES = 8192
"""Lines in one piece of a stream."""
GPUS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One stream: `pieces` gives it for a length in bytes, which only documents that must end heed.

    `keeps` says what the reader must hold until the end, '' where it holds nothing. `most` bounds the length of what
    is one document for its reader.
    """

    pieces: Callable[[int], Pieces]
    keeps: str = ""
    most: int = 1 << 40


class Stream:
    """A binary stream of at least the given length, out of whole pieces; nothing of it is kept."""

    def __init__(self, pieces: Pieces, length: int) -> None:
        """Take over `pieces`."""
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


def _block(line: Callable[[int], str], start: int = 0, lines: int = _LINES) -> bytes:
    return "".join(line(number) for number in range(start, start + lines)).encode()


def _numbered(line: Callable[[int], str], *first: bytes) -> Pieces:
    """Give lines that never repeat, behind what comes first."""
    return chain(first, (_block(line, start) for start in count(0, _LINES)))


def _amid(line: Callable[[int], str], output: bytes) -> Pieces:
    """Give lines that are no records, with one whole output among them."""
    return chain((_block(line, 0, 1024), output), repeat(_block(line)))


def _recorded(path: str) -> bytes:
    return (_DATA / path).read_bytes()


def _copies(output: bytes, at_once: int = 64) -> Pieces:
    """Give one output over and over."""
    return repeat(output * at_once)


def _renumbered(path: str, pattern: bytes, at_once: int = 16) -> Pieces:
    """Give a recorded output over and over, whose numbers after `pattern` grow: no copy is a repetition."""
    parts = re.split(b"(" + pattern + rb")(\d+)", _recorded(path))
    numbers = [int(number) for number in parts[2::3]]

    def copy(number: int) -> bytes:
        parts[2::3] = [str(value + 1000 * number).encode() for value in numbers]
        return b"".join(parts)

    return (b"".join(copy(number) for number in range(start, start + at_once)) for start in count(0, at_once))


def _document(head: bytes, item: Callable[[int], str], tail: bytes, length: int) -> Pieces:
    """Give one document of the given length."""
    given = len(head) + len(tail)
    yield head
    for start in count(0, 64):
        items = _block(item, start, 64)
        if given + len(items) >= length:
            break
        given += len(items)
        yield items
    yield tail + b"\n" * max(1, length - given)


# -- lines that are no records


def training(number: int) -> str:
    """Give one line of a training's progress."""
    return (
        f" iteration {number:8d}/ 500000 | consumed samples: {number * 1536:12d} | elapsed time per iteration (ms): "
        f"{3000 + number % 97:.1f} | learning rate: 2.000E-05 | global batch size: 1536 | "
        f"lm loss: 2.7{number % 100:02d}E+00\n"
    )


def _nccl_info(number: int) -> str:
    channel, rank = number % 32, number % 8
    return (
        f"n0001:{4100 + rank}:{4200 + rank} [{rank}] NCCL INFO Channel {channel:02d}/0 : {rank}[{rank}] -> "
        f"{(rank + 1) % 8}[{(rank + 1) % 8}] via P2P/CUMEM/read\n"
    )


def _kernel(number: int) -> str:
    stamp = f"[{number:8d}.{number % 1000000:06d}]"
    return f"{stamp} eth{number % 4}: link is up, 400000 Mbps full duplex\n"


# -- tables


def _nccl_text(sizes: range) -> bytes:
    from plumbline.simulation.printers import nccl_tests

    table = nccl_tests.Table(
        operation="all_reduce", sizes=sizes, times_us=[20.0 + size / 4e5 for size in sizes], wrong=[0] * len(sizes),
        factor=1.75, devices=[("n0001", g, f"0000:{g:02x}:00", "NVIDIA H100 80GB HBM3") for g in range(GPUS)],
        nccl="2.27.3", step_factor=8, warmup=5, iterations=20,
    )  # fmt: skip
    return nccl_tests.text(table).encode()


def _nccl_sweep() -> Pieces:
    """Give one sweep by steps of 8 bytes (-b 8 -i 8): one header, and rows without end."""
    head, first = _nccl_text(range(8, 8 * _LINES + 8, 8)).replace(b"(factor)", b"(bytes)").split(b"\n  ", 1)
    yield head + b"\n"
    for start in count(8, 8 * _LINES):
        rows = b"  " + first if start == 8 else _nccl_text(range(start, start + 8 * _LINES, 8)).split(b"\n", 20)[20]
        yield rows[: rows.index(b"# Out of bounds")]


def _mllog_line(key: str, value: str, at: int, kind: str = "POINT_IN_TIME", more: str = "") -> str:
    return (
        f':::MLLOG {{"namespace": "", "time_ms": {at}, "event_type": "{kind}", "key": "{key}", "value": {value}, '
        f'"metadata": {{"file": "train.py", "lineno": 12{more}}}}}\n'
    )


def _mllog_step(number: int) -> str:
    value = f'{{"throughput": {512 + number % 7}.25}}'
    return _mllog_line("tracked_stats", value, 1795971265604 + 3000 * number, more=f', "step": {number}')


def _mllog_frame() -> tuple[bytes, bytes]:
    begin = _mllog_line("submission_benchmark", '"gpt3"', 1795971260000)
    begin += _mllog_line("run_start", "null", 1795971265000, "INTERVAL_START")
    end = _mllog_line("run_stop", "null", 1799971265000, "INTERVAL_END", ', "status": "success"')
    return begin.encode(), end.encode()


def _xid(number: int) -> str:
    return (
        f"[{number:8d}.000001] NVRM: Xid (PCI:0000:{number % 200:02x}:00): 31, pid={number % 9999}, name=burn, "
        "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x7f12_34560000.\n"
    )


_SMI_HEADER = b"timestamp, index, uuid, name, temperature.gpu, power.draw [W], clocks.current.sm [MHz]\n"


def _smi_row(number: int) -> str:
    second, gpu = number // GPUS, number % GPUS
    return (
        f"2026/01/31 04:{second // 60 % 60:02d}:{second % 60:02d}.123, {gpu}, GPU-0a1b2c3d-0000-0000-0000-"
        f"00000000000{gpu}, NVIDIA H100 80GB HBM3, {60 + number % 9}, {655 + number % 9}.25 W, 1980 MHz\n"
    )


_DMON_HEADER = (
    b"# gpu    pwr  gtemp  mtemp     sm    mem   mclk   pclk \n"
    b"# Idx      W      C      C      %      %    MHz    MHz \n"
)


def _dmon_row(number: int) -> str:
    return f"    {number % GPUS}    {650 + number % 9}     61      -     {90 + number % 9}     41   2619   1980 \n"


def _scrape(number: int) -> str:
    """Give one page of dcgm-exporter: each field of each GPU of one node."""
    from plumbline.readers._dcgm_fields import DCGM_FIELDS

    return "".join(
        f"# HELP {name} {field.what}.\n# TYPE {name} gauge\n"
        + "".join(
            f'{name}{{gpu="{g}",UUID="GPU-0a1b2c3d-0000-0000-0000-{g:012d}",pci_bus_id="00000000:{g:02x}:00.0",'
            f'device="nvidia{g}",modelName="NVIDIA H100 80GB HBM3",Hostname="n0001"}} {600 + (number + g) % 99}.5\n'
            for g in range(GPUS)
        )
        for name, field in list(DCGM_FIELDS.items())[:60]
    )


def _burn(number: int) -> str:
    """Give one run of gpu-burn: a line when one GPU has news, and verdicts. Layout: wilicc/gpu-burn."""
    text = "Burning for 3600 seconds.\n"
    for step in range(1000):
        rounds = [(step + GPUS - 1 - g) // GPUS for g in range(GPUS)]
        done = " - ".join(f"{280 * done} ({48000 + (done * 7 + number) % 97} Gflop/s)" for done in rounds)
        heat = " - ".join(f"{51 + (step // 8 + g + number) % 20} C" for g in range(GPUS))
        text += f"\r{step / 10:.1f}%  proc'd: {done}   errors: {' - '.join('0' * GPUS)}   temps: {heat} "
    return f"{text}\ndone\n\nTested {GPUS} GPUs:\n" + "".join(f"\tGPU {g}: OK\n" for g in range(GPUS))


def _perftest_text(start: int, rows: int) -> bytes:
    from plumbline.simulation.printers import perftest

    numbers = range(start, start + rows)
    return perftest.ib_write_bw(
        "mlx5_0", [(65536, 4_000_000 + n % 9999, 390.0 + n % 97 / 50, 388.0 + n % 97 / 60) for n in numbers]
    ).encode()


def _perftest() -> Pieces:
    """Give the rows of --run_infinitely: one header, a row a period."""
    mark = b"MsgRate[Mpps]\n"
    yield _perftest_text(0, 1).partition(mark)[0] + mark
    for start in count(0, _LINES):
        rows = _perftest_text(start, _LINES).partition(mark)[2]
        yield rows[: rows.index(b"---")]


def _stress(number: int) -> str:
    """Give one run of 300 stressors, one behind the other."""
    tag = f"stress-ng: {{}} [{31875 + number % 1000}] "
    info, metric = tag.format("info: "), tag.format("metrc:")
    rows = (
        f"{metric}stressor-{n:<12d} {196 + n:9d}      1.02      0.14      0.00    {192 + n:9d}.46     "
        f"{1340 + n:9d}.57        14.36          6344\n"
        for n in range(300)
    )
    return (
        f"{info}dispatching hogs: {', '.join(f'1 stressor-{n}' for n in range(300))}\n"
        f"{metric}stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s CPU used per"
        f"       RSS Max\n"
        f"{metric}                           (secs)    (secs)    (secs)   (real time) (usr+sys time) instance (%)"
        f"          (KB)\n{''.join(rows)}{info}successful run completed in 300.02s\n"
    )


@cache
def _nvbandwidth() -> bytes:
    from plumbline.simulation.printers import nvbandwidth

    rows = [[None if i == j else 380.0 + i + j / 8 for j in range(GPUS)] for i in range(GPUS)]
    products = [(f"00000000:{g:02x}:00", "NVIDIA H100 80GB HBM3") for g in range(GPUS)]
    return nvbandwidth.text("570.86.15", "n0001", products, [55.0 + g / 8 for g in range(GPUS)], rows).encode()


@cache
def _p2p() -> bytes:
    """Give the matrices of p2pBandwidthLatencyTest. Layout: NVIDIA/cuda-samples, p2pBandwidthLatencyTest.cu."""

    def matrix(corner: str, local: float, other: float) -> str:
        columns = "".join(f"{j:6d} " for j in range(GPUS))
        rows = (
            f"{i:6d} " + "".join(f"{local if i == j else other + i + j / 100:6.02f} " for j in range(GPUS)) + "\n"
            for i in range(GPUS)
        )
        return f"   {corner}{columns}\n{''.join(rows)}"

    text = "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\n"
    text += "".join(f"Device: {g}, NVIDIA H100 80GB HBM3, pciBusID: {16 + g:x}, pciDeviceID: 0\n" for g in range(GPUS))
    for way in ("Unidirectional", "Bidirectional"):
        for state in ("Disabled", "Enabled"):
            text += f"{way} P2P={state} Bandwidth Matrix (GB/s)\n" + matrix("D\\D", 2400.12, 380.0)
    for state in ("Disabled", "Enabled"):
        text += f"P2P={state} Latency Matrix (us)\n{matrix('GPU', 1.5, 10.0)}\n{matrix('CPU', 2.5, 5.0)}"
    return (text + "\nNOTE: The CUDA Samples are not meant for performance measurements.\n").encode()


_PODS = b'{"apiVersion": "v1", "kind": "PodList", "items": [\n'


def _pod(number: int) -> str:
    return ("," if number else "") + _pod_text().replace("bench-0", f"bench-{number}")


@cache
def _pod_text() -> str:
    return _recorded("kubernetes/pod_succeeded.json").decode()


def _events() -> Pieces:
    """Give what `kubectl get pods` and `kubectl get events` print of a large job."""
    pods = "".join(f"bench-{n:<8d}0/1     Completed   {n % 3}          {n % 59}m\n" for n in range(256))
    head = f"NAME          READY   STATUS      RESTARTS   AGE\n{pods}\n"
    return _numbered(_event, f"{head}LAST SEEN   TYPE      REASON      OBJECT          MESSAGE\n".encode())


def _event(number: int) -> str:
    pod, age = f"pod/bench-{number % 256}", f"{number % 59}m"
    told = ("Normal    Scheduled", f"Successfully assigned bench/bench-{number % 256} to n{number}")
    if number % 2:
        told = ("Warning   Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503")
    return f"{age:12}{told[0]}   {pod:16}{told[1]}\n"


def _system_key(number: int) -> str:
    return f'  "host_setting_{number}": "value {number}",\n'


def _system(length: int) -> Pieces:
    head = (
        '{\n  "submitter": "somebody", "system_name": "box", "number_of_nodes": "96", "accelerators_per_node": "8",\n'
        '  "accelerator_model_name": "Some Accelerator 80GB",\n'
    )
    return _document(head.encode(), _system_key, b'  "status": "available"\n}', length)


_HELD = "its readings"
_DOCUMENT = "the document"
_NVIDIA_HPL, _NVIDIA_MXP = "hpl/nvidia_25.9_two_sizes.txt", "hpl_mxp/nvidia_26.2_two_loops.txt"
_LONGEST_DOCUMENT = 32 << 20

CASES: dict[tuple[str, str], Case] = {
    ("nccl_tests", "table"): Case(pieces=lambda _: _nccl_sweep()),
    ("nccl_tests", "noise"): Case(pieces=lambda _: _amid(_nccl_info, _nccl_text(range(8, 232, 8)))),
    ("mllog", "table"): Case(pieces=lambda _: _numbered(_mllog_step, _mllog_frame()[0])),
    ("mllog", "noise"): Case(pieces=lambda _: _amid(training, _block(_mllog_step, 0, 20).join(_mllog_frame()))),
    ("mlperf_system", "table"): Case(pieces=_system, keeps=_DOCUMENT, most=15 << 20),
    ("fio", "table"): Case(pieces=lambda _: _renumbered("fio/two_groups.txt", b"pid=|iB/"), keeps=_HELD),
    ("fio", "table in JSON"): Case(
        pieces=lambda _: _renumbered("fio/two_groups.json", b'"timestamp_ms" : '), keeps=_HELD
    ),
    ("fio", "noise"): Case(pieces=lambda _: _amid(training, _recorded("fio/two_groups.txt"))),
    ("hpl", "table"): Case(pieces=lambda _: _copies(_recorded(_NVIDIA_HPL))),
    ("hpl", "noise"): Case(pieces=lambda _: _amid(training, _recorded(_NVIDIA_HPL))),
    ("hpl_mxp", "table"): Case(pieces=lambda _: _copies(_recorded(_NVIDIA_MXP))),
    ("hpl_mxp", "noise"): Case(pieces=lambda _: _amid(training, _recorded(_NVIDIA_MXP))),
    ("perftest", "table"): Case(pieces=lambda _: _perftest()),
    ("perftest", "noise"): Case(pieces=lambda _: _amid(training, _perftest_text(0, 23))),
    ("p2p_bandwidth", "table"): Case(pieces=lambda _: _copies(_p2p())),
    ("p2p_bandwidth", "noise"): Case(pieces=lambda _: _amid(training, _p2p())),
    ("nvbandwidth", "table"): Case(pieces=lambda _: _copies(_nvbandwidth())),
    ("nvbandwidth", "noise"): Case(pieces=lambda _: _amid(training, _nvbandwidth())),
    ("dcgmi_diag", "table"): Case(
        pieces=lambda _: _copies(_recorded("dcgmi_diag/dcgm4_level2.json")), keeps=_DOCUMENT, most=_LONGEST_DOCUMENT
    ),
    ("nvidia_smi_xml", "table"): Case(
        pieces=lambda _: _copies(_recorded("nvidia_smi_xml/two_gpus.xml")), keeps=_DOCUMENT, most=_LONGEST_DOCUMENT
    ),
    ("nvidia_smi_csv", "table"): Case(pieces=lambda _: _numbered(_smi_row, _SMI_HEADER)),
    ("nvidia_smi_csv", "noise"): Case(pieces=lambda _: _amid(training, _SMI_HEADER + _block(_smi_row, 0, GPUS))),
    ("nvidia_smi_text", "table"): Case(pieces=lambda _: _numbered(_dmon_row, _DMON_HEADER)),
    ("nvidia_smi_text", "noise"): Case(
        pieces=lambda _: _amid(training, _recorded("nvidia_smi_text/table.txt") + b"# $ date\n")
    ),
    ("dcgm_exporter", "table"): Case(pieces=lambda _: (_block(_scrape, start, 8) for start in count(0, 8))),
    ("dcgm_exporter", "noise"): Case(pieces=lambda _: _amid(training, _recorded("dcgm_exporter/two_gpus.txt"))),
    ("gpu_burn", "table"): Case(pieces=lambda _: (_block(_burn, start, 2) for start in count(0, 2)), keeps=_HELD),
    ("gpu_burn", "noise"): Case(pieces=lambda _: _amid(training, _recorded("gpu_burn/good.txt"))),
    ("stress_ng", "table"): Case(
        pieces=lambda _: (_block(_stress, start, 16) for start in count(0, 16)), keeps=_HELD
    ),
    ("stress_ng", "noise"): Case(pieces=lambda _: _amid(training, _stress(0).encode())),
    ("xid", "table"): Case(pieces=lambda _: _numbered(_xid)),
    ("xid", "noise"): Case(pieces=lambda _: _amid(_kernel, _block(_xid, 0, 1))),
    ("kubernetes", "table"): Case(pieces=lambda _: _events(), keeps=_DOCUMENT, most=_LONGEST_DOCUMENT),
    ("kubernetes", "table in JSON"): Case(
        pieces=lambda n: _document(_PODS, _pod, b"]}", n), keeps=_DOCUMENT, most=_LONGEST_DOCUMENT
    ),
}  # fmt: skip
"""(reader, kind of stream) → the stream. Noise is lines that are no records around one whole output."""
