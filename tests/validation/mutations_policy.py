"""Mutations of what a run is held against: limits, policy, waivers, and the verdict itself."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

from tests.validation.mutant_night import NCCL_ONE, TABLE, Broken
from tests.validation.mutation import Mutation
from tests.validation.mutations_output import slower

from plumbline import stages
from plumbline.model import Code

Change = Callable[[dict[str, Any]], object]


def limits(name: str, change: Change, *codes: Code) -> Mutation:
    def apply(night: Broken) -> None:
        def edit(data: dict[str, Any]) -> None:
            change(data)

        night.evidence("references", edit)

    return Mutation(name=name, codes=codes, apply=apply, where="limits")


def files(data: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = data["references"]["files"]
    return found


def lower_of(data: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = files(data)[0]["references"][0]
    return row


def slow_but_waived(**waiver: Any) -> Callable[[Broken], None]:
    """One node is slow; its waiver is as told."""
    given = {"reason": "cable ordered", "owner": "ops", "until": "2999-01-01", "benchmark": "nccl_tests",
             "indicator": "bus_bandwidth_headline"}  # fmt: skip

    def apply(night: Broken) -> None:
        night.output(NCCL_ONE, TABLE, slower(1.08))
        night.evidence("references", lambda data: data.update(waivers=[{**given, **waiver}]))

    return apply


def suite(name: str, change: Change, error: str = "", codes: tuple[Code, ...] = ()) -> Mutation:
    def apply(night: Broken) -> None:
        def edit(data: dict[str, Any]) -> None:
            change(data)

        night.output(NCCL_ONE, TABLE, slower(2.0))
        night.evidence("suite", edit)

    return Mutation(name=name, error=error, codes=codes, apply=apply, where="policy")


def forged(name: str, forge: Callable[[Broken], None], error: str) -> Mutation:
    return Mutation(
        name=name, error=error, forge=forge, apply=lambda night: night.output(NCCL_ONE, TABLE, slower(2.0)),
        where="verdict",
    )  # fmt: skip


def opened(night: Broken) -> None:
    path = night.run.derived / "verdict.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "gate": "open", "verdict": "PASS", "reasons": []}))


def another_runs(night: Broken) -> None:
    """All of derived/ is taken from the approved run of the night before."""
    shutil.rmtree(night.run.derived)
    other = min(path for path in night.base.parent.iterdir() if path != night.base)
    shutil.copytree(other / "derived", night.run.derived)


def resealed(night: Broken) -> None:
    """The evidence is changed and sealed anew after it was judged."""
    (night.run.evidence / "manifest.json").unlink()
    night.record(NCCL_ONE, reason="nothing happened")
    stages.seal(night.run.path)


LIMITS = (
    limits("the limits are emptied", lambda d: d.clear(), Code.NO_LIMITS),
    limits("the references are gone", lambda d: d.pop("references"), Code.NO_LIMITS),
    limits("a reference file is emptied", lambda d: files(d)[0].update(references=[]), Code.NO_LIMITS),
    limits("a reference is removed", lambda d: files(d)[0]["references"].pop(0), Code.NO_LIMITS),
    limits("a lower bound is removed", lambda d: lower_of(d).update(lower=None, warn_lower=None), Code.NO_LIMITS),
    limits("the unit of a reference is changed", lambda d: lower_of(d).update(unit="MB/s"), Code.NO_LIMITS),
    limits("a reference asks for a misspelt parameter", lambda d: lower_of(d).update(match={"operaton": "all_reduce"}),
           Code.NO_LIMITS),
    limits("the references are of other hardware", lambda d: d["references"].update(hardware="B200-SXM-180GB"),
           Code.NO_LIMITS),
    limits("the baseline is removed", lambda d: d.update(baseline=[]), Code.NO_LIMITS),
    limits("a baseline is in another unit", lambda d: [row.update(unit="s") for row in d["baseline"]], Code.NO_LIMITS),
    limits("a baseline's bound is nan", lambda d: [row.update(lower=float("nan")) for row in d["baseline"]],
           Code.NO_LIMITS),
    limits("a place was measured in the future", lambda d: d["nights"].update(n0001=-3), Code.NO_LIMITS),
    Mutation(name="an expired waiver", codes=(Code.OUTSIDE_REFERENCE,), where="limits",
             apply=slow_but_waived(until="2020-01-01")),
    Mutation(name="a waiver for another indicator", codes=(Code.OUTSIDE_REFERENCE,), where="limits",
             apply=slow_but_waived(indicator="bus_bandwidth_peak")),
    Mutation(name="a waiver without an owner", codes=(Code.NO_LIMITS,), where="limits",
             apply=slow_but_waived(owner="")),
    Mutation(name="a waiver for a whole benchmark", codes=(Code.NO_LIMITS,), where="limits",
             apply=slow_but_waived(indicator=None)),
)  # fmt: skip

POLICIES = (
    suite("the gate's policy is misspelt", lambda d: d.update(gate={"block": ["FAIL"]}), error="did you mean 'blocks'"),
    suite("a verdict in the policy is misspelt",
          lambda d: d["gate"].update(blocks=["FIAL", "INVALID", "NOT_RUN", "STALE"]), error="gate.blocks"),
    suite("the policy leaves FAIL out", lambda d: d["gate"].update(blocks=["INVALID", "NOT_RUN", "STALE"]),
          error="must contain FAIL"),
    suite("the policy blocks nothing", lambda d: d["gate"].update(blocks=[]), error="must contain FAIL"),
    suite("the tolerance is 500 %", lambda d: d["baseline"].update(tolerance=5.0), error="baseline.tolerance"),
    suite("a thousand deviations are usual", lambda d: d["baseline"].update(sigmas=1000.0), error="baseline.sigmas"),
    suite("history counts after a thousand approvals", lambda d: d["baseline"].update(min_runs=1000),
          error="baseline.min_runs"),
    suite("what is years old still counts", lambda d: d["gate"].update(max_age_nights=9999), error="max_age_nights"),
    suite("no node counts are asked for", lambda d: d["benchmarks"][0].update(node_counts=[]), error="node_counts"),
    suite("an acceptance lets warnings pass", lambda d: d.update(kind="acceptance"), error="blocks WARN"),
    suite("the suite is another one", lambda d: d.update(name="other"), error="it is a copy of"),
)  # fmt: skip

VERDICTS = (
    forged("verdict.json says open", opened, "derived/ doesn't belong"),
    forged("derived/ is another run's", another_runs, "derived/ doesn't belong"),
    forged("evidence is resealed after judging", resealed, "derived/ doesn't belong"),
)
