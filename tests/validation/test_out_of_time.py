"""Whether a run's launches lie within the time that one run may take: made-up times, no output read."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.validation import good_run

from plumbline.execution.plan import Batch, Plan
from plumbline.model import Outcome, RunRecord
from plumbline.tracking.run_directory import RunDirectory
from plumbline.validation.record_checks import out_of_time

BEGIN = datetime(2026, 3, 1, 2, tzinfo=UTC)
HOUR = 3600.0


def at(hours: float, attempt: int = 1, lasted_s: float = 60.0, outcome: Outcome = Outcome.EXITED) -> RunRecord:
    began = BEGIN + timedelta(hours=hours)
    return RunRecord(
        launch_id="", run_id="", cluster="", attempt=attempt, spec_sha256="", outcome=outcome, exit_code=0,
        signal=None, reason="", argv=(), hosts=(), started_at=began.isoformat(),
        ended_at=(began + timedelta(seconds=lasted_s)).isoformat(), duration_s=lasted_s,
        origin=good_run.Origin.SIMULATED, device=good_run.Device.GPU, raw_dir="",
    )  # fmt: skip


def old(*records: RunRecord, sealed: float = 1000.0, timeout_s: float = 60.0, earlier: Any = None) -> list[int]:
    """Give which of the records are too old, by their place; each is a launch of its own, in a batch of its own."""
    run = cast(RunDirectory, SimpleNamespace(sealed_at=lambda: BEGIN + timedelta(hours=sealed)))
    ids = [f"launch{n}" for n in range(len(records))]
    by_launch = {one: (record, [*(earlier or {}).get(n, ()), record]) for n, (one, record) in
                 enumerate(zip(ids, records, strict=True))}  # fmt: skip
    found = out_of_time(run, plan_of(ids, timeout_s), good_run.profile(limits={"minutes": 240}), by_launch)
    return [n for n, one in enumerate(ids) if one in found]


def plan_of(ids: list[str], timeout_s: float) -> Plan:
    spec = good_run._spec("collective", 1, 1, 0, 1, ("n0001",))
    return Plan(
        run_id=good_run.RUN_ID, cluster="made-up", suite="nightly", seed=1, inventory=(),
        launches=tuple(replace(spec, launch_id=one, timeout_s=timeout_s) for one in ids),
        batches=tuple(Batch(batch_id=one, benchmark="collective", node_count=1, launch_ids=(one,)) for one in ids),
    )  # fmt: skip


@pytest.mark.parametrize("hours", [[0.0], [0.0, 0.1, 3.9], [0.0, 4.1], [0.0, 2.0, 4.1]])
def test_launches_of_one_run_are_not_too_old(hours: list[float]) -> None:
    assert old(*map(at, hours)) == []


def test_launches_before_a_pause_longer_than_a_run_are_too_old() -> None:
    assert old(at(0), at(0.5), at(24 * 9)) == [0, 1]
    assert old(at(24 * 9), at(0), at(0.5)) == [1, 2]
    assert old(at(0), at(4.3)) == [0]


def test_a_run_that_is_taken_up_again_and_again_is_no_one_run() -> None:
    """No pause is long, and together they are days: only what one run may take counts."""
    assert old(*(at(3.0 * number) for number in range(5))) == [0, 1, 2]


def test_a_batch_that_began_in_time_may_run_on() -> None:
    assert old(at(0), at(3.9, lasted_s=6 * HOUR), timeout_s=6 * HOUR) == []
    assert old(at(0), at(3.9, lasted_s=6 * HOUR), timeout_s=5 * HOUR) == [0]


def test_attempts_that_gave_nothing_fill_a_pause() -> None:
    lost = at(2.5, outcome=Outcome.INFRASTRUCTURE)
    assert old(at(0), at(5, attempt=2), timeout_s=HOUR) == [0]
    assert old(at(0), at(5, attempt=2), timeout_s=HOUR, earlier={1: [lost]}) == []


def test_a_clock_that_is_ahead_makes_nothing_else_old() -> None:
    """What ends after the seal is wrong itself: CLOCK_SKEW."""
    assert old(at(0), at(0.5), at(30), sealed=1.0) == []


def test_times_that_are_none_bound_nothing() -> None:
    assert old(at(0), replace(at(0), started_at="yesterday")) == []
    assert old(replace(at(0), started_at="2026-03-01T02:00:00")) == []


def test_the_message_names_the_limit() -> None:
    run = cast(RunDirectory, SimpleNamespace(sealed_at=lambda: BEGIN + timedelta(days=99)))
    records = {"one": (at(0), [at(0)]), "another": (at(24 * 9), [at(24 * 9)])}
    plan, profile = plan_of(list(records), 60.0), good_run.profile(limits={"minutes": 240})
    [message] = out_of_time(run, plan, profile, records).values()
    assert "limits.minutes of profile made-up is 240" in message and "2026-03-10T02:01:00Z" in message
