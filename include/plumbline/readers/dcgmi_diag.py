"""`dcgmi diag` of DCGM 2 to 4, as JSON (-j) or as a table, and `dcgmi mndiag -j`.

A status for each test and entity, and what it says.

DCGM 2 and 3 name GPUs by gpu_id or gpu_ids below "DCGM GPU Diagnostic"; DCGM 4 names entities below "DCGM
Diagnostic" and leaves out those on which a test did not run. Skip is not Pass.
Source: NVIDIA/DCGM, dcgmi/Diag.cpp of 2.2 to 4.6 and nvvs/include/NvvsJsonStrings.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Params, Scalar
from plumbline.readers._dcgm_results import ROOTS, Diagnosis, Result, diagnoses_in
from plumbline.readers._dcgm_table import HEADER, SECTION, tables_in
from plumbline.readers._expectations import expected_count, expected_words
from plumbline.readers._json_documents import Documents
from plumbline.readers._numbering import Numbering
from plumbline.readers._quantities import is_blank
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source

NAME = "dcgmi_diag"
TOOL = "dcgmi diag (DCGM 2, 3, 4; JSON, or the table), dcgmi mndiag -j"
INDICATORS: Mapping[str, tuple[str, str]] = {
    "pcie_bandwidth": ("GB/s", "bandwidth between GPU and host (param direction: d2h, h2d, bidirectional)"),
    "pcie_latency": ("us", "latency between GPU and host (param direction)"),
    "memory_allocated": ("B", "GPU memory that the memory test wrote and read"),
    "compute_rate": ("GFLOPS", "rate of matrix products in the test 'diagnostic'"),
    "stress_level": ("1", "relative stress level that the test 'targeted stress' reports"),
    "power_average": ("W", "power average in the test 'targeted power'"),
    "power_max": ("W", "highest power in the test 'targeted power'"),
}
FACTS: Mapping[str, str] = {
    "root": "key of the document, which tells DCGM 3 ('DCGM GPU Diagnostic') from 4 ('DCGM Diagnostic'); or 'table'",
    "version": "DCGM version",
    "driver": "driver version",
    "overall": "fail, warn, skip (no test passed), not_run or pass",
    "has_skip": "whether a test was skipped on any entity",
    "tests": "for each test: n results, their statuses, and the summary's status",
    "results": "every result: test, category, entity group and id, status, warnings",
    "entities": "for each entity group the ids that the tool lists",
    "failed": "tests that failed",
    "skipped": "tests that were skipped somewhere",
    "warnings": "what the tests say of failures (the first 200)",
    "runtime_error": "why the diagnostic could not run",
    "contradictions": "tests that passed and yet report an error, with what they say",
    "iterations": "how often the diagnostic ran, where it was asked to run several times",
}
EXPECTATIONS: Mapping[str, str] = {
    "tests": "comma-separated tests that must have run, not been skipped (names as printed, any case)",
    "gpus": "number of GPUs that must have a result in every test that names GPUs",
    "iterations": "number of iterations that must be there",
}

_DIRECTIONS = {"gpu to host": "d2h", "host to gpu": "h2d", "bidirectional": "bidirectional"}
_NUMBER = r"(\d{1,20}(?:\.\d{1,9})?)"
_GPU = r"(?:\bGPU (\d{1,4})[, ]\s*)?"
_LINK = re.compile(rf"{_GPU}\b(GPU to Host|Host to GPU|bidirectional) (bandwidth|latency):\s*{_NUMBER}\s?(GB/s|us)\b")
_NUMBERS = (
    ("memory_allocated", "Allocated ", re.compile(rf"{_GPU}\bAllocated {_NUMBER} bytes \(")),
    ("compute_rate", "gigaflops", re.compile(rf"{_GPU}\bcalculated at approximately {_NUMBER} gigaflops\b")),
    ("stress_level", "relative stress level", re.compile(rf"{_GPU}\brelative stress level\s{{1,4}}{_NUMBER}(?![\d.])")),
    ("power_average", "power average", re.compile(rf"{_GPU}\bpower average:\s{{1,4}}{_NUMBER} ?W\b")),
    (
        "power_average",
        "average power usage",
        re.compile(rf"{_GPU}(?:max power: [\d.]{{1,20}} W )?average power usage: {_NUMBER} ?W\b"),
    ),
    ("power_max", "max power", re.compile(rf"{_GPU}\bmax power: {_NUMBER} ?W\b")),
)
"""(indicator, words that stand in the sentence, the sentence)"""
_REFUSED = re.compile(
    r"^.{0,60}?(Err(?:or)?: "
    r"(?=.{0,160}(?:[Dd]iagnostic|[Hh]ost ?engine|DCGM|specified host|unsupported GPU|requested tests))"
    r".{1,200}|dcgmi: (?:command )?not found.{0,40})$",
    re.MULTILINE,
)
_REFUSALS = ("Error: ", "Err: ", "dcgmi: ")
_REFUSES = re.compile("|".join(_REFUSALS))
"""How a sentence that `_REFUSED` finds begins."""
_NEAR = 100
_KEYS = tuple(f'"{root}"' for root in ROOTS)
_MARKS = ('"test_categories"', '"test_summary"', '"gpu_ids"', '"entity_group"', '"entity_groups"')
_MOST_WARNINGS = 200
_RANKS = ("pass", "skip", "not_run", "warn", "fail")
"""Which of several diagnoses is the worst."""
_STATUSES = ("pass", "skip", "warn", "fail")
"""How each status of a test that was judged begins."""


def sniff(head: str) -> float:
    """Look for the document's key."""
    if any(f'"{root}"' in head for root in ROOTS):
        return 1.0 if "test_categories" in head or "runtime_error" in head or "iterations" in head else 0.8
    return 0.95 if HEADER.search(head) else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give the numbers of the tests' info texts. Params: test, gpu, direction, and run with several iterations."""
    text = source.text()
    answered = '"test_categories"' in text or '"runtime_error"' in text or _has_table(text, beside=False)
    refused = None if answered else _REFUSED.search(text)
    if refused:
        yield Fact("runtime_error", refused[1].strip())
        yield Completeness(NAME, Status.NOT_STARTED, {}, {"tests": 0}, refused[1].strip())
        return
    documents, book, numbering = Documents(text, *_KEYS, marks=_MARKS), _Book(expect), Numbering()
    unread = ""
    for document in documents:
        runs = book.runs
        for diagnosis in diagnoses_in(document):
            place = numbering.number({})
            yield from numbering.add([item for result in diagnosis.results for item in _readings(result, place)])
            book.enter(diagnosis)
        book.enter_document(document)
        unread = unread or ("" if book.runs > runs else "a JSON document names the diagnostic and holds none")
    cut = "a JSON document stops before its end" if documents.cut else unread
    if _has_table(text, beside=book.worst is not None):
        for diagnosis, lacks in tables_in(text):
            place = numbering.number({})
            yield from numbering.add([item for result in diagnosis.everything for item in _readings(result, place)])
            book.enter(diagnosis)
            cut = cut or lacks
    yield from numbering.rest()
    if book.worst is None:
        why = "the JSON stops before its end" if documents.cut else "no diagnostic in it, as JSON or as a table"
        raise OutputError(why, source=source.name, excerpt=text.strip()[:80])
    yield from _facts(book, book.worst)
    yield _completeness(book, cut or _refusal_beside(text))


