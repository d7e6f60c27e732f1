r"""What launchers and log collectors put before a tool's line: rank tags, pod and host names, timestamps.

Recognised, also one after the other: CRI and `kubectl logs --timestamps` times, GitHub Actions and `ts` times,
`[1,0]<stdout>:` of mpirun and PRRTE (with or without a time), `0: ` of srun -l, `[0] ` of MPICH, `[default0]:` of
torchrun, `[pod/name/container] ` of kubectl, and one JSON object a line of collectors
({"log": "…\n", "stream": …}). Quoted mail (`> `) and tags that were indented as a block are read too.
A bare `node12: ` of pdsh looks like many tools' own words, so it is taken only when asked for (`hosts=True`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_CTIME = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[ ])?[A-Z][a-z]{2}[ ][ \d]\d[ ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[ ]\d{4})?"
_PREFIX = re.compile(
    rf"""(?:
      {_TIME}\ (?P<stream>stdout|stderr)\ (?P<part>[FP])(?::[A-Z])?(?:\ |$)     # CRI
    | \[?{_TIME}\]?(?=\[\d|\[[\w.@-]+,\d)                                      # PRRTE: a time glued to its tag
    | \[?{_TIME}\]?(?:\ |\t|$)                                                  # kubectl --timestamps, Actions, ts
    | (?:\[?{_CTIME}\]?)(?:\ |(?=\[))                                           # mpirun --timestamp-output, ts
    | [ ]{{0,8}}(?P<tag>\[[\w.@-]{{0,80}},\ ?\d{{1,7}}\](?:\[[^\]\n]{{0,120}}\])?)<std(?:out|err|diag)>:\ ? # mpirun
    | [ ]{{0,7}}(?P<rank>\d{{1,7}}):(?:\ |$)                                    # srun -l
    | (?P<mpich>\[\d{{1,7}}\])\ (?!NCCL\ )                                      # MPICH, Intel MPI
    | (?P<elastic>\[(?:default|rank|[a-z]{{1,20}}_?)\d{{1,7}}\]:)\ ?            # torchrun
    | (?P<pod>\[pod/[\w./-]{{1,300}}\])\ ?                                      # kubectl logs --prefix
    | >(?:\ |$)                                                                # quoted mail
    )""",
    re.VERBOSE,
)
_ORIGINS = ("tag", "rank", "mpich", "elastic", "pod")
_HOST = re.compile(r"(?P<host>[A-Za-z0-9](?:[\w.-]{0,100}[A-Za-z0-9\]])?(?:\[[\d,-]{1,200}\])?): ?(?=.)")
_STARTS = frozenset("0123456789[ {>MTWFSJADNO")
_JSON_TEXT = ("log", "message", "line", "textPayload", "msg", "MESSAGE")
_JSON_MARKS = ("stream", "time", "timestamp", "ts", "@timestamp", "kubernetes", "labels", "__REALTIME_TIMESTAMP")
_DEEPEST = 4


def peel(line: str, *, hosts: bool = False) -> tuple[str, str]:
    """Give (origin, text): who printed the line, as its prefixes tell ('' when there are none), and what it printed.

    Times belong to neither. Spaces that the tool printed are kept. With `hosts`, `node12: ` counts as a prefix:
    for text that cannot start with a word and a colon itself.
    """
    origin = ""
    for _ in range(_DEEPEST):
        if _begins_bare(line):
            break
        if line[0] == "{":
            inner = _unwrap_json(line)
            if inner is None:
                break
            line = inner
            continue
        if line[0] == " " and not _may_be_indented(line):
            break
        match = _PREFIX.match(line)
        if match is None:
            break
        for name in _ORIGINS:
            if match[name] is not None:
                origin = f"{origin} {match[name]}" if origin else match[name]
        line = line[match.end() :]
    if hosts and line[:1].isalnum() and ":" in line and (match := _HOST.match(line)):
        origin = f"{origin} {match['host']}" if origin else match["host"]
        line = line[match.end() :]
    return origin, line


def _begins_bare(line: str) -> bool:
    """Say whether no prefix but a host's can stand before the line; names of days and months have three letters."""
    first = line[:1]
    return first not in _STARTS or (first.isalpha() and line[3:4] != " ")


def _may_be_indented(line: str) -> bool:
    """Say whether a prefix may follow the spaces that the line begins with: srun's rank, or a tag of mpirun."""
    return line.lstrip(" ")[:1].isdigit() or "]<std" in line


def strip_prefix(line: str, *, hosts: bool = False) -> str:
    """Give the line as the tool printed it, without what launchers and collectors put before it."""
    if line[:1] == " " and not _may_be_indented(line):
        return line
    if _begins_bare(line) and not (hosts and ":" in line):
        return line
    return peel(line, hosts=hosts)[1]


def join_parts(lines: Iterable[str]) -> Iterator[str]:
    """Give the lines with those joined that a container runtime cut in pieces (CRI tag P, 16 KiB each).

    The joined line keeps the prefix of its first piece.
    """
    held: dict[str, list[str]] = {}
    for line in lines:
        if line[:2] != "20" or (match := _PREFIX.match(line)) is None or match["part"] is None:
            yield line
            continue
        stream = match["stream"]
        if match["part"] == "P":
            held.setdefault(stream, []).append(line[match.end() :] if stream in held else line)
        elif stream in held:
            yield "".join(held.pop(stream)) + line[match.end() :]
        else:
            yield line
    for pieces in held.values():
        yield "".join(pieces)


def strip_document(text: str) -> str:
    r"""Give a document (JSON, XML) whose every line may carry prefixes, without them. Line ends become `\n`."""
    return "\n".join(strip_prefix(line) for line in join_parts(text.splitlines()))


def _unwrap_json(line: str) -> str | None:
    """Give the text inside one JSON object of a log collector, or None when the line is something else."""
    if not line.rstrip().endswith("}") or not any(f'"{key}"' in line for key in _JSON_TEXT):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not any(key in data for key in _JSON_MARKS):
        return None
    for key in _JSON_TEXT:
        if isinstance(text := data.get(key), str):
            return text.rstrip("\r\n")
    return None
