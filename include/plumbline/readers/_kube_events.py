"""Kubernetes events: API objects, and the tables of kubectl describe, kubectl events and kubectl get events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

_AGE = re.compile(r"(?:(\d{1,6})y)?(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,6})s)?")
_TIMES = re.compile(
    r"(?P<last><\w+>|[\dydhms.]{1,20})(?: \(x(?P<count>\d{1,9})(?: over (?P<first><\w+>|[\dydhms.]{1,20}))?\))?"
)
_SECONDS = (31536000, 86400, 3600, 60, 1)
_COLUMNS = (
    "NAMESPACE", "LAST SEEN", "FIRST SEEN", "LASTSEEN", "FIRSTSEEN", "COUNT", "NAME", "KIND", "SUBOBJECT", "TYPE",
    "REASON", "OBJECT", "SOURCE", "MESSAGE", "AGE", "FROM", "SUBOBJECTPATH",
)  # fmt: skip
_TYPES = ("Normal", "Warning")
_BLANKS = (" ", "\t")
_REASON = re.compile(r"[A-Za-z][\w.-]{0,80}")
_NEVER = float("inf")


class KubeEvent(NamedTuple):
    """One event. `first` and `last` order events: larger is later, whatever they count from."""

    type: str
    reason: str
    message: str
    count: int = 1  # type: ignore[assignment]  # in place of the tuple's method
    object: str = ""
    first: float = 0.0
    last: float = 0.0

    @property
    def warning(self) -> bool:
        """Whether Kubernetes calls it a warning."""
        return self.type == "Warning"


def event_of(data: Mapping[str, Any]) -> KubeEvent:
    """Read an Event of v1 or events.k8s.io/v1."""
    series = data.get("series") if isinstance(data.get("series"), dict) else {}
    about = data.get("involvedObject") or data.get("regarding") or {}
    count = data.get("count") or data.get("deprecatedCount") or (series or {}).get("count") or 1
    times = [
        str(value)
        for value in (
            data.get("firstTimestamp") or data.get("deprecatedFirstTimestamp") or data.get("eventTime"),
            (series or {}).get("lastObservedTime") or data.get("lastTimestamp") or data.get("deprecatedLastTimestamp"),
        )
        if value
    ]
    first, last = (_clock(times[0]), _clock(times[-1])) if times else (0.0, 0.0)
    return KubeEvent(
        type=str(data.get("type") or ""), reason=str(data.get("reason") or ""),
        message=str(data.get("message") or data.get("note") or "").strip(),
        count=count if isinstance(count, int) and not isinstance(count, bool) and 0 < count < 10**9 else 1,
        object=f"{about.get('kind', '')}/{about.get('name', '')}" if isinstance(about, dict) else "",
        first=first, last=last,
    )  # fmt: skip


def _clock(stamp: str) -> float:
    """Give an ISO time as a number that orders like it (not as seconds of anything)."""
    digits = re.sub(r"\D", "", stamp.split("+", maxsplit=1)[0])[:20]
    return float(digits.ljust(20, "0")) if len(digits) >= 14 else 0.0


@lru_cache(maxsize=4096)
def seconds(age: str) -> float:
    """Read an age as kubectl prints it ('5h43m', '2d3h', '61s'); infinity where it says <unknown>."""
    match = _AGE.fullmatch(age.strip())
    if match is None or not age.strip():
        return _NEVER
    return float(sum(int(part) * size for part, size in zip(match.groups(), _SECONDS, strict=True) if part))


@dataclass(slots=True)
class EventTable:
    """The header of a table of events: column names and where they begin."""

    names: list[str]
    starts: list[int]
    spans: list[tuple[int, int | None]] = field(init=False)
    gaps: list[int] = field(init=False)
    """Where a blank must stand before a column."""

    def __post_init__(self) -> None:
        """Find where each column ends."""
        self.gaps = [start - 1 for start in self.starts if start]
        self.spans = list(zip(self.starts, [*self.starts[1:], None], strict=True))

    def row(self, line: str) -> KubeEvent | None:
        """Read a row; None when the line is none."""
        cells = self._by_position(line.expandtabs(8) if "\t" in line else line) or self._by_gaps(line)
        if cells is None:
            return None
        times = _times(cells.get("LAST SEEN") or cells.get("AGE") or cells.get("LASTSEEN") or "")
        if times is None:
            return None
        last, count, first = times
        if (cells.get("COUNT") or "").isdigit():
            count = int(cells["COUNT"][:9])
        first = first or cells.get("FIRST SEEN") or cells.get("FIRSTSEEN") or last
        about = cells.get("OBJECT") or "/".join(filter(None, (cells.get("KIND"), cells.get("NAME"))))
        message = cells["MESSAGE"].replace('\\"', '"')
        return KubeEvent(cells["TYPE"], cells["REASON"], message, count, about, -seconds(first), -seconds(last))

    def _by_position(self, line: str) -> dict[str, str] | None:
        """Cut at the header's columns, where every one begins after a space."""
        for gap in self.gaps:
            if line[gap : gap + 1] not in _BLANKS:
                return None
        return self._checked([line[start:end].strip() for start, end in self.spans])

    def _by_gaps(self, line: str) -> dict[str, str] | None:
        """Cut at gaps of two spaces or tabs, for tables whose alignment was lost."""
        cells = re.split(r"\s{2,}|\t", line.strip(), maxsplit=len(self.names) - 1)
        cells = [cell.strip() for cell in cells]
        return self._checked(cells) if len(cells) == len(self.names) else None

    def _checked(self, cells: Sequence[str]) -> dict[str, str] | None:
        row = dict(zip(self.names, cells, strict=True))
        return row if row["TYPE"] in _TYPES and _is_reason(row["REASON"]) else None


