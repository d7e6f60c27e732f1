from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.errors import ConfigError
from plumbline.indicators import indicator, indicators
from plumbline.indicators.dictionary import markdown
from plumbline.units import UNITS

DOCUMENT = Path(__file__).parents[2] / "docs" / "indicators.md"


def test_the_document_is_what_the_code_says():
    assert DOCUMENT.read_text(encoding="utf-8") == markdown(), (
        "run: plumbline list indicators --markdown > docs/indicators.md"
    )


def test_every_indicator_is_fit_to_be_judged():
    for (benchmark, name), item in indicators().items():
        where = f"{benchmark}/{name}"
        assert item.name == name, where
        assert item.unit in UNITS, where
        assert item.title and item.formula and item.source, where
        item.display.format(1.0)
        if item.valid_lower is not None and item.valid_upper is not None:
            assert item.valid_lower < item.valid_upper, where


def test_an_unknown_name_is_answered_with_the_nearest():
    assert indicator("nccl_tests", "bus_bandwidth").unit == "GB/s"
    with pytest.raises(ConfigError, match="did you mean 'bus_bandwidth'"):
        indicator("nccl_tests", "busbandwidth")
    with pytest.raises(ConfigError, match="did you mean 'nccl_tests'"):
        indicator("ncl_tests", "bus_bandwidth")
