"""`nvidia-smi -q -x`: one <gpu> element a GPU, schemas v10 to v13.

GPUs are cut out and parsed one by one, so that a damaged or cut one costs no other, and no document type
declaration ever reaches the parser: entities can't be declared, hence not expanded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from xml.etree import ElementTree

from plumbline.errors import OutputError
from plumbline.model import Params, Scalar
from plumbline.readers import _gpu_state
from plumbline.readers._expectations import expected_count
from plumbline.readers._gpu_state import FIELDS, Field, common, complaint, reading
from plumbline.readers._quantities import fault, quantity, whole
from plumbline.readers.framing import strip_document
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source

NAME = "nvidia_smi_xml"
TOOL = "nvidia-smi -q -x (XML schemas v10 to v13)"
INDICATORS: Mapping[str, tuple[str, str]] = _gpu_state.INDICATORS
FACTS: Mapping[str, str] = {
    "attached": "GPUs that the driver says are attached",
    "gpus": "GPUs that are described whole",
    "driver": "driver version",
    "cuda": "highest CUDA version of the driver",
    "timestamp": "when the tool asked, as printed",
    "name": "product name (a list where GPUs differ)",
    "ecc_mode": "ECC now, as printed (a list where GPUs differ)",
    "mig_mode": "MIG now, as printed (a list where GPUs differ)",
    "devices": "for each GPU what is not a number: identity, modes, active clock event reasons, pending repairs",
    "faults": "fields where the driver reports a fault in place of a value",
    "complaint": "what the tool says when it can't answer",
}
EXPECTATIONS: Mapping[str, str] = {"gpus": "number of GPUs that must be described"}

_START, _END = "<nvidia_smi_log", "</nvidia_smi_log>"
_GPU, _GPU_END = re.compile(r"<gpu(?:>|\s+id=)"), "</gpu>"
_HEAD = {
    "attached": "attached_gpus",
    "driver": "driver_version",
    "cuda": "cuda_version",
    "timestamp": "timestamp",
}
_DEVICE: Mapping[str, tuple[str, ...]] = {
    "uuid": ("uuid",), "index": ("minor_number",), "name": ("product_name",), "serial": ("serial",),
    "architecture": ("product_architecture",), "vbios": ("vbios_version",),
    "persistence_mode": ("persistence_mode",), "ecc_mode": ("ecc_mode/current_ecc",),
    "ecc_pending": ("ecc_mode/pending_ecc",), "mig_mode": ("mig_mode/current_mig",),
    "compute_mode": ("compute_mode",), "performance_state": ("performance_state",),
    "gsp_firmware": ("gsp_firmware_version",), "recovery_action": ("gpu_recovery_action",),
    "reset_required": ("gpu_reset_status/reset_required",), "fabric_state": ("fabric/state",),
    "fabric_status": ("fabric/status",), "remapped_rows_pending": ("remapped_rows/remapped_row_pending",),
    "remapped_rows_failure": ("remapped_rows/remapped_row_failure",),
    "retired_pages_pending": ("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
    "sram_threshold_exceeded": ("ecc_errors/aggregate/sram_threshold_exceeded",),
}  # fmt: skip
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons/clocks_(?:event|throttle)_reason_(.+)")
_DEEPEST = 16
_LONGEST_GPU = 16 << 20
"""Characters of one <gpu>. Thousands of processes and clocks make a few hundred kilobytes."""
_MOST_FAULTS = 100
_COUNTED = ("mig_device", "process_info")
_SKIPPED = ("supported_clocks", "processes", "accounted_processes")


@dataclass(slots=True)
class _Log:
    """One <nvidia_smi_log>: its head, whole GPUs, and what is wrong with it."""

    head: dict[str, str]
    gpus: list[_Gpu]
    damaged: list[str]
    closed: bool


@dataclass(slots=True)
class _Gpu:
    """One GPU: its leaves by path below <gpu>, and those of each of its MIG devices."""

    bus_id: str
    leaves: dict[str, str] = field(default_factory=dict)
    migs: list[dict[str, str]] = field(default_factory=list)
    processes: int = 0

    @property
    def identity(self) -> str:
        """What its readings are told apart by."""
        return self.leaves.get("uuid") or self.bus_id


class _Book:
    """What is kept of all logs, so that none is held."""

    def __init__(self, wanted: int | None) -> None:
        """Start before the first log; `wanted` GPUs are expected in each."""
        self.wanted = wanted
        self.last: _Log | None = None
        self.logs = self.fewest = 0
        self.described = False
        self.problem: str | None = None
        self.faults: list[str] = []
        self.lost = False

    def enter(self, log: _Log) -> None:
        """Take the next log."""
        self.last = log
        self.fewest = min(self.fewest, len(log.gpus)) if self.logs else len(log.gpus)
        self.logs += 1
        self.described |= bool(log.gpus)
        self.problem = self.problem or next(_problems(log, self.wanted), None)
        for told in _faults(log):
            self.lost |= "reset" in told or "lost" in told
            if len(self.faults) < _MOST_FAULTS:
                self.faults.append(told)


def sniff(head: str) -> float:
    """Look for the root element."""
    return 1.0 if _START in head else 0.9 if "nvsmi_device_v" in head else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give per-GPU readings. Params: gpu (UUID, or bus id), bus_id, mig, and run when there are several logs."""
    text = source.text()
    said = complaint(text)
    found = _Book(expected_count(expect, "gpus"))
    yield from _all_readings(text, found)
    if not found.described and _START in (bare := strip_document(text)):
        found = _Book(found.wanted)
        yield from _all_readings(bare, found)
    if found.last is None and said is None:
        raise OutputError("no <nvidia_smi_log> in it", source=source.name, excerpt=text[:80])
    yield from _facts(found, said)
    yield _completeness(found, said)


