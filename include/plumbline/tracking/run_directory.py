"""A run is one directory: `evidence/` is sealed when the launches end, `derived/` can be recomputed from it.

results/<cluster>/<suite>/<run_id>/
  evidence/   plan profile suite references environment .json, records/, raw/, manifest.json (written last)
  derived/    measurements.parquet verdicts.parquet verdict.json gx.json findings.json report.html provenance.json
  decisions.jsonl   append-only sign-offs, each with the manifest's digest
  pruned.json       where raw/ was let go by `plumbline prune`: when, how much, and the manifest's digest
  .derived.lock     empty; locked by whoever changes derived/
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plumbline.amounts import plural
from plumbline.clusters.profile import ClusterProfile
from plumbline.configuration import parse
from plumbline.errors import ConfigError, OutputError, ValidationError
from plumbline.execution.plan import Plan, plan_from
from plumbline.execution.run_one import file_sha256, write_atomically
from plumbline.model import RunRecord, run_record
from plumbline.suites.suite import Suite
from plumbline.tracking import derived_folder
from plumbline.tracking.json_lines import append_line, lines_of
from plumbline.tracking.prune_record import Pruning, is_pruned, read_record

RUN_ID = re.compile(r"^\d{8}T\d{6}Z-[0-9a-f]{6}$")
MANIFEST = "manifest.json"
PROVENANCE = "provenance.json"
DECISIONS = "decisions.jsonl"
_RAW = "raw/"
"""How the manifest's names of raw output begin."""


def new_run_id(now: datetime | None = None) -> str:
    """Give a run id: UTC second and six random hex digits."""
    return f"{(now or datetime.now(UTC)).strftime('%Y%m%dT%H%M%SZ')}-{secrets.token_hex(3)}"


