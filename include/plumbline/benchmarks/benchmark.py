"""What a benchmark is to Plumbline: how it is started, what it must yield, how its output becomes values.

One module in this package is one benchmark. Everything that differs between tools lives there; everything that is
the same for all (records, raw files, rows, verdicts) lives outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from plumbline.model import (
    Code,
    Contends,
    Device,
    Indicator,
    LaunchSpec,
    Origin,
    Params,
    RunRecord,
    Scalar,
    Scope,
)
from plumbline.readers.reading import Completeness, Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A setting that suites and profiles may give: its default, meaning, and allowed values.

    The type of `default` is the type that is accepted (int is accepted for float); a list is written as a
    comma-separated string. `choices` is empty for any value. `least` and `most` are the smallest and the largest number
    allowed.
    """

    default: Scalar
    meaning: str
    choices: tuple[Scalar, ...] = ()
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where a launch will run: all that a benchmark may know of the cluster when it writes its command.

    `launcher` is local, kubernetes or simulated. On `local`, several emulated nodes share one machine and one process
    start serves the whole group. `python` is the interpreter of the benchmark environment, `programs` the
    directory of the programs that ship in the images, `storage_dir` the file system under test.
    """

    launcher: str
    device: Device
    origin: Origin
    nodes: tuple[str, ...]
    accelerators_per_node: int
    accelerator: str
    fabric: str
    python: str
    programs: Path
    storage_dir: str

    @property
    def node_count(self) -> int:
        """How many nodes the group has."""
        return len(self.nodes)

    @property
    def ranks(self) -> int:
        """How many processes take part: one an accelerator, or one an emulated node on CPU."""
        return len(self.nodes) * self.accelerators_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How one launch is started. `outputs` are globs relative to the raw directory, which is the working directory."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float
    outputs: tuple[str, ...] = ("stdout",)
    expect: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A row that a launch must yield. Its absence is NOT_RUN, so nothing is lost by being left out of the output."""

    indicator: str
    params: Params = field(default_factory=dict)
    node: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One number of a launch. `node` and `gpu` are None where it describes the whole group."""

    indicator: str
    value: float
    unit: str
    params: Params = field(default_factory=dict)
    node: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that a benchmark's output says besides numbers: wrong results, page cache and the like."""

    code: Code
    message: str
    indicator: str | None = None
    params: Params = field(default_factory=dict)
    node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All that reading one launch gave. `completeness` holds one statement for each output file that was read."""

    values: tuple[Value, ...] = ()
    findings: tuple[Finding, ...] = ()
    facts: tuple[Fact, ...] = ()
    completeness: tuple[Completeness, ...] = ()


class Benchmark(Protocol):
    """A module in this package."""

    NAME: str
    VERSION: str
    """Raised when a change makes numbers incomparable; other versions are never compared."""
    TITLE: str
    SCOPE: Scope
    CONTENDS: Contends
    READER: str
    INDICATORS: tuple[Indicator, ...]
    PARAMETERS: Mapping[str, Parameter]
    COVERS: str
    """One line for people: which part of the cluster a bad number points at."""

    def command(self, placement: Placement, params: Params) -> Command:
        """Write the whole command for one group. `params` holds every PARAMETER, checked. Raises ConfigError."""

    def expected(self, spec: LaunchSpec) -> Iterable[Expected]:
        """Name every row that this launch must yield."""

    def measure(self, spec: LaunchSpec, record: RunRecord, raw_dir: Path) -> Measured:
        """Read the launch's raw output. Raises OutputError when a file is unreadable or absent."""
