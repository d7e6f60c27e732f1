"""What pods' states, or events and refusals alone, mean for the run in them, and which pod explains it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from plumbline.model import Code
from plumbline.readers._kube_diagnosis import Diagnosis, diagnose
from plumbline.readers._kube_events import KubeEvent
from plumbline.readers._kube_found import Found
from plumbline.readers._kube_reasons import refine
from plumbline.readers.reading import Status

_BAD = (Code.OK, None)
_INTERRUPTED = (Code.EVICTED, Code.PREEMPTED, Code.NODE_LOST, Code.NODE_NOT_READY, Code.TIMEOUT, Code.STOPPED)


def explanation(found: Found, diagnoses: Sequence[Diagnosis], events: Sequence[KubeEvent]) -> Diagnosis:
    """Give what explains a file: the pod that needs explaining most, or what events and refusals say without one."""
    return _worst(diagnoses) or _by_events(found, events)


def _worst(diagnoses: Sequence[Diagnosis]) -> Diagnosis | None:
    """Give the pod that needs explaining most: one with a reason, failed before pending."""
    order = {"Failed": 3, "Pending": 2, "Unknown": 2, "Running": 1}
    return max(
        diagnoses, key=lambda one: (one.category not in _BAD, order.get(one.phase or "", 0)), default=None
    )  # fmt: skip


def _by_events(found: Found, events: Sequence[KubeEvent]) -> Diagnosis:
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


def state(found: Found, diagnoses: Sequence[Diagnosis], main: Diagnosis) -> tuple[Status, str]:
    """Say what all of it means for a run in these pods, and why; `main` is what explains it."""
    return _of_pods(diagnoses, main) if diagnoses else _of_events(found, main)


def _of_pods(diagnoses: Sequence[Diagnosis], main: Diagnosis) -> tuple[Status, str]:
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


def _of_events(found: Found, main: Diagnosis) -> tuple[Status, str]:
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
