"""What is left in a run's folder of a prune: pruned.json, which tells raw output that was let go from what is lost.

The record is written before evidence/raw goes, and raw/ then goes as one folder: a prune that was interrupted leaves
either all of it, and the next one begins anew, or none, and the next one sweeps up.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from shutil import rmtree

from plumbline.amounts import plural
from plumbline.errors import OutputError
from plumbline.execution.run_one import write_atomically

RECORD = "pruned.json"
_RAW = Path("evidence/raw")
_ASIDE = ".pruned.tmp"
"""Where raw/ waits to be deleted: beside evidence/, so that no half of it is ever taken for evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """One prune: when (UTC, ISO 8601), by which Plumbline, how much went, and the seal that the run had."""

    pruned_at: str
    plumbline: str
    files: int
    size_bytes: int
    manifest_sha256: str

    def __str__(self) -> str:
        """Say it within a sentence."""
        what = f"{plural(self.files, 'raw file')} ({self.size_bytes / 1e6:.1f} MB)"
        return f"{what} pruned at {self.pruned_at} by Plumbline {self.plumbline}"


def is_pruned(run: Path) -> bool:
    """Say whether raw/ is gone and a prune was begun, readable record or not: nothing is left to judge from."""
    return (run / RECORD).is_file() and not (run / _RAW).exists()


def read_record(run: Path) -> Pruning:
    """Read the record. Raises OutputError for an absent or damaged one."""
    try:
        data = json.loads((run / RECORD).read_text(encoding="utf-8"))
        found = Pruning(**{field.name: data[field.name] for field in fields(Pruning)})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OutputError(f"not readable: {error!r}", source=RECORD) from None
    kinds = [type(getattr(found, field.name)).__name__ for field in fields(Pruning)]
    if kinds != [field.type for field in fields(Pruning)]:
        raise OutputError("a value is of the wrong type", source=RECORD)
    return found


def remove_raw(run: Path, record: Pruning) -> None:
    """Write the record, then delete raw/. Raises OSError; whatever ends it, raw/ is whole or gone."""
    write_atomically(run / RECORD, json.dumps({"schema_version": 1, **asdict(record)}, indent=1, sort_keys=True) + "\n")
    sweep(run)
    (run / _RAW).rename(run / _ASIDE)
    sweep(run)


def sweep(run: Path) -> bool:
    """Delete what an interrupted prune left aside; say whether there was any. Raises OSError."""
    if not (run / _ASIDE).is_dir():
        return False
    rmtree(run / _ASIDE)
    return True
