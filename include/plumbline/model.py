"""The concepts of Plumbline as frozen values. Standard library only: the in-pod part imports this module.

Coordinates of a number (node, message size, operation …) are fields or `params`, never parts of a name.
Absent is absent: `None` where a type allows it, never 0, -1 or NaN standing in for a number.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from plumbline.codes import KIND_OF_CODE, Code, VerdictKind

Scalar = str | int | float | bool | None
Params = Mapping[str, Scalar]


class Better(StrEnum):
    """Which direction of an indicator is good."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"
    """Descriptive: recorded and trended; judged only where a reference has bounds."""


class Origin(StrEnum):
    """Whether a number was measured or comes out of the simulator."""

    MEASURED = "measured"
    SIMULATED = "simulated"


class Device(StrEnum):
    """What the benchmark computed on."""

    GPU = "gpu"
    CPU = "cpu"


class Contends(StrEnum):
    """What groups of a rung would share if they ran at once."""

    NONE = "none"
    FABRIC = "fabric"
    STORAGE = "storage"


class Scope(StrEnum):
    """What one value of a benchmark describes."""

    GPU = "gpu"
    NODE = "node"
    GROUP = "group"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Indicator:
    """A quantity that is measured, trended and judged.

    `valid_lower` and `valid_upper` bound what physics allows (inclusive, `None` is open): a value outside them is
    INVALID whatever the references say. `formula` and `source` are for people and for docs/indicators.md.
    """

    name: str
    unit: str
    better: Better
    title: str
    formula: str
    source: str
    valid_lower: float | None = 0.0
    valid_upper: float | None = None
    display: str = "{:.4g}"
    headline: bool = False
    """Shown in MLflow's parent run and at the top of the report."""
    judged: bool = True
    """False: recorded and shown, and never expected to have a reference."""
    resolution: float = 0.0
    """The step in which the tool prints it, in `unit`: a limit from history is never finer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """What one launch was asked to do: one group of nodes, one benchmark, one process start.

    `argv` is complete: the runner adds nothing. `outputs` are globs, relative to the raw directory, of the files
    that hold results ('stdout' and 'stderr' always exist). `expect` is handed to the reader.
    """

    launch_id: str
    run_id: str
    cluster: str
    benchmark: str
    benchmark_version: str
    reader: str
    node_count: int
    wave: int
    group: int
    repeat: int
    nodes: tuple[str, ...]
    accelerators_per_node: int
    device: Device
    origin: Origin
    contends: Contends
    params: Params
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float
    outputs: tuple[str, ...] = ("stdout",)
    expect: Mapping[str, Scalar] = field(default_factory=dict)
    image: str | None = None

    def placed(self, replaced: Mapping[str, str]) -> LaunchSpec:
        """Give the same launch with other nodes in the place of some: {planned: its substitute}.

        The command stays as it is: programs take the hosts that take part from PLUMBLINE_HOSTS, in this order.
        """
        return dataclasses.replace(self, nodes=tuple(replaced.get(node, node) for node in self.nodes))

    def digest(self) -> str:
        """Give the SHA-256 of the canonical JSON: a record names the spec that it answers by it."""
        return hashlib.sha256(canonical_json(to_plain(self)).encode()).hexdigest()


class Outcome(StrEnum):
    """How a launch ended."""

    EXITED = "exited"
    """The process ended by itself: see `exit_code`."""
    SIGNALLED = "signalled"
    TIMEOUT = "timeout"
    NOT_STARTED = "not_started"
    """The command could not be started (missing binary, directory or permission)."""
    STOPPED = "stopped"
    """The runner was asked to stop (SIGTERM)."""
    INFRASTRUCTURE = "infrastructure"
    """No process was seen by a runner: `code` says why (unschedulable, image_pull, node_lost …)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFile:
    """One raw output file: path relative to the raw directory, size and SHA-256."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What happened in one attempt at a launch. Written once, by write-temp, fsync, rename.

    Times are UTC ISO-8601 with microseconds. `hardware` identifies the machine after a repair (serials, GPU UUIDs);
    `snapshots` holds what the machine told of itself before and after. `replaced` names, for each planned node that an
    earlier attempt lost, the node that this attempt ran on in its place.
    """

    schema_version: int = 1
    launch_id: str
    run_id: str
    cluster: str
    attempt: int
    spec_sha256: str
    outcome: Outcome
    exit_code: int | None
    signal: int | None
    code: Code | None = None
    reason: str
    argv: tuple[str, ...]
    hosts: tuple[str, ...]
    replaced: Mapping[str, str] = field(default_factory=dict)
    started_at: str
    ended_at: str
    duration_s: float
    runner_cpu_s: float | None = None
    origin: Origin
    device: Device
    hardware: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    snapshots: Mapping[str, Any] = field(default_factory=dict)
    raw_dir: str
    raw_files: tuple[RawFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One value of one indicator at one place: a tidy row. Field order is the column order of measurements.parquet.

    `params` is canonical JSON (sorted keys, no spaces); `group`, `node` and `gpu` are None where the value describes
    something larger. `measured_at` is the UTC ISO-8601 end of the launch.
    """

    run_id: str
    suite: str
    cluster: str
    origin: Origin
    device: Device
    launch_id: str
    attempt: int
    wave: int
    group: int | None
    node: str | None
    gpu: str | None
    hardware_id: str | None
    node_count: int
    benchmark: str
    benchmark_version: str
    indicator: str
    value: float
    unit: str
    repeat: int
    params: str
    measured_at: str


MEASUREMENT_COLUMNS: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(Measurement))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Expected value of an indicator on given hardware, with bounds, unit, source and date.

    `value` may be None where only bounds are known. Outside [lower, upper] is FAIL; inside, but outside
    [warn_lower, warn_upper], is WARN. Bounds are absolute and inclusive, None is open. The `match` fields are
    compared with the row's params; `node_counts` is empty for any.
    """

    indicator: str
    benchmark: str
    hardware: str
    fabric: str | None = None
    node_counts: tuple[int, ...] = ()
    concurrency: str | None = None
    benchmark_version: str | None = None
    match: Params = field(default_factory=dict)
    value: float | None = None
    lower: float | None = None
    upper: float | None = None
    warn_lower: float | None = None
    warn_upper: float | None = None
    unit: str
    source: str
    date: str
    note: str = ""
    kind: str = "published"
    """published, physical, approved_history, vendor or contract."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement on one item: an expected row, a launch, a place in the inventory, or the run itself.

    `place` names where, for people ('node n3', 'rung 4 group 0', 'all_reduce 1 GiB'). `expected` is written for
    people and names the limit's source.
    """

    kind: VerdictKind
    code: Code
    place: str
    message: str
    benchmark: str | None = None
    indicator: str | None = None
    expected: str | None = None
    actual: float | None = None
    unit: str | None = None
    launch_id: str | None = None
    node_count: int | None = None
    group: int | None = None
    node: str | None = None
    params: str | None = None
    reference: str | None = None
    """Where the limit comes from (file, source, date)."""

    def __post_init__(self) -> None:
        """Refuse a code of another kind: a FAIL can't carry the reason of a PASS."""
        if KIND_OF_CODE[self.code] is not self.kind:
            raise ValueError(f"code {self.code} belongs to {KIND_OF_CODE[self.code]}, not to {self.kind}")


def verdict(code: Code, place: str, message: str, **fields: Any) -> Verdict:
    """Build a Verdict of the kind that `code` belongs to."""
    return Verdict(kind=KIND_OF_CODE[code], code=code, place=place, message=message, **fields)


# ---------------------------------------------------------------------------------------------------------------
# Plain data and back

T = TypeVar("T")


def canonical_json(data: object) -> str:
    """Write JSON with sorted keys and no spaces: equal data gives equal text. NaN and infinity raise ValueError."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical_params(params: Params) -> str:
    """Write params as the canonical JSON of the `params` column; whole floats become integers ('8.0' is '8')."""

    def plain(value: Scalar) -> Scalar:
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            return int(value)
        return value

    return canonical_json({key: plain(value) for key, value in params.items() if value is not None})


_PLAIN = frozenset({str, int, float, bool, type(None)})


def to_plain(value: Any) -> Any:
    """Give a dataclass as JSON-ready data: mappings, lists, strings, numbers, None."""
    if type(value) in _PLAIN:  # most of what a plan of a thousand nodes holds
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_plain(item) for item in value]
    return value


def launch_spec(data: Mapping[str, Any]) -> LaunchSpec:
    """Read a LaunchSpec from plain data. Raises TypeError or ValueError for missing, unknown or wrong fields."""
    return LaunchSpec(
        **{
            **data,
            "nodes": tuple(data["nodes"]),
            "argv": tuple(data["argv"]),
            "outputs": tuple(data["outputs"]),
            "device": Device(data["device"]),
            "origin": Origin(data["origin"]),
            "contends": Contends(data["contends"]),
        }
    )


def run_record(data: Mapping[str, Any]) -> RunRecord:
    """Read a RunRecord from plain data. Raises KeyError, TypeError or ValueError for a damaged one."""
    return RunRecord(
        **{
            **data,
            "argv": tuple(data["argv"]),
            "hosts": tuple(data["hosts"]),
            "outcome": Outcome(data["outcome"]),
            "code": None if data.get("code") is None else Code(data["code"]),
            "origin": Origin(data["origin"]),
            "device": Device(data["device"]),
            "raw_files": tuple(RawFile(**item) for item in data["raw_files"]),
        }
    )


def verdict_from(data: Mapping[str, Any]) -> Verdict:
    """Read a Verdict from plain data."""
    return Verdict(**{**data, "kind": VerdictKind(data["kind"]), "code": Code(data["code"])})


def worst(kinds: Iterable[VerdictKind]) -> VerdictKind:
    """Give the last of the kinds in display order (PASS when there are none): for labels, not for gates."""
    order = list(VerdictKind)
    return max(kinds, key=order.index, default=VerdictKind.PASS)
