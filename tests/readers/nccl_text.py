# ruff: noqa: UP031  the formats below are those of the C sources, and are compared with them
"""Writes what nccl-tests of each generation prints, from values that the tests choose.

The formats are those of the print statements in NVIDIA/nccl-tests and ROCm/rccl-tests; the numbers are made up.
"""

from __future__ import annotations

import json

GENERATIONS = ("2017", "2019", "2021", "2022", "2025", "2026", "rccl2019", "rccl2024", "rccl_in_place", "copy")
NCCL = "node1:123:456 [0] NCCL INFO "
"""What stands before each line of the library itself."""


def cell(value: float | str, fmt: str) -> str:
    return value if isinstance(value, str) else fmt % value


def time_text(us: float) -> str:
    return "%7.0f" % us if us >= 10000 else "%7.1f" % us if us >= 100 else "%7.2f" % us


def numbers(size: int, ranks: int, operation: str, in_place: bool) -> tuple[float, float, float]:
    """Time (us), algorithm and bus bandwidth (GB/s) of a link of 100 GB/s with 20 us of latency."""
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "broadcast": 1.0, "reduce": 1.0, "sendrecv": 1.0}
    share = factor.get(operation, (ranks - 1) / ranks)
    us = 20.0 + size * share / 100e3 + (0.5 if in_place else 0.0)
    algbw = size / us / 1e3
    return us, algbw, algbw * share


def banner(
    generation: str, ranks: int, least: int, most: int, operation: str, check: int = 1, per_node: int = 8
) -> str:
    new = generation in ("2025", "2026")
    lines = []
    if generation == "2026":
        lines.append("# nccl-tests version 2.19.6 nccl-headers=22809 nccl-library=22907")
    if new:
        lines.append(f"# Collective test starting: {operation}_perf")
    start = "" if generation == "2017" else "# "
    line = f"{start}nThread 1 nGpus 1 minBytes {least} maxBytes {most} step: 2(factor) warmup iters: 5 iters: 20 "
    if generation in ("2017", "2019", "2021"):
        line += f"validation: {check} "
    elif generation == "rccl2019":
        line = (
            f"# nThread: 1 nGpus: 1 minBytes: {least} maxBytes: {most} step: 2(factor) warmupIters: 5 iters: 20 "
            f"validation: {check} "
        )
    else:
        line += f"agg iters: 1 validation: {check} graph: 0" + (" unalign: 0" if generation == "2026" else "")
    lines += [line, "#"]
    if generation.startswith("rccl2024"):
        lines.append("rccl-tests: Version develop:ae3e635")
    lines.append("# Using devices")
    for rank in range(ranks):
        host, device = f"node{rank // per_node + 1}", rank % per_node
        if generation == "2017":
            lines.append(
                "#   Rank %2d on %10s device %2d [0x%02x] %s" % (rank, host, device, 16 + device, "Tesla V100")
            )
        elif new or generation == "copy":
            bus = "0000:%02x:00" % (16 + device) if new else "0x%02x" % (16 + device)
            lines.append(
                "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s"
                % (rank, 0, 4000 + rank, host, device, bus, "NVIDIA H100 80GB HBM3")
            )
        else:
            bus = "0000:%02x:00.0" % (16 + device) if generation.startswith("rccl") else "0x%02x" % (16 + device)
            lines.append(
                "#   Rank %2d Pid %6d on %10s device %2d [%s] %s"
                % (rank, 4000 + rank, host, device, bus, "A100-SXM4-40GB")
            )
    return "\n".join(lines) + "\n"


def has_root(generation: str, operation: str) -> bool:
    return generation not in ("2017", "2019", "2021", "rccl2019") or operation in ("broadcast", "reduce")


def has_redop(generation: str, operation: str) -> bool:
    if generation in ("2017", "2019", "2021", "rccl2019"):
        return operation in ("all_reduce", "reduce", "reduce_scatter", "alltoall")
    return True


