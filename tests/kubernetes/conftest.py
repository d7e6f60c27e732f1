"""The fake cluster that batches are launched on, and the groups of nodes that they are launched for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.fake import FakeCluster
from tests.kubernetes.gangs import ALONE, GANG
from tests.kubernetes.runs import let_all_end


@pytest.fixture(name="cluster")
def _cluster(tmp_path: Path) -> Iterator[FakeCluster]:
    with FakeCluster(tmp_path / "cluster", nodes=[]) as cluster:
        cluster.add_node("cpu", 0)  # the first that fits a launcher
        for number in range(1, 5):
            cluster.add_node(f"n{number}", 8)
        yield cluster
    let_all_end(tmp_path / "results")


@pytest.fixture(params=[ALONE, GANG], ids=["single-node", "gang"], name="groups")
def _groups(request: pytest.FixtureRequest) -> list[list[str]]:
    return request.param
