"""The reports that nccl-tests (-J, versions 1 to 3) and rccl-tests (-x, -Z json or csv) write beside their text.

Source: NVIDIA/nccl-tests src/util.cu; ROCm/rccl-tests src/common.cu (class Reporter).
A report that was cut is read up to its last whole result. Of the environment only an allow-list is kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from plumbline.readers._nccl_log import program_named, version_of_code
from plumbline.readers._nccl_run import Run
from plumbline.readers._nccl_table import Row

_ENVIRONMENT = """
NCCL_ALGO NCCL_PROTO NCCL_DEBUG NCCL_DEBUG_SUBSYS NCCL_NET NCCL_NET_PLUGIN NCCL_TUNER_PLUGIN NCCL_IB_DISABLE
NCCL_IB_HCA NCCL_IB_GID_INDEX NCCL_IB_TC NCCL_IB_SL NCCL_IB_QPS_PER_CONNECTION NCCL_IB_SPLIT_DATA_ON_QPS
NCCL_IB_ADAPTIVE_ROUTING NCCL_IB_TIMEOUT NCCL_IB_RETRY_CNT NCCL_IB_PCI_RELAXED_ORDERING NCCL_SOCKET_IFNAME
NCCL_SOCKET_NTHREADS NCCL_NSOCKS_PERTHREAD NCCL_CROSS_NIC NCCL_NET_GDR_LEVEL NCCL_NET_GDR_READ
NCCL_P2P_DISABLE NCCL_P2P_LEVEL NCCL_P2P_NET_CHUNKSIZE NCCL_SHM_DISABLE NCCL_NVLS_ENABLE NCCL_MNNVL_ENABLE
NCCL_CUMEM_ENABLE NCCL_COLLNET_ENABLE NCCL_SHARP_DISABLE NCCL_PXN_DISABLE NCCL_MIN_NCHANNELS
NCCL_MAX_NCHANNELS NCCL_MIN_CTAS NCCL_MAX_CTAS NCCL_NTHREADS NCCL_BUFFSIZE NCCL_TOPO_FILE
NCCL_IGNORE_CPU_AFFINITY NCCL_LAUNCH_MODE NCCL_GRAPH_REGISTER NCCL_LOCAL_REGISTER NCCL_TESTS_SPLIT
NCCL_TESTS_SPLIT_MASK NCCL_TESTS_DEVICE NCCL_TESTS_MIN_BW FI_PROVIDER FI_EFA_USE_DEVICE_RDMA RDMAV_FORK_SAFE
CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER NVIDIA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES
HSA_NO_SCRATCH_RECLAIM OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_SIZE SLURM_JOB_NUM_NODES SLURM_NTASKS
SLURM_NTASKS_PER_NODE CUDA_VERSION NCCL_VERSION
"""
ENVIRONMENT = frozenset(_ENVIRONMENT.split())
"""Environment variables that are kept: they change what is measured, and none of them can hold a secret."""

_TOP = re.compile(r'"(version|start_time|args|env|nccl_version|config|devices|out_of_bounds|errors|end_time)":')
_AVERAGE = re.compile(r'"average_bus_bandwidi?th":')
_RESULTS = re.compile(r'"results":\s*\[')
_NOT_A_NUMBER = re.compile(r":\s*-?(?:inf|nan)(?=\s*[,}\]])")
_PLACES = (("out_of_place", False), ("in_place", True))
_COLUMNS = {"time": "time", "cpu_time": "cpu_time", "alg_bw": "algorithm_bandwidth", "bus_bw": "bus_bandwidth"}
_ITERATIONS = {
    "min_us": "iteration_min",
    "max_us": "iteration_max",
    "p99_us": "iteration_p99",
    "cv_pct": "iteration_cv",
}
_SETTINGS = {
    "nthreads": "threads",
    "ngpus": "gpus",
    "minimum_bytes": "min_bytes",
    "maximum_bytes": "max_bytes",
    "warmup_iters": "warmup",
    "iterations": "iterations",
    "aggregated_iterations": "aggregated",
    "validation": "validation",
    "graph": "graph",
}
_DEVICE = {
    "rank": "rank",
    "group": "group",
    "pid": "pid",
    "host": "host",
    "hostname": "host",
    "device": "device",
    "device_hex": "bus_id",
    "device_info": "model",
}
_WORD = re.compile(r"[A-Za-z]\w{0,40}", re.ASCII)
RECORD = '{"numCycle"'
_RCCL_NAMES = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "AlltoAll": "alltoall",
    "AllToAll": "alltoall",
    "AlltoAllv": "alltoallv",
    "AllToAllv": "alltoallv",
    "SendRecv": "sendrecv",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "Scatter": "scatter",
    "Gather": "gather",
    "HyperCube": "hypercube",
}
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def starts_report(text: str) -> bool:
    """Say whether a line begins a report of nccl-tests -J."""
    body = text.lstrip()
    return body.startswith("{") and (
        '"nccl_version"' in body or '"start_time"' in body or body.rstrip() == "{" or '{"version":' in body[:40]
    )


def report_run(text: str, run: Run) -> Run | None:
    """Fill a new run from a report of nccl-tests -J, whole or cut short. None when it is another tool's JSON."""
    whole = True
    try:
        data = _DECODER.decode(_NOT_A_NUMBER.sub(":null", text).strip())
    except (ValueError, RecursionError):
        data, whole = _salvaged(text), False
    if not isinstance(data, dict) or not ({"nccl_version", "results", "config"} & data.keys()):
        return None
    arguments = [_text(item) for item in _list(data.get("args"))]
    run.operation = program_named(arguments[0]) if arguments else None
    _configure(run, data)
    run.begun = isinstance(data.get("results"), list)
    for result in _list(data.get("results")):
        row = _row(result)
        if row is None:
            run.torn = run.torn or f"result {run.rows + 1} of the report"
        else:
            run.add(row)
    _close(run, data)
    if arguments:
        run.extra["arguments"] = arguments[1:]
    if (kept := kept_environment(_list(data.get("env")))) is not None:
        run.extra["environment"] = kept
    if not whole or "end_time" not in data:
        run.cut = "the report is cut short" if not whole else "the report has no end_time: the run did not finish"
    return run


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    # NaN and infinity fail the comparison, and so does an integer that no float can hold.
    return float(value) if type(value) in (int, float) and 0 <= value < 1e18 else None


