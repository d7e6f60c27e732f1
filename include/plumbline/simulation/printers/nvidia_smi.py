"""`nvidia-smi --query-gpu=… --format=csv`. Layout: nvidia-smi's own, a header with units in brackets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIELDS = (
    "index", "uuid", "name", "driver_version", "pci.bus_id", "temperature.gpu", "power.draw [W]",
    "clocks.current.sm [MHz]", "clocks.max.sm [MHz]", "utilization.gpu [%]", "memory.used [MiB]",
    "memory.total [MiB]", "pcie.link.gen.current", "pcie.link.width.current", "pcie.link.width.max",
    "ecc.errors.uncorrected.volatile.total", "clocks_event_reasons.active",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU's line; `throttle` is 0 none, 1 thermal, 2 power."""

    index: int
    uuid: str
    product: str
    driver: str
    bus_id: str
    temperature_degc: int
    power_w: float
    sm_mhz: int
    sm_max_mhz: int
    memory_total_mib: int
    link_width: int
    throttle: int


_REASON = {0: "0x0000000000000000", 1: "0x0000000000000020", 2: "0x0000000000000004"}


def csv(gpus: Sequence[Gpu]) -> str:
    """Print the header and one line a GPU."""
    lines = [", ".join(FIELDS)]
    lines += [
        f"{g.index}, {g.uuid}, {g.product}, {g.driver}, {g.bus_id}, {g.temperature_degc}, {g.power_w:.2f} W, "
        f"{g.sm_mhz} MHz, {g.sm_max_mhz} MHz, 100 %, 1024 MiB, {g.memory_total_mib} MiB, 5, {g.link_width}, 16, 0, "
        f"{_REASON[g.throttle]}"
        for g in gpus
    ]
    return "\n".join(lines) + "\n"
