"""Prepare a run whose launches are commands of the test's own, for what happens between `prepare` and `seal`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plumbline.clusters.profile import ClusterProfile
from plumbline.execution.plan import Batch, Plan, plan_data
from plumbline.suites.suite import Suite
from plumbline.tracking.run_directory import RunDirectory, new_run_id
from tests.test_model import a_spec


def prepare_run(
    results: Path, commands: Mapping[str, Sequence[str]], *, launcher: str = "local", timeout_s: float = 60.0
) -> RunDirectory:
    """Write an unsealed run; `commands` gives the argv of each batch, which holds one launch."""
    cluster: dict[str, Any] = {"nodes": {"emulated": 1}}
    if launcher == "kubernetes":
        cluster = {
            "nodes": {"selector": {"gpu": "yes"}}, "programs": "/programs",
            "images": {"echo": "registry.example/echo@sha256:" + "0" * 64},
            "kubernetes": {"results": {"host_path": str(results), "mount": str(results)}},
        }  # fmt: skip
    profile = ClusterProfile.model_validate(
        {
            "name": "tiny",
            "title": "A cluster of the tests",
            "launcher": launcher,
            "device": "cpu",
            "accelerator": {"model": "cpu", "per_node": 1},
            "fabric": {"name": "loopback"},
            **cluster,
            "storage": {"directory": str(results / "storage")},
        }
    )
    suite = Suite.model_validate(
        {"name": "tiny", "title": "Tiny", "kind": "nightly", "gate": {}, "benchmarks": [{"benchmark": "fio"}]}
    )
    run_id = new_run_id()
    specs = [
        replace(
            a_spec(argv=tuple(argv), timeout_s=timeout_s), launch_id=f"{batch_id}-g0-r1", run_id=run_id, cluster="tiny"
        )
        for batch_id, argv in commands.items()
    ]
    batches = [
        Batch(batch_id=batch_id, benchmark="echo", node_count=1, launch_ids=(spec.launch_id,))
        for batch_id, spec in zip(commands, specs, strict=True)
    ]
    plan = Plan(
        run_id=run_id, cluster="tiny", suite="tiny", seed=1, inventory=(), launches=tuple(specs), batches=tuple(batches)
    )
    run = RunDirectory.create(results, "tiny", "tiny", run_id)
    run.write_evidence("profile", profile.model_dump(mode="json"))
    run.write_evidence("suite", suite.model_dump(mode="json"))
    run.write_evidence("plan", plan_data(plan))
    return run