def _all_readings(text: str, book: _Book) -> Iterator[Reading]:
    """Give the readings of every log in a text, and write each log into the book. No log is held."""
    several = text.find(_START, text.find(_START) + 1) >= 0
    for number, log in enumerate(_logs(text)):
        for gpu in log.gpus:
            yield from _readings(gpu, {"run": number} if several else {})
        book.enter(log)


def _logs(text: str) -> Iterator[_Log]:
    start = text.find(_START)
    while start >= 0:
        following = text.find(_START, start + 1)
        end = text.find(_END, start, following if following >= 0 else len(text))
        stop = end if end >= 0 else following if following >= 0 else len(text)
        yield _log(text[start:stop], closed=end >= 0)
        start = following


def _log(text: str, *, closed: bool) -> _Log:
    starts = [match.start() for match in _GPU.finditer(text)]
    head_text = text[: starts[0]] if starts else text
    head = {}
    for fact, tag in _HEAD.items():
        match = re.search(rf"<{tag}>([^<]*)</{tag}>", head_text)
        if match:
            head[fact] = match[1].strip()
    log = _Log(head, [], [], closed)
    for first, following in zip(starts, [*starts[1:], len(text)], strict=False):
        end = text.find(_GPU_END, first, following)
        gpu = None if end < 0 else _parse(text[first : end + len(_GPU_END)])
        if gpu is None:
            match = re.match(r"<gpu id=[\"']([^\"'<>]{1,40})[\"']", text[first : first + 80])
            log.damaged.append(match[1] if match else "unnamed")
        else:
            gpu.bus_id = gpu.bus_id or gpu.leaves.get("pci/pci_bus_id", "")
            log.gpus.append(gpu)
    return log


def _parse(text: str) -> _Gpu | None:
    """Parse one whole <gpu> element; None when it isn't well-formed, or no schema's."""
    if len(text) > _LONGEST_GPU:
        return None
    try:
        # The text begins at <gpu>: a document type, and with it an entity, can't be declared any more.
        element = ElementTree.fromstring(text)  # noqa: S314
        gpu = _Gpu(element.get("id", ""))
        for child in element:
            _gather(gpu, child, None if child.tag in _SKIPPED else child.tag, gpu.leaves, 2)
    except (ElementTree.ParseError, ValueError, RecursionError):
        return None
    return gpu


def _gather(gpu: _Gpu, element: ElementTree.Element, path: str | None, leaves: dict[str, str], depth: int) -> None:
    """Take an element's text at its path into `leaves`, and what is below it; a MIG device has leaves of its own."""
    if depth > _DEEPEST:
        raise ValueError("nested deeper than any schema")
    if element.tag == "mig_device":
        gpu.migs.append({})
        if leaves is gpu.leaves and path is not None:
            path, leaves = "", gpu.migs[-1]
    elif element.tag == "process_info":
        gpu.processes += 1
    text = element.text
    for child in element:
        tag = child.tag
        below = None if path is None else f"{path}/{tag}" if path else tag
        if len(child) or tag in _COUNTED:
            _gather(gpu, child, below, leaves, depth + 1)
        elif below is not None and (words := child.text) and (value := words.strip()):
            _keep(leaves, below, value)
        text = child.tail
    if path is not None and text and (value := text.strip()):
        _keep(leaves, path, value)


def _keep(leaves: dict[str, str], path: str, value: str) -> None:
    """Take a leaf's text; where one stands twice the first counts, unless the second tells of a fault."""
    if path not in leaves or fault(value):
        leaves[path] = value