@lru_cache(maxsize=1024)
def _is_reason(text: str) -> bool:
    return _REASON.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _times(text: str) -> tuple[str, int, str | None] | None:
    """Read the cell that says when: (age of the last, count, age of the first where it tells), None for another."""
    match = _TIMES.fullmatch(text)
    return (match["last"], int(match["count"] or 1), match["first"]) if match else None


class About:
    """Events by what they are about."""

    def __init__(self, events: Sequence[KubeEvent], pods: int) -> None:
        """Sort the events of a file that holds so many pods."""
        self._by_object: dict[str, list[KubeEvent]] = {}
        for event in events:
            self._by_object.setdefault(event.object.lower(), []).append(event)
        named = any(name.startswith("pod/") for name in self._by_object)
        self._else = list(events) if pods == 1 and not named else []

    def pod(self, name: object) -> list[KubeEvent]:
        """Give the events about a pod; all of them where there is one pod only, and none that names a pod."""
        return self._by_object.get(f"pod/{name}".lower()) or self._else


def event_header(line: str) -> EventTable | None:
    """Read the header of a table of events, or give None."""
    if "eason" not in line and "REASON" not in line:
        return None
    text = line.expandtabs(8) if "\t" in line else line
    upper = text.upper()
    names, starts = [], []
    for match in re.finditer(r"\S+(?: \S+)*", upper):
        word = match[0].rstrip(":")
        if word not in _COLUMNS:
            return None
        names.append(word)
        starts.append(match.start())
    needed = {"TYPE", "REASON", "MESSAGE"}
    aged = {"AGE", "LAST SEEN", "LASTSEEN"} & set(names)
    if not needed <= set(names) or not aged or len(set(names)) != len(names):
        return None
    return EventTable(names, starts)


def rows(lines: Sequence[str], table: EventTable) -> Iterator[KubeEvent]:
    """Give the events of the lines below a header."""
    for line in lines:
        if (event := table.row(line)) is not None:
            yield event
