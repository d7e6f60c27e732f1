"""Coverage-guided fuzzing of every reader: no exception but OutputError, no hang, no number that isn't one.

    python -m tests.fuzz [READER …] [--cpu-seconds N]

Each reader gets N seconds of CPU, seeded with the recorded outputs in tests/data (and the cases folder where it is).
Exits 1 with the input when something is found. `make fuzz` runs all of them.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(os.environ.get("PLUMBLINE_CASES", ROOT.parent / "shared" / "cases"))
HANG_S = 20


def check(name: str, data: bytes) -> None:
    """Read `data` with a reader and hold what comes out to its contract."""
    from plumbline import readers
    from plumbline.errors import OutputError
    from plumbline.readers.reading import Completeness, Reading
    from plumbline.units import UNITS

    module = readers.reader(name)
    items = []
    try:
        items = list(module.read(readers.Source.of_bytes(data, "fuzz"), {}))
    except OutputError:
        return
    assert items, "no item at all"
    assert isinstance(items[-1], Completeness), "the last item is no statement of completeness"
    assert sum(isinstance(item, Completeness) for item in items) == 1, "more than one statement"
    for item in items:
        if isinstance(item, Reading):
            assert math.isfinite(item.value), f"{item.indicator} is {item.value}"
            assert item.unit in UNITS, f"{item.indicator} has unit {item.unit}"
            assert item.indicator in module.INDICATORS, f"{item.indicator} is not among the reader's indicators"


def seeds(name: str, folder: Path) -> None:
    """Copy inputs that this reader can begin from: recorded outputs of its own and of related tools, cut short."""
    own = [p for p in (ROOT / "tests" / "data" / name).rglob("*") if p.is_file()]
    related = [p for p in CASES.rglob("*") if p.is_file() and _related(name, p)] if CASES.is_dir() else []
    for number, path in enumerate([*own, *related]):
        (folder / f"seed-{number}").write_bytes(path.read_bytes()[:12000])


def _related(name: str, path: Path) -> bool:
    words = {
        "nccl_tests": "nccl/", "fio": "fio/", "hpl": "hpl/", "hpl_mxp": "hpl/", "mllog": "mlperf/",
        "kubernetes": "k8s/", "mlperf_system": "system_", "perftest": "perftest", "p2p_bandwidth": "p2p_",
        "nvbandwidth": "nvbandwidth", "dcgmi_diag": "dcgmi", "nvidia_smi_xml": "q_x", "gpu_burn": "gpu_burn",
        "nvidia_smi_csv": "query_gpu", "nvidia_smi_text": "smi_", "stress_ng": "stress_ng", "xid": "xid",
    }  # fmt: skip
    return words.get(name, "\0") in path.relative_to(CASES).as_posix()


def fuzz_one(name: str, cpu_seconds: int) -> None:
    """Fuzz one reader in this process; libFuzzer ends it."""
    import atheris

    with atheris.instrument_imports(include=["plumbline.readers"]):
        from plumbline import readers

        readers.readers()

    target: Callable[[bytes], None] = lambda data: check(name, data)  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        seeds(name, Path(folder))
        atheris.Setup(
            [sys.argv[0], f"-max_total_time={cpu_seconds}", f"-timeout={HANG_S}", "-max_len=16000",
             "-print_final_stats=1", "-verbosity=0", f"-artifact_prefix={tempfile.gettempdir()}/fuzz-{name}-", folder],
            target,
        )  # fmt: skip
        atheris.Fuzz()


def main() -> int:
    """Fuzz the named readers, or all, each in its own process; print executions and findings."""
    from plumbline import readers

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("readers", nargs="*", help="default: all")
    parser.add_argument("--cpu-seconds", type=int, default=80, help="per reader (default: 80)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        fuzz_one(chosen.one, chosen.cpu_seconds)
        return 0
    found = total = 0
    for name in chosen.readers or readers.readers():
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", "--one", name, "--cpu-seconds", str(chosen.cpu_seconds)],
            cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "include")},
            check=False, errors="replace",
        )  # fmt: skip
        text = done.stdout + done.stderr
        count = next((int(line.split()[-1]) for line in text.splitlines() if "number_of_executed_units" in line), 0)
        total += count
        found += done.returncode != 0
        print(f"{name:18} {count:9} executions  {'nothing found' if done.returncode == 0 else 'FOUND'}", flush=True)
        if done.returncode != 0:
            print(text[-3000:])
    print(f"{total} executions, {found} readers with findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
