"""What the GPUs said of themselves around a measurement: the evidence that its numbers are those of a sound machine.

A launch on GPUs must show every GPU of every node before and after it, and of each after it the throttle reasons, the
PCIe width and the memory errors. What speaks against a GPU is the cluster's FAIL, and so is a GPU that doesn't answer
where others do. Where nothing was asked, or the answer can't be read, nobody knows whether the numbers are those of a
throttled GPU: a WARN, which a nightly shows and which closes an acceptance.

A snapshot holds `gpus`, one mapping of nvidia-smi's fields a GPU; in a record of several hosts `index` is 'node/index'.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from plumbline.execution.launcher import ANSWERS
from plumbline.model import Code, Device, LaunchSpec, Outcome, RunRecord

_THROTTLES = {
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "hardware power brake",
}
"""Bits of clocks_event_reasons that slow a healthy GPU down. The software power cap (0x4) is normal under full load.
Source: nvml.h, nvmlClocksEventReason*."""

_MASK, _WIDTH, _WIDEST = "clocks_throttle_reasons.active", "pcie.link.width.current", "pcie.link.width.max"
_ERRORS = "ecc.errors.uncorrected.volatile.total"
REQUIRED = (_MASK, _WIDTH, _WIDEST, _ERRORS)
"""Without a number in each of these a GPU has not shown that it is sound."""

_FLAGS = {
    "remapped_rows.pending": "memory rows wait to be remapped: reset the GPU",
    "remapped_rows.failure": "no spare memory row is left: replace the GPU",
}
"""Rows that are remapped are a repair that worked, however many; these say that it is not done, or can't be.
Source: docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt, row remapping and RMA policy."""

_CLOCK, _FASTEST = "clocks.current.sm", "clocks.max.sm"
_READ = (*REQUIRED, _CLOCK, _FASTEST, *_FLAGS)

_NUMBER = re.compile(r"0[xX](?P<hex>[0-9a-fA-F]{1,16})|[0-9]{1,15}(?:\.[0-9]{1,6})?")
_WHEN = ("after", "before")
Found = Iterator[tuple[Code, str]]
Gpu = Mapping[str, Any]


def snapshot_problems(spec: LaunchSpec, record: RunRecord) -> Found:
    """Give code and message for everything that the snapshots hold against the machine, or fail to show.

    Nothing is asked of a launch that never ran: it has no numbers to answer for.
    """
    if spec.device is not Device.GPU:
        return
    shown = {when: _gpus(record, when) for when in _WHEN}
    ran = record.outcome in ANSWERS and record.outcome is not Outcome.NOT_STARTED
    if shown["before"] and not shown["after"] and ran:
        yield Code.MISSING_GPU, f"{len(shown['before'])} GPUs answered before the launch and none after it"
    elif ran and not all(shown.values()):
        silent = " and ".join(when for when in reversed(_WHEN) if not shown[when])
        yield Code.GPU_STATE_UNKNOWN, f"no GPU told its state {silent} the launch: nobody knows if it was throttled"
    said: set[str] = set()
    for when, gpus in shown.items():
        unread = _unread(gpus) if when == "after" else ()
        for code, who, what in (*_missing(spec, record, gpus), *_faults(gpus), *unread):
            message = f"{who}: {what}"
            if message not in said:
                said.add(message)
                yield code, f"{message} ({when} the launch)"


def _gpus(record: RunRecord, when: str) -> Sequence[Gpu]:
    """Give the GPUs of one snapshot; what is not in the form of a snapshot is absent."""
    snapshot = record.snapshots.get(when) if isinstance(record.snapshots, Mapping) else None
    found = snapshot.get("gpus") if isinstance(snapshot, Mapping) else None
    return [gpu for gpu in found if isinstance(gpu, Mapping)] if isinstance(found, Sequence) else []


def _missing(spec: LaunchSpec, record: RunRecord, gpus: Sequence[Gpu]) -> Iterator[tuple[Code, str, str]]:
    """Count the GPUs of every node, each once whatever its number of lines."""
    one_host = len(record.hosts) < 2
    places: dict[str | None, set[str]] = {None: set()} if one_host else {name: set() for name in spec.nodes}
    for gpu in gpus:
        place = None if one_host else str(gpu.get("index")).rpartition("/")[0]
        if place in places:
            places[place].add(str(gpu.get("uuid") or gpu.get("index")))
    for place, seen in places.items():
        if gpus and len(seen) < spec.accelerators_per_node:
            have = f"{len(seen)} of {spec.accelerators_per_node} GPUs answered"
            yield Code.MISSING_GPU, place or spec.nodes[0], have


def _faults(gpus: Sequence[Gpu]) -> Iterator[tuple[Code, str, str]]:
    for gpu in gpus:
        for code, what in _state(_cells(gpu))[0]:
            yield code, _name(gpu), what


def _unread(gpus: Sequence[Gpu]) -> Iterator[tuple[Code, str, str]]:
    """Name the required fields without a number, with the GPUs that don't tell them."""
    silent: dict[str, list[str]] = {}
    for gpu in gpus:
        for field in _state(_cells(gpu))[1]:
            silent.setdefault(field, []).append(_name(gpu))
    for field, names in silent.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield Code.GPU_STATE_UNKNOWN, f"{names[0]}{more}", f"{field} is not told"


def _cells(gpu: Gpu) -> tuple[str, ...]:
    return tuple(map(str, map(gpu.get, _READ)))


@lru_cache(maxsize=4096)
def _state(cells: tuple[str, ...]) -> tuple[tuple[tuple[Code, str], ...], tuple[str, ...]]:
    """Give what speaks against a GPU and which required fields it doesn't tell, from its cells in the order of _READ.

    Sound GPUs tell the same, and a large run has a hundred thousand of them.
    """
    told = dict(zip(_READ, cells, strict=True))
    numbers = {name: _number(told[name]) for name in REQUIRED}
    mask, width, most, errors = numbers.values()
    found = []
    reasons = [text for bit, text in _THROTTLES.items() if mask is not None and int(mask) & bit]
    if reasons:
        found.append((Code.THROTTLED, f"{', '.join(reasons)}, {told[_CLOCK]} of {told[_FASTEST]} MHz"))
    if width is not None and most is not None and width < most:
        found.append((Code.WRONG_LINK_WIDTH, f"PCIe x{width:.0f} of x{most:.0f}"))
    if errors:
        found.append((Code.DIAGNOSTIC_FAILED, f"{errors:.0f} uncorrected memory errors since the driver was loaded"))
    flags = [what for flag, what in _FLAGS.items() if told[flag].strip().lower() in ("1", "yes")]
    found += [(Code.DIAGNOSTIC_FAILED, what) for what in flags]
    return tuple(found), tuple(name for name, number in numbers.items() if number is None)


def _name(gpu: Gpu) -> str:
    return f"GPU {gpu.get('index', '?')}"


def _number(text: str) -> float | None:
    """Read a cell of nvidia-smi: plain digits or a hexadecimal mask; [N/A], a sign, nan and the like are no number."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        return None
    return float(int(match["hex"], 16)) if match["hex"] else float(match[0])
