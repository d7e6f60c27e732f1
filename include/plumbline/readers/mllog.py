"""MLPerf Training logs: `:::MLLOG {json}` lines of rounds 3.0 to the newest, any benchmark and submitter.

One log is one run as a rule. A run is what stands between run_start and run_stop; what is logged before its run_start
belongs to it (init_start, submission_*, hyperparameters), and so does what follows its run_stop until the next
init_start, submission_* or run_start.

Rules where a log tells something more than once:

- Several run_start or run_stop of the ranks of one run count once: time to train = latest run_stop − earliest
  run_start, and only if every run_stop says success. The rules allow one of each (EXACTLY_ONE in mlcommons/logging,
  compliance_checker); its result_summarizer takes the last run_start before the first run_stop. With one of each, as
  in all 12,143 finished logs of rounds 3.0 to 5.1, both give the same; with more, ours never flatters.
- Two run_start are one run when they lie within 60 s and neither a run_stop nor an init_start lies between in time.
- The same value at the same place is counted once, and where lines name ranks only the rank that logged a statistic
  first is read. Ranks' copies of a whole log, one behind the other, are recognised by their overlap in time.
- A time to train is given for `success` alone. `aborted` is never a time, however plausible it looks.

A success is COMPLETE when it has evaluations, as many as ended (eval_stop), and no damaged line in its middle that may
have been a row. Statistics behind run_stop have no end that could be missed: they are the fact `final_statistics`.
Token glued behind text, wrapped or escaped lines: see _mllog_lines.py; drifting names of statistics: _mllog_stats.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Scalar
from plumbline.readers._expectations import expected_count
from plumbline.readers._mllog_book import Book, judge
from plumbline.readers._mllog_lines import TOKEN, Lines, Record
from plumbline.readers._mllog_run import Run
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source

NAME = "mllog"
TOOL = "MLPerf Training logs (:::MLLOG), rounds 3.0 to 6.1, any benchmark and submitter"
INDICATORS: Mapping[str, tuple[str, str]] = {
    "time_to_train": ("s", "run_stop − run_start of a run that says success"),
    "eval_accuracy": (
        "1",
        "result of an evaluation, in the benchmark's own measure (GPT-3, Llama 3.1: log perplexity)",
    ),
    "step_time": ("s", "time of a training step as tracked_stats tells it"),
    "throughput": ("1/s", "rate as logged; params.counts says of what: samples, or tokens (GPT-3)"),
    "train_loss": ("1", "training loss as logged"),
    "eval_loss": ("1", "loss of an evaluation as logged"),
    "train_epoch_time": ("s", "time of a training epoch"),
    "validation_step_time": ("s", "time of an evaluation step"),
    "validation_time": ("s", "time of an evaluation"),
    "validation_throughput": ("1/s", "samples a second in evaluation"),
    "checkpoint_write_time": ("s", "time to write a checkpoint"),
    "checkpoint_read_time": ("s", "time to read a checkpoint back"),
    "power": ("W", "power_reading of a power log"),
}
FACTS: Mapping[str, str] = {
    "lines": "lines of the file",
    "mllog_lines": "lines that hold the token :::MLLOG",
    "bad_mllog_lines": "records that can't be read",
    "prefixes": "what stands before the token → how often; digits become N",
    "n_runs": "runs in the file",
    "n_run_start": "run_start records",
    "n_run_stop": "run_stop records",
    "run_stop_status": "what run_stop says, of each run in order",
    "status": "success, aborted, incomplete, not_started, or another word of run_stop; of several runs the worst",
    "run_start_ms": "time of run_start, milliseconds since 1970",
    "run_stop_ms": "time of run_stop, milliseconds since 1970",
    "time_to_train_ms": "milliseconds from run_start to run_stop, of a success",
    "time_to_train_min": "the same in minutes",
    "elapsed_until_abort_ms": "milliseconds from run_start to a run_stop that doesn't say success",
    "elapsed_until_abort_min": "the same in minutes",
    "n_eval": "evaluations with a result",
    "last_eval_accuracy": "result of the last one",
    "seed": "the first seed logged",
    "distinct_seeds": "how many different seeds",
    "settings": "hyperparameters and everything else that is logged once: key → value",
    "submission_benchmark": "which benchmark",
    "submission_division": "closed or open",
    "submission_org": "who",
    "submission_platform": "on what",
    "submission_status": "onprem, cloud, preview or research",
    "global_batch_size": "samples in a step over all ranks",
    "eval_samples": "samples of an evaluation",
    "train_samples": "samples of the training set, or trained (submitters differ)",
    "final_statistics": "statistics that are logged behind run_stop",
    "not_finite": "values that are NaN, infinite or no number → how many",
    "duplicate_records": "records that only repeat another rank's",
    "clock_went_back_ms": "the largest step back in time inside a run (late evaluations of some harnesses do that)",
    "runs": "of several runs in one file: each one's facts",
}
EXPECTATIONS: Mapping[str, str] = {
    "runs": "runs that the file must hold",
    "evals": "least number of evaluations in each run",
    "steps": "number of step times in each run",
}

_RUN_FACTS = (
    "submission_benchmark", "submission_division", "submission_org", "submission_platform", "submission_status",
    "global_batch_size", "eval_samples", "train_samples",
)  # fmt: skip
_MOST_HELD = 50_000
"""Readings kept back until it is known whether the file holds a second run; above that all carry `run`."""
_WORST = (
    Status.COMPLETE, Status.UNKNOWN, Status.NOT_STARTED, Status.INCOMPLETE, Status.ABORTED, Status.FAILED,
)  # fmt: skip
_LAUNCH = re.compile(
    rb":::(?:DLPAL|SYSJSON)|STARTING TIMING RUN|RUNANDTIME_|Beginning trial|torch\.distributed|torchrun|"
    rb"\b(?:srun|slurmstepd|sbatch|mpirun|pyxis|enroot)\b|Traceback \(most recent call last\)"
)
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def sniff(head: str) -> float:
    """Say how sure the head of a file looks like an MLPerf log."""
    if ":::MLLOG" in head:
        return 1.0
    return 0.4 if ":::DLPAL" in head or ":::SYSJSON" in head or "RUNANDTIME_START" in head else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give the readings in order of the log, then the facts, then whether each run is whole.

    A text without any MLLOG line is NOT_STARTED when it looks like a launch that failed. Raises OutputError for
    anything else that is no MLPerf log.
    """
    wanted = {key: expected_count(expect, key) for key in EXPECTATIONS}
    lines, book = Lines(source), Book()
    yield from _readings(lines, book)
    if not lines.mllog_lines:
        _refuse_other_formats(source.name, lines)
    yield from (
        Reading("time_to_train", run.time_to_train_ms / 1000, "s", _run_param(run, book))
        for run in book.runs
        if run.time_to_train_ms is not None
    )
    yield from _facts(lines, book)
    yield _completeness(lines, book, wanted)


