"""fio's terse lines: one line a job, fields in the order of their version (first field), `;` between."""

from __future__ import annotations

import re
from dataclasses import replace

from plumbline.readers._fio_model import DIRECTIONS, Job, Latency, Transfer

TERSE = re.compile(r"(?:[345];fio-[^;]{1,80};|2;)[^;]*;\d{1,9};\d{1,9};")
_DECIMAL = re.compile(r"\d{1,30}(?:\.\d{1,30})?")


def terse_job(line: str) -> Job | None:
    """Read one terse line (versions 2 to 5), or None when it is cut or of another layout."""
    fields = line.rstrip().split(";")
    ver = fields[0]
    first = 4 if ver == "2" else 5
    width = 47 if ver == "5" else 41
    ways = 3 if len(fields) > first + 2 * width and "%" not in fields[first + 2 * width] else 2
    after = first + ways * width
    if len(fields) < after + 34 or not fields[after].endswith("%"):
        return None
    try:
        transfers = tuple(
            _terse_transfer(way, fields[first + i * width : first + (i + 1) * width])
            for i, way in enumerate(DIRECTIONS[:ways])
        )
        return Job(
            name=fields[first - 3],
            group=_whole(fields[first - 2]),
            error=_whole(fields[first - 1]),
            transfers=tuple(transfer for transfer in transfers if transfer.ran),
        )
    except (ValueError, IndexError):
        return None


def _terse_transfer(way: str, fields: list[str]) -> Transfer:
    kib, rate, iops, runtime = (_whole(field) for field in fields[:4])
    cells = [field.split("%=", 1) for field in fields[12:] if "%=" in field]
    percentiles = {float(p): float(_whole(value)) for p, value in cells if 0 < _number(p) <= 100}
    end = 12 + len(cells)
    means = {"submission": fields[6], "completion": fields[10], "total": fields[end + 2]}
    latency = {kind: Latency(mean_us=mean) for kind, text in means.items() if (mean := _number(text)) > 0}
    if "completion" in latency:
        latency["completion"] = replace(latency["completion"], percentiles=percentiles)
    return Transfer(
        direction=way,
        bytes_per_s=rate * 1024.0 if runtime else None,
        bw_kib=float(rate),
        iops=float(iops) if runtime else None,
        runtime_ms=float(runtime),
        total_bytes=kib * 1024,
        latency=latency,
    )


def _whole(text: str) -> int:
    """Read a whole number as fio prints one. Raises ValueError."""
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise ValueError(text)
    return int(text)


def _number(text: str) -> float:
    """Read a decimal as fio prints one. Raises ValueError."""
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)
