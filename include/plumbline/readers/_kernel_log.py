"""Lines of the kernel's log, in every wrapping: dmesg, dmesg -T, syslog, journalctl (text, ISO, JSON), /dev/kmsg."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_CTIME = r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
_SYSLOG = r"(?:<\d{1,3}>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d"
_LEVEL = r"(?:[a-z]{2,8} {0,4}:[a-z]{2,6} {0,4}: )?"
_LINE = re.compile(
    rf"{_LEVEL}(?:\[(?P<ctime>{_CTIME})\]|(?:<\d{{1,3}}>)?\[(?P<boot> {{0,8}}\+?\d{{1,8}}\.\d{{6}})\]"
    rf"|(?P<iso>{_ISO}) |(?P<syslog>{_SYSLOG}) |\d{{1,4}},\d{{1,12}},(?P<kmsg>\d{{1,18}}),[^;\n]{{0,60}};)"
)
_MONOTONIC = re.compile(r"\[ {0,8}(\d{1,12}\.\d{6})\] {0,2}$")
_REPEATED = re.compile(r"message repeated (\d{1,6}) times: \[ ?")
_JSON_KEYS = ("MESSAGE", "message", "msg", "log", "line", "textPayload")
_JSON_TIMES = ("_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP", "time", "timestamp", "@timestamp", "ts")


def unwrap(line: str) -> tuple[str, str | None]:
    """Give the message of a JSON line with its time as printed, any other line as it is with None."""
    if not line.startswith("{"):
        return line, None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return line, None
    if not isinstance(data, dict):
        return line, None
    time = next((str(data[key]) for key in _JSON_TIMES if isinstance(data.get(key), (str, int, float))), None)
    for key in _JSON_KEYS:
        if isinstance(text := data.get(key), str):
            return text, time
    return line, time


def is_kernel_line(line: str) -> bool:
    """Say whether a line has the shape of a log line that a kernel or journal writes."""
    match = _LINE.match(line)
    if match is None:
        return line.startswith("{") and '"MESSAGE"' in line
    if match["iso"] is None and match["syslog"] is None:
        return True
    return " kernel:" in line[:200] or _LINE.match(line, match.end()) is not None


def printed_time(line: str) -> str | None:
    """Give the time at a line's start as printed, None where there is none."""
    match = _LINE.match(line)
    return None if match is None else next((text.strip() for text in match.groups() if text), None)


def time_of(line: str) -> datetime | None:
    """Give the time at a line's start where it says day and year; without a zone it is taken as UTC."""
    _, stamp = unwrap(line)
    if stamp is not None:
        return _from_stamp(stamp)
    match = _LINE.match(line)
    if match is None:
        return None
    try:
        if match["ctime"]:
            return datetime.strptime(match["ctime"], "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC)
        return parse_time(match["iso"]) if match["iso"] else None
    except (ValueError, OverflowError):
        return None


def _from_stamp(stamp: str) -> datetime | None:
    try:
        if stamp.isascii() and stamp.isdigit() and 15 <= len(stamp) <= 17:
            return datetime.fromtimestamp(int(stamp) / 1e6, UTC)
        return parse_time(stamp)
    except (ValueError, OverflowError, OSError):
        return None


def parse_time(text: str) -> datetime:
    """Read an ISO 8601 time; without a zone it is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text.strip().replace(",", "."))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def monotonic(before: str) -> str | None:
    """Give the seconds since boot that end `before`, the text in front of a message: equal ones are one event."""
    match = _MONOTONIC.search(before)
    return match[1] if match else None


def repeats(before: str) -> int:
    """Say how often rsyslog counted the message in 'message repeated 3 times: [ …' (1 elsewhere)."""
    match = _REPEATED.search(before)
    return max(1, int(match[1])) if match else 1
