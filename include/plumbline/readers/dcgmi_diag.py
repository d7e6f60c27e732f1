"""`dcgmi diag -j` of DCGM 2 to 4, and `dcgmi mndiag -j`: a status for each test and entity, and what it says.

DCGM 2 and 3 name GPUs by gpu_id or gpu_ids below "DCGM GPU Diagnostic"; DCGM 4 names entities below "DCGM
Diagnostic" and leaves out those on which a test did not run. Skip is not Pass.
Source: NVIDIA/DCGM, dcgmi/Diag.cpp of 2.2 to 4.6 and nvvs/include/NvvsJsonStrings.h.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Params, Scalar
from plumbline.readers._dcgm_results import ROOTS, Diagnosis, Result, diagnosis_of, is_body
from plumbline.readers._expectations import expected_count, expected_words
from plumbline.readers._json_documents import inner_objects, read_documents
from plumbline.readers._quantities import is_blank
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source

NAME = "dcgmi_diag"
TOOL = "dcgmi diag -j (DCGM 2, 3, 4), dcgmi mndiag -j"
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
    "root": "key of the document, which tells DCGM 3 ('DCGM GPU Diagnostic') from 4 ('DCGM Diagnostic')",
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
_NOT_JSON = re.compile(r"^\|? ?-{5}  Deployment|^\| Diagnostic +\| Result", re.MULTILINE)
_REFUSED = re.compile(
    r"^.{0,60}?(Err(?:or)?: "
    r"(?=.{0,160}(?:[Dd]iagnostic|[Hh]ost ?engine|DCGM|specified host|unsupported GPU|requested tests))"
    r".{1,200}|dcgmi: (?:command )?not found.{0,40})$",
    re.MULTILINE,
)
_MOST_WARNINGS = 200


def sniff(head: str) -> float:
    """Look for the document's key."""
    if any(f'"{root}"' in head for root in ROOTS):
        return 1.0 if "test_categories" in head or "runtime_error" in head or "iterations" in head else 0.8
    return 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give the numbers of the tests' info texts. Params: test, gpu, direction, and run with several iterations."""
    text = source.text()
    found = read_documents(text, "Diagnostic", _document)
    diagnoses = [diagnosis for document in found.objects for diagnosis in document.diagnoses]
    refused = None if '"test_categories"' in text or '"runtime_error"' in text else _REFUSED.search(text)
    if not diagnoses or refused:
        if refused:
            yield Fact("runtime_error", refused[1].strip())
            yield Completeness(NAME, Status.NOT_STARTED, {}, {"tests": 0}, refused[1].strip())
            return
        why = "the JSON stops before its end" if found.cut else "no diagnostic in JSON"
        if _NOT_JSON.search(text):
            why = "a table, not JSON: run dcgmi diag with -j"
        raise OutputError(why, source=source.name, excerpt=text.strip()[:80])
    several = len(diagnoses) > 1
    for number, diagnosis in enumerate(diagnoses):
        for result in diagnosis.results:
            yield from _readings(result, {"run": number} if several else {})
    yield from _facts(diagnoses, found.objects)
    yield _completeness(diagnoses, found.objects, expect, cut=found.cut)


@dataclass(frozen=True, slots=True)
class _Document:
    """What is kept of one JSON document."""

    diagnoses: Sequence[Diagnosis]
    has_iterations: bool
    failure: str | None
    """What its overall result says, where that is Fail."""


def _document(document: Mapping[str, Any]) -> _Document:
    failed = str(document.get("Overall Result", "")).lower() == "fail"
    return _Document(
        [diagnosis_of(part) for part in inner_objects(document) if is_body(part)],
        "iterations" in document,
        f"the overall result is Fail: {document.get('warning', 'no reason given')}" if failed else None,
    )


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


def _overall(statuses: Sequence[str]) -> str:
    kinds = {status.strip().lower() for status in statuses}
    for word, name in (("fail", "fail"), ("warn", "warn")):
        if any(kind.startswith(word) for kind in kinds):
            return name
    if "pass" in kinds:
        return "pass"
    return "skip" if any(kind.startswith("skip") for kind in kinds) else "not_run"


def _facts(diagnoses: Sequence[Diagnosis], documents: Sequence[_Document]) -> Iterator[Fact]:
    diagnosis = max(diagnoses, key=lambda one: _rank(_overall(one.statuses)))
    yield Fact("root", diagnosis.root)
    for name, told in (("version", diagnosis.version), ("driver", diagnosis.driver)):
        if told is not None:
            yield Fact(name, told)
    yield Fact("overall", _overall([status for one in diagnoses for status in one.statuses]))
    everything = [result for one in diagnoses for result in one.everything]
    yield Fact("has_skip", any(result.has("skip") for result in everything))
    yield Fact("tests", {test: _test(diagnosis, test) for test in diagnosis.order})
    yield Fact("results", [_plain(result) for result in diagnosis.results])
    if entities := diagnosis.listed:
        yield Fact("entities", entities)
    yield Fact("failed", sorted({result.test for result in everything if result.has("fail")}))
    yield Fact("skipped", sorted({result.test for result in everything if result.has("skip")}))
    if warnings := [text for result in everything for text in result.warnings]:
        yield Fact("warnings", list(dict.fromkeys(warnings))[:_MOST_WARNINGS])
    if errors := [one.runtime_error for one in diagnoses if one.runtime_error]:
        yield Fact("runtime_error", errors[0])
    if against := {result.test: text for result in everything if (text := result.contradiction)}:
        yield Fact("contradictions", against)
    if len(diagnoses) > 1 or any(document.has_iterations for document in documents):
        yield Fact("iterations", len(diagnoses))


