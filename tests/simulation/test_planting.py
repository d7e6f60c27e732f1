"""Faults are held against the cluster before a run starts, and a run says which of them it has."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from plumbline import stages
from plumbline.cli import main
from plumbline.clusters.profile import load_profile
from plumbline.commands.running import print_verdict
from plumbline.configuration import project_root
from plumbline.errors import ConfigError, ExitCode
from plumbline.simulation.faults import Scenario, load_scenario
from plumbline.simulation.planting import check_faults, planted

NIGHT = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
SLOW = {"kind": "slow_nic", "node": "n0002", "rail": 3}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (
            "{kind: slow_nic, node: n0099, rail: 3}",
            "faults[0].node: simulated-8 has no node 'n0099'; did you mean 'n000",
        ),
        (
            "{kind: slow_nic, node: n0001, rail: 8}",
            "faults[0].rail: simulated-8 has no rail 8, which is not one of 0 to 7",
        ),
        ("{kind: missing_gpu, node: n0001, gpu: 8}", "faults[0].gpu: simulated-8 has no gpu 8"),
        (
            "{kind: leaf_misconfigured, leaf: leaf003}",
            "faults[0].leaf: simulated-8 has no leaf 'leaf003'; did you mean",
        ),
        ("{kind: driver_rollback, nodes: [n0001, x]}", "no node 'x'; known: n0001, n0002"),
        ("{kind: slow_storage_server, server: 8}", "faults[0].server: simulated-8 has no server 8"),
        ("{kind: hang, node: n0001, benchmark: nccl_test}", "no benchmark 'nccl_test'; did you mean 'nccl_tests'?"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_a_fault_in_what_is_not_there_is_refused_before_the_run(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    words: str,
    command: str,
) -> None:
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path / "results"))
    path = tmp_path / "faults.yaml"
    path.write_text(f"seed: 1\nfaults:\n  - {fault}\n")
    assert main([command, "--cluster", "simulated-8", "--set", f"faults={path}"]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert f"{path}: " in err and words in err and "(line 3)" in err
    assert not (tmp_path / "results").exists(), "no run was begun"


def test_every_fault_of_the_shipped_story_has_its_place() -> None:
    path = str(Path(stages.__file__).parent / "simulation" / "demo.yaml")
    check_faults(load_scenario(path, 0), load_profile("simulated-128"), path)
    with pytest.raises(ConfigError, match="has no node 'n0021'"):
        check_faults(load_scenario(path, 0), load_profile("simulated-8"), path)


def words_of(*faults: dict[str, object]) -> str:
    found = planted(Scenario.model_validate({"faults": faults}), "f.yaml", NIGHT, {"nccl_tests"})
    return str(found["words"])


def test_a_run_says_which_faults_it_has() -> None:
    over = {**SLOW, "end": "2026-02-28"}
    assert words_of(over, over) == (
        "SIMULATED: 0 of 2 planted faults are active on 2026-03-01 at 02 h UTC: a healthy cluster; "
        "a fault without start and end always is"
    )
    assert words_of(SLOW, over).endswith(
        "1 of 2 planted faults is active on 2026-03-01 at 02 h UTC: slow_nic at n0002 rail 3"
    )
    assert words_of(*[SLOW] * 7).endswith(" and 2 more")
    hang = {"kind": "hang", "node": "n0001"}
    assert words_of({**hang, "benchmark": "fio"}).endswith("hang at n0001 in fio, which this run leaves out")
    assert words_of({**hang, "benchmark": "nccl_tests"}).endswith("hang at n0001 in nccl_tests")


def test_plan_and_evidence_say_which_faults_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLUMBLINE_RESULTS", str(tmp_path / "results"))
    path = tmp_path / "faults.yaml"
    path.write_text(json.dumps({"faults": [SLOW, {**SLOW, "node": "n0003", "start": "2026-03-02"}]}))
    assert main(["plan", "--cluster", "simulated-8", "--set", f"faults={path}"]) == ExitCode.OK
    assert "of 2 planted faults are active on" in capsys.readouterr().out
    run = stages.prepare("simulated-8", "nightly", {"faults": str(path)}, trigger="test", now=NIGHT)
    found = run.read_evidence("environment")["planted"]
    assert (found["file"], found["faults"], found["active"]) == (str(path), 2, ["slow_nic at n0002 rail 3"])
    words = {"verdict": "PASS", "gate": "open", "run_id": run.run_id, "cluster": "simulated-8", "suite": "nightly"}
    coverage = {"expected": 8, "measured": 8, "missing": [], "rows_expected": 1, "rows_measured": 1}
    print_verdict(run, {**words, "origin": "simulated", "device": "gpu", "coverage": coverage, "reasons": []})
    assert "planted: SIMULATED: 1 of 2 planted faults is active on 2026-03-01" in capsys.readouterr().out
    healthy = stages.planted_in(stages.load("simulated-8", "nightly", {})[1], NIGHT)
    assert healthy == {}


def test_the_example_of_the_readme_is_there_on_any_night(tmp_path: Path) -> None:
    text = (project_root() / "README.md").read_text(encoding="utf-8")
    path = tmp_path / "faults.yaml"
    path.write_text(text[text.index("\nfaults:\n") : text.index("```", text.index("\nfaults:\n"))])
    scenario = load_scenario(str(path), 0)
    check_faults(scenario, load_profile("simulated-128"), str(path))
    for night in (NIGHT, NIGHT.replace(year=2036)):
        assert len(planted(scenario, str(path), night, {"nccl_tests"})["active"]) == len(scenario.faults) > 0
