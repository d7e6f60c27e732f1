"""Whether a Kubernetes cluster has all that a run needs, and how to mend what it has not.

`quick_checks` only reads, and asks the API to admit a pod and a Job without making them: seconds. What needs pods
(images, volumes from both sides, GPUs and devices on a node) is in plumbline.kubernetes.probing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Any

from plumbline.amounts import node_list
from plumbline.clusters.kubernetes import Kubernetes, Volume
from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import ConfigError
from plumbline.execution import pods
from plumbline.execution.pod_placement import HOSTNAME, PINNED_BY_NAME
from plumbline.kubernetes.access import NoAccessError, settings_of
from plumbline.kubernetes.api import Api, ApiError
from plumbline.kubernetes.inventory import read_inventory
from plumbline.model import Code, Contends, Device, LaunchSpec, Origin


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARN = "warn"
    """A run is possible; some of it will not be measured, or this could not be asked."""
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that a run needs: what was found, and what to do where it is wrong."""

    name: str
    state: State
    found: str
    mend: str = ""


OWN_VERBS = (
    ("", "pods", "get list watch create delete"), ("", "pods/log", "get"), ("", "events", "list"),
    ("batch", "jobs", "get list create delete"), ("coordination.k8s.io", "leases", "get create update delete"),
)  # fmt: skip
"""What this side needs in the namespace: group, resource, verbs. Jobs are created in dry runs only."""
LAUNCHER_VERBS = (("", "pods", "get list watch"), ("", "events", "list"), ("batch", "jobs", "get list create delete"))
"""What launchers need in the namespace."""
LAUNCHER_CLUSTER_VERBS = (("", "nodes", "list"),)
"""What launchers need in the cluster, to tell a node that lacks GPUs from one whose GPUs others hold: without it the
record says that it can't be told. Not asked for here: in the cluster, only an administrator may ask for others."""
CLUSTER_VERBS = (("", "nodes", "list"), ("", "pods", "list"))
_AUTHORIZATION = "/apis/authorization.k8s.io/v1"


def quick_checks(api: Api, profile: ClusterProfile, today: date) -> Iterator[Check]:
    """Check what reading the API can tell, in the order in which it must be mended. Raises nothing of the API's."""
    try:
        version = api.get("/version", patience_s=2)
    except (ApiError, ConfigError) as error:  # ConfigError: a credential plugin of the kubeconfig
        yield Check(
            name="api", state=State.FAIL, found=str(error),
            mend="see kubernetes.access of the profile; `kubectl version` must answer from here",
        )  # fmt: skip
        return
    yield Check(name="api", state=State.OK, found=f"{api.access.server} answers: {version.get('gitVersion')}")
    settings = settings_of(profile)
    yield _exists(api, "namespace", f"/api/v1/namespaces/{settings.namespace}", settings.namespace,
                  f"kubectl create namespace {settings.namespace}")  # fmt: skip
    yield from _rights(api, settings)
    yield from _objects(api, settings)
    for volume_name in ("results", "storage", "datasets"):
        volume = getattr(settings, volume_name)
        if volume is not None and volume.claim:
            yield _claim(api, settings.namespace, volume_name, volume)
    yield _results_here(profile)
    yield from _nodes(api, profile, today)
    yield from _quota(api, profile)
    yield from _admission(api, profile)


def no_access(error: NoAccessError) -> Check:
    """Tell of an API that the profile doesn't lead to in the form of a check."""
    return Check(name="api", state=State.FAIL, found=error.found, mend=error.mend)


def _ask(api: Api, path: str) -> dict[str, Any] | ApiError:
    try:
        return api.get(path, patience_s=2)
    except ApiError as error:
        return error


def _exists(api: Api, name: str, path: str, shown: str, mend: str, *, missing: State = State.FAIL) -> Check:
    found = _ask(api, path)
    if not isinstance(found, ApiError):
        return Check(name=name, state=State.OK, found=f"{shown} exists")
    if found.status == 403:
        return Check(name=name, state=State.WARN, found=f"{shown}: this account may not look", mend=str(found))
    return Check(name=name, state=missing, found=f"no {shown}: {found}", mend=mend)


# ---------------------------------------------------------------------------------------------------------------
# Rights


