"""Kubernetes' reasons and messages, and the code that each stands for.

Source: kubernetes pkg/kubelet (images, kuberuntime, eviction, lifecycle, preemption, cm/devicemanager), pkg/scheduler,
pkg/controller (job, nodelifecycle, tainteviction), plugin/pkg/admission/resourcequota, Kueue.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from plumbline.model import Code


@dataclass(frozen=True, slots=True)
class Finding:
    """A reason, its code, and what Kubernetes says of it."""

    reason: str
    category: Code | None
    message: str = ""


IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable",
          "ImageInspectError", "SignatureValidationFailed", "ErrImageNotFound")  # fmt: skip
CODE_OF_REASON: Mapping[str, Code] = {
    **dict.fromkeys(IMAGE_REASONS, Code.IMAGE_PULL),
    **dict.fromkeys(("Evicted", "EvictionByEvictionAPI", "EvictedByTaintManager"), Code.EVICTED),
    **dict.fromkeys(
        ("Preempting", "Preempted", "PreemptionByScheduler", "PreemptionByKubeScheduler", "InClusterQueue",
         "InCohortReclamation", "Preemption"), Code.PREEMPTED,
    ),
    **dict.fromkeys(
        ("NodeLost", "NodeShutdown", "Shutdown", "DeletionByPodGC", "DeletionByTaintManager", "TaintManagerEviction",
         "ContainerStatusUnknown", "PodGC", "NodeControllerEviction"), Code.NODE_LOST,
    ),
    "NodeNotReady": Code.NODE_NOT_READY,
    "OOMKilled": Code.OUT_OF_MEMORY,
    "OOMKilling": Code.OUT_OF_MEMORY,
    "SystemOOM": Code.OUT_OF_MEMORY,
    "DeadlineExceeded": Code.TIMEOUT,
    "DeletionByDeviceTaintManager": Code.MISSING_GPU,
    **dict.fromkeys(
        ("NodeAffinity", "NodeSelectorMismatching", "TopologyAffinityError", "OutOfcpu", "OutOfmemory", "OutOfpods",
         "OutOfephemeral-storage", "FailedScheduling", "Unschedulable", "SchedulingGated", "HostPortConflict",
         "NodePorts", "InsufficientFreeCPU", "NotTriggerScaleUp"), Code.UNSCHEDULABLE,
    ),
    **dict.fromkeys(
        ("FailedMount", "FailedAttachVolume", "FailedMapVolume", "ProvisioningFailed", "FailedBinding",
         "VolumeResizeFailed"), Code.STORAGE_UNAVAILABLE,
    ),
    **dict.fromkeys(
        ("UnexpectedAdmissionError", "AdmissionError", "FailedCreatePodSandBox", "FailedCreatePodContainer",
         "NetworkNotReady", "NetworkFailed", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
         "StartError", "ContainerCannotRun", "PostStartHookError", "PreStartHookError", "PreCreateHookError",
         "FailedPostStartHook", "FailedCreate", "FailedKillPod", "FailedSync", "FailedPreparePod", "DeadlineExpired",
         "ErrorResolvingCredentials", "FailedToCreateEndpoint", "PodSandboxFailed", "NotFound", "Forbidden"),
        Code.INFRASTRUCTURE,
    ),
    **dict.fromkeys(("Error", "CrashLoopBackOff", "BackOff", "BackoffLimitExceeded"), Code.BENCHMARK_FAILED),
}  # fmt: skip
"""What each of Kubernetes' reasons is by itself; `refine` looks at the message too."""

_GPU = r"[\w.-]{1,63}/(?:gpu|mig-[\w.-]{1,40}|gpu\.shared|pgpu|i915|xe|shared-gpu)\b"
_NO_GPU = re.compile(
    rf"Insufficient {_GPU}|OutOf{_GPU}|(?:unavailable|unhealthy devices|unregistered device)[^.]{{0,40}} {_GPU}"
    r"|no healthy devices present|nvidia-container-cli: .{0,80}(?:unknown device|no devices|nvml error)"
    r"|cannot allocate all claims|unresolvable CDI devices?|failed to stat CDI host device",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"exceeded quota|insufficient (?:unused )?quota|failed quota|quota.{0,40}exceeded", re.IGNORECASE)
_NOT_READY = re.compile(r"node\.kubernetes\.io/(?:not-ready|unreachable)")
_UNMET = re.compile(r"\d{1,6} (?:Insufficient [\w./-]{1,80}|node\(s\) [^,.]{1,160}|Too many pods|[^,.]{1,160})")
_VOLUME = re.compile(r"persistentvolumeclaim|PersistentVolumeClaim|volume node affinity conflict|unbound immediate")
_NOT_MEANT = ("control-plane", "match Pod", "node affinity/selector", "matched pod", "claims")
"""Of a node that the pod was not for, or of the GPU claims themselves."""
GPU_RESOURCE = re.compile(_GPU)


def refine(reason: str, message: str) -> Finding:
    """Put a reason into its code; the message may say better what was lacking."""
    if _QUOTA.search(message):
        return Finding(reason, Code.QUOTA, message)
    code = CODE_OF_REASON.get(reason, Code.INFRASTRUCTURE)
    if _NO_GPU.search(f"{reason} {message}") and (code is not Code.UNSCHEDULABLE or _only_gpus(message)):
        code = Code.MISSING_GPU
    elif code is Code.UNSCHEDULABLE and _VOLUME.search(message):
        code = Code.STORAGE_UNAVAILABLE
    elif code is Code.UNSCHEDULABLE and _all_not_ready(message):
        code = Code.NODE_NOT_READY
    elif code is Code.NODE_LOST and reason == "Shutdown" and "shutdown" not in message.lower():
        code = Code.INFRASTRUCTURE
    return Finding(reason, code, message)


def _only_gpus(message: str) -> bool:
    """Say whether every node lacks GPUs or was not meant: no CPU, memory, taint or volume in the way."""
    head = message.split("preemption:", maxsplit=1)[0]
    for unmet in _UNMET.findall(head.split(":", 1)[-1]):
        if not GPU_RESOURCE.search(unmet) and not any(words in unmet for words in _NOT_MEANT):
            return False
    return True


def _all_not_ready(message: str) -> bool:
    head = message.split("preemption:", maxsplit=1)[0]
    parts = [part for part in head.split(":", 1)[-1].split(",") if part.strip()]
    return bool(parts) and all(_NOT_READY.search(part) for part in parts)
