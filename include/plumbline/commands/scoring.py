"""The command that scores detectors on simulated clusters: scoreboard."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from plumbline.configuration import project_root
from plumbline.errors import ConfigError, ExitCode

Commands = argparse._SubParsersAction  # the type has no public name

QUICK_SEEDS, QUICK_NIGHTS = 3, 25


def add_commands(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add scoreboard."""
    parser = commands.add_parser(
        "scoreboard",
        help="score the detectors on simulated clusters with planted faults",
        description="Play out clusters with and without faults for every seed of a file and write how well each "
        "detector does. Everything is SIMULATED: it tells about detectors, not about clusters.",
        epilog="a claim needs 300 seeds that nobody tuned on. Example: plumbline scoreboard --seeds FILE --out DIR",
    )
    parser.add_argument("--seeds", required=True, metavar="FILE", help="whole numbers: one a line, or a YAML list")
    parser.add_argument("--out", required=True, metavar="DIR", help="where tables and page are written")
    parser.add_argument("--cluster", help="a simulated cluster: a name or a YAML file (default: 32 nodes with 8 H100)")
    parser.add_argument("--suite", default="nightly", help="suite: a name or a YAML file (default: nightly)")
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK_SEEDS} seeds: too small for any claim")
    parser.add_argument("--json", action="store_true", help="print summary.json")
    parser.set_defaults(run=_scoreboard)


def _scoreboard(chosen: argparse.Namespace) -> int:
    from plumbline.clusters.profile import load_profile  # noqa: PLC0415
    from plumbline.scoreboard.campaign import YEAR_NIGHTS, Setting, play_all  # noqa: PLC0415 - imports every benchmark
    from plumbline.scoreboard.files import write_all  # noqa: PLC0415
    from plumbline.scoreboard.seeds import CLUSTER, read_seeds  # noqa: PLC0415
    from plumbline.suites.suite import load_suite  # noqa: PLC0415

    seeds = read_seeds(Path(chosen.seeds))
    profile = load_profile(chosen.cluster or str(CLUSTER))
    if profile.launcher != "simulated":
        raise ConfigError(f"--cluster {profile.name}: faults are planted in simulated clusters only")
    nights = QUICK_NIGHTS if chosen.quick else YEAR_NIGHTS
    setting = Setting.of(profile, load_suite(chosen.suite), year_nights=nights)
    numbers = seeds.numbers[:QUICK_SEEDS] if chosen.quick else seeds.numbers
    if chosen.quick:
        print(f"QUICK: {len(numbers)} of {len(seeds.numbers)} seeds, far too small for any claim", file=sys.stderr)
    begin = time.process_time()
    played = play_all(setting, numbers, lambda text: print(text, file=sys.stderr, flush=True))
    command = " ".join(
        ["plumbline scoreboard", f"--seeds {seeds.name}", *([f"--cluster {chosen.cluster}"] if chosen.cluster else []),
         f"--suite {chosen.suite}", *(["--quick"] if chosen.quick else [])]
    )  # fmt: skip
    try:
        summary = write_all(
            Path(chosen.out), setting, seeds, played, quick=chosen.quick, command=command, commit=_commit()
        )  # fmt: skip
    except OSError as error:
        raise ConfigError(f"--out {chosen.out}: cannot write: {error.strerror or error}") from None
    print(f"{time.process_time() - begin:.0f} CPU seconds; {Path(chosen.out) / 'scoreboard.md'}", file=sys.stderr)
    if chosen.json:
        print(json.dumps(summary, indent=1, ensure_ascii=False))
    else:
        _print_summary(summary)
    return ExitCode.INFRASTRUCTURE if summary["failed"] else ExitCode.OK


def _print_summary(summary: dict[str, object]) -> None:
    print("SIMULATED: this tells about detectors, not about any cluster")
    print(
        f"{summary['scenarios']} scenarios, {summary['cluster_years_without_fault']:.1f} cluster-years without a fault"
    )
    for text in list(summary["too_small"]):  # type: ignore[call-overload]
        print(f"TOO SMALL FOR A CLAIM: {text}")
    if summary["failed"]:
        print(f"{summary['failed']} did not run: see failures.csv")


def _commit() -> str:
    """Name the commit of this checkout, marked when the code differs from it; 'unknown' outside of one."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=project_root(), capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        found = git("rev-parse", "--short=12", "HEAD")
        return (
            f"{found} with changes" if found and git("status", "--porcelain", "--", "include") else found or "unknown"
        )
    except OSError:
        return "unknown"
