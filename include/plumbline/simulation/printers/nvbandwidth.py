"""nvbandwidth 0.8: matrices of copy bandwidth. Layout: NVIDIA/nvbandwidth, output.cpp."""

from __future__ import annotations

from collections.abc import Sequence

from plumbline.simulation.printers import STAMP

_NOTE = """\
NOTE: The reported results may not reflect the full capabilities of the platform.
Performance can vary with software drivers, hardware clocks, and system topology.
"""


def text(
    driver: str,
    host: str,
    products: Sequence[tuple[str, str]],
    host_to_device: Sequence[float],
    device_to_device: Sequence[Sequence[float | None]],
) -> str:
    """Print host-to-device of each GPU and the device-to-device read matrix, GB/s; products are (bus id, name)."""
    lines = [
        STAMP,
        "nvbandwidth Version: v0.8",
        "Built from Git version: v0.8",
        "",
        "CUDA Runtime Version: 12080",
        "CUDA Driver Version: 12080",
        f"Driver Version: {driver}",
        "",
        host,
        *(f"Device {i}: {name} ({bus})" for i, (bus, name) in enumerate(products)),
        "",
    ]
    columns = "".join(f"{i:>10d}" for i in range(len(products)))
    lines += [
        "Running host_to_device_memcpy_ce.",
        "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
        f" {columns}",
        " 0" + "".join(f"{value:10.2f}" for value in host_to_device)[1:],
        "",
        f"SUM host_to_device_memcpy_ce {sum(host_to_device):.2f}",
        "",
        "Running device_to_device_memcpy_read_ce.",
        "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
        f" {columns}",
    ]
    total = 0.0
    for i, row in enumerate(device_to_device):
        cells = "".join("       N/A" if value is None else f"{value:10.2f}" for value in row)
        total += sum(value for value in row if value is not None)
        lines.append(f"{i:2d}{cells[1:]}")
    lines += [
        "",
        f"SUM device_to_device_memcpy_read_ce {total:.2f}",
        "",
        _NOTE,
    ]
    return "\n".join(lines) + "\n"
