"""One module per benchmark; found by name, with no list to keep."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from typing import cast

from plumbline.benchmarks.benchmark import Benchmark, Parameter
from plumbline.errors import ConfigError, near_match
from plumbline.model import Params, Scalar

_SHARED = {"benchmark", "pretraining"}


@cache
def benchmarks() -> Mapping[str, Benchmark]:
    """Give every benchmark by name."""
    found: dict[str, Benchmark] = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name not in _SHARED and not info.name.startswith("_"):
            module = importlib.import_module(f"{__name__}.{info.name}")
            found[module.NAME] = cast(Benchmark, module)
    return dict(sorted(found.items()))


def benchmark(name: str) -> Benchmark:
    """Give one benchmark. Raises ConfigError with the nearest name when there is none."""
    try:
        return benchmarks()[name]
    except KeyError:
        raise ConfigError(f"no benchmark {name!r}{near_match(name, benchmarks())}") from None


def resolve_params(module: Benchmark, given: Params, where: str) -> dict[str, Scalar]:
    """Fill in defaults and check every value. `where` names file and key. Raises ConfigError."""
    for key in given:
        if key not in module.PARAMETERS:
            raise ConfigError(f"{where}: {module.NAME} has no parameter {key!r}{near_match(key, module.PARAMETERS)}")
    return {
        key: _checked(parameter, given[key], f"{where}: {module.NAME}.{key}") if key in given else parameter.default
        for key, parameter in module.PARAMETERS.items()
    }


_KINDS = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def _checked(parameter: Parameter, value: Scalar, where: str) -> Scalar:
    wanted = type(parameter.default)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if wanted is str and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if parameter.default is not None and type(value) is not wanted:
        raise ConfigError(f"{where} must be {_KINDS[wanted]}, not {value!r} ({parameter.meaning})")
    if parameter.choices and value not in parameter.choices:
        raise ConfigError(f"{where} must be one of {', '.join(map(str, parameter.choices))}, not {value!r}")
    if parameter.least is not None and isinstance(value, (int, float)) and value < parameter.least:
        raise ConfigError(f"{where} must be at least {parameter.least:g}, not {value!r}")
    if parameter.most is not None and isinstance(value, (int, float)) and value > parameter.most:
        raise ConfigError(f"{where} must be at most {parameter.most:,.15g}, not {value!r}")
    return value
