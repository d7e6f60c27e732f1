"""What Plumbline costs on Kubernetes: seconds of a launch; CPU, memory and requests of a launcher at a large scale."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import supervision
from benchmarks.child import answer, in_child
from benchmarks.ratios import interleave, mean_interval
from benchmarks.section import BUILD, Options, Row, Section

if TYPE_CHECKING:
    from tests.kubernetes.site import Site

METHOD = """\
*A launch*, on a real cluster: `plumbline.execution.kubernetes.launch` of a batch whose command is `true`, in a process
that is there already, until its record is there, against `kubectl run --restart=Never` of the same image and command
and `kubectl wait` for its success; pairs in alternating order, removal outside the time of both. What is added is the
difference, per pair, with Student's t interval. One node: the pod of the batch is the GPU pod itself. Gang: a
launcher's pod, two workers with sshd, and Open MPI's mpirun between them.
*The rest*, against the HTTP API of tests/kubernetes/fake. *Planning*: what a run does before it begins (inventory with
all checks, plan, its JSON), of nodes with 60 labels, 50 images and 8 pods each. *Supervising*: one launcher's process,
as it is, with all groups of a rung running at once; worker pods are scripted (SIMULATED: no processes), so that what
is counted is the launcher. For groups of 2 nodes Open MPI's mpirun and its daemons run as they are, with a stand-in for
ssh that runs the daemon on this machine; the commands end when all have begun. Memory is the largest sum of
proportional set sizes of the launcher and all its processes; its CPU time is its own, and with its children's."""

ADDED_MOST_S, PLAN_MOST_S, MEMORY_MOST_MIB, REQUESTS_MOST = 5.0, 5.0, 2048.0, 20.0
_WAIT = "--for=jsonpath={.status.phase}=Succeeded"


# -- a launch ---------------------------------------------------------------------------------------------------------


def measure_launches(pairs: int) -> dict[str, dict[str, list[float]]] | str:
    """Give seconds of launches and of bare pods, or what is missing to measure them.

    Runs as the owner of the results, as whom the pods run too: sshd in a pod without privileges can't be root's.
    """
    from tests.kubernetes.site import NEEDED

    kubectl = os.environ.get("KUBECTL", "kubectl")
    missing = [name for name in NEEDED if name not in os.environ]
    if missing or shutil.which(kubectl) is None:
        return "needs " + ", ".join([*missing, *([] if shutil.which(kubectl) else ["kubectl (KUBECTL)"])])
    results = Path(os.environ["KUBERNETES_TEST_RESULTS"])
    owner = results if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, results.stat().st_uid if owner else -1, -1)
        env = {"HOME": home, "PYTHONDONTWRITEBYTECODE": "1"}
        return dict(in_child("benchmarks.kubernetes", [kubectl, str(pairs)], env, owner).answer)


def launches(kubectl: str, pairs: int) -> dict[str, dict[str, list[float]]]:
    """Give seconds through Plumbline and bare, by pair, for a launch on one node and for a gang."""
    from tests.kubernetes.site import real_site

    found = {}
    with real_site() as site:
        for name, nodes in (("one node", site.nodes[:1]), ("gang of 2 nodes", site.nodes[:2])):
            through, bare = interleave(pairs, partial(_through, site, nodes), partial(_bare, site, kubectl, nodes[0]))
            found[name] = {"through": through, "bare": bare}
    return found


def _through(site: Site, nodes: Sequence[str]) -> float:
    from tests.kubernetes.runs import records

    from plumbline.execution import kubernetes

    prepared = site.prepare([nodes], "true")
    profile, specs = prepared.profile(), prepared.plan().launches
    start = time.monotonic()
    kubernetes.launch(profile, specs, prepared.evidence, lambda text: None)
    took = time.monotonic() - start
    [record] = records(prepared).values()
    if record["exit_code"] != 0:
        raise RuntimeError(f"a launch did not end well: {record}")
    site.nothing_is_left()
    return took


def _bare(site: Site, kubectl: str, node: str) -> float:
    name = f"bare-{secrets.token_hex(3)}"
    place = {"spec": {"nodeSelector": {"kubernetes.io/hostname": node}, "automountServiceAccountToken": False}}
    image = f"--image={os.environ['KUBERNETES_TEST_IMAGE']}"
    own = [kubectl, f"--namespace={site.namespace}"]
    start = time.monotonic()
    _run([*own, "run", name, image, "--image-pull-policy=IfNotPresent", "--restart=Never",
          f"--overrides={json.dumps(place)}", "--command", "--", "sh", "-c", "true"])  # fmt: skip
    _run([*own, "wait", f"pod/{name}", _WAIT, "--timeout=120s"])
    took = time.monotonic() - start
    _run([*own, "delete", "pod", name, "--wait=true", "--grace-period=1"])
    return took


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{argv[2]}: {done.stderr[-1000:]}")


