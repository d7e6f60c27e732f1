"""What submitters call the same statistic: `tracked_stats` keys drifted between rounds, harnesses and vendors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from plumbline.model import Scalar
from plumbline.readers._mllog_lines import Record

_NAMES: Mapping[str, tuple[str, ...]] = {
    "step_time": (
        "train_step_timing", "train_step_time", "step_time", "step_timing", "train_step_duration", "time",
        "iteration_time", "iter_time", "train_iteration_time", "time_per_step",
    ),
    "validation_step_time": ("validation_step_timing", "validation_step_time", "val_step_time"),
    "validation_time": ("validation_epoch_timing", "validation_time", "validation_epoch_time"),
    "train_epoch_time": ("train_epoch_timing", "train_epoch_time"),
    "throughput": (
        "throughput", "train_throughput", "training_throughput", "imgs_sec", "imgs_per_sec", "images_per_second",
        "samples_sec", "samples_per_sec", "samples_per_second", "sequences_per_second",
        "tokens_per_sec", "tokens_per_second", "tokens_sec",
    ),
    "validation_throughput": ("validation_throughput", "eval_throughput", "val_throughput"),
    "train_loss": ("train_loss", "training_loss", "reduced_train_loss", "loss", "lm_loss"),
    "eval_loss": ("eval_loss", "validation_loss", "val_loss"),
    "checkpoint_write_time": ("checkpoint_write_time", "checkpoint_save_time"),
    "checkpoint_read_time": ("checkpoint_read_time", "checkpoint_load_time"),
}  # fmt: skip
_INDICATOR = {name: indicator for indicator, names in _NAMES.items() for name in names}
_TIMES = frozenset(indicator for indicator in _NAMES if indicator.endswith("_time"))
_UNIT = re.compile(r"(?P<name>.{1,60}?)[ _]\(?(?:in[ _])?(?P<unit>ms|s|sec|secs|seconds|us|min)\)?")
_SECONDS = {"ms": 1e-3, "us": 1e-6, "min": 60.0}
_COORDINATES = (
    "step", "step_num", "samples_count", "epoch_num", "epoch", "epoch_count", "instance", "metric", "host", "rank",
)  # fmt: skip
_LONGEST_TEXT = 80


@lru_cache(maxsize=1024)
def statistic(name: str) -> tuple[str, float] | None:
    """Give (indicator, factor to its unit) for a statistic's name, None for one that is not read.

    Times carry their unit in the name in some rounds ('train_step_timing in s'); seconds where they don't.
    """
    plain = name.strip().lower()
    if plain in _INDICATOR:
        return _INDICATOR[plain], 1.0
    match = _UNIT.fullmatch(plain)
    indicator = _INDICATOR.get(match["name"]) if match else None
    if match is None or indicator not in _TIMES:
        return None
    return indicator, _SECONDS.get(match["unit"], 1.0)


def statistics_of(record: Record) -> Iterable[tuple[str, Any]]:
    """Give (name, value) of all that a record may hold statistics in: `tracked_stats`, or its own key and value."""
    if record.key != "tracked_stats":
        return ((record.key, record.value),)
    return record.value.items() if isinstance(record.value, dict) else ()


def counted(name: str, benchmark: object) -> str:
    """Say what a throughput counts: 'tokens' or 'samples'.

    NeMo's GPT-3 logs print tokens a second under `throughput` (throughput × step time = batch × sequence length in all
    of rounds 3.0 to 4.1); every other benchmark's log prints samples.
    """
    return "tokens" if "token" in name.lower() or benchmark == "gpt3" else "samples"


def coordinates(record: Record) -> dict[str, Scalar]:
    """Give where a value belongs, under the names that the log uses. A pair of steps becomes step_first, step_last."""
    found: dict[str, Scalar] = {}
    places = (record.metadata, record.value) if record.key == "tracked_stats" else (record.metadata,)
    for place in places:
        for name in _COORDINATES if isinstance(place, dict) else ():
            if name not in place:
                continue
            value = place[name]
            if isinstance(value, list) and len(value) == 2 and all(_plain(item) for item in value):
                found[f"{name}_first"], found[f"{name}_last"] = value
            elif _plain(value):
                found[name] = value[:_LONGEST_TEXT] if isinstance(value, str) else value
    return found


def _plain(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return abs(value) < 1 << 63
    return isinstance(value, str) or (isinstance(value, float) and value - value == 0)
