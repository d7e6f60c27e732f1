"""Commands over several runs and for people's decisions: compare, history, approve, prune."""

from __future__ import annotations

import argparse
import json
import re
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path

from plumbline import stages
from plumbline.amounts import plural
from plumbline.clusters.profile import load_profile
from plumbline.commands.inspecting import parse_age
from plumbline.commands.run_names import RUN_HELP, named_run
from plumbline.configuration import document_names
from plumbline.errors import ConfigError, ExitCode, OutputError, near_match
from plumbline.model import Origin
from plumbline.suites.suite import suite_folders
from plumbline.tracking import prune_record
from plumbline.tracking.approvals import is_approved
from plumbline.tracking.judged_run import VERDICT
from plumbline.tracking.prune_record import Pruning
from plumbline.tracking.pruning import prune
from plumbline.tracking.run_directory import RunDirectory, all_runs, run_time
from plumbline.validation.seals import seal_problems

Commands = argparse._SubParsersAction  # the type has no public name


def add_commands(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add compare, history, approve and prune."""
    compare = commands.add_parser(
        "compare",
        help="show what changed between two runs",
        description="Show what changed from run A to run B.",
        epilog="example: plumbline compare RUN_ID latest",
    )
    compare.add_argument("a", metavar="RUN_A", help=RUN_HELP)
    compare.add_argument("b", metavar="RUN_B", help="likewise")
    compare.add_argument("--json", action="store_true", help="print JSON")
    compare.set_defaults(run=_compare)

    history = commands.add_parser(
        "history",
        help="show one indicator over the finished runs of a cluster",
        description="Show one indicator over the finished runs of a cluster, oldest first.",
        epilog="example: plumbline history bus_bandwidth_headline --cluster local",
    )
    history.add_argument("indicator", help="its name, or benchmark/name; `plumbline list indicators` shows them")
    history.add_argument("--cluster", default="local", help="cluster profile: a name or a YAML file (default: local)")
    history.add_argument("--suite", default="nightly", help="a suite that runs are of (default: nightly)")
    history.add_argument("--newest", type=int, default=30, help="how many runs (default: 30)")
    history.add_argument("--json", action="store_true", help="print JSON")
    history.set_defaults(run=_history)

    approve = commands.add_parser(
        "approve",
        help="make a run part of the cluster's baseline (a person's decision, recorded)",
        description="Record in the run's decisions.jsonl that its values are this cluster's normal. Later runs are "
        "compared with the median of approved runs. It takes a run whose gate is open, whatever warnings it has, or "
        "closed by nothing but a missing baseline.",
        epilog='example: plumbline approve latest --by "your name" --comment "quiet machine"',
    )
    approve.add_argument("run_dir", metavar="RUN_DIR", help=RUN_HELP)
    approve.add_argument("--by", required=True, help="who decides")
    approve.add_argument("--comment", default="", help="why")
    approve.add_argument("--revoke", action="store_true", help="take an approval back")
    approve.add_argument("--json", action="store_true", help="print the recorded decision as JSON")
    approve.set_defaults(run=_approve)

    prune = commands.add_parser(
        "prune",
        help="delete raw output of old runs; measurements, verdicts and the manifest stay",
        description="Delete evidence/raw of runs older than the age, for good: such a run can't be judged again or "
        "approved, and its verdict stands. pruned.json in the run's directory keeps when and how much, so that "
        "`verify` can tell it from a loss. Runs with a decision are kept whole, and so are those that are unfinished, "
        "not judged, or not as sealed.",
    )
    prune.add_argument("--cluster", default="local", help="cluster profile: a name or a YAML file (default: local)")
    prune.add_argument("--raw-older-than", required=True, metavar="AGE", help="such as 90d")
    prune.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    prune.set_defaults(run=_prune)


def _compare(chosen: argparse.Namespace) -> int:
    from plumbline.tracking.comparison import compare  # noqa: PLC0415
    from plumbline.tracking.comparison_text import comparison_lines  # noqa: PLC0415

    runs = named_run(chosen.a), named_run(chosen.b)
    for run in runs:
        if problem := next(iter(run.problems()), None):
            what = f"{problem['path']} is {problem['problem']} since the seal: see plumbline verify"
            print(f"warning: {run.run_id}: {what}", file=sys.stderr)
    found = compare(*runs)
    text = json.dumps(found.to_plain(), indent=1, ensure_ascii=False) if chosen.json else None
    print("\n".join(comparison_lines(found)) if text is None else text)
    return ExitCode.OK


def _history(chosen: argparse.Namespace) -> int:
    from plumbline.indicators import indicators  # noqa: PLC0415
    from plumbline.tracking.history import load_history, series  # noqa: PLC0415

    benchmark, slash, name = chosen.indicator.rpartition("/")
    known = {name for _, name in indicators()}
    full = {f"{bench}/{name}" for bench, name in indicators()}
    if chosen.indicator not in known | full:
        raise ConfigError(f"no indicator {chosen.indicator!r}{near_match(chosen.indicator, full if slash else known)}")
    if chosen.newest < 1:
        raise ConfigError(f"--newest {chosen.newest}: one run at least")
    profile = load_profile(chosen.cluster)
    results = stages.results_directory(profile)
    _check_suite(results / profile.name, chosen.suite)
    loaded = load_history(
        results, profile.name, origin=profile.origin, suite=chosen.suite, newest=chosen.newest, indicators={name}
    )
    found = {key: line for key, line in series(loaded, by_place=False).items() if benchmark in ("", key.benchmark)}
    if chosen.json:
        print(json.dumps([
            {"benchmark": key.benchmark, "indicator": key.indicator, "node_count": key.node_count, "unit": line.unit,
             "params": json.loads(key.params), "points": [{"run_id": p.run_id, "value": p.value} for p in line.points]}
            for key, line in found.items()
        ], indent=1))  # fmt: skip
        return ExitCode.OK
    said = {run.run_id: _said(run) for run in loaded.runs}
    for key in sorted(found, key=lambda key: (key.benchmark, key.indicator, key.node_count, _natural(key.params))):
        line = found[key]
        stamp = " SIMULATED" if profile.origin is Origin.SIMULATED else ""
        print(f"{key.benchmark}/{key.indicator} at {plural(key.node_count, 'node')} [{line.unit}] {key.params}{stamp}")
        for point in line.points:
            print(f"    {point.run_id}  {point.value:<12.6g}  {said[point.run_id]}")
    for skipped in loaded.skipped:
        print(f"left out: {skipped.run_id}: {skipped.reason}")
    if not found:
        print(f"no finished run of {profile.name}/{chosen.suite} has {chosen.indicator}")
    return ExitCode.OK


def _said(run: RunDirectory) -> str:
    """Give a run's verdict and gate, and whether it is part of the baseline."""
    verdict = run.read_derived(VERDICT)
    try:
        part = ", part of the baseline" if is_approved(run) else ""
    except OutputError:
        part = ", its decisions are damaged"
    return f"{verdict['verdict']}, gate {verdict['gate']}{part}"


def _natural(text: str) -> list[tuple[int, str]]:
    """Sort numbers in a text by what they count: 512 before 4096."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", text)]


def _check_suite(runs: Path, suite: str) -> None:
    """Refuse a suite that neither is there nor has runs, of when it was there. Raises ConfigError."""
    known = set(document_names(suite_folders()))
    known |= {path.name for path in runs.glob("*") if path.is_dir()}
    if suite not in known:
        raise ConfigError(f"no suite {suite!r}{near_match(suite, known)}")


def _approve(chosen: argparse.Namespace) -> int:
    run = named_run(chosen.run_dir)
    kind = "revoke_baseline" if chosen.revoke else "approve_baseline"
    before = len(run.decisions())
    line = stages.approve(run.path, by=chosen.by, comment=chosen.comment, kind=kind)
    if chosen.json:
        print(json.dumps(line, ensure_ascii=False))
        return ExitCode.OK
    if len(run.decisions()) == before:
        print(f"{run.run_id} is already approved by {line['by']} at {line['decided_at']}: nothing was recorded")
        return ExitCode.OK
    part, with_it = ("is no part any more", "without it") if chosen.revoke else ("is part", "with it as well")
    verdict = run.read_derived(VERDICT)
    cluster = f"{verdict['cluster']}{' (SIMULATED)' if verdict['origin'] == Origin.SIMULATED else ''}"
    print(
        f"{run.run_id} {part} of the baseline of {cluster}, as {line['by']} decided; runs that begin from now on are "
        f"compared {with_it}"
    )
    return ExitCode.OK


def _prune(chosen: argparse.Namespace) -> int:
    least = parse_age(chosen.raw_older_than)
    profile = load_profile(chosen.cluster)
    gone: list[Pruning] = []
    for run in all_runs(stages.results_directory(profile), profile.name):
        if datetime.now(UTC) - run_time(run.run_id) < least:
            continue
        with nullcontext() if chosen.dry_run else run.derived_locked():
            if not chosen.dry_run and prune_record.sweep(run.path):
                print(f"{run.run_id}: what an interrupted prune had left is deleted")
            if not (run.evidence / "raw").is_dir():
                continue
            try:
                _refuse_decided(run)
                gone.append(prune(run, dry_run=chosen.dry_run))
            except OutputError as error:
                print(f"{run.run_id}: kept, {error}")
                continue
        print(f"{run.run_id}: {gone[-1].size_bytes / 1e6:.1f} MB{' would go' if chosen.dry_run else ''}")
    freed = sum(one.size_bytes for one in gone)
    print(f"{plural(len(gone), 'run')}, {freed / 1e6:.1f} MB{' would be freed' if chosen.dry_run else ' freed'}")
    return ExitCode.OK


def _refuse_decided(run: RunDirectory) -> None:
    """Raise OutputError for a run that somebody decided on, or whose seal is not its first."""
    if run.decisions():
        raise OutputError("a decision rests on it")
    if problem := next(seal_problems(run), None):
        raise OutputError(problem)
