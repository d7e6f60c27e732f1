"""Does a tool measure the same through Plumbline as alone? What it is given, what it reports, what the runner takes."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ratios import interleave, ratio_interval, within_row
from benchmarks.section import BUILD, ROOT, Options, Row, Section
from plumbline.execution.run_one import child_environment, run
from plumbline.model import Contends, Device, LaunchSpec, Origin, RunRecord
from plumbline.readers import Reading, Source, reader

METHOD = """\
*Given*: a probe prints its arguments, environment, CPU affinity, control group, priority, resource limits and signal
masks; it runs bare (started directly, in the same shell environment) and through `run_one`, and both answers are
compared key by key. Variables of the orchestrator (`AIRFLOW…`, `MLFLOW_…`) are withheld on purpose and counted apart;
working directory, session and standard input (the raw directory, a new one, /dev/null) are the runner's by design.
*Value*: fio reads a cached file sequentially for one second (psync, 1 MiB), bare and through `run_one`, in pairs whose
order alternates. The ratio through ÷ bare is of fio's own `bw_bytes`; geometric mean, Student's t on logarithms.
The same number is read back by Plumbline's reader and must be equal, not near.
*Runner*: `runner_cpu_s` ÷ `duration_s` of every record."""


def launch(argv: Sequence[str], env: Mapping[str, str], name: str, timeout_s: float = 120.0) -> LaunchSpec:
    """Give a spec that runs one command on this machine."""
    return LaunchSpec(
        launch_id=name, run_id="fidelity", cluster="fidelity", benchmark="fio", benchmark_version="1", reader="fio",
        node_count=1, wave=1, group=0, repeat=1, nodes=("n1",), accelerators_per_node=1, device=Device.CPU,
        origin=Origin.MEASURED, contends=Contends.NONE, params={}, argv=tuple(argv), env=env, timeout_s=timeout_s,
    )  # fmt: skip


def run_bare(argv: Sequence[str], env: Mapping[str, str], folder: Path) -> bytes:
    """Run a command without Plumbline and give what it printed. Raises CalledProcessError."""
    with (folder / "bare").open("wb") as out:
        subprocess.run(argv, cwd=folder, env={**os.environ, **env}, stdout=out, check=True)
    return (folder / "bare").read_bytes()


def run_through(argv: Sequence[str], env: Mapping[str, str], folder: Path, name: str) -> tuple[bytes, RunRecord]:
    """Run a command through run_one; give its standard output as the evidence holds it, and the record."""
    record = run(launch(argv, env, name), folder)
    if record.exit_code != 0:
        raise RuntimeError(f"{argv[0]}: {record.outcome.value}, {record.reason}")
    return (folder / record.raw_dir / "stdout").read_bytes(), record


def given_differences(folder: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Give what a child is given otherwise than bare, by kind, and the variables that are withheld on purpose."""
    argv = [sys.executable, str(Path(__file__).with_name("probe.py")), "an argument", "--x=ä $HOME *"]
    env = {"PLUMBLINE_PROBE": "a value with spaces", "OMP_NUM_THREADS": "1"}
    bare = json.loads(run_bare(argv, env, folder))
    through = json.loads(run_through(argv, env, folder, "probe")[0])
    withheld = sorted(set(os.environ) - set(child_environment({})))
    found = {key: _differences(bare[key], through[key]) for key in bare}
    found["environment"] = [line for line in found["environment"] if line.split(":")[0] not in withheld]
    return found, withheld


def _differences(bare: Any, through: Any) -> list[str]:
    if isinstance(bare, dict) and isinstance(through, dict):
        keys = sorted(set(bare) | set(through))
        return [f"{k}: {bare.get(k)!r} → {through.get(k)!r}" for k in keys if bare.get(k) != through.get(k)]
    return [] if bare == through else [f"{bare!r} → {through!r}"]


def fio_command(file: Path, seconds: int) -> list[str]:
    """Give fio's command for reading a file through the page cache: CPU-bound, so a busy runner would show."""
    return [
        "fio", "--name=fidelity", f"--filename={file}", "--rw=read", "--bs=1M", "--size=64M", "--ioengine=psync",
        f"--runtime={seconds}", "--time_based", "--output-format=json",
    ]  # fmt: skip


def fio_value(output: bytes) -> float:
    """Give fio's own read bandwidth, bytes a second."""
    return float(json.loads(output)["jobs"][0]["read"]["bw_bytes"])


def reader_agrees(output: bytes) -> bool:
    """Say whether Plumbline's reader gives exactly fio's number among its readings."""
    items = list(reader("fio").read(Source.of_bytes(output), {}))
    values = [i.value for i in items if isinstance(i, Reading) and i.unit == "MB/s"]
    return fio_value(output) / 1e6 in values


def measure_pairs(folder: Path, pairs: int, seconds: int) -> tuple[list[float], list[float], list[RunRecord], int]:
    """Give fio's bandwidth bare and through run_one, the records, and how often the reader's number was another."""
    argv = fio_command(folder / "file", seconds)
    records: list[RunRecord] = []
    disagreements = 0

    def through() -> float:
        nonlocal disagreements
        output, record = run_through(argv, {}, folder, f"pair-{len(records)}")
        records.append(record)
        disagreements += not reader_agrees(output)
        return fio_value(output)

    run_bare(argv, {}, folder)  # lays the file out and warms the cache
    bare, under = interleave(pairs, lambda: fio_value(run_bare(argv, {}, folder)), through)
    return bare, under, records, disagreements


def measure(options: Options) -> Section:
    """Measure all three. Needs fio."""
    if shutil.which("fio") is None:
        raise SystemExit("fidelity needs fio: deployment/system_packages.sh fio=fio")
    BUILD.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="fidelity-") as name:
        folder = Path(name)
        found, withheld = given_differences(folder)
        bare, through, records, disagreements = measure_pairs(folder, options.count(30, 4), 1)
    shares = [(r.runner_cpu_s or 0.0) / r.duration_s for r in records if r.runner_cpu_s is not None]
    rows = [
        Row(name=f"{kind} that differ", value=len(lines), spread="; ".join(lines), limit="0", held=not lines)
        for kind, lines in found.items()
    ]
    rows.append(Row(name="variables withheld on purpose", value=len(withheld), spread=", ".join(withheld)))
    rows.append(within_row("fio bandwidth, through ÷ bare", ratio_interval(through, bare), 0.97, 1.03))
    rows.append(Row(name="records whose read value is not the tool's", value=disagreements, limit="0",
                    held=disagreements == 0))  # fmt: skip
    rows.append(Row(name="runner's CPU share, median", value=100 * statistics.median(shares), unit="%"))
    rows.append(Row(name="runner's CPU share, largest", value=100 * max(shares), unit="%", limit="≤ 1 %",
                    held=max(shares) <= 0.01))  # fmt: skip
    return Section(
        name="fidelity", title="Fidelity: the same command, the same number", method=METHOD, rows=rows,
        raw={"bare": bare, "through": through, "runner_share": shares, "root": ROOT.name},
    )  # fmt: skip
