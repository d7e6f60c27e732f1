"""The same on a real cluster: tests.kubernetes.site says which variables it needs."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import date
from types import SimpleNamespace

import pytest

from plumbline.execution import kubernetes
from plumbline.kubernetes.doctor import State, quick_checks
from plumbline.tracking.run_directory import RunDirectory
from plumbline_airflow.launch import LaunchOperator
from tests.kubernetes.runs import outcomes, records, wait_for
from tests.kubernetes.site import NEEDED, Site, real_site

pytestmark = [
    pytest.mark.kubernetes,
    pytest.mark.skipif(not all(name in os.environ for name in NEEDED), reason=f"needs {', '.join(NEEDED)}"),
]


@pytest.fixture(scope="module", name="site")
def _site() -> Iterator[Site]:
    with real_site() as site:
        yield site


def test_the_doctor_finds_nothing_that_a_run_needs(site: Site) -> None:
    wrong = [c for c in quick_checks(site.api, site.profile(), date.today()) if c.state is State.FAIL]
    assert wrong == []


def run(site: Site, prepared: RunDirectory) -> None:
    kubernetes.launch(prepared.profile(), prepared.plan().launches, prepared.evidence, print)


def test_one_node(site: Site) -> None:
    prepared = site.prepare([site.nodes[:1]], "echo on $PLUMBLINE_NODE")
    run(site, prepared)
    [record] = records(prepared).values()
    assert (record["outcome"], record["hosts"]) == ("exited", [site.nodes[0]]), record
    site.nothing_is_left()


def test_groups_of_one_node(site: Site) -> None:
    prepared = site.prepare([[node] for node in site.nodes], "echo on $PLUMBLINE_NODE")
    run(site, prepared)
    assert sorted(r["hosts"][0] for r in records(prepared).values() if r["outcome"] == "exited") == sorted(site.nodes)
    site.nothing_is_left()


def test_a_gang_of_all_nodes(site: Site) -> None:
    prepared = site.prepare([site.nodes], "echo rank $OMPI_COMM_WORLD_RANK on $PLUMBLINE_NODE")
    run(site, prepared)
    [record] = records(prepared).values()
    said = (prepared.evidence / record["raw_dir"] / "stdout").read_text()
    assert (record["outcome"], record["exit_code"]) == ("exited", 0), (record["reason"], said)
    assert {line.split()[-1] for line in said.splitlines() if line.startswith("rank")} == set(site.nodes)
    site.nothing_is_left()


@pytest.mark.parametrize("whose", ["worker", "launcher"])
def test_a_gang_that_loses_a_pod(site: Site, whose: str) -> None:
    prepared = site.prepare([site.nodes[:2]], "touch ../../../began-$PLUMBLINE_NODE; sleep 60")
    thread = threading.Thread(target=run, args=(site, prepared), daemon=True)
    thread.start()
    wait_for(lambda: len(list(prepared.path.glob("began-*"))) == 2, 180)
    parts = {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod for pod in site.pods()}
    site.delete(parts[whose])
    thread.join(120)
    assert not thread.is_alive()
    assert set(outcomes(prepared).values()) <= {"infrastructure:infrastructure", "stopped:stopped"}
    assert outcomes(prepared)
    site.nothing_is_left()


def test_an_image_that_does_not_exist(site: Site) -> None:
    image = os.environ["KUBERNETES_TEST_IMAGE"]
    prepared = site.prepare([site.nodes[:1]], "true", image_mirror={image: "registry.invalid/none"})
    run(site, prepared)
    assert list(outcomes(prepared).values()) == ["infrastructure:image_pull"]
    site.nothing_is_left()


def test_the_operator(site: Site) -> None:
    prepared = site.prepare([site.nodes[:2]], "true")
    ti = SimpleNamespace(
        dag_id="d", task_id="launch", map_index=0, try_number=1, max_tries=0, xcom_push=lambda key, value: None
    )
    batch = prepared.plan().batches[0].batch_id
    launch = LaunchOperator(task_id="launch", run_dir=str(prepared.path), batch_id=batch)
    launch.execute({"ti": ti, "run_id": "manual__1", "dag": None})  # type: ignore[typeddict-item]
    assert list(outcomes(prepared).values()) == ["exited"]
    site.nothing_is_left()
