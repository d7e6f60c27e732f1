"""What the stages after the launches cost with the number of nodes: python -m benchmarks.scale STAGE ARGUMENTS."""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.child import Cost, answer, apart, in_child, peak_mib
from benchmarks.section import BUILD, Options, Row, Section

METHOD = """\
Simulated nodes (profile `simulated-8` with another node count; no hardware is measured, but every byte of raw output
is there to be read) run nccl-tests and HPL-MxP over the whole ladder. Then each stage runs in a process of its own, as
Airflow's tasks do: judge (read, derive, validate with great-expectations, write the tables), report, track (a fresh
MLflow store on SQLite, made before). Seconds are of the whole process, start of Python and imports included; memory is
the largest of the three processes. Growth is the exponent of the time without what 10 nodes cost, between the two
largest counts: 1 is linear. *Validate alone*: the judge on a readout of the simulated run, repeated under further
launch names to the number of rows; reading and building it are not in the time, and its memory is."""

SECONDS_MOST, MEMORY_MOST_MIB = 60.0, 1536.0
STAGES = ("judge", "report", "track")
_SUITE = """\
name: scale
title: Scale of the judging stages
kind: nightly
gate: {blocks: [FAIL, INVALID, NOT_RUN, STALE], coverage_gaps_allowed: true}
node_counts: ladder
benchmarks:
  - {benchmark: nccl_tests, params: {operations: all_reduce}}
  - {benchmark: hpl_mxp}
"""


def environment(folder: Path, nodes: int) -> dict[str, str]:
    """Write profile and suite of so many nodes; give the variables under which stages find them."""
    import yaml

    from plumbline.clusters.profile import PROFILES

    data = yaml.safe_load((PROFILES / "simulated-8.yaml").read_text())
    data["name"], data["title"] = f"scale-{nodes}", f"SIMULATED {nodes} nodes"
    data["nodes"] = {"simulated": nodes}
    (folder / f"scale-{nodes}.yaml").write_text(yaml.safe_dump(data))
    suites = folder / "suites"
    suites.mkdir(exist_ok=True)
    (suites / "scale.yaml").write_text(_SUITE)
    return apart(folder)


def simulate(cluster: str) -> str:
    """Make a sealed run; give its directory."""
    from plumbline import stages

    run = stages.prepare(cluster, "scale", {}, trigger="benchmark")
    for batch_id in stages.batch_ids(run):
        stages.launch_batch(run.path, batch_id, print)
    stages.seal(run.path)
    return str(run.path)


def stage(name: str, run_dir: str) -> Any:
    """Run one stage on a sealed run; judge gives the rows."""
    from plumbline import stages

    if name != "judge":
        getattr(stages, name)(Path(run_dir))
        return None
    coverage = stages.judge(Path(run_dir))["coverage"]
    return {"rows": coverage["rows_measured"], "expected": coverage["rows_expected"]}


def judge_alone(run_dir: str, rows: int) -> dict[str, float]:
    """Judge a readout of `rows` rows, made by repeating a run's; give seconds and the memory before."""
    from plumbline.indicators.derived import derive
    from plumbline.tracking.run_directory import RunDirectory, run_time
    from plumbline.validation.judgement import judge
    from plumbline.validation.readout import read_run
    from plumbline.validation.sealed_limits import read_limits

    run = RunDirectory.open(Path(run_dir))
    plan, profile = run.plan(), run.profile()
    limits = read_limits(run.read_evidence("references"))
    readout = derive(read_run(run), plan=plan, profile=profile)
    times = max(1, round(rows / len(readout.expected)))
    many = replace(
        readout,
        expected=tuple(_renamed(row, n) for n in range(times) for row in readout.expected),
        measurements=tuple(_renamed(row, n) for n in range(times) for row in readout.measurements),
    )
    import great_expectations  # noqa: F401 - its import is counted elsewhere

    before, start, cpu = peak_mib(), time.monotonic(), time.process_time()
    judgement = judge(
        many, plan=plan, profile=profile, suite=run.suite(), references=limits.references, baseline=limits.baseline,
        waivers=limits.waivers, limit_problems=limits.problems, today=run_time(run.run_id).date(),
    )  # fmt: skip
    return {
        "rows": judgement.judged.expected, "seconds": time.monotonic() - start, "cpu_s": time.process_time() - cpu,
        "before_mib": before,
    }  # fmt: skip


