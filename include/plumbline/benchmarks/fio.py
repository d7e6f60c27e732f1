"""Storage: several fio clients at once on the file system that the profile names.

Four jobs in one process start: sequential write and read (bandwidth), random read and write (IOPS, latency). The
clients are docker/bench/plumbline_bench/fio_clients.py; what their files say is read in _fio_results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from plumbline.benchmarks._fio_jobs import JOBS, chosen_jobs, client_count, row_params
from plumbline.benchmarks._fio_results import read_results
from plumbline.benchmarks.benchmark import Command, Expected, Measured, Parameter, Placement
from plumbline.configuration import project_root
from plumbline.errors import ConfigError
from plumbline.model import Better, Contends, Indicator, LaunchSpec, Params, RunRecord, Scope
from plumbline.units import parse_bytes

NAME = "fio"
VERSION = "1"
TITLE = "Storage bandwidth, IOPS and latency (fio)"
SCOPE = Scope.GROUP
CONTENDS = Contends.STORAGE
READER = "fio"
COVERS = "the shared file system: its servers, its network, its client on these nodes"

_HOW = "bytes that all clients moved in the time in which all of them ran ÷ that time; direct I/O where it exists"
_BINS = "histograms of all clients added bucket by bucket (fio json+), then the percentile: never an average"


def _indicator(name: str, unit: str, better: Better, title: str, formula: str, **more: Any) -> Indicator:
    return Indicator(name=name, unit=unit, better=better, title=title, formula=formula, source="fio json+", **more)


INDICATORS = (
    _indicator("read_bandwidth", "MB/s", Better.HIGHER, "Sequential read bandwidth", _HOW, headline=True),
    _indicator("write_bandwidth", "MB/s", Better.HIGHER, "Sequential write bandwidth", _HOW, headline=True),
    _indicator("read_iops", "IOPS", Better.HIGHER, "Random read IOPS", _HOW.replace("bytes", "I/Os"), headline=True),
    _indicator("write_iops", "IOPS", Better.HIGHER, "Random write IOPS", _HOW.replace("bytes", "I/Os"), headline=True),
    _indicator("read_latency_p50", "us", Better.LOWER, "Random read latency, median", _BINS),
    _indicator("read_latency_p99", "us", Better.LOWER, "Random read latency, 99th percentile", _BINS),
    _indicator("write_latency_p50", "us", Better.LOWER, "Random write latency, median", _BINS),
    _indicator("write_latency_p99", "us", Better.LOWER, "Random write latency, 99th percentile", _BINS),
    _indicator(
        "client_spread",
        "1",
        Better.HIGHER,
        "Slowest client ÷ median client",
        "bandwidth of the slowest client ÷ median over clients, per job, in the common time",
        valid_upper=1.0,
    ),
)

PARAMETERS: Mapping[str, Parameter] = {
    "clients": Parameter(default=2, meaning="fio processes a node, each on its own file", least=1, most=4096),
    "size": Parameter(default="256M", meaning="size of each client's file; above what caches hide, if you can"),
    "runtime_s": Parameter(default=5.0, meaning="seconds that each job is measured", least=1, most=86400),
    "ramp_s": Parameter(default=1.0, meaning="seconds of each job before that", least=0, most=86400),
    "jobs": Parameter(default=",".join(JOBS), meaning=f"which of {', '.join(JOBS)}"),
    "sequential_bs": Parameter(default="1M", meaning="block size of the sequential jobs"),
    "random_bs": Parameter(default="4k", meaning="block size of the random jobs"),
    "iodepth": Parameter(default=16, meaning="I/Os that a client keeps in flight", least=1, most=65536),
    "ioengine": Parameter(
        default="libaio", meaning="fio's engine", choices=("libaio", "io_uring", "psync", "pvsync2", "posixaio")
    ),
    "require_mount": Parameter(default=False, meaning="refuse a directory that lies on the root file system"),
    "layout_limit_s": Parameter(default=300.0, meaning="seconds in which the files must be written once", least=1),
}

_SLACK_S = 90.0
"""Time beyond the jobs themselves: checks, starting fio, removing the files, and noticing a client that hangs."""


def command(placement: Placement, params: Params) -> Command:
    """Write the command of one group: on several machines each runs it, told its name and start by its environment."""
    jobs = chosen_jobs(params)
    sizes = {key: _size(params, key) for key in ("size", "sequential_bs", "random_bs")}
    argv = [
        placement.python, "-m", "plumbline_bench.fio_clients",
        "--directory", placement.storage_dir,
        "--clients", str(params["clients"]),
        "--size", str(sizes["size"]),
        "--runtime", f"{params['runtime_s']:g}",
        "--ramp", f"{params['ramp_s']:g}",
        "--jobs", ",".join(jobs),
        "--sequential-bs", str(params["sequential_bs"]),
        "--random-bs", str(params["random_bs"]),
        "--iodepth", str(params["iodepth"]),
        "--ioengine", str(params["ioengine"]),
        "--layout-limit", f"{params['layout_limit_s']:g}",
    ]  # fmt: skip
    if placement.launcher == "local":
        argv += ["--nodes", ",".join(placement.nodes)]
        if Path(placement.storage_dir).is_relative_to(project_root()):
            argv.append("--create")  # the embedded default; a directory elsewhere is a mount that must be there
    if params["require_mount"]:
        argv.append("--require-mount")
    per_job = float(str(params["runtime_s"])) + float(str(params["ramp_s"])) + 3
    return Command(
        argv=tuple(argv),
        env={"PYTHONPATH": str(placement.programs)},
        timeout_s=len(jobs) * per_job + float(str(params["layout_limit_s"])) + _SLACK_S,
        outputs=("stdout", "fio-facts-*.json", "fio-*-c*.json", "fio-*_bw.log"),
    )


def _size(params: Params, key: str) -> int:
    """Give a parameter that is a size, in bytes. Raises ConfigError with its name."""
    try:
        size = parse_bytes(str(params[key]))
    except ConfigError as error:
        raise ConfigError(f"{NAME}.{key}: {error}") from None
    if size == 0:
        raise ConfigError(f"{NAME}.{key}: a size of nothing")
    return size


def expected(spec: LaunchSpec) -> Iterable[Expected]:
    """Name every row: rates and latencies of each job, and the spread where there is more than one client."""
    for job in chosen_jobs(spec.params):
        direction = JOBS[job][1]
        names = (
            (f"{direction}_bandwidth",)
            if job.startswith("seq")
            else (f"{direction}_iops", f"{direction}_latency_p50", f"{direction}_latency_p99")
        )
        for name in names:
            yield Expected(indicator=name, params=row_params(spec, job))
        if client_count(spec) > 1:
            yield Expected(indicator="client_spread", params={**row_params(spec, job), "job": job})


def measure(spec: LaunchSpec, record: RunRecord, raw_dir: Path) -> Measured:
    """Read the launch's files. Raises OutputError when there is no facts file: the clients' program did not start."""
    return read_results(spec, record, raw_dir)
