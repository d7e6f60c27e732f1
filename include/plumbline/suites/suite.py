"""Suite: which benchmarks with which parameters at which node counts, how often, and what closes the gate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from plumbline.configuration import Document, Text, at_line, check_name, find_document, load_yaml, parse, search_path
from plumbline.errors import ConfigError, near_match
from plumbline.model import Scalar, VerdictKind

SUITES = Path(__file__).parent
ALWAYS_BLOCKING = (VerdictKind.FAIL, VerdictKind.INVALID, VerdictKind.NOT_RUN, VerdictKind.STALE)

NodeCounts = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] | Literal["ladder"]
"""An empty list would plan nothing, and what is not planned is not missed."""

MOST_TOLERANCE = 0.12
"""The most that a suite may let pass: with one of eight GPUs, rails or links gone an eighth is lost, and that must
show. A cluster known to repeat itself worse says so in its own profile (`repeatability`)."""


class Gate(Document):
    """Which verdicts close the gate. FAIL, INVALID, NOT_RUN and STALE always do; a suite can only add WARN."""

    blocks: tuple[VerdictKind, ...] = ALWAYS_BLOCKING
    coverage_gaps_allowed: bool = False
    """Nightly: NOT_RUN because busy, preempted or excluded is a coverage gap, until it is STALE."""
    max_age_nights: Annotated[int, Field(ge=1, le=30)] = 7
    """What was not measured for a month is not known, whatever a suite says."""

    @field_validator("blocks")
    @classmethod
    def _cannot_open(cls, blocks: tuple[VerdictKind, ...]) -> tuple[VerdictKind, ...]:
        missing = [kind.value for kind in ALWAYS_BLOCKING if kind not in blocks]
        if missing:
            raise ValueError(f"must contain {', '.join(missing)}: a suite can only make the gate stricter")
        if VerdictKind.PASS in blocks:
            raise ValueError("a PASS cannot close a gate")
        return blocks


class Baseline(Document):
    """How a cluster's own approved history becomes a limit.

    The limit is the median of the newest `window` approved values, less (or plus) the larger of
    `tolerance` × median and `sigmas` × 1.4826 × MAD; `warn_tolerance` likewise for WARN. The bounds of the settings
    keep it a limit: a fifth of the usual speed is never usual, a healthy value strays eight deviations less than once
    in a million even among few peers (analysis/neighbours.py), and history that asks for more than ten approvals
    first, or reaches back more than a quarter of a year, compares with nothing.
    """

    min_runs: Annotated[int, Field(ge=1, le=10)] = 1
    window: Annotated[int, Field(ge=1, le=90)] = 14
    tolerance: Annotated[float, Field(gt=0, le=0.8)] = 0.05
    warn_tolerance: Annotated[float, Field(gt=0, le=0.8)] = 0.03
    sigmas: Annotated[float, Field(ge=1, le=8)] = 4.0

    @model_validator(mode="after")
    def _can_warn_and_bind(self) -> Baseline:
        if self.warn_tolerance > self.tolerance:
            raise ValueError(f"warn_tolerance {self.warn_tolerance:g} above tolerance {self.tolerance:g} never warns")
        if self.min_runs > self.window:
            raise ValueError(f"min_runs {self.min_runs} above window {self.window} never makes a limit")
        return self


class SuiteBenchmark(Document):
    """One benchmark of a suite. `node_counts` None takes the suite's; counts above the inventory are NOT_RUN."""

    benchmark: str
    params: dict[str, Scalar] = {}
    node_counts: NodeCounts | None = None
    repeats: Annotated[int, Field(ge=1, le=50)] | None = None


class Suite(Document):
    """What is run, in this order."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
    title: Text
    kind: Literal["nightly", "acceptance"]
    gate: Gate
    node_counts: NodeCounts = "ladder"
    """'ladder' is 1, 2, 4 … and the whole inventory."""
    repeats: Annotated[int, Field(ge=1, le=50)] = 1
    retries: Annotated[int, Field(ge=0, le=5)] = 1
    """How often at most a launch that infrastructure stopped is tried again; a low number never is."""
    baseline: Baseline = Baseline()
    gpu_hours: Annotated[float, Field(gt=0)] | None = None
    """Once so many are used no further batch starts; the profile's limits.gpu_hours holds as well."""
    note: str = ""
    benchmarks: Annotated[tuple[SuiteBenchmark, ...], Field(min_length=1)]
    omitted: tuple[str, ...] = ()
    """Benchmarks of the suite that --set benchmarks left out: their absence is in the verdict. No file may have it."""
    faults: str | None = None
    """Simulated clusters only: a file of planted faults."""

    @model_validator(mode="after")
    def _acceptance_is_strict(self) -> Suite:
        lax = VerdictKind.WARN not in self.gate.blocks or self.gate.coverage_gaps_allowed
        if self.kind == "acceptance" and lax:
            raise ValueError("the gate of an acceptance blocks WARN and allows no coverage gaps")
        return self


