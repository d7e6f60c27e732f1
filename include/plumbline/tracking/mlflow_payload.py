"""What MLflow is told of a run, as plain values: names, points, parameters and tags. Knows nothing of the client.

Metrics are `<benchmark>/<indicator>_<unit>`, with the operation or job in front of the indicator where there are
several. On the parent the step is the node count; on a child it is log2 of the message size.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plumbline.errors import ConfigError
from plumbline.execution.asked import asked_in_words
from plumbline.model import Better, Indicator, VerdictKind, canonical_json, to_plain
from plumbline.tracking.cost import cost
from plumbline.tracking.judged_run import JudgedRun, Row
from plumbline.tracking.run_directory import run_time
from plumbline.tracking.surroundings import surroundings, uniform

MOST_HEADLINES = 40
MOST_METRICS = 500
_UNIT_WORDS = {"1": "ratio", "%": "percent", "1/s": "per_s", "count": "count"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One metric value; `timestamp_ms` is the run's own time, so that logging it again is the same point."""

    key: str
    value: float
    step: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """One MLflow run."""

    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str]
    points: tuple[Point, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over points and parameters, which MLflow can't change once logged; tags can be set again."""
        data = {"params": dict(self.params), "points": [to_plain(p) for p in self.points]}
        return hashlib.sha256(canonical_json(data).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPayload:
    """A parent and its children, one for each benchmark and node count."""

    experiment: str
    parent: Payload
    children: tuple[Payload, ...]
    started_ms: int
    ended_ms: int


def experiment_name(cluster: str, suite: str) -> str:
    """Give the name of the experiment that holds a suite's runs on a cluster."""
    return f"plumbline/{cluster}/{suite}"


def metric_name(benchmark: str, indicator: str, unit: str, qualifiers: Iterable[str] = ()) -> str:
    """Give `<benchmark>/<qualifiers>_<indicator>_<unit>` in the characters that MLflow allows."""
    words = [*qualifiers, indicator, _UNIT_WORDS.get(unit, unit.replace("/", "_per_").replace("%", "percent"))]
    return f"{benchmark}/{re.sub(r'[^A-Za-z0-9_.-]+', '_', '_'.join(words))}"


def run_payload(run: JudgedRun) -> RunPayload:
    """Turn a judged run into what MLflow will hold of it."""
    started = int(run_time(run.run_id).timestamp() * 1000)
    values = _grouped(run)
    qualifying = qualifying_params(run.verdicts)
    tags = run_tags(run)
    children = tuple(
        _child(run, benchmark, node_count, values, qualifying, tags, started)
        for benchmark, node_count in sorted({(batch.benchmark, batch.node_count) for batch in run.plan.batches})
    )
    spent = cost(run)
    return RunPayload(
        experiment=experiment_name(run.cluster, run.suite_name),
        parent=Payload(
            name=run.run_id,
            tags={**tags, "plumbline.level": "run", "mlflow.note.content": _note(run)},
            params=_parent_params(run),
            points=(*_headlines(run, values, qualifying, started), *_run_points(run, started)),
        ),
        children=children,
        started_ms=started,
        ended_ms=started + int((spent.wall_s or 0) * 1000),
    )


def run_tags(run: JudgedRun) -> dict[str, str]:
    """Give the tags that every MLflow run of this run carries."""
    return {
        "mlflow.source.name": "plumbline",
        "mlflow.source.type": "JOB",
        "plumbline.run_id": run.run_id,
        "plumbline.verdict": run.verdict.value,
        "plumbline.gate": "open" if run.gate_open else "closed",
        "plumbline.origin": run.origin.value,
        "plumbline.device": run.device.value,
        "plumbline.cluster": run.cluster,
        "plumbline.suite": run.suite_name,
        "plumbline.manifest_sha256": run.run.manifest_sha256(),
    }


# -- values ----------------------------------------------------------------------------------------------------------

Group = tuple[str, int, str, str, str]
"""benchmark, node count, indicator, unit, params."""


def _grouped(run: JudgedRun) -> dict[Group, dict[tuple[Any, ...], list[float]]]:
    """Give the values of each row kind by place; a place holds its repeats. Rows judged INVALID are left out."""
    from plumbline.tracking.comparison import values_by_key  # noqa: PLC0415 - imports pyarrow

    found: dict[Group, dict[tuple[Any, ...], list[float]]] = {}
    for (benchmark, _, indicator, unit, node_count, params), places in values_by_key(run.run).items():
        found.setdefault((benchmark, node_count, indicator, unit, params), {}).update(places)
    return found


def qualifying_params(expected: Iterable[Row]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Give (benchmark, indicator) → params that have several values among the rows that the plan expected.

    The expected rows decide, not the measured ones: a night with a missing row must not rename the others.
    """
    seen: dict[tuple[str, str], dict[str, set[Any]]] = {}
    for row in expected:
        if row.get("item", "row") == "row" and row["benchmark"] and row["indicator"] and row["params"]:
            params = seen.setdefault((row["benchmark"], row["indicator"]), {})
            for name, value in json.loads(row["params"]).items():
                params.setdefault(name, set()).add(value)
    return {
        key: tuple(sorted(name for name, found in params.items() if len(found) > 1 and not is_axis(name)))
        for key, params in seen.items()
    }


def is_axis(name: str) -> bool:
    """Say whether a parameter is the x axis of a curve rather than part of a name."""
    return name == "message_bytes"


def _qualifiers(params: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    words = []
    for name in names:
        value = params.get(name)
        if value is not None:
            words.append(value if isinstance(value, str) else f"{name}_{value}")
    return tuple(words)


def look_up(benchmark: str, indicator: str) -> Indicator | None:
    """Give an indicator's definition, or None for one that this version of Plumbline no longer knows."""
    from plumbline.indicators import indicator as defined  # noqa: PLC0415 - imports every benchmark

    try:
        return defined(benchmark, indicator)
    except ConfigError:
        return None


def _child(
    run: JudgedRun,
    benchmark: str,
    node_count: int,
    values: Mapping[Group, Mapping[tuple[Any, ...], list[float]]],
    qualifying: Mapping[tuple[str, str], tuple[str, ...]],
    tags: Mapping[str, str],
    at: int,
) -> Payload:
    points: dict[tuple[str, int], Point] = {}
    curves = _curves(values)
    mine = {group: places for group, places in values.items() if group[:2] == (benchmark, node_count)}
    for (_, _, indicator, unit, params), places in sorted(mine.items(), key=_by_size):
        given = json.loads(params)
        words = _qualifiers(given, qualifying.get((benchmark, indicator), ()))
        for extra, value in _typical_and_worst(benchmark, indicator, places):
            key = metric_name(benchmark, indicator, unit, (*extra, *words))
            step = _step(given) if (benchmark, indicator) in curves else 0
            point = Point(key=key, value=value, step=step, timestamp_ms=at)
            points[key, point.step] = point
    name = f"{benchmark}-n{node_count}"
    kept = _at_most(MOST_METRICS, list(points.values()), benchmark)
    return Payload(
        name=name,
        tags={
            **tags,
            "plumbline.level": "batch",
            "plumbline.batch": name,
            **_batch_verdict(run, benchmark, node_count),
        },
        params=_child_params(run, benchmark, node_count),
        points=tuple(kept),
    )


def _curves(values: Iterable[Group]) -> set[tuple[str, str]]:
    """Give (benchmark, indicator) of what has several sizes; a single size is a value and no curve."""
    sizes: dict[tuple[str, str], set[Any]] = {}
    for benchmark, _, indicator, _, params in values:
        sizes.setdefault((benchmark, indicator), set()).add(json.loads(params).get("message_bytes"))
    return {key for key, found in sizes.items() if len(found) > 1}


def _by_size(item: tuple[Group, Any]) -> tuple[Any, ...]:
    """Order by name, then size: of two sizes that round to one step the larger is kept."""
    (_, _, indicator, _, params), _ = item
    given = json.loads(params)
    return (
        indicator,
        str(sorted((k, str(v)) for k, v in given.items() if not is_axis(k))),
        given.get("message_bytes", 0),
    )


def _step(params: Mapping[str, Any]) -> int:
    size = params.get("message_bytes")
    return round(math.log2(size)) if isinstance(size, int) and size > 0 else 0


def _typical_and_worst(
    benchmark: str, indicator: str, places: Mapping[tuple[Any, ...], list[float]]
) -> Iterator[tuple[tuple[str, ...], float]]:
    medians = [statistics.median(values) for values in places.values()]
    yield (), statistics.median(medians)
    known = look_up(benchmark, indicator)
    if len(medians) > 1 and known is not None and known.better is not Better.NEITHER:
        yield ("worst",), min(medians) if known.better is Better.HIGHER else max(medians)


def _at_most(limit: int, points: list[Point], benchmark: str) -> list[Point]:
    """Keep the points of at most `limit` names, headline indicators first; the rest is in the parquet file."""
    names = list(dict.fromkeys(p.key for p in points))
    if len(names) <= limit:
        return points
    kept = set(sorted(names, key=lambda name: (f"{benchmark}/worst_" in name, len(name), name))[:limit])
    return [p for p in points if p.key in kept]


# -- the parent ------------------------------------------------------------------------------------------------------


def _headlines(
    run: JudgedRun,
    values: Mapping[Group, Mapping[tuple[Any, ...], list[float]]],
    qualifying: Mapping[tuple[str, str], tuple[str, ...]],
    at: int,
) -> Iterator[Point]:
    """Give the headline indicators over node counts; of a curve over sizes, its largest size.

    A benchmark that is planned at one node count has step 0: MLflow then draws a bar for each run, not a lone dot.
    """
    scales = Counter(benchmark for benchmark, _ in {(batch.benchmark, batch.node_count) for batch in run.plan.batches})
    found: dict[tuple[str, int], Point] = {}
    for (benchmark, node_count, indicator, unit, params), places in sorted(values.items(), key=_by_size):
        known = look_up(benchmark, indicator)
        if known is None or not known.headline:
            continue
        words = _qualifiers(json.loads(params), qualifying.get((benchmark, indicator), ()))
        key = metric_name(benchmark, indicator, unit, words)
        value = statistics.median(statistics.median(v) for v in places.values())
        step = node_count if scales[benchmark] > 1 else 0
        found[key, step] = Point(key=key, value=value, step=step, timestamp_ms=at)
    names = sorted({key for key, _ in found})
    room = set(names[: MOST_HEADLINES - len(_RUN_METRICS)])
    yield from (point for (key, _), point in sorted(found.items()) if key in room)


_RUN_METRICS = (
    "run/passed_count", "run/warned_count", "run/failed_count", "run/invalid_count", "run/not_run_count",
    "run/coverage_ratio", "run/gpu_hours", "run/cpu_hours", "run/wall_time_s",
)  # fmt: skip


def _run_points(run: JudgedRun, at: int) -> Iterator[Point]:
    kinds = Counter(row["kind"] for row in run.verdicts)
    coverage, spent = run.summary["coverage"], cost(run)
    values: dict[str, float | None] = {
        "run/passed_count": kinds[VerdictKind.PASS.value],
        "run/warned_count": kinds[VerdictKind.WARN.value],
        "run/failed_count": kinds[VerdictKind.FAIL.value],
        "run/invalid_count": kinds[VerdictKind.INVALID.value],
        "run/not_run_count": kinds[VerdictKind.NOT_RUN.value] + kinds[VerdictKind.STALE.value],
        "run/coverage_ratio": coverage["measured"] / coverage["expected"] if coverage["expected"] else None,
        f"run/{run.device.value}_hours": spent.hours,
        "run/wall_time_s": spent.wall_s,
    }
    for key, value in values.items():
        if value is not None:
            yield Point(key=key, value=float(value), step=0, timestamp_ms=at)


def _parent_params(run: JudgedRun) -> dict[str, str]:
    counts = sorted({batch.node_count for batch in run.plan.batches})
    benchmarks = {spec.benchmark: spec.benchmark_version for spec in run.plan.launches}
    found = {
        "nodes": str(len(run.plan.inventory)),
        "nodes_planned": str(len({node for spec in run.plan.launches for node in spec.nodes})),
        "node_counts": ",".join(map(str, counts)),
        "accelerator": run.profile.accelerator.model,
        "accelerators_per_node": str(run.profile.accelerator.per_node),
        "fabric": run.profile.fabric.name,
        "launcher": run.profile.launcher,
        "repeats": str(run.suite.repeats),
        **{f"benchmark_version.{name}": version for name, version in sorted(benchmarks.items())},
    }
    for name, value in uniform(surroundings(run.launches)).items():
        found[re.sub(r"[^A-Za-z0-9_./ -]+", "_", name)] = value[:500]
    return dict(list(found.items())[:90])


def _child_params(run: JudgedRun, benchmark: str, node_count: int) -> dict[str, str]:
    specs = [s for s in run.plan.launches if s.benchmark == benchmark and s.node_count == node_count]
    given = {key: str(value)[:500] for key, value in sorted(specs[0].params.items()) if value is not None}
    return {
        "node_count": str(node_count),
        "groups": str(len({spec.group for spec in specs})),
        "repeats": str(max(spec.repeat for spec in specs)),
        "benchmark_version": specs[0].benchmark_version,
        "accelerator": run.profile.accelerator.model,
        **{f"param.{key}": value for key, value in given.items()},
    }


def _batch_verdict(run: JudgedRun, benchmark: str, node_count: int) -> dict[str, str]:
    from plumbline.model import worst  # noqa: PLC0415

    kinds = [
        VerdictKind(r["kind"]) for r in run.verdicts if (r["benchmark"], r["node_count"]) == (benchmark, node_count)
    ]
    return {"plumbline.batch_verdict": worst(kinds).value} if kinds else {}


def _note(run: JudgedRun) -> str:
    """Write the description that MLflow's run page shows on top (Markdown)."""
    from plumbline.reports.findings import find  # noqa: PLC0415 - reports build on tracking, but for this text

    summary, found = run.summary, find(run)
    stamp = " · ".join(run.stamps)
    lines = [f"**{run.verdict.value}**, gate **{summary['gate']}**{f' · {stamp}' if stamp else ''}", ""]
    lines += [f"- {item.kind.value} · {_escaped(item.title)}: {_escaped(item.problem)}" for item in found[:8]]
    if len(found) > 8:
        lines.append(f"- … and {len(found) - 8} more")
    coverage = summary["coverage"]
    if words := asked_in_words(summary.get("asked", ())):
        lines += ["", f"Not the suite as it is: {_escaped(words)}."]
    lines += ["", f"{coverage['rows_measured']} of {coverage['rows_expected']} values measured, {cost(run).text()}."]
    return "\n".join([*lines, "The report is the artifact report.html."])


def _escaped(text: str) -> str:
    """Take the meaning from Markdown and HTML characters: messages quote what tools printed."""
    return re.sub(r"([\\`*_\[\]<>#|!])", r"\\\1", " ".join(text.split())[:300])
