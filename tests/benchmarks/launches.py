"""A planned launch of a benchmark and the record that it ended well: what the tests of every benchmark measure."""

from __future__ import annotations

from typing import Any

from plumbline.benchmarks import resolve_params
from plumbline.benchmarks.benchmark import Benchmark, Placement
from plumbline.model import Contends, LaunchSpec, Outcome, RunRecord, Scalar


def launch(module: Benchmark, place: Placement, **given: Scalar) -> LaunchSpec:
    """Plan one launch with these parameters given."""
    params = resolve_params(module, given, "test")
    command = module.command(place, params)
    return LaunchSpec(
        launch_id=f"{module.NAME}-n{place.node_count}-g0-r1", run_id="20260101T000000Z-aaaaaa", cluster="test",
        benchmark=module.NAME, benchmark_version=module.VERSION, reader=module.READER, node_count=place.node_count,
        wave=1, group=0, repeat=1, nodes=place.nodes, accelerators_per_node=place.accelerators_per_node,
        device=place.device, origin=place.origin, contends=Contends(module.CONTENDS), params=params,
        argv=command.argv, env=command.env, timeout_s=command.timeout_s, outputs=command.outputs,
        expect=command.expect,
    )  # fmt: skip


def record(spec: LaunchSpec, **changes: Any) -> RunRecord:
    """Say that the launch ran for a minute and exited with 0, but for `changes`."""
    fields = {
        "launch_id": spec.launch_id, "run_id": spec.run_id, "cluster": spec.cluster, "attempt": 1,
        "spec_sha256": spec.digest(), "outcome": Outcome.EXITED, "exit_code": 0, "signal": None, "reason": "",
        "argv": spec.argv, "hosts": spec.nodes, "started_at": "2026-01-01T00:00:00.000000Z",
        "ended_at": "2026-01-01T00:01:00.000000Z", "duration_s": 60.0, "origin": spec.origin, "device": spec.device,
        "raw_dir": "raw/x.a1",
    }  # fmt: skip
    return RunRecord(**{**fields, **changes})