def _readings(lines: Lines, book: Book) -> Iterator[Reading]:
    held: list[tuple[int, Reading]] = []
    several = False
    for item in lines:
        if not isinstance(item, Record):
            book.lose(item)
            continue
        held.extend(book.take(item))
        if several or len(book.runs) > 1 or len(held) > _MOST_HELD:
            several = True
            yield from (_numbered(run, reading) for run, reading in held)
            held.clear()
    book.close()
    yield from (_numbered(run, reading) if len(book.runs) > 1 else reading for run, reading in held)


def _numbered(run: int, reading: Reading) -> Reading:
    return Reading(reading.indicator, reading.value, reading.unit, {**reading.params, "run": run})


def _run_param(run: Run, book: Book) -> dict[str, Scalar]:
    return {"run": run.number} if len(book.runs) > 1 else {}


def _refuse_other_formats(name: str, lines: Lines) -> None:
    head = bytes(lines.head)
    if not head.strip():
        raise OutputError("empty: no MLPerf log", source=name)
    excerpt = head[:120].decode("utf-8", "replace")
    if _BINARY.search(head) or head.lstrip()[:1] in (b"{", b"<") or not _LAUNCH.search(head):
        raise OutputError("no :::MLLOG line: not an MLPerf log", source=name, excerpt=excerpt)


# ---------------------------------------------------------------------------------------------------------------
# Facts


