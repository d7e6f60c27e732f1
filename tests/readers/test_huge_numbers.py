"""A number that no tool can mean (cut memory, a joined line, a hostile file) is no number, and breaks no reader."""

from __future__ import annotations

import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

from plumbline import readers
from plumbline.errors import ConfigError, OutputError
from plumbline.model import to_plain
from plumbline.readers import Completeness, Fact, Item, Reading, Source, Status

DATA = Path(__file__).parents[1] / "data"
HUGE = ("99999999999999999999", "9" * 400, "-1" + "0" * 400, "1e308", "-1e308", "1e309", "1e999999999", "9" * 5000)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
TRIES = 40


def read(name: str, text: str, **expect: Any) -> list[Item]:
    return list(readers.read(name, Source.of_bytes(text.encode(), name), expect))


@pytest.mark.parametrize("name", sorted(path.name for path in DATA.iterdir() if path.name in readers.reader_names()))
def test_no_number_breaks_a_reader(name: str) -> None:
    chosen = random.Random(name)
    outputs = [path for path in sorted((DATA / name).iterdir()) if path.is_file() and path.stat().st_size < 30_000]
    for path in chosen.choices(outputs, k=TRIES):
        text = path.read_text(encoding="utf-8", errors="replace")
        for place in sorted(chosen.choices(list(NUMBER.finditer(text)), k=3), key=lambda found: -found.start()):
            text = text[: place.start()] + chosen.choice(HUGE) + text[place.end() :]
        try:
            items = read(name, text)
        except OutputError:
            continue
        assert all(math.isfinite(item.value) for item in items if isinstance(item, Reading)), path.name
        assert json.dumps([to_plain(item) for item in items], allow_nan=False)
        assert isinstance(items[-1], Completeness)


def test_a_fact_holds_infinity_as_text() -> None:
    value = {"a": [1.5, math.inf, (math.nan, "x")], "b": None}
    assert Fact("f", value).value == {"a": [1.5, "inf", ["nan", "x"]], "b": None}
    fine = {"a": (1.5, 2)}
    assert Fact("f", fine).value is fine
    seed = ':::MLLOG {"namespace": "", "time_ms": 1, "event_type": "POINT_IN_TIME", "key": "seed", "value": 1e999}\n'
    assert Fact("seed", "inf") in read("mllog", seed)


def fio(**job: Any) -> str:
    done = {
        "io_bytes": 1 << 20,
        "io_kbytes": 1024,
        "bw_bytes": 1 << 20,
        "bw": 1024,
        "iops": 256.0,
        "runtime": 1000,
        "total_ios": 256,
    }
    given = {"jobname": "a", "error": 0, "read": done, **job}
    return json.dumps({"fio version": "fio-3.36", "timestamp": 1, "jobs": [given]}) + "\n"


@pytest.mark.parametrize("error", [99999999999999999999, -1, 10**400, 1 << 31, 1.5, "5", True, [1], None])
def test_an_error_of_fio_that_no_system_has_is_a_failure_all_the_same(error: Any) -> None:
    assert read("fio", fio())[-1].status is Status.COMPLETE  # type: ignore[union-attr]
    assert read("fio", fio(error=error))[-1].status is Status.FAILED  # type: ignore[union-attr]


@pytest.mark.parametrize("amount", [10**400, 1e308, 1 << 64])
def test_bytes_that_fio_cannot_count_are_no_number(amount: float) -> None:
    for old in ("io_kbytes", "io_bytes"):
        items = read("fio", fio(read={"io_bytes": amount, old: amount, "bw": 10, "iops": 1.0, "runtime": 1e-300}))
        assert not [item for item in items if isinstance(item, Reading) and item.indicator == "total_bytes"]


@pytest.mark.parametrize("value", [10**400, 1 << 63, math.inf, math.nan, -(10**400)])
@pytest.mark.parametrize("key", ["io_kbytes", "bw_bytes"])
def test_a_number_beyond_all_counting_agrees_with_nothing(key: str, value: float) -> None:
    direction = json.loads(fio())["jobs"][0]["read"]
    found = read("fio", fio(read={**direction, key: value}))[-1]
    assert isinstance(found, Completeness) and found.status is Status.INCOMPLETE, found


@pytest.mark.parametrize("size", ["1e999999999", "1/3", "9" * 31, "1_0M"])
def test_a_size_that_is_none_settles_nothing(size: str) -> None:
    given = fio(**{"job options": {"rw": "read", "size": size, "runtime": "30"}})
    assert read("fio", given)[-1].status is Status.COMPLETE  # type: ignore[union-attr]
    assert read("fio", given, size="1M")[-1].status is Status.FAILED  # type: ignore[union-attr]


@pytest.mark.parametrize("key", ["jobs", "errors"])
@pytest.mark.parametrize("count", ["²", "many", "-1", "9" * 5000, 1.5])
def test_an_expected_count_that_is_none_is_refused(key: str, count: Any) -> None:
    with pytest.raises(ConfigError, match=f"expectation {key}: a whole number"):
        read("fio", fio(), **{key: count})


@pytest.mark.parametrize(
    ("count", "told"), [(10**400, None), (1 << 31, None), (-1, None), ((1 << 31) - 1, (1 << 31) - 1)]
)
def test_restarts_that_the_api_cannot_count_are_none(count: int, told: int | None) -> None:
    status = {"phase": "Running", "containerStatuses": [{"name": "a", "restartCount": count, "state": {"running": {}}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n"}, "status": status}
    items = read("kubernetes", json.dumps(pod) + "\n")
    assert [item.value for item in items if isinstance(item, Reading)] == ([] if told is None else [told])


@pytest.mark.parametrize("value", ["1e308", "-1e308", "-1e300", "9" * 30])
def test_a_field_of_dcgm_beyond_its_bits_is_absent(value: str) -> None:
    page = (
        "# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION Energy (in J).\n"
        f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{gpu="0"}} {value}\n'
        'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 40\n'
    )
    items = read("dcgm_exporter", page)
    assert [item.indicator for item in items if isinstance(item, Reading)] == ["DCGM_FI_DEV_GPU_TEMP"]
    assert Fact("absent", {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1}) in items
