"""From failing lines to verdicts, and from verdicts to the frame that is kept.

Everything that is the same for many lines is written once: texts are categories, and only lines that are not a PASS
become objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from plumbline.model import Code, Verdict, VerdictKind, verdict
from plumbline.validation.bounds import Bounds
from plumbline.validation.expectations import RULES, Outcome, Rule
from plumbline.validation.explanations import expected_by, expected_of, message_of, source_of
from plumbline.validation.gate import ALIKE_CODES, LEAST_GROUP, Alike
from plumbline.validation.places import location, subject
from plumbline.validation.readout import Readout
from plumbline.validation.waivers import Waiver

if TYPE_CHECKING:
    import numpy
    import pandas

PASS_MESSAGE = "within its limits"  # noqa: S105 - a verdict
UNJUDGED_MESSAGE = "recorded; nothing bounds it"

COLUMNS = (
    "kind", "code", "place", "message", "benchmark", "indicator", "expected", "actual", "unit", "launch_id",
    "node_count", "group", "node", "params", "reference", "gpu", "repeat", "lower", "upper", "warn_lower", "warn_upper",
    "ceiling", "baseline", "item",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeLines:
    """Lines that are told as one. `messages` is kind → what the lines of that kind say in the frame that is kept."""

    lines: numpy.ndarray
    messages: Mapping[int, str]
    told: Alike


@dataclass(frozen=True, slots=True, kw_only=True)
class RowVerdicts:
    """Every line that is not a PASS: in `rows` by its number, or in one of `alike`."""

    rows: Mapping[int, Verdict]
    alike: Sequence[AlikeLines] = ()


def row_verdicts(
    frame: pandas.DataFrame,
    kinds: numpy.ndarray,
    bounds: Sequence[Bounds],
    outcome: Outcome,
    readout: Readout,
    waivers: Sequence[Waiver] = (),
) -> RowVerdicts:
    """Give the verdict of every line that is not a PASS: the first broken rule is the cause.

    Lines that a waiver may name each have a verdict of their own.
    """
    import numpy as np

    cause = _first_broken(outcome, len(frame))
    found = list(_alike(frame, kinds, cause, waivers))
    own = cause >= 0
    for lines in found:
        own[lines] = False
    own_lines = np.flatnonzero(own)
    firsts = np.array([lines[0] for lines in found], dtype=np.int64)
    told = _verdicts(frame, kinds, bounds, cause, np.concatenate([own_lines, firsts]), readout)
    return RowVerdicts(
        rows={line: told[line] for line in map(int, own_lines)},
        alike=[_as_one(frame, kinds, bounds, RULES[cause[lines[0]]], lines, told[int(lines[0])]) for lines in found],
    )


def _alike(
    frame: pandas.DataFrame, kinds: numpy.ndarray, cause: numpy.ndarray, waivers: Sequence[Waiver]
) -> Iterator[numpy.ndarray]:
    """Give the lines of each cause and indicator that can be told as one."""
    import numpy as np

    benchmarks, indicators = frame["benchmark"], frame["indicator"]
    for index, rule in enumerate(RULES):
        lines = np.flatnonzero(cause == index) if rule.code in ALIKE_CODES else ()
        if len(lines) < LEAST_GROUP:
            continue
        there, first = np.unique(kinds[lines], return_index=True)
        names = [(str(benchmarks.iloc[line]), str(indicators.iloc[line])) for line in lines[first]]
        apart = {name for name in names if any(item.may_name(rule.code, *name) for item in waivers)}
        for name in dict.fromkeys(names):
            mine = [kind for kind, other in zip(there, names, strict=True) if other == name]
            members = lines[np.isin(kinds[lines], mine)]
            if name not in apart and len(members) >= LEAST_GROUP:
                yield members


def _as_one(
    frame: pandas.DataFrame,
    kinds: numpy.ndarray,
    bounds: Sequence[Bounds],
    rule: Rule,
    lines: numpy.ndarray,
    first: Verdict,
) -> AlikeLines:
    import numpy as np

    there, at = np.unique(kinds[lines], return_index=True)
    rows = frame.iloc[lines[at]].itertuples(index=False)
    nodes = frame["node"].iloc[lines].unique()
    return AlikeLines(
        lines=lines,
        messages={int(kind): message_of(rule, bounds[kind], row) for kind, row in zip(there, rows, strict=True)},
        told=Alike(first=first if len(nodes) == 1 else replace(first, node=None), count=len(lines)),
    )


def _verdicts(
    frame: pandas.DataFrame,
    kinds: numpy.ndarray,
    bounds: Sequence[Bounds],
    cause: numpy.ndarray,
    lines: numpy.ndarray,
    readout: Readout,
) -> dict[int, Verdict]:
    """Give line → verdict; `cause` is the index into RULES of what the line breaks."""
    import numpy as np

    if not len(lines):
        return {}
    reasons = _MissingReasons(readout)
    sources = [source_of(item) for item in bounds]
    broken = frame.iloc[lines].astype({"node": object, "gpu": object})
    place = places(broken)
    found = {}
    records: list[Any] = [*broken.itertuples(index=False)]
    for at, (line, row) in enumerate(zip(lines, records, strict=True)):
        rule, limits = RULES[cause[line]], bounds[kinds[line]]
        code, message = rule.code, message_of(rule, limits, row)
        if code is Code.NO_MEASUREMENT:
            code, why = reasons.of(str(row.launch_id))
            message = f"{message}: {why}"
        found[int(line)] = verdict(
            code,
            place[at],
            message,
            benchmark=str(row.benchmark),
            indicator=str(row.indicator),
            expected=expected_by(rule, limits, row),
            actual=float(row.value) if np.isfinite(row.value) else None,
            unit=limits.unit or None,
            launch_id=str(row.launch_id),
            node_count=int(row.node_count),
            group=_whole(row.group),
            node=_text(row.node),
            params=str(row.params),
            reference=sources[kinds[line]],
        )
    return found


def _first_broken(outcome: Outcome, size: int) -> numpy.ndarray:
    """Give each line's index into RULES of the first rule that it breaks; -1 for none."""
    import numpy as np

    cause = np.full(size, -1)
    for index in range(len(RULES) - 1, -1, -1):
        cause[outcome.failing[RULES[index].id]] = index
    return cause


