"""MLPerf system descriptions: the JSON beside a submission's logs that tells what it ran on.

Numbers are strings in most of them ('96'), numbers in some (4, 1.0), and words in others ('N/A', '8 (4 per socket)').
Facts keep what the file says; the counts that can be read without guessing are also given as numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Scalar
from plumbline.readers._json_documents import Documents
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source

NAME = "mlperf_system"
TOOL = "MLPerf system description JSON (systems/*.json), rounds 0.6 to 6.1"
INDICATORS: Mapping[str, tuple[str, str]] = {
    "nodes": ("count", "number_of_nodes"),
    "accelerators": ("count", "number_of_nodes × accelerators_per_node"),
}
FACTS: Mapping[str, str] = {
    "total_accelerators": "number_of_nodes × accelerators_per_node, where both can be read",
    "number_of_nodes_type": "the JSON type that number_of_nodes has: str, int, float",
    "valid_json": "the file is nothing but one JSON object",
    "*": "every plain value of the file under its own name: submitter, system_name, accelerator_model_name, …",
    "other_software_stack": "as the file has it",
}
EXPECTATIONS: Mapping[str, str] = {}

_NEEDED = ("submitter", "system_name", "number_of_nodes", "accelerators_per_node", "accelerator_model_name")
_MARKS = ("accelerators_per_node", "number_of_nodes", "accelerator_model_name", "host_processors_per_node")
_COUNT = re.compile(r"(\d{1,3}(?:,\d{3})+|\d{1,9})(?:\.0+)?(?:\s?x)?(?:\s+[A-Za-z]+){0,2}\s*(?:\([^()]*\))?")
_LARGEST = 16 << 20


def sniff(head: str) -> float:
    """Say how sure the head of a file looks like a system description."""
    marks = sum(f'"{mark}"' in head for mark in _MARKS)
    return 0.95 if marks >= 2 else 0.3 if marks else 0.0


def count(value: Any) -> int | None:
    """Give a count that the file writes as 8, '8', '8.0', '1,344' or '8 (4 per socket)'; None where it takes guessing.

    '4 per socket', '4-8' and '2x4' are not counts that a reader may settle.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, (int, float)):
        return int(value) if value >= 0 and value < 1 << 40 and value == int(value) else None
    match = _COUNT.fullmatch(value.strip()) if isinstance(value, str) and len(value) < 200 else None
    if match is None or re.match(r"[\d,.]+\s?x?\s+(?:per|to|or|and|x|each)\b", value.strip()):
        return None
    return int(match[1].replace(",", ""))


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give the facts of the file, the counts, and whether all that a description needs is there.

    Raises OutputError when the file holds no system description, or more than one.
    """
    del expect
    data, alone = _document(source)
    nodes, per_node = count(data.get("number_of_nodes")), count(data.get("accelerators_per_node"))
    if nodes is not None:
        yield Reading("nodes", float(nodes), "count")
    if nodes is not None and per_node is not None:
        yield Reading("accelerators", float(nodes * per_node), "count")
        yield Fact("total_accelerators", nodes * per_node)
    yield Fact("number_of_nodes_type", type(data.get("number_of_nodes")).__name__)
    yield Fact("valid_json", alone)
    for name, value in data.items():
        if isinstance(value, (str, int, float, bool)) and name not in ("total_accelerators", "valid_json"):
            yield Fact(name, value)
    if "other_software_stack" in data and not isinstance(data["other_software_stack"], str):
        yield Fact("other_software_stack", data["other_software_stack"])
    yield _completeness(data, nodes, per_node)


def _completeness(data: Mapping[str, Any], nodes: int | None, per_node: int | None) -> Completeness:
    missing = [name for name in _NEEDED if data.get(name) in (None, "")]
    doubts = [f"{', '.join(missing)} missing"] if missing else []
    for name, number in (("number_of_nodes", nodes), ("accelerators_per_node", per_node)):
        if number is None and name not in missing:
            doubts.append(f"{name} is {data.get(name)!r}, not a count")
    return Completeness(
        reader=NAME,
        status=Status.INCOMPLETE if doubts else Status.COMPLETE,
        expected={"keys": list(_NEEDED)},
        found={"keys": [name for name in _NEEDED if name not in missing]},
        reason="; ".join(doubts)[:400],
    )


def _document(source: Source) -> tuple[dict[str, Any], bool]:
    """Give the description, and whether the file is nothing else. Raises OutputError."""
    text = source.text(_LARGEST)
    repeated: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        repeated.extend(name for name in _NEEDED if names.count(name) > 1)
        return dict(pairs)

    try:
        whole = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return _embedded(text, source.name), False
    if repeated:
        raise OutputError(f"{repeated[0]} is written twice: nobody can say which counts", source=source.name)
    if isinstance(whole, list) and len(whole) == 1:
        whole = whole[0]
    if not isinstance(whole, dict) or not any(mark in whole for mark in _MARKS):
        raise OutputError("not an MLPerf system description", source=source.name, excerpt=text[:80])
    return whole, True


def _embedded(text: str, name: str) -> dict[str, Any]:
    found = Documents(text, "accelerators_per_node")
    objects = list(found)
    if len(objects) > 1:
        raise OutputError(f"{len(objects)} system descriptions in one file", source=name)
    if not objects or found.cut or "accelerators_per_node" not in objects[0]:
        raise OutputError("not a whole JSON object: cut, or no system description", source=name, excerpt=text[-80:])
    return objects[0]
