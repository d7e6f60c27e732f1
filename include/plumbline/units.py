"""Units: every indicator has one, written once; conversions between spellings of a quantity are exact.

A number without a unit field carries it in its name: `timeout_s`, `message_bytes`.
"""

from __future__ import annotations

import re
from fractions import Fraction

from plumbline.errors import ConfigError, near_match

_KI, _MI, _GI, _TI = 1 << 10, 1 << 20, 1 << 30, 1 << 40

_SCALES: dict[str, tuple[str, Fraction]] = {
    # unit: (dimension, size in that dimension's base unit)
    "B": ("bytes", Fraction(1)),
    "kB": ("bytes", Fraction(10**3)),
    "MB": ("bytes", Fraction(10**6)),
    "GB": ("bytes", Fraction(10**9)),
    "TB": ("bytes", Fraction(10**12)),
    "KiB": ("bytes", Fraction(_KI)),
    "MiB": ("bytes", Fraction(_MI)),
    "GiB": ("bytes", Fraction(_GI)),
    "TiB": ("bytes", Fraction(_TI)),
    "B/s": ("bandwidth", Fraction(1)),
    "kB/s": ("bandwidth", Fraction(10**3)),
    "MB/s": ("bandwidth", Fraction(10**6)),
    "GB/s": ("bandwidth", Fraction(10**9)),
    "TB/s": ("bandwidth", Fraction(10**12)),
    "KiB/s": ("bandwidth", Fraction(_KI)),
    "MiB/s": ("bandwidth", Fraction(_MI)),
    "GiB/s": ("bandwidth", Fraction(_GI)),
    "bit/s": ("bandwidth", Fraction(1, 8)),
    "Mbit/s": ("bandwidth", Fraction(10**6, 8)),
    "Gbit/s": ("bandwidth", Fraction(10**9, 8)),
    "ns": ("time", Fraction(1, 10**9)),
    "us": ("time", Fraction(1, 10**6)),
    "ms": ("time", Fraction(1, 10**3)),
    "s": ("time", Fraction(1)),
    "min": ("time", Fraction(60)),
    "h": ("time", Fraction(3600)),
    "FLOPS": ("compute rate", Fraction(1)),
    "MFLOPS": ("compute rate", Fraction(10**6)),
    "GFLOPS": ("compute rate", Fraction(10**9)),
    "TFLOPS": ("compute rate", Fraction(10**12)),
    "PFLOPS": ("compute rate", Fraction(10**15)),
    "1": ("ratio", Fraction(1)),
    "%": ("ratio", Fraction(1, 100)),
    "IOPS": ("operations per second", Fraction(1)),
    "1/s": ("operations per second", Fraction(1)),
    "samples/s": ("samples per second", Fraction(1)),
    "tokens/s": ("tokens per second", Fraction(1)),
    "count": ("count", Fraction(1)),
    "degC": ("temperature", Fraction(1)),
    "W": ("power", Fraction(1)),
    "mW": ("power", Fraction(1, 1000)),
    "J": ("energy", Fraction(1)),
    "mJ": ("energy", Fraction(1, 1000)),
    "MHz": ("frequency", Fraction(10**6)),
    "GHz": ("frequency", Fraction(10**9)),
    "log-perplexity": ("loss", Fraction(1)),
    "nat": ("loss", Fraction(1)),
}

UNITS: frozenset[str] = frozenset(_SCALES)
"""Every unit that an indicator may have."""


def check_unit(unit: str) -> str:
    """Give the unit back. Raises ConfigError for an unknown one, with the nearest known spelling."""
    if unit not in _SCALES:
        raise ConfigError(f"unknown unit {unit!r}{near_match(unit, _SCALES)}")
    return unit


def convert(value: float, source: str, target: str) -> float:
    """Give `value` in another unit of the same dimension: exact arithmetic, rounded once at the end.

    Raises ConfigError when a unit is unknown or the dimensions differ.
    """
    from_dimension, from_scale = _SCALES[check_unit(source)]
    to_dimension, to_scale = _SCALES[check_unit(target)]
    if from_dimension != to_dimension:
        raise ConfigError(f"cannot convert {source} ({from_dimension}) into {target} ({to_dimension})")
    if source == target:
        return value
    return float(Fraction(value) * from_scale / to_scale)


_SIZE = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?) ?([KMGTkmgt]?)i?B?")
_MOST_BYTES = 1 << 60
"""One EiB: more than any file or message under test, and less than where arithmetic with sizes ends."""


def parse_bytes(text: str) -> int:
    """Read a message or file size as the tools write it: '8G', '51.2M', '1048576', '4KiB', '1g'.

    One-letter suffixes are powers of 1024, as in nccl-tests and fio. Raises ConfigError otherwise, and for more than
    an EiB.
    """
    match = _SIZE.fullmatch(text.strip())
    shown = repr(text if len(text) <= 40 else f"{text[:40]}…")
    if match is None:
        raise ConfigError(f"not a size in bytes: {shown}; write 1048576, 512K, 8M or 1G")
    size = int(Fraction(match[1]) * {"": 1, "K": _KI, "M": _MI, "G": _GI, "T": _TI}[match[2].upper()])
    if size > _MOST_BYTES:
        raise ConfigError(f"a size of more than {_MOST_BYTES >> 40} TiB: {shown}")
    return size


def show_bytes(size: int) -> str:
    """Write a byte count the way people name message sizes: '8 GiB', '1.5 MiB', '512 B'."""
    for name, scale in (("TiB", _TI), ("GiB", _GI), ("MiB", _MI), ("KiB", _KI)):
        if size >= scale:
            return f"{size / scale:.4g} {name}"
    return f"{size} B"
