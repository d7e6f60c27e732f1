"""Waivers: known faults that somebody answers for until a date.

They excuse a FAIL or a WARN, never a missing or impossible number.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from plumbline.amounts import plural
from plumbline.configuration import Document, at_line, load_yaml, parse, search_path
from plumbline.errors import ConfigError
from plumbline.indicators import indicator, indicators
from plumbline.model import KIND_OF_CODE, Code, Scalar, Verdict, VerdictKind, verdict

FOLDER = Path(__file__).parents[1] / "clusters" / "waivers"
LONGEST = datetime.timedelta(days=366)
"""A fault that nobody repairs for a year is no exception any more: then the limit, or the inventory, is to change."""
WAIVABLE = (VerdictKind.FAIL, VerdictKind.WARN)

Words = Annotated[str, Field(min_length=3)]


class Waiver(Document):
    """One excused fault. It names a benchmark with an indicator, a code, or both; and, narrower, a place.

    `match` is compared with the row's params. `until` is the last day on which it holds.
    """

    reason: Words
    owner: Words
    until: datetime.date
    benchmark: str
    indicator: str | None = None
    code: Code | None = None
    node: str | None = None
    node_count: Annotated[int, Field(ge=1)] | None = None
    match: dict[str, Scalar] = {}

    @model_validator(mode="after")
    def _is_narrow(self) -> Waiver:
        if self.indicator is None and self.code is None:
            raise ValueError("name an indicator, a code, or both: a waiver for a whole benchmark excuses too much")
        if self.code is not None and KIND_OF_CODE[self.code] not in WAIVABLE:
            raise ValueError(f"{self.code.value} is {KIND_OF_CODE[self.code].value}; only FAIL and WARN can be waived")
        return self

    def names(self, found: Verdict) -> bool:
        """Say whether the waiver is about this verdict, whatever its kind."""
        params = json.loads(found.params) if found.params and self.match else {}
        return (
            found.benchmark == self.benchmark
            and self.indicator in (None, found.indicator)
            and self.code in (None, found.code)
            and self.node in (None, found.node)
            and self.node_count in (None, found.node_count)
            and all(key in params and params[key] == value for key, value in self.match.items())
        )

    def may_name(self, code: Code, benchmark: str, indicator: str) -> bool:
        """Say whether rows of an indicator with this code can be among those that the waiver is about."""
        return benchmark == self.benchmark and self.indicator in (None, indicator) and self.code in (None, code)

    def describe(self) -> str:
        """Name the waiver for people."""
        what = "/".join(part for part in (self.benchmark, self.indicator) if part)
        more = [f"{key} {value}" for key, value in self.match.items()]
        more += [f"at {plural(self.node_count, 'node')}"] if self.node_count else []
        more += [f"node {self.node}"] if self.node else []
        more += [f"code {self.code.value}"] if self.code else []
        return f"waiver for {', '.join([what, *more])}: {self.reason} (owner {self.owner}, until {self.until})"


class WaiverFile(Document):
    """The waivers of one cluster."""

    cluster: str
    waivers: tuple[Waiver, ...]


def load_waivers(cluster: str) -> tuple[Waiver, ...]:
    """Read <cluster>.yaml from PLUMBLINE_WAIVERS or the shipped folder; no file is no waivers. Raises ConfigError."""
    for folder in search_path("PLUMBLINE_WAIVERS", FOLDER):
        path = folder / f"{cluster}.yaml"
        if path.is_file():
            file = parse(WaiverFile, load_yaml(path), str(path))
            if file.cluster != cluster:
                raise ConfigError(f"{path}: these are the waivers of {file.cluster!r}, not of {cluster!r}")
            _refuse_long(file, path)
            _refuse_unknown(file, path)
            return file.waivers
    return ()


def _refuse_long(file: WaiverFile, path: Path) -> None:
    last = datetime.datetime.now(datetime.UTC).date() + LONGEST
    for index, item in enumerate(file.waivers):
        if item.until > last:
            raise ConfigError(
                f"{path}: waivers[{index}].until: must be a date of the next twelve months, {last} at the latest, not "
                f"{item.until}{at_line(path, 'waivers', index, 'until')}"
            )


def _refuse_unknown(file: WaiverFile, path: Path) -> None:
    """Refuse waivers of benchmarks and indicators that there aren't: they would excuse nothing, without a word."""
    known = {name for name, _ in indicators()}
    for index, item in enumerate(file.waivers):
        key = "indicator" if item.benchmark in known else "benchmark"
        if key == "indicator" and item.indicator is None:
            continue
        try:
            indicator(item.benchmark, item.indicator or "")
        except ConfigError as error:
            line = at_line(path, "waivers", index, key)
            raise ConfigError(f"{path}: waivers[{index}].{key}: {error}{line}") from None


def waivers_data(waivers: Iterable[Waiver]) -> list[dict[str, Any]]:
    """Give waivers as plain data."""
    return [item.model_dump(mode="json") for item in waivers]


def waivers_from(data: Iterable[Mapping[str, Any]]) -> tuple[Waiver, ...]:
    """Read waivers back. Raises ConfigError."""
    return tuple(parse(Waiver, item, f"waivers[{index}]") for index, item in enumerate(data))


# -- applying ----------------------------------------------------------------------------------------------------


def waive(
    rows: Mapping[int, Verdict], others: Iterable[Verdict], waivers: Iterable[Waiver], today: datetime.date
) -> tuple[dict[int, Verdict], list[Verdict]]:
    """Turn what the waivers name into WAIVED, and report waivers that are over or that nothing needs any more.

    A waiver whose items were not measured stays silent: the missing measurement speaks for itself.
    """
    rows, others = dict(rows), list(others)
    reports: list[Verdict] = []
    for item in waivers:
        if item.until < today:
            reports.append(verdict(Code.WAIVER_EXPIRED, item.benchmark, f"void since {item.until}: {item.describe()}"))
            continue
        touched = False
        for line, found in rows.items():
            if item.names(found):
                touched, rows[line] = True, _waived(found, item)
        for index, found in enumerate(others):
            if item.names(found):
                touched, others[index] = True, _waived(found, item)
        if not touched:
            message = f"nothing fails that it excuses; remove it: {item.describe()}"
            reports.append(verdict(Code.WAIVER_UNUSED, item.benchmark, message))
    return rows, others + reports


def _waived(found: Verdict, item: Waiver) -> Verdict:
    """Give the verdict waived where its kind allows that, else as it is."""
    if found.kind not in WAIVABLE:
        return found
    message = f"{found.code.value}: {found.message}; {item.describe()}"
    return replace(found, kind=VerdictKind.WAIVED, code=Code.WAIVED, message=message)
