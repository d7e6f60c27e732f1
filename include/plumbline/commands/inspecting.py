"""Commands that read without judging: parse, list, verify, status."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from plumbline import readers, stages
from plumbline.benchmarks import benchmarks
from plumbline.clusters.profile import load_profile, profile_folders
from plumbline.commands.run_names import RUN_HELP, named_run
from plumbline.configuration import document_names
from plumbline.errors import ConfigError, ExitCode, OutputError
from plumbline.execution.asked import asked_in_words, narrowed
from plumbline.model import Scalar, to_plain
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.suites.suite import load_suite, suite_folders
from plumbline.tracking.judged_run import VERDICT, why_untrusted
from plumbline.tracking.run_directory import MANIFEST, RUN_ID, RunDirectory, find_runs, misplaced, run_time
from plumbline.validation.seals import seal_problems

Commands = argparse._SubParsersAction  # the type has no public name


def add_commands(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add parse, list, verify and status."""
    parse = commands.add_parser(
        "parse",
        help="read one tool's output and print what it really says, as JSON lines",
        description="Read one tool's output. Stdout is JSON lines: measurements, facts, and last the status. "
        "Exit 0 complete, 3 incomplete, aborted, failed or unknown, 4 not readable as that format.",
        epilog="example: plumbline parse nccl_tests all_reduce.log --expect max_bytes=8G",
    )
    parse.add_argument("reader", help=f"one of: {', '.join([*readers.reader_names(), 'auto'])}")
    parse.add_argument("file", type=Path, help="a file, or - for standard input")
    parse.add_argument("--expect", action="append", default=[], metavar="KEY=VALUE", help="what the output must hold")
    parse.set_defaults(run=_parse)

    listing = commands.add_parser(
        "list",
        help="list benchmarks, clusters, indicators, readers, runs or suites",
        description="List what there is: benchmarks with their parameters, cluster profiles, indicators, readers with "
        "what they find and expect, finished and unfinished runs, suites. `plumbline --help` explains the words.",
        epilog="example: plumbline list benchmarks",
    )
    listing.add_argument(
        "what",
        metavar="WHAT",
        nargs="?",
        choices=tuple(_LISTS),
        help=f"one of: {', '.join(_LISTS)}; without: what each is",
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.add_argument("--markdown", action="store_true", help="indicators as the page docs/indicators.md")
    listing.set_defaults(run=_list)

    verify = commands.add_parser(
        "verify",
        help="check a run's evidence against its seal",
        description="Print one JSON line a problem (missing, changed, extra, unsealed, stale_derived); exit 1 if any. "
        "Without any, say on stderr how many files are as they were sealed. Raw output that `plumbline prune` deleted "
        "is no problem: stderr says how many files and when.",
    )
    verify.add_argument("run_dir", metavar="RUN_DIR", help=RUN_HELP)
    verify.set_defaults(run=_verify)

    status = commands.add_parser(
        "status",
        help="dead man's switch: is there a finished nightly that young?",
        description="Exit 1 when the cluster has no finished, judged run of the whole suite younger than --max-age. "
        "What the run found is not asked: a closed gate is the gate's own alarm.",
        epilog="example: plumbline status --cluster local --max-age 26h",
    )
    status.add_argument("--cluster", default="local", help="cluster profile: a name or a YAML file (default: local)")
    status.add_argument("--suite", default="nightly", help="suite: a name or a YAML file (default: nightly)")
    status.add_argument("--max-age", default="26h", help="such as 26h, 90m or 2d (default: 26h)")
    status.add_argument("--json", action="store_true", help="print JSON")
    status.set_defaults(run=_status)


# -- parse -------------------------------------------------------------------------------------------------------


def _parse(chosen: argparse.Namespace) -> int:
    expect = _expectations(chosen.expect)
    name = chosen.reader
    stdin = str(chosen.file) == "-"
    if name != "auto":
        readers.reader(name)
    if not stdin and not chosen.file.is_file():
        raise ConfigError(
            f"{chosen.file} is a folder, not a file" if chosen.file.is_dir() else f"no file {chosen.file}"
        )
    try:
        if name == "auto":
            if stdin:
                raise ConfigError("reader auto looks at a file twice: give a file, not -")
            name = readers.detect(chosen.file).NAME
        source = readers.Source(sys.stdin.buffer, "<stdin>") if stdin else readers.Source.of_path(chosen.file)
        status = _print_items(readers.read(name, source, expect))
    except OutputError as error:
        _print_item(Completeness(reader=name, status=Status.FAILED, reason=str(error)))
        raise
    return ExitCode.OK if status is Status.COMPLETE else ExitCode.INCOMPLETE


def _print_items(items: Iterable[Item]) -> Status:
    status = Status.UNKNOWN
    for item in items:
        _print_item(item)
        if isinstance(item, Completeness):
            status = item.status
    return status


def _print_item(item: Item) -> None:
    if isinstance(item, Reading):
        line: dict[str, Any] = {"kind": "measurement", "indicator": item.indicator, "value": item.value,
                                "unit": item.unit, "params": dict(item.params)}  # fmt: skip
    elif isinstance(item, Fact):
        line = {"kind": "fact", "name": item.name, "value": to_plain(item.value)}
    else:
        line = {"kind": "status", **to_plain(item)}
    sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")


def _expectations(pairs: Iterable[str]) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise ConfigError(f"--expect {pair}: write key=value")
        found[key.strip()] = _scalar(text.strip())
    return found


def _scalar(text: str) -> Scalar:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)


