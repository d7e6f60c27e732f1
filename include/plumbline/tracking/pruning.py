"""Raw output of old runs is let go: of which runs it may be, for there is no way back and no judging again."""

from __future__ import annotations

from datetime import UTC, datetime

from plumbline import __version__
from plumbline.errors import OutputError
from plumbline.tracking import prune_record
from plumbline.tracking.derived_seal import contradiction
from plumbline.tracking.judged_run import LAUNCHES, MEASUREMENTS, VERDICT, VERDICTS, why_untrusted
from plumbline.tracking.prune_record import Pruning
from plumbline.tracking.run_directory import RunDirectory, misplaced


def prune(run: RunDirectory, *, dry_run: bool = False) -> Pruning:
    """Delete evidence/raw, unless it is a dry run, and give the record that stays; derived/ must be locked.

    Only of a run that is finished, judged, and in every file as sealed: what is kept must be worth keeping alone.
    Raises OutputError, with the reason alone, for any other run, which keeps everything; OSError.
    """
    if reason := _why_kept(run):
        raise OutputError(reason)
    files, size_bytes = run.sealed_raw()
    record = Pruning(
        pruned_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        plumbline=__version__,
        files=files,
        size_bytes=size_bytes,
        manifest_sha256=run.manifest_sha256(),
    )
    if not dry_run:
        prune_record.remove_raw(run.path, record)
    return record


def _why_kept(run: RunDirectory) -> str | None:
    if not run.sealed:
        return "it is unfinished"
    if reason := why_untrusted(run, MEASUREMENTS, VERDICTS, VERDICT, LAUNCHES):
        return reason
    verdict = run.read_derived(VERDICT)
    if reason := misplaced(run, verdict) or contradiction(verdict):
        return reason
    problem = next(run.problems(), None)
    return f"{problem['path']} is {problem['problem']}" if problem else None
