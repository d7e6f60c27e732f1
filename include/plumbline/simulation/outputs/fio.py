"""fio: per client and job a json+ report and a bandwidth log, and the facts file of the clients' program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks._fio_jobs import JOBS, block_size, chosen_jobs, client_count, planned_directory
from plumbline.benchmarks._fio_windows import LOG_MS
from plumbline.model import LaunchSpec
from plumbline.simulation.night import Night, Nights, Rung
from plumbline.simulation.outputs import Printed
from plumbline.simulation.physics import storage_rates
from plumbline.simulation.printers.fio import Client, bandwidth_log, bins, moved_ios, report
from plumbline.units import parse_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray


_START_MS = 1000
"""From the end of a job to the start of the next. Assumption."""


def rates(nights: Nights, rung: Rung) -> dict[str, NDArray[Any]]:
    """Give MB/s or IOPS of every client: job → [launches, clients]."""
    return storage_rates(nights.truth, rung.groups, client_count(rung.spec), nights.noise("fio", rung.groups.nodes))


def client_of(spec: LaunchSpec, job: str, rate: float, moment_ms: int, file: str) -> Client:
    """Give what one client did in one job on its file."""
    block = parse_bytes(str(block_size(spec, job)))
    runtime_ms = _runtime_ms(spec)
    return Client(
        job=job,
        rw=JOBS[job][0],
        direction=JOBS[job][1],
        block_bytes=block,
        block_size=str(block_size(spec, job)),
        size=parse_bytes(str(spec.params["size"])),
        iodepth=int(str(spec.params["iodepth"])),
        ioengine=str(spec.params["ioengine"]),
        runtime_s=float(str(spec.params["runtime_s"])),
        ramp_s=float(str(spec.params["ramp_s"])),
        ios=int(moved_ios(rate, block, runtime_ms, job.startswith("seq"))),
        runtime_ms=runtime_ms,
        ended_ms=moment_ms,
        filename=f"{planned_directory(spec)}/plumbline-fio/simulated/{file}",
    )


def _runtime_ms(spec: LaunchSpec) -> int:
    return round(float(str(spec.params["runtime_s"])) * 1000)


def _ramp_ms(spec: LaunchSpec) -> int:
    return round(float(str(spec.params["ramp_s"])) * 1000)


def files(night: Night, specs: Sequence[LaunchSpec], rows: Sequence[int], begin: datetime) -> Iterator[Printed]:
    """Print all files of each launch: its jobs end one after the other."""
    nights = Nights.of([night])
    every = rates(nights, nights.rung_of(specs))
    for row in rows:
        spec = specs[row]
        ended_ms = begin_ms = round(night.began(spec, begin).timestamp() * 1000)
        found: dict[str, str] = {}
        jobs = []
        per_node = int(str(spec.params["clients"]))
        for job in chosen_jobs(spec.params):
            ended_ms += _job_ms(spec)
            clients = []
            for index, rate in enumerate(every[job][row].tolist()):
                node, client_number = spec.nodes[index // per_node], index % per_node
                name = f"fio-{job}-{node}-c{client_number}"
                client = client_of(spec, job, rate, ended_ms, f"client-{index}.dat")
                found[f"{name}.json"] = report(client)
                found[f"{name}_bw.log"] = bandwidth_log(client)
                clients.append(
                    {"node": node, "client": client_number, "exit_code": 0, "output": f"{name}.json",
                     "bw_log": f"{name}_bw.log"}
                )  # fmt: skip
            jobs.append({"job": job, "clients": clients})
        found[f"fio-facts-{spec.nodes[0]}.json"] = _facts(spec, jobs)
        yield Printed(found, (ended_ms - begin_ms) / 1000)


def works_s(spec: LaunchSpec) -> float:
    """Give how long all jobs take."""
    return len(chosen_jobs(spec.params)) * _job_ms(spec) / 1000


def _job_ms(spec: LaunchSpec) -> int:
    return _START_MS + _ramp_ms(spec) + _runtime_ms(spec)


def _facts(spec: LaunchSpec, jobs: list[dict[str, Any]]) -> str:
    return json.dumps(
        {
            "schema": 1,
            "simulated_by": "plumbline",
            "status": "ok",
            "asked": {
                "directory": planned_directory(spec),
                "nodes": list(spec.nodes),
                "clients": spec.params["clients"],
                "size_bytes": parse_bytes(str(spec.params["size"])),
                "runtime_s": spec.params["runtime_s"],
                "ramp_s": spec.params["ramp_s"],
            },
            "fio_version": "fio-3.36",
            "filesystem": {"type": "lustre", "mount": "/mnt/shared"},
            "direct": True,
            "page_cache": False,
            "jobs": jobs,
        },
        indent=1,
    )


# -- the same without text -------------------------------------------------------------------------------------------


def values(nights: Nights, rung: Rung) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give rates, latencies and spread of every job: all clients run at the same time, for the whole runtime."""
    import numpy as np

    spec, every = rung.spec, rates(nights, rung)
    runtime_ms = _runtime_ms(spec)
    columns: list[NDArray[Any]] = []
    for job in chosen_jobs(spec.params):
        sequential, block = job.startswith("seq"), parse_bytes(str(block_size(spec, job)))
        ios = moved_ios(every[job], block, runtime_ms, sequential)
        moved = ios * block
        share = _logged_share(moved, runtime_ms)
        clients = moved * share / (runtime_ms / 1000)
        if sequential:
            columns.append(_total(clients) / 1e6)
        else:
            columns.append(_total(ios * share) / (runtime_ms / 1000))
            found = bins(ios, int(str(spec.params["iodepth"])), runtime_ms)
            columns += [_percentile(*found, percentile) / 1000 for percentile in (50, 99)]
        if clients.shape[1] > 1:
            columns.append(clients.min(axis=1) / np.median(clients, axis=1))
    return np.stack(columns, axis=1), np.zeros(len(rung.groups.index), bool)


