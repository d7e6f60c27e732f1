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
from dataclasses import dataclass, field
from typing import Any

from plumbline.errors import OutputError
from plumbline.model import Code, Scalar, to_plain
from plumbline.readers._expectations import expected_count
from plumbline.readers._json_documents import Documents
from plumbline.readers._kube_describe import Described, described
from plumbline.readers._kube_diagnosis import Diagnosis, diagnose, explain
from plumbline.readers._kube_events import About, KubeEvent, event_header, event_of
from plumbline.readers._kube_reasons import refine
from plumbline.readers._kube_tables import pod_rows
from plumbline.readers._kube_yaml import HEAD, YamlObjects
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

_NONE = re.compile(r"^(No (?:events|resources) found(?: in [\w.-]{1,253} namespace)?\.?)\s*$", re.MULTILINE)
_ERROR = re.compile(
    r"^.{0,40}?((?:Error from server(?: \((?P<reason>\w{1,40})\))?: |Unable to connect to the server: |"
    r"(?<!.)error: (?=the server|You must be|no |context |timed out|unable to|resource )|"
    r"The connection to the server .{1,120} was refused)(?P<message>.{0,2000}))$",
    re.MULTILINE,
)
_ERROR_WORDS = ("Error from server", "Unable to connect", "error: ", "The connection to the server")
"""One of these stands in whatever `_ERROR` finds."""
_NEW_EVENTS = re.compile(r"^(?:LAST SEEN|LASTSEEN|NAMESPACE +LAST SEEN|FIRSTSEEN)\s", re.MULTILINE)
_PODS = re.compile(r"^(?:NAMESPACE +)?NAME +READY +STATUS +RESTARTS +AGE", re.MULTILINE)
_NAMED = re.compile(r"^Name:[ \t]+\S", re.MULTILINE)
_PARTS = re.compile(r"^(Events|Conditions|Containers|Tolerations|QoS Class):(?:[ \t]|$)", re.MULTILINE)
_WORDS = {_NAMED: ("Name:",), _PODS: ("RESTARTS",), _NEW_EVENTS: ("LAST SEEN", "LASTSEEN", "FIRSTSEEN")}
"""What each beginning has, and how to count, cheaply, the lines that may be one behind a prefix."""
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_MARKS = ('"apiVersion"', '"containerStatuses"')
_INDENTS = frozenset((" ", "\t", ""))
_BAD = (Code.OK, None)
_INTERRUPTED = (Code.EVICTED, Code.PREEMPTED, Code.NODE_LOST, Code.NODE_NOT_READY, Code.TIMEOUT, Code.STOPPED)


@dataclass(slots=True)
class _Found:
    """Everything in a file: pods as API objects, events, and what else there is."""

    pods: list[Mapping[str, Any]] = field(default_factory=list)
    events: list[KubeEvent] = field(default_factory=list)
    own_events: dict[int, list[KubeEvent]] = field(default_factory=dict)
    """Events that were printed with a pod, by the pod's position."""
    kinds: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    """(reason, message) of objects that are no pods: Jobs that failed, refusals of the API server."""
    nothing: str | None = None
    complaint: str | None = None
    tables: int = 0
    listed: bool = False
    """Whether pods come from a table, which has no end mark."""
    cut: str | None = None
    damage: str | None = None
    """What of an API object can't be read: it counts where anything else can."""


def sniff(head: str) -> float:
    """Look for kubectl's tables and descriptions, or for API objects."""
    if _NEW_EVENTS.search(head) or _PODS.search(head):
        return 0.95
    if _NAMED.search(head) and re.search(r"^(?:Namespace|Roles|Containers): *", head, re.MULTILINE):
        return 0.9
    if re.search(r'"kind" ?: ?"(?:Pod|PodList|Event|EventList|List|Status)"', head) and '"apiVersion"' in head:
        return 0.95
    if HEAD.search(head) and re.search(r"^ {0,2}kind: (?:Pod|List|Event)\b", head, re.MULTILINE):
        return 0.9
    return 0.6 if _NONE.search(head) else 0.5 if "Error from server" in head else 0.0