def _whole(value: Any) -> int | None:
    import pandas as pd

    return None if pd.isna(value) else int(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


class _MissingReasons:
    """Why a launch yielded no number, from what the readout says of launches. Each launch is looked up once."""

    def __init__(self, readout: Readout) -> None:
        self._said: dict[str, list[Verdict]] = {}
        for item in readout.verdicts:
            if item.launch_id is not None and item.kind is not VerdictKind.PASS:
                self._said.setdefault(item.launch_id, []).append(item)
        self._of_rung: dict[str, list[Verdict]] = {}
        self._of_benchmark: dict[str, list[Verdict]] = {}
        for launch_id in (launch.launch_id for launch in readout.launches):
            said = self._said.get(launch_id, [])
            self._of_rung.setdefault(launch_id.partition("-g")[0], []).extend(said)
            self._of_benchmark.setdefault(launch_id.partition("-n")[0], []).extend(said)
        self._known: dict[str, tuple[Code, str]] = {}

    def of(self, launch_id: str) -> tuple[Code, str]:
        """Give the code of NOT_RUN and the reason in words."""
        if launch_id not in self._known:
            self._known[launch_id] = self._look_up(launch_id)
        return self._known[launch_id]

    def _look_up(self, launch_id: str) -> tuple[Code, str]:
        source = launch_id.removeprefix("derived-")
        if source == launch_id or source in self._said:
            return _reason(self._said.get(source, []), "the output holds no such row")
        rung, every = self._of_rung.get(source), self._of_benchmark.get(source.rpartition("-n")[0], [])
        return _reason(rung or every, "what it is derived from was not measured")


def _reason(said: Sequence[Verdict], otherwise: str) -> tuple[Code, str]:
    for item in said:
        if item.kind is VerdictKind.NOT_RUN:
            return item.code, item.message
    if said:
        return Code.NO_MEASUREMENT, f"{said[0].code.value}: {said[0].message}"
    return Code.NO_MEASUREMENT, otherwise


def places(frame: pandas.DataFrame) -> numpy.ndarray:
    """Name the place of every line."""
    import numpy as np

    whats, what = _distinct(frame, ["benchmark", "params"])
    wheres, where = _distinct(frame, ["node_count", "group", "node", "gpu", "repeat"])
    subjects = np.array([subject(str(b), str(p)) for b, p in whats], dtype=object)
    spots = np.array(
        [f" at {location(int(n), _whole(g), _text(node), _text(gpu), int(r))}" for n, g, node, gpu, r in wheres],
        dtype=object,
    )
    named: numpy.ndarray = subjects[what] + spots[where] if len(frame) else np.array([], dtype=object)
    return named


def _distinct(frame: pandas.DataFrame, columns: list[str]) -> tuple[list[tuple[Any, ...]], numpy.ndarray]:
    """Give the distinct combinations of columns, and for each line which one it has."""
    groups = frame.groupby(columns, sort=False, observed=True, dropna=False)
    first = frame.loc[(groups.cumcount() == 0).to_numpy(), columns]
    return list(first.itertuples(index=False, name=None)), groups.ngroup().to_numpy()


# -- the frame that is kept --------------------------------------------------------------------------------------


def verdict_frame(
    frame: pandas.DataFrame,
    kinds: numpy.ndarray,
    bounds: Sequence[Bounds],
    found: RowVerdicts,
    others: Iterable[Verdict],
    expected: int,
) -> pandas.DataFrame:
    """Give COLUMNS: the planned rows in plan order (item 'row'), then everything else (item 'launch').

    `lower` and `upper` are the bounds that close first, whoever set them.
    """
    import numpy as np
    import pandas as pd

    head, of_kind, extra = frame.iloc[:expected], kinds[:expected], list(others)
    columns: dict[str, Any] = {
        name: _text_column(codes, texts, name, found, of_kind, extra)
        for name, (codes, texts) in _shared_texts(head, of_kind, bounds).items()
    }
    columns["place"] = [*places(head), *(item.place for item in extra)]
    for name in ("node_count", "group", "repeat"):
        tail = pd.Series([getattr(item, name, None) for item in extra], dtype="Int64")
        columns[name] = pd.concat([head[name], tail]).array
    for name, values in _numbers(head).items():
        own = [item.actual if name == "actual" and item.actual is not None else np.nan for item in extra]
        columns[name] = np.concatenate([values, np.array(own, dtype=float)])
    return pd.DataFrame({name: columns[name] for name in COLUMNS})


def _shared_texts(
    head: pandas.DataFrame, of_kind: numpy.ndarray, bounds: Sequence[Bounds]
) -> dict[str, tuple[numpy.ndarray, Sequence[str | None]]]:
    """Give each text column as codes and the texts that they stand for, as if every line were a PASS."""
    import numpy as np

    same = np.zeros(len(head), dtype=np.int64)
    passing = [UNJUDGED_MESSAGE if expected_of(item) is None else PASS_MESSAGE for item in bounds]
    shared: dict[str, tuple[numpy.ndarray, Sequence[str | None]]] = {
        "kind": (same, [VerdictKind.PASS.value]),
        "code": (same, [Code.OK.value]),
        "message": (of_kind, passing),
        "expected": (of_kind, [expected_of(item) for item in bounds]),
        "unit": (of_kind, [item.unit or None for item in bounds]),
        "reference": (of_kind, [source_of(item) for item in bounds]),
        "item": (same, ["row"]),
    }
    for name in ("benchmark", "indicator", "launch_id", "node", "params", "gpu"):
        column = head[name].astype("category").cat
        shared[name] = (column.codes.to_numpy(dtype=np.int64), list(column.categories))
    return shared


def _numbers(head: pandas.DataFrame) -> dict[str, numpy.ndarray]:
    import numpy as np

    value = head["value"].to_numpy(dtype=float)
    return {
        "actual": np.where(np.isfinite(value), value, np.nan),
        "lower": np.fmax.reduce([head[n].to_numpy(dtype=float) for n in ("lower", "peer_lower", "baseline_lower")]),
        "upper": np.fmin.reduce([head[n].to_numpy(dtype=float) for n in ("upper", "baseline_upper")]),
        "warn_lower": np.fmax.reduce([head[n].to_numpy(dtype=float) for n in ("warn_lower", "baseline_warn_lower")]),
        "warn_upper": np.fmin.reduce([head[n].to_numpy(dtype=float) for n in ("warn_upper", "baseline_warn_upper")]),
        "ceiling": head["ceiling"].to_numpy(dtype=float),
        "baseline": head["baseline"].to_numpy(dtype=float),
    }


def _text_column(
    codes: numpy.ndarray,
    texts: Sequence[str | None],
    name: str,
    found: RowVerdicts,
    of_kind: numpy.ndarray,
    extra: Sequence[Verdict],
) -> Any:
    """Give a categorical: what PASS lines share, what each other verdict says instead, and the extra verdicts."""
    import numpy as np
    import pandas as pd

    known: dict[str, int] = {}

    def code_of(text: str | None) -> int:
        return -1 if text is None else known.setdefault(str(text), len(known))

    renumbered = np.array([*map(code_of, texts), -1])
    column = renumbered[codes]
    for alike in found.alike if name in ("kind", "code", "message") else ():  # the rest is as if it were a PASS
        said = np.zeros(int(of_kind.max()) + 1, dtype=np.int64)
        for kind, message in alike.messages.items():
            said[kind] = code_of(message if name == "message" else getattr(alike.told.first, name))
        column[alike.lines] = said[of_kind[alike.lines]]
    if name in ("kind", "code", "message", "expected", "reference"):
        for line, item in found.rows.items():
            column[line] = code_of(getattr(item, name))
    tail = [code_of("launch" if name == "item" else getattr(item, name, None)) for item in extra]
    whole = np.concatenate([column, np.array(tail, dtype=np.int64)])
    return pd.Categorical.from_codes(whole, categories=pd.Index(list(known)))