def header(generation: str, operation: str, timestamp: bool = False, cputime: bool = False) -> str:
    error = generation in ("2019", "2021", "rccl2019")
    wrong = "error" if error else "#wrong"
    time = "cputime" if cputime else "time"
    if generation == "2017":
        return (
            "#                                        out-of-place                    in-place\n"
            "#      bytes             N    type      op"
            "     time  algbw  busbw      res     time  algbw  busbw      res\n"
        )
    names = ["%12s" % "count", "%8s" % "type"]
    if has_redop(generation, operation):
        names.append("%6s" % "redop")
    if has_root(generation, operation):
        names.append("%6s" % "root")
    head = "# %10s  " % "size" + "  ".join(names)
    copy = " %6s" % "copybw" if generation == "copy" else ""
    group = "  %7s  %6s  %6s" % (time, "algbw", "busbw") + copy + (" %6s" % wrong if not error else "  %5s" % wrong)
    if generation == "2026":
        group = "  %7s  %6s  %6s  %6s" % (time, "algbw", "busbw", wrong)
    stamp = " %19s" % "timestamp" if timestamp else ""
    places = " " * (len(head) + 8) + "out-of-place" + " " * 23 + "in-place          "
    groups = group * 2
    if generation == "rccl_in_place":
        places, groups = " " * (len(head) + 8) + "in-place          ", group
    unit = "#        (B)    (elements)" + " " * (len(head) - 26) + "     (us)  (GB/s)  (GB/s)       " * 2
    return f"#\n#{places[1:]}\n{head}{groups}{stamp}\n{unit}\n"


def row(
    generation: str,
    operation: str,
    size: int,
    ranks: int,
    dtype: str = "float",
    wrong: float | str = 0,
    stamp: str = "",
    cells: dict[bool, tuple[float, float, float]] | None = None,
) -> str:
    count = size // 4 if operation in ("all_reduce", "broadcast", "reduce", "sendrecv") else size // 4 // ranks
    head = "%12d  %12d  %8s" % (size, count, dtype)
    redop = "sum" if operation in ("all_reduce", "reduce", "reduce_scatter", "sendrecv") else "none"
    if has_redop(generation, operation):
        head += "  %6s" % ("" if redop == "none" and generation in ("2019", "2021", "rccl2019") else redop)
    if has_root(generation, operation):
        head += "  %6d" % (0 if operation in ("broadcast", "reduce") else -1)
    body = ""
    for in_place in (False, True):
        if generation == "rccl_in_place" and not in_place:
            continue
        us, algbw, busbw = (cells or {}).get(in_place) or numbers(size, ranks, operation, in_place)
        if generation == "2017":
            body += "  %7.3f  %5.2f  %5.2f  " % (us / 1e3, algbw, busbw) + cell(wrong, "%7.0e")
            continue
        body += "  %s  %6.2f  %6.2f" % (time_text(us), algbw, busbw)
        body += " %6.2f" % 12.5 if generation == "copy" else ""
        if generation in ("2019", "2021", "rccl2019"):
            body += "  " + (cell(wrong, "%5.0e") if isinstance(wrong, str) else "%5.0e" % (wrong or 1e-7))
        elif generation == "copy":
            body += " " + ("%5s" % wrong if isinstance(wrong, str) else "%5g" % wrong)
        elif generation in ("2025", "2026"):
            body += "  " + ("%6s" % wrong if isinstance(wrong, str) else "%6g" % wrong)
        else:
            body += "  " + ("%5s" % wrong if isinstance(wrong, str) else "%5g" % wrong)
    return head + body + ("%21s" % stamp if stamp else "") + "\n"


def footer(generation: str, average: float, out_of_bounds: int = 0, operation: str = "all_reduce") -> str:
    start = " " if generation == "2017" else "# "
    text = f"{start}Out of bounds values : {out_of_bounds} {'FAILED' if out_of_bounds else 'OK'}\n"
    text += f"{start}Avg bus bandwidth    : {'%g' % average} \n"
    text += "\n" if generation == "2017" else "#\n"
    if generation in ("2025", "2026"):
        text += f"# Collective test concluded: {operation}_perf\n#\n\n"
    return text


