"""Names of rows for people: 'all_reduce 16 MiB at 2 nodes, group 0'."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from plumbline.units import show_bytes

_SILENT = frozenset({"operation", "indicator", "in_place"})


def subject(benchmark: str, params: str) -> str:
    """Say what was measured: the operation where there is one, else the benchmark, and its coordinates."""
    data: Mapping[str, Any] = json.loads(params)
    parts = [str(data.get("operation", benchmark))]
    if "indicator" in data:
        parts.append(str(data["indicator"]))
    parts += [_coordinate(key, value) for key, value in data.items() if key not in _SILENT]
    if data.get("in_place"):
        parts.append("in place")
    return " ".join(parts)


def _coordinate(key: str, value: Any) -> str:
    if key.endswith("_bytes") and isinstance(value, int) and not isinstance(value, bool):
        return show_bytes(value)
    if isinstance(value, str) and not value.replace(",", "").isdigit():  # numbers alone say nothing
        return value
    return f"{key} {value}"


def location(node_count: int, group: int | None, node: str | None, gpu: str | None, repeat: int) -> str:
    """Say where it was measured."""
    parts = [f"{node_count} node{'' if node_count == 1 else 's'}"]
    if group is not None:
        parts.append(f"group {group}")
    if node:
        parts.append(f"node {node}")
    if gpu:
        parts.append(f"GPU {gpu}")
    if repeat > 1:
        parts.append(f"repeat {repeat}")
    return ", ".join(parts)