def _launch_rows(found: Mapping[str, Mapping[str, Sequence[float]]] | str) -> list[Row]:
    limit = f"≤ {ADDED_MOST_S:g} s"
    if isinstance(found, str):
        return [Row(name="added to a launch", value=None, spread=found, limit=limit)]
    rows = []
    for name, seconds in found.items():
        through, bare = mean_interval(seconds["through"]), mean_interval(seconds["bare"])
        added = mean_interval([a - b for a, b in zip(seconds["through"], seconds["bare"], strict=True)])
        rows += [
            Row(name=f"launch, {name}", value=through.mean, unit="s", spread=through.shown()),
            Row(name=f"kubectl run, beside {name}", value=bare.mean, unit="s", spread=bare.shown()),
            Row(name=f"added to a launch, {name}", value=added.mean, unit="s", spread=added.shown(), limit=limit,
                held=added.mean <= ADDED_MOST_S),
        ]  # fmt: skip
    return rows


# -- at scale ---------------------------------------------------------------------------------------------------------


def _planning_rows(found: Mapping[str, Any]) -> list[Row]:
    rows = []
    for suite in ("nightly", "acceptance"):
        read, made = found["inventory"], found[suite]
        cpu = read["cpu_s"] + made["cpu_s"]
        told = (
            f"{read['cpu_s']:.1f} s inventory, {made['cpu_s']:.1f} s plan of {made['launches']} launches, "
            f"{made['bytes'] / 1e6:.0f} MB; by the clock {read['s'] + made['s']:.1f} s"
        )
        rows.append(Row(name=f"{suite} of {found['nodes']} nodes planned: CPU", value=cpu, unit="s", spread=told,
                        limit=f"≤ {PLAN_MOST_S:g} s", held=cpu <= PLAN_MOST_S))  # fmt: skip
    rows.append(Row(name="planning: peak memory", value=found["peak_mib"], unit="MiB"))
    return rows


def _rung_rows(found: Mapping[str, Any] | str, groups: int, nodes_each: int) -> list[Row]:
    what = f"{groups} groups of {nodes_each}"
    if isinstance(found, str):
        return [Row(name=f"{what}: supervised", value=None, spread=found)]
    made = f"launcher {found['python_mib']:.0f} MiB"
    if found["mpiruns"]:
        made += f" + {found['mpiruns']} mpirun of {found['mpirun_mib']:.2f} MiB"
    requests = f"{found['requests']} requests, {found['watches']} watch at a time"
    return [
        Row(name=f"{what}: all run after", value=found["all_run_s"], unit="s",
            spread=f"{found['wall_s']:.0f} s to the end of the launcher"),
        Row(name=f"{what}: launcher's CPU", value=found["cpu_s"], unit="s",
            spread=f"{found['cpu_with_children_s']:.1f} s with the commands it starts"),
        Row(name=f"{what}: peak memory", value=found["peak_mib"], unit="MiB", spread=made,
            limit=f"≤ {MEMORY_MOST_MIB:g} MiB", held=found["peak_mib"] <= MEMORY_MOST_MIB),
        Row(name=f"{what}: requests a second, mean", value=found["per_s_mean"], unit="1/s", spread=requests,
            limit=f"≤ {REQUESTS_MOST:g}", held=found["per_s_mean"] <= REQUESTS_MOST),
        Row(name=f"{what}: requests in the busiest second", value=found["per_s_peak"], unit="1/s",
            limit=f"≤ {REQUESTS_MOST:g}", held=found["per_s_peak"] <= REQUESTS_MOST),
        Row(name=f"{what}: watches open at a time", value=found["watches"], limit="1", held=found["watches"] == 1),
    ]  # fmt: skip


def measure(options: Options) -> Section:
    """Measure all; quick: 2 pairs, 16 nodes. What this machine or its cluster lacks is named, and the rest measured."""
    BUILD.mkdir(parents=True, exist_ok=True)
    nodes = 16 if options.quick else 1024
    launches = measure_launches(options.count(8, 2))
    planning = supervision.measure_planning(nodes)
    lacking = supervision.missing_programs()
    pairs = f"needs {lacking}" if lacking else supervision.supervise(nodes // 2, 2)
    alone = supervision.supervise(nodes, 1)
    rows = [
        *_launch_rows(launches), *_planning_rows(planning), *_rung_rows(pairs, nodes // 2, 2),
        *_rung_rows(alone, nodes, 1),
    ]  # fmt: skip
    raw = {"launches": launches, "planning": planning, "pairs": pairs, "alone": alone}
    title = "Kubernetes: a launch, and one launcher of a large cluster"
    return Section(name="kubernetes", title=title, method=METHOD, rows=rows, raw=raw)


if __name__ == "__main__":
    answer(launches(sys.argv[1], int(sys.argv[2])))
