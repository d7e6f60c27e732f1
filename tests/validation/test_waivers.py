from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.errors import ConfigError
from plumbline.validation.waivers import load_waivers, waivers_data, waivers_from

GOOD = "{reason: cable ordered, owner: ops, until: 2026-03-31, benchmark: nccl_tests, indicator: bus_bandwidth}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLUMBLINE_WAIVERS", str(tmp_path))
    return tmp_path


def write(folder: Path, waiver: str = GOOD, cluster: str = "made-up") -> None:
    (folder / "made-up.yaml").write_text(f"cluster: {cluster}\nwaivers:\n  - {waiver}\n")


def test_no_file_is_no_waivers(folder: Path):
    assert load_waivers("made-up") == ()


def test_a_waiver_names_reason_owner_and_end(folder: Path):
    write(folder)
    (waiver,) = load_waivers("made-up")
    assert waiver.describe() == ("waiver for nccl_tests/bus_bandwidth: cable ordered (owner ops, until 2026-03-31)")
    assert waivers_from(waivers_data([waiver])) == (waiver,)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (("owner: ops, ", ""), "owner"),
        (("reason: cable ordered, ", ""), "reason"),
        (("until: 2026-03-31, ", ""), "until"),
        (("2026-03-31", "soon"), "until"),
        ((", indicator: bus_bandwidth", ""), "indicator"),
        (("indicator: bus_bandwidth", "code: no_record"), "only FAIL and WARN"),
        (("indicator: bus_bandwidth", "code: not_a_number"), "only FAIL and WARN"),
        (("owner: ops", "owner: ''"), "owner"),
        (("owner:", "ownr:"), "did you mean 'owner'"),
    ],
)
def test_a_careless_waiver_is_refused(folder: Path, change: tuple[str, str], match: str):
    write(folder, GOOD.replace(*change))
    with pytest.raises(ConfigError, match=match):
        load_waivers("made-up")


def test_another_clusters_waivers_are_refused(folder: Path):
    write(folder, cluster="other")
    with pytest.raises(ConfigError, match="waivers of 'other'"):
        load_waivers("made-up")


def test_an_empty_file_is_not_silently_none(folder: Path):
    (folder / "made-up.yaml").write_text("")
    with pytest.raises(ConfigError, match="mapping"):
        load_waivers("made-up")