def read(source: Source, expect: Mapping[str, Scalar]) -> Iterator[Item]:
    """Give the restarts of each pod; what explains it is facts. Params: pod, namespace."""
    text = source.text()
    found = _find(text)
    if not _anything(found) and "\n" in text:
        for other in (strip_document(text), textwrap.dedent(text)):
            if other != text and not _anything(found):
                found = _find(other)
    if not _anything(found):
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
    main = _worst(diagnoses) or _without_pod(found, everything)
    yield from _facts(found, diagnoses, main, everything)
    yield _completeness(found, diagnoses, main, expect, ended=ended)


def _anything(found: _Found) -> bool:
    return bool(
        found.pods or found.events or found.kinds or found.failures or found.nothing or found.complaint or found.tables
        or found.cut
    )  # fmt: skip


def _find(text: str) -> _Found:
    in_yaml = YamlObjects(text)
    found = _Found(damage=in_yaml.damage)
    for one_document in in_yaml.objects:
        _take(found, one_document)
    _take_json(found, in_yaml.rest)
    if "Name:" in text and _NAMED.search(text):
        for one in described(text):
            _take_description(found, one)
    if "REASON" in text or ("READY" in text and _PODS.search(text)):
        _take_tables(found, text)
    _take_sayings(found, text)
    if not found.damage and _has_more_behind_prefixes(text):
        found.damage = "what stands behind line prefixes is not read beside lines without any"
    if not found.damage and _has_headless_description(text):
        found.damage = "a description has no head"
    if found.damage and _anything(found):
        found.cut = found.cut or found.damage
    return found


def _has_more_behind_prefixes(text: str) -> bool:
    """Say whether descriptions or tables stand beside others, with prefixes before their lines."""
    words = {one: sum(map(text.count, said)) for one, said in _WORDS.items()}
    beginnings = {one: len(one.findall(text)) if words[one] else 0 for one in _WORDS}
    more = any(words[one] > beginnings[one] for one in _WORDS)
    if not more or not any(beginnings.values()):
        return False
    bare = strip_document(text)
    return any(len(one.findall(bare)) > count for one, count in beginnings.items())


def _has_headless_description(text: str) -> bool:
    """Say whether parts that each description has once are there more often than heads are."""
    if not any(word in text for word in ("Events:", "Conditions:", "Containers:", "Tolerations:", "QoS Class:")):
        return False
    parts = Counter(_PARTS.findall(text))
    return bool(parts) and max(parts.values()) > len(_NAMED.findall(text))


def _take_json(found: _Found, text: str) -> None:
    documents = Documents(text, '"kind"', marks=_MARKS)
    for document in documents:
        _take(found, document)
    if documents.cut:
        found.damage = "a JSON document stops before its end"
        found.cut = found.damage if '"apiVersion"' in text else None


def _take_sayings(found: _Found, text: str) -> None:
    """Take what kubectl says in place of an answer."""
    if " found" in text and (match := _NONE.search(text)):
        found.nothing = match[1]
    if any(words in text for words in _ERROR_WORDS) and (match := _ERROR.search(text)):
        found.complaint = match[1].strip()
        if match["reason"]:
            found.failures.append((match["reason"], match["message"].strip()))


def _take(found: _Found, document: Mapping[str, Any], depth: int = 0) -> None:
    """Take an API object: a pod, an event, a list of them, a refusal, a Job."""
    kind = document.get("kind")
    items = document.get("items")
    is_list = kind.endswith("List") if isinstance(kind, str) else kind is None and "apiVersion" in document
    if isinstance(items, list) and depth < 3 and is_list:
        _take_items(found, items, kind or "List", depth)
        if kind is None:
            found.damage = found.damage or "a list stops before its kind"
    elif kind == "Pod" and isinstance(document.get("metadata"), dict):
        found.pods.append(document)
    elif kind == "Event" and isinstance(document.get("reason"), str):
        found.events.append(event_of(document))
    elif kind == "Status" and document.get("status") == "Failure":
        found.failures.append((str(document.get("reason") or "Failure"), str(document.get("message") or "")))
    elif isinstance(kind, str) and isinstance(document.get("metadata"), dict):
        found.kinds.append(kind)
        found.failures += _failed_conditions(document)
        found.damage = found.damage or _doubt(document, kind)
    else:
        found.damage = found.damage or _loss(document)