def _text(value: Any) -> str:
    """Give a string without lone surrogates, which JSON may hold and no file can."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _word(value: Any) -> str:
    return value if isinstance(value, str) and _WORD.fullmatch(value) else ""


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18 else None


def kept_environment(pairs: list[Any]) -> dict[str, str] | None:
    """Give the variables of the allow-list from NAME=value strings, None when there was no environment at all."""
    found = dict(_text(pair).split("=", 1) for pair in pairs if "=" in _text(pair))
    return {name: found[name] for name in sorted(found.keys() & ENVIRONMENT)} if pairs else None


def _configure(run: Run, data: Mapping[str, Any]) -> None:
    config = _dict(data.get("config"))
    for key, name in _SETTINGS.items():
        if (value := _whole(config.get(key))) is not None:
            run.settings[name] = value
    for key, by_factor in (("step_factor", True), ("step_bytes", False)):
        if (value := _whole(config.get(key))) is not None and {"min_bytes", "max_bytes"} <= run.settings.keys():
            run.settings["step"], run.settings["by_factor"] = value, by_factor
    for device in _list(config.get("devices")) or _list(data.get("devices")):
        run.ranks.append(
            {
                name: _text(value) if isinstance(value, str) else _whole(value)
                for key, name in _DEVICE.items()
                if (value := _dict(device).get(key)) is not None
            }
        )
    if run.ranks:
        # One entry is one process, whatever number of threads and GPUs it drives (parseRankInfo reads one line).
        run.nranks = len(run.ranks) * run.settings.get("threads", 1) * run.settings.get("gpus", 1)
    for name in ("start_time", "end_time"):
        if isinstance(data.get(name), str):
            run.extra[name] = _text(data[name])
    version = data.get("nccl_version")
    if version := version_of_code(version) if type(version) is int else _text(version):
        run.extra["nccl_version"] = version
        run.extra["library"] = "nccl"


def _row(result: Any) -> Row | None:
    result = _dict(result)
    size, count, dtype = _whole(result.get("size")), _whole(result.get("count")), _word(result.get("type"))
    # A result that was being written when the test stopped is closed early: it lacks its last key, or a placement.
    whole = "experiment_name" in result or all(isinstance(result.get(key), dict) for key, _ in _PLACES)
    if size is None or count is None or not dtype or not whole:
        return None
    groups: list[tuple[bool, tuple[str, ...]]] = []
    values: list[float | None] = []
    for key, in_place in _PLACES:
        if result.get(key) is None and key == "out_of_place":
            continue
        cells = _cells(result, key)
        if cells is None:
            return None
        groups.append((in_place, tuple(cells)))
        values += cells.values()
    redop, root = _word(result.get("redop")), str(result.get("root") or "").strip()[:10]
    return Row(
        size,
        count,
        dtype,
        redop if redop not in ("", "none") else None,
        int(root) if root.isdecimal() and len(root) < 10 else None,
        f"{redop} {root}".strip(),
        tuple(groups),
        tuple(values),
    )


def _cells(result: Mapping[str, Any], key: str) -> dict[str, float | None] | None:
    body = _dict(result.get(key))
    cells: dict[str, float | None] = {}
    for name, column in _COLUMNS.items():
        if name in body:
            cells[column] = _number(body[name])
            if cells[column] is None:
                return None
    if not {"algorithm_bandwidth", "bus_bandwidth"} <= cells.keys() or "nwrong" not in body:
        return None
    cells["wrong"] = _number(body["nwrong"])
    if cells["wrong"] is None and body["nwrong"] is not None:
        return None
    iterations = _dict(result.get(f"{key}_per_iter"))
    for name, column in _ITERATIONS.items():
        if (value := _number(iterations.get(name))) is not None:
            cells[column] = value
    return cells


def _close(run: Run, data: Mapping[str, Any]) -> None:
    bounds = _dict(data.get("out_of_bounds"))
    if (count := _whole(bounds.get("count"))) is not None:
        run.out_of_bounds = count
        run.oob_status = "OK" if str(bounds.get("okay")).lower() == "true" and count == 0 else "FAILED"
    # Until February 2026 the key was misspelt.
    average = _dict(data.get("average_bus_bandwidth") or data.get("average_bus_bandwidith"))
    if average:
        run.average_seen = True
        run.average = _number(average.get("bandwidth", average.get("bandwidith")))
        okay = str(average.get("okay")).lower()
        run.average_status = {"true": "OK", "false": "FAILED"}.get(okay)
    errors = [text for item in _list(data.get("errors")) if (text := _text(item).strip())]
    if errors:
        run.extra["last_error"] = errors[0][:300]


def _salvaged(text: str) -> dict[str, Any]:
    """Read what is whole in a report that is not valid JSON: top-level values, and results one by one."""
    text = _NOT_A_NUMBER.sub(":null", text)
    found: dict[str, Any] = {}
    results = _RESULTS.search(text)
    head = text[: results.start()] if results else text
    at = len(text)
    if results:
        whole = list(_values(text, results.end()))
        found["results"] = [item for item, _ in whole]
        at = whole[-1][1] if whole else results.end()
    for part in (head, text[at:]):
        for match in [*_TOP.finditer(part), *_AVERAGE.finditer(part)]:
            for value, end in _values(part, match.end()):
                # A number at the very end may have lost digits.
                if end < len(part) or (part is head and results):
                    found.setdefault(match.group()[1:-2], value)
                break
    return found


def _values(text: str, at: int) -> Iterator[tuple[Any, int]]:
    """Give the JSON values that follow one another from `at`, each with its end, until one is not whole."""
    while True:
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        yield value, at


def record_objects(line: str) -> Iterator[Mapping[str, Any] | None]:
    """Give the records of rccl-tests in a line; None stands for one that is damaged."""
    at = line.find(RECORD)
    text = _NOT_A_NUMBER.sub(":null", line.replace('"wrong":N/A', '"wrong":null'))
    while at >= 0:
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            yield None
            return
        yield value
        at = text.find(RECORD, at)


def record_of_csv(names: list[str], line: str) -> Mapping[str, Any] | None:
    """Read one line of rccl-tests' CSV; None when it is not a whole record.

    The header of MPI builds lacks the column `nodes` that their records have.
    """
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) == len(names) + 1 and "ranks" in names and "nodes" not in names:
        names = [*names[: names.index("ranks")], "nodes", *names[names.index("ranks") :]]
    if len(cells) != len(names):
        return None
    renamed = {"collective": "name", "inplace": "inPlace", "algbw": "algBw", "busbw": "busBw", "#wrong": "wrong"}
    renamed |= {"rankspernode": "ranksPerNode", "gpusperrank": "gpusPerRank"}
    record: dict[str, Any] = {}
    for name, cell in zip(names, cells, strict=True):
        try:
            record[renamed.get(name, name)] = json.loads(cell)
        except (ValueError, RecursionError):
            record[renamed.get(name, name)] = cell
    return record


def record_key(record: Mapping[str, Any]) -> tuple[str | None, int] | None:
    """Give (operation, ranks) of a record: records of equal keys are one run. None for no record."""
    ranks = _whole(record.get("ranks")) or 1
    gpus = _whole(record.get("gpusPerRank")) or _whole(record.get("gpus"))
    if gpus is None:
        return None
    return _RCCL_NAMES.get(str(record.get("name"))), ranks * gpus


def record_row(record: Mapping[str, Any]) -> Row | None:
    """Read one record as a row of one placement. None when it is damaged."""
    size, dtype, place = _whole(record.get("size")), _word(record.get("type")), record.get("inPlace")
    values = [_number(record.get(name)) for name in ("time", "algBw", "busBw")]
    if size is None or not dtype or place not in (0, 1) or None in values:
        return None
    wrong = str(record.get("wrong"))
    if not wrong.isdecimal() and wrong not in ("N/A", "None", "-1"):
        return None
    redop = _word(record.get("redop"))
    return Row(
        size,
        None,
        dtype,
        redop if redop not in ("", "none") else None,
        None,
        redop,
        ((bool(place), ("time", "algorithm_bandwidth", "bus_bandwidth", "wrong")),),
        (*values, float(wrong) if wrong.isdecimal() and len(wrong) < 18 else None),
    )
