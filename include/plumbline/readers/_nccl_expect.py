"""What the caller of the nccl_tests reader expected, compared with the runs that were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plumbline.errors import ConfigError
from plumbline.model import Scalar
from plumbline.readers._nccl_log import Chatter
from plumbline.readers._nccl_run import Run
from plumbline.units import parse_bytes

EXPECTATIONS = {
    "operations": "comma-separated operations, each of which must have a complete run (all_reduce,all_gather)",
    "rows": "table rows that each operation must have",
    "min_bytes": "smallest message size that each operation must have (8, 8K, 1M)",
    "max_bytes": "largest message size that each operation must have",
    "step_factor": "with min_bytes and max_bytes: every size of that sweep must be there",
    "nranks": "ranks that must have taken part",
    "nodes": "distinct hosts that must have taken part",
    "dtype": "data type of every row (float, half, bfloat16)",
    "redop": "reduction of every row that names one (sum)",
    "check": "1: every out-of-place result must have been checked (#wrong is a number)",
    "iterations": "timed iterations that the banner must announce",
    "warmup": "warm-up iterations that the banner must announce",
    "transport": "transport between nodes that NCCL's log must name, and no other (NET/IB)",
}

_ALIGNMENT_BYTES = 16
"""Sizes are rounded down to this times the number of ranks. Source: getCollByteCount of the tests."""


def expected_bytes(value: Scalar) -> int:
    """Read a size expectation. Raises ConfigError."""
    return value if isinstance(value, int) and not isinstance(value, bool) else parse_bytes(str(value))


def expected_int(key: str, value: Scalar) -> int:
    """Read a whole number. Raises ConfigError."""
    try:
        return int(str(value))
    except ValueError:
        raise ConfigError(f"expectation {key} must be a whole number, not {value!r}") from None


def has_size(sizes: set[int], wanted: int, ranks: int | None) -> bool:
    """Say whether a size was measured, allowing for the tools' rounding down to whole aligned pieces."""
    if wanted in sizes:
        return True
    slack = _ALIGNMENT_BYTES * (ranks or 1)
    return any(0 < wanted - size < slack for size in sizes)


def unmet(expect: Mapping[str, Scalar], runs: Sequence[Run], chatter: Chatter) -> list[str]:
    """Give a sentence for every expectation that the output does not meet."""
    found: list[str] = []
    asked = [name.strip() for name in str(expect.get("operations") or "").split(",") if name.strip()]
    names = [run.name() for run in runs]
    found += [f"no run of {name}" for name in asked if name not in names]
    judged = [run for run in runs if not asked or run.name() in asked]
    for run in judged:
        label = run.name() or "the run"
        found += [f"{label}: {sentence}" for sentence in _of_run(expect, run)]
    if "transport" in expect:
        wanted = str(expect["transport"])
        seen = {name for name in chatter.transports if name.startswith("NET/")}
        if seen != {wanted}:
            found.append(f"transport {', '.join(sorted(seen)) or 'not named in the log'}, expected {wanted}")
    return found


def _of_run(expect: Mapping[str, Scalar], run: Run) -> list[str]:
    found = [
        f"{shown} {what}, expected {wanted}"
        for key, what, shown in (
            ("nranks", "ranks", run.rank_count),
            ("nodes", "nodes", len({rank.get("host") for rank in run.ranks}) or None),
            ("iterations", "iterations", run.settings.get("iterations")),
            ("warmup", "warm-up iterations", run.settings.get("warmup")),
        )
        if key in expect and (wanted := expected_int(key, expect[key])) != shown
    ]
    for key, what, seen in (
        ("dtype", "data type", list(run.dtypes)),
        ("redop", "reduction", [name.split()[0] for name in run.operators if name and name[0].isalpha()]),
    ):
        if key in expect and any(name != str(expect[key]) for name in seen if name != "none"):
            found.append(f"{what} {', '.join(seen)}, expected {expect[key]}")
    if expected_int("check", expect.get("check", 0)) and run.unchecked_out_of_place:
        found.append(f"{run.unchecked_out_of_place} out-of-place results were not checked")
    return found + _sizes(expect, run)


def _sizes(expect: Mapping[str, Scalar], run: Run) -> list[str]:
    found: list[str] = []
    if "rows" in expect and run.rows != (wanted := expected_int("rows", expect["rows"])):
        found.append(f"{run.rows} rows, expected {wanted}")
    sizes = run.sizes()
    missing = [size for size in wanted_sizes(expect) if not has_size(sizes, size, run.rank_count)]
    if missing:
        found.append(f"{len(missing)} sizes are missing, first {missing[0]}")
    return found


def wanted_sizes(expect: Mapping[str, Any]) -> list[int]:
    """Give the message sizes that min_bytes, max_bytes and step_factor ask for. Raises ConfigError."""
    ends = [expected_bytes(expect[key]) for key in ("min_bytes", "max_bytes") if expect.get(key) is not None]
    if len(ends) < 2 or expect.get("step_factor") is None:
        return ends
    step = expected_int("step_factor", expect["step_factor"])
    if step < 2 or ends[0] < 1:
        raise ConfigError("expectation step_factor must be at least 2, and min_bytes at least 1")
    sizes = [ends[0]]
    while sizes[-1] * step <= ends[1]:
        sizes.append(sizes[-1] * step)
    return sizes
