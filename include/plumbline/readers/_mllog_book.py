"""Which run a record belongs to, and whether each run's log is whole. See readers/mllog.py for the rules."""

from __future__ import annotations

from plumbline.readers._mllog_lines import Damaged, Record
from plumbline.readers._mllog_run import Run
from plumbline.readers.reading import Reading, Status

SAME_START_MS = 60_000
"""Ranks leave the barrier before run_start together; starts further apart are two runs. No round has any closer."""
_OPENING = frozenset(("init_start", "run_start"))


def judge(run: Run) -> tuple[Status, str]:
    """Say whether the log of a run is whole, and why not."""
    if run.status == "incomplete":
        missing = "no run_stop: it was killed, or it is still running"
        return Status.INCOMPLETE, missing if run.stop_ms is None else "run_stop without run_start: its head is missing"
    if run.status in _TOLD:
        return _TOLD[run.status]
    if run.status not in ("success", "completed"):
        return Status.FAILED, f"run_stop says {run.status!r}"
    doubt = _clock_doubt(run)
    if doubt:
        return Status.UNKNOWN, doubt
    shortage = _shortage(run)
    return (Status.INCOMPLETE, shortage) if shortage else (Status.COMPLETE, "")


_TOLD = {
    "not_started": (Status.NOT_STARTED, "no run_start: it never began to train"),
    "aborted": (Status.ABORTED, "run_stop says aborted: the target was not reached"),
    "unknown": (Status.UNKNOWN, "run_stop has no status"),
}


def _clock_doubt(run: Run) -> str:
    if run.elapsed_ms is None:
        return "the clock can't be believed: run_stop − run_start is not a time that a run can take"
    if run.before_start:
        return f"the clock went backwards: {run.before_start} records are older than run_start"
    return f"the logs of two jobs are mixed: {run.conflicts[0]}" if run.conflicts else ""


def _shortage(run: Run) -> str:
    """Say which rows of a finished run are missing. Of 12,143 finished logs of rounds 3.0 to 5.1 none lacks any."""
    if run.lost:
        return f"{len(run.lost)} records of the run are damaged ({', '.join(dict.fromkeys(run.lost))[:80]})"
    results = run.evals + run.not_finite.get("eval_accuracy", 0)
    if run.status == "success" and not results:
        return "success without any evaluation: part of the log is missing"
    if run.eval_marks > results:
        return f"{run.eval_marks} evaluations ended, {results} have a result"
    return ""


class Book:
    """The runs of one log, in order."""

    def __init__(self) -> None:
        """Start with none."""
        self.runs: list[Run] = []
        self._current: Run | None = None
        self._copying = False

    def take(self, record: Record) -> list[tuple[int, Reading]]:
        """Add a record: its readings, each with the number of its run."""
        run = self._choose(record)
        if not self._copying:
            readings = run.take(record)
            number = len(self.runs) if run.number is None else run.number
            return [(number, reading) for reading in readings]
        if record.key == "run_stop":
            run.stop(record)
        else:
            run.duplicates += 1
            run.starts += record.key == "run_start"
        return []

    def lose(self, damaged: Damaged) -> None:
        """Add a record that can't be read."""
        if self._current is not None and not self._copying:
            self._current.lose(damaged)

    def close(self) -> None:
        """End the log: a run that was only initialised counts, unless it is another rank's part of one before."""
        run = self._current
        if run is not None and run.number is None and self._same_init(run) is None:
            self._enter(run)

    def _choose(self, record: Record) -> Run:
        """Give the run that a record belongs to: the current one, or a new one that it opens."""
        run = self._current
        if run is None:
            run = self._current = Run()
        elif run.stop_ms is not None and (record.key in _OPENING or record.key.startswith("submission_")):
            if run.number is None:
                self._enter(run)
            self._copying = False
            run = self._current = Run()
        if record.key != "run_start":
            return run
        if run.number is None:
            twin = self._same_start(run, record.time_ms)
            if twin is None:
                return self._enter(run)
            self._current, self._copying = twin, True
            return twin
        if run.stop_ms is None and run.start_ms is not None and self._starts_again(run, record.time_ms):
            again = Run(settings=dict(run.settings), seeds=dict.fromkeys(list(run.seeds)[-1:]))
            self._current = again
            return self._enter(again)
        return run

    def _enter(self, run: Run) -> Run:
        run.number = len(self.runs)
        self.runs.append(run)
        return run

    def _starts_again(self, run: Run, time_ms: float) -> bool:
        return run.restarted or abs(time_ms - (run.start_ms or 0.0)) > SAME_START_MS

    def _same_start(self, run: Run, time_ms: float) -> Run | None:
        """Find the run before of which this is another rank's log: it started with it and before it ended."""
        for other in self.runs:
            if other.start_ms is None or other.stop_ms is None or not time_ms < other.stop_ms:
                continue
            one_seed = not run.seeds or not other.seeds or bool(run.seeds.keys() & other.seeds.keys())
            if abs(time_ms - other.start_ms) <= SAME_START_MS and one_seed:
                return other
        return None

    def _same_init(self, run: Run) -> Run | None:
        """Find the run before in whose time this one was initialised: a rank that logs no more than that."""
        if run.stop_ms is not None:
            return None
        for other in self.runs:
            if other.stop_ms is not None and other.first_ms - SAME_START_MS <= run.first_ms < other.stop_ms:
                return other
        return None