# -- list --------------------------------------------------------------------------------------------------------


def _list(chosen: argparse.Namespace) -> int:
    if chosen.what is None and not chosen.markdown:
        return _list_lists(as_json=chosen.json)
    if chosen.markdown:
        if chosen.what != "indicators":
            raise ConfigError("--markdown goes with `list indicators`")
        from plumbline.indicators.dictionary import markdown  # noqa: PLC0415

        sys.stdout.write(markdown())
        return ExitCode.OK
    rows = _LISTS[chosen.what][1]()
    code = ExitCode.USAGE if any("invalid" in row for row in rows) else ExitCode.OK
    if chosen.json:
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return code
    if not rows:
        print(
            f"no {chosen.what}{f' below {stages.default_results()}' if chosen.what == 'runs' else ''}", file=sys.stderr
        )
    for row in rows:
        head, *rest = row.items()
        print(head[1])
        for key, value in rest:
            for line in _text(value):
                print(f"    {key}: {line}")
    return code


def _list_lists(*, as_json: bool) -> int:
    """Say what can be listed."""
    if as_json:
        print(json.dumps([{"list": name, "meaning": meaning} for name, (meaning, _) in _LISTS.items()], indent=1))
        return ExitCode.OK
    print("plumbline list WHAT, where WHAT is one of:")
    for name, (meaning, _) in _LISTS.items():
        print(f"  {name:11} {meaning}")
    return ExitCode.OK


