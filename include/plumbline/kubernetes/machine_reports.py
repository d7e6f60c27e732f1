"""What the machines of a gang say of themselves before and after its command: workers write it, the launcher reads it.

A report is {"hardware": …, "software": …, "snapshot": …}. Standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from plumbline.execution.run_one import write_atomically
from plumbline.kubernetes.files import pods_folder

Reports = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Node → "before" or "after" → the report; empty where there is none."""


def write_report(evidence: Path, launch_id: str, attempt: int, node: str, when: str, report: Mapping[str, Any]) -> None:
    """Leave what a node says of itself at `when`, "before" or "after" the command."""
    write_atomically(_path(evidence, launch_id, attempt, node, when), json.dumps(report))


def all_reported(evidence: Path, launch_id: str, attempt: int, nodes: Collection[str]) -> bool:
    """Say whether every node has said its last."""
    return all(_path(evidence, launch_id, attempt, node, "after").exists() for node in nodes)


def read_reports(evidence: Path, launch_id: str, attempt: int, nodes: Collection[str]) -> Reports:
    """Give what the nodes have said by now; a report that is damaged counts as none."""
    return {
        node: {when: _read(_path(evidence, launch_id, attempt, node, when)) for when in ("before", "after")}
        for node in nodes
    }


def snapshots(reports: Reports, when: str) -> dict[str, Any]:
    """Put the snapshots of several nodes into one: GPUs in one list, named node/index; the rest by node."""
    found: dict[str, Any] = {"nodes": {}}
    for node, one in reports.items():
        taken = dict(one[when].get("snapshot") or {})
        for gpu in taken.pop("gpus", ()):
            found.setdefault("gpus", []).append({**gpu, "index": f"{node}/{gpu.get('index', '?')}"})
        found["nodes"][node] = taken
    return found


def _path(evidence: Path, launch_id: str, attempt: int, node: str, when: str) -> Path:
    return pods_folder(evidence) / f"{launch_id}.a{attempt}" / f"{node}.{when}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
