"""What simulating and scoring cost, and whether measurements without text are those of the text: see METHOD."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.child import answer, in_child
from benchmarks.section import BUILD, Options, Row, Section

METHOD = """\
SIMULATED clusters: this measures the simulator and the scoreboard, no hardware. *Printed*: one night of
`simulated-1024` with the raw output and records of all five benchmarks at all rungs, planning included. *Without text*:
nights of `simulated-128` as frames of all measured and derived rows, each night with its own shuffle of the nodes.
*Equal*: nights of 32 nodes, each with one planted fault of another kind or severity, printed and read, and computed
without text: every column of every row, every expected row, and every verdict on a launch must be equal. *One seed*: a
history of 14 nights, 250 nights without a fault and 64 scenarios, all judged; the first seed, with its imports, is not
counted. All is CPU time of one process; but for the seeds its start and imports are included."""

PRINTED_MOST_S, YEAR_MOST_S, SCOREBOARD_MOST_MIN = 20.0, 30.0, 20.0
SEEDS = 300


def printed_night(cluster: str) -> dict[str, float]:
    """Print one night; give files and MiB."""
    from tests.simulation.two_ways import MOMENT, print_night

    from plumbline.clusters.profile import load_profile
    from plumbline.simulation.faults import Scenario
    from plumbline.suites.suite import load_suite

    with tempfile.TemporaryDirectory(dir=BUILD) as name:
        run = print_night(
            load_profile(cluster), load_suite("nightly"), Scenario(seed=1), MOMENT, f"{MOMENT:%Y%m%dT%H%M%SZ}-000001",
            Path(name), seal=False,
        )  # fmt: skip
        sizes = [path.stat().st_size for path in (run.evidence / "raw").rglob("*") if path.is_file()]
    return {"files": len(sizes), "raw_mib": sum(sizes) / 2**20}


def year(cluster: str, nights: int) -> dict[str, int]:
    """Give the rows of so many nights without text."""
    from plumbline.clusters.profile import load_profile
    from plumbline.scoreboard.campaign import FIRST_NIGHT, Setting, frames_of, night_run_id
    from plumbline.simulation.faults import Scenario
    from plumbline.simulation.measuring import measure
    from plumbline.simulation.night import Night
    from plumbline.suites.suite import load_suite

    setting = Setting.of(load_profile(cluster), load_suite("nightly"))
    rows = 0
    for begin in range(0, nights, 16):
        moments = [FIRST_NIGHT + timedelta(days=day) for day in range(begin, min(nights, begin + 16))]
        measured = measure(
            [Night.of(setting.profile, Scenario(seed=1), moment) for moment in moments],
            [setting.layout.on(night_run_id(1, moment)) for moment in moments],
        )
        rows += len(frames_of(measured))
    return {"rows": rows}


def equal(scenarios: int) -> dict[str, Any]:
    """Compare so many nights both ways; give how many are equal, rows compared, and which are not."""
    from tests.simulation.two_ways import both_ways, differences

    from plumbline.clusters.profile import load_profile
    from plumbline.scoreboard.campaign import FIRST_NIGHT, Setting
    from plumbline.scoreboard.scenarios import scenarios as planted
    from plumbline.scoreboard.seeds import CLUSTER
    from plumbline.simulation.faults import Scenario
    from plumbline.suites.suite import load_suite

    profile, suite = load_profile(str(CLUSTER)), load_suite("nightly")
    setting = Setting.of(profile, suite)
    chosen = [one for seed in (1, 2) for one in planted(seed, setting.inventory, setting.model, FIRST_NIGHT.date())]
    step = max(1, len(chosen) // scenarios)
    found: dict[str, list[str]] = {}
    rows = 0
    for number, one in enumerate(chosen[::step][:scenarios]):
        with tempfile.TemporaryDirectory(dir=BUILD) as name:
            night = both_ways(
                profile, suite, Scenario(seed=one.seed, faults=(one.fault,)), Path(name), moment=FIRST_NIGHT,
                number=number,
            )  # fmt: skip
            found[one.name] = differences(night)
            rows += len(night.readout.measurements)
    return {"compared": len(found), "equal": sum(not d for d in found.values()), "rows": rows,
            "differ": {name: d for name, d in found.items() if d}}  # fmt: skip


def seeds(numbers: Sequence[int]) -> dict[str, Any]:
    """Play out seeds on the scoreboard's cluster; give the CPU seconds of one, the first left out."""
    from plumbline.clusters.profile import load_profile
    from plumbline.scoreboard.campaign import Setting, play_all
    from plumbline.scoreboard.seeds import CLUSTER
    from plumbline.suites.suite import load_suite

    setting = Setting.of(load_profile(str(CLUSTER)), load_suite("nightly"))
    played = play_all(setting, numbers[:1], lambda text: None)
    start = time.process_time()
    played += play_all(setting, numbers[1:], lambda text: None)
    each = (time.process_time() - start) / (len(numbers) - 1)
    return {"cpu_s": each, "failures": sum(len(one.failures) for one in played)}


