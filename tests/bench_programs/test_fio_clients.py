"""The storage clients' program with the real fio: short runs, every way to find the storage unusable, no file left."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parents[2] / "docker" / "bench"
pytestmark = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
SHORT = ("--clients", "2", "--size", "4M", "--runtime", "0.3", "--ramp", "0", "--nodes", "n1")


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    path = tmp_path / "storage"
    path.mkdir()
    return path


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


def start(work: Path, *arguments: Any, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "plumbline_bench.fio_clients", *map(str, arguments)],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(PROGRAMS), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(work: Path, *arguments: Any, **environment: str) -> tuple[int, dict[str, Any]]:
    process = start(work, *arguments, **environment)
    output, _ = process.communicate(timeout=300)
    facts = sorted(work.glob("fio-facts-*.json"))
    assert len(facts) == 1, output
    return process.returncode, json.loads(facts[0].read_text())


def wait_for(condition: Any, what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@contextlib.contextmanager
def mounted(path: Path, options: str) -> Iterator[Path]:
    """Mount a tmpfs, or skip where that is not allowed."""
    path.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", path], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no mount here: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


# -- a run


def test_all_jobs_run_and_nothing_is_left(storage: Path, work: Path) -> None:
    (storage / "mine.dat").write_text("stays")
    code, facts = run(work, "--directory", storage, *SHORT)
    assert code == 0
    assert facts["status"] == "ok"
    assert [job["job"] for job in facts["jobs"]] == ["seq_write", "seq_read", "rand_read", "rand_write"]
    assert facts["footprint_bytes"] == 2 * 4 << 20
    assert facts["fio_version"].startswith("fio-")
    assert sorted(storage.iterdir()) == [storage / "mine.dat"]
    for job in facts["jobs"]:
        assert [client["client"] for client in job["clients"]] == [0, 1]
        for client in job["clients"]:
            report = json.loads((work / client["output"]).read_text())["jobs"][0]
            assert report["error"] == 0
            assert report["job options"]["direct"] == str(int(facts["direct"]))
            way = "write" if "write" in job["job"] else "read"
            assert report[way]["clat_ns"]["bins"], "json+ holds the histogram"
            log = (work / client["bw_log"]).read_text().splitlines()
            assert all(abs(int(line.split(",")[0]) / 1000 - client["ended_at"]) < 30 for line in log), "epoch time"


def test_what_this_program_writes_is_what_the_benchmark_reads(storage: Path, work: Path) -> None:
    from plumbline.benchmarks import benchmark, fio, resolve_params
    from plumbline.benchmarks.benchmark import Placement
    from plumbline.execution import run_one
    from plumbline.model import Contends, Device, LaunchSpec, Origin

    params = resolve_params(
        benchmark("fio"), {"size": "4M", "runtime_s": 5.0, "ramp_s": 0.0, "jobs": "seq_write,rand_read"}, "test"
    )
    placement = Placement(
        launcher="local", device=Device.CPU, origin=Origin.MEASURED, nodes=("n0", "n1"), accelerators_per_node=1,
        accelerator="cpu", fabric="loopback", python=sys.executable, programs=PROGRAMS, storage_dir=str(storage),
    )  # fmt: skip
    command = fio.command(placement, params)
    spec = LaunchSpec(
        launch_id="x", run_id="r", cluster="c", benchmark="fio", benchmark_version="1", reader="fio", node_count=2,
        wave=1, group=0, repeat=1, nodes=("n0", "n1"), accelerators_per_node=1, device=Device.CPU,
        origin=Origin.MEASURED, contends=Contends.STORAGE, params=params, argv=command.argv,
        env=command.env, timeout_s=command.timeout_s,
    )  # fmt: skip
    record = run_one.run(spec, work)
    measured = fio.measure(spec, record, work / record.raw_dir)
    assert [finding for finding in measured.findings if finding.code.value != "page_cache"] == []
    assert {value.indicator for value in measured.values} == {row.indicator for row in fio.expected(spec)}


def test_several_machines_start_together(storage: Path, work: Path) -> None:
    begin = time.time() + 2
    common = ("--directory", storage, *SHORT[:-2], "--jobs", "seq_write,rand_read", "--gap", "1.5")
    others = [
        start(work, *common, PLUMBLINE_NODE=name, PLUMBLINE_START_AT=f"{begin:.3f}") for name in ("node-a", "node-b")
    ]
    for process in others:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
    told = [json.loads((work / f"fio-facts-{name}.json").read_text()) for name in ("node-a", "node-b")]
    for index, job in enumerate(("seq_write", "rand_read")):
        assert [facts["jobs"][index]["start_at"] for facts in told] == [pytest.approx(begin + index * 1.8)] * 2
        for facts in told:
            assert all(c["started_at"] >= begin + index * 1.8 for c in facts["jobs"][index]["clients"]), job
    assert list(storage.iterdir()) == []


def test_memory_file_systems_are_said_to_be_memory(tmp_path: Path, work: Path) -> None:
    with mounted(tmp_path / "memory", "size=64M") as path:
        code, facts = run(work, "--directory", path, *SHORT, "--jobs", "seq_read", "--require-mount")
    assert code == 0
    assert facts["page_cache"] is True
    assert facts["filesystem"]["type"] == "tmpfs"
    assert facts["filesystem"]["mount_point"] == str(path)


# -- storage that cannot be used


def test_a_missing_directory(work: Path, tmp_path: Path) -> None:
    code, facts = run(work, "--directory", tmp_path / "nowhere", *SHORT)
    assert code == facts["error"]["exit_code"] == 11
    assert facts["error"]["kind"] == "directory_missing"
    assert facts["error"]["errno"] == "ENOENT"
    assert str(tmp_path / "nowhere") in facts["error"]["message"]
    assert not (tmp_path / "nowhere").exists()
    code, facts = run(work, "--directory", tmp_path / "nowhere/deep", *SHORT, "--jobs", "seq_write", "--create")
    assert code == 0


def test_a_file_in_place_of_the_directory(work: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    code, facts = run(work, "--directory", tmp_path / "file", *SHORT)
    assert (code, facts["error"]["kind"], facts["error"]["errno"]) == (11, "directory_missing", "ENOTDIR")


def test_a_read_only_file_system(work: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "readonly", "size=64M,ro") as path:
        code, facts = run(work, "--directory", path, *SHORT)
    assert (code, facts["error"]["kind"], facts["error"]["errno"]) == (13, "read_only", "EROFS")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run without root's capabilities")
def test_a_directory_without_permission(work: Path, tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-m", "plumbline_bench.fio_clients",
         "--directory", locked, *SHORT],
        cwd=work, env={**os.environ, "PYTHONPATH": str(PROGRAMS)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 12, done.stdout + done.stderr
    facts = json.loads((work / "fio-facts-n1.json").read_text())
    assert (facts["error"]["kind"], facts["error"]["errno"]) == ("permission", "EACCES")


def test_a_mount_that_is_not_there_leaves_the_root_file_system(work: Path, storage: Path) -> None:
    root = Path("/").stat().st_dev == storage.stat().st_dev
    code, facts = run(work, "--directory", storage, *SHORT, "--jobs", "seq_write", "--require-mount")
    assert (code, facts.get("error", {}).get("kind")) == ((15, "not_mounted") if root else (0, None))


def test_too_little_space_is_said_before_anything_is_written(work: Path, storage: Path) -> None:
    code, facts = run(work, "--directory", storage, *SHORT, "--free-limit", "8M")
    assert (code, facts["error"]["kind"]) == (14, "no_space")
    assert "8388608 bytes are needed" in facts["error"]["message"]
    assert not list(work.glob("fio-layout-*"))
    assert list(storage.iterdir()) == []


def test_space_that_runs_out_while_writing(work: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=6M") as path:
        code, facts = run(work, "--directory", path, *SHORT, "--free-limit", "1G")
        assert list(path.iterdir()) == []
    assert (code, facts["error"]["kind"], facts["error"]["errno"]) == (14, "no_space", "ENOSPC")


def test_fio_is_missing(work: Path, storage: Path) -> None:
    code, facts = run(work, "--directory", storage, *SHORT, "--fio", "fio-of-another-world")
    assert (code, facts["error"]["kind"]) == (10, "fio_missing")


def test_fio_that_fails_for_another_reason(work: Path, storage: Path) -> None:
    code, facts = run(work, "--directory", storage, *SHORT, "--ioengine", "nosuchengine")
    assert (code, facts["error"]["kind"]) == (18, "client_failed")
    assert "nosuchengine" in facts["error"]["message"]
    assert list(storage.iterdir()) == []


def test_files_that_take_too_long_to_write(work: Path, storage: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow-fio"
    slow.write_text('#!/bin/sh\n[ "$1" = --version ] && echo fio-0 && exit\nexec sleep 600\n')
    slow.chmod(0o755)
    code, facts = run(work, "--directory", storage, *SHORT, "--fio", slow, "--layout-limit", "0.5")
    assert (code, facts["error"]["kind"]) == (19, "too_slow")
    assert list(storage.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [("--clients", "0"), ("--jobs", "nojob"), ("--size", "many"), ("--nodes", "a/b"), ("--size", "1k")]
)
def test_wrong_use(work: Path, storage: Path, arguments: tuple[str, str]) -> None:
    process = start(work, "--directory", storage, *SHORT, *arguments)
    process.communicate(timeout=300)
    assert process.returncode == 2


# -- ends from outside


def children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()]


def corner_files(storage: Path) -> list[Path]:
    return sorted(storage.glob("plumbline-fio/*/client-*.dat"))


def test_a_stop_from_outside_leaves_no_file_and_no_process(work: Path, storage: Path) -> None:
    process = start(work, "--directory", storage, *SHORT, "--runtime", "600")
    wait_for(lambda: list(work.glob("fio-seq_write-*.json")), "no measured client was started")
    wait_for(lambda: len(children(process.pid)) == 2, "two clients run")
    clients = children(process.pid)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 143
    facts = json.loads((work / "fio-facts-n1.json").read_text())
    assert facts["error"]["kind"] == "stopped"
    assert list(storage.iterdir()) == []
    assert not [pid for pid in clients if Path(f"/proc/{pid}").exists()]


def test_what_a_killed_run_left_is_removed_by_the_next(work: Path, storage: Path) -> None:
    process = start(work, "--directory", storage, *SHORT, "--runtime", "600")
    wait_for(lambda: list(work.glob("fio-seq_write-*.json")), "no measured client was started")
    wait_for(lambda: len(children(process.pid)) == 2, "two clients run")
    clients = children(process.pid)
    process.kill()
    process.communicate(timeout=300)
    for pid in clients:
        os.kill(pid, signal.SIGKILL)
    left = corner_files(storage)
    assert len(left) == 2
    mine = storage / "plumbline-fio" / "not-of-a-run"
    mine.mkdir()
    (mine / "client-0.dat").write_text("somebody else's")
    (left[0].parent / "notes.txt").write_text("somebody else's")
    code, facts = run(work, "--directory", storage, *SHORT, "--jobs", "seq_write")
    assert code == 0
    assert facts["removed_leftovers"] == 3, "two files and whose they were"
    assert sorted(p.relative_to(storage).parts[-1] for p in storage.rglob("*") if p.is_file()) == [
        "client-0.dat",
        "notes.txt",
    ]


def test_files_of_a_living_run_are_left_alone(work: Path, storage: Path, tmp_path: Path) -> None:
    process = start(work, "--directory", storage, *SHORT, "--runtime", "600")
    wait_for(lambda: list(work.glob("fio-seq_write-*.json")), "no measured client was started")
    other = tmp_path / "other"
    other.mkdir()
    code, facts = run(other, "--directory", storage, *SHORT, "--jobs", "seq_write")
    assert (code, facts["removed_leftovers"]) == (0, 0)
    assert len(corner_files(storage)) == 2
    process.terminate()
    process.communicate(timeout=300)
    assert list(storage.iterdir()) == []


def test_files_of_another_machine_are_left_until_its_heartbeat_is_old(work: Path, storage: Path) -> None:
    for name, age in (("fresh", 60), ("stale", 7200)):
        run_directory = storage / "plumbline-fio" / name
        run_directory.mkdir(parents=True)
        (run_directory / "client-0.dat").write_text("x")
        (run_directory / "owner.json").write_text(json.dumps({"host": "elsewhere", "boot": "b", "pid": 1}))
        then = time.time() - age
        os.utime(run_directory / "owner.json", (then, then))
    code, facts = run(work, "--directory", storage, *SHORT, "--jobs", "seq_write")
    assert (code, facts["removed_leftovers"]) == (0, 2)
    assert [path.name for path in (storage / "plumbline-fio").iterdir()] == ["fresh"]


def test_a_link_in_place_of_our_corner_is_not_followed(work: Path, storage: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (storage / "plumbline-fio").symlink_to(precious)
    code, facts = run(work, "--directory", storage, *SHORT)
    assert (code, facts["error"]["kind"]) == (12, "permission")
    assert list(precious.iterdir()) == []
