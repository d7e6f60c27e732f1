"""Reads what stress-ng prints with --metrics or --metrics-brief, and the file that --yaml writes.

The table's columns are found from its two header lines: two of them are named `bogo ops/s`, and newer versions have
more. Old versions print the table after the line that says how the run ended, newer ones before it. Those that sum up
(passed, failed, metrics untrustworthy) print it before the summary: without one there, no metrics were asked for.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache

from plumbline.amounts import node_list
from plumbline.errors import OutputError
from plumbline.model import Params, Scalar
from plumbline.readers._stress_run import NUMBER, Run, seconds, take_yaml, take_yaml_start
from plumbline.readers.framing import strip_prefix
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status, readings_of
from plumbline.readers.source import Source, strip_ansi

NAME = "stress_ng"
TOOL = "stress-ng 0.01 to 0.19 (ColinIanKing/stress-ng): text and --yaml"
INDICATORS = {
    "bogo_ops": ("count", "bogus operations of all instances of a stressor, param stressor"),
    "real_time": ("s", "mean wall clock time of the instances"),
    "usr_time": ("s", "user time of all instances"),
    "sys_time": ("s", "system time of all instances"),
    "bogo_ops_per_s_real": ("1/s", "bogus operations by wall clock time"),
    "bogo_ops_per_s_usrsys": ("1/s", "bogus operations by CPU time"),
    "cpu_used_per_instance": ("%", "CPU time of an instance by its wall clock time"),
    "rss_max": ("KiB", "largest resident set of an instance"),
    "run_time": ("s", "time of the whole run"),
}
FACTS = {
    "status": "success, failed, or absent where the output does not tell",
    "stressor": "the stressor, or a list of them",
    "dispatched": "stressor → instances that were started",
    "passed": "stressor → instances that passed",
    "failed": "stressor → instances that failed",
    "skipped": "stressor → instances that were skipped",
    "untrustworthy": "stressor → instances whose metrics are untrustworthy",
    "metrics": "miscellaneous metrics: stressor, value, description",
    "failures": "lines of level fail or error",
    "stress_ng_version": "version",
}
EXPECTATIONS = {
    "rows": "number of stressors in the table",
    "stressors": "names of the stressors, comma-separated",
    "run_time_s": "seconds that the run must have lasted at least",
}

_HEAD = re.compile(
    r"(?:(?:.*?\b)?stress-ng: )?(?:\d\d:\d\d:\d\d\.\d+ )?"
    r"(?P<level>info|metrc|fail|error|err|warn|debug|dbg|tidy)\s*:\s+\[\d{1,10}"
)
"""What stands before a line's text, up to the bracket that closes the process number."""
_LINE = re.compile(rf"{_HEAD.pattern}\] (?P<text>.*)")
_COLUMN = re.compile(r"bogo ops/s|bogo ops|real time|usr time|sys time|CPU used per|RSS Max|[^\s(]+(?: [^\s(]+)*")
_UNIT = re.compile(r"\([^()]*\)|instance \(%\)")
_COLUMNS = {
    "bogo ops": "bogo_ops", "real time": "real_time", "usr time": "usr_time", "sys time": "sys_time",
    "CPU used per": "cpu_used_per_instance", "RSS Max": "rss_max",
}  # fmt: skip
_RATES = {"(real time)": "bogo_ops_per_s_real", "(usr+sys time)": "bogo_ops_per_s_usrsys"}
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,60}")
_ROW = re.compile(rf"{_NAME.pattern}(?:\s+{NUMBER.pattern})+")
_END = re.compile(r"(?P<how>successful|unsuccessful) run completed in (?P<time>\S.*)")
_SUMMARY = re.compile(r"(?P<what>skipped|passed|failed|metrics untrustworthy): (?P<count>\d{1,9})(?:: (?P<list>.*))?")
_SUMMARY_ITEM = re.compile(r"([a-z][\w-]{0,60}) \((\d{1,9})\)")
_NOT_HERE = re.compile(r"(?:stress-ng-)?([a-z][\w-]{0,60}): this stressor is not (?:implemented|supported) on this ")
"""Older versions have no summary of what was skipped."""
_SETTING = ("setting to a", "defaulting to a")
"""How a run's first line begins, which says for how long each stressor runs; what it ends with may be cut."""
_STARTS = (*_SETTING, "dispatching hogs:")
_DISPATCH = re.compile(r"dispatching hogs: (.*)")
_DISPATCH_ITEM = re.compile(r"(\d{1,9}) ([a-z][\w-]{0,60})")
_MISCELLANEOUS = re.compile(
    r"(?P<name>[a-z][\w-]{0,60})\s+(?P<value>\d{1,20}(?:\.\d{1,12})?(?:e[+-]?\d{1,2})?) (?P<about>[^\d\s].*)"
)
_MEAN = re.compile(r".*\((?:average per stressor|[a-z]+ (?:mean )?of \d{1,9} instances?)\)")
"""How the description of a miscellaneous metric ends: to 0.14 such lines stand in the table, without a heading."""
_VERSION = re.compile(r"stress-ng,?(?: version)? (\d{1,3}\.\d{1,3}\.\d{1,3})\b")
_MOST_LINES = 200
_ROWS_AT_ONCE = 64