def _text(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{key} = {item}" for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [", ".join(map(str, value))]
    return [str(value)]


def _list_readers() -> list[dict[str, Any]]:
    return [
        {
            "reader": name,
            "tool": module.TOOL,
            "indicator": {key: f"[{unit}] {text}" for key, (unit, text) in module.INDICATORS.items()},
            "fact": dict(module.FACTS),
            "expect": dict(module.EXPECTATIONS),
        }
        for name, module in readers.readers().items()
    ]


def _list_benchmarks() -> list[dict[str, Any]]:
    return [
        {
            "benchmark": name,
            "title": module.TITLE,
            "version": module.VERSION,
            "covers": module.COVERS,
            "reader": module.READER,
            "indicator": {i.name: f"[{i.unit}] {i.title}" for i in module.INDICATORS},
            "parameter": {key: f"{p.meaning} (default {p.default})" for key, p in module.PARAMETERS.items()},
        }
        for name, module in benchmarks().items()
    ]


def _list_indicators() -> list[dict[str, Any]]:
    from plumbline.indicators import indicators  # noqa: PLC0415

    return [{"indicator": f"{bench}/{item.name}", **to_plain(item)} for (bench, _), item in indicators().items()]


def _list_clusters() -> list[dict[str, Any]]:
    def row(name: str) -> dict[str, Any]:
        found = load_profile(name)
        other = {} if found.name == name else {"name": found.name}
        return {**other, "title": found.title, "launcher": found.launcher, "accelerator": found.accelerator.model}

    return [{"cluster": name, **_or_invalid(row, name)} for name in document_names(profile_folders())]


def _list_suites() -> list[dict[str, Any]]:
    def row(name: str) -> dict[str, Any]:
        found = load_suite(name)
        return {"title": found.title, "benchmarks": [entry.benchmark for entry in found.benchmarks]}

    return [{"suite": name, **_or_invalid(row, name)} for name in document_names(suite_folders())]


def _or_invalid(row: Callable[[str], dict[str, Any]], name: str) -> dict[str, Any]:
    """Give a document's row, or what is wrong with it: one broken file hides none of the others."""
    try:
        return row(name)
    except ConfigError as error:
        return {"invalid": str(error)}


def _list_runs() -> list[dict[str, Any]]:
    paths = sorted(path for path in stages.default_results().glob("*/*/*") if RUN_ID.match(path.name))
    return [
        {
            "run": path.name,
            "cluster": path.parts[-3],
            "suite": path.parts[-2],
            **_word(RunDirectory(path)),
            **_approved(RunDirectory(path)),
        }
        for path in paths
    ]


def _word(run: RunDirectory) -> dict[str, str]:
    """Give verdict and gate of a run; a verdict that is not what the judge wrote here is none, and says why.

    Raw evidence is not read again, which may be many gigabytes a run: `plumbline verify` does that.
    """
    if not run.sealed:
        return {"verdict": "unfinished", "gate": "closed"}
    try:
        data = run.read_derived(VERDICT)
        reason = why_untrusted(run, VERDICT) or misplaced(run, data) or stages.contradiction(data)
        return {"verdict": reason or str(data["verdict"]), "gate": "closed" if reason else str(data["gate"])}
    except (OutputError, KeyError, TypeError):
        return {"verdict": "not judged", "gate": "closed"}


def _approved(run: RunDirectory) -> dict[str, str]:
    """Say who made a run part of the baseline, or that its decisions can't be read; nothing where nobody did."""
    try:
        line = stages.standing_approval(run)
    except OutputError as error:
        return {"approved": f"unknown: {error}"}
    return {"approved": f"by {line.get('by')} at {line.get('decided_at')}"} if line else {}


_LISTS: dict[str, tuple[str, Callable[[], list[dict[str, Any]]]]] = {
    "readers": ("the formats that `plumbline parse` reads, with what it finds in each", _list_readers),
    "benchmarks": ("what can be measured, with every parameter that suites and --set can give", _list_benchmarks),
    "indicators": ("the quantities that are judged, with unit and formula", _list_indicators),
    "clusters": ("the profiles that --cluster takes", _list_clusters),
    "suites": ("what --suite takes, with the benchmarks of each", _list_suites),
    "runs": ("what was measured so far, with verdict and gate of each run, and who approved it", _list_runs),
}
"""What can be listed: its meaning, and what gives its rows."""


# -- verify, status ----------------------------------------------------------------------------------------------


def _verify(chosen: argparse.Namespace) -> int:
    run = named_run(chosen.run_dir)
    problems = list(run.problems())
    if any(seal_problems(run)):
        problems.append({"problem": "changed", "path": f"evidence/{MANIFEST}"})
    for problem in problems:
        print(json.dumps(problem))
    if pruning := run.pruning():
        print(f"{run.run_id}: {pruning}", file=sys.stderr)
    if problems:
        return ExitCode.CLOSED
    evidence, derived = run.sealed_counts()
    judged = f"{derived} of derived/" if derived else "derived/ is empty: it is not judged yet"
    print(f"{run.run_id}: as sealed: {evidence} files of evidence/, {judged}", file=sys.stderr)
    return ExitCode.OK


def _status(chosen: argparse.Namespace) -> int:
    most = parse_age(chosen.max_age)
    profile, suite = load_profile(chosen.cluster), load_suite(chosen.suite)
    young: dict[str, Any] | None = None
    unusable: list[dict[str, str]] = []
    for run in reversed(find_runs(stages.results_directory(profile), profile.name, suite.name)):
        try:
            verdict = stages.gate(run.path)
            omitted, asked = run.suite().omitted, run.read_evidence("environment").get("asked", ())
        except (OutputError, ConfigError) as error:
            unusable.append({"run_id": run.run_id, "reason": str(error)})
            continue
        if omitted:
            unusable.append({"run_id": run.run_id, "reason": f"only a part of the suite: without {', '.join(omitted)}"})
            continue
        if words := asked_in_words(narrowed(asked)):
            unusable.append({"run_id": run.run_id, "reason": f"not the suite as it is: {words}"})
            continue
        age = datetime.now(UTC) - run_time(run.run_id)
        young = {"run_id": run.run_id, "age_h": round(age / timedelta(hours=1), 2), "verdict": verdict.verdict,
                 "gate": "open" if verdict.open else "closed", "fresh": timedelta(0) <= age <= most}  # fmt: skip
        break
    fresh = bool(young and young["fresh"])
    if chosen.json:
        print(json.dumps({"cluster": profile.name, "suite": suite.name, "fresh": fresh, "newest": young,
                          "unusable": unusable}))  # fmt: skip
    elif young is None:
        print(f"{profile.name}/{suite.name}: no finished run {'that counts' if unusable else 'at all'}")
    else:
        print(f"{profile.name}/{suite.name}: newest finished run {young['run_id']}, {young['age_h']:.1f} h old "
              f"({'fresh' if fresh else f'older than {chosen.max_age}'}), verdict {young['verdict']}")  # fmt: skip
    if not chosen.json:
        for item in unusable:
            print(f"    newer, and not counted: {item['run_id']}: {item['reason']}")
    return ExitCode.OK if fresh else ExitCode.CLOSED


def parse_age(text: str) -> timedelta:
    """Read an age such as 26h, 90m or 2d. Raises ConfigError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", text)
    if not match:
        raise ConfigError(f"not an age: {text!r}; write a number with its unit: s, m (minutes), h or d, such as 26h")
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]]
    return timedelta(seconds=float(match[1]) * seconds)
