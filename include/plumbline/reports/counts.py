"""Numbers that terminal, report and messages all tell of a verdict.json: each is counted here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from plumbline.model import Code


def indicators_without_baseline(reasons: Iterable[Mapping[str, Any]]) -> int:
    """Count the indicators, each of its benchmark, that have neither a reference here nor approved history.

    Values of one indicator at several places, sizes and node counts count once: entries of `reasons` stand for one
    value or for many, as the gate put them together.
    """
    return len({(r.get("benchmark"), r.get("indicator")) for r in reasons if r["code"] == Code.NO_BASELINE})
