from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.errors import ConfigError
from plumbline.model import KIND_OF_CODE, Code, Verdict, VerdictKind, verdict
from plumbline.validation.waivers import Waiver, load_waivers, waive, waivers_data, waivers_from

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
        (("reason: cable ordered", "reason: ''"), "reason"),
        (("owner:", "ownr:"), "did you mean 'owner'"),
        (
            ("nccl_tests", "nccl_test"),
            r"made-up.yaml: waivers\[0\].benchmark: no benchmark 'nccl_test'; did you mean 'nccl_tests'\? \(line",
        ),
        (
            ("indicator: bus_bandwidth", "indicator: bus_bandwith"),
            r"waivers\[0\].indicator: nccl_tests has no indicator 'bus_bandwith'; did you mean 'bus_bandwidth'\? \(li",
        ),
        (
            ("nccl_tests, indicator: bus_bandwidth", "foi, code: worse_than_peers"),
            r"no benchmark 'foi'; did you mean 'fio'",
        ),
    ],
)
def test_a_careless_waiver_is_refused(folder: Path, change: tuple[str, str], match: str):
    write(folder, GOOD.replace(*change))
    with pytest.raises(ConfigError, match=match):
        load_waivers("made-up")


def test_a_waiver_ends_within_a_year(folder: Path):
    write(folder, GOOD.replace("2026-03-31", "9999-12-31"))
    wanted = r"made-up.yaml: waivers\[0\].until: must be a date of the next twelve months, .*not 9999-12-31 \(line 3\)"
    with pytest.raises(ConfigError, match=wanted):
        load_waivers("made-up")


def test_another_clusters_waivers_are_refused(folder: Path):
    write(folder, cluster="other")
    with pytest.raises(ConfigError, match="waivers of 'other'"):
        load_waivers("made-up")


def test_an_empty_file_is_not_silently_none(folder: Path):
    (folder / "made-up.yaml").write_text("")
    with pytest.raises(ConfigError, match="mapping"):
        load_waivers("made-up")


# -- applying --------------------------------------------------------------------------------------------------------

TODAY = date(2026, 3, 1)
WAIVER = Waiver(reason="cable ordered", owner="ops", until=TODAY, benchmark="fio", indicator="read_iops",
                node="n1", node_count=1, match={"clients": 2})  # fmt: skip
SLOW = verdict(Code.OUTSIDE_REFERENCE, "fio on n1", "slow", benchmark="fio", indicator="read_iops", node="n1",
               node_count=1, params='{"clients":2}')  # fmt: skip


def waived(found: Verdict, waiver: Waiver = WAIVER, today: date = TODAY) -> tuple[VerdictKind, list[Code]]:
    """Give the kind of a row's verdict under a waiver, and what is reported of the waiver."""
    rows, reports = waive({0: found}, [], [waiver], today)
    assert waive({}, [found], [waiver], today)[1][0].kind is rows[0].kind
    return rows[0].kind, [item.code for item in reports]


def test_what_a_waiver_names_is_waived_until_its_last_day():
    assert waived(SLOW) == (VerdictKind.WAIVED, [])
    assert waived(SLOW, today=TODAY + timedelta(days=1)) == (VerdictKind.FAIL, [Code.WAIVER_EXPIRED])


@pytest.mark.parametrize(
    "other",
    [
        {"benchmark": "nccl_tests"}, {"indicator": "write_iops"}, {"node": "n2"}, {"node_count": 2},
        {"params": '{"clients":4}'}, {"params": None}, {"node": None}, {"indicator": None},
    ],
)  # fmt: skip
def test_a_waiver_excuses_nothing_beside_what_it_names(other: dict[str, object]):
    assert waived(replace(SLOW, **other)) == (VerdictKind.FAIL, [Code.WAIVER_UNUSED])


def test_a_waiver_for_a_code_excuses_that_code():
    by_code = WAIVER.model_copy(update={"code": Code.WORSE_THAN_PEERS})
    assert waived(SLOW, by_code) == (VerdictKind.FAIL, [Code.WAIVER_UNUSED])
    assert waived(replace(SLOW, code=Code.WORSE_THAN_PEERS), by_code) == (VerdictKind.WAIVED, [])


def test_a_waiver_that_nothing_needs_is_reported():
    assert [item.code for item in waive({}, [], [WAIVER], TODAY)[1]] == [Code.WAIVER_UNUSED]


@given(st.sampled_from([code for code in Code if KIND_OF_CODE[code] not in (VerdictKind.FAIL, VerdictKind.WARN)]))
def test_only_a_fail_or_a_warning_is_excused(code: Code):
    found = verdict(code, "fio on n1", "why", benchmark="fio", indicator="read_iops", node="n1", node_count=1,
                    params='{"clients":2}')  # fmt: skip
    assert waived(found)[0] is found.kind