def _has_table(text: str, *, beside: bool) -> bool:
    """Say whether a table is in a text, or what is left of one `beside` a whole diagnosis."""
    return ("| Result" in text and HEADER.search(text) is not None) or (
        beside and "-+-" in text and SECTION.search(text) is not None
    )


def _refusal_beside(text: str) -> str:
    """Give what dcgmi says of another run that it refused, on a line that is part of no document and no table."""
    for word in _REFUSES.finditer(text) if any(words in text for words in _REFUSALS) else ():
        begin = _line_begin(text, word.start())
        if begin is None or any(mark in text[begin : word.start()] for mark in '"|'):
            continue
        if refused := _REFUSED.match(text, begin):
            return f"another run was refused: {refused[1].strip()[:200]}"
    return ""


def _line_begin(text: str, place: int) -> int | None:
    """Give where the line of a place begins, None where that is far away."""
    at = text.rfind("\n", max(0, place - _NEAR), place)
    return at + 1 if at >= 0 or place <= _NEAR else None


class _Kinds:
    """Which statuses were seen, and what they make together."""

    def __init__(self) -> None:
        """Start before the first."""
        self._seen: set[str] = set()

    def add(self, kind: str) -> None:
        """Take a status in lower case."""
        self._seen.add(kind)

    def add_all(self, other: _Kinds) -> None:
        """Take what another has seen."""
        self._seen |= other._seen

    @property
    def overall(self) -> str:
        """The worst that counts: a test that was skipped says nothing, unless all were."""
        for word in ("fail", "warn"):
            if any(kind.startswith(word) for kind in self._seen):
                return word
        if "pass" in self._seen:
            return "pass"
        return "skip" if any(kind.startswith("skip") for kind in self._seen) else "not_run"


