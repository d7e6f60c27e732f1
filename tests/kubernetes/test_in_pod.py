"""The programs inside pods: what they need, what they say of themselves, and real Open MPI over real sshd."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from plumbline.kubernetes import files, ssh
from plumbline.kubernetes.idle import wait_until_idle
from plumbline.kubernetes.worker import sshd_config
from plumbline.model import Code
from tests.kubernetes.fake import FakeCluster, kubelet
from tests.kubernetes.profiles import spec
from tests.kubernetes.runs import ROOT, finish, launches, log, prepare, records, start

IN_POD = (
    "api",
    "diagnosis",
    "files",
    "gang",
    "idle",
    "launches",
    "mirror",
    "node",
    "probe",
    "ssh",
    "sweeping",
    "worker",
)


def test_what_runs_in_a_pod_needs_only_the_standard_library() -> None:
    names = ", ".join(f"plumbline.kubernetes.{name}" for name in IN_POD)
    program = f"""
import sys, json
sys.path.insert(0, {str(ROOT / "include")!r})
import {names}
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    foreign = set(json.loads(done.stdout)) - set(sys.stdlib_module_names) - {"plumbline", "__main__"}
    assert not {name for name in foreign if not name.startswith("_")}


# -- idle ----------------------------------------------------------------------------------------------------------

LIMITS = {"utilization_percent": 5, "temperature_degc": 60, "wait_s": 0}


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ([], None),
        ([{"index": "0", "utilization.gpu": "0", "temperature.gpu": "40"}], None),
        ([{"index": "0", "utilization.gpu": "[N/A]"}], None),
        ([{"index": "3", "utilization.gpu": "97"}], "GPU 3 is at 97% busy (limit 5)"),
        ([{"index": "0", "utilization.gpu": "0", "temperature.gpu": "71"}], "GPU 0 is at 71 °C (limit 60)"),
    ],
)
def test_busy_or_hot_gpus_are_not_measured(gpus: list[dict[str, str]], words: str | None) -> None:
    found = wait_until_idle(LIMITS, lambda: {"gpus": gpus})
    assert (found is None) if words is None else (words in str(found))


def test_gpus_that_cool_down_in_time_are_measured() -> None:
    temperatures = ["70", "65", "50"]
    look = lambda: {"gpus": [{"index": "0", "temperature.gpu": temperatures.pop(0)}]}  # noqa: E731
    assert wait_until_idle({**LIMITS, "wait_s": 60}, look, every_s=0) is None
    assert temperatures == []


# -- files ---------------------------------------------------------------------------------------------------------


def test_a_fault_never_takes_an_attempt_that_somebody_claimed(tmp_path: Path) -> None:
    evidence = tmp_path / "evidence"
    one = spec(["n1"])
    files.claim(evidence, one, 1)
    record = files.record_fault(one, evidence, Code.NODE_LOST, "gone")
    assert (record.attempt, files.next_attempt(evidence, one.launch_id)) == (2, 3)
    assert not files.answered(evidence, one.launch_id)
    with pytest.raises(files.AttemptTakenError):
        files.claim(evidence, one, 2)


def test_a_heart_stops_when_the_beat_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(files.time, "monotonic", lambda: now)
    evidence = tmp_path / "evidence"
    files.beat(evidence, "uid")
    heart = files.Heart(evidence, "uid", 20)
    assert not heart.stopped()
    now += 25
    time.sleep(0.01)  # beats differ by their time
    files.beat(evidence, "uid")
    assert not heart.stopped()
    now += 25
    assert heart.stopped()
    assert not files.Heart(evidence, "", 0.0).stopped()


# -- ssh -----------------------------------------------------------------------------------------------------------


def test_a_command_that_knows_no_hosts_is_started_on_every_node() -> None:
    one = spec(["n1", "n2"], argv=("python3", "-m", "plumbline_bench.fio_clients", "--directory", "/x"))
    command = ssh.command_of(one)
    assert command[:8] == ("python3", "-m", "plumbline_bench.mpi_ranks", "--hosts", "n1,n2", "--per-node", "1", "--")
    assert command[8:] == one.argv
    keys = ssh.Keys(Path("/k"), "p")
    assert float(ssh.environment_of(one, ["a", "b"], keys, 2222)["PLUMBLINE_START_AT"]) > 0
    knows = spec(["n1", "n2"])
    assert ssh.command_of(knows) == knows.argv
    assert "PLUMBLINE_START_AT" not in ssh.environment_of(knows, ["a", "b"], keys, 2222)


def test_sessions_get_the_pods_environment_and_no_secret_of_the_worker() -> None:
    pods = {"NCCL_A": "x y", "HOME": "/", "BAD": 'a"b', "PLUMBLINE_PUBLIC_KEY": "k"}
    text = sshd_config(Path("/t"), "10.0.0.1", 2222, pods)
    assert 'SetEnv "NCCL_A=x y"\n' in text
    assert "PasswordAuthentication no" in text
    assert "BAD" not in text


@pytest.mark.skipif(not (shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()), reason="no Open MPI or no sshd")
def test_open_mpi_and_sshd_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything but the cluster is real: keys, sshd without privileges, mpirun through it, the pod's environment."""
    monkeypatch.setattr(kubelet, "BIN", "/usr/sbin")
    here: dict[str, Any] = {"kubernetes": {"environment": {"NCCL_PLANTED": "a b"}, "ssh_port": 2223}}
    script = "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE on $PLUMBLINE_NODE $NCCL_PLANTED"
    with FakeCluster(tmp_path / "cluster", nodes=["n1", "n2"]) as cluster:
        run = prepare(tmp_path / "results", launches([["n2", "n1"]], script), here)
        name = start(cluster, run)
        assert finish(cluster, name) == 0, log(cluster, name)
        [record] = records(run).values()
        assert record["outcome"] == "exited", record["reason"]
        folder = run.evidence / record["raw_dir"]
        said = (folder / "stdout").read_text() + (folder / "stderr").read_text()
        assert record["exit_code"] == 0, said + os.linesep + json.dumps(record, indent=1)
        lines = sorted(line for line in said.splitlines() if line.startswith("rank"))
        assert lines == ["rank 0 of 2 on n2 a b", "rank 1 of 2 on n1 a b"]
