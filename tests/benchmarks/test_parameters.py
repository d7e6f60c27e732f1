"""A parameter of a benchmark is what its module allows, or is refused by name."""

from __future__ import annotations

import pytest

from plumbline.benchmarks import benchmark, benchmarks, resolve_params
from plumbline.errors import ConfigError


@pytest.mark.parametrize("name", list(benchmarks()))
def test_defaults_are_within_their_own_bounds(name: str) -> None:
    module = benchmark(name)
    given = {key: one.default for key, one in module.PARAMETERS.items()}
    assert resolve_params(module, given, "file") == resolve_params(module, {}, "file") == given


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("fio", {"clients": 0}, "file: fio.clients must be at least 1, not 0"),
        ("fio", {"clients": 1_000_000_000}, "file: fio.clients must be at most 4,096, not 1000000000"),
        ("fio", {"iodepth": 10**9}, "file: fio.iodepth must be at most 65,536, not 1000000000"),
        ("fio", {"runtime_s": 1e30}, "file: fio.runtime_s must be at most 86,400, not 1e+30"),
        (
            "nccl_tests",
            {"iterations": 10**12},
            "file: nccl_tests.iterations must be at most 1,000,000, not 1000000000000",
        ),
        ("fio", {"clients": True}, "file: fio.clients must be a whole number, not True"),
        ("fio", {"clinets": 1}, "file: fio has no parameter 'clinets'; did you mean 'clients'?"),
        ("hpl_mxp", {"nporder": "rows"}, "file: hpl_mxp.nporder must be one of row, column, not 'rows'"),
    ],
)
def test_what_is_not_allowed_is_named_with_its_bound(name: str, given: dict, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_params(benchmark(name), given, "file")
    assert str(caught.value).startswith(words)
