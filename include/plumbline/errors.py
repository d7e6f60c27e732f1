"""The errors that Plumbline raises, and what each means for a retry.

    PlumblineError
    ├─ ConfigError       profile, suite, reference or parameter is wrong          final
    ├─ LaunchError       no record came back: infrastructure                       retry elsewhere
    │  └─ ClusterBusyError   another run holds the cluster's lock                   retry later
    ├─ OutputError       a record exists, its output is unreadable                 final → INVALID
    ├─ ValidationError   rows break the schema: carries all violations             final
    ├─ TrackingError     MLflow or the store is unreachable                        retry
    ├─ StageLostError    the process of a stage was killed                         retry
    └─ NotificationError a message could not be sent                               retry

A slow GPU is a Verdict, never an exception.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit status of every `plumbline` command."""

    OK = 0
    """Done; where there is a gate, it is open."""
    CLOSED = 1
    """The gate is closed, or `verify` found something."""
    USAGE = 2
    """Wrong use or wrong configuration."""
    INCOMPLETE = 3
    """Read, but the run in it is incomplete, aborted or failed."""
    UNREADABLE = 4
    """Not readable as that format."""
    INFRASTRUCTURE = 5
    """A stage or the infrastructure failed."""


class PlumblineError(Exception):
    """Base of all errors that name their cause; anything else escaping Plumbline is a defect."""

    exit_code = ExitCode.INFRASTRUCTURE


class ConfigError(PlumblineError):
    """A profile, suite, reference or parameter is wrong. The message names file, key and near match."""

    exit_code = ExitCode.USAGE


class LaunchError(PlumblineError):
    """A launch left no record: unschedulable, image, evicted, node lost, launcher gone."""


class ClusterBusyError(LaunchError):
    """Another run holds the cluster's lock."""


class OutputError(PlumblineError):
    """Output is not readable as its format: carries an excerpt, and file and line where known."""

    exit_code = ExitCode.UNREADABLE

    def __init__(self, message: str, *, source: str | None = None, line: int | None = None, excerpt: str = "") -> None:
        """Place the message: `source` is a file name, `line` counts from 1, `excerpt` is cut to 160 characters."""
        place = f"{source}:{line}: " if source and line else f"{source}: " if source else ""
        shown = f" (near {excerpt[:160]!r})" if excerpt else ""
        super().__init__(f"{place}{message}{shown}")
        self.source, self.line, self.excerpt = source, line, excerpt[:160]


class ValidationError(PlumblineError):
    """Rows break the measurement schema; `violations` holds every one of them."""

    def __init__(self, message: str, violations: Sequence[str] = ()) -> None:
        """Show the first five violations in the message and keep them all."""
        shown = "".join(f"\n  {v}" for v in violations[:5])
        more = f"\n  … and {len(violations) - 5} more" if len(violations) > 5 else ""
        super().__init__(f"{message}{shown}{more}")
        self.violations = tuple(violations)


class TrackingError(PlumblineError):
    """MLflow or the results store is unreachable."""


class StageLostError(PlumblineError):
    """The process of a stage was killed, for memory most likely; the stage can be repeated."""


class NotificationError(PlumblineError):
    """A message could not be sent: the mail server is unreachable or refuses it."""


def near_match(word: str, choices: Iterable[str]) -> str:
    """Give "; did you mean 'x'?" for the closest choice, or the list of choices when none is close."""
    known = sorted(choices)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6) or [k for k in known if word and k.startswith(word)]
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(known)}" if known else ""
