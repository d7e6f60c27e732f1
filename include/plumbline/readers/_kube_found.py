"""What is in a file of Kubernetes: API objects, descriptions, tables, and what kubectl says in place of an answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plumbline.readers._json_documents import Documents
from plumbline.readers._kube_describe import Described, described
from plumbline.readers._kube_events import KubeEvent, event_header, event_of
from plumbline.readers._kube_tables import pod_rows
from plumbline.readers._kube_yaml import YamlObjects
from plumbline.readers.framing import strip_document

NONE = re.compile(r"^(No (?:events|resources) found(?: in [\w.-]{1,253} namespace)?\.?)\s*$", re.MULTILINE)
_ERROR = re.compile(
    r"^.{0,40}?((?:Error from server(?: \((?P<reason>\w{1,40})\))?: |Unable to connect to the server: |"
    r"(?<!.)error: (?=the server|You must be|no |context |timed out|unable to|resource )|"
    r"The connection to the server .{1,120} was refused)(?P<message>.{0,2000}))$",
    re.MULTILINE,
)
_ERROR_WORDS = ("Error from server", "Unable to connect", "error: ", "The connection to the server")
"""One of these stands in whatever `_ERROR` finds."""
NEW_EVENTS = re.compile(r"^(?:LAST SEEN|LASTSEEN|NAMESPACE +LAST SEEN|FIRSTSEEN)\s", re.MULTILINE)
PODS = re.compile(r"^(?:NAMESPACE +)?NAME +READY +STATUS +RESTARTS +AGE", re.MULTILINE)
NAMED = re.compile(r"^Name:[ \t]+\S", re.MULTILINE)
_PARTS = re.compile(r"^(Events|Conditions|Containers|Tolerations|QoS Class):(?:[ \t]|$)", re.MULTILINE)
_WORDS = {NAMED: ("Name:",), PODS: ("RESTARTS",), NEW_EVENTS: ("LAST SEEN", "LASTSEEN", "FIRSTSEEN")}
"""What each beginning has, and how to count, cheaply, the lines that may be one behind a prefix."""
_KIND = re.compile(r"[A-Z][A-Za-z0-9]*")
_MARKS = ('"apiVersion"', '"containerStatuses"')
_INDENTS = frozenset((" ", "\t", ""))


@dataclass(slots=True)
class Found:
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

    def anything(self) -> bool:
        """Say whether there is anything of Kubernetes in it."""
        return bool(
            self.pods or self.events or self.kinds or self.failures or self.nothing or self.complaint or self.tables
            or self.cut
        )  # fmt: skip


def find(text: str) -> Found:
    """Take apart a whole file; what can't be read of it is its damage."""
    in_yaml = YamlObjects(text)
    found = Found(damage=in_yaml.damage)
    for one_document in in_yaml.objects:
        _take(found, one_document)
    _take_json(found, in_yaml.rest)
    if "Name:" in text and NAMED.search(text):
        for one in described(text):
            _take_description(found, one)
    if "REASON" in text or ("READY" in text and PODS.search(text)):
        _take_tables(found, text)
    _take_sayings(found, text)
    if not found.damage and _has_more_behind_prefixes(text):
        found.damage = "what stands behind line prefixes is not read beside lines without any"
    if not found.damage and _has_headless_description(text):
        found.damage = "a description has no head"
    if found.damage and found.anything():
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
    return bool(parts) and max(parts.values()) > len(NAMED.findall(text))


def _take_json(found: Found, text: str) -> None:
    documents = Documents(text, '"kind"', marks=_MARKS)
    for document in documents:
        _take(found, document)
    if documents.cut:
        found.damage = "a JSON document stops before its end"
        found.cut = found.damage if '"apiVersion"' in text else None


def _take_sayings(found: Found, text: str) -> None:
    """Take what kubectl says in place of an answer."""
    if " found" in text and (match := NONE.search(text)):
        found.nothing = match[1]
    if any(words in text for words in _ERROR_WORDS) and (match := _ERROR.search(text)):
        found.complaint = match[1].strip()
        if match["reason"]:
            found.failures.append((match["reason"], match["message"].strip()))


def _take(found: Found, document: Mapping[str, Any], depth: int = 0) -> None:
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


def _take_items(found: Found, items: list[Any], kind: str, depth: int) -> None:
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


def _take_description(found: Found, one: Described) -> None:
    if one.kind == "Pod":
        found.own_events[len(found.pods)] = one.events
        found.pods.append(one.data)
        if not one.whole:
            found.cut = "the description stops before its events"
    else:
        found.kinds.append(one.kind or "object")
        found.events += one.events
    found.tables += 1


def _take_tables(found: Found, text: str) -> None:
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
    if "READY" in text and PODS.search(text):
        found.pods += pod_rows(lines)
        found.tables += 1
        found.listed = True
