"""A large cluster planned, and its launcher, against the tests' Kubernetes API: python -m benchmarks.supervision."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import psutil

from benchmarks.child import answer, in_child
from benchmarks.section import BUILD

MPIRUN = ("mpirun", "orterun", "prterun")
_SSH = """\
#!/bin/sh
# Stands in for ssh: runs the command here, as if this machine were the host, in a /tmp of that host's own.
while [ "${1#-}" != "$1" ]; do case $1 in -[iop]) shift 2 ;; *) shift ;; esac; done
export TMPDIR="${0%/*}/tmp/$1"
mkdir -p "$TMPDIR"
shift
exec sh -c "$*"
"""
_WAITS = {"start_s": 600, "unschedulable_s": 300, "orphan_s": 120, "grace_s": 10}
_SAMPLE_S = 10.0
_RUN_LIMIT_S = 900.0
_PODS_A_NODE, _LABELS_A_NODE, _IMAGES_A_NODE = 8, 60, 50
"""What a node of a real cluster carries besides: daemons, discovered features, images."""


def missing_programs() -> str:
    """Name what supervising gangs needs and this machine lacks; "" for nothing."""
    return ", ".join(name for name in ("mpirun", "ssh-keygen") if shutil.which(name) is None)


# -- planning ---------------------------------------------------------------------------------------------------------


def measure_planning(count: int) -> dict[str, Any]:
    """Give seconds of reading the inventory of `count` nodes, of planning both suites, and bytes of the larger plan."""
    from tests.kubernetes.fake import FakeCluster

    with tempfile.TemporaryDirectory(dir=BUILD, prefix="planning-") as name:
        cluster = FakeCluster(Path(name), nodes=[])  # only its API: nothing is scheduled
        try:
            for number in range(count):
                _furnished_node(cluster, f"n{number:04}")
            cost = in_child("benchmarks.supervision", ["plan", str(cluster.kubeconfig()), name])
            return {**cost.answer, "peak_mib": cost.peak_mib}
        finally:
            cluster.api.stop()


def _furnished_node(cluster: Any, name: str) -> None:
    cluster.add_node(name, 8)
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{n}": "true" for n in range(_LABELS_A_NODE)}
    images = [
        {"names": [f"registry.example/image-{n}@sha256:{n:064}"], "sizeBytes": 1 << 30} for n in range(_IMAGES_A_NODE)
    ]

    def furnish(node: dict[str, Any]) -> None:
        node["metadata"]["labels"].update(labels)
        node["status"]["images"] = images

    cluster.store.change(("nodes", "", name), furnish)
    container = {"name": "c", "image": "registry.example/daemon", "resources": {"requests": {"cpu": "100m"}}}
    for number in range(_PODS_A_NODE):
        cluster.store.create("pods", "kube-system", {
            "metadata": {"name": f"daemon-{number}-{name}"}, "status": {"phase": "Running"},
            "spec": {"nodeName": name, "containers": [container]},
        })  # fmt: skip


def plan(kubeconfig: str, results: str) -> dict[str, Any]:
    """Read the inventory with all checks, and plan, as the beginning of a run does."""
    from tests.kubernetes.profiles import IMAGE, profile

    from plumbline.execution import kubernetes
    from plumbline.execution.plan import make_plan, plan_data
    from plumbline.suites.suite import load_suite

    suites = [load_suite("nightly"), load_suite("acceptance")]
    chosen = profile({
        "images": {entry.benchmark: IMAGE for suite in suites for entry in suite.benchmarks},
        "benchmarks": {name: {"eval_samples": 16384} for name in ("mlperf_gpt3", "mlperf_bert")},
        "kubernetes": {
            "access": {"kubeconfig": kubeconfig}, "results": {"claim": None, "host_path": results, "mount": results},
        },
    })  # fmt: skip
    start, cpu = time.monotonic(), time.process_time()
    inventory = kubernetes.inventory(chosen, date.today())
    read = {"s": time.monotonic() - start, "cpu_s": time.process_time() - cpu}
    found: dict[str, Any] = {"nodes": len(inventory), "inventory": read}
    for suite in suites:
        begun, cpu = time.monotonic(), time.process_time()
        made = make_plan(chosen, suite, inventory, run_id="20260101T000000Z-abcdef", seed=1)
        size = len(json.dumps(plan_data(made)))
        found[suite.name] = {
            "s": time.monotonic() - begun, "cpu_s": time.process_time() - cpu, "launches": len(made.launches),
            "bytes": size,
        }  # fmt: skip
    if any(node.unusable for node in inventory):
        raise RuntimeError("the fake cluster's nodes should all be usable")
    return found


# -- supervising ------------------------------------------------------------------------------------------------------


def supervise(groups: int, nodes_each: int) -> dict[str, Any]:
    """Run one rung in a process of its own: groups of nodes whose pods are scripted, under a real launcher."""
    return dict(in_child("benchmarks.supervision", ["rung", str(groups), str(nodes_each)]).answer)


def rung(folder: Path, groups: int, nodes_each: int) -> dict[str, Any]:
    """Give what the launcher cost while all groups ran at once. Raises RuntimeError when a launch failed."""
    from tests.kubernetes.fake import FakeCluster
    from tests.kubernetes.runs import finish, launches, log, outcomes, prepare, start

    names = [[f"n{group * nodes_each + node:04}" for node in range(nodes_each)] for group in range(groups)]
    gate = folder / "gate"
    os.mkfifo(gate)
    programs = _programs(folder)
    with FakeCluster(folder / "cluster", nodes=[]) as cluster:
        cluster.add_node("cpu", 0)
        for name in (name for group in names for name in group):
            cluster.add_node(name, 8)
        specs = launches(names, f"echo up; : < {gate}", timeout_s=_RUN_LIMIT_S)
        changes = {"kubernetes": {"waits": _WAITS, "environment": {"PATH": f"{programs}:{os.environ['PATH']}"}}}
        run = prepare(folder / "results", specs, changes)
        over = threading.Event()
        cluster.script = _worker(run.evidence, over)
        began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        pod = start(cluster, run)
        watch = Watch(_process_of(cluster, pod), lambda: log(cluster, pod))
        files = [run.evidence / "raw" / f"{one.launch_id}.a1" / "stdout" for one in specs]
        all_run = watch.until(lambda: _running(cluster, groups * nodes_each) and (nodes_each == 1 or _all_up(files)))
        plateau = time.monotonic()
        for _ in range(3):
            watch.sample()
            watch.until(lambda: time.monotonic() - plateau > 10)
        with _opened(gate), watch.to_the_end():
            over.set()
            code = finish(cluster, pod, _RUN_LIMIT_S)
        ended, after = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        if code or set(outcomes(run).values()) != {"exited"} or len(outcomes(run)) != groups:
            raise RuntimeError(f"exit code {code}; {sorted(set(outcomes(run).values()))}; {log(cluster, pod)[-2000:]}")
        moments = [at for at, _, _ in cluster.api.requests]
        return {
            "groups": groups, "nodes_each": nodes_each, "all_run_s": all_run - began, "wall_s": ended - began,
            "cpu_s": watch.cpu_s, "cpu_with_children_s": _cpu(after) - _cpu(used), "peak_mib": watch.peak_mib,
            "python_mib": watch.python_mib, "mpirun_mib": watch.mpirun_mib, "mpiruns": watch.mpiruns,
            "requests": len(moments), "per_s_mean": len(moments) / (ended - began), "per_s_peak": busiest(moments),
            "watches": cluster.api.most_watching,
        }  # fmt: skip


def busiest(moments: Sequence[float], window_s: float = 1.0) -> int:
    """Give the most moments within any window."""
    most = first = 0
    for last, moment in enumerate(moments := sorted(moments)):
        while moment - moments[first] >= window_s:
            first += 1
        most = max(most, last - first + 1)
    return most


def _programs(folder: Path) -> Path:
    """Give a folder with a stand-in for ssh: Open MPI's own mpirun and daemons run as they are."""
    found = folder / "bin"
    found.mkdir()
    (found / "ssh").write_text(_SSH)
    (found / "ssh").chmod(0o755)
    return found


