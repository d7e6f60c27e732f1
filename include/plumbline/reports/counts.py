"""Numbers that terminal, report and messages all tell of a verdict.json: each is counted here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plumbline.amounts import plural
from plumbline.model import Code

MOST_REASONS = 6
"""Reasons that a sentence names; verdict.json has all."""


def indicators_without_baseline(reasons: Iterable[Mapping[str, Any]]) -> int:
    """Count the indicators, each of its benchmark, that have neither a reference here nor approved history.

    Values of one indicator at several places, sizes and node counts count once: entries of `reasons` stand for one
    value or for many, as the gate put them together.
    """
    return len({(r.get("benchmark"), r.get("indicator")) for r in reasons if r["code"] == Code.NO_BASELINE})


def compared_in_words(verdict: Mapping[str, Any]) -> str:
    """Say what the run's values were compared with, and what approved history has beside them; '' where it isn't known.

    A partial run is so seen beside the whole: what could be compared was, and what it didn't measure is named.
    """
    found = verdict.get("compared")
    if not found:
        return ""
    runs = found["approved_runs"]
    beyond = f" ({found['beyond']:,} beyond {'its' if runs == 1 else 'their'} limits)" if found["history"] else ""
    parts = [
        (found["history"], f"with {plural(runs, 'approved run')}{beyond}", bool(runs)),
        (found["references"], f"with references{' alone' if runs else ''}", bool(found["references"])),
        (found["nothing"], "with nothing yet", bool(found["nothing"])),
        (found["shown"], "only shown", bool(found["shown"])),
    ]
    told = [f"{count:,} {words}" for count, words, shown in parts if shown]
    text = f"of {plural(verdict['coverage']['rows_measured'], 'value')}, {', '.join(told) or 'none'}"
    text += "" if runs else "; no run was approved before it began"
    if found["left_out"]:
        text += f"; approved and not measured this time: {_rungs(found['left_out'])}"
    if otherwise := found.get("measured_otherwise"):
        text += f"; approved and measured otherwise, so not compared: {_reasons(otherwise)}"
    return text


def _reasons(otherwise: Iterable[Mapping[str, Any]]) -> str:
    """Name what is left out of approved history, whatever the runs: 'mlperf_gpt3 (threads: 1 → 2)'."""
    told = dict.fromkeys(
        f"{item['benchmark']}{' ' + ', '.join(item['indicators']) if item.get('indicators') else ''} ({item['reason']})"
        for item in otherwise
    )
    more = f" and {len(told) - MOST_REASONS} more" if len(told) > MOST_REASONS else ""
    return ", ".join(list(told)[:MOST_REASONS]) + more


def _rungs(rungs: Iterable[Mapping[str, Any]]) -> str:
    """Name rungs: 'nccl_tests at 4 and 8 nodes, fio at 1 node'."""
    counts: dict[str, list[int]] = {}
    for rung in rungs:
        counts.setdefault(str(rung["benchmark"]), []).append(int(rung["node_count"]))
    return ", ".join(at_nodes(benchmark, found) for benchmark, found in counts.items())


def at_nodes(benchmark: str, counts: Sequence[int]) -> str:
    """Name a benchmark at some node counts: 'nccl_tests at 2, 4 and 8 nodes'."""
    words = [str(count) for count in counts]
    listed = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"{benchmark} at {listed} node{'' if words == ['1'] else 's'}"
