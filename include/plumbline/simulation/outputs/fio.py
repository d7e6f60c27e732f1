"""fio: per client and job a json+ report and a bandwidth log, and the facts file of the clients' program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks._fio_jobs import JOBS, block_size, chosen_jobs
from plumbline.model import LaunchSpec
from plumbline.simulation.night import Night
from plumbline.simulation.physics import storage_rates
from plumbline.simulation.printers.fio import Client, bandwidth_log, report
from plumbline.units import parse_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rates(night: Night, specs: Sequence[LaunchSpec]) -> dict[str, NDArray[Any]]:
    """Give MB/s or IOPS of every client: job → [launches, clients]."""
    groups = night.groups(specs)
    clients = int(str(specs[0].params["clients"])) * groups.nodes
    return storage_rates(night.truth, groups, clients, night.noise("fio", groups.nodes))


def client_of(spec: LaunchSpec, job: str, rate: float, moment_ms: int) -> Client:
    """Give what one client did in one job."""
    sequential = job.startswith("seq")
    block = parse_bytes(str(block_size(spec, job)))
    runtime_ms = round(float(str(spec.params["runtime_s"])) * 1000)
    ios = round((rate * 1e6 / block if sequential else rate) * runtime_ms / 1000)
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
        ios=ios,
        runtime_ms=runtime_ms,
        ended_ms=moment_ms,
    )


def files(night: Night, specs: Sequence[LaunchSpec]) -> Iterator[Mapping[str, str]]:
    """Print all files of each launch."""
    every = rates(night, specs)
    begin_ms = round(night.moment.timestamp() * 1000)
    for row, spec in enumerate(specs):
        found: dict[str, str] = {}
        jobs = []
        per_node = int(str(spec.params["clients"]))
        for number, job in enumerate(chosen_jobs(spec.params)):
            ended_ms = begin_ms + 7000 * (number + 1)
            clients = []
            for index, rate in enumerate(every[job][row].tolist()):
                node, client_number = spec.nodes[index // per_node], index % per_node
                name = f"fio-{job}-{node}-c{client_number}"
                client = client_of(spec, job, rate, ended_ms)
                found[f"{name}.json"] = report(client)
                found[f"{name}_bw.log"] = bandwidth_log(client)
                clients.append(
                    {"node": node, "client": client_number, "exit_code": 0, "output": f"{name}.json",
                     "bw_log": f"{name}_bw.log"}
                )  # fmt: skip
            jobs.append({"job": job, "clients": clients})
        found[f"fio-facts-{spec.nodes[0]}.json"] = _facts(spec, jobs)
        yield found


def _facts(spec: LaunchSpec, jobs: list[dict[str, Any]]) -> str:
    return json.dumps(
        {
            "schema": 1,
            "simulated_by": "plumbline",
            "status": "ok",
            "asked": {
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