def _facts(lines: Lines, book: Book) -> Iterator[Fact]:
    yield Fact("lines", lines.lines)
    yield Fact("mllog_lines", lines.mllog_lines)
    yield Fact("bad_mllog_lines", lines.bad)
    yield Fact("prefixes", lines.prefixes)
    yield Fact("n_runs", len(book.runs))
    yield Fact("n_run_start", sum(run.starts for run in book.runs))
    yield Fact("n_run_stop", sum(run.stops for run in book.runs))
    yield Fact("run_stop_status", [told for run in book.runs for told in run.statuses])
    yield Fact("n_eval", sum(run.evals for run in book.runs))
    seeds = {seed: None for run in book.runs for seed in run.seeds}
    yield Fact("distinct_seeds", len(seeds))
    told = [_run_facts(run) for run in book.runs]
    if len(book.runs) == 1:
        yield from (Fact(name, value) for name, value in told[0].items())
    elif book.runs:
        worst = max(book.runs, key=lambda run: _WORST.index(judge(run)[0]))
        yield Fact("status", worst.status)
        for name, value in told[0].items():
            if name != "status" and all(name in other and other[name] == value for other in told):
                yield Fact(name, value)
        yield Fact("runs", [{**facts, "run": run.number} for run, facts in zip(book.runs, told, strict=True)])
    else:
        yield Fact("status", "not_started")


def _run_facts(run: Run) -> dict[str, Any]:
    told = {
        "status": run.status,
        **_times(run),
        "last_eval_accuracy": run.last_eval,
        "seed": next(iter(run.seeds), None),
        **{name: run.settings.get(name) for name in _RUN_FACTS},
        "settings": {name: value for name, value in run.settings.items() if name not in _RUN_FACTS},
        "final_statistics": run.final or None,
        "not_finite": run.not_finite or None,
        "duplicate_records": run.duplicates or None,
        "clock_went_back_ms": _whole(run.went_back_ms) or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _times(run: Run) -> dict[str, Any]:
    times: dict[str, Any] = {
        name: _whole(time_ms)
        for name, time_ms in (("run_start_ms", run.start_ms), ("run_stop_ms", run.stop_ms))
        if time_ms is not None
    }
    success = run.time_to_train_ms is not None
    if run.elapsed_ms is not None and (success or run.status not in ("success", "completed")):
        kind = "time_to_train" if success else "elapsed_until_abort"
        times |= {f"{kind}_ms": _whole(run.elapsed_ms), f"{kind}_min": run.elapsed_ms / 60_000}
    return times


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else value


# ---------------------------------------------------------------------------------------------------------------
# Completeness


def _completeness(lines: Lines, book: Book, wanted: Mapping[str, int | None]) -> Completeness:
    judged = [judge(run) for run in book.runs]
    status, reason = max(judged, key=lambda item: _WORST.index(item[0]), default=(Status.NOT_STARTED, _nothing(lines)))
    if status is Status.NOT_STARTED and any(run.power_stops for run in book.runs):
        reason = "a power log: it holds no training run"
    if len(judged) > 1 and reason:
        number = next(i for i, item in enumerate(judged) if item == (status, reason))
        reason = f"run {number}: {reason}"
    if status is Status.COMPLETE:
        status, reason = _against_plan(book, wanted)
    return Completeness(
        reader=NAME,
        status=status,
        expected={key: value for key, value in wanted.items() if value is not None},
        found={
            "runs": len(book.runs),
            "evals": [run.evals for run in book.runs],
            "steps": [run.steps for run in book.runs],
            "statuses": [run.status for run in book.runs],
        },
        reason=reason,
    )


def _nothing(lines: Lines) -> str:
    return "no MLLOG record can be read" if lines.mllog_lines else f"no {TOKEN.decode()} line: nothing was trained"


def _against_plan(book: Book, wanted: Mapping[str, int | None]) -> tuple[Status, str]:
    runs, evals, steps = wanted["runs"], wanted["evals"], wanted["steps"]
    if runs is not None and len(book.runs) != runs:
        return Status.INCOMPLETE, f"{len(book.runs)} runs, {runs} were expected"
    for run in book.runs:
        if evals is not None and run.evals < evals:
            return Status.INCOMPLETE, f"{run.evals} evaluations, at least {evals} were expected"
        if steps is not None and run.steps != steps:
            return Status.INCOMPLETE, f"{run.steps} step times, {steps} were expected"
    return Status.COMPLETE, ""