def _rights(api: Api, settings: Kubernetes) -> Iterator[Check]:
    """Ask verb by verb what this account may, then what launchers may."""
    namespace = settings.namespace
    for wanted, place in ((OWN_VERBS, namespace), (CLUSTER_VERBS, "")):
        for group, resource, verbs in wanted:
            where = f"in {place}" if place else "in the cluster"
            missing = [v for v in verbs.split() if not _allowed(api, group, resource, v, place, user=None)]
            name = f"rights: {resource} {where}"
            if not missing:
                yield Check(name=name, state=State.OK, found=f"this account may {verbs}")
                continue
            advisory = not place and resource == "pods"
            text = "this account may not " + ", ".join(missing)
            yield Check(
                name=name, state=State.WARN if advisory else State.FAIL,
                found=f"{text}; nodes that others use will show as unschedulable" if advisory else text,
                mend=_role(missing, group, resource, place, "the account of kubernetes.access"),
            )  # fmt: skip
    user = f"system:serviceaccount:{namespace}:{settings.service_account}"
    for group, resource, verbs in LAUNCHER_VERBS:
        answers = {v: _allowed(api, group, resource, v, namespace, user=user) for v in verbs.split()}
        name = f"launcher's rights: {resource}"
        if None in answers.values():
            yield Check(
                name=name, state=State.WARN, found=f"this account may not ask what {settings.service_account} may",
                mend=f"kubectl auth can-i --as={user} -n {namespace} create jobs.batch",
            )  # fmt: skip
            return
        missing = [verb for verb, allowed in answers.items() if not allowed]
        yield Check(
            name=name, state=State.FAIL if missing else State.OK,
            found=f"{settings.service_account} may {'not ' if missing else ''}{', '.join(missing) or verbs}",
            mend=_role(missing, group, resource, namespace, f"service account {settings.service_account}")
            if missing else "",
        )  # fmt: skip


def _allowed(api: Api, group: str, resource: str, verb: str, namespace: str, *, user: str | None) -> bool | None:
    """Ask one question; None where it may not be asked."""
    name, _, sub = resource.partition("/")
    attributes = {"group": group, "resource": name, "verb": verb, **({"subresource": sub} if sub else {})}
    attributes |= {"namespace": namespace} if namespace else {}
    kind = "SelfSubjectAccessReview" if user is None else "LocalSubjectAccessReview"
    path = f"{_AUTHORIZATION}/selfsubjectaccessreviews"
    if user is not None:
        path = f"{_AUTHORIZATION}/namespaces/{namespace}/localsubjectaccessreviews"
    spec = {"resourceAttributes": attributes, **({"user": user} if user else {})}
    body: dict[str, Any] = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    if user is not None:
        body["metadata"] = {"namespace": namespace}
    try:
        return bool(api.create(path, body)["status"]["allowed"])
    except ApiError:
        return None
    except KeyError:
        return False


def _role(verbs: Sequence[str], group: str, resource: str, namespace: str, who: str) -> str:
    kind, scope = ("role", f" -n {namespace}") if namespace else ("clusterrole", "")
    named = f"{resource}.{group}" if group else resource
    flags = " ".join(f"--verb={verb}" for verb in verbs)
    return f"kubectl create {kind} NAME{scope} {flags} --resource={named}, and bind it to {who}"


# ---------------------------------------------------------------------------------------------------------------
# Objects that the profile names


def _objects(api: Api, settings: Kubernetes) -> Iterator[Check]:
    space = f"/api/v1/namespaces/{settings.namespace}"
    account = settings.service_account
    yield _exists(api, "service account", f"{space}/serviceaccounts/{account}", account,
                  f"kubectl create serviceaccount {account} -n {settings.namespace}")  # fmt: skip
    for name in settings.image_pull_secrets:
        yield _exists(api, "pull secret", f"{space}/secrets/{name}", name,
                      f"kubectl create secret docker-registry {name} -n {settings.namespace} …")  # fmt: skip
    if settings.priority_class:
        yield _priority(api, settings.priority_class)
    if settings.queue.kind == "kueue":
        path = f"/apis/kueue.x-k8s.io/v1beta1/namespaces/{settings.namespace}/localqueues/{settings.queue.name}"
        yield _exists(api, "queue", path, f"LocalQueue {settings.queue.name}",
                      "install Kueue and make a LocalQueue, or set kubernetes.queue.kind: none")  # fmt: skip
    if settings.queue.kind == "volcano":
        path = f"/apis/scheduling.volcano.sh/v1beta1/queues/{settings.queue.name}"
        yield _exists(api, "queue", path, f"Volcano queue {settings.queue.name}",
                      "install Volcano and make the queue, or set kubernetes.queue.kind: none")  # fmt: skip
    for claim in settings.claims:
        path = f"/apis/resource.k8s.io/v1/namespaces/{settings.namespace}/resourceclaimtemplates/{claim.template}"
        yield _exists(api, "device claim", path, f"ResourceClaimTemplate {claim.template}",
                      "install the DRA driver and make the template, or leave it out of kubernetes.claims")  # fmt: skip
    if settings.networks and not settings.networks.lstrip().startswith("["):
        for network in settings.networks.split(","):
            place, _, name = network.strip().partition("@")[0].rpartition("/")
            path = f"/apis/k8s.cni.cncf.io/v1/namespaces/{place or settings.namespace}/network-attachment-definitions"
            yield _exists(api, "network", f"{path}/{name}", f"NetworkAttachmentDefinition {network.strip()}",
                          "install Multus and make it, or leave it out of kubernetes.networks")  # fmt: skip


