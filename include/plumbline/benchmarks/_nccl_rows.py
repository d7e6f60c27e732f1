"""From the files of one nccl_tests launch to values, and to what its own words say against it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plumbline.amounts import node_list
from plumbline.benchmarks._launch_times import wrong_duration
from plumbline.benchmarks.benchmark import Finding, Measured, Value
from plumbline.errors import OutputError
from plumbline.model import Code, Device, LaunchSpec, Params, RunRecord, Scalar
from plumbline.readers import Completeness, Fact, Reading, Source, read
from plumbline.units import parse_bytes, show_bytes

_ALIGNMENT_BYTES = 16
"""Each rank's share is rounded down to this. Source: getCollByteCount in nccl-tests."""
_FACTS = (
    "nccl_version", "library", "tests_version", "program", "nranks", "hosts", "device_models", "transports", "networks",
    "algorithms", "gpu_direct", "warnings", "environment",
)  # fmt: skip
_DIVIDED = ("all_gather", "reduce_scatter", "alltoall")


def bandwidth_factor(operation: str, ranks: int) -> float | None:
    """Give bus ÷ algorithm bandwidth, or None for an operation that is not measured. Source: doc/PERFORMANCE.md."""
    share = (ranks - 1) / ranks
    return {"all_reduce": 2 * share, "sendrecv": 1.0, **dict.fromkeys(_DIVIDED, share)}.get(operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What was asked for, with every 'auto' resolved. `sizes` are the messages in bytes, ascending."""

    operations: tuple[str, ...]
    ranks: int
    min_bytes: int
    max_bytes: int
    step_factor: int
    headline_bytes: int
    sizes: tuple[int, ...]
    least_bytes: int
    """The smallest message of which every rank gets a share."""

    @classmethod
    def of(cls, params: Params, device: Device, ranks: int) -> Sweep:
        """Resolve the parameters. Raises ConfigError for a size that is none."""
        gpu = device is Device.GPU
        operations = tuple(name.strip() for name in str(params["operations"]).split(",") if name.strip())
        step = int(str(params["step_factor"])) or (4 if gpu else 2)
        step = max(step, 2)
        most = _bytes(params["max_bytes"], 8 << 30 if gpu else 16 << 20)
        divided = any(name in _DIVIDED for name in operations)
        least_bytes = _ALIGNMENT_BYTES * ranks if divided else 1
        least = 2 << 10 if gpu else 8 << 10
        while least < least_bytes:
            least *= step
        least = _bytes(params["min_bytes"], min(least, most))
        sizes = [least]
        while sizes[-1] * step <= most:
            sizes.append(sizes[-1] * step)
        return cls(
            operations=operations,
            ranks=ranks,
            min_bytes=least,
            max_bytes=most,
            step_factor=step,
            headline_bytes=_bytes(params["headline_message_bytes"], 8 << 30 if gpu else sizes[-1]),
            sizes=tuple(sizes) if 1 <= least <= most else (),
            least_bytes=least_bytes,
        )

    def expectations(self, params: Params) -> dict[str, Scalar]:
        """Give what the reader is told to expect of each table."""
        return {
            "min_bytes": self.sizes[0],
            "max_bytes": self.sizes[-1],
            "step_factor": self.step_factor,
            "nranks": self.ranks,
            "dtype": str(params["dtype"]),
            "check": 1,
            "iterations": int(str(params["iterations"])),
            "warmup": int(str(params["warmup"])),
        }

    def asked_size(self, printed: int) -> int | None:
        """Give the size that was asked for when this one was printed: the tools round down to whole shares."""
        slack = _ALIGNMENT_BYTES * self.ranks
        near = [size for size in self.sizes if 0 <= size - printed < slack and (printed or not size)]
        return min(near, key=lambda size: size - printed) if near else None


def _bytes(value: Scalar, auto: int) -> int:
    return auto if value == "auto" else value if isinstance(value, int) else parse_bytes(str(value))


@dataclass(slots=True)
class _Table:
    """What was read of one operation: out-of-place cells by asked size, and the facts of its run."""

    cells: dict[int, dict[str, float]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    exact: bool = False
    summed_us: float = 0.0
    """Times of one operation at every size, in place as well as out of place."""
    unasked: int = 0
    doubled: int = 0


def read_launch(spec: LaunchSpec, record: RunRecord, raw_dir: Path) -> Measured:
    """Read every file of a launch: reports are exact, tables are rounded, and stdout may hold all of them."""
    sweep = Sweep.of(spec.params, spec.device, spec.node_count * spec.accelerators_per_node)
    tables: dict[str, _Table] = {}
    found: list[Completeness] = []
    facts: dict[str, Any] = {}
    for path, operations in _files(raw_dir, sweep.operations):
        expect = {key: spec.expect[key] for key in ("min_bytes", "max_bytes", "step_factor") if key in spec.expect}
        expect["operations"] = ",".join(operations)
        completeness = _read_file(path, expect, operations, sweep, tables, facts)
        found.append(completeness)
    values = [value for name in sweep.operations if name in tables for value in _values(name, tables[name], sweep)]
    findings = [
        finding for name in sweep.operations if name in tables for finding in _findings(spec, sweep, name, tables[name])
    ]
    findings += _transport_findings(spec, facts)
    findings += wrong_duration(record, "the timed runs of all sizes", sum(_timed_s(table) for table in tables.values()))
    return Measured(
        values=tuple(values),
        findings=tuple(findings),
        facts=tuple(Fact(name, facts[name]) for name in _FACTS if name in facts),
        completeness=tuple(found),
    )


def _timed_s(table: _Table) -> float:
    """Give the least seconds that a sweep took: a time is the mean over the iterations; at least one was run."""
    iterations = (table.facts.get("settings") or {}).get("iterations")
    return table.summed_us / 1e6 * max(1, iterations if isinstance(iterations, int) else 1)


def _files(raw_dir: Path, operations: tuple[str, ...]) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Give the files to read and the operations that each must hold, reports first."""
    left = []
    for name in operations:
        mine = [path for path in (raw_dir / f"{name}.json", raw_dir / f"{name}.txt") if path.is_file()]
        for path in mine:
            yield path, (name,)
        if not mine:
            left.append(name)
    if left:
        stdout = raw_dir / "stdout"
        if not stdout.is_file():
            raise OutputError(f"no output of {', '.join(left)}", source=str(raw_dir))
        yield stdout, tuple(left)


def _read_file(
    path: Path,
    expect: Mapping[str, Scalar],
    operations: tuple[str, ...],
    sweep: Sweep,
    tables: dict[str, _Table],
    facts: dict[str, Any],
) -> Completeness:
    mine: dict[str, _Table] = {}
    seen: dict[str, Any] = {}
    status: Completeness | None = None
    for item in read("nccl_tests", Source.of_path(path), expect):
        if isinstance(item, Reading):
            name = _operation_of(item.params.get("operation"), operations)
            if name and item.indicator == "time":
                mine.setdefault(name, _Table(exact=path.suffix == ".json")).summed_us += item.value
            if name and not item.params.get("in_place") and "message_bytes" in item.params:
                _take(mine.setdefault(name, _Table(exact=path.suffix == ".json")), item, sweep)
        elif isinstance(item, Fact):
            seen[item.name] = item.value
        else:
            status = item
    for run in seen.get("runs") or [seen | {"operation": (seen.get("operations") or [None])[0]}]:
        if (name := _operation_of(run.get("operation"), operations)) in mine:
            mine[name].facts = dict(run)
    tables |= {name: table for name, table in mine.items() if name not in tables or table.exact > tables[name].exact}
    facts |= {key: value for key, value in seen.items() if key not in facts}
    if status is None:
        raise OutputError("the reader gave no statement of completeness", source=path.name)
    return status


def _operation_of(printed: Any, wanted: tuple[str, ...]) -> str:
    """Give the operation, or '' for one that was not asked for. An unnamed table is the one that its file is for."""
    name = str(printed or (wanted[0] if len(wanted) == 1 else ""))
    return name if name in wanted else ""


def _take(table: _Table, item: Reading, sweep: Sweep) -> None:
    printed = int(str(item.params["message_bytes"]))
    size = sweep.asked_size(printed)
    if size is None:
        table.unasked += 1
        return
    cells = table.cells.setdefault(size, {"printed_bytes": float(printed)})
    if item.indicator in cells:
        table.doubled += 1
    else:
        cells[item.indicator] = item.value


def _values(operation: str, table: _Table, sweep: Sweep) -> Iterator[Value]:
    where: dict[str, Scalar] = {"operation": operation}
    busbw = {size: cells["bus_bandwidth"] for size, cells in table.cells.items() if "bus_bandwidth" in cells}
    if sweep.ranks > 1:
        for size, value in sorted(busbw.items()):
            yield Value(indicator="bus_bandwidth", value=value, unit="GB/s", params={**where, "message_bytes": size})
        if sweep.headline_bytes in busbw:
            at = {**where, "message_bytes": sweep.headline_bytes}
            yield Value(indicator="bus_bandwidth_headline", value=busbw[sweep.headline_bytes], unit="GB/s", params=at)
        if busbw.keys() >= set(sweep.sizes):  # of a part of the sizes, the peak may be another one
            yield Value(indicator="bus_bandwidth_peak", value=max(busbw.values()), unit="GB/s", params=where)
    smallest = table.cells.get(sweep.sizes[0], {})
    if "time" in smallest:
        at = {**where, "message_bytes": sweep.sizes[0]}
        yield Value(indicator="latency_smallest", value=smallest["time"], unit="us", params=at)
    wrong = [cells["wrong"] for cells in table.cells.values() if "wrong" in cells]
    if len(wrong) == len(sweep.sizes):
        yield Value(indicator="wrong_results", value=sum(wrong), unit="count", params=where)


def _findings(spec: LaunchSpec, sweep: Sweep, operation: str, table: _Table) -> Iterator[Finding]:
    facts, where = table.facts, {"operation": operation}
    ranks = facts.get("nranks")
    if ranks is None:
        message = f"{operation}: the output does not say how many ranks took part"
        yield Finding(code=Code.INCOMPLETE_OUTPUT, message=message, params=where)
    elif ranks != sweep.ranks:
        code = Code.MISSING_RANK if ranks < sweep.ranks else Code.WRONG_PARAMETERS
        yield Finding(
            code=code, message=f"{operation}: {ranks} ranks took part, {sweep.ranks} were asked for", params=where
        )
    hosts = facts.get("hosts")
    if spec.device is Device.GPU and hosts is not None and len(hosts) < spec.node_count:
        message = (
            f"{operation}: ranks ran on {len(hosts)} hosts ({node_list(hosts, 8)}), {spec.node_count} were asked for"
        )
        yield Finding(code=Code.MISSING_RANK, message=message, params=where)
    wrong = {size: cells["wrong"] for size, cells in table.cells.items() if cells.get("wrong")}
    if wrong or facts.get("oob_status") == "FAILED":
        sizes = node_list((f"{count:.0f} elements at {show_bytes(size)}" for size, count in sorted(wrong.items())), 4)
        message = f"{operation} gave wrong results: {sizes or 'out of bounds values'}"
        yield Finding(code=Code.WRONG_RESULT, message=message, indicator="wrong_results", params=where)
    yield from (
        Finding(code=Code.WRONG_PARAMETERS, message=f"{operation}: {text}", params=where)
        for text in _other_parameters(spec, table)
    )
    if table.doubled:
        message = f"{operation}: {table.doubled} cells are there twice: two runs in one output"
        yield Finding(code=Code.DUPLICATE, message=message, params=where)
    yield from _implausible(operation, table, sweep)


def _other_parameters(spec: LaunchSpec, table: _Table) -> Iterator[str]:
    settings, expect = table.facts.get("settings") or {}, spec.expect
    for name in ("iterations", "warmup"):
        if name in settings and name in expect and settings[name] != expect[name]:
            yield f"{settings[name]} {name} instead of {expect[name]}"
    dtypes = table.facts.get("dtypes") or []
    if dtypes and "dtype" in expect and dtypes != [expect["dtype"]]:
        yield f"data type {', '.join(dtypes)} instead of {expect['dtype']}"
    if table.unasked:
        yield f"{table.unasked} cells of sizes that nobody asked for"
    unchecked = [size for size, cells in table.cells.items() if "wrong" not in cells]
    if expect.get("check") and unchecked:
        yield f"results of {len(unchecked)} sizes were not checked (#wrong is N/A)"


def _implausible(operation: str, table: _Table, sweep: Sweep) -> Iterator[Finding]:
    """Compare the columns with one another: swapped columns, other units, another operation or number of ranks."""
    factor = bandwidth_factor(operation, sweep.ranks)
    for size, cells in sorted(table.cells.items()):
        names = ("time", "algorithm_bandwidth", "bus_bandwidth")
        if factor is None or any(name not in cells for name in names):
            continue
        time_us, algorithm, bus = (cells[name] for name in names)
        if time_us <= 0:
            problem = f"takes {time_us:g} us"
        elif not _agree(algorithm, cells["printed_bytes"] / time_us / 1e3):
            problem = f"has {algorithm:g} GB/s, but its time of {time_us:g} us gives another value"
        elif not _agree(bus, algorithm * factor, abs_slack=0.0051 * (1 + factor)):
            problem = f"has {bus:g} GB/s on the bus, which is not {factor:.4g} × {algorithm:g} GB/s"
        else:
            continue
        message = f"{operation} at {show_bytes(size)} {problem}"
        params: dict[str, Scalar] = {"operation": operation, "message_bytes": size}
        yield Finding(code=Code.IMPOSSIBLE_VALUE, message=message, indicator="bus_bandwidth", params=params)
        return


def _agree(printed: float, computed: float, abs_slack: float = 0.0051) -> bool:
    """Say whether two numbers are equal but for rounding: two decimals, and times of four digits."""
    return abs(printed - computed) <= abs_slack + 0.005 * max(printed, computed)


def _transport_findings(spec: LaunchSpec, facts: Mapping[str, Any]) -> Iterable[Finding]:
    wanted = str(spec.params.get("transport") or "")
    if not wanted or spec.node_count < 2:
        return ()
    used = sorted(name for name in facts.get("transports") or [] if name.startswith("NET/"))
    if used == [wanted]:
        return ()
    shown = ", ".join(used) or "none that its log names"
    return (Finding(code=Code.WRONG_TRANSPORT, message=f"transport between nodes: {shown}, expected {wanted}"),)
