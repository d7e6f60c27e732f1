"""What the machine says of itself: identity, software, and snapshots around a measurement. Standard library only.

Everything here is best effort and honest about it: what the machine doesn't have, or doesn't let this user see, is
absent from the mapping. Nothing is guessed, and no failure here ever stops a measurement.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_SYS = Path("/sys")
_NVIDIA_FIELDS = (
    "index", "uuid", "serial", "name", "driver_version", "pci.bus_id", "temperature.gpu", "power.draw",
    "clocks.current.sm", "clocks.max.sm", "utilization.gpu", "memory.used", "memory.total",
    "pcie.link.gen.current", "pcie.link.width.current", "pcie.link.width.max",
    "ecc.errors.uncorrected.volatile.total", "clocks_throttle_reasons.active",
)  # fmt: skip
_REMAPPED_FIELDS = (
    "gpu_uuid", "remapped_rows.correctable", "remapped_rows.uncorrectable", "remapped_rows.pending",
    "remapped_rows.failure",
)  # fmt: skip
_IB_COUNTERS = (
    "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards", "port_xmit_wait",
)  # fmt: skip
_NET_COUNTERS = ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped")


def utc_now() -> str:
    """Give the time as UTC ISO-8601 with microseconds and a Z."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def hardware_identity() -> dict[str, Any]:
    """Name the machine by what survives a rename: serials, GPU UUIDs and NIC GUIDs; and say what it is made of.

    `hardware_id` is a 16-digit digest of the strongest identity found, and `hardware_id_source` says which that was.
    """
    identity: dict[str, Any] = {
        "hostname": socket.gethostname(),
        "cpu_model": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "memory_bytes": _memory_bytes(),
    }
    for name in ("product_uuid", "product_serial", "board_serial", "product_name"):
        if text := _read(_SYS / "class/dmi/id" / name):
            identity[name] = text
    gpus = _nvidia_smi(("index", "uuid", "serial", "name"))
    if gpus:
        identity["gpus"] = gpus
    if nics := _infiniband_guids():
        identity["nics"] = nics
    if machine_id := _read(Path("/etc/machine-id")):
        identity["machine_id"] = machine_id
    source, strongest = _strongest(identity)
    identity["hardware_id"] = hashlib.sha256(strongest.encode()).hexdigest()[:16]
    identity["hardware_id_source"] = source
    return identity


def _strongest(identity: Mapping[str, Any]) -> tuple[str, str]:
    for name in ("product_uuid", "board_serial", "product_serial"):
        if name in identity:
            return name, str(identity[name])
    if "gpus" in identity:
        return "gpu_uuids", ",".join(sorted(str(gpu.get("uuid")) for gpu in identity["gpus"]))
    for name in ("machine_id", "hostname"):
        if name in identity:
            return name, str(identity[name])
    return "cpu_model", str(identity.get("cpu_model"))


def software_environment() -> dict[str, Any]:
    """Give kernel, operating system, cgroup limits, scheduling and driver versions."""
    found: dict[str, Any] = {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "affinity_cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
    }
    with contextlib.suppress(OSError):
        found["os"] = platform.freedesktop_os_release().get("PRETTY_NAME")
    for name, path in (
        ("cgroup_cpu_max", "/sys/fs/cgroup/cpu.max"),
        ("cgroup_memory_max", "/sys/fs/cgroup/memory.max"),
        ("nvidia_driver", "/sys/module/nvidia/version"),
        ("ofed", "/sys/module/mlx5_core/version"),
        ("transparent_hugepage", "/sys/kernel/mm/transparent_hugepage/enabled"),
    ):
        if text := _read(Path(path)):
            found[name] = text
    return {key: value for key, value in found.items() if value is not None}


def snapshot() -> dict[str, Any]:
    """Take clocks, temperatures, throttling, power, load, memory and error counters: what this machine has."""
    found: dict[str, Any] = {"taken_at": utc_now()}
    with contextlib.suppress(OSError):
        found["load_1m"] = os.getloadavg()[0]
    if available := _meminfo().get("MemAvailable"):
        found["memory_available_bytes"] = available
    cpu = _SYS / "devices/system/cpu"
    if clocks := [int(v) for p in sorted(cpu.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")) if (v := _read(p))]:
        found["cpu_clock_khz"] = {"least": min(clocks), "most": max(clocks)}
    throttles = [
        int(v) for p in cpu.glob("cpu[0-9]*/thermal_throttle/*_throttle_count") if (v := _read(p)) and v.isdigit()
    ]
    if throttles:
        found["cpu_throttle_count"] = sum(throttles)
    if zones := {
        f"{zone.name}:{_read(zone / 'type') or '?'}": int(text) / 1000
        for zone in sorted((_SYS / "class/thermal").glob("thermal_zone*"))
        if (text := _read(zone / "temp")) and text.lstrip("-").isdigit()
    }:
        found["temperature_degc"] = zones
    if gpus := _nvidia_smi(_NVIDIA_FIELDS):
        remapped = {row.pop("gpu_uuid"): row for row in _nvidia_smi(_REMAPPED_FIELDS, "remapped-rows")}
        found["gpus"] = [{**gpu, **remapped.get(gpu["uuid"], {})} for gpu in gpus]
    if counters := _network_counters():
        found["network_counters"] = counters
    return found


def _network_counters() -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    groups = [
        *((p, p.name, _NET_COUNTERS, "statistics") for p in sorted((_SYS / "class/net").glob("*")) if p.name != "lo"),
        *(
            (port, f"{port.parent.parent.name}/{port.name}", _IB_COUNTERS, "counters")
            for port in sorted((_SYS / "class/infiniband").glob("*/ports/*"))
        ),
    ]
    for path, name, counters, folder in groups:
        values = {c: int(v) for c in counters if (v := _read(path / folder / c)) and v.isdigit()}
        if values:
            found[name] = values
    return found


def _infiniband_guids() -> dict[str, str]:
    return {p.name: guid for p in sorted((_SYS / "class/infiniband").glob("*")) if (guid := _read(p / "node_guid"))}


def _nvidia_smi(fields: tuple[str, ...], what: str = "gpu") -> list[dict[str, str]]:
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def _cpu_model() -> str | None:
    for line in (_read(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor() or None


def _meminfo() -> dict[str, int]:
    found = {}
    for line in (_read(Path("/proc/meminfo")) or "").splitlines():
        name, _, rest = line.partition(":")
        digits = rest.split()[0] if rest.split() else ""
        if digits.isdigit():
            found[name] = int(digits) * 1024
    return found


def _memory_bytes() -> int | None:
    return _meminfo().get("MemTotal")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
