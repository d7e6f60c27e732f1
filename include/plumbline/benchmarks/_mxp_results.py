"""From an HPL-MxP launch's output to rows and findings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from plumbline.benchmarks._launch_times import wrong_duration
from plumbline.benchmarks._mxp_problem import Problem
from plumbline.benchmarks.benchmark import Finding, Measured, Value
from plumbline.errors import OutputError
from plumbline.model import Code, LaunchSpec, RunRecord, Scalar
from plumbline.readers import Completeness, Fact, Reading, Source, read

RESIDUAL_BOUND = 16.0
"""A run whose scaled residual is not below it is invalid, whatever the program compared with. Source: HPL-MxP rules."""

_NAMES = {
    "performance": "effective_flops",
    "performance_lu": "lu_flops",
    "residual": "residual",
    "iterations": "iterations",
    "matmul_rate": "matmul_rate",
}
_SHAPE = {"N": "n", "NB": "nb", "P": "p", "Q": "q"}


def read_launch(spec: LaunchSpec, record: RunRecord, raw_dir: Path) -> Measured:
    """Read stdout of one launch. Raises OutputError when it is absent or not HPL-MxP output."""
    asked = Problem.of(spec)
    path = raw_dir / "stdout"
    if not path.is_file():
        raise OutputError("the launch left no stdout", source=str(path.name))
    readings: list[Reading] = []
    facts: list[Fact] = []
    completeness: list[Completeness] = []
    for item in read("hpl_mxp", Source.of_path(path), spec.expect):
        if isinstance(item, Reading):
            readings.append(item)
        elif isinstance(item, Fact):
            facts.append(item)
        else:
            completeness.append(item)
    values = [value for reading in readings if (value := _value(asked, reading)) is not None]
    told = {fact.name: fact.value for fact in facts}
    least_s = _least_s(readings) + _number(told.get("generation_s"))
    return Measured(
        values=(*values, *_efficiencies(values)),
        findings=(
            *_findings(asked, readings, told),
            *wrong_duration(record, "generating and solving the system", least_s),
        ),
        facts=tuple(facts),
        completeness=tuple(completeness),
    )


def _least_s(readings: list[Reading]) -> float:
    """Give the least seconds that the solves took: by the operations and rate of each, and by the times it prints."""
    solves: dict[tuple[object, ...], dict[str, float]] = {}
    for reading in readings:
        place = (reading.params.get("run", 0), reading.params.get("N"))
        solves.setdefault(place, {})[reading.indicator] = reading.value
    least_s = 0.0
    for (_, order), told in solves.items():
        n, rate = _number(order), told.get("performance", 0.0)
        by_rate = (2 / 3 * n**3 + 3 / 2 * n**2) / (rate * 1e9) if rate > 0 else 0.0
        least_s += max(by_rate, told.get("time_lu", 0.0) + told.get("time_solver", 0.0), told.get("time", 0.0))
    return least_s


def _number(value: object) -> float:
    """Give a number of the output, 0 where it tells none."""
    return float(value) if isinstance(value, (int, float)) else 0.0


def _value(asked: Problem, reading: Reading) -> Value | None:
    """Give a reading as a row, at the coordinates that the output tells: a wrong matrix is a row of its own."""
    name = _NAMES.get(reading.indicator)
    if name is None or (name == "matmul_rate" and not asked.own):
        return None
    loop = int(str(reading.params.get("run", 0)))
    params = asked.row_params(loop)
    for theirs, ours in _SHAPE.items():
        params[ours] = reading.params.get(theirs, params[ours])
    if asked.precision != "auto" and "precision" in reading.params:
        params["precision"] = str(reading.params["precision"]).lower()
    return Value(indicator=name, value=reading.value, unit=reading.unit, params=params)


def _efficiencies(values: list[Value]) -> Iterator[Value]:
    rates = {_key(value.params): value.value for value in values if value.indicator == "matmul_rate"}
    for value in values:
        if value.indicator == "lu_flops" and (rate := rates.get(_key(value.params))):
            yield Value(indicator="lu_efficiency", value=value.value / rate, unit="1", params=value.params)


def _key(params: object) -> str:
    return repr(params)


def _findings(asked: Problem, readings: list[Reading], facts: dict[str, object]) -> Iterator[Finding]:
    if facts.get("verdict") == "FAILED":
        yield Finding(
            code=Code.RESIDUAL_FAILED,
            message=f"the solution is wrong: {facts.get('failed')} residual checks failed, the last scaled residual is "
            f"{facts.get('last_residual')}",
            indicator="residual",
        )
    for reading in readings:
        if reading.indicator == "residual" and not reading.value < RESIDUAL_BOUND and facts.get("verdict") != "FAILED":
            yield Finding(
                code=Code.RESIDUAL_FAILED,
                message=f"scaled residual {reading.value:g} is not below {RESIDUAL_BOUND:g}, although the program let "
                f"it pass (its threshold: {facts.get('threshold', 'unknown')})",
                indicator="residual",
            )
    told = {message for reading in readings if (message := _wrong_shape(asked, reading))}
    for message in sorted(told):
        yield Finding(code=Code.WRONG_PARAMETERS, message=message)


def _wrong_shape(asked: Problem, reading: Reading) -> str | None:
    """Say in what a result differs from what was asked, or None."""
    wanted: dict[str, Scalar] = {"N": asked.n, "NB": asked.nb, "P": asked.p, "Q": asked.q}
    if asked.precision != "auto":
        wanted["precision"] = asked.precision.upper()
    found = [
        f"{name} is {reading.params[name]}, asked was {value}"
        for name, value in wanted.items()
        if name in reading.params and reading.params[name] != value
    ]
    return "; ".join(found) or None