def _total(clients: NDArray[Any]) -> NDArray[Any]:
    """Add client by client, as the reader of the files does."""
    total = clients[:, 0]
    for number in range(1, clients.shape[1]):
        total = total + clients[:, number]
    return total


def _logged_share(moved: NDArray[Any], runtime_ms: int) -> NDArray[Any]:
    """Give the part of the bytes in the time that all clients share: all, but for how the log rounds.

    This is what benchmarks._fio_windows.Activity.share gives for the log that bandwidth_log prints: entries of equal
    rate, added one by one.
    """
    import numpy as np

    rate = np.rint(moved / 1024 / runtime_ms * 1000)
    entries = runtime_ms // int(LOG_MS)
    amount = rate * 1.024 * LOG_MS
    logged, inside = np.zeros_like(amount), np.zeros_like(amount)
    for _ in range(entries):
        logged = logged + amount
        inside = inside + amount * LOG_MS / LOG_MS
    uncovered = runtime_ms - entries * LOG_MS
    if uncovered > 0:
        rest = np.maximum(0.0, moved - logged)
        inside = inside + rest * max(0.0, uncovered) / uncovered
    return np.asarray(np.minimum(1.0, inside / np.maximum(logged, moved)))


def _percentile(latency: NDArray[Any], counts: NDArray[Any], percentile: float) -> NDArray[Any]:
    """Give the first bucket at which the count of all clients reaches the percentile; [M, clients, bins] to [M]."""
    import numpy as np

    buckets, number = latency.reshape(len(latency), -1), counts.reshape(len(counts), -1)
    order = np.argsort(buckets, axis=1, kind="stable")
    buckets, number = np.take_along_axis(buckets, order, 1), np.take_along_axis(number, order, 1)
    seen = np.cumsum(number, axis=1)
    needed = np.ceil(percentile / 100 * seen[:, -1] - 1e-9)
    first = (seen >= needed[:, None]).argmax(axis=1)
    return np.asarray(buckets[np.arange(len(buckets)), first], float)