def _priority(api: Api, name: str) -> Check:
    found = _ask(api, f"/apis/scheduling.k8s.io/v1/priorityclasses/{name}")
    mend = f"kubectl create priorityclass {name} --value=-100 --preemption-policy=Never"
    if isinstance(found, ApiError):
        state = State.WARN if found.status == 403 else State.FAIL
        return Check(name="priority class", state=state, found=str(found), mend=mend)
    value, policy = int(found.get("value", 0)), found.get("preemptionPolicy", "PreemptLowerPriority")
    if value > 0 and policy != "Never":
        return Check(
            name="priority class", state=State.WARN,
            found=f"{name} has value {value} and pushes out pods below it: training may be among them", mend=mend,
        )  # fmt: skip
    return Check(name="priority class", state=State.OK, found=f"{name}: value {value}, {policy}")


def _claim(api: Api, namespace: str, what: str, volume: Volume) -> Check:
    name = f"volume: {what}"
    found = _ask(api, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{volume.claim}")
    if isinstance(found, ApiError):
        state = State.WARN if found.status == 403 else State.FAIL
        return Check(name=name, state=state, found=str(found), mend=f"make the claim, or see kubernetes.{what}.claim")
    phase = (found.get("status") or {}).get("phase")
    modes = (found.get("spec") or {}).get("accessModes") or []
    if phase == "Lost":
        return Check(name=name, state=State.FAIL, found=f"{volume.claim} has lost its volume", mend="see its events")
    if not volume.read_only and "ReadWriteMany" not in modes:
        return Check(
            name=name, state=State.FAIL, found=f"{volume.claim} allows {', '.join(modes) or 'nothing'}",
            mend="pods of several nodes write to it: it needs ReadWriteMany",
        )  # fmt: skip
    state = State.OK if phase == "Bound" else State.WARN
    return Check(name=name, state=state, found=f"{volume.claim} is {phase}, {', '.join(modes)}")


def _results_here(profile: ClusterProfile) -> Check:
    from plumbline.stages import results_directory  # noqa: PLC0415 - stages use this module too

    path = results_directory(profile)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path, prefix=".plumbline-doctor-"):
            pass
    except OSError as error:
        return Check(
            name="results on this side", state=State.FAIL, found=f"{path}: {error.strerror or error}",
            mend="mount the results store here, at `results` of the profile (or PLUMBLINE_RESULTS)",
        )  # fmt: skip
    return Check(name="results on this side", state=State.OK, found=f"{path} can be written")


# ---------------------------------------------------------------------------------------------------------------
# Nodes, quota, admission


def _nodes(api: Api, profile: ClusterProfile, today: date) -> Iterator[Check]:
    try:
        inventory = read_inventory(api, profile, today)
    except Exception as error:  # a wrong selector is a ConfigError, a refusal an ApiError: both are findings here
        yield Check(name="nodes", state=State.FAIL, found=str(error), mend="see nodes of the profile")
        return
    usable = [node for node in inventory if node.unusable is None]
    wanted = f"{profile.accelerator.per_node} {profile.accelerator.resource}" if profile.accelerator.resource else ""
    yield Check(
        name="nodes", state=State.OK if len(usable) == len(inventory) else State.WARN if usable else State.FAIL,
        found=f"{len(usable)} of {len(inventory)} can be measured now" + (f", {wanted} each" if wanted else ""),
        mend="" if usable else "see the reasons below; without an idle node nothing is measured",
    )  # fmt: skip
    for node in inventory:
        if node.unusable is not None:
            mend = ""
            if node.unusable is Code.MISSING_GPU:
                mend = f"kubectl describe node {node.name}; logs of the device plugin's pod on it; nvidia-smi there"
            yield Check(name=f"node {node.name}", state=State.WARN, found=f"{node.unusable}: {node.reason}", mend=mend)
    names = {node.name for node in inventory}
    nodes = [node for node in api.list("/api/v1/nodes", {})[0] if node["metadata"]["name"] in names]
    if len(nodes) > PINNED_BY_NAME:
        yield _host_names(nodes)
    settings = settings_of(profile)
    if settings.rdma and settings.rdma.resource:
        yield _rdma(nodes, settings.rdma.resource, settings.rdma.count)