def _doubt(document: Mapping[str, Any], kind: str) -> str | None:
    """Say why an object may not be of the kind that it says, or not whole."""
    if kind.endswith("List"):
        return f"{kind} without items"
    if kind == "Event":
        return "Event without a reason"
    if not _KIND.fullmatch(kind) or _is_like_a_pod(document):
        return f"an object like a pod has the kind {kind[:80]!r}"
    return None


def _loss(document: Mapping[str, Any]) -> str | None:
    """Say what is lost with a document that is taken for nothing."""
    if "apiVersion" in document:
        return f"{document.get('kind') or 'an object'} stops before its metadata"
    if any(isinstance(value, dict) and {"apiVersion", "kind"} <= value.keys() for value in document.values()):
        return "an object stands inside another document"
    return None


def _is_like_a_pod(document: Mapping[str, Any]) -> bool:
    spec, status = document.get("spec"), document.get("status")
    return (isinstance(spec, dict) and "containers" in spec) or (
        isinstance(status, dict) and "containerStatuses" in status
    )


def _take_items(found: _Found, items: list[Any], kind: str, depth: int) -> None:
    inner = kind.removesuffix("List")
    for item in items:
        if isinstance(item, dict):
            _take(found, item if "kind" in item or not inner else {**item, "kind": inner}, depth + 1)
        else:
            found.damage = found.damage or f"an item of {kind} is no object"
    found.tables += not items
    found.nothing = found.nothing or (None if items else f"an empty {kind}")


