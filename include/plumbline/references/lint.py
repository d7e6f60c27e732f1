"""Lint of reference files: thresholds that can't fail, or that nothing could meet, are found before they judge.

Published thresholds do contain such errors: floors a thousand times too low, and floors above the link rate.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path

from plumbline.errors import ConfigError
from plumbline.model import Reference
from plumbline.references.ceilings import (
    GB_S_PER_GBIT_S,
    SOFTWARE,
    TOLERANCE,
    ceiling,
    dense_peak_tflops,
    one_node_ceiling,
)
from plumbline.references.reference import ANY, FOLDER, ReferenceFile, describe, load_references, read_folder
from plumbline.units import convert

LEAST_SHARE = 0.25
"""A lower bound below this share of the physical ceiling passes hardware that is broken. Assumption; the published
floors that were typing errors lay at 0.1 % to 20 % of the truth, honest ones at 50 % and more."""

LEAST_SHARE_OF = {"effective_flops": 0.05, "lu_flops": 0.10}
"""HPL-MxP: refinement dominates on one node. Source: published runs reach 18 to 20 % of the dense peak, 27 to 35 % in
the factorization alone."""

LEAST_OF_VALUE = 0.5
"""A bound that lets half of the expected value pass, or twice of it where lower is better, is a slip of the pen: the
widest of the shipped ones lets a quarter pass."""

_FABRIC = re.compile(r"-(\d+)x(\d+)g$|-(\d+)g$")


def problems(folder: Path | None = None) -> list[str]:
    """Give every problem of the reference files in a folder (default: the shipped ones), one sentence each."""
    place = folder or FOLDER
    found: list[str] = []
    try:
        files = list(read_folder(place))
    except ConfigError as error:
        return [str(error)]
    if not files:
        return [f"{place}: no reference files"]
    for path, file in files:
        found += [f"{path.name}: {text}" for text in _file_problems(file, place)]
    return found


def _file_problems(file: ReferenceFile, folder: Path) -> Iterator[str]:
    try:
        references = _own_references(file, folder)
    except ConfigError as error:
        yield str(error)
        return
    for item in references:
        yield from (f"{describe(item)}: {text}" for text in _problems(item, file))


def _own_references(file: ReferenceFile, folder: Path) -> list[Reference]:
    hardware = file.hardware
    every = load_references(hardware, [folder, FOLDER]).references if hardware != ANY else ()
    if hardware != ANY:
        return [item for item in every if item.hardware == hardware]
    first = next(f.hardware for _, f in read_folder(FOLDER) if f.hardware != ANY)
    return [item for item in load_references(first, [folder, FOLDER]).references if item.hardware == ANY]


def _problems(item: Reference, file: ReferenceFile) -> Iterator[str]:
    if datetime.date.fromisoformat(item.date) > datetime.datetime.now(datetime.UTC).date():
        yield f"its date {item.date} is in the future"
    if not re.search(r"[A-Za-z]{3}", item.source):
        yield f"its source {item.source!r} names nothing"
    if item.kind == "physical":
        return
    yield from _far_from_value(item)
    least = LEAST_SHARE_OF.get(item.indicator, LEAST_SHARE)
    for where, top, whole in [("", 1.0, True)] if item.unit == "1" else _ceilings(item, file.accelerators_per_node):
        for name, bound in (("lower", item.lower), ("value", item.value)):
            if bound is not None and bound > TOLERANCE * top:
                yield f"{name} {bound:g} is above what physics allows{where}, {top:.4g} {item.unit}"
        if whole and item.lower is not None and item.lower < least * top:
            yield f"lower {item.lower:g} is below {least:.0%} of what physics allows{where}, {top:.4g} {item.unit}"


def _far_from_value(item: Reference) -> Iterator[str]:
    if item.value is None or item.value <= 0:
        return
    if item.lower is not None and item.lower < LEAST_OF_VALUE * item.value:
        yield f"lower {item.lower:g} is less than half of the value {item.value:g}"
    if item.upper is not None and item.upper > item.value / LEAST_OF_VALUE:
        yield f"upper {item.upper:g} is more than twice the value {item.value:g}"


def _ceilings(item: Reference, per_node: int | None) -> Iterator[tuple[str, float, bool]]:
    """Give what a reference can be held against: (where, ceiling in its unit, whether every term of it is known)."""
    if item.indicator.startswith("bus_bandwidth") and item.unit == "GB/s" and per_node and "operation" in item.match:
        operation = str(item.match["operation"])
        bus = one_node_ceiling(operation, per_node, item.hardware)
        rate = None if item.fabric is None else fabric_gb_s(item.fabric)
        for node_count in item.node_counts:
            top = bus if node_count == 1 else ceiling(operation, node_count, per_node, bus, rate, SOFTWARE)
            if top is not None:
                yield f" at node count {node_count}", top, node_count == 1 or rate is not None
    if item.unit.endswith("FLOPS") and "precision" in item.match:
        peak = dense_peak_tflops(item.hardware, str(item.match["precision"]))
        accelerators = 1 if item.indicator == "matmul_rate" else per_node
        if peak is not None and accelerators is not None:
            for node_count in item.node_counts or (1,):
                top = convert(peak * accelerators * node_count, "TFLOPS", item.unit)
                yield f" at node count {node_count}", top, True


def fabric_gb_s(name: str) -> float | None:
    """Read a node's bandwidth in one direction from a fabric's name: 'ndr-8x400g' is 400 GB/s; None where not told."""
    found = _FABRIC.search(name)
    if not found:
        return None
    ports, rate, total = found.groups()
    return (int(total) if total else int(ports) * int(rate)) * GB_S_PER_GBIT_S
