"""Batches of the fake cluster whose benchmark waits on every node for what a test does to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plumbline.tracking.run_directory import RunDirectory
from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.runs import LONG_S, UNTIL_THE_END, launches, log, prepare, wait_for

ALONE, GANG = [["n1"], ["n2"]], [["n1", "n2"]]


def nothing_is_left(cluster: FakeCluster) -> bool:
    return not cluster.workers() and not cluster.store.all("jobs")


def let_end(run: RunDirectory) -> None:
    """Let a benchmark that waits come to its end."""
    (run.path / "end").touch()


def running(cluster: FakeCluster, run: RunDirectory, count: int = 2) -> list[dict[str, Any]]:
    """Wait until the benchmark runs on every node; give its workers in the order of their nodes."""

    def begun() -> bool:
        files = list((run.evidence / "raw").glob("*/stdout"))
        return sum(text.read_text().count("begun") for text in files) + len(list(run.path.glob("began-*"))) >= count

    wait_for(begun, told=lambda: "\n".join(log(cluster, p["metadata"]["name"]) for p in cluster.store.all("pods")))
    return sorted(cluster.workers(), key=lambda p: p["spec"]["nodeName"])


def begin(
    cluster: FakeCluster,
    tmp_path: Path,
    groups: list[list[str]],
    at_once: bool = False,
    nodes: Sequence[str] = (),
    **changes: Any,
) -> RunDirectory:
    """Prepare a batch whose benchmark leaves a mark on every node, then ends at once or when `let_end` says so."""
    results = tmp_path / "results"
    wait = "" if at_once else f"{UNTIL_THE_END}; "
    script = f"touch ../../../began-$PLUMBLINE_NODE; {wait}echo done"
    images = {"launcher": "registry.example/launcher@sha256:" + "c" * 64}
    return prepare(results, launches(groups, script, timeout_s=LONG_S), {"images": images, **changes}, nodes)
