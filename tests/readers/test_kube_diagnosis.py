"""Each way in which a pod does not run has its name."""

from __future__ import annotations

import dataclasses

import pytest

from plumbline.model import Code
from plumbline.readers.kubernetes import explain


def pod(phase="Pending", spec=None, **status):
    containers = [{"name": "bench", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]
    return {
        "metadata": {"name": "bench-0"},
        "spec": spec or {"containers": containers},
        "status": {"phase": phase, **status},
    }


def event(reason, message="", kind="Warning", last="2026-01-31T04:05:00Z", **more):
    return {"type": kind, "reason": reason, "message": message, "firstTimestamp": last, "lastTimestamp": last, **more}


def waiting(reason, message="", last=None):
    container = {"name": "bench", "restartCount": 3, "state": {"waiting": {"reason": reason, "message": message}}}
    return {"containerStatuses": [{**container, "lastState": {"terminated": last}} if last else container]}


def ended(code, reason="Error", message=""):
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "bench", "restartCount": 0, "state": state}]}


def unscheduled(message):
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
    return {"conditions": [condition]}


def disrupted(reason, message=""):
    return {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}]}


NO_GPU = "0/4 nodes are available: 1 Insufficient nvidia.com/gpu, 3 node(s) didn't match Pod's node affinity/selector."
ALLOCATE = "requested number of devices unavailable for nvidia.com/gpu. Requested: 8, Available: 7"
FLAVOR = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100"
TAINT = "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/not-ready: }."
CLAIM = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."
AFFINITY = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."