def sniff(head: str) -> float:
    """Say how sure this is stress-ng's output."""
    if re.search(r"^.*stress-ng: .*\[\d+\] ", head, re.MULTILINE) or "stress-ng-version:" in head:
        return 0.98
    if re.search(r"^stressor\s+bogo ops\s+real time", head, re.MULTILINE):
        return 0.9
    return 0.3 if "dispatching hogs:" in head else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give the rows of every run. Raises OutputError when there is nothing of stress-ng in the source."""
    runs, first_line = _gather(source)
    if not runs:
        raise OutputError("no stress-ng output in it", source=source.name, excerpt=first_line)
    for number, run in enumerate(runs):
        yield from _readings(run, {"run": number} if len(runs) > 1 else {})
    yield from _facts(runs)
    yield _statement(runs, expect)


# -- lines


def _gather(source: Source) -> tuple[list[Run], str]:
    runs = [Run()]
    first_line = ""
    table = False
    for block in source.blocks():
        for raw in block.decode("latin-1").split("\n"):  # str is searched several times faster than bytes
            if table or "stress-ng" in raw or "bogo" in raw or "run completed in" in raw or "hogs:" in raw:
                line = strip_ansi(raw if raw.isascii() else raw.encode("latin-1").decode("utf-8", "replace"))
                first_line = first_line or line.strip()
                if source.ends_whole or line.rstrip() == "..." or _is_end(line) or _is_whole_row(runs[-1], line):
                    _take(runs, line)
                table = bool(runs[-1].columns) or runs[-1].yaml
            elif not first_line and raw.strip():
                first_line = raw.encode("latin-1").decode("utf-8", "replace").strip()
    return [run for run in runs if run.seen()], first_line


def _is_end(line: str) -> bool:
    """Say whether a line without its end is the whole last line: its time has a unit."""
    match = _END.search(line)
    return match is not None and re.search(r"(?:\ds|secs?|\))\s*$", match["time"]) is not None


def _is_whole_row(run: Run, line: str) -> bool:
    """Say whether a line without its end is a whole row of the table: its last number has its two decimals."""
    return len(line.rpartition("] ")[2].split()) == len(run.columns) + 1 and re.search(r"\.\d\d$", line) is not None


def _take(runs: list[Run], line: str) -> None:
    bare = line.rstrip() if line.startswith(("stress-ng: ", "      ")) else strip_prefix(line).rstrip()
    if bare.startswith("---") or "stress-ng-version:" in bare:
        take_yaml_start(runs, bare)
        return
    if runs[-1].yaml and not runs[-1].yaml_ended:
        take_yaml(runs[-1], bare)
        return
    head, mark, text = bare.partition("] ")
    level = _level(head) if mark else None
    if level is None:  # behind another program's brackets, or no line of stress-ng's log
        match = _LINE.fullmatch(bare)
        level, text = (match["level"], match["text"]) if match else ("", bare)
    if level not in ("metrc", "info") and (version := _VERSION.search(bare)):
        runs[-1].version = version[1]
    text = text.strip()
    if runs[-1].columns and level in ("metrc", "", "info") and _ROW.fullmatch(text):
        _take_numbers(runs[-1], text.split())  # most lines, so first
    else:
        _take_text(runs, level, text)


@lru_cache(maxsize=4096)
def _level(head: str) -> str | None:
    """Give the level that a line's head names: the text before the bracket that closes the process number."""
    match = _HEAD.fullmatch(head)
    return match["level"] if match else None


def _take_text(runs: list[Run], level: str, text: str) -> None:
    run = runs[-1]
    if text.startswith(_STARTS):
        _take_start(runs, text)
    elif found := _END.fullmatch(text):
        if run.end is not None:
            runs.append(run := Run())
        run.end, run.run_time = found["how"], seconds(found["time"])
        run.columns, run.in_miscellaneous = [], False
    elif found := _SUMMARY.fullmatch(text):
        run.counts[found["what"]] = int(found["count"])
        run.summary[found["what"]] = {name: int(n) for name, n in _SUMMARY_ITEM.findall(found["list"] or "")}
        run.columns, run.in_miscellaneous = [], False
    elif "this stressor is not" in text and (found := _NOT_HERE.match(text)):
        run.not_here[found[1]] = run.not_here.get(found[1], 0) + 1
    elif level in ("fail", "error", "err"):
        if len(run.failures) < _MOST_LINES:
            run.failures.append(text[:300])
    else:
        _take_table(run, level, text)


