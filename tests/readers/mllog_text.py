"""Writes MLPerf logs, from values that the tests choose."""

from __future__ import annotations

import json

from tests.readers.item_lists import facts, items, readings

from plumbline.readers import mllog
from plumbline.readers.reading import Status

T0 = 1_700_000_000_000


def event(key, value=None, at=0.0, kind="POINT_IN_TIME", **metadata):
    """Write one record, `at` seconds after T0."""
    record = {
        "namespace": "", "time_ms": T0 + round(at * 1000), "event_type": kind, "key": key, "value": value,
        "metadata": {"file": "train.py", "lineno": 7, **metadata},
    }  # fmt: skip
    return ":::MLLOG " + json.dumps(record)


def run(start=10.0, length=100.0, status="success", seed=17, evals=3, steps=4, benchmark="gpt3", ranks=1) -> list[str]:
    """Write the lines of one run."""
    lines = [event("cache_clear", True, start - 9)]
    lines += [event("init_start", None, start - 8 + rank / 1000) for rank in range(ranks)]
    lines += [
        event("submission_benchmark", benchmark, start - 7),
        event("submission_org", "somebody", start - 7),
        event("seed", seed, start - 7),
        event("global_batch_size", 64, start - 7),
        event("opt_base_learning_rate", 2e-5, start - 7),
        event("init_stop", None, start - 1),
        event("run_start", None, start),
    ]
    for number in range(evals):
        at = start + (number + 1) * length / (evals + 1)
        for step in range(steps):
            stats = {"train_step_timing in s": 1.5 + step / 8, "reduced_train_loss": 3.0 - number / 8}
            lines.append(event("tracked_stats", stats, at - 1 + step / 8, step=number * steps + step))
        lines.append(event("eval_start", None, at, epoch_num=number * 640))
        lines.append(event("eval_accuracy", 2.9 - number / 16, at, epoch_num=number * 640))
        lines.append(event("eval_stop", None, at, epoch_num=number * 640))
    lines.append(event("run_stop", None, start + length, status=status))
    lines.append(event("train_samples", evals * 640, start + length))
    lines.append(event("tracked_stats", {"throughput": 1234.5}, start + length + 0.5, step=evals * 640))
    return lines


def text(lines) -> str:
    return "\n".join(lines) + "\n"


WHOLE = text(run())


def assert_same_as_whole(found, *, duplicates=False):
    reference = items(mllog, WHOLE)
    assert found[-1].status is Status.COMPLETE, found[-1].reason
    assert readings(found) == readings(reference)
    told, wanted = facts(found), facts(reference)
    for name in ("time_to_train_ms", "n_eval", "last_eval_accuracy", "seed", "distinct_seeds", "global_batch_size"):
        assert told[name] == wanted[name]
    assert ("duplicate_records" in told) is duplicates
