"""The documents of `dcgmi diag -j` as results: one status of one test on one entity."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_COMMAS = re.compile(r"[,\s]+")
_EXCUSE = re.compile(r"(?:couldn't|could not|unable to|failed to|cannot) allocate", re.IGNORECASE)


@lru_cache(maxsize=256)
def _plain(status: str) -> str:
    return status.strip().lower()


class Result(NamedTuple):
    """One status, of one test on one entity (or on a list of GPUs, or on none in particular)."""

    test: str
    category: str
    group: str | None
    entities: tuple[str, ...]
    status: str
    warnings: tuple[str, ...] = ()
    info: tuple[str, ...] = ()
    host: str | None = None

    @property
    def kind(self) -> str:
        """The status in lower case."""
        return _plain(self.status)

    def has(self, *words: str) -> bool:
        """Say whether the status begins with one of the words, in any case."""
        return _plain(self.status).startswith(words)

    @property
    def contradiction(self) -> str | None:
        """What a passed test says against itself (NVIDIA/DCGM issue 284), or None."""
        if not (self.warnings or self.info) or not self.has("pass"):
            return None
        return next((text for text in self.warnings), None) or next(filter(_EXCUSE.search, self.info), None)


@dataclass(slots=True)
class Diagnosis:
    """One run of the diagnostic. None of the document is kept: there may be thousands of runs in one output."""

    root: str
    version: str | None = None
    driver: str | None = None
    listed: Mapping[str, list[str]] = field(default_factory=dict)
    """The entities that the tool says it looked at: entity_groups of DCGM 4, serials of DCGM 3."""
    runtime_error: str | None = None
    """Why the diagnostic could not run."""
    results: list[Result] = field(default_factory=list)
    summaries: dict[str, Result] = field(default_factory=dict)
    tests: dict[str, list[Result]] = field(default_factory=dict)
    """The results of each test, in the document's order."""
    damage: str | None = None
    """What of the document is not what the tool writes."""

    @property
    def everything(self) -> list[Result]:
        """Every result, and every summary."""
        return [*self.results, *self.summaries.values()]


def diagnoses_in(value: Any, depth: int = 6) -> Iterator[Diagnosis]:
    """Read the runs' documents in a document, which may be one itself, outermost first."""
    if isinstance(value, dict):
        if any(isinstance(value.get(root), (dict, str)) for root in ROOTS):
            yield diagnosis_of(value)
        value = [below for key, below in value.items() if key != "test_categories"]
    if depth > 0:
        for item in value:
            if isinstance(item, (dict, list)):
                yield from diagnoses_in(item, depth - 1)


def diagnosis_of(document: Mapping[str, Any]) -> Diagnosis:
    """Read one run's document."""
    root = next(name for name in ROOTS if isinstance(document.get(name), (dict, str)))
    body = document[root] if isinstance(document[root], dict) else document
    places = [place for place in (document.get("metadata"), body, document) if isinstance(place, dict)]
    diagnosis = Diagnosis(
        root, version=_told(places, "version"), driver=_told(places, "Driver Version Detected"),
        listed=_listed(document, body), runtime_error=_runtime_error(document, body),
    )  # fmt: skip
    for category in _parts(body, "test_categories", diagnosis):
        for test in _parts(category, "tests", diagnosis):
            name = str(test.get("name", "unnamed"))
            where = str(category.get("category", ""))
            results = [_result(name, where, entry) for entry in _parts(test, "results", diagnosis)]
            diagnosis.results += results
            diagnosis.tests.setdefault(name, []).extend(results)
            summary = test.get("test_summary")
            if isinstance(summary, dict):
                diagnosis.summaries[name] = _result(name, where, summary)
            elif summary is not None:
                diagnosis.damage = diagnosis.damage or f"test_summary of {name} is no object"
    if diagnosis.summaries and (without := diagnosis.tests.keys() - diagnosis.summaries.keys()):
        diagnosis.damage = diagnosis.damage or f"test {min(without)} has no summary, others have"
    return diagnosis


def _told(places: Sequence[Mapping[str, Any]], key: str) -> str | None:
    """Give the first text that stands at a key, none that a template was to fill."""
    values = (place.get(key) for place in places)
    return next((v for v in values if isinstance(v, str) and v and not v.startswith("<<<")), None)


def _listed(document: Mapping[str, Any], body: Mapping[str, Any]) -> Mapping[str, list[str]]:
    found = {
        str(group.get("entity_group", group.get("entity_group_id"))): [
            str(entity.get("entity_id")) for entity in dicts(group.get("entities"))
        ]
        for group in dicts(document.get("entity_groups"))
    }
    serials = body.get("GPU Device Serials")
    return found or ({"GPU": sorted(serials)} if isinstance(serials, dict) else {})


def _runtime_error(document: Mapping[str, Any], body: Mapping[str, Any]) -> str | None:
    for place in (body, document):
        error = place.get("runtime_error") or place.get("Warning")
        if isinstance(error, str) and error:
            return error.strip()
    return None


def _parts(place: Mapping[str, Any], key: str, diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Give the objects of the list at a key; what else is there damages the diagnosis."""
    value = place.get(key)
    found = dicts(value)
    if value is not None and not (isinstance(value, list) and len(found) == len(value)):
        diagnosis.damage = diagnosis.damage or f"{key} holds what is no object"
    elif value is None and key == "tests":
        diagnosis.damage = diagnosis.damage or f"category {place.get('category', 'unnamed')} has no tests"
    return found


def dicts(value: Any) -> list[dict[str, Any]]:
    """Give the objects of a list, nothing for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _result(test: str, category: str, entry: Mapping[str, Any]) -> Result:
    group = entry.get("entity_group")
    ids = entry.get("entity_id", entry.get("gpu_id", entry.get("gpu_ids")))
    if group is None and ("gpu_id" in entry or "gpu_ids" in entry):
        group = "GPU"
    entities: tuple[str, ...] = ()
    if isinstance(ids, int):
        entities = (str(ids),)
    elif ids is not None:
        entities = tuple(word for word in _COMMAS.split(str(ids)) if word)
    status = entry.get("status")
    return Result(
        test, category, None if group is None else str(group), entities,
        status if isinstance(status, str) and status else "Not Run",
        tuple(_texts(entry["warnings"])) if "warnings" in entry else (),
        tuple(_texts(entry["info"])) if "info" in entry else (),
        None if entry.get("host_id") is None else str(entry["host_id"]),
    )  # fmt: skip


def _texts(value: Any) -> Iterator[str]:
    """Give the sentences of a warnings or info field: text, a list of texts, or a list of objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(value.get("warning", value.get("warnings")))
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
