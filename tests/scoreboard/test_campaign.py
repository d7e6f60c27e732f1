"""Scenarios are played out as a cluster would see them, scored, and written down; nothing is dropped."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from plumbline.cli import main
from plumbline.clusters.profile import ClusterProfile, load_profile
from plumbline.errors import ExitCode
from plumbline.scoreboard import campaign
from plumbline.scoreboard.campaign import HORIZON, Played, Setting, play
from plumbline.scoreboard.detectors import DETECTORS, GATE, Alarmed
from plumbline.scoreboard.files import write_all
from plumbline.scoreboard.naming import Component
from plumbline.scoreboard.scenarios import Planted, bands_of, kinds
from plumbline.scoreboard.scoring import ALL, cells, false_alarms
from plumbline.scoreboard.seeds import CLUSTER, Seeds
from plumbline.simulation.faults import Fault
from plumbline.suites.suite import Suite, load_suite

SEEDS = Seeds(numbers=(1, 2), name="two.txt", sha256="0" * 64, development=False)
KEPT = {"nvlink_lane_down", "slow_client", "thermal_throttle", "congested_spine", "node_lost", "ageing_port"}


def small() -> tuple[ClusterProfile, Suite]:
    """Give eight nodes and two benchmarks: enough for every detector."""
    data = load_profile(str(CLUSTER)).model_dump(mode="json")
    data["nodes"] = {"simulated": 8, "nodes_per_leaf": 4}
    suite = load_suite("nightly").model_dump(mode="json")
    suite["benchmarks"] = [
        item for item in suite["benchmarks"] if item["benchmark"] in ("fio", "nccl_tests", "hpl_mxp")
    ]
    return ClusterProfile.model_validate(data), Suite.model_validate(suite)


@pytest.fixture(scope="module")
def setting() -> Setting:
    return Setting.of(*small(), year_nights=6)


@pytest.fixture(scope="module")
def played(setting: Setting) -> list[Played]:
    """Play two seeds with a few kinds of faults."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(campaign, "scenarios", _few)
        return [play(setting, seed) for seed in SEEDS.numbers]


def _few(*arguments: Any) -> list[Planted]:
    from plumbline.scoreboard.scenarios import scenarios

    return [one for one in scenarios(*arguments) if one.kind in KEPT]


def outcome(played: list[Played], detector: str, kind: str, band: str) -> list[Any]:
    return [
        (item.night, item.followed, item.named)
        for one in played
        for item in one.outcomes
        if (item.detector, item.planted.kind, item.planted.band) == (detector, kind, band)
    ]


def test_a_severe_fault_is_found_where_it_shows_and_by_who_can_see_it(played: list[Played]) -> None:
    for detector, sees in {"reference": True, "baseline": True, "peers": True, "records": False, GATE: True}.items():
        for night, followed, named in outcome(played, detector, "nvlink_lane_down", "severe"):
            assert (night == 1) is sees
            assert followed == HORIZON
            assert (named is not None and named.named == "exact" and named.nodes == 1) is sees


def test_a_launch_that_never_ran_ends_its_scenario_and_names_its_node(played: list[Played]) -> None:
    for night, followed, named in outcome(played, "records", "node_lost", "whole"):
        assert (night, followed, named.named) == (1, 1, "exact")


def test_a_throttled_gpu_is_named_by_what_it_says(played: list[Played]) -> None:
    assert all(named.part for _, _, named in outcome(played, "records", "thermal_throttle", "mild"))


def test_a_port_that_ages_is_found_later_when_it_ages_slowly(played: list[Played]) -> None:
    mild, severe = (outcome(played, GATE, "ageing_port", band) for band in ("mild", "severe"))
    assert all((slow or 99) > fast for (slow, _, _), (fast, _, _) in zip(mild, severe, strict=True))
    assert all(fast > 1 for fast, _, _ in severe)


def test_healthy_nights_are_counted(played: list[Played]) -> None:
    assert [one.healthy_nights for one in played] == [6, 6]
    assert [one.approved for one in played] == [14, 14]
    assert not any(one.failures for one in played)
    [gate] = [item for item in false_alarms(played, cells(played)) if item.detector == GATE]
    assert gate.nights == sum(one.false_alarms[GATE] for one in played)
    assert gate.cluster_years == pytest.approx(12 / 365)


def test_cells_count_every_scenario_once(played: list[Played]) -> None:
    found = {(cell.detector, cell.kind, cell.band): cell for cell in cells(played)}
    scenarios = sum(len(bands_of(kind)) for kind in KEPT) * len(SEEDS.numbers)
    for detector in DETECTORS:
        assert found[detector, ALL, ALL].recall.of == scenarios
        assert sum(found[detector, kind, ALL].recall.found for kind in kinds() if kind in KEPT) == (
            found[detector, ALL, ALL].recall.found
        )
    assert found[GATE, "node_lost", ALL].recall.value == 1.0


