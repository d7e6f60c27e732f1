"""The DAGs load, say what they are, keep their size, and hang together as the pipeline promises."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
STAGES = ["prepare", "launch", "seal", "judge", "report", "track", "notify"]


@pytest.fixture(scope="module")
def dags(airflow_database: Path) -> Mapping[str, Any]:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(ROOT / "dags")
    assert bag.import_errors == {}
    assert set(bag.dags) == {"acceptance", "nightly_baseline", "nightly_watch", "reaper"}
    return bag.dags


@pytest.fixture(scope="module")
def pipelines(dags: Mapping[str, Any]) -> Mapping[str, Any]:
    return {dag_id: dag for dag_id, dag in dags.items() if dag_id not in ("nightly_watch", "reaper")}


@pytest.mark.parametrize("path", sorted((ROOT / "dags").glob("*.py")), ids=lambda p: p.name)
def test_a_dag_file_says_only_when_and_where(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 40


def test_every_dag_explains_itself(dags: Mapping[str, Any]) -> None:
    for dag in dags.values():
        assert dag.doc_md.startswith("# ")
        assert len(dag.doc_md) > 200
        assert dag.tags == {"plumbline"}
        assert dag.max_active_runs == 1


def test_the_stages_follow_each_other(pipelines: Mapping[str, Any]) -> None:
    for dag in pipelines.values():
        for earlier, later in zip(STAGES, [*STAGES[1:], "gate"], strict=True):
            assert later in dag.get_task(earlier).downstream_task_ids
        assert dag.get_task("gate").downstream_task_ids == set()  # a leaf: its failure is the run's


def test_a_stage_that_failed_is_seen_whatever_runs_after_it(pipelines: Mapping[str, Any]) -> None:
    for dag in pipelines.values():
        watcher = dag.get_task("stage_failed")
        assert watcher.upstream_task_ids == set(STAGES)
        assert watcher.trigger_rule == "one_failed"
        assert watcher.downstream_task_ids == set()
        assert watcher.on_failure_callback


@pytest.mark.parametrize("task_id", ["seal", "track", "notify", "gate"])
def test_what_must_run_after_a_failure_does(pipelines: Mapping[str, Any], task_id: str) -> None:
    for dag in pipelines.values():
        assert dag.get_task(task_id).trigger_rule == "all_done"


def test_launches_run_one_after_the_other_in_a_pool_that_the_settings_make(pipelines: Mapping[str, Any]) -> None:
    settings = yaml.safe_load((ROOT / "airflow_settings.yaml").read_text())["airflow"]
    pools = {entry["pool_name"] for entry in settings["pools"]}
    for dag in pipelines.values():
        launch = dag.get_task("launch")
        assert launch.max_active_tis_per_dagrun == 1
        assert launch.partial_kwargs["pool"] in pools


def test_the_sign_off_cannot_turn_a_closed_gate_green(dags: Mapping[str, Any]) -> None:
    dag = dags["acceptance"]
    assert "gate" not in dag.get_task("sign_off").upstream_task_ids | dag.get_task("decision").upstream_task_ids
    assert dag.get_task("sign_off").defaults == ["Reject"]
    assert dag.get_task("sign_off").response_timeout is not None
    assert {task.task_id for task in dag.tasks if not task.downstream_task_ids} == {"gate", "stage_failed", "decision"}


def test_every_task_ends(dags: Mapping[str, Any]) -> None:
    """Launches set their limit from the plan when they start; a person has a time limit of another kind."""
    for dag in dags.values():
        for task in dag.tasks:
            if task.task_id not in ("launch", "sign_off", "stage_failed", "decision"):
                assert task.execution_timeout, f"{dag.dag_id}.{task.task_id}"


def test_a_dag_can_be_run_without_a_scheduler(dags: Mapping[str, Any]) -> None:
    """A DeadlineAlert breaks DAG.test, and so `make baseline`: docs/decisions/0006."""
    assert [dag.dag_id for dag in dags.values() if dag.deadline] == []


# -- the trigger forms -----------------------------------------------------------------------------------------------


def with_params(dag: Any, **values: Any) -> None:
    from airflow.sdk.definitions.param import ParamsDict

    params = ParamsDict({key: dag.params.get_param(key) for key in dag.params})
    params.update(values)
    params.validate()


@pytest.mark.parametrize("values", [
    {},
    {"cluster": "local", "suite": "acceptance", "node_counts": [1, 2, 4], "repeats": 3, "note": "rack 7"},
    {"node_counts": "ladder"},
    {"node_counts": "1,2, 4"},
    {"node_counts": None, "repeats": None, "note": None},
])  # fmt: skip
def test_the_acceptance_form_takes_what_makes_sense(dags: Mapping[str, Any], values: dict[str, Any]) -> None:
    with_params(dags["acceptance"], **values)


@pytest.mark.parametrize("values", [
    {"cluster": "lcal"},
    {"cluster": None},
    {"suite": "nigthly"},
    {"node_counts": [0]},
    {"node_counts": ["1"]},
    {"node_counts": []},
    {"node_counts": [2, 2]},
    {"node_counts": "0,1"},
    {"node_counts": "1;2"},
    {"node_counts": 4},
    {"repeats": 0},
    {"repeats": 51},
    {"repeats": "3"},
    {"note": "x" * 501},
])  # fmt: skip
def test_the_acceptance_form_refuses_what_does_not(dags: Mapping[str, Any], values: dict[str, Any]) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        with_params(dags["acceptance"], **values)


def test_no_field_of_a_form_is_required_but_empty(dags: Mapping[str, Any]) -> None:
    """An empty string in a field of type string disables the form's Trigger button."""
    for dag in dags.values():
        for name in dag.params:
            assert dag.params.get_param(name).value != "", f"{dag.dag_id}.{name}"
