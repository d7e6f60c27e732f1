"""Kubernetes events: API objects, and the tables of kubectl describe, kubectl events and kubectl get events."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
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


class EventTable:
    """The header of a table of events: column names and where they begin, from left to right."""

    def __init__(self, names: Sequence[str], starts: Sequence[int]) -> None:
        """Find where each column ends, and which of them tell what."""
        self._columns = len(names)
        gaps = [slice(start - 1, start) for start in starts if start]
        self._gaps, self._blanks = itemgetter(*gaps), (" ",) * len(gaps)
        """A blank must stand before a column."""
        self._cells = itemgetter(*(slice(*span) for span in zip(starts, [*starts[1:], None], strict=True)))
        self._type, self._reason, self._message = map(names.index, ("TYPE", "REASON", "MESSAGE"))
        self._when = [names.index(name) for name in ("LAST SEEN", "AGE", "LASTSEEN") if name in names]
        self._first = [names.index(name) for name in ("FIRST SEEN", "FIRSTSEEN") if name in names]
        self._count = names.index("COUNT") if "COUNT" in names else None
        self._object = names.index("OBJECT") if "OBJECT" in names else None
        self._parts = [names.index(name) for name in ("KIND", "NAME") if name in names]

    def row(self, line: str) -> KubeEvent | None:
        """Read a row; None when the line is none."""
        cells = self._by_position(line.expandtabs(8) if "\t" in line else line) or self._by_gaps(line)
        if cells is None:
            return None
        times = _times(_filled(cells, self._when) or "")
        if times is None:
            return None
        last, count, first = times
        if self._count is not None and cells[self._count].isdigit():
            count = int(cells[self._count][:9])
        if first is None:
            told = _filled(cells, self._first)
            first = last if told is None else -seconds(told)
        about = cells[self._object] if self._object is not None else ""
        about = about or "/".join(cells[at] for at in self._parts if cells[at])
        message = cells[self._message]
        if "\\" in message:
            message = message.replace('\\"', '"')
        return tuple.__new__(
            KubeEvent, (cells[self._type], cells[self._reason], message, count, about, first, last)
        )  # at half the constructor's cost

    def _by_position(self, line: str) -> list[str] | None:
        """Cut at the header's columns, where every one begins after a space."""
        if self._gaps(line) != self._blanks:
            return None
        return self._checked([*map(str.strip, self._cells(line))])

    def _by_gaps(self, line: str) -> list[str] | None:
        """Cut at gaps of two spaces or tabs, for tables whose alignment was lost."""
        cells = re.split(r"\s{2,}|\t", line.strip(), maxsplit=self._columns - 1)
        return self._checked([*map(str.strip, cells)]) if len(cells) == self._columns else None

    def _checked(self, cells: list[str]) -> list[str] | None:
        return cells if cells[self._type] in _TYPES and _is_reason(cells[self._reason]) else None


def _filled(cells: list[str], columns: list[int]) -> str | None:
    """Give the first of these cells with something in it."""
    for at in columns:
        if cells[at]:
            return cells[at]
    return None


@lru_cache(maxsize=1024)
def _is_reason(text: str) -> bool:
    return _REASON.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def _times(text: str) -> tuple[float, int, float | None] | None:
    """Read the cell that says when: (last, count, first where it tells), times as events have them; None: no such."""
    match = _TIMES.fullmatch(text)
    if match is None:
        return None
    return -seconds(match["last"]), int(match["count"] or 1), -seconds(match["first"]) if match["first"] else None


class About:
    """Events by what they are about."""

    def __init__(self, events: Sequence[KubeEvent], pods: int) -> None:
        """Sort the events of a file that holds so many pods."""
        self._by_object: defaultdict[str, list[KubeEvent]] = defaultdict(list)
        for event in events:
            self._by_object[event.object.lower()].append(event)
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