def test_a_fault_that_is_not_there_is_not_found(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without their faults the same scenarios find nothing: what finds them is the fault."""
    monkeypatch.setattr(campaign, "scenarios", _few)
    real = campaign.truth_of
    monkeypatch.setattr(campaign, "truth_of", lambda i, model, faults, day, hour: real(i, model, (), day, hour))
    found = play(setting, 1)
    assert not any(item.night for item in found.outcomes if item.detector != "baseline")


# -- what fails is listed --------------------------------------------------------------------------------------------


def test_a_scenario_that_fails_is_listed_and_the_others_run(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "scenarios", lambda *a: [one for one in _few(*a) if one.band in ("severe", "whole")])
    real = campaign.truth_of

    def failing(inventory: Any, model: Any, faults: Any, *more: Any) -> Any:
        if any(fault.kind == "slow_client" for fault in faults):
            raise RuntimeError("a defect")
        return real(inventory, model, faults, *more)

    monkeypatch.setattr(campaign, "truth_of", failing)
    found = play(setting, 1)
    assert [item.what for item in found.failures] == ["slow_client/severe/1, after night 0"]
    assert found.failures[0].error == "RuntimeError: a defect"
    assert {item.planted.kind for item in found.outcomes} == KEPT - {"slow_client"}


def test_an_alarm_that_cannot_be_read_is_listed_and_counts_nothing_twice(
    setting: Setting, played: list[Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "scenarios", _few)
    real = Component.named_by

    def failing(self: Component, found: Any) -> Any:
        if self.gpu is not None:
            raise RuntimeError("a defect")
        return real(self, found)

    monkeypatch.setattr(Component, "named_by", failing)
    found = play(setting, 1)
    assert [item.what for item in found.failures] == [
        f"thermal_throttle/{band}/1, after night 1" for band in bands_of("thermal_throttle")
    ]
    assert found.outcomes == [o for o in played[0].outcomes if o.planted.kind != "thermal_throttle"]


def test_a_seed_that_fails_is_listed(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "measure", lambda *a, **k: 1 / 0)
    found = play(setting, 1)
    assert [item.what for item in found.failures] == ["seed 1: history"]
    assert not found.outcomes


# -- what is written -------------------------------------------------------------------------------------------------


def test_files_say_what_was_played(setting: Setting, played: list[Played], tmp_path: Path) -> None:
    summary = write_all(tmp_path, setting, SEEDS, played, quick=True, command="c", commit="d")
    rows = pd.read_parquet(tmp_path / "scenarios.parquet")
    assert len(rows) == len(DETECTORS) * summary["scenarios"]
    assert set(rows["origin"]) == {"simulated"}
    recall = pd.read_csv(tmp_path / "recall.csv")
    mine = recall[(recall.detector == GATE) & (recall.kind == "all") & (recall.band == "all")].iloc[0]
    gate = rows[rows.detector == GATE]
    assert (mine.recall_found, mine.recall_of) == (gate["night"].notna().sum(), len(gate))
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    assert list(csv.DictReader((tmp_path / "failures.csv").open())) == []
    page = (tmp_path / "scoreboard.md").read_text()
    for text in ("SIMULATED", "QUICK", "Too small for a claim: 2 scenarios", "0 tests, 0 rounds, 0 GPU-minutes"):
        assert text in page
    assert summary["too_small"]


def test_failures_stand_on_the_page(setting: Setting, played: list[Played], tmp_path: Path) -> None:
    broken = Played(seed=9, failures=[campaign.Failure(what="slow_nic/mild/9", error="RuntimeError: x | y")])
    summary = write_all(tmp_path, setting, SEEDS, [*played, broken], quick=False, command="c", commit="d")
    assert summary["failed"] == 1
    assert "| slow_nic/mild/9 | RuntimeError: x \\| y |" in (tmp_path / "scoreboard.md").read_text()
    assert "slow_nic/mild/9" in (tmp_path / "failures.csv").read_text()


def test_the_command_twice_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from plumbline.commands import scoring

    profile, suite = small()
    monkeypatch.setattr("plumbline.clusters.profile.load_profile", lambda name: profile)
    monkeypatch.setattr("plumbline.suites.suite.load_suite", lambda name: suite)
    monkeypatch.setattr(campaign, "scenarios", _few)
    monkeypatch.setattr(scoring, "QUICK_NIGHTS", 3)
    (tmp_path / "seeds.txt").write_text("4\n5\n6\n7\n")
    for name in ("a", "b"):
        arguments = ["scoreboard", "--seeds", str(tmp_path / "seeds.txt"), "--out", str(tmp_path / name), "--quick"]
        assert main(arguments) == ExitCode.OK
    told = capsys.readouterr()
    assert "QUICK: 3 of 4 seeds, far too small for any claim" in told.err
    assert "SIMULATED" in told.out
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == [
        "causes.csv", "failures.csv", "false_alarms.csv", "recall.csv", "scenarios.parquet", "scoreboard.md",
        "summary.json",
    ]  # fmt: skip
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "none.txt", "--out", "x"], "none.txt: cannot read"),
        (["--seeds", "{seeds}", "--out", "x", "--cluster", "local"], "simulated clusters only"),
        (["--seeds", "{seeds}", "--out", "x", "--suite", "nightlie"], "did you mean 'nightly'"),
    ],
)
def test_wrong_use_is_refused(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "seeds.txt").write_text("4\n")
    given = [word.format(seeds=tmp_path / "seeds.txt") for word in arguments]
    assert main(["scoreboard", *given]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


# -- naming ----------------------------------------------------------------------------------------------------------


def group(count: int, *nodes: int, benchmark: str = "nccl_tests", whole: bool = False, message: str = "") -> Alarmed:
    return Alarmed(benchmark=benchmark, node_count=count, nodes=frozenset(nodes), whole_rung=whole, message=message)


@pytest.mark.parametrize(
    ("fault", "alarmed", "named"),
    [
        ({"kind": "slow_nic", "node": "n0003", "rail": 1}, [group(2, 2, 5), group(4, 2, 3, 4)], ("among", 2, 1, True)),
        ({"kind": "slow_nic", "node": "n0003", "rail": 1}, [group(1, 2), group(2, 2, 5)], ("exact", 1, 1, True)),
        ({"kind": "slow_nic", "node": "n0003", "rail": 1}, [group(1, 4), group(2, 2, 5)], ("elsewhere", 1, 0, False)),
        ({"kind": "slow_nic", "node": "n0003", "rail": 1}, [group(8, *range(8), whole=True)], ("among", 8, 8, True)),
        ({"kind": "nccl_rollback", "nodes": ["n0001", "n0002"]}, [group(1, 0), group(1, 1)], ("exact", 2, 2, True)),
        ({"kind": "leaf_misconfigured", "leaf": "leaf001"}, [group(8, *range(8))], ("among", 8, 8, True)),
        ({"kind": "congested_spine"}, [group(8, *range(8))], ("exact", 8, 8, True)),
        ({"kind": "congested_spine"}, [group(8, *range(8)), group(1, 1, benchmark="fio")], ("among", 1, 1, True)),
        ({"kind": "slow_storage_server", "server": 1}, [group(1, 3, benchmark="fio")], ("exact", 1, 1, True)),
    ],
)  # fmt: skip
def test_what_alarms_name(setting: Setting, fault: dict[str, Any], alarmed: list[Alarmed], named: Any) -> None:
    found = Component(Fault.model_validate(fault), setting.inventory).named_by(alarmed)
    assert (found.named, found.nodes, found.suspects, found.suspected) == named


@pytest.mark.parametrize(
    ("fault", "alarmed", "touched"),
    [
        ({"kind": "slow_client", "node": "n0003"}, group(1, 2, benchmark="fio"), True),
        ({"kind": "slow_client", "node": "n0003"}, group(1, 3, benchmark="fio"), False),
        ({"kind": "noisy_neighbour", "resource": "storage"}, group(1, 3, benchmark="fio"), True),
        ({"kind": "noisy_neighbour", "resource": "storage"}, group(1, 3), False),
        ({"kind": "noisy_neighbour", "resource": "fabric"}, group(2, 3, 4), True),
        ({"kind": "noisy_neighbour", "resource": "fabric"}, group(1, 3), False),
    ],
)
def test_what_alarms_touch(setting: Setting, fault: dict[str, Any], alarmed: Alarmed, touched: bool) -> None:
    assert Component(Fault.model_validate(fault), setting.inventory).touched_by(alarmed) is touched


def test_a_gpu_is_named_by_its_number_only(setting: Setting) -> None:
    component = Component(Fault(kind="thermal_throttle", node="n0003", gpu=1), setting.inventory)
    assert component.named_by([group(1, 2, message="GPU 1: hardware thermal slowdown")]).part
    assert not component.named_by([group(1, 2, message="GPU 12: hardware thermal slowdown")]).part