def _rank(overall: str) -> int:
    return ("pass", "skip", "not_run", "warn", "fail").index(overall)


def _test(diagnosis: Diagnosis, test: str) -> dict[str, Any]:
    results = diagnosis.of(test)
    summary = diagnosis.summaries.get(test)
    return {"n": len(results), "results": [r.status for r in results], "summary": summary.status if summary else None}


def _plain(result: Result) -> dict[str, Any]:
    return {
        "test": result.test, "category": result.category, "entity_group": result.group,
        "entities": list(result.entities), "status": result.status, "warnings": list(result.warnings),
    }  # fmt: skip


def _completeness(
    diagnoses: Sequence[Diagnosis],
    documents: Sequence[_Document],
    expect: Mapping[str, Scalar],
    *,
    cut: bool,
) -> Completeness:
    expected = {key: value for key, value in expect.items() if key in EXPECTATIONS}
    found: dict[str, Any] = {"tests": len(diagnoses[0].order), "results": sum(len(one.results) for one in diagnoses)}
    if len(diagnoses) > 1:
        found["iterations"] = len(diagnoses)
    status, reason = Status.COMPLETE, ""
    if (failure := next(_failures(diagnoses, documents), None)) is not None:
        status, reason = Status.FAILED, failure
    elif cut:
        status, reason = Status.INCOMPLETE, "a JSON document stops before its end"
    elif (problem := next(_problems(diagnoses, expect), None)) is not None:
        status, reason = Status.INCOMPLETE, problem
    elif "tests" not in expect and (
        skipped := sorted({result.test for one in diagnoses for result in one.everything if result.has("skip")})
    ):
        status = Status.UNKNOWN
        reason = f"skipped: {', '.join(skipped)}; expect tests to say which ones matter"
    return Completeness(NAME, status, expected, found, reason)


def _failures(diagnoses: Sequence[Diagnosis], documents: Sequence[_Document]) -> Iterator[str]:
    """Name what the tool itself calls a failure."""
    for diagnosis in diagnoses:
        if diagnosis.runtime_error is not None:
            yield diagnosis.runtime_error
    for diagnosis in diagnoses:
        for result in diagnosis.everything:
            if result.has("fail"):
                on = f" on {result.group or 'entity'} {', '.join(result.entities)}" if result.entities else ""
                said = f": {result.warnings[0][:200]}" if result.warnings else ""
                yield f"test {result.test} failed{on}{said}"
    for document in documents:
        if document.failure is not None:
            yield document.failure


def _problems(diagnoses: Sequence[Diagnosis], expect: Mapping[str, Scalar]) -> Iterator[str]:
    """Name what is missing: iterations, tests, GPUs."""
    if (iterations := expected_count(expect, "iterations")) not in (None, len(diagnoses)):
        yield f"{len(diagnoses)} iterations, {iterations} expected"
    wanted = expected_words(expect, "tests")
    for diagnosis in diagnoses:
        named = {test.lower(): test for test in diagnosis.order}
        for name in wanted:
            if name.lower() not in named:
                yield f"test {name} is not there; there are: {', '.join(diagnosis.order) or 'none'}"
            elif any(not r.has("pass", "warn", "fail") for r in _shown(diagnosis, named[name.lower()])):
                yield f"test {name} was skipped or did not run"
        yield from _unjudged(diagnosis, expected_count(expect, "gpus"))
        for result in diagnosis.everything:
            if (text := result.contradiction) is not None:
                yield f"test {result.test} passed, but says: {text[:200]}"
        if _overall(diagnosis.statuses) in ("skip", "not_run"):
            yield "every test was skipped" if diagnosis.statuses else "no test ran"


def _shown(diagnosis: Diagnosis, test: str) -> list[Result]:
    summary = diagnosis.summaries.get(test)
    return diagnosis.of(test) or ([summary] if summary else [Result(test, "", None, (), "Not Run")])


def _unjudged(diagnosis: Diagnosis, wanted: int | None) -> Iterator[str]:
    """Name entities on which a test has no result, and results without a status."""
    listed = diagnosis.listed
    if wanted is not None and listed.get("GPU") is not None and len(listed["GPU"]) != wanted:
        yield f"{len(listed['GPU'])} GPUs listed, {wanted} expected"
    named = "GPU" in listed
    for test in diagnosis.order:
        results = diagnosis.of(test)
        groups = {result.group for result in results if result.group is not None and result.entities}
        for group in groups:
            seen = {entity for r in results if r.group == group for entity in r.entities}
            missing = [entity for entity in listed.get(group, []) if entity not in seen]
            if missing and not any(result.host for result in results):
                yield f"test {test} has no result for {group} {', '.join(missing)}"
            if group == "GPU" and wanted is not None and len(seen) < wanted:
                yield f"test {test} has results for {len(seen)} GPUs, {wanted} expected"
        named = named or "GPU" in groups
        if any(result.has("not run") for result in results):
            yield f"test {test} did not run"
        if not results and test not in diagnosis.summaries:
            yield f"test {test} has no result"
    if wanted is not None and not named:
        yield f"no test names a GPU, {wanted} expected"
