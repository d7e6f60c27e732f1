"""The fake cluster's controllers (Jobs, scheduler, kubelets, garbage, lost nodes), in one thread; and its faults."""

from __future__ import annotations

import ipaddress
import json
import random
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.kubernetes.fake.bodies import GPU, Body, end, key_of, place, set_condition, set_container_state, unfit
from tests.kubernetes.fake.kubelet import Container, Script, ScriptedContainer
from tests.kubernetes.fake.server import ApiServer
from tests.kubernetes.fake.store import ConflictError, Key, Store, now

NAMESPACE = "plumbline"
TICK_S = 0.03


class FakeCluster:
    """A cluster of named nodes with `gpus` GPUs each. Use as a context manager; every process ends with it."""

    def __init__(self, folder: Path, nodes: Iterable[str] = ("n1", "n2"), *, gpus: int = 8) -> None:
        self.folder = folder
        self.store = Store()
        self.api = ApiServer(self.store, self._log_of, self._delete)
        self.job_delay_s = 0.0
        self.start_delay_s = 0.0
        self.bad_images: dict[str, str | None] = {}
        """Parts of image names that can't be pulled; on one node, or on all (None)."""
        self.logs_missing = False
        self.unreachable: set[str] = set()
        self.script: Script | None = None
        """Stands for the processes of all worker pods; see ScriptedContainer."""
        self.containers: dict[str, Container | ScriptedContainer] = {}
        self._born: dict[str, float] = {}
        self._pulls: dict[str, float] = {}
        self._down: dict[str, float] = {}
        self._jobs: dict[str, list[str]] = {}
        self._addresses = 0
        self._network = random.randint(1 << 16, (1 << 24) - (1 << 13))
        """Pods of two fake clusters on one machine must not meet: addresses from somewhere in 127.0.0.0/8."""
        self._stop = threading.Event()
        self.errors: list[str] = []
        account = folder / "account"
        account.mkdir(parents=True)
        (account / "token").write_text("token")
        (account / "namespace").write_text(NAMESPACE)
        self._service = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.api.port),
            "KUBERNETES_SERVICE_SCHEME": "http", "PLUMBLINE_SERVICE_ACCOUNT": str(account),
        }  # fmt: skip
        self.store.create("namespaces", "", {"metadata": {"name": NAMESPACE}})
        self.store.create("serviceaccounts", NAMESPACE, {"metadata": {"name": "plumbline-launcher"}})
        for name in nodes:
            self.add_node(name, gpus)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> FakeCluster:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        for container in self.containers.values():
            container.kill()
        self.api.stop()
        assert self.errors == []

    def add_node(self, name: str, gpus: int, **spec: Any) -> None:
        amounts = {GPU: str(gpus), "cpu": "64", "memory": "512Gi"}
        status = {
            "capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {"kubeletVersion": "v1.36.2", "kernelVersion": "6.8.0", "osImage": "Fake"},
        }  # fmt: skip
        metadata = {"name": name, "labels": {"gpu": "h100", "kubernetes.io/hostname": name}}
        self.store.create("nodes", "", {"metadata": metadata, "spec": spec, "status": status})

    def kubeconfig(self) -> Path:
        """Give a kubeconfig file for this cluster."""
        path = self.folder / "kubeconfig"
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": NAMESPACE}}],
            "clusters": [{"name": "fake", "cluster": {"server": self.api.url}}],
            "users": [{"name": "fake", "user": {"token": "t"}}],
        }))  # fmt: skip
        return path

    # -- faults ------------------------------------------------------------------------------------------------------

    def pods(self, **labels: str) -> list[Body]:
        """Give the pods with these plumbline/ labels."""
        wanted = {f"plumbline/{key.replace('_', '-')}": value for key, value in labels.items()}
        return [p for p in self.store.all("pods") if wanted.items() <= (p["metadata"].get("labels") or {}).items()]

    def workers(self) -> list[Body]:
        return [p for p in self.store.all("pods") if "plumbline/launch" in (p["metadata"].get("labels") or {})]

    def lose_node(self, name: str, *, kill: bool = True) -> None:
        """Stop a node's kubelet; with `kill` its processes end too, as when the machine loses power."""
        self.unreachable.add(name)
        self._down[name] = time.monotonic()
        if kill:
            for pod in self.store.all("pods"):
                container = self.containers.get(pod["metadata"]["uid"])
                if pod["spec"].get("nodeName") == name and container is not None:
                    container.kill()

    def node_back(self, name: str) -> None:
        self.unreachable.discard(name)
        self._down.pop(name, None)
        self.store.change(("nodes", "", name), lambda node: set_condition(node, "Ready", "True", "KubeletReady", ""))

    def evict(self, pod: Body, message: str = "The node was low on resource: memory.") -> None:
        self._end(pod, {"phase": "Failed", "reason": "Evicted", "message": message})

    def oom(self, pod: Body) -> None:
        container = self.containers[pod["metadata"]["uid"]]
        container.oom = True
        container.kill()

    def preempt(self, pod: Body) -> None:
        """Remove a pod for one of higher priority, as the scheduler does."""
        message = "training: preempting to accommodate a higher priority pod"
        self.store.change(
            key_of(pod), lambda p: set_condition(p, "DisruptionTarget", "True", "PreemptionByScheduler", message)
        )
        self._event(pod, "Preempted", f"Preempted by pod {message}", "Normal")
        self._delete(key_of(pod), None)

    def _end(self, pod: Body, status: Body) -> None:
        container = self.containers.get(pod["metadata"]["uid"])
        self.store.change(key_of(pod), lambda p: p["status"].update(status))
        if container is not None:
            container.kill()

    # -- the API's hooks -----------------------------------------------------------------------------------------------

    def _log_of(self, pod: Body) -> list[tuple[str, str]]:
        container = self.containers.get(pod["metadata"]["uid"])
        return list(container.lines) if container is not None and not self.logs_missing else []

    def _delete(self, key: Key, grace_s: int | None) -> None:
        body = self.store.get(key)
        if key[0] == "namespaces":
            for inner in [k for k in list(self.store.objects) if k[1] == key[2]]:
                self._delete(inner, 0)
        if key[0] != "pods" or body is None:
            self.store.remove(key)
            return
        container = self.containers.get(body["metadata"]["uid"])
        if grace_s == 0 or container is None or body["status"]["phase"] in ("Succeeded", "Failed"):
            if container is not None and body["spec"].get("nodeName") not in self.unreachable:
                container.kill()
            self.store.remove(key)
            return
        self.store.change(key, lambda p: p["metadata"].setdefault("deletionTimestamp", now()))

    def _set(self, key: Key, kind: str, status: str, reason: str, message: str) -> None:
        self.store.change(key, lambda body: set_condition(body, kind, status, reason, message))

    def _place(self, key: Key, node: str) -> None:
        self.store.change(key, lambda body: place(body, node))

    # -- controllers ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.wait(TICK_S):
            try:
                self._nodes()
                self._jobs_made()
                self._garbage()
                self._schedule()
                self._force_deleted()
                for pod in self.store.see("pods"):
                    if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in self.unreachable:
                        self._kubelet(pod)
            except Exception:
                self.errors.append(traceback.format_exc())

    def _age(self, body: Body) -> float:
        return time.monotonic() - self._born.setdefault(body["metadata"]["uid"], time.monotonic())

    def _event(self, about: Body, reason: str, message: str, kind: str = "Warning") -> None:
        metadata = about["metadata"]
        name = f"{metadata['name']}.{reason.lower()}"
        space = metadata["namespace"]
        reference = {"kind": about["kind"], "name": metadata["name"], "namespace": space, "uid": metadata["uid"]}
        body = {
            "metadata": {"name": name}, "involvedObject": reference, "reason": reason, "message": message,
            "type": kind, "firstTimestamp": now(), "lastTimestamp": now(), "count": 1,
        }  # fmt: skip
        try:
            self.store.create("events", space, body)
        except ConflictError:
            self.store.change(("events", space, name), lambda e: e.update(lastTimestamp=now(), message=message))

    def _nodes(self) -> None:
        """Mark silent nodes, and evict from them what tolerates that no longer. The kubelet hears none of it."""
        for name, since in list(self._down.items()):
            text = "Kubelet stopped posting node status."
            self._set(("nodes", "", name), "Ready", "Unknown", "NodeStatusUnknown", text)
            for pod in self.store.all("pods"):
                if pod["spec"].get("nodeName") != name or "deletionTimestamp" in pod["metadata"]:
                    continue
                tolerated = [
                    t["tolerationSeconds"] for t in pod["spec"].get("tolerations", ()) if "tolerationSeconds" in t
                ]
                if time.monotonic() - since > min(tolerated, default=300):
                    message = "Taint manager: deleting due to NoExecute taint"
                    self._set(key_of(pod), "DisruptionTarget", "True", "DeletionByTaintManager", message)
                    self.store.change(key_of(pod), lambda p: p["metadata"].setdefault("deletionTimestamp", now()))

    def _jobs_made(self) -> None:
        for job in self.store.see("jobs"):
            uid, spec = job["metadata"]["uid"], job["spec"]
            if self._age(job) < self.job_delay_s or spec.get("suspend"):
                continue
            if uid not in self._jobs:
                if self.api.quota_full:
                    message = f'Error creating: pods "{job["metadata"]["name"]}-0" is forbidden: exceeded quota: gpus'
                    self._event(job, "FailedCreate", message)
                    continue
                self._jobs[uid] = [self._make_worker(job, index) for index in range(spec["completions"])]
            self._judge_job(job)

    def _make_worker(self, job: Body, index: int) -> str:
        template = json.loads(json.dumps(job["spec"]["template"]))
        name = f"{job['metadata']['name']}-{index}-"
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job["metadata"]["name"],
            "uid": job["metadata"]["uid"],
        }
        metadata = {**template["metadata"], "generateName": name, "ownerReferences": [{**owner, "controller": True}]}
        status = {"phase": "Pending", "conditions": []}
        body = {"metadata": metadata, "spec": template["spec"], "status": status}
        return self.store.create("pods", job["metadata"]["namespace"], body)["metadata"]["name"]

    def _judge_job(self, job: Body) -> None:
        """Fail a Job with its first pod (backoffLimit 0), and remove the others."""
        if any(c["type"] in ("Failed", "Complete") for c in job.get("status", {}).get("conditions", ())):
            return
        space = job["metadata"]["namespace"]
        there = [self.store.objects.get(("pods", space, name)) for name in self._jobs[job["metadata"]["uid"]]]
        phases = [pod["status"]["phase"] if pod else "Failed" for pod in there]
        overdue = self._age(job) > job["spec"].get("activeDeadlineSeconds", 1e9)
        if "Failed" in phases or overdue:
            reason = "DeadlineExceeded" if overdue else "BackoffLimitExceeded"
            self.store.change(key_of(job), lambda j: set_condition(j, "Failed", "True", reason, ""))
            for pod in there:
                if pod is not None and pod["status"]["phase"] not in ("Failed", "Succeeded"):
                    self._delete(key_of(pod), None)
        elif set(phases) == {"Succeeded"}:
            self.store.change(key_of(job), lambda j: set_condition(j, "Complete", "True", "Completed", ""))

    def _garbage(self) -> None:
        with self.store.lock:
            alive = {body["metadata"]["uid"] for body in self.store.objects.values()}
        for resource in ("jobs", "pods"):
            for body in self.store.see(resource):
                owners = body["metadata"].get("ownerReferences") or ()
                orphan = owners and not any(owner["uid"] in alive for owner in owners)
                if orphan and "deletionTimestamp" not in body["metadata"]:
                    self._delete(key_of(body), None)

    def _schedule(self) -> None:
        there: dict[str, list[Body]] = defaultdict(list)
        waiting = []
        for pod in self.store.see("pods"):
            if node_name := pod["spec"].get("nodeName"):
                there[node_name].append(pod)
            elif "deletionTimestamp" not in pod["metadata"]:
                waiting.append(pod)
        nodes = self.store.see("nodes")
        for pod in waiting:
            reasons: dict[str, int] = {}
            for node in nodes:
                name = node["metadata"]["name"]
                reason = unfit(pod, node, there[name])
                if reason is None:
                    self._place(key_of(pod), name)
                    there[name].append(pod)
                    break
                reasons[reason] = reasons.get(reason, 0) + 1
            else:
                text = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
                message = f"0/{len(nodes)} nodes are available: {text}. preemption: 0/{len(nodes)} nodes are available"
                self._set(key_of(pod), "PodScheduled", "False", "Unschedulable", message)
                self._event(pod, "FailedScheduling", message)

    def _force_deleted(self) -> None:
        """End the containers of pods that are gone from the API, where the kubelet hears of it."""
        alive = {pod["metadata"]["uid"] for pod in self.store.see("pods")}
        for uid, container in self.containers.items():
            reached = container.pod["spec"]["nodeName"] not in self.unreachable
            if uid not in alive and reached and container.exit_code() is None:
                container.kill()

    def _kubelet(self, pod: Body) -> None:
        uid, status = pod["metadata"]["uid"], pod["status"]
        container = self.containers.get(uid)
        leaving = "deletionTimestamp" in pod["metadata"]
        if container is None:
            if leaving:
                self.store.remove(key_of(pod))
            elif status["phase"] == "Pending" and self._pulled(pod) and self._age(pod) >= self.start_delay_s:
                self._start(pod)
            return
        code = container.exit_code()
        deadline = pod["spec"].get("activeDeadlineSeconds")
        if code is None and deadline and time.monotonic() - container.started > deadline:
            message = "Pod was active on the node longer than the specified deadline"
            self._end(pod, {"phase": "Failed", "reason": "DeadlineExceeded", "message": message})
        elif code is None and leaving:
            container.ask_to_end(pod["spec"].get("terminationGracePeriodSeconds", 30))
        elif code is None:
            ready = "True" if container.ready or container.check_ready() else "False"
            if not any(c["type"] == "Ready" and c["status"] == ready for c in status.get("conditions") or ()):
                self.store.change(key_of(pod), lambda p: set_condition(p, "Ready", ready, "", ""))
        elif leaving:
            self.store.change(key_of(pod), lambda p: end(p, container))
            self.store.remove(key_of(pod))
        elif not (status.get("containerStatuses") or [{}])[0].get("state", {}).get("terminated"):
            self.store.change(key_of(pod), lambda p: end(p, container))

    def _pulled(self, pod: Body) -> bool:
        image = pod["spec"]["containers"][0]["image"]
        node = pod["spec"]["nodeName"]
        if not any(bad in image and where in (None, node) for bad, where in self.bad_images.items()):
            return True
        since = self._pulls.setdefault(pod["metadata"]["uid"], time.monotonic())
        reason = "ErrImagePull" if time.monotonic() - since < 0.2 else "ImagePullBackOff"
        message = f'Failed to pull image "{image}": not found'
        self._event(pod, "Failed", message)
        waiting = {"waiting": {"reason": reason, "message": f'Back-off pulling image "{image}"'}}
        self.store.change(key_of(pod), lambda p: set_container_state(p, waiting))
        return False

    def _start(self, pod: Body) -> None:
        self._addresses += 1
        address = str(ipaddress.IPv4Address((127 << 24) + self._network + self._addresses))
        folder = self.folder / "pods" / pod["metadata"]["uid"]
        container: Container | ScriptedContainer
        if self.script is not None and "plumbline/launch" in (pod["metadata"].get("labels") or {}):
            container = ScriptedContainer(pod, address, self.script)
        else:
            container = Container(pod, address, folder, self._service)
        self.containers[pod["metadata"]["uid"]] = container

        def started(body: Body) -> None:
            body["status"] |= {"phase": "Running", "podIP": address, "startTime": container.started_at}
            set_container_state(body, {"running": {"startedAt": container.started_at}})

        self.store.change(key_of(pod), started)