def _running(cluster: Any, workers: int) -> bool:
    return sum(one.ready and "plumbline/launch" in one.pod["metadata"]["labels"]
               for one in list(cluster.containers.values())) == workers  # fmt: skip


def _all_up(files: Sequence[Path]) -> bool:
    return all(file.is_file() and file.read_text().count("up\n") == 2 for file in files)


def _process_of(cluster: Any, pod: str) -> psutil.Process:
    from tests.kubernetes.runs import wait_for

    container = wait_for(lambda: next((c for c in list(cluster.containers.values())
                                       if c.pod["metadata"]["name"] == pod), None))  # fmt: skip
    return psutil.Process(container.process.pid)


def _worker(evidence: Path, over: threading.Event) -> Callable[[Mapping[str, Any], bool], int | None]:
    """Give what stands for the programs of worker pods: they leave on the volume what those would."""
    from plumbline.execution.environment import hardware_identity, snapshot, software_environment
    from plumbline.execution.run_one import write_atomically
    from plumbline.kubernetes import files

    told = json.dumps({"hardware": hardware_identity(), "software": software_environment(), "snapshot": snapshot()})
    before: set[str] = set()

    def script(pod: Mapping[str, Any], asked: bool) -> int | None:
        labels, uid = pod["metadata"]["labels"], pod["metadata"]["uid"]
        launch_id, attempt = labels["plumbline/launch"], int(labels["plumbline/attempt"])
        if "plumbline.kubernetes.node" in pod["spec"]["containers"][0]["command"]:
            if asked or over.is_set():
                _leave_record(evidence, launch_id, attempt)
            return 0 if asked or over.is_set() else None
        said = files.pods_folder(evidence) / f"{launch_id}.a{attempt}" / f"{pod['spec']['nodeName']}."
        if uid not in before:
            before.add(uid)
            write_atomically(Path(f"{said}before.json"), told)
        if asked:
            write_atomically(Path(f"{said}after.json"), told)
        return 0 if asked else None

    return script