def _host_names(nodes: Sequence[Mapping[str, Any]]) -> Check:
    """Groups of many nodes are pinned by a label that must hold the node's name."""
    wrong = [
        n["metadata"]["name"] for n in nodes
        if (n["metadata"].get("labels") or {}).get(HOSTNAME) != n["metadata"]["name"]
    ]  # fmt: skip
    if not wrong:
        return Check(name="host names", state=State.OK, found=f"{HOSTNAME} is every node's name")
    return Check(
        name="host names", state=State.WARN,
        found=f"{HOSTNAME} is not the name of {node_list(wrong, 5)}",
        mend=f"groups of more than {PINNED_BY_NAME} nodes can't be pinned there: label the nodes by their names",
    )  # fmt: skip


def _rdma(nodes: Sequence[Mapping[str, Any]], resource: str, count: int) -> Check:
    short = []
    for node in nodes:
        name = node["metadata"]["name"]
        has = str((node.get("status", {}).get("allocatable") or {}).get(resource, "0"))
        if not (has.isdigit() and int(has) >= count):
            short.append(f"{name} ({has})")
    if not short:
        return Check(name="rdma", state=State.OK, found=f"{count} {resource} on every node")
    return Check(
        name="rdma", state=State.FAIL, found=f"fewer than {count} {resource} on {node_list(short, 5)}",
        mend="install or mend the RDMA device plugin (network operator), or see kubernetes.rdma",
    )  # fmt: skip


def _quota(api: Api, profile: ClusterProfile) -> Iterator[Check]:
    """Compare quotas of the namespace with what one GPU pod asks for."""
    resource, namespace = profile.accelerator.resource, settings_of(profile).namespace
    if resource is None:
        return
    try:
        quotas = api.list(f"/api/v1/namespaces/{namespace}/resourcequotas", {})[0]
    except ApiError as error:
        yield Check(name="quota", state=State.WARN, found=str(error))
        return
    for quota in quotas:
        status: Mapping[str, Any] = quota.get("status") or {}
        for key in (f"requests.{resource}", f"limits.{resource}"):
            hard, used = (status.get("hard") or {}).get(key), (status.get("used") or {}).get(key, "0")
            if hard is None or not (str(hard).isdigit() and str(used).isdigit()):
                continue
            free, need = int(hard) - int(used), profile.accelerator.per_node
            name = quota["metadata"]["name"]
            yield Check(
                name="quota", state=State.OK if free >= need else State.FAIL,
                found=f"{name}: {free} of {hard} {resource} free; one node takes {need}",
                mend="" if free >= need else f"raise {key} of ResourceQuota {name}, or run when the GPUs are free",
            )  # fmt: skip


def _admission(api: Api, profile: ClusterProfile) -> Iterator[Check]:
    """Let the API check what would be made, without making it: admission policies speak here."""
    settings = settings_of(profile)
    data = profile.model_dump(mode="json")
    place = Path(settings.results.mount) / "evidence"
    name, image = next((n, i) for n, i in sorted(profile.images.items()) if n != "launcher" or len(profile.images) == 1)
    one, two = probe_spec(profile, name, image, ["a"]), probe_spec(profile, name, image, ["a", "b"])
    space = f"/api/v1/namespaces/{settings.namespace}/pods"
    jobs = f"/apis/batch/v1/namespaces/{settings.namespace}/jobs"
    for what, path, body in (
        ("GPU pod", space, pods.batch_pod(data, "doctor", [one], place)),
        ("launcher pod", space, pods.batch_pod(data, "doctor", [two], place)),
        ("Job of workers", jobs, pods.worker_job(data, "doctor", two, 1, place, ("none", "none"), "ssh-ed25519 none")),
    ):
        try:
            api.create(path, body, {"dryRun": "All"})
        except ApiError as error:
            yield Check(
                name=f"admission: {what}", state=State.FAIL, found=str(error),
                mend="the message names the policy; kubernetes.pod_overrides can change what it objects to",
            )  # fmt: skip
        else:
            yield Check(name=f"admission: {what}", state=State.OK, found="would be admitted")


def probe_spec(
    profile: ClusterProfile, benchmark: str, image: str, nodes: Sequence[str], *, mark: str = "000000"
) -> LaunchSpec:
    """Give a launch that measures nothing, to make the pods of."""
    return LaunchSpec(
        launch_id=f"doctor-{benchmark}", run_id=f"doctor-{mark}", cluster=profile.name, benchmark=benchmark,
        benchmark_version="0", reader="none", node_count=len(nodes), wave=1, group=0, repeat=1, nodes=tuple(nodes),
        accelerators_per_node=profile.accelerator.per_node, device=Device(profile.device), origin=Origin.MEASURED,
        contends=Contends.NONE, params={}, argv=("true",), timeout_s=30.0, image=image,
    )  # fmt: skip
