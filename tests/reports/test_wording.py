import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.reports.wording import clean, duration, node_list, params_in_words, percent, plain, plural, shortened


@given(st.text())
def test_cleaning_twice_is_cleaning_once_and_leaves_nothing_unseen(text: str):
    once = clean(text)
    assert clean(once) == once
    assert not set(once) & set("\x00\x1b\r\x7f\u200b\u202e\u2066\ufeff\u061c\xad\u115f\U000e0041")


@pytest.mark.parametrize("hidden", ["\u061c", "\xad", "\u115f", "\u3164", "\U000e0041"])
def test_letters_that_show_nothing_are_shown(hidden: str):
    assert clean(f"FAIL{hidden}ED") == "FAIL\ufffdED"


@pytest.mark.parametrize(
    ("value", "written"),
    [(0.0, "0"), (1234567.0, "1,235,000"), (0.0123456, "0.01235"), (9.5, "9.5"), (-3.21987, "-3.22"), (1e-7, "1e-07"),
     (2.5e12, "2.5e+12"), (999.96, "1,000")],
)  # fmt: skip
def test_numbers_are_written_for_reading(value: float, written: str):
    assert plain(value) == written


@given(st.floats(1e-3, 1e8))
def test_four_digits_are_kept(value: float):
    assert float(plain(value).replace(",", "")) == pytest.approx(value, rel=6e-4)


@pytest.mark.parametrize(
    ("seconds", "written"), [(None, "–"), (12.5, "12.5 s"), (185, "3 min 5 s"), (4320, "1 h 12 min"), (59.99, "60 s")]
)
def test_durations_are_written_as_people_say_them(seconds: float | None, written: str):
    assert duration(seconds) == written


def test_small_words():
    assert percent(-0.1234) == "-12.3%" and percent(None) == ""
    assert plural(1, "node") == "1 node" and plural(1200, "launch", "launches") == "1,200 launches"
    assert node_list(["a", "b", "c"], 2) == "a, b and 1 more"
    assert shortened("one\n two", 20) == "one two" and shortened("abcdef", 4) == "abc…"
    assert params_in_words('{"message_bytes":8589934592,"operation":"all_reduce","iodepth":16}') == (
        "8 GiB, all_reduce, iodepth 16"
    )