def _renamed(row: Any, number: int) -> Any:
    return row if number == 0 else replace(row, launch_id=f"{row.launch_id}~{number}")


def measure_nodes(folder: Path, nodes: int) -> dict[str, Any]:
    """Simulate and judge one cluster; give costs by stage, rows, and the run's directory."""
    env = environment(folder, nodes)
    simulated = in_child("benchmarks.scale", ["simulate", f"scale-{nodes}"], env)
    costs: dict[str, Cost] = {
        name: in_child("benchmarks.scale", ["stage", name, simulated.answer], env) for name in STAGES
    }
    return {
        "nodes": nodes,
        "rows": costs["judge"].answer["rows"],
        "run_dir": simulated.answer,
        "wall_s": {name: cost.wall_s for name, cost in costs.items()},
        "cpu_s": {name: cost.cpu_s for name, cost in costs.items()},
        "peak_mib": {name: cost.peak_mib for name, cost in costs.items()},
    }


def growth(smallest: dict[str, Any], middle: dict[str, Any], largest: dict[str, Any]) -> float | None:
    """Give the exponent of CPU seconds over rows; the smallest run stands for what costs whatever the size."""
    base, low, high = (sum(item["cpu_s"].values()) for item in (smallest, middle, largest))
    if low <= base or high <= base:
        return None  # too small to be told from noise
    return math.log((high - base) / (low - base)) / math.log(
        (largest["rows"] - smallest["rows"]) / (middle["rows"] - smallest["rows"])
    )


def _rows(found: Sequence[dict[str, Any]]) -> list[Row]:
    rows = []
    for item in found:
        seconds, memory = sum(item["wall_s"].values()), max(item["peak_mib"].values())
        told = ", ".join(f"{name} {item['wall_s'][name]:.1f} s" for name in STAGES)
        in_time = seconds <= SECONDS_MOST
        fits = memory <= MEMORY_MOST_MIB

        rows.append(Row(name=f"{item['nodes']} nodes, {item['rows']} rows", value=seconds, unit="s", spread=told,
                        limit=f"≤ {SECONDS_MOST:g} s at 1,000", held=in_time))  # fmt: skip
        rows.append(Row(name=f"{item['nodes']} nodes: CPU", value=sum(item["cpu_s"].values()), unit="s"))
        rows.append(Row(name=f"{item['nodes']} nodes: peak memory", value=memory, unit="MiB",
                        spread=", ".join(f"{name} {item['peak_mib'][name]:.0f}" for name in STAGES),
                        limit=f"≤ {MEMORY_MOST_MIB:g} MiB at 1,000",
                        held=fits))  # fmt: skip
    return rows


def measure(options: Options) -> Section:
    """Measure 10, 100 and 1,000 nodes (quick: 2, 4, 8), and validation alone on 1,000,000 rows (quick: 20,000)."""
    counts = (2, 4, 8) if options.quick else (10, 100, 1000)
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="scale-") as name:
        folder = Path(name)
        if not options.quick:
            measure_nodes(folder, 2)  # makes MLflow's store
        found = [measure_nodes(folder, nodes) for nodes in counts]
        target = 20_000 if options.quick else 1_000_000
        alone = in_child(
            "benchmarks.scale", ["alone", found[1]["run_dir"], str(target)], environment(folder, counts[1])
        )
    exponent = growth(found[0], found[1], found[2])
    rows = _rows(found)
    rows.append(Row(name="growth of CPU time with rows", value=exponent, unit="exponent", limit="≤ 1.1",
                    held=None if exponent is None or options.quick else exponent <= 1.1))  # fmt: skip
    rows.append(Row(name=f"validate alone, {alone.answer['rows']} rows", value=alone.answer["seconds"], unit="s",
                    spread=f"CPU {alone.answer['cpu_s']:.1f} s"))  # fmt: skip
    rows.append(Row(name="validate alone: peak memory", value=alone.peak_mib, unit="MiB",
                    spread=f"{alone.answer['before_mib']:.0f} MiB of it the readout itself"))  # fmt: skip
    return Section(name="scale", title="Scale: seconds and memory after the launches", method=METHOD, rows=rows,
                   raw={"nodes": found, "alone": {**alone.answer, "peak_mib": alone.peak_mib}})  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Do one child's work and answer."""
    if arguments[0] == "simulate":
        answer(simulate(arguments[1]))
    elif arguments[0] == "alone":
        answer(judge_alone(arguments[1], int(arguments[2])))
    else:
        answer(stage(arguments[1], arguments[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