def _failed_conditions(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Give the reasons for which a Job, Workload or PodGroup says that it can't go on."""
    status = document.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for condition in conditions if isinstance(conditions, list) else []:
        if not isinstance(condition, dict):
            continue
        kind, state = condition.get("type"), condition.get("status")
        failed = kind in ("Failed", "FailureTarget", "Evicted", "Preempted", "ReplicaFailure", "Unschedulable")
        waiting = kind in ("QuotaReserved", "Admitted")
        if (failed and state == "True") or (waiting and state == "False"):
            yield str(condition.get("reason") or kind), str(condition.get("message") or "")


def _take_description(found: _Found, one: Described) -> None:
    if one.kind == "Pod":
        found.own_events[len(found.pods)] = one.events
        found.pods.append(one.data)
        if not one.whole:
            found.cut = "the description stops before its events"
    else:
        found.kinds.append(one.kind or "object")
        found.events += one.events
    found.tables += 1


def _take_tables(found: _Found, text: str) -> None:
    """Take the tables of kubectl events, kubectl get events and kubectl get pods, which are not indented."""
    table, lines = None, text.splitlines()
    for line in lines:
        if line[:1] in _INDENTS:
            table = table if line.strip() else None
            continue
        if ("REASON" in line or "eason" in line) and (begun := event_header(line)) is not None:
            table = begun
            found.tables += 1
        elif table is not None and (event := table.row(line)) is not None:
            found.events.append(event)
    if "READY" in text and _PODS.search(text):
        found.pods += pod_rows(lines)
        found.tables += 1
        found.listed = True


def _name(pod: Mapping[str, Any]) -> object:
    metadata = pod.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


def _worst(diagnoses: Sequence[Diagnosis]) -> Diagnosis | None:
    """Give the pod that needs explaining most: one with a reason, failed before pending."""
    order = {"Failed": 3, "Pending": 2, "Unknown": 2, "Running": 1}
    return max(
        diagnoses, key=lambda one: (one.category not in _BAD, order.get(one.phase or "", 0)), default=None
    )  # fmt: skip


def _without_pod(found: _Found, events: Sequence[KubeEvent]) -> Diagnosis:
    """Say what events and refusals say where no pod is in the file."""
    diagnosis = diagnose({}, events)
    objects = {event.object for event in events}
    if len(objects) == 1 and (name := objects.pop().partition("/")[2]):
        diagnosis = dataclasses.replace(diagnosis, name=name)
    if diagnosis.category is None and found.failures:
        reason, message = found.failures[0]
        finding = refine(reason, message)
        unknown = reason == "NotFound"
        return dataclasses.replace(
            diagnosis, reason=reason, category=None if unknown else finding.category, message=message
        )
    return diagnosis


def _facts(
    found: _Found, diagnoses: Sequence[Diagnosis], main: Diagnosis, events: Sequence[KubeEvent]
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
    found: _Found, diagnoses: Sequence[Diagnosis], main: Diagnosis, expect: Mapping[str, Scalar], *, ended: bool
) -> Completeness:
    wanted = expected_count(expect, "pods")
    expected: dict[str, Any] = {} if wanted is None else {"pods": wanted}
    counts = {"pods": len(diagnoses), "events": len(found.events) + sum(map(len, found.own_events.values()))}
    status, reason = _status(diagnoses, main)
    if not diagnoses:
        status, reason = _status_without_pod(found, main)
    if status in (Status.COMPLETE, Status.UNKNOWN) and wanted is not None and wanted != len(diagnoses):
        status, reason = Status.INCOMPLETE, f"{len(diagnoses)} pods, {wanted} expected"
    if status is Status.COMPLETE and wanted is None and (found.listed or (found.own_events and len(diagnoses) > 1)):
        status, reason = Status.UNKNOWN, "a list without an end mark; expect pods to settle it"
    if status is Status.COMPLETE and (found.cut or not ended):
        status, reason = Status.INCOMPLETE, found.cut or "the last line has no line end"
    return Completeness(NAME, status, expected, counts, reason)


def _status(diagnoses: Sequence[Diagnosis], main: Diagnosis) -> tuple[Status, str]:
    """Say what the pods' states mean for a run in them."""
    why = f"{main.name or 'pod'}: {main.reason or main.phase or 'no phase'}" + (
        f": {main.message[:300]}" if main.message else ""
    )
    phases = {one.phase for one in diagnoses}
    if phases == {"Succeeded"}:
        return Status.COMPLETE, ""
    if main.phase == "Failed":
        interrupted = main.category in _INTERRUPTED
        started = main.started or main.exit_code is not None or main.category is Code.BENCHMARK_FAILED
        return (Status.ABORTED if interrupted else Status.FAILED if started else Status.NOT_STARTED), why
    if main.category not in _BAD:
        if main.started and main.category not in (Code.IMAGE_PULL, Code.UNSCHEDULABLE):
            return (Status.INCOMPLETE if main.category in _INTERRUPTED else Status.FAILED), why
        return Status.NOT_STARTED, why
    if "Running" in phases or "Succeeded" in phases:
        return Status.INCOMPLETE, f"not finished: {', '.join(sorted(phase or 'no phase' for phase in phases))}"
    return (Status.NOT_STARTED if phases == {"Pending"} else Status.UNKNOWN), why


def _status_without_pod(found: _Found, main: Diagnosis) -> tuple[Status, str]:
    """Say what events or refusals alone mean: they never prove that a pod is well."""
    if found.failures and not found.events:
        reason, message = found.failures[0]
        refused = 'pods "' in message or main.category is Code.QUOTA or bool(found.kinds)
        return (
            Status.NOT_STARTED if refused and reason != "NotFound" else Status.UNKNOWN
        ), f"{reason}: {message[:300]}"
    if found.complaint:
        return Status.UNKNOWN, found.complaint[:300]
    if found.nothing and not found.events:
        return Status.UNKNOWN, f"{found.nothing} Events expire after an hour: none is not health"
    told = f"{main.reason}: {main.message[:300]}" if main.reason else "nothing wrong in them"
    return Status.UNKNOWN, f"events without the pod ({told})"
