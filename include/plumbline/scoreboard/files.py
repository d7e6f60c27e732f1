"""What a scoreboard leaves behind: tables for machines, one page for people. The same seeds give the same bytes."""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.scoreboard.campaign import Failure, Played, Setting
from plumbline.scoreboard.detectors import DETECTORS, GATE
from plumbline.scoreboard.page import page
from plumbline.scoreboard.scoring import (
    ALL,
    LEAST_SCENARIOS,
    LEAST_YEARS,
    NIGHTS_A_YEAR,
    alarm_row,
    cell_row,
    cells,
    false_alarms,
    outcome_rows,
)
from plumbline.scoreboard.seeds import Seeds

MOST_CAUSES = 20


def write_all(
    folder: Path, setting: Setting, seeds: Seeds, played: Sequence[Played], *, quick: bool, command: str, commit: str
) -> dict[str, Any]:
    """Write scenarios.parquet, recall.csv, false_alarms.csv, causes.csv, failures.csv, summary.json, scoreboard.md.

    Gives the content of summary.json. Raises OSError when the folder can't be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    scored = cells(played)
    quiet = false_alarms(played, scored)
    failures = [failure for one in played for failure in one.failures]
    causes: Counter[tuple[str, str, str, int, str]] = Counter()
    for one in played:
        causes.update(one.false_causes)
    _write_scenarios(folder / "scenarios.parquet", played)
    _write_csv(folder / "recall.csv", [cell_row(cell) for cell in scored])
    _write_csv(folder / "false_alarms.csv", [alarm_row(item) for item in quiet])
    _write_csv(
        folder / "causes.csv", _cause_rows(causes), ("rule", "benchmark", "indicator", "node_count", "params", "rows")
    )
    _write_csv(folder / "failures.csv", _failure_rows(failures), ("what", "error"))
    summary = _summary(setting, seeds, played, quick=quick, command=command, commit=commit)
    summary["claims"] = [cell_row(cell) for cell in scored if cell.detector == GATE and ALL in (cell.kind, cell.band)]
    summary["false_alarms"] = [alarm_row(item) for item in quiet]
    text = json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / "summary.json").write_text(text, encoding="utf-8")
    shown = page(setting, summary, scored, quiet, causes.most_common(MOST_CAUSES), failures)
    (folder / "scoreboard.md").write_text(shown, encoding="utf-8")
    return summary


def _summary(
    setting: Setting, seeds: Seeds, played: Sequence[Played], *, quick: bool, command: str, commit: str
) -> dict[str, Any]:
    """Say what was played, with which seeds and code."""
    return {
        "origin": "simulated",
        "says": "how detectors do on simulated clusters; nothing of any real cluster",
        "seeds": {
            "file": seeds.name, "sha256": seeds.sha256, "count": len(played), "development": seeds.development,
        },
        "quick": quick,
        "command": command,
        "commit": commit,
        "cluster": setting.profile.name,
        "nodes": len(setting.inventory),
        "suite": setting.suite.name,
        "scenarios": sum(len(one.outcomes) for one in played) // len(DETECTORS),
        "failed": sum(len(one.failures) for one in played),
        "cluster_years_without_fault": sum(one.healthy_nights for one in played) / NIGHTS_A_YEAR,
        "too_small": too_small(played),
        "detectors": dict(DETECTORS),
        "beyond_the_ladder": {"tests": 0, "rounds": 0, "gpu_minutes": 0},
    }  # fmt: skip


def too_small(played: Sequence[Played]) -> list[str]:
    """Say what keeps this from being a claim, in sentences; empty when nothing does."""
    years = sum(one.healthy_nights for one in played) / NIGHTS_A_YEAR
    found = []
    if len(played) < LEAST_SCENARIOS:
        found.append(f"{len(played)} scenarios of each kind and severity; a claim needs {LEAST_SCENARIOS}")
    if years < LEAST_YEARS:
        found.append(f"{years:.1f} cluster-years without a fault; a claim needs {LEAST_YEARS:g}")
    return found


def _write_scenarios(path: Path, played: Sequence[Played]) -> None:
    import pandas as pd

    frame = pd.DataFrame(outcome_rows(played))
    if len(frame):
        frame = frame.astype(
            {
                "night": "Int64",
                "named_nodes": "Int64",
                "suspects": "Int64",
                "suspected": "boolean",
                "part_named": "boolean",
            }
        )
    frame.to_parquet(path, index=False)


def _cause_rows(causes: Counter[tuple[str, str, str, int, str]]) -> list[Mapping[str, Any]]:
    names = ("rule", "benchmark", "indicator", "node_count", "params")
    return [
        {**dict(zip(names, cause, strict=True)), "rows": rows}
        for cause, rows in sorted(causes.items(), key=lambda item: (-item[1], item[0]))
    ]


def _failure_rows(failures: Sequence[Failure]) -> list[Mapping[str, Any]]:
    return [{"what": item.what, "error": item.error} for item in failures]


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]], header: Sequence[str] = ()) -> None:
    """Write rows with a header, even of none."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else list(header), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
