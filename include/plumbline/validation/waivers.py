"""Waivers: known faults that somebody answers for until a date.

They excuse a FAIL or a WARN, never a missing or impossible number.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from plumbline.configuration import Document, load_yaml, parse, search_path
from plumbline.errors import ConfigError
from plumbline.model import KIND_OF_CODE, Code, Scalar, VerdictKind

FOLDER = Path(__file__).parents[1] / "clusters" / "waivers"
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

    def describe(self) -> str:
        """Name the waiver for people."""
        what = "/".join(part for part in (self.benchmark, self.indicator) if part)
        more = [f"{key} {value}" for key, value in self.match.items()]
        more += [f"at {self.node_count} nodes"] if self.node_count else []
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
            return file.waivers
    return ()


def waivers_data(waivers: Iterable[Waiver]) -> list[dict[str, Any]]:
    """Give waivers as plain data."""
    return [item.model_dump(mode="json") for item in waivers]


def waivers_from(data: Iterable[Mapping[str, Any]]) -> tuple[Waiver, ...]:
    """Read waivers back. Raises ConfigError."""
    return tuple(parse(Waiver, item, f"waivers[{index}]") for index, item in enumerate(data))