def _take_start(runs: list[Run], text: str) -> None:
    """Take one of the two lines that a run begins with: how long each stressor runs, and which are started."""
    run = runs[-1]
    if found := _DISPATCH.match(text):
        if run.works():
            runs.append(run := Run())
        run.dispatched.update({name: int(count) for count, name in _DISPATCH_ITEM.findall(found[1])})
    elif text.startswith(_SETTING):
        if run.begun or run.works() or run.yaml:
            runs.append(run := Run())
        run.begun = True


def _take_table(run: Run, level: str, text: str) -> None:
    if text.startswith("stressor") and "bogo ops" in text:
        run.columns = [_COLUMNS.get(name, name) for name in _COLUMN.findall(text)[1:]]
        run.header, run.in_miscellaneous = True, False
    elif text == "miscellaneous metrics:":
        run.columns, run.in_miscellaneous = [], True
    elif run.in_miscellaneous and level in ("metrc", "info"):
        _take_miscellaneous(run, _MISCELLANEOUS.fullmatch(text))
    elif run.columns and text.startswith("("):
        _name_rates(run, _UNIT.findall(text))
    elif run.columns and level in ("", "metrc", "info"):
        _take_row(run, text)


def _take_miscellaneous(run: Run, found: re.Match[str] | None) -> None:
    if found and len(run.miscellaneous) < _MOST_LINES:
        run.miscellaneous.append(
            {"stressor": found["name"], "value": float(found["value"]), "description": found["about"]}
        )


def _name_rates(run: Run, units: list[str]) -> None:
    """Tell the two columns `bogo ops/s` apart by the second header line."""
    rates = [_RATES[unit] for unit in units if unit in _RATES]
    if len(rates) == run.columns.count("bogo ops/s"):
        names = iter(rates)
        run.columns = [next(names) if column == "bogo ops/s" else column for column in run.columns]


def _take_row(run: Run, text: str) -> None:
    cells = text.split()
    if len(cells) < 2 or not _NAME.fullmatch(cells[0]) or not NUMBER.fullmatch(cells[1]):
        if cells:
            run.columns = []  # something else: the table has ended
        return
    if not all(NUMBER.fullmatch(cell) for cell in cells[1:]):
        if (found := _MISCELLANEOUS.fullmatch(text)) and _MEAN.fullmatch(found["about"]):
            _take_miscellaneous(run, found)
        else:
            run.damaged += 1
    else:
        _take_numbers(run, cells)


def _take_numbers(run: Run, cells: list[str]) -> None:
    """Take a row: the stressor, and numbers."""
    if len(cells) != len(run.columns) + 1:
        run.damaged += 1
        return
    if "bogo ops/s" in run.columns:
        run.damaged += 1  # the second header line is gone: nobody can tell which rate is which
    numbers = dict(zip(run.columns, map(float, cells[1:]), strict=True))
    if not numbers.keys() <= INDICATORS.keys():
        numbers = {name: number for name, number in numbers.items() if name in INDICATORS}
    run.rows.append((cells[0], numbers))


# -- what it says


def _readings(run: Run, params: Mapping[str, Scalar]) -> Iterator[Reading]:
    rows = Counter(name for name, _ in run.rows)
    seen: Counter[str] = Counter()
    for start in range(0, len(run.rows), _ROWS_AT_ONCE):
        names: list[str] = []
        numbers: list[float] = []
        places: list[Params] = []
        for name, values in run.rows[start : start + _ROWS_AT_ONCE]:
            place: dict[str, Scalar] = {"stressor": name, **params}
            if rows[name] > 1:
                place["instance"] = seen[name]
                seen[name] += 1
            names += values
            numbers += values.values()
            places += [place] * len(values)
        yield from readings_of(names, numbers, [INDICATORS[name][0] for name in names], places)
    if run.run_time is not None:
        yield Reading("run_time", run.run_time, "s", params)


def _facts(runs: list[Run]) -> Iterator[Fact]:
    ends = {run.end for run in runs}
    if ends != {None}:
        yield Fact("status", "success" if ends == {"successful"} and not any(_bad(run) for run in runs) else "failed")
    names = list(dict.fromkeys(name for run in runs for name, _ in run.rows))
    if names:
        yield Fact("stressor", names[0] if len(names) == 1 else names)
    for fact, values in (
        ("dispatched", [run.dispatched for run in runs]),
        ("passed", [run.summary.get("passed", {}) for run in runs]),
        ("failed", [run.summary.get("failed", {}) for run in runs]),
        ("skipped", [run.summary.get("skipped", run.not_here) for run in runs]),
        ("untrustworthy", [run.summary.get("metrics untrustworthy", {}) for run in runs]),
    ):
        if merged := {name: count for value in values for name, count in value.items()}:
            yield Fact(fact, merged)
    if miscellaneous := [item for run in runs for item in run.miscellaneous]:
        yield Fact("metrics", miscellaneous)
    if failures := [text for run in runs for text in run.failures]:
        yield Fact("failures", failures)
    if versions := list(dict.fromkeys(run.version for run in runs if run.version)):
        yield Fact("stress_ng_version", versions[0] if len(versions) == 1 else versions)


