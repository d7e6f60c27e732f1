"""Commands that measure: plan, run, and the stages one by one (judge, report, track)."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

from plumbline import stages
from plumbline.amounts import plural
from plumbline.commands.beside import Beside
from plumbline.commands.run_names import RUN_HELP, named_run
from plumbline.configuration import project_root
from plumbline.errors import ConfigError, ExitCode, OutputError, PlumblineError, StageLostError, TrackingError
from plumbline.reports.terminal import terminal_width, verdict_lines
from plumbline.suites.suite import SETTINGS, parse_settings
from plumbline.tracking.derived_seal import refuse_unfinished, remedy
from plumbline.tracking.run_directory import RunDirectory

Commands = argparse._SubParsersAction  # the type has no public name
_CLUSTER, _SUITE = "local", "nightly"


def add_commands(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add plan, run, judge, report and track."""
    settings = "; ".join(f"{key}: {meaning}" for key, meaning in SETTINGS.items())
    for name, text, handler in (
        ("run", "run a suite on a cluster and judge it (the whole pipeline, without Airflow)", _run),
        ("plan", "show what a run would launch, and what it would not measure", _plan),
    ):
        parser = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}. Settings: {settings}; <benchmark>.<parameter>=value.",
            epilog=f"example: plumbline {name} --cluster local --suite nightly --set nccl_tests.max_bytes=1M",
        )
        parser.add_argument("--cluster", help=f"cluster profile: a name or a YAML file (default: {_CLUSTER})")
        parser.add_argument("--suite", help=f"suite: a name or a YAML file (default: {_SUITE})")
        parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change one setting")
        parser.add_argument("--json", action="store_true", help="print JSON on stdout, progress on stderr")
        parser.set_defaults(run=handler)
        if name == "run":
            parser.add_argument("--resume", metavar="RUN", help="go on with an unfinished run instead of a new one")
            parser.add_argument(
                "--no-track", action="store_true", help="don't log to MLflow; `plumbline track` can later"
            )
    for name, text, handler in (
        ("judge", "judge a run again from its evidence; the seal stays as it is", _judge),
        ("report", "write a run's report again", _report),
        ("track", "log a run to MLflow, once however often it is called", _track),
    ):
        parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        parser.add_argument("run_dir", metavar="RUN_DIR", help=RUN_HELP)
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(run=handler)


def _plan(chosen: argparse.Namespace) -> int:
    from plumbline.execution.launcher import launcher  # noqa: PLC0415
    from plumbline.execution.plan import make_plan, plan_data, uncovered  # noqa: PLC0415

    profile, suite = stages.load(chosen.cluster or _CLUSTER, chosen.suite or _SUITE, parse_settings(chosen.set))
    now = datetime.now(UTC)
    inventory = launcher(profile).inventory(profile, now.date())
    plan = make_plan(profile, suite, inventory, run_id="plan", seed=0)
    bare = uncovered(plan, profile)
    if chosen.json:
        print(json.dumps({**plan_data(plan), "uncovered": bare}, indent=1))
        return ExitCode.OK
    print(
        f"{profile.name} ({profile.title}), suite {suite.name}: {plural(len(plan.launches), 'launch', 'launches')} on "
        f"{plural(len(inventory), 'node')}"
    )
    for batch in plan.batches:
        first = plan.batch(batch.batch_id)[0]
        print(
            f"  {batch.batch_id:24} {plural(len(batch.launch_ids), 'launch', 'launches'):>14} of "
            f"{plural(batch.node_count, 'node')}, at most {first.timeout_s:.0f} s each"
        )
    if found := stages.planted_in(suite, now):
        print(f"  {found['planted']['words']}")
    for gap in plan.gaps:
        print(f"  not measured: {gap.place}: {gap.reason} ({gap.code.value})")
    for why in dict.fromkeys(bare.values()):
        names = [name for name, reason in bare.items() if reason == why]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        print(f"  not measured at all: {', '.join(names[:8])}{more}: {why}")
    return ExitCode.OK