def run_time(run_id: str) -> datetime:
    """Give the time that a run id was made. Raises ConfigError for what is not a run id."""
    if not RUN_ID.match(run_id):
        raise ConfigError(f"not a run id: {run_id!r} (YYYYMMDDTHHMMSSZ-xxxxxx); a run's folder keeps its name")
    return datetime.strptime(run_id[:16], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


class RunDirectory:
    """One run on disk. Knows names and seals; knows nothing of what the numbers mean."""

    def __init__(self, path: Path, derived: Path | None = None) -> None:
        """Wrap a path; nothing is read or created yet. `derived` is a folder that stands in for derived/."""
        self.path = path.resolve()
        self._derived = derived or self.path / "derived"
        self._sealed_at: tuple[tuple[int, int], datetime] | None = None

    @property
    def run_id(self) -> str:
        """The directory's own name."""
        return self.path.name

    @property
    def evidence(self) -> Path:
        """What was measured; sealed by manifest.json."""
        return self.path / "evidence"

    @property
    def derived(self) -> Path:
        """What was computed from the evidence."""
        return self._derived

    @classmethod
    def create(cls, results: Path, cluster: str, suite: str, run_id: str) -> RunDirectory:
        """Make the directories of a new run. Raises ConfigError when it exists or cannot be made."""
        path = results / cluster / suite / run_id
        try:
            (path / "evidence").mkdir(parents=True)
            for folder in ("evidence/records", "evidence/raw", "derived"):
                (path / folder).mkdir()
        except OSError as error:
            raise ConfigError(f"cannot make run directory {path}: {error.strerror or error}") from None
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open an existing run. Raises ConfigError when it is not a run directory."""
        run = cls(path)
        if not run.evidence.is_dir():
            raise ConfigError(f"{path} is not a run directory: it has no evidence/")
        return run

    # -- evidence ------------------------------------------------------------------------------------------------

    def write_evidence(self, name: str, data: Any) -> None:
        """Write evidence/<name>.json. Raises ValidationError when the run is sealed."""
        if self.sealed:
            raise ValidationError(f"{self.run_id} is sealed: {name}.json cannot be added")
        write_atomically(self.evidence / f"{name}.json", _pretty(data))

    def read_evidence(self, name: str) -> Any:
        """Read evidence/<name>.json. Raises OutputError when it is absent or damaged."""
        return _read_json(self.evidence / f"{name}.json")

    def plan(self) -> Plan:
        """Read plan.json. Raises OutputError."""
        try:
            return plan_from(self.read_evidence("plan"))
        except (KeyError, TypeError, ValueError) as error:
            raise OutputError(f"damaged plan: {error}", source="plan.json") from None

    def profile(self) -> ClusterProfile:
        """Read the profile that the run used."""
        return parse(ClusterProfile, self.read_evidence("profile"), f"{self.run_id}/profile.json")

    def suite(self) -> Suite:
        """Read the suite that the run used, with its settings applied."""
        return parse(Suite, self.read_evidence("suite"), f"{self.run_id}/suite.json")

    def records(self) -> Iterator[tuple[Path, RunRecord | OutputError]]:
        """Give every record file in name order, each read or with the error that reading it gave."""
        for path in sorted((self.evidence / "records").glob("*.json")):
            try:
                yield path, run_record(_read_json(path))
            except OutputError as error:
                yield path, error
            except (KeyError, TypeError, ValueError) as error:
                yield path, OutputError(f"damaged record: {error!r}", source=path.name)

    def seal(self, now: datetime | None = None) -> str:
        """Write manifest.json over every evidence file and give its digest; a sealed run only gives the digest."""
        if not self.sealed:
            files = {
                path.relative_to(self.evidence).as_posix(): {
                    "sha256": file_sha256(path),
                    "size_bytes": path.stat().st_size,
                }
                for path in _files(self.evidence)
            }
            sealed_at = (now or datetime.now(UTC)).isoformat(timespec="seconds")
            manifest = {"schema_version": 1, "sealed_at": sealed_at, "files": files}
            write_atomically(self.evidence / MANIFEST, _pretty(manifest))
        return self.manifest_sha256()

    @property
    def sealed(self) -> bool:
        """Whether the launches have ended: without a manifest the run is unfinished."""
        return (self.evidence / MANIFEST).is_file()

    def manifest_sha256(self) -> str:
        """Give the manifest's own digest. Raises OutputError when the run is not sealed."""
        if not self.sealed:
            raise OutputError("no manifest.json: the run is unfinished", source=self.run_id)
        return file_sha256(self.evidence / MANIFEST)

    def sealed_at(self) -> datetime | None:
        """Give when the evidence was sealed, by the orchestrator's clock; None when that is not known."""
        try:
            stat = (self.evidence / MANIFEST).stat()
            version = (stat.st_mtime_ns, stat.st_size)
            if self._sealed_at is None or self._sealed_at[0] != version:  # asked for every record, and it is large
                moment = datetime.fromisoformat(_read_json(self.evidence / MANIFEST)["sealed_at"])
                self._sealed_at = (version, moment)
        except (OSError, OutputError, KeyError, TypeError, ValueError):
            return None
        return self._sealed_at[1]

    # -- derived -------------------------------------------------------------------------------------------------

    def write_derived(self, name: str, text: str) -> Path:
        """Write derived/<name>."""
        write_atomically(self.derived / name, text)
        return self.derived / name

    def write_derived_json(self, name: str, data: Any) -> Path:
        """Write derived/<name> as JSON."""
        return self.write_derived(name, _pretty(data))

    def read_derived(self, name: str) -> Any:
        """Read a JSON file of derived/. Raises OutputError."""
        return _read_json(self.derived / name)

    def derived_locked(self) -> AbstractContextManager[bool]:
        """Let nobody else change derived/ in the block; gives whether the lock is held. See derived_folder.locked."""
        return derived_folder.locked(self.path)

    @contextmanager
    def derived_anew(self, *kept: str) -> Iterator[RunDirectory]:
        """Give the run with an empty derived/ beside the old one, which it replaces when the block ends well.

        `kept` names files that are taken over. See derived_folder.replaced for what a block that fails leaves. A pruned
        run keeps what it has: there is nothing to derive it from again. Raises OutputError for one.
        """
        with derived_folder.replaced(self.path, self.derived, kept, lambda: self.pruned) as aside:
            self.refuse_pruned()
            yield RunDirectory(self.path, aside)
            self.refuse_pruned()  # on a file system without locks raw output can go meanwhile

    def write_provenance(self, code: Mapping[str, Any]) -> None:
        """Bind derived/ to the evidence that it came from: manifest digest, code version, digest of each file."""
        files = {p.name: file_sha256(p) for p in _files(self.derived) if p.name != PROVENANCE}
        self.write_derived_json(
            PROVENANCE, {"manifest_sha256": self.manifest_sha256(), "code": dict(code), "files": files}
        )

    # -- decisions -----------------------------------------------------------------------------------------------

    def add_decision(self, decision: Mapping[str, Any]) -> dict[str, Any]:
        """Append one decision with the manifest's digest and the time; give the whole line. Raises OutputError."""
        line = {
            **decision,
            "run_id": self.run_id,
            "manifest_sha256": self.manifest_sha256(),
            "decided_at": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        }
        append_line(self.path / DECISIONS, line)
        return line

    def decisions(self) -> list[dict[str, Any]]:
        """Give the decisions in order, only those made on this very evidence. Raises OutputError for a damaged line."""
        if not self.sealed:
            return []
        digest = self.manifest_sha256()
        found = []
        path = self.path / DECISIONS
        for number, line, item in lines_of(path):
            if item is None:
                raise OutputError("damaged decision", source=str(path), line=number, excerpt=line)
            if item.get("manifest_sha256") == digest:
                found.append(item)
        return found

    # -- pruning -------------------------------------------------------------------------------------------------

    @property
    def pruned(self) -> bool:
        """Whether raw output was let go, so that the run can't be judged again."""
        return is_pruned(self.path)

    def pruning(self) -> Pruning | None:
        """Give the record that covers the absent raw output, None without one.

        A record that is damaged, or was made on another seal, covers nothing; nor does any while raw/ is there.
        """
        try:
            record = read_record(self.path) if self.pruned and self.sealed else None
        except OutputError:
            return None
        return record if record is not None and record.manifest_sha256 == self.manifest_sha256() else None

    def refuse_pruned(self) -> None:
        """Raise OutputError for a run whose raw output was let go: nothing is left to judge it from."""
        if self.pruned:
            when = f", since {told.pruned_at} ({plural(told.files, 'file')})" if (told := self.pruning()) else ""
            what = f"its raw output is pruned{when}; nothing is left to judge it from, and the verdict of then stands"
            raise OutputError(what, source=self.run_id)

    def sealed_raw(self) -> tuple[int, int]:
        """Give how many files of evidence/raw have a seal, and their bytes. Raises OutputError."""
        sizes = [size for name, (_, size) in self._listed().items() if name.startswith(_RAW)]
        return len(sizes), sum(sizes)

    # -- verification --------------------------------------------------------------------------------------------

    def problems(self, *, evidence: bool = True) -> Iterator[dict[str, str]]:
        """Compare the run with its seals: missing, changed, extra, unsealed or stale_derived, one item a problem.

        Without `evidence` its files are not read, which may be many gigabytes: only derived/ is held against its seal.
        Raw output that `pruning` covers is no problem.
        """
        if not self.sealed:
            yield {"problem": "unsealed", "path": f"evidence/{MANIFEST}"}
        elif evidence:
            yield from self._evidence_problems()
        yield from self._derived_problems()

    def sealed_counts(self) -> tuple[int, int]:
        """Give how many files of evidence/ and of derived/ have a seal: neither the seals nor what is pruned."""
        evidence = len(self._listed()) - (self.sealed_raw()[0] if self.pruning() else 0)
        judged = (self.derived / PROVENANCE).is_file()
        return evidence, len(_read_json(self.derived / PROVENANCE)["files"]) if judged else 0

    def _listed(self) -> dict[str, tuple[str, int]]:
        """Give digest and bytes of every file that the manifest lists. Raises OutputError."""
        files = _read_json(self.evidence / MANIFEST)
        try:
            return {name: (entry["sha256"], int(entry["size_bytes"])) for name, entry in files["files"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OutputError(f"damaged: {error!r}", source=MANIFEST) from None

    def _evidence_problems(self) -> Iterator[dict[str, str]]:
        try:
            digests = {name: digest for name, (digest, _) in self._listed().items()}
        except OutputError:
            yield {"problem": "changed", "path": f"evidence/{MANIFEST}"}
            return
        if self.pruning():
            digests = {name: digest for name, digest in digests.items() if not name.startswith(_RAW)}
        present = {p.relative_to(self.evidence).as_posix() for p in _files(self.evidence)}
        for name in sorted(set(digests) | present):
            path = f"evidence/{name}"
            if name not in present:
                yield {"problem": "missing", "path": path}
            elif name not in digests:
                yield {"problem": "extra", "path": path}
            elif file_sha256(self.evidence / name) != digests[name]:
                yield {"problem": "changed", "path": path}

    def _derived_problems(self) -> Iterator[dict[str, str]]:
        present = {p.name for p in _files(self.derived)} if self.derived.is_dir() else set()
        path = f"derived/{PROVENANCE}"
        if not present:
            if self.pruned:  # of any other run it can be computed again
                yield {"problem": "missing", "path": path}
            return
        try:
            provenance = _read_json(self.derived / PROVENANCE)
            files, manifest = dict(provenance["files"]), provenance["manifest_sha256"]
        except (OutputError, KeyError, TypeError, ValueError):
            yield {"problem": "stale_derived", "path": path}
            return
        if not self.sealed or manifest != self.manifest_sha256():
            yield {"problem": "stale_derived", "path": path}
        for name in sorted(set(files) | (present - {PROVENANCE})):
            if name not in files:
                yield {"problem": "extra", "path": f"derived/{name}"}
            elif name not in present:
                yield {"problem": "missing", "path": f"derived/{name}"}
            elif file_sha256(self.derived / name) != files[name]:
                yield {"problem": "changed", "path": f"derived/{name}"}


def _files(folder: Path) -> Iterator[Path]:
    """Give every finished file below, without the manifest itself."""
    return (path for path in derived_folder.finished_files(folder) if path != folder / MANIFEST)


def _pretty(data: Any) -> str:
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise OutputError("is missing", source=path.name) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise OutputError(f"not readable: {error}", source=path.name) from None


def misplaced(run: RunDirectory, verdict: Mapping[str, Any]) -> str | None:
    """Say that a verdict is of another run, suite or cluster than its place among the results says; None when not.

    A good night copied to another date or another cluster keeps every seal: only its name is wrong.
    """
    said = tuple(str(verdict.get(key)) for key in ("cluster", "suite", "run_id"))
    here = run.path.parts[-3:]
    return None if said == here else f"it is a copy of {'/'.join(said)}, not a run of {'/'.join(here)}"


# -- many runs ---------------------------------------------------------------------------------------------------


def find_runs(results: Path, cluster: str, suite: str | None = None) -> list[RunDirectory]:
    """Give the finished runs of a cluster, oldest first; unfinished ones are not runs yet."""
    return [run for run in all_runs(results, cluster, suite) if run.sealed]


def all_runs(results: Path, cluster: str, suite: str | None = None) -> list[RunDirectory]:
    """Give the runs of a cluster, finished or not, oldest first."""
    folders = [results / cluster / suite] if suite else sorted((results / cluster).glob("*"))
    runs = [
        RunDirectory(path)
        for folder in folders
        if folder.is_dir()
        for path in folder.iterdir()
        if RUN_ID.match(path.name) and (path / "evidence").is_dir()
    ]
    return sorted(runs, key=lambda run: run.run_id)


def link_latest(results: Path, run: RunDirectory) -> None:
    """Point results/latest at the run, atomically."""
    link = results / "latest"
    temporary = results / f".latest.{os.getpid()}"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(os.path.relpath(run.path, results))
    temporary.replace(link)
