"""What `kubectl describe` prints, as the API object that it was printed from, and its events."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from plumbline.readers._kube_events import EventTable, KubeEvent, event_header

_KEY = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z][\w ./()-]{0,120}?):(?: +(?P<value>\S.*))?")
_CONTAINER = re.compile(r" {1,4}(?P<name>[a-z0-9][\w.-]{0,252}):")
_CONDITION = re.compile(r" +([A-Za-z][\w./-]{0,80}) +(True|False|Unknown)\s*")
_SECTIONS = {
    "Containers": "containers",
    "Init Containers": "initContainers",
    "Ephemeral Containers": "ephemeralContainers",
}
_STATUSES = {
    "containers": "containerStatuses", "initContainers": "initContainerStatuses",
    "ephemeralContainers": "ephemeralContainerStatuses",
}  # fmt: skip
_STATES = {"State": "state", "Last State": "lastState"}
_IN_MESSAGE = ": message"
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_RESOURCE = re.compile(r"\d{1,9}(?:\.\d{1,6})?[a-zA-Z]{0,2}")


@dataclass(slots=True)
class Described:
    """One object that kubectl describe printed."""

    kind: str
    """Pod, Node, Job or what can be told; '' where nothing can."""
    data: dict[str, Any]
    events: list[KubeEvent]
    whole: bool
    """Whether the part with the events, the last one, has begun."""
    fields: dict[str, str] = field(default_factory=dict)
    """The unindented keys and their first lines."""


def described(text: str) -> Iterator[Described]:
    """Give every object that was described in `text`."""
    block: list[str] = []
    for raw in text.splitlines():
        line = raw.expandtabs(8)
        if re.match(r"Name: +\S", line):
            if block:
                yield from _read(block)
            block = [line]
        elif block:
            if re.match(r"std(?:out|err):\s*$|Error from server", line):
                yield from _read(block)
                block = []
            else:
                block.append(line)
    if block:
        yield from _read(block)


def _read(lines: list[str]) -> Iterator[Described]:
    """Read one object's lines."""
    fields: dict[str, str] = {}
    status: dict[str, Any] = {}
    data: dict[str, Any] = {"metadata": {}, "spec": {}, "status": status}
    events: list[KubeEvent] = []
    section, whole = "", False
    parts: dict[str, list[str]] = {}
    for line in lines:
        match = _KEY.fullmatch(line.rstrip())
        if match and not match["indent"]:
            section = match["key"]
            fields.setdefault(section, (match["value"] or "").strip())
            whole = whole or section == "Events"
        elif section:
            parts.setdefault(section, []).append(line)
    _fill(data, fields, parts)
    for name, key in _SECTIONS.items():
        if name in parts:
            specs, statuses = _containers(parts[name])
            data["spec"][key], status[_STATUSES[key]] = specs, statuses
    if "Conditions" in parts:
        found = (_CONDITION.fullmatch(line.rstrip()) for line in parts["Conditions"])
        status["conditions"] = [{"type": match[1], "status": match[2]} for match in found if match]
    if "Events" in parts:
        events = list(_events(parts["Events"]))
    yield Described(_kind(fields), data, events, whole, fields)


def _fill(data: dict[str, Any], fields: dict[str, str], parts: dict[str, list[str]]) -> None:
    """Put the unindented keys where the API has them."""
    metadata, status = data["metadata"], data["status"]
    for key, name in (("name", "Name"), ("namespace", "Namespace")):
        if fields.get(name):
            metadata[key] = fields[name]
    node = fields.get("Node", "").split("/")[0]
    if node and node != "<none>":
        data["spec"]["nodeName"] = node
    phase = fields.get("Status", "").split(" ")[0]
    if phase in _PHASES:
        status["phase"] = phase
    elif phase == "Terminating":
        metadata["deletionTimestamp"] = fields["Status"]
    for key, name in (("reason", "Reason"), ("message", "Message")):
        if fields.get(name):
            more = [line.strip() for line in parts.get(name, []) if line.strip()]
            status[key] = " ".join([fields[name], *more]) if key == "message" else fields[name]


def _kind(fields: dict[str, str]) -> str:
    if "Roles" in fields and "Capacity" in fields:
        return "Node"
    if "Pods Statuses" in fields:
        return "Job"
    if "Replicas" in fields or "Pod Template" in fields:
        return "Workload"
    if ("Containers" in fields or "Node" in fields) and "Status" in fields:
        return "Pod"
    return ""


def _containers(lines: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Read a section of containers: their specs and their statuses."""
    specs: list[dict[str, Any]] = []
    statuses: list[dict[str, Any]] = []
    base, block = None, ""
    for raw in lines:
        line = raw.rstrip()
        match = _CONTAINER.fullmatch(line)
        indent = len(line) - len(line.lstrip())
        if match and (base is None or indent == base):
            base, block = indent, ""
            specs.append({"name": match["name"], "resources": {}})
            statuses.append({"name": match["name"], "state": {}})
            continue
        if base is None or not line.strip():
            continue
        found = _KEY.fullmatch(line)
        if found is None:
            if block.endswith(_IN_MESSAGE) and indent > base + 4:
                _continue_message(statuses[-1], _STATES[block.removesuffix(_IN_MESSAGE)], line.strip())
            continue
        block = _container_line(specs[-1], statuses[-1], found, indent - base, block)
    return specs, statuses


def _container_line(spec: dict[str, Any], status: dict[str, Any], found: re.Match[str], depth: int, block: str) -> str:
    """Take one line of a container; give the block (State, Last State, Limits …) that the next line is in."""
    key, value = found["key"], (found["value"] or "").strip()
    if depth <= 2:
        if key == "Restart Count" and value.isdigit():
            status["restartCount"] = int(value[:9])
        elif key == "Ready":
            status["ready"] = value == "True"
        elif key == "Image":
            spec["image"] = value
        elif key in _STATES and value:
            status[_STATES[key]] = {value.lower(): {}}
        return key
    if block in ("Limits", "Requests") and _RESOURCE.fullmatch(value):
        spec["resources"].setdefault(block.lower(), {})[key] = value
    name = _STATES.get(block.removesuffix(_IN_MESSAGE))
    for inner in (status.get(name or "") or {}).values():
        _state_field(inner, key, value)
    return block if name is None else block.removesuffix(_IN_MESSAGE) + (_IN_MESSAGE if key == "Message" else "")


def _state_field(state: dict[str, Any], key: str, value: str) -> None:
    if key in ("Reason", "Message"):
        state[key.lower()] = value
    elif key in ("Exit Code", "Signal") and re.fullmatch(r"-?\d{1,6}", value):
        state["exitCode" if key == "Exit Code" else "signal"] = int(value)


def _continue_message(status: dict[str, Any], name: str, text: str) -> None:
    """Add a further line of a message that a container left."""
    for inner in (status.get(name) or {}).values():
        if "message" in inner:
            inner["message"] = f"{inner['message']} {text}"[:4000]


def _events(lines: list[str]) -> Iterator[KubeEvent]:
    table: EventTable | None = None
    for line in lines:
        if table is None:
            table = event_header(line)
        elif (event := table.row(line)) is not None:
            yield event