class _Book:
    """What is kept of all diagnoses, so that only one of them is held: the worst, the first of these."""

    def __init__(self, expect: Mapping[str, Scalar]) -> None:
        """Start before the first; `expect` says what each must hold."""
        self.expected = {key: value for key, value in expect.items() if key in EXPECTATIONS}
        self.iterations = expected_count(expect, "iterations")
        self._gpus, self._wanted = expected_count(expect, "gpus"), expected_words(expect, "tests")
        self.worst: Diagnosis | None = None
        self._rank = -1
        self.kinds = _Kinds()
        self.runs = self.results = self.tests = 0
        self.failed: set[str] = set()
        self.skipped: set[str] = set()
        self.warnings: dict[str, None] = {}
        self.contradictions: dict[str, str] = {}
        self.has_iterations = False
        self.runtime_error: str | None = None
        self._failure: str | None = None
        self._verdict: str | None = None
        self._problem: str | None = None

    def enter(self, diagnosis: Diagnosis) -> None:
        """Take the next diagnosis."""
        kinds = _Kinds()
        for result in diagnosis.everything:
            kind = result.kind
            kinds.add(kind)
            if kind.startswith("fail"):
                self.failed.add(result.test)
                self._failure = self._failure or _told(result)
            elif kind.startswith("skip"):
                self.skipped.add(result.test)
            if result.warnings and len(self.warnings) < _MOST_WARNINGS:
                self.warnings |= dict.fromkeys(result.warnings)
            if (against := result.contradiction) is not None:
                self.contradictions[result.test] = against
        self.kinds.add_all(kinds)
        if (rank := _RANKS.index(kinds.overall)) > self._rank:
            self.worst, self._rank = diagnosis, rank
        if self.runs == 0:
            self.tests = len(diagnosis.tests)
        self.runs += 1
        self.results += len(diagnosis.results)
        self.runtime_error = self.runtime_error or diagnosis.runtime_error
        self._problem = self._problem or next(self._problems(diagnosis, kinds.overall), None)

    def enter_document(self, document: Mapping[str, Any]) -> None:
        """Take what a whole document says of its runs."""
        self.has_iterations |= "iterations" in document
        if str(document.get("Overall Result", "")).lower() == "fail":
            self._verdict = self._verdict or f"the overall result is Fail: {document.get('warning', 'no reason given')}"

    @property
    def failure(self) -> str | None:
        """What the tool itself calls a failure, the most telling first, or None."""
        return self.runtime_error or self._failure or self._verdict

    @property
    def problem(self) -> str | None:
        """Name what is missing, iterations, tests, GPUs, or None."""
        if self.iterations not in (None, self.runs):
            return f"{self.runs} iterations, {self.iterations} expected"
        return self._problem

    def _problems(self, diagnosis: Diagnosis, overall: str) -> Iterator[str]:
        named = {test.lower(): test for test in diagnosis.tests} if self._wanted else {}
        if diagnosis.damage:
            yield diagnosis.damage
        for name in self._wanted:
            if name.lower() not in named:
                yield f"test {name} is not there; there are: {', '.join(diagnosis.tests) or 'none'}"
            elif any(not r.has("pass", "warn", "fail") for r in _shown(diagnosis, named[name.lower()])):
                yield f"test {name} was skipped or did not run"
        yield from _unjudged(diagnosis, self._gpus)
        for result in diagnosis.everything:
            if (text := result.contradiction) is not None:
                yield f"test {result.test} passed, but says: {text[:200]}"
        if overall in ("skip", "not_run"):
            yield "every test was skipped" if diagnosis.everything else "no test ran"


def _told(result: Result) -> str:
    """Say which test failed where, and what it says of it."""
    on = f" on {result.group or 'entity'} {', '.join(result.entities)}" if result.entities else ""
    said = f": {result.warnings[0][:200]}" if result.warnings else ""
    return f"test {result.test} failed{on}{said}"


def _readings(result: Result, run: Params) -> Iterator[Reading]:
    for text in result.info:
        for match in _LINK.finditer(text) if " bandwidth:" in text or " latency:" in text else ():
            gpu, way, kind, number, unit = match.groups()
            if (unit == "GB/s") == (kind == "bandwidth"):
                extra: Params = {"direction": _DIRECTIONS[way.lower()]}
                yield from _reading(f"pcie_{kind}", number, _gpu(gpu, result), result, {**run, **extra})
        for indicator, words, pattern in _NUMBERS:
            for match in pattern.finditer(text) if words in text else ():
                yield from _reading(indicator, match[2], _gpu(match[1], result), result, run)


def _gpu(named: str | None, result: Result) -> str | None:
    """Say which GPU a sentence is about: the one that it names, else the only one of the result."""
    if named is not None:
        return named
    return result.entities[0] if result.group == "GPU" and len(result.entities) == 1 else None


