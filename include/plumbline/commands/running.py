"""Commands that measure: plan, run, and the stages one by one (judge, report, track)."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from types import FrameType
from typing import Any

from plumbline import stages
from plumbline.amounts import node_list, plural
from plumbline.commands.beside import Beside
from plumbline.commands.run_names import RUN_HELP, named_run
from plumbline.configuration import project_root
from plumbline.errors import ConfigError, ExitCode, PlumblineError, StageLostError, TrackingError
from plumbline.reports.counts import indicators_without_baseline
from plumbline.suites.suite import SETTINGS, parse_settings
from plumbline.tracking.run_directory import RunDirectory

Commands = argparse._SubParsersAction  # the type has no public name


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
        parser.add_argument(
            "--cluster", default="local", help="cluster profile: a name or a YAML file (default: local)"
        )
        parser.add_argument("--suite", default="nightly", help="suite: a name or a YAML file (default: nightly)")
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
    from datetime import UTC, datetime  # noqa: PLC0415

    from plumbline.execution.launcher import launcher  # noqa: PLC0415
    from plumbline.execution.plan import make_plan, plan_data  # noqa: PLC0415

    profile, suite = stages.load(chosen.cluster, chosen.suite, parse_settings(chosen.set))
    inventory = launcher(profile).inventory(profile, datetime.now(UTC).date())
    plan = make_plan(profile, suite, inventory, run_id="plan", seed=0)
    if chosen.json:
        print(json.dumps(plan_data(plan), indent=1))
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
    for gap in plan.gaps:
        print(f"  not measured: {gap.place}: {gap.reason} ({gap.code.value})")
    return ExitCode.OK


def _run(chosen: argparse.Namespace) -> int:
    progress = _Progress(sys.stderr if chosen.json else sys.stdout)
    signal.signal(signal.SIGTERM, _stop)
    if chosen.resume:
        if chosen.set:
            raise ConfigError(f"--set {chosen.set[0]}: a resumed run keeps the settings that it was planned with")
        run = named_run(chosen.resume)
        stages.take(run.profile(), run.path.parents[2], run.run_id, "cli resumed", os.getpid())
    else:
        run = stages.prepare(
            chosen.cluster, chosen.suite, parse_settings(chosen.set), trigger="cli", holder_pid=os.getpid()
        )
    progress(f"run {run.run_id}: {run.path}")
    failure = _launch_all(run, progress)
    if not run.sealed:
        stages.seal(run.path)
    with Beside(tracking=not chosen.no_track) as beside:
        progress("judging")
        verdict = stages.judge(run.path)
        beside.call(stages.report, run.path)
        if not chosen.no_track:
            failure = _track_run(beside, run, progress) or failure
            verdict = run.read_derived("verdict.json")
    if chosen.json:
        print(json.dumps(verdict, indent=1, ensure_ascii=False))
    else:
        print_verdict(run, verdict)
    if verdict["gate"] != "open":
        return ExitCode.CLOSED
    return ExitCode.INFRASTRUCTURE if failure else ExitCode.OK


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


def _track_run(beside: Beside, run: RunDirectory, progress: _Progress) -> PlumblineError | None:
    progress("logging to MLflow")
    try:
        beside.call(stages.track, run.path)
    except (TrackingError, StageLostError) as error:
        print(f"not logged to MLflow: {error}; `plumbline track {run.run_id}` repeats it", file=sys.stderr)
        return error
    return None


class _Progress:
    """Prints lines with the seconds since the start."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._start = stream, time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"{time.monotonic() - self._start:7.1f} s  {text}", file=self._stream, flush=True)


def _stop(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


def _judge(chosen: argparse.Namespace) -> int:
    run = named_run(chosen.run_dir)
    verdict = stages.judge(run.path)
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
        raise ConfigError(f"{run.run_id} is not judged yet: plumbline judge {run.run_id}")
    mlflow_run_id = stages.track(run.path)
    print(json.dumps({"mlflow_run_id": mlflow_run_id}) if chosen.json else mlflow_run_id)
    return ExitCode.OK


def print_verdict(run: RunDirectory, verdict: dict[str, Any], most: int = 20) -> None:
    """Print the verdict table: what closes the gate first, then warnings, then where to read more."""
    stamps = [
        text
        for text, shown in (
            ("SIMULATED", verdict["origin"] == "simulated"),
            ("CPU only, no GPU was measured", verdict["device"] == "cpu"),
        )
        if shown
    ]
    name = f"{verdict['cluster']} / {verdict['suite']} / {verdict['run_id']}"
    print(f"\n{verdict['verdict']}: the gate is {verdict['gate']}   {name}   {' · '.join(stamps)}")
    coverage = verdict["coverage"]
    missing = f"; missing: {node_list(map(str, coverage['missing']), 8)}" if coverage["missing"] else ""
    print(
        f"measured: {coverage['measured']} of {coverage['expected']} nodes, {coverage['rows_measured']:,} of "
        f"{coverage['rows_expected']:,} values{missing}\n"
    )
    new = indicators_without_baseline(verdict["reasons"])
    rows = [row for row in verdict["reasons"] if row["code"] != "no_baseline"]
    for row in rows[:most]:
        print(f"  {_reason_line(row)}")
    if len(rows) > most:
        print(f"  … and {len(rows) - most} more in the report")
    if new:
        print(f"  WARN     no_baseline          {_have(new)} no reference here and no approved history yet;")
        if stages.approvable(verdict):
            print(f"{'':32}when they look right: plumbline approve {verdict['run_id']} --by NAME")
    report = run.derived / "report.html"
    root = project_root()
    shown = report.relative_to(root) if report.is_relative_to(root) else report
    print(f"\nreport:  {shown}\nMLflow:  {verdict.get('mlflow_run_id') or 'not logged'}")


def _have(count: int) -> str:
    return f"{count} indicator{'s have' if count != 1 else ' has'}"


def _reason_line(row: dict[str, Any]) -> str:
    number = "" if row.get("actual") is None else f"  {row['actual']:.4g} {row['unit'] or ''}"
    expected = f" (expected {row['expected']})" if row.get("expected") else ""
    told = row.get("indicator") and str(row["indicator"]) in str(row["message"])
    indicator = f"{row['indicator']}: " if row.get("indicator") and not told else ""
    return f"{row['verdict']:8} {row['code']:20} {row['place']}: {indicator}{row['message']}{number}{expected}"
