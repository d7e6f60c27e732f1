"""Why did a pod not run: pods and events of Kubernetes, as JSON or YAML, and as kubectl describe, events and get print.

Of a capture the JSON lines that the capturing tool added are passed over. "No events found" is not health: events
expire after an hour.
"""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Scalar, to_plain
from plumbline.readers._expectations import expected_count
from plumbline.readers._kube_diagnosis import Diagnosis, diagnose, explain
from plumbline.readers._kube_events import About, KubeEvent
from plumbline.readers._kube_found import NAMED, NEW_EVENTS, NONE, PODS, Found, find
from plumbline.readers._kube_state import explanation, state
from plumbline.readers._kube_yaml import HEAD
from plumbline.readers.framing import strip_document
from plumbline.readers.reading import Completeness, Fact, Item, Reading, Status
from plumbline.readers.source import Source

__all__ = [
    "EXPECTATIONS", "FACTS", "INDICATORS", "NAME", "TOOL", "Diagnosis", "explain", "read", "sniff",
]  # fmt: skip

NAME = "kubernetes"
TOOL = "Kubernetes pods and events: kubectl get -o json/yaml, describe, events, get events, get pods"
INDICATORS: Mapping[str, tuple[str, str]] = {
    "restarts": ("count", "how often a pod's containers were started again (params pod, namespace)"),
}
FACTS: Mapping[str, str] = {
    "reason": "the one reason that explains the pod best, in Kubernetes' own word; of several pods the worst",
    "category": "that reason as one of Plumbline's codes",
    "message": "what Kubernetes says of it",
    "phase": "Pending, Running, Succeeded, Failed or Unknown",
    "terminal": "whether the pod will not change any more",
    "exit_code": "exit code of the container that ended (the last end with another code than 0)",
    "last_reason": "why the container before the present one ended",
    "restarts": "how often a container was started again",
    "gpus_requested": "GPUs that the pod asks for",
    "container": "the container that is in the way",
    "node": "where the pod was placed",
    "name": "name of the pod",
    "namespace": "its namespace",
    "event": "reason of the event that explains most",
    "type": "type of that event: Warning or Normal",
    "first_error": "the first thing that went wrong, in Kubernetes' word",
    "attempts": "how often the image was pulled, where that is the matter",
    "events": "number of events (each once, whatever its count)",
    "normal": "number of Normal events",
    "warnings": "number of Warning events",
    "event_reasons": "number of events for each reason",
    "pods": "for each pod what is known of it, where there are several",
    "phases": "number of pods in each phase",
    "kind": "what was described, where it is no pod",
    "complaint": "what kubectl says when it can't answer",
}
EXPECTATIONS: Mapping[str, str] = {"pods": "number of pods that must be in it"}


