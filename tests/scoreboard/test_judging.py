"""The judge on sheets gives every row the verdict that the real judge gives it."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.test_measuring import twelve_nodes
from tests.simulation.test_truth import a_fault
from tests.simulation.two_ways import MOMENT, BothWays, both_ways

from plumbline.analysis.baseline import BaselineLimit, limits_from_history
from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import ClusterProfile, load_profile
from plumbline.execution.plan import make_plan
from plumbline.references.reference import ReferenceSet, load_references
from plumbline.scoreboard.campaign import frames_of, night_run_id
from plumbline.scoreboard.judging import VALUE_RULES, Judge
from plumbline.simulation.faults import Scenario
from plumbline.simulation.layout import Layout, seed_of
from plumbline.simulation.measuring import measure
from plumbline.simulation.night import Night
from plumbline.suites.suite import load_suite
from plumbline.validation.judgement import Judgement, judge
from plumbline.validation.limits import known_scatter

PROFILE = load_profile("simulated-8")
NIGHTLY = load_suite("nightly")
REFERENCES = load_references("H100-SXM5-80GB")


@pytest.fixture(scope="module")
def baseline() -> tuple[BaselineLimit, ...]:
    """Give limits from five healthy nights before."""
    moments = [MOMENT - timedelta(days=5 - day) for day in range(5)]
    ids = [night_run_id(1, moment) for moment in moments]
    plan = make_plan(
        PROFILE, NIGHTLY, static_inventory(PROFILE, MOMENT.date()), run_id=ids[0], seed=seed_of(ids[0])
    )  # fmt: skip
    base = Layout.of(plan, PROFILE, NIGHTLY)
    measured = measure(
        [Night.of(PROFILE, Scenario(seed=1), moment) for moment in moments], [base.on(run_id) for run_id in ids]
    )
    return limits_from_history(frames_of(measured), NIGHTLY.baseline, scatter=known_scatter(REFERENCES, PROFILE))


def really_judged(found: BothWays, references: ReferenceSet, baseline: tuple[BaselineLimit, ...]) -> Judgement:
    run = found.run
    return judge(
        found.readout, plan=run.plan(), profile=run.profile(), suite=run.suite(), references=references,
        baseline=baseline, today=MOMENT.date(),
    )  # fmt: skip


def assert_judged_alike(found: BothWays, references: ReferenceSet, baseline: tuple[BaselineLimit, ...]) -> Counter[str]:
    """Compare every row's verdict, and how many rows break each rule; give what the rules found."""
    real = really_judged(found, references, baseline)
    judged = Judge(found.measured.layouts[0], references, baseline, found.sheets).judge(found.sheets)
    rows = real.verdicts[real.verdicts["item"] == "row"]
    by_key = {
        (row.launch_id, row.indicator, row.params): (row.kind, row.code) for row in rows.itertuples(index=False)
    }  # fmt: skip
    seen = 0
    failing: Counter[str] = Counter()
    for one in judged:
        cause = one.cause()[0]
        failing.update({name: int(mask[0].sum()) for name, mask in one.failing.items()})
        for m, place in enumerate(one.sheet.places):
            for k, kind in enumerate(one.sheet.kinds):
                known_kind, known_code = by_key[place.launch_id, kind.indicator, kind.params]
                rule = VALUE_RULES[cause[m, k]] if cause[m, k] >= 0 else None
                seen += 1
                if rule is None:
                    assert known_kind == "PASS", (place, kind)
                elif rule.id == "measured":
                    assert known_kind == "NOT_RUN", (place, kind)
                else:
                    assert known_code == rule.code.value, (place, kind, rule.id)
    assert seen == len(rows)
    assert dict(failing) == {item["id"]: item["failing"] for item in real.gx["expectations"] if item.get("failing")}
    others = real.verdicts[real.verdicts["item"] == "launch"]
    told = Counter((v.code.value, v.launch_id) for v in found.measured.verdicts[0])
    assert (
        Counter(
            zip(
                others["code"], others["launch_id"].astype(object).where(others["launch_id"].notna(), None), strict=True
            )
        )
        == told
    )
    return failing


@pytest.mark.parametrize(
    ("faults", "rules"),
    [
        ((), set()),
        (({"kind": "slow_nic", "severity": 0.6},), {"lower", "baseline_lower"}),
        (({"kind": "nvlink_lane_down", "severity": 0.3},), {"peers", "lower", "baseline_lower"}),
        (({"kind": "slow_client", "severity": 0.5}, {"kind": "thermal_throttle"}), {"peers", "baseline_upper"}),
        (({"kind": "missing_gpu"}, {"kind": "noisy_neighbour", "resource": "storage"}), {"measured", "baseline_lower"}),
        (({"kind": "hang"}, {"kind": "congested_spine", "severity": 0.5}), {"measured"}),
        (({"kind": "silent_corruption"}, {"kind": "nccl_rollback", "severity": 1.0}), {"baseline_lower"}),
    ],
    ids=lambda value: "+".join(f["kind"] for f in value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_every_row_is_judged_as_the_judge_does(
    faults: tuple[dict[str, Any], ...], rules: set[str], baseline: tuple[BaselineLimit, ...], tmp_path: Path
) -> None:
    scenario = Scenario(seed=1, faults=tuple(a_fault(**fault) for fault in faults))
    found = both_ways(PROFILE, NIGHTLY, scenario, tmp_path)
    failing = assert_judged_alike(found, REFERENCES, baseline)
    assert rules <= set(failing)


def test_without_history(tmp_path: Path) -> None:
    found = both_ways(PROFILE, NIGHTLY, Scenario(seed=3, faults=(a_fault("slow_nic"),)), tmp_path)
    assert "baseline" in assert_judged_alike(found, REFERENCES, ())


def test_peers_that_scatter(tmp_path: Path) -> None:
    """Half of the nodes differ from the others: nobody is accused, by either judge."""
    faults = [a_fault("slow_client", severity=0.1 * n, node=f"n000{n}") for n in range(1, 6)]
    found = both_ways(PROFILE, NIGHTLY, Scenario(seed=3, faults=tuple(faults)), tmp_path)
    assert_judged_alike(found, REFERENCES, ())


def test_groups_of_two_have_peers_and_an_excluded_node_its_reason(tmp_path: Path) -> None:
    """Eleven of twelve nodes are measured: groups of two are enough to be compared, and one is padded."""
    profile = twelve_nodes()
    found = both_ways(profile, NIGHTLY, Scenario(seed=3, faults=(a_fault("nccl_rollback", severity=1.0),)), tmp_path)
    assert "peers" in assert_judged_alike(found, REFERENCES, ())
    peers = [sheet.node_count for sheet in found.sheets for kind in sheet.kinds if "share_of_peer" in kind.indicator]
    assert set(peers) == {1, 2}


def test_impossible_values_and_other_hardware(tmp_path: Path) -> None:
    """A profile that promises less than the cluster gives: ceilings close, as the judge has it."""
    data = load_profile("simulated-b200").model_dump(mode="json")
    data["fabric"]["node_bandwidth_gbit_s"] = 1600
    profile = ClusterProfile.model_validate(data)
    found = both_ways(profile, NIGHTLY, Scenario(seed=3), tmp_path)
    assert "ceiling" in assert_judged_alike(found, load_references("B200-SXM-180GB"), ())
