"""From fio's JSON documents to runs, in the units of their version: 2.x KiB and us, 3.x bytes and ns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from plumbline.readers._fio_model import ALIASES, DIRECTIONS, Job, Latency, Run, Transfer
from plumbline.readers._fio_sums import contradictions

_ALL_CLIENTS = "All clients"
_DECODER = json.JSONDecoder(strict=False)
_PERCENTILE_KEY = re.compile(r"\d{1,3}(?:\.\d{1,12})?")
_SEPARATOR = re.compile(r"[\s,]*")


def run_of(document: Mapping[str, Any]) -> Run:
    """Read one fio document."""
    container = "client_stats" if isinstance(document.get("client_stats"), list) else "jobs"
    entries = document.get(container)
    problems = []
    if not isinstance(entries, list):
        entries = []
        problems.append(f"no list of {container} in the document")
    jobs = []
    everyone = None
    for entry in entries:
        if not isinstance(entry, dict):
            problems.append(f"an entry of {container} is not an object")
            continue
        job = job_of(entry, document.get("global options"))
        if container == "client_stats" and job.name == _ALL_CLIENTS:
            everyone = job
        else:
            jobs.append(job)
        problems += contradictions(entry, job)
    if everyone is None and len({(job.hostname, job.port) for job in jobs}) > 1:
        # Once every client has reported, fio adds an entry for all of them.
        problems.append("several clients reported, and not all of them: there is no entry for all clients")
    version = document.get("fio version")
    return Run(
        container=container,
        version=version if isinstance(version, str) else None,
        ended_ms=_ended_ms(document),
        jobs=tuple(jobs),
        all_clients=everyone,
        problems=tuple(problems),
        bytes_unit=_bytes_unit(entries),
    )


def _bytes_unit(entries: list[Any]) -> str | None:
    for entry in entries:
        for way in DIRECTIONS:
            data = entry.get(way) if isinstance(entry, dict) else None
            if isinstance(data, dict) and "io_bytes" in data:
                return "B" if "io_kbytes" in data else "KiB"
    return None


def salvage(text: str) -> Run:
    """Read the whole entries of a document that stops before its end."""
    version = re.search(r'"fio version"\s*:\s*"([^"\n]{1,80})"', text)
    container = "client_stats" if '"client_stats"' in text else "jobs"
    entries: list[Any] = []
    match = re.search(rf'"{container}"\s*:\s*\[', text)
    position = match.end() if match else len(text)
    while (position := _SEPARATOR.match(text, position).end()) < len(text):  # type: ignore[union-attr]
        try:
            entry, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            break
        entries.append(entry)
    whole = run_of({"fio version": version[1] if version else None, container: entries})
    return Run(
        container=container,
        version=whole.version,
        jobs=whole.jobs,
        all_clients=whole.all_clients,
        problems=("a JSON document stops before its end or is damaged", *whole.problems),
        bytes_unit=whole.bytes_unit,
    )


def _ended_ms(document: Mapping[str, Any]) -> float | None:
    exact = _number(document.get("timestamp_ms"))
    whole = _number(document.get("timestamp"))
    return exact if exact is not None else None if whole is None else whole * 1000


def job_of(entry: Mapping[str, Any], global_options: Any) -> Job:
    """Read one entry of `jobs` or `client_stats`."""
    options = _options(entry, global_options)
    name = entry.get("jobname", options.get("name", ""))
    error = entry.get("error", 0)
    steady = entry.get("steadystate")
    return Job(
        name=str(name),
        group=_whole(entry.get("groupid")),
        hostname=entry["hostname"] if isinstance(entry.get("hostname"), str) and entry["hostname"] else None,
        port=_whole(entry.get("port")),
        error=error if (told := isinstance(error, int) and not isinstance(error, bool)) else -1,
        error_text="" if told else f"not a number: {str(error)[:40]!r}",
        transfers=tuple(
            transfer_of(way, entry[way], lat_only=_lat_only(options))
            for way in DIRECTIONS
            if isinstance(entry.get(way), dict)
        ),
        options=options,
        options_whole=bool(options),
        total_run_ms=_number(entry.get("job_runtime")),
        elapsed_s=_number(entry.get("elapsed")),
        steady=isinstance(steady, dict) and steady.get("attained") == 1,
    )


def _options(entry: Mapping[str, Any], global_options: Any) -> dict[str, str]:
    """Give global and own options together; those of clients name the host that they belong to."""
    if isinstance(global_options, list):
        mine = (entry.get("hostname"), entry.get("port"))
        shared = next(
            (g for g in global_options if isinstance(g, dict) and (g.get("hostname"), g.get("port")) == mine), {}
        )
        shared = {key: value for key, value in shared.items() if key not in ("hostname", "port")}
    else:
        shared = global_options if isinstance(global_options, dict) else {}
    own = entry.get("job options")
    merged = {**shared, **(own if isinstance(own, dict) else {})}
    return {
        ALIASES.get(key, key): str(value)
        for key, value in merged.items()
        if isinstance(value, (str, int, float)) and not isinstance(value, bool)
    }


def _lat_only(options: Mapping[str, str]) -> bool:
    return options.get("lat_percentiles") in ("1", "") and options.get("clat_percentiles") in (None, "0")


def transfer_of(direction: str, data: Mapping[str, Any], *, lat_only: bool = False) -> Transfer:
    """Read one direction of a job. `lat_only`: percentiles of total latency were asked for, and no others."""
    runtime = _number(data.get("runtime"))
    kib = _number(data.get("bw"))
    amount = _number(data.get("io_bytes"))
    if amount is not None and "io_kbytes" not in data:
        amount *= 1024  # fio < 2.21 printed KiB under this name
    total = None if amount is None else int(amount)
    rate = _number(data.get("bw_bytes"))
    if rate is None and kib is not None:
        rate = _exact_rate(kib, total, runtime)
    timed = bool(runtime) or "runtime" not in data
    latency = {
        kind: found
        for kind, key in (("completion", "clat"), ("total", "lat"), ("submission", "slat"))
        if (found := _latency(data, key)) is not None
    }
    if lat_only and latency.get("completion", _NONE).percentiles and not latency.get("total", _NONE).percentiles:
        latency = _moved(latency)
    return Transfer(
        direction=direction,
        bytes_per_s=rate if timed else None,
        bw_kib=kib,
        iops=_number(data.get("iops")) if timed else None,
        runtime_ms=runtime,
        total_bytes=total,
        total_ios=_whole(data.get("total_ios")),
        latency=latency,
    )


_NONE = Latency()


def _moved(latency: Mapping[str, Latency]) -> dict[str, Latency]:
    """Put percentiles under `total`: fio 3.1 to 3.15 printed those of total latency under clat_ns."""
    completion, total = latency["completion"], latency.get("total", _NONE)
    return {
        **latency,
        "completion": Latency(mean_us=completion.mean_us),
        "total": Latency(mean_us=total.mean_us, percentiles=completion.percentiles, bins=completion.bins),
    }


def _exact_rate(kib: float, total: int | None, runtime: float | None) -> float:
    """Give bytes/s: from bytes and runtime where they give the printed KiB/s (fio < 3.2 cut that to a whole number)."""
    if total and runtime:
        exact = total * 1000 / runtime
        if int(exact) >> 10 == int(kib):
            return float(int(exact))
    return kib * 1024


def _latency(data: Mapping[str, Any], key: str) -> Latency | None:
    """Read `clat_ns` (3.x) or `clat` (2.x, microseconds); None where no sample was taken."""
    nano = isinstance(data.get(f"{key}_ns"), dict)
    found = data.get(f"{key}_ns" if nano else key)
    if not isinstance(found, dict):
        return None
    samples = _number(found.get("N"))
    if samples == 0 or (samples is None and not _number(found.get("max"))):
        return None
    scale = 1000.0 if nano else 1.0
    mean = _number(found.get("mean"))
    return Latency(
        mean_us=None if mean is None else mean / scale,
        percentiles=_percentiles(found.get("percentile"), scale),
        bins=_bins(found.get("bins")) if nano else {},
    )


def _percentiles(found: Any, scale: float) -> dict[float, float]:
    """Read percentiles. '0.00' fills unused places in fio 2.x and is none."""
    if not isinstance(found, dict):
        return {}
    percentiles = {}
    for key, value in found.items():
        number = _number(value)
        if number is not None and _PERCENTILE_KEY.fullmatch(key) and 0 < float(key) <= 100:
            percentiles[float(key)] = number / scale
    return percentiles


def _bins(found: Any) -> dict[int, int]:
    if not isinstance(found, dict):
        return {}
    bins = {}
    for key, value in found.items():
        count = _whole(value)
        if count and key.isascii() and key.isdigit() and len(key) < 19:
            bins[int(key)] = count
    return bins


def _number(value: Any) -> float | None:
    """Give a number that fio can have counted: finite, not negative, and of 64 bits."""
    counted = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _MOST
    return float(value) if counted else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


_MOST = 1 << 63
