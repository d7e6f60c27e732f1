"""Seeds and what they plant."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from plumbline.clusters.inventory import static_inventory
from plumbline.clusters.profile import load_profile
from plumbline.errors import ConfigError
from plumbline.scoreboard.scenarios import BANDS, Planted, bands_of, kinds, scenarios
from plumbline.scoreboard.seeds import CLUSTER, DEVELOPMENT, read_seeds
from plumbline.simulation.faults import TARGETS
from plumbline.simulation.hardware import hardware_model
from plumbline.simulation.truth import truth_of

START = date(2026, 1, 15)
H100 = hardware_model("H100-SXM5-80GB")
INVENTORY = static_inventory(load_profile(str(CLUSTER)), START)


def planted(seed: int) -> list[Planted]:
    return scenarios(seed, INVENTORY, H100, START)


def test_every_kind_at_every_severity_once() -> None:
    found = [(one.kind, one.band) for one in planted(1)]
    assert found == [(kind, band) for kind in kinds() for band in bands_of(kind)]
    assert {one.fault.kind for one in planted(1)} == set(TARGETS)
    assert {(o.kind, o.fault.resource) for o in planted(1) if o.fault.resource} == {
        ("noisy_neighbour_fabric", "fabric"), ("noisy_neighbour_storage", "storage"),
    }  # fmt: skip


def test_severities_lie_in_their_bands_and_faults_begin_with_the_first_night() -> None:
    for one in (*planted(1), *planted(2), *planted(3)):
        low, high = BANDS.get(one.band, (1.0, 1.0))
        assert low <= one.fault.severity <= high
        assert one.fault.start == START
        assert not one.fault.active(date(2026, 1, 14))


def test_the_same_seed_gives_the_same_and_another_gives_others() -> None:
    assert planted(5) == planted(5)
    same = [a.fault == b.fault for a, b in zip(planted(5), planted(6), strict=True)]
    assert not any(same[i] for i, one in enumerate(planted(5)) if one.band in BANDS)


def test_seeds_reach_all_parts_of_the_cluster() -> None:
    faults = [one.fault for seed in range(60) for one in planted(seed)]
    assert {fault.node for fault in faults if fault.node} == {node.name for node in INVENTORY}
    assert {fault.gpu for fault in faults if fault.gpu is not None} == set(range(8))
    assert {fault.rail for fault in faults if fault.rail is not None} == set(range(8))
    assert {fault.leaf for fault in faults if fault.leaf} == {node.leaf for node in INVENTORY}
    assert {fault.server for fault in faults if fault.server is not None} == set(range(8))
    assert {fault.benchmark for fault in faults if fault.kind == "hang"} == {
        None, "fio", "nccl_tests", "hpl_mxp", "mlperf_gpt3", "mlperf_bert",
    }  # fmt: skip


def test_every_fault_can_be_planted() -> None:
    for one in planted(11):
        truth_of(INVENTORY, H100, [one.fault], START)


# -- files of seeds --------------------------------------------------------------------------------------------------


def test_lines_and_lists(tmp_path: Path) -> None:
    text, listed = tmp_path / "s.txt", tmp_path / "s.yaml"
    text.write_text("# from outside\n3\n  007 # seven\n\n12 5\n")
    listed.write_text("- 3\n- 7\n- 12\n- 5\n")
    assert read_seeds(text).numbers == read_seeds(listed).numbers == (3, 7, 12, 5)
    assert not read_seeds(text).development


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3\nx\n", r"s.txt:2: a seed is a whole number from 0 to \d+, not 'x'"),
        ("3\n-1\n", "s.txt:2: a seed is a whole number"), ("1.5", "not '1.5'"), (f"{2**63}", "a whole number"),
        ("1\n2\n1\n", "s.txt:3: seed 1 is already at :1"), ("# none\n", "holds no seed"),
    ],
)  # fmt: skip
def test_wrong_seeds_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_seeds(path)


@pytest.mark.parametrize(
    ("text", "message"), [("a: 1\n", "a list"), ("- true\n", "whole number"), ("- [1]\n", "whole")]
)
def test_wrong_lists_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_seeds(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("none.txt", "none.yaml"):
        with pytest.raises(ConfigError) as refused:
            read_seeds(tmp_path / name)
        assert str(refused.value) == f"{tmp_path / name}: cannot read this file of seeds: No such file or directory"
    (tmp_path / "bytes.txt").write_bytes(b"1\n\xff")
    with pytest.raises(ConfigError, match=r"bytes.txt: cannot read this file of seeds: not UTF-8 text, at byte 2$"):
        read_seeds(tmp_path / "bytes.txt")


def test_development_seeds_are_enough_for_claims_and_known_under_any_name(tmp_path: Path) -> None:
    copy = tmp_path / "fresh.yaml"
    copy.write_bytes(DEVELOPMENT.read_bytes())
    assert len(read_seeds(DEVELOPMENT).numbers) == 300
    assert read_seeds(copy).development
