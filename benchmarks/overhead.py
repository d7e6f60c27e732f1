"""What Plumbline adds to the time of the commands that it runs: against a shell loop, and bare Airflow tasks."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.child import apart, in_child, path
from benchmarks.ratios import mean_interval, ratio_interval
from benchmarks.section import BUILD, ROOT, Options, Row, Section

METHOD = """\
*plumbline run* (plan, launch, seal, judge, report, track to an MLflow store on SQLite that is there already) of a suite
whose only launch lasts about a second, against `sh` running the same argv; the rounds also import
great-expectations and MLflow in a Python that does nothing else and ends at once (not taking them down again, which
is another second), less a Python that imports nothing. Order alternates from round to round; what is added is run −
shell − imports, per round, with Student's t interval.
*Launch stage*: a DAG of LaunchOperators against a DAG of BashOperators with the same commands, one task a batch, both
through `dag.test()` in one process that has imported Airflow; seconds of the whole DAG run, ratio per pair."""

ADDED_MOST_S, RATIO_MOST = 1.1, 1.15
_PROFILE = """\
name: overhead
title: This machine, one node
launcher: local
device: cpu
accelerator: {model: cpu, per_node: 1}
fabric: {name: loopback}
hardware: local-cpu
nodes: {emulated: 1}
python: .venv-bench/bin/python
limits: {minutes: 30}
"""
_SUITE = """\
name: overhead
title: Overhead
kind: nightly
gate: {blocks: [FAIL, INVALID, NOT_RUN, STALE], coverage_gaps_allowed: true}
node_counts: [1]
benchmarks:
"""
_END = "os; os._exit(0)"
_TINY = "  - {benchmark: fio, params: {clients: 1, size: 16M, runtime_s: 1, ramp_s: 0, jobs: seq_read}}\n"
_NIGHTLY = """\
  - {benchmark: fio, params: {clients: 2, size: 64M, runtime_s: 5, ramp_s: 1, jobs: "seq_read,rand_read"}}
  - {benchmark: nccl_tests, params: {operations: all_reduce}}
"""


def environment(folder: Path, benchmarks: str) -> dict[str, str]:
    """Write profile and suite; give the variables under which Plumbline finds them and keeps results apart."""
    storage = folder / "storage"
    storage.mkdir(exist_ok=True)
    (folder / "overhead.yaml").write_text(f"{_PROFILE}storage: {{directory: {storage}, name: scratch}}\n")
    suites = folder / "suites"
    suites.mkdir(exist_ok=True)
    (suites / "overhead.yaml").write_text(_SUITE + benchmarks)
    return {**path(), **apart(folder)}


def timed(argv: Sequence[str], env: Mapping[str, str], allowed: Sequence[int] = (0,)) -> float:
    """Run a command to its end; give wall seconds. Raises RuntimeError for an exit code that is not allowed."""
    start = time.monotonic()
    done = subprocess.run(argv, env={**os.environ, **env}, cwd=ROOT, capture_output=True, text=True, check=False)
    took = time.monotonic() - start
    if done.returncode not in allowed:
        raise RuntimeError(f"{shlex.join(argv)[:200]}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return took


def planned(env: Mapping[str, str]) -> list[dict[str, Any]]:
    """Give the launches that `plumbline run` would start."""

    argv = [sys.executable, "-m", "plumbline.cli", "plan", "--cluster", "overhead", "--suite", "overhead", "--json"]
    done = subprocess.run(argv, env={**os.environ, **env}, cwd=ROOT, capture_output=True, text=True, check=True)
    launches: list[dict[str, Any]] = json.loads(done.stdout)["launches"]
    return launches


def shell_loop(launches: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """Give a shell that runs the launches' commands one after the other."""
    lines = [f"cd {shlex.quote(str(folder))}"]
    for launch in launches:
        given = " ".join(f"{key}={shlex.quote(value)}" for key, value in launch["env"].items())
        lines.append(f"{given} {shlex.join(launch['argv'])} > out 2> err || exit 1")
    return ["sh", "-c", "\n".join(lines)]


def measure_command(folder: Path, rounds: int) -> dict[str, list[float]]:
    """Give seconds of `plumbline run`, of the shell loop, of the imports and of an empty Python, by round."""
    env = environment(folder, _TINY)
    python = sys.executable
    loop = shell_loop(planned(env), folder)
    gate_word = (0, 1)  # 1: closed, by whatever this machine's speed says; the run itself went through
    commands: dict[str, tuple[Sequence[str], Sequence[int]]] = {
        "run": ([python, "-m", "plumbline.cli", "run", "--cluster", "overhead", "--suite", "overhead"], gate_word),
        "shell": (loop, (0,)),
        "imports": ([python, "-c", f"import great_expectations, mlflow, {_END}"], (0,)),
        "python": ([python, "-c", f"import {_END}"], (0,)),
    }
    found: dict[str, list[float]] = {name: [] for name in commands}
    for name in commands:
        timed(commands[name][0], env, commands[name][1])  # files into the cache, MLflow's store into being
    for number in range(rounds):
        for name in list(commands) if number % 2 == 0 else reversed(commands):
            found[name].append(timed(commands[name][0], env, commands[name][1]))
    return found


def measure(options: Options) -> Section:
    """Measure both."""
    if not (ROOT / ".venv-bench" / "bin" / "python").exists():
        raise SystemExit("overhead needs .venv-bench: make bench-env")
    BUILD.mkdir(parents=True, exist_ok=True)
    pairs = options.count(10, 2)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="overhead-") as name:
        command = measure_command(Path(name), pairs)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="launches-") as name:
        env = environment(Path(name), _TINY if options.quick else _NIGHTLY)
        launches = in_child("benchmarks.launch_stage", [str(pairs)], env).answer
    return Section(name="overhead", title="Overhead: what Plumbline adds to its commands", method=METHOD,
                   rows=[*_command_rows(command), _launch_row(launches)],
                   raw={"command": command, "launches": launches})  # fmt: skip


def _command_rows(found: Mapping[str, Sequence[float]]) -> list[Row]:
    added = [
        run - shell - (imports - python)
        for run, shell, imports, python in zip(
            found["run"], found["shell"], found["imports"], found["python"], strict=True
        )
    ]
    rows = [
        Row(name=meaning, value=mean_interval(found[name]).mean, unit="s", spread=mean_interval(found[name]).shown())
        for name, meaning in (
            ("run", "plumbline run"), ("shell", "shell loop"), ("imports", "importing GX and MLflow"),
            ("python", "an empty Python"),
        )
    ]  # fmt: skip
    interval = mean_interval(added)
    rows.append(Row(name="added by plumbline run", value=interval.mean, unit="s", spread=interval.shown(),
                    limit=f"≤ {ADDED_MOST_S:g} s", held=interval.mean <= ADDED_MOST_S))  # fmt: skip
    return rows


def _launch_row(found: Mapping[str, Sequence[float]]) -> Row:
    interval = ratio_interval(found["through"], found["bare"])
    return Row(name="launch stage ÷ bare BashOperators", value=interval.mean, unit="ratio", spread=interval.shown(),
               limit=f"the interval does not exclude ≤ {RATIO_MOST:g}", held=interval.low <= RATIO_MOST)  # fmt: skip
