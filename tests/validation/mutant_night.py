"""A good night on a small simulated cluster, as real files: what the mutations break one way at a time.

SIMULATED: six nodes of eight GPUs, raw output in the formats of the real tools, no hardware behind it. One night is
approved as the baseline; the next is launched and left unsealed, and each mutation gets a copy of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from plumbline import stages
from plumbline.execution.run_one import file_sha256
from plumbline.tracking.run_directory import RunDirectory

PROFILE = {
    "name": "mutant",
    "title": "SIMULATED 6 × 8 H100 for tests",
    "launcher": "simulated",
    "device": "gpu",
    "accelerator": {"model": "H100-SXM5-80GB", "per_node": 8},
    "fabric": {"name": "ndr-8x400g", "node_bandwidth_gbit_s": 3200},
    "nodes": {"simulated": 6, "nodes_per_leaf": 3},
    "storage": {"directory": "/mnt/shared"},
    "simulation": {"seed": 3},
}
SUITE = {
    "name": "mutants",
    "title": "Small nightly",
    "kind": "nightly",
    "gate": {"blocks": ["FAIL", "INVALID", "NOT_RUN", "STALE"], "coverage_gaps_allowed": True},
    "node_counts": [1, 2],
    "benchmarks": [
        {"benchmark": "nccl_tests", "params": {"operations": "all_reduce", "min_bytes": "2M", "step_factor": 16,
                                               "max_bytes": "8G", "headline_message_bytes": "8G"}},
        {"benchmark": "hpl_mxp", "node_counts": [1]},
        {"benchmark": "fio", "node_counts": [1]},
    ],
}  # fmt: skip
NCCL, NCCL_ONE, HPL, FIO = "nccl_tests-n2-g0-r1", "nccl_tests-n1-g0-r1", "hpl_mxp-n1-g0-r1", "fio-n1-g0-r1"
TABLE = "all_reduce.txt"


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


NIGHT = datetime(2026, 11, 6, 2, tzinfo=UTC)
"""Noise follows the night, so a fixed one gives the same numbers whenever the tests run."""


def make_base(folder: Path, asked: Mapping[str, Any] = SUITE) -> Path:
    """Run and approve one night, launch the next and leave it unsealed; give its directory."""
    profile, suite = folder / "mutant.yaml", folder / "mutants.yaml"
    profile.write_text(yaml.safe_dump(PROFILE, sort_keys=False))
    suite.write_text(yaml.safe_dump(asked, sort_keys=False))
    with environment(PLUMBLINE_RESULTS=str(folder / "results")):
        first = _launched(profile, suite, NIGHT - timedelta(days=1))
        stages.seal(first.path)
        stages.judge(first.path)
        stages.approve(first.path, by="test", comment="invented baseline")
        return _launched(profile, suite, NIGHT).path


def _launched(profile: Path, suite: Path, night: datetime) -> RunDirectory:
    run = stages.prepare(str(profile), str(suite), {}, trigger="test", now=night)
    for batch_id in stages.batch_ids(run):
        stages.launch_batch(run.path, batch_id, lambda _: None)
    return run


class Broken:
    """A copy of the good night that a mutation works on."""

    def __init__(self, base: Path, folder: Path) -> None:
        """Copy the night: the run's own name and its place below cluster and suite stay."""
        path = folder / "results" / base.parent.parent.name / base.parent.name / base.name
        shutil.copytree(base, path)
        self.run = RunDirectory.open(path)
        self.base, self.folder = base, folder

    def seal(self) -> None:
        """Seal the evidence as it stands."""
        stages.seal(self.run.path)

    def record_path(self, launch: str) -> Path:
        return self.run.evidence / "records" / f"{launch}.a1.json"

    def record(self, launch: str, **fields: Any) -> None:
        """Change fields of a record."""
        path = self.record_path(launch)
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    def read_record(self, launch: str) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.record_path(launch).read_text())
        return data

    def raw(self, launch: str, name: str) -> Path:
        return self.run.evidence / "raw" / f"{launch}.a1" / name

    def output(self, launch: str, name: str, change: Callable[[str], str]) -> None:
        """Let the tool have printed something else: the record lists the file as it is now."""
        path = self.raw(launch, name)
        before = path.read_text()
        after = change(before)
        assert after != before, "the mutation changed nothing"
        path.write_text(after)
        self.relist(launch)

    def relist(self, launch: str) -> None:
        """Let the record list the raw files as they are."""
        folder = self.raw(launch, "")
        self.record(
            launch,
            raw_files=[
                {"path": p.relative_to(folder).as_posix(), "size_bytes": p.stat().st_size, "sha256": file_sha256(p)}
                for p in sorted(folder.rglob("*"))
                if p.is_file()
            ],
        )

    def evidence(self, name: str, change: Callable[[Any], Any]) -> None:
        """Change a JSON file of the evidence before it is sealed."""
        path = self.run.evidence / f"{name}.json"
        data = json.loads(path.read_text())
        found = change(data)
        path.write_text(json.dumps(data if found is None else found))


# -- nccl tables ---------------------------------------------------------------------------------------------------

ROW = re.compile(r"^ +\d+ +\d+ +float .*$", re.MULTILINE)


def rows_of(table: str) -> list[str]:
    return ROW.findall(table)


def cells(table: str, change: Callable[[list[str]], list[str]], which: Callable[[int], bool] = lambda _: True) -> str:
    """Change the cells of some rows (size count type redop root, then time algbw busbw #wrong twice)."""
    number = -1

    def replaced(match: re.Match[str]) -> str:
        nonlocal number
        number += 1
        if not which(number):
            return match.group()
        return "  ".join(["", *change(match.group().split())])

    return ROW.sub(replaced, table)


def last(number: int) -> bool:
    """The row of the largest message: the sweep has four."""
    return number == 3


def scaled(row: list[str], factor: float) -> list[str]:
    """Let a row have taken `factor` times as long, in every column that follows from it."""
    found = list(row)
    for at in (5, 9):
        time, algorithm, bus = (float(found[at + i]) for i in range(3))
        found[at : at + 3] = [f"{time * factor:.2f}", f"{algorithm / factor:.2f}", f"{bus / factor:.2f}"]
    return found
