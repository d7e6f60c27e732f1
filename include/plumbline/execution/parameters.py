"""Whether benchmarks and their parameters are known ones; what is not is told where it was given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plumbline.benchmarks import benchmark, resolve_params
from plumbline.clusters.profile import ClusterProfile
from plumbline.configuration import at_line
from plumbline.errors import ConfigError
from plumbline.model import Params
from plumbline.suites.suite import Suite


def check_profile(profile: ClusterProfile, path: Path) -> None:
    """Check what a profile says of benchmarks. Raises ConfigError with file, key and line."""
    for name, given in profile.benchmarks.items():
        _check_name(name, path, "benchmarks", name)
        _check(name, given, path, "benchmarks", name)


def check_suite(suite: Suite, path: Path) -> None:
    """Check the benchmarks of a suite as its file has it. Raises ConfigError with file, key and line."""
    for index, entry in enumerate(suite.benchmarks):
        _check_name(entry.benchmark, path, "benchmarks", index, "benchmark")
        _check(entry.benchmark, entry.params, path, "benchmarks", index, "params")


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check the parameters that `--set` gives. Raises ConfigError with the setting."""
    for key, value in settings.items():
        name, dot, parameter = key.partition(".")
        if dot:
            resolve_params(benchmark(name), {parameter: value}, f"--set {key}")


def _check_name(name: str, path: Path, *place: Any) -> None:
    try:
        benchmark(name)
    except ConfigError as error:
        raise ConfigError(f"{path}: benchmarks: {error}{at_line(path, *place)}") from None


def _check(name: str, given: Params, path: Path, *place: Any) -> None:
    module = benchmark(name)
    for key, value in given.items():
        try:
            resolve_params(module, {key: value}, str(path))
        except ConfigError as error:
            raise ConfigError(f"{error}{at_line(path, *place, key)}") from None