def _leave_record(evidence: Path, launch_id: str, attempt: int) -> None:
    from plumbline.execution.environment import utc_now
    from plumbline.execution.run_one import write_record
    from plumbline.kubernetes import files
    from plumbline.model import Outcome, RunRecord

    spec = files.read_spec(evidence, launch_id)
    raw_dir = files.claim(evidence, spec, attempt)
    write_record(RunRecord(
        launch_id=launch_id, run_id=spec.run_id, cluster=spec.cluster, attempt=attempt, spec_sha256=spec.digest(),
        outcome=Outcome.EXITED, exit_code=0, signal=None, reason="", argv=spec.argv, hosts=spec.nodes,
        started_at=utc_now(), ended_at=utc_now(), duration_s=0.0, origin=spec.origin, device=spec.device,
        raw_dir=f"raw/{raw_dir.name}",
    ), evidence)  # fmt: skip


class Watch:
    """Looks at a launcher and all its processes: memory now and then, its own CPU time every second."""

    def __init__(self, process: psutil.Process, log: Callable[[], str]) -> None:
        self.process, self.log = process, log
        self.cpu_s = self.peak_mib = self.python_mib = self.mpirun_mib = 0.0
        self.mpiruns = 0
        self._sampled = time.monotonic()

    def until(self, condition: Callable[[], bool]) -> float:
        """Watch until something is true; give when that was. Raises RuntimeError when it takes too long."""
        end = time.monotonic() + _RUN_LIMIT_S
        while not condition():
            if time.monotonic() > end or not self._look():
                raise RuntimeError(f"the launcher ended, or its launches never all ran; {self.log()[-2000:]}")
            time.sleep(0.5)
        return time.monotonic()

    def sample(self) -> None:
        """Add up the proportional set sizes of the launcher and its children."""
        self._sampled = time.monotonic()
        own, mpiruns, others = 0.0, [], 0.0
        for one in [self.process, *self.process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error, OSError):
                size = _pss_mib(one.pid)
                name = one.name()
                if one.pid == self.process.pid:
                    own = size
                elif name in MPIRUN:
                    mpiruns.append(size)
                else:
                    others += size
        total = own + sum(mpiruns) + others
        if total > self.peak_mib:
            self.peak_mib, self.python_mib, self.mpiruns = total, own, len(mpiruns)
            self.mpirun_mib = sum(mpiruns) / len(mpiruns) if mpiruns else 0.0

    @contextlib.contextmanager
    def to_the_end(self) -> Iterator[None]:
        """Go on looking, from a thread, until the launcher ends."""
        done = threading.Event()

        def look() -> None:
            while not done.wait(0.5) and self._look():
                pass

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _look(self) -> bool:
        try:
            times = self.process.cpu_times()
            alive = self.process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False
        self.cpu_s = max(self.cpu_s, times.user + times.system)
        if alive and time.monotonic() - self._sampled > _SAMPLE_S:
            self.sample()
        return alive


def _pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


@contextlib.contextmanager
def _opened(gate: Path) -> Iterator[None]:
    """Hold the gate open, which every command waits for."""
    stream = os.open(gate, os.O_RDWR)
    try:
        yield
    finally:
        os.close(stream)


def _cpu(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def main(arguments: Sequence[str]) -> None:
    """Do one child's work and answer."""
    if arguments[0] == "plan":
        answer(plan(*arguments[1:]))
        return
    with tempfile.TemporaryDirectory(dir=BUILD, prefix="rung-") as name:
        answer(rung(Path(name), int(arguments[1]), int(arguments[2])))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