def _readings(gpu: _Gpu, run: Params) -> Iterator[Reading]:
    place: dict[str, Scalar] = {**run, "gpu": gpu.identity, "bus_id": gpu.bus_id}
    yield from _from_leaves(gpu.leaves, place)
    for position, mig in enumerate(gpu.migs):
        named = mig.get("index", str(position))
        index: Scalar = named if (number := whole(named)) is None else number
        yield from _from_leaves(mig, {**place, "mig": index})
        errors = quantity(mig.get("ecc_error_count/volatile_count/sram_uncorrectable", ""), "count")
        if errors is not None:
            where = {"kind": "uncorrected", "counter": "volatile", "location": "sram"}
            yield Reading("ecc_errors", errors, "count", {**place, "mig": index, **where})


def _from_leaves(leaves: Mapping[str, str], place: Params) -> list[Reading]:
    found = []
    for item, paths in _present(tuple(leaves)):
        for path in paths:
            if (value := quantity(leaves[path], item.unit)) is not None:
                found.append(reading(item, value, place))
                break
    return found


@lru_cache(maxsize=64)
def _present(leaves: tuple[str, ...]) -> list[tuple[Field, list[str]]]:
    """Give the fields that a GPU with these leaves has, with the places to look: alike GPUs have the same ones."""
    there = frozenset(leaves)
    found = ((item, [path for path in item.xml if path in there]) for item in FIELDS)
    return [(item, paths) for item, paths in found if paths]


def _device(gpu: _Gpu) -> dict[str, Any]:
    device: dict[str, Any] = {"bus_id": gpu.bus_id, "processes": gpu.processes, "mig_devices": len(gpu.migs)}
    for name, paths in _DEVICE.items():
        for path in paths:
            if path in gpu.leaves:
                device[name] = gpu.leaves[path]
                break
    reasons = {match[1]: value for path, value in gpu.leaves.items() if (match := _REASON.fullmatch(path))}
    device["clock_event_reasons"] = sorted(name for name, value in reasons.items() if value == "Active")
    return device


def _faults(log: _Log) -> Iterator[str]:
    for gpu in log.gpus:
        for path, value in gpu.leaves.items():
            if found := fault(value):
                yield f"{gpu.bus_id} {path}: {found}"
        for position, mig in enumerate(gpu.migs):
            for path, value in mig.items():
                if found := fault(value):
                    yield f"{gpu.bus_id} MIG {mig.get('index', position)} {path}: {found}"


def _facts(book: _Book, said: str | None) -> Iterator[Fact]:
    if said is not None:
        yield Fact("complaint", said)
    if book.last is None:
        return
    for name, value in book.last.head.items():
        yield Fact(name, count if name == "attached" and (count := whole(value)) is not None else value)
    devices = [_device(gpu) for gpu in book.last.gpus]
    yield Fact("gpus", len(devices))
    for name in ("name", "ecc_mode", "mig_mode"):
        if (value_ := common(devices, name)) is not None:
            yield Fact(name, value_)
    yield Fact("devices", devices)
    if book.faults:
        yield Fact("faults", book.faults)


def _completeness(book: _Book, said: str | None) -> Completeness:
    expected: dict[str, Any] = {} if book.wanted is None else {"gpus": book.wanted}
    if book.last is None:
        return Completeness(NAME, Status.FAILED, expected, {"gpus": 0}, said or "")
    attached = whole(book.last.head.get("attached", ""))
    if book.wanted is None and attached is not None:
        expected = {"gpus": attached}
    found: dict[str, Any] = {"gpus": book.fewest, "logs": book.logs}
    status, reason = Status.COMPLETE, ""
    if book.problem is not None:
        status, reason = Status.INCOMPLETE, book.problem
    if book.faults:
        status = Status.FAILED if book.lost else Status.INCOMPLETE
        reason = f"fault in place of a value: {book.faults[0]}"
    if said is not None:
        status, reason = Status.FAILED, said
    return Completeness(NAME, status, expected, found, reason)


def _problems(log: _Log, wanted: int | None) -> Iterator[str]:
    """Name what keeps a log from being whole."""
    listed = ", ".join(gpu.bus_id for gpu in log.gpus) or "none"
    twice = next((gpu for gpu, count in Counter(gpu.identity for gpu in log.gpus).items() if count > 1), None)
    if twice is not None:
        yield f"GPU {twice} is described twice"
    if empty := next((gpu for gpu in log.gpus if not gpu.leaves), None):
        yield f"GPU {empty.bus_id or 'unnamed'} is described by nothing"
    if log.damaged:
        yield f"GPU {log.damaged[0]} is cut or damaged; whole: {listed}"
    if not log.closed:
        yield f"the log stops before its end; whole GPUs: {listed}"
    attached = whole(log.head.get("attached", ""))
    if wanted is not None:
        if wanted != len(log.gpus):
            yield f"{len(log.gpus)} GPUs described, {wanted} expected; described: {listed}"
    elif attached is not None and attached != len(log.gpus):
        yield f"{attached} GPUs attached, {len(log.gpus)} described: {listed}"
    elif not log.gpus:
        yield "no GPU described"
