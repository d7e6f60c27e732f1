"""The indicator dictionary: what every benchmark measures, and what is derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from plumbline.benchmarks import benchmarks
from plumbline.errors import ConfigError, near_match
from plumbline.indicators.definitions import derived_indicators
from plumbline.model import Indicator


@cache
def indicators() -> Mapping[tuple[str, str], Indicator]:
    """Give every indicator by (benchmark, name): the benchmarks' own first, then what is derived from them."""
    found: dict[tuple[str, str], Indicator] = {}
    for name, module in benchmarks().items():
        for item in module.INDICATORS:
            found[name, item.name] = item
    for key, item in derived_indicators(benchmarks()).items():
        if key in found:
            raise ConfigError(f"indicator {key[1]!r} of {key[0]} is both measured and derived")
        found[key] = item
    return found


def indicator(benchmark: str, name: str) -> Indicator:
    """Give one indicator. Raises ConfigError with the nearest name when there is none."""
    known = indicators()
    try:
        return known[benchmark, name]
    except KeyError:
        names = [key[1] for key in known if key[0] == benchmark]
        if not names:
            known_benchmarks = {key[0] for key in known}
            raise ConfigError(f"no benchmark {benchmark!r}{near_match(benchmark, known_benchmarks)}") from None
        raise ConfigError(f"{benchmark} has no indicator {name!r}{near_match(name, names)}") from None