def _bad(run: Run) -> bool:
    return bool(run.failures or run.counts.get("failed") or run.counts.get("metrics untrustworthy"))


def _statement(runs: list[Run], expect: Mapping[str, Scalar]) -> Completeness:
    causes = [
        (status, f"run {number}: {text}" if len(runs) > 1 else text)
        for number, run in enumerate(runs)
        for status, text in (_yaml_causes(run) if run.yaml else _text_causes(run))
    ]
    names = [name for run in runs for name, _ in run.rows]
    found = {"rows": len(names), "stressors": ",".join(names)}
    causes += [(Status.INCOMPLETE, text) for text in _unmet(runs, names, expect)]
    order = (Status.COMPLETE, Status.UNKNOWN, Status.INCOMPLETE, Status.FAILED)
    status = max((status for status, _ in causes), key=order.index, default=Status.COMPLETE)
    if status is Status.UNKNOWN and "rows" in expect:
        status, causes = Status.COMPLETE, []
    reason = node_list(dict.fromkeys(text for _, text in causes), 8, between="; ")
    return Completeness(reader=NAME, status=status, expected=dict(expect), found=found, reason=reason)


def _text_causes(run: Run) -> Iterator[tuple[Status, str]]:
    if run.end == "unsuccessful":
        yield Status.FAILED, "stress-ng says: unsuccessful run"
    for what in ("failed", "metrics untrustworthy"):
        if run.counts.get(what):
            names = ", ".join(run.summary.get(what, {}))
            yield Status.FAILED, f"{what}: {run.counts[what]} instances ({names})"
    for text in run.failures[:3]:
        yield Status.FAILED, text
    yield from _skip_causes(run)
    if run.end is None:
        yield Status.INCOMPLETE, "it stops before the line that says how the run ended"
    if run.damaged:
        yield Status.INCOMPLETE, f"{run.damaged} rows of the table are cut or damaged"
    gone = _without_row(run)
    if run.header and gone:
        yield Status.INCOMPLETE, f"no row for {', '.join(gone)}"
    elif not run.header and not (run.dispatched and "metrics untrustworthy" in run.counts):
        yield Status.UNKNOWN, "no table of metrics: it was not asked for, or it is cut off"


def _skip_causes(run: Run) -> Iterator[tuple[Status, str]]:
    if run.counts.get("skipped"):
        names = ", ".join(run.summary.get("skipped", {}))
        yield Status.INCOMPLETE, f"skipped: {run.counts['skipped']} instances ({names})"
    elif run.not_here and "skipped" not in run.counts:
        yield Status.INCOMPLETE, f"not implemented on this system: {', '.join(run.not_here)}"


def _without_row(run: Run) -> list[str]:
    rows = {name.replace("_", "-") for name, _ in run.rows}
    skipped = run.summary.get("skipped", run.not_here)
    return [name for name in run.dispatched if name.replace("_", "-") not in rows and name not in skipped]


def _yaml_causes(run: Run) -> Iterator[tuple[Status, str]]:
    if not run.yaml_ended:
        yield Status.INCOMPLETE, "the YAML stops before its end mark"
    if run.damaged:
        yield Status.INCOMPLETE, f"{run.damaged} values are no numbers"
    if not run.rows:
        yield Status.INCOMPLETE, "no stressor in it"


def _unmet(runs: list[Run], names: list[str], expect: Mapping[str, Scalar]) -> Iterator[str]:
    if "rows" in expect and str(len(names)) != str(expect["rows"]):
        yield f"{len(names)} stressors found, {expect['rows']} expected"
    if "stressors" in expect:
        wanted = [name.strip() for name in str(expect["stressors"]).split(",")]
        if missing := [name for name in wanted if name not in names]:
            yield f"no row for {', '.join(missing)}"
    if "run_time_s" in expect:
        times = [run.run_time for run in runs]
        try:
            least = float(str(expect["run_time_s"]))
        except ValueError:
            yield f"run_time_s: {expect['run_time_s']!r} is no number"
            return
        if any(time is None or time < least * 0.98 for time in times):
            yield f"ran {times} s, {least:g} s expected"
