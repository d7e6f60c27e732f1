"""The pod of one batch, seen from outside: put into the cluster or found there, followed to its end, accounted for.

Airflow's operator and the command line both work through this. What the pod measured is on the results volume; this
side writes down only what the pod could not say: that it never started, was pushed out, or vanished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from plumbline.clusters.profile import ClusterProfile
from plumbline.errors import ConfigError, LaunchError
from plumbline.execution import pods
from plumbline.kubernetes import diagnosis, files, lease
from plumbline.kubernetes.access import connect, settings_of
from plumbline.kubernetes.api import Api, ApiError
from plumbline.model import KIND_OF_CODE, Code, LaunchSpec, Outcome, VerdictKind

Progress = Callable[[str], None]
Pod = Mapping[str, Any]

POLL_S = 1.0
_RECORDS_S = 90.0
"""A pod that ended well left records; a shared file system may show them to this side that much later."""
_NAMES = 20
_CLOCK_SKEW = timedelta(minutes=2)


class BatchPod:
    """One batch of one run on a Kubernetes cluster."""

    def __init__(
        self, profile: ClusterProfile, batch_id: str, specs: Sequence[LaunchSpec], evidence: Path, say: Progress
    ) -> None:
        """Prepare. `evidence` is the run's directory as this side sees it. Raises ConfigError, ApiError."""
        self._profile = profile
        self.settings = settings_of(profile)
        self.batch_id, self.specs, self.evidence, self.say = batch_id, specs, evidence, say
        self.api: Api = connect(profile)
        self.namespace = self.settings.namespace
        self.path = f"/api/v1/namespaces/{self.namespace}/pods"
        self.manifest = pods.batch_pod(
            profile.model_dump(mode="json"), batch_id, specs, evidence_in_pods(profile, evidence)
        )
        self.single = pods.on_one_node(specs)
        self._refusal: tuple[Code, str] | None = None

    # -- in ---------------------------------------------------------------------------------------------------------

    def put(self, manifest: Mapping[str, Any]) -> Pod | None:
        """Give this batch's pod: the one that is there, or a new one from `manifest`.

        None where the API refuses it, and where a pod of it is on a node that doesn't answer and so can't be proved to
        have ended. Raises ApiError when the API doesn't answer.
        """
        end = time.monotonic() + 2 * self.settings.waits.grace_s + self.settings.waits.node_lost_s
        number = 1
        while True:
            there = self._there()
            staying = [pod for pod in there if not pod["metadata"].get("deletionTimestamp")]
            if staying:
                pod = min(staying, key=lambda one: str(one["metadata"]["creationTimestamp"]))
                self.say(f"pod {pod['metadata']['name']} is there already ({diagnosis.phase(pod)}): going on with it")
                return pod
            if there and time.monotonic() < end:
                time.sleep(POLL_S)
                continue
            if there and self.single:
                return None
            self._hold_the_cluster()
            try:
                return self.api.create(self.path, _named(manifest, number))
            except ApiError as error:
                if error.outage:
                    raise
                if error.status != 409 or number >= _NAMES:
                    code = Code.QUOTA if "exceeded quota" in str(error) else Code.INFRASTRUCTURE
                    self._refusal = (code, str(error))
                    return None
                number += 1  # a pod that is being removed keeps its name to its end

    def _hold_the_cluster(self) -> None:
        """Raise LaunchError when another run has the cluster by now: this one was taken for dead, or took too long."""
        held = lease.current(self.api, self._profile)
        if held is not None and held["run_id"] != self.specs[0].run_id:
            raise LaunchError(f"{self.batch_id} isn't started: the cluster has passed to run {held['holder']}")

    def _there(self) -> list[dict[str, Any]]:
        query = {"labelSelector": f"{pods.selector(self.specs[0].run_id, self.batch_id)},!{pods.PREFIX}launch"}
        return self.api.list(self.path, query)[0]

    # -- through ----------------------------------------------------------------------------------------------------

    def follow(self, pod: Pod) -> Pod:
        """Wait for the pod's end; give its last known state. Its log is passed on where the API gives it.

        An API that doesn't answer is waited for; the pod runs on meanwhile. Raises LaunchError when that lasts.
        """
        name, since, silent, open_ = pod["metadata"]["name"], "", None, self.specs
        stuck: dict[str, float] = {}
        while True:
            try:
                now = self.api.get(f"{self.path}/{name}", patience_s=0)
                silent = None
            except ApiError as error:
                if error.status == 404:
                    self.say(f"pod {name} is gone")
                    return pod
                if not error.outage:
                    raise
                silent = silent or self._silence(str(error))
                if time.monotonic() - silent > self.settings.waits.outage_s:
                    raise LaunchError(
                        f"the API has not answered for {self.settings.waits.outage_s} s; pod {name} may run on: {error}"
                    ) from None
                time.sleep(POLL_S)
                continue
            if now["metadata"]["uid"] != pod["metadata"]["uid"]:
                return pod  # another one of this name: ours is gone
            pod = now
            since = self._pass_log_on(name, since)
            if diagnosis.ended(pod) or self._will_not_go_on(pod, stuck):
                return pod
            open_ = files.without_answer(self.evidence, open_)
            if not open_:
                return pod  # everything is measured, whatever its kubelet says or doesn't
            time.sleep(POLL_S)

    def _silence(self, why: str) -> float:
        self.say(f"the API does not answer; waiting at most {self.settings.waits.outage_s} s: {why}")
        return time.monotonic()

    def _pass_log_on(self, name: str, since: str) -> str:
        """Print what the pod has logged after `since`; give the time of its last line. Never fails."""
        query = {"container": pods.CONTAINER, "timestamps": "true", **({"sinceTime": since} if since else {})}
        try:
            text = self.api.text(f"{self.path}/{name}/log", query)
        except ApiError:
            return since
        for line in text.splitlines():
            moment, _, words = line.partition(" ")
            if moment > since:
                self.say(f"[{name}] {words}")
        return max([since, *(line.partition(" ")[0] for line in text.splitlines() if line)])

    def _will_not_go_on(self, pod: Pod, stuck: dict[str, float]) -> bool:
        """Say whether waiting brings nothing: no place, no image, not started in time, or left on a lost node."""
        waits = self.settings.waits
        running = diagnosis.phase(pod) == "Running"
        limits = {
            "unschedulable": (diagnosis.unschedulable(pod), waits.unschedulable_s),
            "start": (not running, waits.start_s),
            "leaving": (bool(pod["metadata"].get("deletionTimestamp")), 2 * waits.grace_s),
        }
        for what, (holds, limit_s) in limits.items():
            if not holds:
                stuck.pop(what, None)
            elif time.monotonic() - stuck.setdefault(what, time.monotonic()) > limit_s:
                return True
        return diagnosis.hopeless(pod)

    # -- out --------------------------------------------------------------------------------------------------------

    def settle(self, pod: Pod | None) -> bool:
        """Give every launch its record, remove the pod, and say whether another try may help.

        Raises OSError when the results store takes no records. Failing to remove the pod changes nothing.
        """
        faults = []
        if pod is None:
            reason = f"an earlier pod of this batch is still on node {self.specs[0].nodes[0]} and can't be removed"
            faults = self._record_all(*(self._refusal or (Code.NODE_LOST, reason)))
        else:
            if diagnosis.phase(pod) == "Succeeded":
                self._wait_for_records()
            faults = self._account(pod)
            self.remove(str(pod["metadata"]["name"]))
        return any(code in diagnosis.TRANSIENT for code in faults)

    def _wait_for_records(self) -> None:
        end = time.monotonic() + _RECORDS_S
        while time.monotonic() < end and not all(
            files.records_of(self.evidence, spec.launch_id) for spec in self.specs
        ):
            time.sleep(POLL_S / 2)

    def _account(self, pod: Pod) -> list[Code]:
        """Write what the cluster did to launches that this pod left without an answer; give those codes."""
        silent, stopped = [], []
        for spec in files.without_answer(self.evidence, self.specs):
            last = self._record_of_pod(pod, spec)
            if last is None:
                silent.append(spec)
            elif last["outcome"] == Outcome.STOPPED:
                stopped.append(spec)
        if not silent and not stopped:
            return []
        code, reason = diagnosis.explain_pod(self.api, self.namespace, pod, self.specs[0].nodes if self.single else ())
        if not self.single:
            reason = f"launcher on {reason}"
            if KIND_OF_CODE[code] is VerdictKind.FAIL:
                code = Code.INFRASTRUCTURE  # its memory and time are not the benchmark's
        codes = self._record(silent, code, reason)
        if code in diagnosis.DISRUPTIONS:
            codes += self._record(stopped, code, reason)
        return codes

    def _record_of_pod(self, pod: Pod, spec: LaunchSpec) -> Mapping[str, Any] | None:
        """Give the last record that can be this pod's: one that was begun after the pod was made."""
        made = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) - _CLOCK_SKEW
        found = files.records_of(self.evidence, spec.launch_id)
        late = [n for n, record in found.items() if datetime.fromisoformat(record["started_at"]) >= made]
        return found[max(late)] if late else None

    def _record_all(self, code: Code, reason: str) -> list[Code]:
        return self._record(files.without_answer(self.evidence, self.specs), code, reason)

    def _record(self, specs: Sequence[LaunchSpec], code: Code, reason: str) -> list[Code]:
        for spec in specs:
            self.say(f"{spec.launch_id}: {code.value}: {reason}")
            files.record_fault(spec, self.evidence, code, reason)
        return [code] * len(specs)

    def answered(self) -> bool:
        """Say whether nothing is left to run; then remove what a try that was killed has left of this batch."""
        if files.without_answer(self.evidence, self.specs):
            return False
        self.say(f"{self.batch_id}: every launch has an answer already")
        try:
            for pod in self._there():
                self.remove(str(pod["metadata"]["name"]))
        except ApiError as error:
            self.say(f"what may be left of its pods is removed when the run is sealed: {error}")
        return True

    def remove(self, name: str, *, patience_s: float = 20.0) -> None:
        """Ask for the pod to be removed, and with it what it owns."""
        try:
            self.api.delete(f"{self.path}/{name}", patience_s=patience_s)
        except ApiError as error:
            self.say(f"pod {name} could not be removed, `plumbline reap` will: {error}")


def evidence_in_pods(profile: ClusterProfile, evidence: Path) -> Path:
    """Give the run's evidence directory as pods see it. Raises ConfigError for one that is not <results>/…/evidence."""
    parts = evidence.parts[-4:]
    if len(evidence.parts) < 5 or parts[-1] != "evidence":
        raise ConfigError(f"{evidence} is not <results>/<cluster>/<suite>/<run_id>/evidence")
    return Path(settings_of(profile).results.mount).joinpath(*parts)


def _named(manifest: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    if number == 1:
        return manifest
    metadata = {**manifest["metadata"], "name": f"{manifest['metadata']['name']}-{number}"}
    return {**manifest, "metadata": metadata}
