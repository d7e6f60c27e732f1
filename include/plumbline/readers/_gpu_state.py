"""What nvidia-smi tells of a GPU, whatever the form: one indicator for one quantity in XML, CSV and text.

Source: field lists of `nvidia-smi --help-query-gpu` (drivers 418 to 610) and of nvsmi_device_v10 to v13.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from plumbline.model import Params
from plumbline.readers.reading import Reading


@dataclass(frozen=True, slots=True)
class Field:
    """One quantity: where XML and CSV have it. The first place that holds a number gives it.

    `xml` are paths below <gpu>; `csv` are query fields in lower case.
    """

    indicator: str
    unit: str
    xml: tuple[str, ...] = ()
    csv: tuple[str, ...] = ()
    params: Params = field(default_factory=dict)


def _power(scope: str) -> tuple[Field, ...]:
    """Give the power fields of the GPU itself ('') or of the module around it ('module')."""
    name, dot = (f"{scope}_" if scope else ""), (f"{scope}." if scope else "")
    own = ("power_readings",) if not scope else ()
    groups = (f"{scope or 'gpu'}_power_readings", *own)

    def places(*tags: str) -> tuple[str, ...]:
        return tuple(f"{group}/{tag}" for group in groups for tag in tags)

    limits = (
        ("enforced", ("enforced_power_limit", "current_power_limit"), ("enforced.power.limit", "power.current_limit")),
        ("requested", ("requested_power_limit", "power_limit"), ("power.limit", "power.requested_limit")),
        ("default", ("default_power_limit",), ("power.default_limit",)),
        ("min", ("min_power_limit",), ("power.min_limit",)),
        ("max", ("max_power_limit",), ("power.max_limit",)),
    )
    prefix = dot or "gpu."
    return (
        Field(
            f"{name}power", "W", places("average_power_draw", "power_draw"),
            (f"{dot}power.draw", f"{dot}power.draw.average", f"{prefix}power.draw.average"),
        ),
        Field(
            f"{name}power_instant", "W", places("instant_power_draw"),
            (f"{dot}power.draw.instant", f"{prefix}power.draw.instant"),
        ),
        *(
            Field(
                f"{name}power_limit", "W", places(*tags),
                (*(dot + name_ for name_ in names), *(prefix + name_ for name_ in names)), {"limit": limit},
            )
            for limit, tags, names in limits
        ),
    )  # fmt: skip


def _clocks() -> tuple[Field, ...]:
    domains = (("graphics", "gr"), ("sm", "sm"), ("memory", "mem"), ("video", "video"))
    kinds = (
        ("clock", "clocks", ("clocks", "clocks.current")),
        ("clock_max", "max_clocks", ("clocks.max",)),
        ("clock_application", "applications_clocks", ("clocks.applications",)),
    )
    return tuple(
        Field(
            f"{indicator}_{domain}", "MHz", (f"{group}/{'mem' if domain == 'memory' else domain}_clock",),
            tuple(f"{stem}.{word}" for stem in stems for word in dict.fromkeys((domain, short))),
        )
        for indicator, group, stems in kinds
        for domain, short in domains
    )  # fmt: skip


def _memories() -> tuple[Field, ...]:
    names = (("fb_memory", "fb_memory_usage", "memory"), ("bar1_memory", "bar1_memory_usage", "bar1.memory"))
    return tuple(
        Field(f"{indicator}_{part}", "MiB", (f"{group}/{part}",), (f"{stem}.{part}",))
        for indicator, group, stem in names
        for part in ("total", "reserved", "used", "free")
    )


_ECC_OLD = ("device_memory", "register_file", "l1_cache", "l2_cache", "texture_memory", "texture_shm", "cbu", "total")
_ECC_NEW = ("sram", "dram")
_SRAM_SOURCES = (("l2", "l2"), ("sm", "sm"), ("microcontroller", "mcu"), ("pcie", "pcie"), ("other", "other"))


def _ecc() -> Iterator[Field]:
    kinds = (("corrected", "single_bit", "correctable"), ("uncorrected", "double_bit", "uncorrectable"))
    for kind, bits, word in kinds:
        for counter in ("volatile", "aggregate"):
            stem = f"ecc.errors.{kind}.{counter}"
            where: dict[str, str] = {place: f"ecc_errors/{counter}/{bits}/{place}" for place in _ECC_OLD}
            where |= {place: f"ecc_errors/{counter}/{place}_{word}" for place in _ECC_NEW}
            if kind == "uncorrected":
                where |= {f"sram.{p}": f"ecc_errors/{counter}/sram_uncorrectable_{p}" for p in ("parity", "secded")}
                if counter == "aggregate":
                    sources = "ecc_errors/aggregate_uncorrectable_sram_sources/sram_"
                    where |= {f"sram.{short}": sources + name for name, short in _SRAM_SOURCES}
            for place, path in where.items():
                params = {"kind": kind, "counter": counter, "location": place}
                yield Field("ecc_errors", "count", (path,), (f"{stem}.{place}",), params)


_COUNTS = (
    Field("retired_pages", "count", ("retired_pages/multiple_single_bit_retirement/retired_count",),
          ("retired_pages.single_bit_ecc.count", "retired_pages.sbe"), {"cause": "single_bit"}),
    Field("retired_pages", "count", ("retired_pages/double_bit_retirement/retired_count",),
          ("retired_pages.double_bit.count", "retired_pages.dbe"), {"cause": "double_bit"}),
    Field("remapped_rows", "count", ("remapped_rows/remapped_row_corr",),
          ("remapped_rows.correctable", "remapped_rows.sbe"), {"kind": "corrected"}),
    Field("remapped_rows", "count", ("remapped_rows/remapped_row_unc",),
          ("remapped_rows.uncorrectable", "remapped_rows.dbe"), {"kind": "uncorrected"}),
)  # fmt: skip
_REASONS = ("sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
_THROTTLED = tuple(
    Field(
        "throttled", "us",
        tuple(
            f"clocks_event_reasons_counters/clocks_event_reasons_counters_{tag}"
            for tag in (reason, reason.replace("thermal", "therm"), reason.removesuffix("_slowdown"))
        ),
        (f"clocks_event_reasons_counters.{reason}",), {"reason": reason},
    )
    for reason in _REASONS
)  # fmt: skip

_LINK = "pci/pci_gpu_link_info"
_GEN = f"{_LINK}/pcie_gen"
FIELDS: tuple[Field, ...] = (
    Field("temperature", "degC", ("temperature/gpu_temp",), ("temperature.gpu",)),
    Field("temperature_margin", "degC", ("temperature/gpu_temp_tlimit",), ("temperature.gpu.tlimit",)),
    Field("temperature_slowdown", "degC", ("temperature/gpu_temp_slow_threshold",)),
    Field("temperature_shutdown", "degC", ("temperature/gpu_temp_max_threshold",)),
    Field("temperature_max_operating", "degC", ("temperature/gpu_temp_max_gpu_threshold",)),
    Field("memory_temperature", "degC", ("temperature/memory_temp",), ("temperature.memory",)),
    *_power(""),
    *_power("module"),
    Field("memory_power", "W", ("gpu_memory_power_readings/average_power_draw",)),
    *_clocks(),
    *_memories(),
    Field("utilization", "%", ("utilization/gpu_util",), ("utilization.gpu",)),
    *(
        Field(f"{engine}_utilization", "%", (f"utilization/{tag}_util",), (f"utilization.{tag}",))
        for engine, tag in (
            ("memory", "memory"), ("encoder", "encoder"), ("decoder", "decoder"), ("jpeg", "jpeg"), ("ofa", "ofa"),
        )
    ),
    Field("fan_speed", "%", ("fan_speed",), ("fan.speed",)),
    Field("pcie_link_gen", "count", (f"{_GEN}/current_link_gen",), ("pcie.link.gen.current",)),
    Field("pcie_link_gen_max", "count", (f"{_GEN}/max_link_gen",), ("pcie.link.gen.max",)),
    Field("pcie_link_gen_device", "count", (f"{_GEN}/device_current_link_gen",), ("pcie.link.gen.gpucurrent",)),
    Field("pcie_link_width", "count", (f"{_LINK}/link_widths/current_link_width",), ("pcie.link.width.current",)),
    Field("pcie_link_width_max", "count", (f"{_LINK}/link_widths/max_link_width",), ("pcie.link.width.max",)),
    Field("pcie_replays", "count", ("pci/replay_counter",)),
    Field("pcie_tx", "kB/s", ("pci/tx_util",)),
    Field("pcie_rx", "kB/s", ("pci/rx_util",)),
    *_COUNTS,
    *_ecc(),
    *_THROTTLED,
)  # fmt: skip

_WHAT = {
    "temperature": "temperature of the GPU core",
    "temperature_margin": "degrees left until the GPU slows down",
    "temperature_slowdown": "core temperature at which the clocks are cut",
    "temperature_shutdown": "core temperature at which the GPU switches off",
    "temperature_max_operating": "highest core temperature of normal operation",
    "memory_temperature": "temperature of the GPU's memory",
    "power": "power drawn by the GPU, averaged where the driver says so",
    "power_instant": "power drawn by the GPU at that moment",
    "power_limit": "power limit of the GPU (param limit: enforced, requested, default, min, max)",
    "module_power": "power drawn by the whole module (GPU and CPU on one board)",
    "module_power_instant": "power drawn by the whole module at that moment",
    "module_power_limit": "power limit of the whole module (param limit)",
    "memory_power": "power drawn by the GPU's memory",
    "utilization": "share of time in which a kernel ran on the GPU",
    "fan_speed": "fan speed, of its maximum",
    "pcie_link_gen": "PCIe generation of the link now (lower when idle)",
    "pcie_link_gen_max": "PCIe generation that GPU and slot can do",
    "pcie_link_gen_device": "PCIe generation that the GPU itself runs now",
    "pcie_link_width": "PCIe lanes in use now",
    "pcie_link_width_max": "PCIe lanes that GPU and slot can do",
    "pcie_replays": "PCIe packets sent again since the last reset",
    "pcie_tx": "bytes sent over PCIe in the last 20 ms",
    "pcie_rx": "bytes received over PCIe in the last 20 ms",
    "retired_pages": "memory pages taken out of use (param cause)",
    "remapped_rows": "memory rows replaced by spare ones (param kind)",
    "ecc_errors": "memory errors (params kind, counter since reset or since ever, location)",
    "throttled": "time for which the clocks were held down (param reason)",
}
_WORDS = {
    "fb_memory": "frame buffer memory",
    "bar1_memory": "BAR1 memory",
    "clock": "clock now",
    "clock_max": "clock limit",
    "clock_application": "clock asked for by applications",
}


def _say(indicator: str) -> str:
    if indicator in _WHAT:
        return _WHAT[indicator]
    stem, _, last = indicator.rpartition("_")
    return f"utilization of the {stem}" if last == "utilization" else f"{_WORDS.get(stem, stem)}: {last}"


INDICATORS: Mapping[str, tuple[str, str]] = {item.indicator: (item.unit, _say(item.indicator)) for item in FIELDS}
"""indicator → (unit, what it is), for every reader of nvidia-smi's output."""