def _run(chosen: argparse.Namespace) -> int:
    progress = _Progress(sys.stderr if chosen.json else sys.stdout)
    signal.signal(signal.SIGTERM, _stop)
    if chosen.resume:
        run = _resumed(chosen)
        if words := _stale(run):
            print(words, file=sys.stderr)
    else:
        run = stages.prepare(
            chosen.cluster or _CLUSTER, chosen.suite or _SUITE, parse_settings(chosen.set), trigger="cli",
            holder_pid=os.getpid(),
        )  # fmt: skip
    progress(f"run {run.run_id}: {run.path}")
    if planted := run.read_evidence("environment").get("planted"):
        progress(planted["words"])
    with _way_on_told(run, progress):
        failure = _launch_all(run, progress)
        stages.seal(run.path)  # of a sealed run: what a process that was killed in it had still to do
    with _way_on_told(run, progress), Beside(tracking=not chosen.no_track) as beside:
        progress("judging")
        with _steps_told(None if chosen.json else progress.on(sys.stderr)):
            verdict = stages.judge(run.path)
        progress("writing the report")
        failure = _beside(beside, stages.report, run, "not reported") or failure
        if not chosen.no_track:
            progress("logging to MLflow")
            failure = _beside(beside, stages.track, run, "not logged to MLflow") or failure
            verdict = run.read_derived("verdict.json")
    if chosen.json:
        print(json.dumps(verdict, indent=1, ensure_ascii=False))
    else:
        print_verdict(run, verdict)
    if verdict["gate"] != "open":
        return ExitCode.CLOSED
    return ExitCode.INFRASTRUCTURE if failure else ExitCode.OK


def _resumed(chosen: argparse.Namespace) -> RunDirectory:
    """Take the cluster for a run that isn't finished. Raises ConfigError for another, and for what would change it."""
    if chosen.set:
        raise ConfigError(f"--set {chosen.set[0]}: a resumed run keeps the settings that it was planned with")
    run = named_run(chosen.resume)
    profile, suite = run.profile(), run.suite()
    for option, given, own in (("--cluster", chosen.cluster, profile.name), ("--suite", chosen.suite, suite.name)):
        if given not in (None, own):
            raise ConfigError(f"{option} {given}: {run.run_id} is of {own}, and a resumed run stays what it is")
    run.refuse_pruned()
    if not run.sealed:
        stages.take(profile, run.path.parents[2], run.run_id, "cli resumed", os.getpid())
    elif (run.derived / "verdict.json").is_file():
        others = sorted(path.parent.parent.name for path in run.path.parents[2].glob("*/*/*/evidence/plan.json")
                        if not RunDirectory(path.parent.parent).sealed)  # fmt: skip
        more = f"; unfinished: {', '.join(others)}" if others else ", and no other is unfinished"
        raise ConfigError(f"{run.run_id} is finished: there is nothing to resume{more}")
    return run


def _stale(run: RunDirectory) -> str:
    """Say of an unfinished run that its launches are too old to be of one run with those that are left; '' if not."""
    ended = []
    for path in () if run.sealed else (run.evidence / "records").glob("*.json"):
        with suppress(OSError, ValueError, KeyError, TypeError):  # the judge tells of a record that can't be read
            ended.append(datetime.fromisoformat(json.loads(path.read_text(encoding="utf-8"))["ended_at"]))
    if not ended or (age := datetime.now(UTC) - max(ended)) <= stages.lease(run.profile()):
        return ""
    return (
        f"warning: the launches of {run.run_id} ended {age / timedelta(hours=1):.1f} h ago, longer than a run may "
        "take: they will be judged old output; a new run measures everything"
    )