def sizes(least: int, most: int) -> list[int]:
    found = [least]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found


def output(
    generation: str = "2026",
    operation: str = "all_reduce",
    ranks: int = 8,
    least: int = 1 << 20,
    most: int = 1 << 30,
    wrong: float | str = 0,
    out_of_bounds: int = 0,
    check: int = 1,
    per_node: int = 8,
) -> str:
    """One whole run. The printed average is that of the unrounded numbers, as in the tool."""
    swept = sizes(least, most)
    places = (True,) if generation == "rccl_in_place" else (False, True)
    values = [numbers(size, ranks, operation, place)[2] for size in swept for place in places]
    return (
        banner(generation, ranks, least, most, operation, check, per_node)
        + header(generation, operation)
        + "".join(row(generation, operation, size, ranks, wrong=wrong) for size in swept)
        + footer(generation, sum(values) / len(values), out_of_bounds, operation)
    )


def report(operation: str = "all_reduce", ranks: int = 8, least: int = 1 << 20, most: int = 1 << 30, **changes) -> str:
    """What -J writes for the same run (version 3): one line, roots and truths as strings."""
    results = []
    for size in sizes(least, most):
        result = {
            "size": size,
            "count": size // 4,
            "type": "float",
            "redop": "sum" if operation == "all_reduce" else "none",
            "root": "    -1",
        }
        for key, place in (("out_of_place", False), ("in_place", True)):
            us, algbw, busbw = (round(value, 6) for value in numbers(size, ranks, operation, place))
            result[key] = {"time": us, "alg_bw": algbw, "bus_bw": busbw, "nwrong": 0.0}
        results.append({**result, "actual_iterations": 20, "experiment_name": ""})
    busbw = [result[key]["bus_bw"] for result in results for key in ("out_of_place", "in_place")]
    document = {
        "version": 3,
        "start_time": "2026-07-10 10:00:00",
        "args": [
            f"/opt/nccl-tests/build/{operation}_perf",
            "-b",
            str(least),
            "-e",
            str(most),
            "-f",
            "2",
            "-J",
            "out.json",
        ],
        "env": ["PATH=/usr/bin", "API_TOKEN=hunter2", "NCCL_DEBUG=INFO", "NCCL_IB_HCA=mlx5_0", "HOME=/root"],
        "nccl_version": 22907,
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "minimum_bytes": least,
            "maximum_bytes": most,
            "step_factor": 2,
            "warmup_iters": 5,
            "iterations": 20,
            "aggregated_iterations": 1,
            "validation": 1,
            "graph": 0,
            "blocking_collectives": "false",
            "per_iter_timing": "false",
            "per_iter_skip": 0,
            "parallel_init": "false",
            "devices": [
                {
                    "rank": rank,
                    "group": 0,
                    "pid": 4000 + rank,
                    "hostname": f"node{rank // 8 + 1}",
                    "device": rank % 8,
                    "device_hex": "0000:%02x:00" % (16 + rank % 8),
                    "device_info": "NVIDIA H100 80GB HBM3",
                }
                for rank in range(ranks)
            ],
        },
        "results": results,
        "out_of_bounds": {"count": 0, "okay": "true"},
        "average_bus_bandwidth": {"bandwidth": round(sum(busbw) / len(busbw), 6), "okay": "unchecked"},
        "errors": [""],
        "end_time": "2026-07-10 10:01:00",
    }
    document |= changes
    return json.dumps({key: value for key, value in document.items() if value is not None}, separators=(",", ":"))


def rccl_record(size, place, wrong='"0"'):
    """Write one of the records that rccl-tests write in place of a table."""
    us, algbw, busbw = numbers(size, 16, "all_reduce", bool(place))
    return (
        f'{{"numCycle":0, "name":"AllReduce", "nodes":2, "ranks":16, "ranksPerNode":8, "gpusPerRank":1, "size":{size}, '
        f'"type":"float", "redop":"sum", "inPlace":{place}, "time":{us:f}, "algBw":{algbw:f}, "busBw":{busbw:f}, '
        f'"wrong":{wrong}}}'
    )
