"""Why a pod did not run, or did not finish: Kubernetes' own reasons and messages, put into Plumbline's codes.

The pod's own status speaks first, then its containers, then the scheduler, then events that later ones did not cure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from plumbline.model import Code
from plumbline.readers._kube_events import KubeEvent, event_of
from plumbline.readers._kube_reasons import CODE_OF_REASON, GPU_RESOURCE, IMAGE_REASONS, Finding, refine

_BACKOFF_PULL = re.compile(
    r"Back-off pulling image|Failed to pull image|ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull"
)
_ERROR_WORD = re.compile(r"Error: ([A-Z][A-Za-z]{3,40})\s*")
_OOM_EXIT = 137
_WAITING_IN_TURN = ("", "ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is known of one pod (or of events alone), and the one reason that explains it best.

    `category` is None where nothing is wrong yet. `terminal`: the pod will not change any more. MISSING_GPU means
    that no node could give the GPUs: absent, broken, or in use by others, which only the nodes can tell apart.
    """

    name: str | None = None
    namespace: str | None = None
    node: str | None = None
    phase: str | None = None
    reason: str | None = None
    category: Code | None = None
    message: str = ""
    terminal: bool = False
    started: bool = False
    """Whether a container of it ever ran."""
    exit_code: int | None = None
    last_reason: str | None = None
    """Why the container before the present one ended."""
    restarts: int | None = None
    gpus_requested: int | None = None
    container: str | None = None
    event_type: str | None = None
    event: str | None = None
    """Reason of the event that explains most."""
    first_error: str | None = None
    attempts: int | None = None
    """How often the image was pulled, where pulling it is the matter."""
    normal: int = 0
    warnings: int = 0


def explain(pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]] = ()) -> Diagnosis:
    """Say why a pod did not run or finish, from its API object and the API objects of its events.

    Pure: knows nothing of nodes or of time. Unknown reasons are given as they are, with category INFRASTRUCTURE.
    """
    return diagnose(pod, [event_of(event) for event in events])


def diagnose(pod: Mapping[str, Any], events: Sequence[KubeEvent]) -> Diagnosis:
    """Say the same as `explain`, from events that were read already; `pod` may be empty."""
    status, spec, metadata = _part(pod, "status"), _part(pod, "spec"), _part(pod, "metadata")
    containers = [*_list(status, "initContainerStatuses"), *_list(status, "containerStatuses")]
    ordered = sorted(events, key=attrgetter("last", "first"))
    phase = _text(status, "phase")
    finding = next(_findings(phase, status, containers, ordered), None)
    telling = _telling(ordered, finding)
    ended = _ended(containers)
    types = [event.type for event in events]
    return Diagnosis(
        name=_text(metadata, "name"), namespace=_text(metadata, "namespace"), node=_text(spec, "nodeName"),
        phase=phase,
        reason=finding.reason if finding else None,
        category=finding.category if finding else (Code.OK if phase == "Succeeded" else None),
        message=(finding.message if finding else "") or (telling.message if telling else ""),
        terminal=phase in ("Succeeded", "Failed"),
        started=any(_ran(container) for container in containers) or bool(_restarts(containers)),
        exit_code=ended.get("exitCode") if ended else None,
        last_reason=_last_reason(containers),
        restarts=_restarts(containers),
        gpus_requested=_gpus(spec),
        container=_blamed(containers),
        event_type=telling.type if telling else None,
        event=telling.reason if telling else None,
        first_error=_first_error(events),
        attempts=_attempts(events) if finding and finding.category is Code.IMAGE_PULL else None,
        normal=types.count("Normal"), warnings=types.count("Warning"),
    )  # fmt: skip