@contextmanager
def _way_on_told(run: RunDirectory, progress: _Progress) -> Iterator[None]:
    """Say, when something ends the block, how the run goes on; a full disk has no name of its own."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, OSError) as error:
        if isinstance(error, OSError) and error.filename is None and not isinstance(error, BrokenPipeError):
            error.filename = str(run.path)
        command = f"judge {run.run_id}" if run.sealed else f"run --resume {run.run_id}"
        with suppress(OSError, ValueError):
            progress.on(sys.stderr)(f"stopped; `plumbline {command}` goes on with it")
        raise


def _launch_all(run: RunDirectory, progress: _Progress) -> PlumblineError | None:
    failure: PlumblineError | None = None
    batches = [] if run.sealed else stages.batch_ids(run)
    for number, batch_id in enumerate(batches, start=1):
        progress(f"[{number}/{len(batches)}] {batch_id}")
        try:
            stages.launch_batch(run.path, batch_id, progress)
        except PlumblineError as error:
            progress(f"{batch_id}: {error}")
            failure = error
    return failure


def _beside(beside: Beside, stage: Callable[[Path], object], run: RunDirectory, lost: str) -> PlumblineError | None:
    """Run a stage after the judge, whose verdict stands whatever becomes of it: give the error that it ended with."""
    try:
        beside.call(stage, run.path)
    except (TrackingError, StageLostError) as error:
        print(f"{lost}: {error}; `plumbline {stage.__name__} {run.run_id}` repeats it", file=sys.stderr)
        return error
    return None


class _Progress:
    """Prints lines with the seconds since the start."""

    def __init__(self, stream: Any, start: float | None = None) -> None:
        self._stream, self._start = stream, time.monotonic() if start is None else start

    def on(self, stream: Any) -> _Progress:
        """Give the same clock on another stream."""
        return _Progress(stream, self._start)

    def __call__(self, text: str) -> None:
        print(f"{time.monotonic() - self._start:7.1f} s  {text}", file=self._stream, flush=True)


class _Told(logging.Handler):
    def __init__(self, progress: _Progress) -> None:
        super().__init__()
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        self._progress(record.getMessage())


@contextmanager
def _steps_told(progress: _Progress | None) -> Iterator[None]:
    """Print the steps that the judge logs, one line each; None is silent."""
    logger = logging.getLogger("plumbline.validation.judging")
    if progress is None:
        yield
        return
    handler, level, propagates = _Told(progress), logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates


def _stop(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


def _judge(chosen: argparse.Namespace) -> int:
    run = named_run(chosen.run_dir)
    progress = None if chosen.json else _Progress(sys.stderr)
    with _steps_told(progress):
        verdict = stages.judge(run.path)
    if progress is not None:
        progress("writing the report")
    stages.report(run.path)
    if chosen.json:
        print(json.dumps(verdict, indent=1, ensure_ascii=False))
    else:
        print_verdict(run, verdict)
    return ExitCode.OK if verdict["gate"] == "open" else ExitCode.CLOSED


def _report(chosen: argparse.Namespace) -> int:
    run = named_run(chosen.run_dir)
    path = stages.report(run.path)
    print(json.dumps({"report": str(path)}) if chosen.json else path)
    return ExitCode.OK


def _track(chosen: argparse.Namespace) -> int:
    run = named_run(chosen.run_dir)
    if not (run.derived / "verdict.json").is_file():
        refuse_unfinished(run)
        raise ConfigError(f"{run.run_id} is not judged yet: {remedy(run)}")
    mlflow_run_id = stages.track(run.path)
    print(json.dumps({"mlflow_run_id": mlflow_run_id}) if chosen.json else mlflow_run_id)
    return ExitCode.OK


def print_verdict(run: RunDirectory, verdict: dict[str, Any]) -> None:
    """Print the verdict table: what closes the gate first, then warnings, then where to read more."""
    report = run.derived / "report.html"
    root = project_root()
    shown = report.relative_to(root) if report.is_relative_to(root) else report
    try:
        found = run.read_derived("findings.json")
    except OutputError:  # no report was written
        found = []
    try:
        standing = stages.standing_approval(run)
    except OutputError:  # `plumbline approve` says what is damaged
        standing = None
    may = stages.approvable(verdict) and standing is None
    for line in verdict_lines(verdict, found, shown, approvable=may, width=terminal_width()):
        print(line)
    if planted := run.read_evidence("environment").get("planted"):
        print(f"planted: {planted['words']}")
    if standing is not None:
        print(f"approved by {standing.get('by')} at {standing.get('decided_at')}: part of the baseline")