def sniff(head: str) -> float:
    """Look for kubectl's tables and descriptions, or for API objects."""
    if NEW_EVENTS.search(head) or PODS.search(head):
        return 0.95
    if NAMED.search(head) and re.search(r"^(?:Namespace|Roles|Containers): *", head, re.MULTILINE):
        return 0.9
    if re.search(r'"kind" ?: ?"(?:Pod|PodList|Event|EventList|List|Status)"', head) and '"apiVersion"' in head:
        return 0.95
    if HEAD.search(head) and re.search(r"^ {0,2}kind: (?:Pod|List|Event)\b", head, re.MULTILINE):
        return 0.9
    return 0.6 if NONE.search(head) else 0.5 if "Error from server" in head else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give the restarts of each pod; what explains it is facts. Params: pod, namespace."""
    text = source.text()
    found = find(text)
    if not found.anything() and "\n" in text:
        for other in (strip_document(text), textwrap.dedent(text)):
            if other != text and not found.anything():
                found = find(other)
    if not found.anything():
        raise OutputError("no pod and no event of Kubernetes", source=source.name, excerpt=text.strip()[:80])
    ended = text.endswith(("\n", "\r", "}", "]", '"')) or not found.tables
    about = About(found.events, len(found.pods))
    diagnoses = [
        diagnose(pod, found.own_events[at] if at in found.own_events else about.pod(_name(pod)))
        for at, pod in enumerate(found.pods)
    ]
    for diagnosis in diagnoses:
        if diagnosis.restarts is not None:
            place: dict[str, Scalar] = {"pod": diagnosis.name, "namespace": diagnosis.namespace}
            yield Reading("restarts", float(diagnosis.restarts), "count", {k: v for k, v in place.items() if v})
    everything = [*found.events, *(event for events in found.own_events.values() for event in events)]
    main = explanation(found, diagnoses, everything)
    yield from _facts(found, diagnoses, main, everything)
    yield _completeness(found, diagnoses, main, expect, ended=ended)


def _name(pod: Mapping[str, Any]) -> object:
    metadata = pod.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


def _facts(
    found: Found, diagnoses: Sequence[Diagnosis], main: Diagnosis, events: Sequence[KubeEvent]
) -> Iterator[Fact]:
    for name, attribute in _FACT_OF.items():
        value = getattr(main, attribute)
        if value is not None and value != "":
            yield Fact(name, to_plain(value))
    if diagnoses:
        yield Fact("terminal", main.terminal)
    if events or found.nothing or found.tables or found.own_events:
        yield Fact("events", len(events))
        types = Counter(event.type for event in events)
        yield Fact("normal", types["Normal"])
        yield Fact("warnings", types["Warning"])
    if events:
        yield Fact("event_reasons", dict(Counter(event.reason for event in events)))
    if len(diagnoses) > 1:
        yield Fact("phases", dict(Counter(one.phase or "none" for one in diagnoses)))
        yield Fact("pods", [_plain(one) for one in diagnoses])
    if found.kinds:
        yield Fact("kind", found.kinds[0])
    if (said := found.complaint or found.nothing) is not None:
        yield Fact("complaint", said)


_FIELDS = tuple(field.name for field in dataclasses.fields(Diagnosis))


def _plain(one: Diagnosis) -> dict[str, Any]:
    """Give what is known of a pod as plain data."""
    known = {name: value for name in _FIELDS if (value := getattr(one, name)) is not None}
    if one.category is not None:
        known["category"] = one.category.value
    return known


_FACT_OF = {
    "reason": "reason", "category": "category", "message": "message", "phase": "phase", "exit_code": "exit_code",
    "last_reason": "last_reason", "restarts": "restarts", "gpus_requested": "gpus_requested", "container": "container",
    "node": "node", "name": "name", "namespace": "namespace", "event": "event", "type": "event_type",
    "first_error": "first_error", "attempts": "attempts",
}  # fmt: skip


def _completeness(
    found: Found, diagnoses: Sequence[Diagnosis], main: Diagnosis, expect: Mapping[str, Scalar], *, ended: bool
) -> Completeness:
    wanted = expected_count(expect, "pods")
    expected: dict[str, Any] = {} if wanted is None else {"pods": wanted}
    counts = {"pods": len(diagnoses), "events": len(found.events) + sum(map(len, found.own_events.values()))}
    status, reason = state(found, diagnoses, main)
    if status in (Status.COMPLETE, Status.UNKNOWN) and wanted is not None and wanted != len(diagnoses):
        status, reason = Status.INCOMPLETE, f"{len(diagnoses)} pods, {wanted} expected"
    if status is Status.COMPLETE and wanted is None and (found.listed or (found.own_events and len(diagnoses) > 1)):
        status, reason = Status.UNKNOWN, "a list without an end mark; expect pods to settle it"
    if status is Status.COMPLETE and (found.cut or not ended):
        status, reason = Status.INCOMPLETE, found.cut or "the last line has no line end"
    return Completeness(NAME, status, expected, counts, reason)
