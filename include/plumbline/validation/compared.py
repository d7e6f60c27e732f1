"""What a run's values were compared with: approved history, references, or nothing. It judges nothing itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from plumbline.analysis.baseline import BaselineLimit
from plumbline.execution.plan import Plan
from plumbline.validation.bounds import Bounds

if TYPE_CHECKING:
    import pandas


def compared(frame: pandas.DataFrame, kinds: Any, bounds: Sequence[Bounds]) -> dict[str, int]:
    """Count the rows of a joined frame that have a value, by what they are compared with.

    `history` and of those `beyond` its limits; `references` alone; `nothing`, though they ought to be judged; `shown`
    is what is recorded and not judged. `kinds` gives the number of each line's bounds.
    """
    import numpy as np

    def of_lines(values: Iterable[Any], dtype: type) -> Any:
        return np.array(list(values), dtype=dtype)[kinds] if len(bounds) else np.array([], dtype=dtype)

    value = frame["value"].to_numpy(dtype=float)
    measured = np.isfinite(value)
    lower = of_lines((item.baseline_lower for item in bounds), float)
    upper = of_lines((item.baseline_upper for item in bounds), float)
    history = measured & ~(np.isnan(lower) & np.isnan(upper))
    references = measured & ~history & of_lines((item.has_expectation for item in bounds), bool)
    nothing = measured & ~history & of_lines((item.needs_baseline for item in bounds), bool)
    counts = {
        "history": history,
        "beyond": history & ((value < lower) | (value > upper)),
        "references": references,
        "nothing": nothing,
        "shown": measured & ~history & ~references & ~nothing,
    }
    return {name: int(lines.sum()) for name, lines in counts.items()}


def left_out(baseline: Iterable[BaselineLimit], plan: Plan) -> list[dict[str, Any]]:
    """Give the rungs that approved history knows and this run does not measure, sorted by benchmark and node count."""
    planned = {(spec.benchmark, spec.node_count) for spec in plan.launches}
    known = {(limit.benchmark, limit.node_count) for limit in baseline}
    return [{"benchmark": benchmark, "node_count": count} for benchmark, count in sorted(known - planned)]
