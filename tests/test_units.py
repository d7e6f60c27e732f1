"""Units convert exactly, and say what they don't know."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.errors import ConfigError
from plumbline.units import UNITS, convert, parse_bytes, show_bytes


@pytest.mark.parametrize(
    ("value", "source", "target", "expected"),
    [
        (1, "GiB/s", "B/s", 1073741824),
        (1, "GB/s", "Gbit/s", 8),
        (132397, "KiB/s", "MB/s", 135.574528),
        (400, "Gbit/s", "GB/s", 50),
        (1500, "ns", "us", 1.5),
        (1, "PFLOPS", "GFLOPS", 1e6),
    ],
)
def test_known_conversions(value: float, source: str, target: str, expected: float) -> None:
    assert convert(value, source, target) == expected


@given(st.floats(min_value=1e-9, max_value=1e15), st.sampled_from(sorted(UNITS)))
def test_a_unit_converts_to_itself_unchanged(value: float, unit: str) -> None:
    assert convert(value, unit, unit) == value


@given(st.integers(min_value=0, max_value=10**12))
def test_there_and_back_again(value: int) -> None:
    assert convert(convert(value, "GiB", "B"), "B", "GiB") == value


def test_other_dimension_and_unknown_unit_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot convert GB/s"):
        convert(1, "GB/s", "s")
    with pytest.raises(ConfigError, match="did you mean 'GB/s'"):
        convert(1, "GB/S", "s")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8G", 8 << 30),
        ("51.2M", 53687091),
        ("1048576", 1 << 20),
        ("4KiB", 4096),
        ("1g", 1 << 30),
        ("512B", 512),
        ("8 GiB", 8 << 30),
        ("0", 0),
    ],
)
def test_sizes_as_tools_write_them(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "G", "eight", "1X", "-1", "1/0", "nan", "1/3", "1_0M", "1e30", "1e999999999", "+1", "0x10", "1.", ".5", "٣",
        "1GG", "1MiKB", "1 0", "1.5.5", "9" * 5000, "1." + "0" * 5000,
    ],
)  # fmt: skip
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not a size") as caught:
        parse_bytes(text)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("text", ["1048577T", "1152921504606846977", "9999999999999999999"])
def test_a_size_beyond_any_file_is_refused(text: str) -> None:
    assert parse_bytes("1048576T") == 1 << 60
    with pytest.raises(ConfigError, match=r"a size of more than 1048576 TiB"):
        parse_bytes(text)


@given(st.text(max_size=40))
def test_any_text_is_a_bounded_size_or_refused(text: str) -> None:
    with suppress(ConfigError):
        assert 0 <= parse_bytes(text) <= 1 << 60


def test_sizes_are_shown_in_binary_units() -> None:
    assert [show_bytes(n) for n in (8 << 30, 1536 << 10, 512)] == ["8 GiB", "1.5 MiB", "512 B"]