WAYS = [
    # the scheduler
    (pod(**unscheduled(NO_GPU)), [], "Unschedulable", Code.MISSING_GPU),
    (pod(**unscheduled(NO_GPU)), [event("FailedScheduling", NO_GPU)], "FailedScheduling", Code.MISSING_GPU),
    (
        pod(),
        [event("FailedScheduling", "0/2 nodes are available: 2 Insufficient amd.com/gpu.")],
        "FailedScheduling",
        Code.MISSING_GPU,
    ),
    (
        pod(),
        [event("FailedScheduling", "0/2 nodes are available: 2 cannot allocate all claims.")],
        "FailedScheduling",
        Code.MISSING_GPU,
    ),
    (
        pod(),
        [event("FailedScheduling", "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu.")],
        "FailedScheduling",
        Code.UNSCHEDULABLE,
    ),
    (pod(), [event("FailedScheduling", AFFINITY)], "FailedScheduling", Code.UNSCHEDULABLE),
    (pod(), [event("FailedScheduling", CLAIM)], "FailedScheduling", Code.STORAGE_UNAVAILABLE),
    (pod(), [event("FailedScheduling", TAINT)], "FailedScheduling", Code.NODE_NOT_READY),
    (
        pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
        [],
        "SchedulingGated",
        Code.UNSCHEDULABLE,
    ),
    # quota
    (
        {},
        [event("FailedCreate", 'Error creating: pods "b-" is forbidden: exceeded quota: gpus, requested: pods=1')],
        "FailedCreate",
        Code.QUOTA,
    ),
    ({}, [event("Pending", FLAVOR)], "Pending", Code.QUOTA),
    # images
    *[
        (pod(**waiting(reason)), [], reason, Code.IMAGE_PULL)
        for reason in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
    ],
    ({}, [event("BackOff", 'Back-off pulling image "x:1"', kind="Normal")], "ImagePullBackOff", Code.IMAGE_PULL),
    ({}, [event("Failed", 'Failed to pull image "x:1": not found')], "ErrImagePull", Code.IMAGE_PULL),
    # the kubelet's admission
    (
        pod("Failed", reason="UnexpectedAdmissionError", message=ALLOCATE),
        [],
        "UnexpectedAdmissionError",
        Code.MISSING_GPU,
    ),
    (
        pod("Failed", reason="OutOfnvidia.com/gpu", message="Node didn't have enough resource: nvidia.com/gpu"),
        [],
        "OutOfnvidia.com/gpu",
        Code.MISSING_GPU,
    ),
    (
        pod("Failed", reason="OutOfcpu", message="Node didn't have enough resource: cpu"),
        [],
        "OutOfcpu",
        Code.UNSCHEDULABLE,
    ),
    (
        pod("Failed", reason="UnexpectedAdmissionError", message="no such plugin"),
        [],
        "UnexpectedAdmissionError",
        Code.INFRASTRUCTURE,
    ),
    # the node, eviction, preemption
    (
        pod("Failed", reason="Evicted", message="The node was low on resource: memory.", **ended(137)),
        [],
        "Evicted",
        Code.EVICTED,
    ),
    (pod("Failed", reason="NodeLost"), [], "NodeLost", Code.NODE_LOST),
    (
        pod("Failed", reason="Preempting", message="Preempted in order to admit critical pod"),
        [],
        "Preempting",
        Code.PREEMPTED,
    ),
    (
        pod(
            "Failed",
            **disrupted("PreemptionByScheduler", "preempting to accommodate a higher priority pod"),
            containerStatuses=ended(143)["containerStatuses"],
        ),
        [],
        "PreemptionByScheduler",
        Code.PREEMPTED,
    ),
    (
        pod("Failed", **disrupted("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown.")),
        [],
        "TerminationByKubelet",
        Code.NODE_LOST,
    ),
    (
        pod("Failed", **disrupted("TerminationByKubelet", "The node was low on resource: memory")),
        [],
        "TerminationByKubelet",
        Code.EVICTED,
    ),
    (
        pod("Running", **disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")),
        [],
        "DeletionByTaintManager",
        Code.NODE_LOST,
    ),
    (
        pod(
            "Failed", reason="DeadlineExceeded", message="Pod was active on the node longer than the specified deadline"
        ),
        [],
        "DeadlineExceeded",
        Code.TIMEOUT,
    ),
    (
        pod("Running", containerStatuses=[{"name": "b", "state": {"running": {}}}]),
        [event("NodeNotReady", "Node is not ready")],
        "NodeNotReady",
        Code.NODE_NOT_READY,
    ),
    # containers
    (pod("Failed", **ended(137, "OOMKilled")), [], "OOMKilled", Code.OUT_OF_MEMORY),
    (
        pod("Failed", **ended(137)),
        [event("OOMKilling", "Memory cgroup out of memory: Killed process 1")],
        "OOMKilled",
        Code.OUT_OF_MEMORY,
    ),
    (pod("Failed", **ended(3)), [], "Error", Code.BENCHMARK_FAILED),
    (
        pod("Running", **waiting("CrashLoopBackOff", last={"exitCode": 137, "reason": "OOMKilled"})),
        [],
        "CrashLoopBackOff",
        Code.OUT_OF_MEMORY,
    ),
    (
        pod("Running", **waiting("CrashLoopBackOff", last={"exitCode": 2, "reason": "Error"})),
        [],
        "CrashLoopBackOff",
        Code.BENCHMARK_FAILED,
    ),
    (
        pod("Failed", **ended(128, "StartError", "nvidia-container-cli: device error: 3: unknown device")),
        [],
        "StartError",
        Code.MISSING_GPU,
    ),
    (
        pod("Failed", **ended(127, "ContainerCannotRun", "exec: hpl: not found")),
        [],
        "ContainerCannotRun",
        Code.INFRASTRUCTURE,
    ),
    (
        pod(**waiting("CreateContainerConfigError", 'secret "token" not found')),
        [],
        "CreateContainerConfigError",
        Code.INFRASTRUCTURE,
    ),
    # volumes and sandboxes
    (
        pod(**waiting("ContainerCreating")),
        [event("FailedMount", "MountVolume.SetUp failed")],
        "FailedMount",
        Code.STORAGE_UNAVAILABLE,
    ),
    (
        pod(**waiting("ContainerCreating")),
        [event("FailedCreatePodSandBox", "no IP")],
        "FailedCreatePodSandBox",
        Code.INFRASTRUCTURE,
    ),
    # nothing wrong
    (pod("Succeeded", **ended(0, "Completed")), [event("FailedMount", "before it ran")], None, Code.OK),
    (
        pod("Running", containerStatuses=[{"name": "b", "state": {"running": {}}}]),
        [event("FailedMount"), event("Unhealthy")],
        None,
        None,
    ),
    (pod(**waiting("ContainerCreating")), [event("Pulling", kind="Normal")], None, None),
]


@pytest.mark.parametrize(("data", "events", "reason", "category"), WAYS)
def test_each_way_not_to_run_is_named(data, events, reason, category):
    found = explain(data, events)
    assert (found.reason, found.category) == (reason, category)
    assert found.terminal is (found.phase in ("Succeeded", "Failed"))


def test_what_later_events_cured_is_no_reason():
    failed = event("FailedScheduling", NO_GPU, last="2026-01-31T04:00:00Z")
    scheduled = event("Scheduled", kind="Normal", last="2026-01-31T04:01:00Z")
    assert explain({}, [failed]).category is Code.MISSING_GPU
    assert explain({}, [failed, scheduled]).category is None
    assert explain({}, [scheduled, failed]).category is None
    again = event("FailedScheduling", NO_GPU, last="2026-01-31T04:02:00Z")
    assert explain({}, [failed, scheduled, again]).category is Code.MISSING_GPU


def test_explain_counts_what_was_asked_and_tried():
    spec = {
        "nodeName": "node-a",
        "containers": [{"name": "a", "resources": {"requests": {"nvidia.com/gpu": "4"}, "limits": {}}},
                       {"name": "b", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "2", "cpu": "8"}}}],
        "initContainers": [{"name": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
    }  # fmt: skip
    events = [event("Pulling", kind="Normal", count=4), event("Failed", "Error: ErrImagePull", count=4)]
    found = explain(pod("Pending", spec, **waiting("ErrImagePull")), events)
    assert (found.gpus_requested, found.attempts, found.first_error) == (6, 4, "ErrImagePull")
    assert (found.node, found.container, found.normal, found.warnings) == ("node-a", "bench", 1, 1)
    assert explain({}, []).gpus_requested is None


def test_explain_survives_any_shape():
    odd_event = {"series": 5, "count": "x", "involvedObject": []}
    for odd in ({}, {"status": None}, {"status": {"containerStatuses": [None, {}, {"state": {"waiting": None}}]}},
                {"spec": {"containers": "x"}}, {"metadata": [], "status": {"conditions": {}, "phase": 5}}):  # fmt: skip
        assert dataclasses.asdict(explain(odd, [{}, odd_event]))["phase"] is None
