"""The demonstration: a history of simulated nights with known faults, through the whole pipeline."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbline import stages
from plumbline.commands.beside import Beside
from plumbline.errors import ConfigError, ExitCode
from plumbline.simulation.faults import Scenario, active_faults, load_scenario
from plumbline.simulation.planting import check_faults
from plumbline.tracking.pruning import prune
from plumbline.tracking.run_directory import RunDirectory

if TYPE_CHECKING:
    from plumbline.reports.nights import NightLine

Commands = argparse._SubParsersAction  # the type has no public name
STORY = Path(__file__).parents[1] / "simulation" / "demo.yaml"
FIRST, HOUR = date(2026, 9, 1), clock(2, tzinfo=UTC)
WEEK = 7


def add_commands(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add demo."""
    parser = commands.add_parser(
        "demo",
        help="a history of simulated nights with known faults: reports and MLflow runs to look at",
        description="Run a nightly suite on a simulated cluster, night after night, while faults come and go at known "
        "dates; write every night's report and MLflow run, and one page that sets the verdicts beside the truth. "
        "Everything is SIMULATED: it shows the tool, not a cluster. The first week is approved as the baseline. Raw "
        "output is kept for the nights whose gate closed and for the last one.",
        epilog="example: plumbline demo --nights 20 --out demo",
    )
    parser.add_argument("--nights", type=int, default=60, help="how many nights (default: 60)")
    parser.add_argument("--out", type=Path, default=Path("demo"), help="a folder that is not there yet (default: demo)")
    parser.add_argument("--cluster", default="simulated-128", help="a simulated profile (default: simulated-128)")
    parser.add_argument("--suite", default="nightly", help="suite: a name or a YAML file (default: nightly)")
    parser.add_argument("--faults", type=Path, default=STORY, help="scenario (default: the story of 60 nights)")
    parser.add_argument("--first", type=_day, default=FIRST, help=f"first night (default: {FIRST})")
    parser.set_defaults(run=_demo)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not a date: {text!r} ({error}); write it as {FIRST}") from None


def _demo(chosen: argparse.Namespace) -> int:
    from plumbline.reports.nights import write_nights  # noqa: PLC0415 - with jinja

    out = chosen.out.resolve()
    if chosen.nights < 1:
        raise ConfigError(f"--nights {chosen.nights}: one at least")
    if out.exists():
        raise ConfigError(f"--out {chosen.out}: is there already; move it away or name another folder")
    profile, _ = stages.load(chosen.cluster, chosen.suite, {})
    if profile.launcher != "simulated":
        raise ConfigError(f"--cluster {chosen.cluster}: is a real cluster; the demonstration is of a simulated one")
    scenario = load_scenario(str(chosen.faults), 0)
    check_faults(scenario, profile, str(chosen.faults))
    try:
        out.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(f"--out {chosen.out}: cannot make it: {error.strerror or error}") from None
    os.environ["PLUMBLINE_RESULTS"] = str(out / "results")
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{out / 'mlflow.db'}"
    started = time.monotonic()
    lines = []
    print(f"SIMULATED: {chosen.nights} nights of {profile.name}, suite {chosen.suite}, from {chosen.first}; "
          f"{_begun(chosen, scenario)}", flush=True)  # fmt: skip
    with Beside() as beside:
        for line in _nights(chosen, scenario, beside):
            lines.append(line)
            write_nights(out / "nights.html", lines, profile.name, chosen.suite)
            print(f"{time.monotonic() - started:6.0f} s  {line.text()}", flush=True)
    print(f"\npage:    {out / 'nights.html'}")
    print(f"reports: {out / 'results' / 'latest' / 'derived' / 'report.html'} is the last")
    print(f"MLflow:  {Path(sys.executable).parent}/mlflow server --backend-store-uri sqlite:///{out / 'mlflow.db'}")
    return ExitCode.OK


def _begun(chosen: argparse.Namespace, scenario: Scenario) -> str:
    """Say how many faults begin in the nights that are shown, and where none does, when the first would."""
    last = chosen.first + timedelta(days=chosen.nights - 1)
    starts = [fault.start or chosen.first for fault in scenario.faults]
    begun = sum(start <= last for start in starts)
    text = f"planted faults that begin in them: {begun} of {len(starts)}"
    later = min(starts, default=last)
    return text if begun or not starts else f"{text}, the first would in night {(later - chosen.first).days + 1}"


def _nights(chosen: argparse.Namespace, scenario: Scenario, beside: Beside) -> Iterator[NightLine]:
    """Run night after night; report and MLflow of one night are written while the next one is simulated and judged."""
    from plumbline.reports.nights import NightLine  # noqa: PLC0415 - with jinja

    writing: Future[None] | None = None
    last: RunDirectory | None = None
    for number in range(chosen.nights):
        night = chosen.first + timedelta(days=number)
        run = stages.prepare(
            chosen.cluster, chosen.suite, {"faults": str(chosen.faults.resolve())}, trigger="demo",
            holder_pid=os.getpid(), now=datetime.combine(night, HOUR),
        )  # fmt: skip
        if last is not None:  # not before this night has read the history that the other process goes on to write
            writing = beside.start(_write, last.path)
        for batch_id in stages.batch_ids(run):
            stages.launch_batch(run.path, batch_id, _silent)
        stages.seal(run.path)
        verdict = stages.judge(run.path)
        if number < WEEK and verdict["gate"] == "open":
            stages.approve(run.path, by="demo", comment="SIMULATED: a night of the first, healthy week")
        _finish(beside, writing, last)
        last = run
        yield NightLine.of(night, verdict, active_faults(scenario.faults, night, HOUR.hour), run)
    if last is not None:
        _finish(beside, beside.start(_write, last.path), None)


def _finish(beside: Beside, writing: Future[None] | None, run: RunDirectory | None) -> None:
    """Wait for a night's report and MLflow run; let its raw output go when nothing closed its gate."""
    if writing is not None:
        beside.result(writing, "demo")
    if run is not None and run.read_derived("verdict.json")["gate"] == "open":
        with run.derived_locked():
            prune(run)


def _write(run_dir: Path) -> None:
    stages.report(run_dir)
    stages.track(run_dir)


def _silent(text: Any) -> None:
    del text