def _part(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _list(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = data.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _text(data: Mapping[str, Any], key: str) -> str | None:
    value = data.get(key)
    return value.strip() if isinstance(value, str) and value.strip() else None


def _findings(
    phase: str | None,
    status: Mapping[str, Any],
    containers: Sequence[Mapping[str, Any]],
    events: Sequence[KubeEvent],
) -> Iterator[Finding]:
    """Give what speaks for a reason, the strongest first: the pod itself, its containers, then events."""
    if phase == "Succeeded":
        return
    if reason := _text(status, "reason"):
        yield refine(reason, _text(status, "message") or "")
    yield from _disruptions(status)
    for container in reversed(containers):
        yield from _of_container(container, events)
    if phase != "Running":
        yield from _of_scheduling(status, events)
    yield from _of_events(events, running=phase == "Running")
    if phase == "Failed":
        yield Finding("Failed", Code.BENCHMARK_FAILED, _text(status, "message") or "")


def _disruptions(status: Mapping[str, Any]) -> Iterator[Finding]:
    for condition in _list(status, "conditions"):
        if condition.get("type") == "DisruptionTarget" and condition.get("status") == "True":
            reason, message = _text(condition, "reason") or "DisruptionTarget", _text(condition, "message") or ""
            if reason == "TerminationByKubelet":
                code = Code.NODE_LOST if "shutdown" in message.lower() else Code.EVICTED
                yield Finding(reason, Code.PREEMPTED if "reempt" in message else code, message)
            else:
                yield refine(reason, message)


# ---------------------------------------------------------------------------------------------------------------
# Containers


def _of_container(container: Mapping[str, Any], events: Sequence[KubeEvent]) -> Iterator[Finding]:
    state = _part(container, "state")
    if waiting := _part(state, "waiting"):
        yield from _of_waiting(waiting, _part(_part(container, "lastState"), "terminated"), events)
    ended = _part(state, "terminated")
    if ended and (ended.get("exitCode") or (ended.get("exitCode") is None and _text(ended, "reason") != "Completed")):
        yield _of_exit(ended, events)
    last = _part(_part(container, "lastState"), "terminated")
    if last and _text(last, "reason") in ("OOMKilled", "ContainerStatusUnknown", "StartError", "ContainerCannotRun"):
        yield _of_exit(last, events)


def _of_waiting(waiting: Mapping[str, Any], last: Mapping[str, Any], events: Sequence[KubeEvent]) -> Iterator[Finding]:
    reason, message = _text(waiting, "reason") or "", _text(waiting, "message") or ""
    if reason in _WAITING_IN_TURN:
        return
    if reason in IMAGE_REASONS:
        told = next((event.message for event in reversed(events) if "Failed to pull image" in event.message), "")
        backing_off = reason == "ErrImagePull" and any("ImagePullBackOff" in event.message for event in events)
        yield Finding("ImagePullBackOff" if backing_off else reason, Code.IMAGE_PULL, told or message)
    elif reason == "CrashLoopBackOff":
        cause = _of_exit(last, events) if last else Finding(reason, Code.BENCHMARK_FAILED)
        told = f"the container ended with {_ending(last)}" if last else message
        yield Finding(reason, cause.category, cause.message or told)
    else:
        yield refine(reason, message)


def _of_exit(ended: Mapping[str, Any], events: Sequence[KubeEvent]) -> Finding:
    """Say what a container's end means."""
    reason, message = _text(ended, "reason") or "Error", _text(ended, "message") or ""
    killed = ended.get("exitCode") == _OOM_EXIT and any(
        CODE_OF_REASON.get(e.reason) is Code.OUT_OF_MEMORY for e in events
    )
    if killed and reason == "Error":
        reason = "OOMKilled"
    if reason in ("Error", "Completed"):
        return Finding(reason, Code.BENCHMARK_FAILED, message or f"the container ended with {_ending(ended)}")
    if reason == "Unknown":
        return Finding(reason, Code.INFRASTRUCTURE, message)
    return refine(reason, message)


def _ending(ended: Mapping[str, Any]) -> str:
    reason, code = _text(ended, "reason") or "no reason given", ended.get("exitCode")
    return f"exit code {code} ({reason})" if isinstance(code, int) else reason


def _ran(container: Mapping[str, Any]) -> bool:
    states = (_part(container, "state"), _part(container, "lastState"))
    return any("running" in state or "terminated" in state for state in states)


def _ended(containers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Give the end that matters: one with an exit code other than 0, now before last, main containers before init."""
    ends = [_part(_part(one, name), "terminated") for name in ("state", "lastState") for one in reversed(containers)]
    ends = [end for end in ends if isinstance(end.get("exitCode"), int)]
    return next((end for end in ends if end["exitCode"] != 0), ends[0] if ends else None)


def _last_reason(containers: Sequence[Mapping[str, Any]]) -> str | None:
    reasons = [_text(_part(_part(one, "lastState"), "terminated"), "reason") for one in reversed(containers)]
    return next((reason for reason in reasons if reason), None)


def _restarts(containers: Sequence[Mapping[str, Any]]) -> int | None:
    counts = [one.get("restartCount") for one in containers]
    return max((count for count in counts if isinstance(count, int) and 0 <= count < _MOST_RESTARTS), default=None)


_MOST_RESTARTS = 1 << 31
"""The API's counts are whole numbers of 32 bits."""


def _blamed(containers: Sequence[Mapping[str, Any]]) -> str | None:
    """Name the container that is in the way: one that failed, not one that waits its turn."""
    for one in reversed(containers):
        state = _part(one, "state")
        waiting, ended = _part(state, "waiting"), _part(state, "terminated")
        if (waiting and _text(waiting, "reason") not in _WAITING_IN_TURN) or ended.get("exitCode", 0) != 0:
            return _text(one, "name")
    return None


def _gpus(spec: Mapping[str, Any]) -> int | None:
    """Give the GPUs that the pod asks for, as the scheduler counts them; None where its containers are not told."""
    containers = _list(spec, "containers")
    if not containers:
        return None
    main = sum(_gpus_of(container) for container in containers)
    return max([main, *(_gpus_of(container) for container in _list(spec, "initContainers"))])


def _gpus_of(container: Mapping[str, Any]) -> int:
    resources = _part(container, "resources")
    asked = {**_part(resources, "requests"), **_part(resources, "limits")}
    amounts = (str(amount) for name, amount in asked.items() if GPU_RESOURCE.fullmatch(str(name)))
    return sum(int(amount) for amount in amounts if amount.isascii() and amount.isdigit() and len(amount) < 7)


# ---------------------------------------------------------------------------------------------------------------
# Scheduling and events

_GRAVE = (
    Code.OUT_OF_MEMORY, Code.EVICTED, Code.PREEMPTED, Code.NODE_LOST, Code.NODE_NOT_READY, Code.QUOTA, Code.TIMEOUT,
    Code.MISSING_GPU,
)  # fmt: skip
_CURED_BY: Mapping[Code, tuple[str, ...]] = {
    Code.UNSCHEDULABLE: ("Scheduled", "Pulled", "Started"),
    Code.MISSING_GPU: ("Scheduled", "Pulled", "Started"),
    Code.QUOTA: ("SuccessfulCreate", "Scheduled", "Started", "Admitted"),
    Code.IMAGE_PULL: ("Pulled", "Started"),
    Code.STORAGE_UNAVAILABLE: ("Pulling", "Pulled", "Started"),
    Code.INFRASTRUCTURE: ("Started", "SuccessfulCreate"),
    Code.BENCHMARK_FAILED: (),
}
_TELLING_NORMAL = ("Preempted", "TaintManagerEviction", "Evicted", "NodeNotReady", "DeletionByPodGC")
_PULLING = ("BackOff", "Failed", "InspectFailed", "ErrImageNeverPull")
_IGNORED = (
    "Unhealthy", "ProbeWarning", "DNSConfigForming", "MissingClusterDNS", "FailedToRetrieveImagePullSecret",
    "ImageGCFailed",
)  # fmt: skip


def _of_scheduling(status: Mapping[str, Any], events: Sequence[KubeEvent]) -> Iterator[Finding]:
    """Give what the scheduler says of a pod that it could not place."""
    conditions = [one for one in _list(status, "conditions") if one.get("type") == "PodScheduled"]
    if any(one.get("status") == "True" for one in conditions):
        return
    failed = [event for event in events if event.reason == "FailedScheduling"]
    if failed and not any(e.reason == "Scheduled" and e.last > failed[-1].last for e in events):
        yield refine("FailedScheduling", failed[-1].message)
    for condition in conditions:
        if condition.get("status") == "False" and (reason := _text(condition, "reason")):
            yield refine(reason, _text(condition, "message") or "")


def _of_events(events: Sequence[KubeEvent], *, running: bool) -> Iterator[Finding]:
    """Give what the events say, the gravest and latest first, without what later events cured."""
    found: list[tuple[int, float, int, Finding]] = []
    latest: dict[str, float] = {}
    for event in events:
        latest[event.reason] = max(event.last, latest.get(event.reason, event.last))
    for position, event in enumerate(events):
        finding = _of_event(event)
        if finding is None or finding.category is None:
            continue
        cures = _CURED_BY.get(finding.category, ())
        if any(latest.get(reason, event.last) > event.last for reason in cures):
            continue
        if running and finding.category not in (*_GRAVE, Code.BENCHMARK_FAILED):
            continue
        found.append((finding.category in _GRAVE, event.last, position, finding))
    for *_, finding in sorted(found, key=lambda one: one[:3], reverse=True):
        if finding.category is Code.IMAGE_PULL:
            told = next((e.message for e in reversed(events) if "Failed to pull image" in e.message), finding.message)
            yield Finding(finding.reason, finding.category, told)
        else:
            yield finding


def _of_event(event: KubeEvent) -> Finding | None:
    """Give what one event says, or None when it is no trouble."""
    if event.reason in _IGNORED:
        return None
    if event.reason in _PULLING and _BACKOFF_PULL.search(event.message):
        word = _ERROR_WORD.match(event.message)
        backing_off = event.reason == "BackOff" or "ImagePullBackOff" in event.message
        reason = word[1] if word else "ImagePullBackOff" if backing_off else "ErrImagePull"
        return Finding(reason, Code.IMAGE_PULL, event.message)
    if not event.warning:
        return refine(event.reason, event.message) if event.reason in _TELLING_NORMAL else None
    if event.reason == "Failed" and (word := _ERROR_WORD.match(event.message)):
        return refine(word[1], event.message)
    return refine(event.reason, event.message)


def _telling(events: Sequence[KubeEvent], finding: Finding | None) -> KubeEvent | None:
    """Give the event that goes with a finding: of its reason, else the latest of its kind, else a warning."""
    if finding is not None:
        for event in reversed(events):
            if event.reason == finding.reason:
                return event
        for event in reversed(events):
            told = _of_event(event)
            if told is not None and told.category is finding.category:
                return event
    return next((event for event in reversed(events) if event.warning), None)


def _first_error(events: Sequence[KubeEvent]) -> str | None:
    """Give the first thing that went wrong, by the word that Kubernetes has for it."""
    earliest = min((event for event in events if event.type == "Warning"), key=attrgetter("first"), default=None)
    if earliest is None:
        return None
    finding = _of_event(earliest)
    return finding.reason if finding is not None else earliest.reason


def _attempts(events: Sequence[KubeEvent]) -> int | None:
    pulls = sum(event.count for event in events if event.reason == "Pulling")
    failures = sum(event.count for event in events if event.message.startswith("Failed to pull image"))
    return pulls or failures or None
