"""Which run is meant by what a person types: a directory, a run id, or the newest one, of all clusters or of one."""

from __future__ import annotations

import sys
from pathlib import Path

from plumbline.clusters.profile import load_profile, profile_folders
from plumbline.configuration import document_names
from plumbline.errors import ConfigError, near_match
from plumbline.stages import default_results, results_directory
from plumbline.tracking.run_directory import RUN_ID, RunDirectory, find_runs

LATEST = "latest"
RUN_HELP = f"a run directory, a run id, {LATEST} (the newest of all clusters), or {LATEST}:CLUSTER[/SUITE]"
_LONGEST_NAME, _LONGEST_PATH = 255, 4095
"""Bytes that Linux takes of one name, and characters of a path: more is an error of the system's, not an absent run."""
_FORMS = f"give a run directory, a run id, {LATEST}, or {LATEST}:CLUSTER"


def named_run(text: str) -> RunDirectory:
    """Open a run by path, by run id, or as the newest; say on stderr which one that is. Raises ConfigError."""
    word, colon, where = text.partition(":")
    path = Path(text)
    if any(len(part.encode()) > _LONGEST_NAME for part in path.parts) or len(text) > _LONGEST_PATH:
        raise ConfigError(f"no run {text[:60]!r}…: longer than any; {_FORMS}")
    if path.is_dir():
        run = RunDirectory.open(path)
        return run if path.name != LATEST else _told(text, run)
    if word == LATEST and colon:
        return _told(text, _newest(where))
    if text == LATEST and (found := _linked(default_results()) or _last(_finished(default_results()))):
        return _told(text, found)
    if path.exists():
        raise ConfigError(f"{text} is a file; {_FORMS}")
    if text == LATEST:
        raise ConfigError(f"{LATEST}: no finished run below {default_results()}")
    return _by_id(text)


def _linked(results: Path) -> RunDirectory | None:
    """Give the run that results/latest links to; None where no link is, or it leads to no finished run."""
    link = results / LATEST
    if not (link.is_symlink() and link.is_dir()):
        return None
    run = RunDirectory(link)
    return run if RUN_ID.match(run.run_id) and run.sealed else None


def _last(runs: list[RunDirectory]) -> RunDirectory | None:
    return max(runs, key=lambda run: run.run_id, default=None)


def _told(text: str, run: RunDirectory) -> RunDirectory:
    cluster, suite = _place(run)
    print(f"{text}: run {run.run_id} of cluster {cluster}, suite {suite}", file=sys.stderr)
    return run


def _newest(where: str) -> RunDirectory:
    """Give the newest finished run of CLUSTER or CLUSTER/SUITE, also where its profile keeps results elsewhere."""
    cluster, _, suite = where.partition("/")
    folders = {default_results()}
    if cluster in document_names(profile_folders()):
        profile = load_profile(cluster)
        folders.add(results_directory(profile))
        cluster = profile.name
    finished = [run for folder in folders for run in _finished(folder)]
    found = [run for run in finished if _place(run)[0] == cluster and suite in ("", _place(run)[1])]
    newest = _last(found)
    if newest is None:
        suites = {_place(run)[1] for run in finished if _place(run)[0] == cluster}
        near = near_match(suite, suites) if suites else near_match(cluster, {_place(run)[0] for run in finished})
        below = " or ".join(sorted(map(str, folders)))
        raise ConfigError(f"{LATEST}:{where}: no finished run of {where or 'no cluster'} below {below}{near}")
    return newest


def _finished(results: Path) -> list[RunDirectory]:
    return [run for folder in results.glob("*") if folder.name != LATEST for run in find_runs(results, folder.name)]


def _place(run: RunDirectory) -> tuple[str, str]:
    """Give cluster and suite as the run's folders have them."""
    cluster, suite = run.path.parts[-3:-1]
    return cluster, suite


def _by_id(text: str) -> RunDirectory:
    results = default_results()
    runs = [p for p in results.glob("*/*/*") if RUN_ID.match(p.name) and p.is_dir()]
    found = [p for p in runs if p.name == text]
    if len(found) > 1:
        places = ", ".join(str(p) for p in found)
        raise ConfigError(f"{len(found)} runs are called {text!r}: {places}; give the directory of one")
    if not found:
        newest = f"; the newest is {max(p.name for p in runs)}" if runs else ""
        raise ConfigError(f"no run {text!r} below {results}; {_FORMS}{newest}")
    return RunDirectory.open(found[0])
