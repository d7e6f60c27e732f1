"""The table of `kubectl get pods`, as the API objects that it was printed from, as far as it tells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_HEADER = re.compile(r"(?:NAMESPACE +)?NAME +READY +STATUS +RESTARTS +AGE\b")
_ROW = re.compile(
    r"(?:(?P<namespace>[a-z0-9][\w.-]{0,62}) +)?(?:pod/)?(?P<name>[a-z0-9][\w.-]{0,252}) +(?P<ready>\d{1,4}/\d{1,4}) +"
    r"(?P<status>[A-Za-z][\w:/.-]{0,80}) +(?P<restarts>\d{1,9})(?: \(\S{1,20} ago\))? +(?P<age><\w+>|[\dydhms]{1,20})"
    r"(?P<rest> .*)?"
)
_PHASES = {"Completed": "Succeeded", "Succeeded": "Succeeded", "Running": "Running", "Pending": "Pending",
           "Failed": "Failed", "Unknown": "Unknown"}  # fmt: skip
_ENDED = ("Error", "OOMKilled", "ContainerStatusUnknown", "StartError", "ContainerCannotRun", "DeadlineExceeded")
_FAILED = ("Evicted", "NodeLost", "Preempting", "UnexpectedAdmissionError", "NodeAffinity", "NodeShutdown", "Shutdown",
           "TopologyAffinityError", "Terminated")  # fmt: skip


def pod_rows(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Give a pod for each row below a header of kubectl get pods, or of kubectl get all (`pod/NAME`)."""
    inside = named = False
    for raw in lines:
        if not inside and "READY" not in raw:
            continue
        line = raw.rstrip()
        if "READY" in raw and _HEADER.match(line):
            inside, named = True, line.startswith("NAMESPACE")
        elif inside and (match := _ROW.fullmatch(line)) and bool(match["namespace"]) == named:
            yield _pod(match)
        elif inside and not line:
            inside = False


def _pod(match: re.Match[str]) -> dict[str, Any]:
    """Put what the STATUS column says back where the API has it."""
    word = match["status"]
    status: dict[str, Any] = {}
    container: dict[str, Any] = {"name": "", "restartCount": int(match["restarts"]), "state": {}}
    main, _, init = word.partition(":")
    state = init if main == "Init" and init else main
    if word in _PHASES:
        status["phase"] = _PHASES[word]
    elif word in _FAILED or word.startswith("OutOf"):
        status |= {"phase": "Failed", "reason": word}
    elif state in _ENDED:
        status["phase"] = "Failed" if main != "Init" else "Pending"
        container["state"] = {"terminated": {"reason": state}}
    elif state == "Terminating":
        pass
    elif not state[:1].isdigit():
        status["phase"] = "Running" if state == "CrashLoopBackOff" and main != "Init" else "Pending"
        container["state"] = {"waiting": {"reason": state}}
    else:
        status["phase"] = "Pending"
    key = "initContainerStatuses" if main == "Init" else "containerStatuses"
    status[key] = [container]
    metadata = {"name": match["name"], "namespace": match["namespace"]}
    return {"kind": "Pod", "metadata": {k: v for k, v in metadata.items() if v}, "spec": {}, "status": status}
