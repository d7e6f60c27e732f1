"""What the machine said of itself around a measurement that makes its numbers the cluster's fault.

Read from the snapshots of a record: GPUs missing, clocks throttled by heat or power brake, PCIe links narrower than
they could be, uncorrected memory errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plumbline.model import Code, Device, LaunchSpec, RunRecord

_THROTTLES = {
    0x0000000000000008: "hardware slowdown",
    0x0000000000000020: "software thermal slowdown",
    0x0000000000000040: "hardware thermal slowdown",
    0x0000000000000080: "hardware power brake",
}
"""Bits of clocks_event_reasons that slow a healthy GPU down. The software power cap (0x4) is normal under full load.
Source: nvml.h, nvmlClocksEventReason*."""


def snapshot_problems(spec: LaunchSpec, record: RunRecord) -> Iterator[tuple[Code, str]]:
    """Give code and message for everything that the snapshots hold against the machine; worst of before and after."""
    if spec.device is not Device.GPU:
        return
    before, after = record.snapshots.get("before", {}), record.snapshots.get("after")
    if before.get("gpus") and after is not None and not after.get("gpus"):
        yield Code.MISSING_GPU, f"{len(before['gpus'])} GPUs answered before the launch and none after it"
    for name in ("after", "before"):
        gpus = record.snapshots.get(name, {}).get("gpus")
        if gpus:
            yield from _gpu_problems(spec, gpus, name)
            break


def _gpu_problems(spec: LaunchSpec, gpus: Sequence[Mapping[str, str]], when: str) -> Iterator[tuple[Code, str]]:
    if len(gpus) < spec.accelerators_per_node:
        yield Code.MISSING_GPU, f"{len(gpus)} of {spec.accelerators_per_node} GPUs ({when} the launch)"
    for gpu in gpus:
        who = f"GPU {gpu.get('index', '?')}"
        mask = _number(gpu.get("clocks_throttle_reasons.active"))
        reasons = [text for bit, text in _THROTTLES.items() if mask is not None and int(mask) & bit]
        if reasons:
            clock = gpu.get("clocks.current.sm", "?")
            yield Code.THROTTLED, f"{who}: {', '.join(reasons)}, {clock} of {gpu.get('clocks.max.sm', '?')} MHz"
        width, most = _number(gpu.get("pcie.link.width.current")), _number(gpu.get("pcie.link.width.max"))
        if width is not None and most is not None and width < most:
            yield Code.WRONG_LINK_WIDTH, f"{who}: PCIe x{width:.0f} of x{most:.0f}"
        errors = _number(gpu.get("ecc.errors.uncorrected.volatile.total"))
        if errors:
            yield Code.DIAGNOSTIC_FAILED, f"{who}: {errors:.0f} uncorrected memory errors since the driver was loaded"


def _number(text: Any) -> float | None:
    """Read a cell of nvidia-smi; [N/A] and the like are absent."""
    try:
        return float(int(text, 16)) if str(text).startswith("0x") else float(text)
    except (TypeError, ValueError):
        return None