CSV_FIELDS: Mapping[str, Field] = {name: item for item in FIELDS for name in item.csv}
"""query field in lower case → the quantity in it."""


_COMPLAINT = re.compile(
    r"^.{0,80}?(?P<text>NVIDIA-SMI has failed because .{0,200}|Failed to initialize NVML:? .{0,200}"
    r"|No devices were found|Unable to determine the device handle for .{0,200}"
    r"|NVIDIA-SMI couldn't find libnvidia-ml.{0,200}|(?:bash: |sh: \d+: )?nvidia-smi: (?:command )?not found"
    r"|.{0,60}(?:executable file not found|No such file or directory).{0,60}nvidia-smi.{0,40})\s*$",
    re.MULTILINE,
)


_COMPLAINT_WORDS = (
    "NVIDIA-SMI",
    "NVML",
    "No devices were",
    "device handle",
    "nvidia-smi:",
    " nvidia-smi",
    'nvidia-smi"',
)
_SEARCHED_BYTES = 1 << 20


def complaint(text: str) -> str | None:
    """Give the sentence by which nvidia-smi says that it can't answer, or None."""
    for word in _COMPLAINT_WORDS:
        at = text.find(word)
        while at >= 0:
            begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
            match = _COMPLAINT.match(text[max(begin, at - 200) : end if end >= 0 else len(text)][:600])
            if match:
                return match["text"].strip()
            at = text.find(word, at + 1) if len(text) < _SEARCHED_BYTES else -1
    return None


def reading(item: Field, value: float, place: Params) -> Reading:
    """Give the reading of `item` at the GPU that `place` names."""
    return Reading(item.indicator, value, item.unit, {**place, **item.params} if item.params else place)


def common(devices: list[dict[str, object]], key: str) -> object:
    """Give what all devices say of `key`: one value where they agree, a list in their order where not, else None."""
    values = [device[key] for device in devices if device.get(key) is not None]
    if not values:
        return None
    return values[0] if len(values) == len(devices) and all(v == values[0] for v in values) else values