def suite_folders() -> list[Path]:
    """Give the folders that suites are looked for in: PLUMBLINE_SUITES, then the shipped ones."""
    return search_path("PLUMBLINE_SUITES", SUITES)


def load_suite(name: str, settings: dict[str, Any] | None = None) -> Suite:
    """Read a suite by name or path and apply `--set` settings. Raises ConfigError."""
    path = find_document("suite", name, suite_folders())
    suite = parse(Suite, load_yaml(path), str(path))
    check_name(path, "suite", suite.name)
    if suite.omitted:
        raise ConfigError(
            f"{path}: omitted: is not for a file: --set benchmarks leaves out what a suite has; take what it is not to "
            f"have out of benchmarks{at_line(path, 'omitted')}"
        )
    for key in ("tolerance", "warn_tolerance"):
        if (given := getattr(suite.baseline, key)) > MOST_TOLERANCE:
            raise ConfigError(
                f"{path}: baseline.{key}: {given:g} is more than {MOST_TOLERANCE:g}, and one of eight GPUs or rails "
                "gone is 0.125; a cluster that repeats itself worse says so in its profile, under `repeatability`"
                f"{at_line(path, 'baseline', key)}"
            )
    for key, value in (settings or {}).items():
        suite = _apply(suite, key, value)
    return suite


SETTINGS = {
    "node_counts": "the rungs: node counts such as 1,2,4, or ladder for 1, 2, 4 … and all nodes",
    "repeats": "how often each launch is repeated",
    "note": "a note for the report",
    "benchmarks": "a subset of the suite's benchmarks; what is left out is NOT_RUN, excluded",
    "faults": "simulated clusters: file of planted faults",
}


def _apply(suite: Suite, key: str, value: Any) -> Suite:
    where = f"--set {key}"
    data = suite.model_dump(mode="json")
    if "." in key:
        return _apply_parameter(suite, key, value)
    if key not in SETTINGS:
        known = [*SETTINGS, *(f"{b.benchmark}.<parameter>" for b in suite.benchmarks)]
        raise ConfigError(f"{where}: no such setting{near_match(key, known)}")
    if key == "benchmarks":
        names = [v.strip() for v in value.split(",")] if isinstance(value, str) else list(value)
        known_names = [b.benchmark for b in suite.benchmarks]
        for name in names:
            if name not in known_names:
                raise ConfigError(f"{where}: {name!r} is not in suite {suite.name}{near_match(name, known_names)}")
        data["benchmarks"] = [b for b in data["benchmarks"] if b["benchmark"] in names]
        data["omitted"] = sorted({n for n in known_names if n not in names} | set(suite.omitted))
    elif key == "node_counts":
        counts = _node_counts(value, where)
        data["node_counts"] = counts
        for entry in data["benchmarks"]:
            if entry["node_counts"] is not None and counts != "ladder" and len(entry["node_counts"]) > 1:
                entry["node_counts"] = None
    else:
        data[key] = value
    return parse(Suite, data, where)


def _apply_parameter(suite: Suite, key: str, value: Any) -> Suite:
    name, _, parameter = key.partition(".")
    data = suite.model_dump(mode="json")
    entries = [b for b in data["benchmarks"] if b["benchmark"] == name]
    if not entries:
        raise ConfigError(f"--set {key}: suite {suite.name} has no benchmark {name!r}"
                          f"{near_match(name, [b.benchmark for b in suite.benchmarks])}")  # fmt: skip
    for entry in entries:
        entry["params"][parameter] = value
    return parse(Suite, data, f"--set {key}")


def _node_counts(value: Any, where: str) -> Any:
    if value == "ladder":
        return value
    parts = [p.strip() for p in value.split(",")] if isinstance(value, str) else value
    parts = parts if isinstance(parts, (list, tuple)) else [parts]
    try:
        if any(isinstance(part, (bool, float)) for part in parts):  # int() takes true for 1 and cuts 1.5
            raise ValueError
        counts = sorted({int(part) for part in parts})
    except (TypeError, ValueError):
        raise ConfigError(f"{where}: node counts are whole numbers such as 1,2,4, or ladder, not {value!r}") from None
    if not counts or counts[0] < 1:
        raise ConfigError(f"{where}: node counts start at 1, not {value!r}")
    return counts


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Read `--set key=value` pairs; values are YAML scalars, else text. Raises ConfigError without '='."""
    import yaml  # noqa: PLC0415 - only for overrides

    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {pair}: write key=value")
        try:
            value = yaml.safe_load(text) if text else ""
        except (yaml.YAMLError, ValueError):  # ValueError: a date that no calendar has
            value = text
        settings[key.strip()] = value if isinstance(value, (str, int, float)) else text
    return settings