def _reading(indicator: str, number: str, gpu: str | None, result: Result, extra: Params) -> Iterator[Reading]:
    value = float(number)
    if gpu is not None and not is_blank(value):
        place: dict[str, Scalar] = {**extra, "test": result.test, "gpu": gpu}
        if result.host is not None:
            place["host"] = result.host
        yield Reading(indicator, value, INDICATORS[indicator][0], place)


def _facts(book: _Book, diagnosis: Diagnosis) -> Iterator[Fact]:
    yield Fact("root", diagnosis.root)
    for name, told in (("version", diagnosis.version), ("driver", diagnosis.driver)):
        if told is not None:
            yield Fact(name, told)
    yield Fact("overall", book.kinds.overall)
    yield Fact("has_skip", bool(book.skipped))
    yield Fact("tests", {test: _test(diagnosis, test) for test in diagnosis.tests})
    yield Fact("results", [_plain(result) for result in diagnosis.results])
    if entities := diagnosis.listed:
        yield Fact("entities", entities)
    yield Fact("failed", sorted(book.failed))
    yield Fact("skipped", sorted(book.skipped))
    if book.warnings:
        yield Fact("warnings", list(book.warnings)[:_MOST_WARNINGS])
    if book.runtime_error:
        yield Fact("runtime_error", book.runtime_error)
    if book.contradictions:
        yield Fact("contradictions", book.contradictions)
    if book.runs > 1 or book.has_iterations:
        yield Fact("iterations", book.runs)


def _test(diagnosis: Diagnosis, test: str) -> dict[str, Any]:
    results = diagnosis.tests[test]
    summary = diagnosis.summaries.get(test)
    return {"n": len(results), "results": [r.status for r in results], "summary": summary.status if summary else None}


def _plain(result: Result) -> dict[str, Any]:
    return {
        "test": result.test, "category": result.category, "entity_group": result.group,
        "entities": list(result.entities), "status": result.status, "warnings": list(result.warnings),
    }  # fmt: skip


def _completeness(book: _Book, cut: str) -> Completeness:
    """Say whether all is there; `cut` says what is not."""
    found: dict[str, Any] = {"tests": book.tests, "results": book.results}
    if book.runs > 1:
        found["iterations"] = book.runs
    status, reason = Status.COMPLETE, ""
    if book.failure is not None:
        status, reason = Status.FAILED, book.failure
    elif cut:
        status, reason = Status.INCOMPLETE, cut
    elif book.problem is not None:
        status, reason = Status.INCOMPLETE, book.problem
    elif "tests" not in book.expected and book.skipped:
        status = Status.UNKNOWN
        reason = f"skipped: {', '.join(sorted(book.skipped))}; expect tests to say which ones matter"
    return Completeness(NAME, status, book.expected, found, reason)


def _shown(diagnosis: Diagnosis, test: str) -> list[Result]:
    summary = diagnosis.summaries.get(test)
    return diagnosis.tests[test] or ([summary] if summary else [Result(test, "", None, (), "Not Run")])


def _unjudged(diagnosis: Diagnosis, wanted: int | None) -> Iterator[str]:
    """Name entities on which a test has no result, and results without a status."""
    listed = diagnosis.listed
    if wanted is not None and listed.get("GPU") is not None and len(listed["GPU"]) != wanted:
        yield f"{len(listed['GPU'])} GPUs listed, {wanted} expected"
    named = "GPU" in listed
    for test, results in diagnosis.tests.items():
        seen = _entities_by_group(results)
        for group, entities in seen.items():
            missing = [entity for entity in listed.get(group, []) if entity not in entities]
            if missing and not any(result.host for result in results):
                yield f"test {test} has no result for {group} {', '.join(missing)}"
            if group == "GPU" and wanted is not None and len(entities) < wanted:
                yield f"test {test} has results for {len(entities)} GPUs, {wanted} expected"
        named = named or "GPU" in seen
        if not results and test not in diagnosis.summaries:
            yield f"test {test} has no result"
    yield from _without_status(diagnosis)
    if wanted is not None and not named:
        yield f"no test names a GPU, {wanted} expected"


def _without_status(diagnosis: Diagnosis) -> Iterator[str]:
    for result in diagnosis.everything:
        if result.has("not run"):
            yield f"test {result.test} did not run"
        elif not result.has(*_STATUSES):
            yield f"test {result.test} has the status {result.status[:80]!r}, which is none of the tool's"


def _entities_by_group(results: Sequence[Result]) -> dict[str, set[str]]:
    seen: dict[str, set[str]] = {}
    for result in results:
        if result.group is not None and result.entities:
            seen.setdefault(result.group, set()).update(result.entities)
    return seen