def measure(options: Options) -> Section:
    """Measure 1,024 nodes printed, 365 nights of 128, 50 scenarios both ways, 5 seeds (quick: 8, 8, 3, 2)."""
    quick = options.quick
    nights, count, numbers = (8, 3, [1, 2]) if quick else (365, 50, [1, 2, 3, 4, 5])
    night = in_child("benchmarks.scoreboard", ["printed", "simulated-8" if quick else "simulated-1024"])
    whole = in_child("benchmarks.scoreboard", ["year", "simulated-128", str(nights)])
    both = in_child("benchmarks.scoreboard", ["equal", str(count)])
    played = in_child("benchmarks.scoreboard", ["seeds", *map(str, numbers)])
    minutes = played.answer["cpu_s"] * SEEDS / 60
    rows = [
        Row(name="one night printed, 1,024 nodes" if not quick else "one night printed, 8 nodes", value=night.cpu_s,
            unit="s", spread=f"{night.answer['files']} files, {night.answer['raw_mib']:.0f} MiB of raw output",
            limit=f"≤ {PRINTED_MOST_S:g} s", held=None if quick else night.cpu_s <= PRINTED_MOST_S),
        Row(name=f"{nights} nights without text, 128 nodes", value=whole.cpu_s, unit="s",
            spread=f"{whole.answer['rows']} rows, {whole.peak_mib:.0f} MiB",
            limit=f"≤ {YEAR_MOST_S:g} s", held=None if quick else whole.cpu_s <= YEAR_MOST_S),
        Row(name="scenarios that are equal both ways", value=both.answer["equal"], unit=f"of {both.answer['compared']}",
            spread=f"{both.answer['rows']} rows", limit="all", held=both.answer["equal"] == both.answer["compared"]),
        Row(name="one seed of the scoreboard", value=played.answer["cpu_s"], unit="s",
            spread=f"mean of {len(numbers) - 1}; {played.answer['failures']} scenarios failed"),
        Row(name=f"{SEEDS} seeds of the scoreboard", value=minutes, unit="min", spread="from the row above",
            limit=f"≤ {SCOREBOARD_MOST_MIN:g} min", held=None if quick else minutes <= SCOREBOARD_MOST_MIN),
    ]  # fmt: skip
    return Section(name="scoreboard", title="Simulated nights and the scoreboard", method=METHOD, rows=rows,
                   raw={"equal": both.answer})  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Do one child's work and answer."""
    BUILD.mkdir(parents=True, exist_ok=True)
    name, *rest = arguments
    if name == "printed":
        answer(printed_night(rest[0]))
    elif name == "year":
        answer(year(rest[0], int(rest[1])))
    elif name == "equal":
        answer(equal(int(rest[0])))
    else:
        answer(seeds([int(word) for word in rest]))


if __name__ == "__main__":
    main(sys.argv[1:])
