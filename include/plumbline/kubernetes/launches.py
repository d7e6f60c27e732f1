"""One launch of a batch as its launcher sees it: claimed, its workers started all or not at all, watched, recorded.

Single-threaded: `step` looks at what has changed since and never waits. Standard library only.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plumbline.execution import pods
from plumbline.execution.environment import utc_now
from plumbline.execution.run_one import (
    child_environment,
    die_with_parent,
    digest_files,
    shown_environment,
    stop_group,
    write_record,
)
from plumbline.kubernetes import diagnosis, files, machine_reports, ssh
from plumbline.kubernetes.api import ApiError
from plumbline.kubernetes.site import Site
from plumbline.model import Code, LaunchSpec, Outcome, RunRecord, run_record

Pod = Mapping[str, Any]
_NO_PODS_S = 5.0
_AFTER_EXIT_S = 6.0
"""A command that failed may have failed because a worker did, which shows a little later."""
_RECORD_S = 90.0
"""A worker that ended well has written its record; shared file systems may show it that much later."""
_LAST_WORDS_S = 10.0
"""For workers to say how their machines do after the command."""
_LOOK_S = 10.0


@dataclass(kw_only=True)
class Launch:
    """One attempt at one launch, from its Job to its record."""

    site: Site
    spec: LaunchSpec
    """As planned: records answer this."""
    attempt: int
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Nodes that stand in for planned ones: {planned: substitute}."""
    record: RunRecord | None = None
    blamed: str | None = None
    """The node whose worker ended the launch, where one is known."""
    _job: str = ""
    _created: float = 0.0
    _created_at: str = ""
    _process: subprocess.Popen[bytes] | None = None
    _started: float = 0.0
    _started_at: str = ""
    _exited: float | None = None
    _exited_at: str = ""
    _since: dict[str, float] = field(default_factory=dict)
    """When something that may last too long was first seen."""
    _raw_dir: Path | None = None
    _ending: Callable[[machine_reports.Reports], RunRecord] | None = None
    """Makes the record, once the workers have said their last."""

    @property
    def placed(self) -> LaunchSpec:
        """The launch on the nodes that it really takes."""
        return self.spec.placed(self.replaced)

    @property
    def several(self) -> bool:
        """Whether the launcher runs the command, over ssh; otherwise the one worker does."""
        return len(self.spec.nodes) > 1

    @property
    def done(self) -> bool:
        """Whether the launch has its record, for better or worse."""
        return self.record is not None

    def start(self) -> None:
        """Claim the attempt and create the Job; may be repeated when the API did not answer.

        Raises AttemptTakenError, NoKeysError, ApiError.
        """
        site = self.site
        if not self._created:
            files.write_spec(site.evidence, self.spec)
            if self.several:
                self._raw_dir = files.claim(site.evidence, self.spec, self.attempt)
            self._created, self._created_at = time.monotonic(), utc_now()
        if self.several and site.keys is None:
            site.keys = ssh.make_keys()
        job = pods.worker_job(
            site.profile, site.batch_id, self.placed, self.attempt, site.evidence, site.owner,
            site.keys.public if site.keys else None,
        )  # fmt: skip
        name = job["metadata"]["name"]
        try:
            site.api.create(site.jobs, job, patience_s=0)
        except ApiError as error:
            if error.status != 409 or not self._is_own(name):
                raise
        self._job = name
        self._created = time.monotonic()

    @property
    def tried_s(self) -> float:
        """Seconds since the Job was first asked for, or since it was made."""
        return time.monotonic() - self._created

    def _is_own(self, name: str) -> bool:
        """Say whether the Job that is there already is ours: the answer to creating it was lost, not the request."""
        try:
            found = self.site.api.get(f"{self.site.jobs}/{name}", patience_s=0)
        except ApiError:
            return False
        return any(o.get("uid") == self.site.owner[1] for o in found["metadata"].get("ownerReferences") or ())

    # -- looking ----------------------------------------------------------------------------------------------------

    def step(self, workers: Sequence[Pod], gone: Sequence[Pod], *, outage: bool) -> None:
        """Go on by what the API last said of this launch's pods; sets `record` when it is over."""
        ended = [pod for pod in (*gone, *workers) if diagnosis.ended(pod) or self._left(pod, gone)]
        over = min(ended, key=diagnosis.removed_by_others, default=None)  # seen at once, only one of them is to blame
        if self._ending is not None:
            self._step_ending()
        elif self._process is not None:
            self._step_running(workers, over)
        elif over is not None:
            self._step_ended(over)
        elif self._look_due() and self.recorded_by_worker():
            return  # its kubelet may never say that it ended
        elif (trouble := self._trouble(workers, outage=outage)) is not None:
            self.fail(*trouble)
        elif self.several and self._all_started(workers) and self.site.starts_left > 0:
            self.site.starts_left -= 1
            self._run(workers)

    def _left(self, pod: Pod, gone: Sequence[Pod]) -> bool:
        """Say whether a pod was removed, or can't be: one that outlasts its grace period is on a lost node."""
        if any(pod is one for one in gone):
            return True
        if not pod["metadata"].get("deletionTimestamp"):
            return False
        asked = self._since.setdefault("leaving " + pod["metadata"]["name"], time.monotonic())
        return time.monotonic() - asked > 2 * float(self.site.settings["waits"]["grace_s"])

    def _look_due(self) -> bool:
        """Say whether it is time to look for the one worker's record: a look is a question to the shared volume."""
        if self.several or time.monotonic() - self._since.get("look", self._created) < _LOOK_S:
            return False
        self._since["look"] = time.monotonic()
        return True

    def recorded_by_worker(self) -> bool:
        """Take the record that the one worker wrote of this attempt; say whether the launch has a record now."""
        if self.done or self.several:
            return True
        found = files.records_of(self.site.evidence, self.spec.launch_id).get(self.attempt)
        self.record = run_record(found) if found is not None else None
        return self.done

    def _step_ended(self, pod: Pod) -> None:
        """A worker ended: the one worker of a launch with its record, or any of them without."""
        if not self.several and self.recorded_by_worker():
            if self.record is not None and self.record.outcome is Outcome.STOPPED:
                self.record = diagnosis.record_disruption(
                    self.site.api, self.site.settings["namespace"], pod, self.spec, self.site.evidence
                ) or self.record  # fmt: skip
            return
        late = time.monotonic() - self._since.setdefault("record", time.monotonic())
        if not self.several and diagnosis.phase(pod) == "Succeeded" and late < _RECORD_S:
            return
        self.fail(*self._explain(pod))

    def _explain(self, pod: Pod) -> diagnosis.Finding:
        self.blamed = diagnosis.node_of(pod)
        return diagnosis.explain_pod(self.site.api, self.site.settings["namespace"], pod, self.placed.nodes)

    def _trouble(self, workers: Sequence[Pod], *, outage: bool) -> diagnosis.Finding | None:
        """Say why these workers will not start; None while they still may. Outages prove nothing."""
        waits = self.site.settings["waits"]
        for pod in workers:
            name = pod["metadata"]["name"]
            if diagnosis.hopeless(pod):
                return self._explain(pod)
            if not diagnosis.unschedulable(pod):
                self._since.pop(name, None)
            elif time.monotonic() - self._since.setdefault(name, time.monotonic()) > waits["unschedulable_s"]:
                return self._explain(pod)
        waited = time.monotonic() - self._created
        if outage:
            return None
        if not workers and waited > _NO_PODS_S and self.site.may_ask():
            refused = diagnosis.explain_job(self.site.api, self.site.settings["namespace"], self._job)
            if refused is not None and waited > waits["unschedulable_s"]:
                return refused
        if waited > waits["start_s"] and not self._all_started(workers):
            return self._too_slow(workers, waits["start_s"])
        return None

    def _all_started(self, workers: Sequence[Pod]) -> bool:
        """Say whether all workers run; the one worker of a launch without a gang is not asked for readiness."""
        good = diagnosis.ready if self.several else (lambda pod: diagnosis.phase(pod) == "Running")
        return len(workers) == len(self.spec.nodes) and all(map(good, workers))

    def _too_slow(self, workers: Sequence[Pod], limit_s: float) -> diagnosis.Finding:
        late = [pod for pod in workers if not diagnosis.ready(pod)]
        if late:
            code, reason = self._explain(late[0])
            return code, f"{reason} (not ready after {limit_s:g} s; {len(late)} of {len(self.spec.nodes)} workers late)"
        namespace = self.site.settings["namespace"]
        code, reason = diagnosis.explain_waiting_job(self.site.api, namespace, self._job)
        return code, f"{reason} (after {limit_s:g} s)"

    # -- running ----------------------------------------------------------------------------------------------------

    def _run(self, workers: Sequence[Pod]) -> None:
        """Start the command: every worker is ready."""
        addresses = {diagnosis.node_of(pod): str(pod["status"]["podIP"]) for pod in workers}
        nodes = self.placed.nodes
        if set(addresses) != set(nodes):
            self.fail(Code.INFRASTRUCTURE, f"workers run on {sorted(map(str, addresses))}, not on the planned nodes")
            return
        assert self._raw_dir is not None  # claimed by start
        assert self.site.keys is not None  # made by start
        in_order = [addresses[node] for node in nodes]
        extra = ssh.environment_of(self.spec, in_order, self.site.keys, self.site.settings["ssh_port"])
        self._started, self._started_at = time.monotonic(), utc_now()
        with (self._raw_dir / "stdout").open("wb") as out, (self._raw_dir / "stderr").open("wb") as err:
            try:
                self._process = subprocess.Popen(
                    ssh.command_of(self.spec), cwd=self._raw_dir, env=child_environment(extra),
                    stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                    preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call, prepared before the fork
                )  # fmt: skip
            except (OSError, ValueError) as error:
                reason = f"cannot start {self.spec.argv[0]}: {error}"
                self._finish(Outcome.NOT_STARTED, None, None, reason)

    def _step_running(self, workers: Sequence[Pod], over: Pod | None) -> None:
        assert self._process is not None  # asked by step
        if over is not None:
            stop_group(self._process)
            self.fail(*self._explain(over))
            return
        status = self._process.poll()
        if status is None:
            if time.monotonic() - self._started > self.spec.timeout_s:
                stop_group(self._process)
                self._finish(Outcome.TIMEOUT, None, None, f"no end after {self.spec.timeout_s:g} s; stopped")
            return
        if self._exited is None:
            self._exited, self._exited_at = time.monotonic(), utc_now()
        if status != 0:
            if time.monotonic() - self._exited < _AFTER_EXIT_S:
                return
            if (cut := self._cut_off(workers)) is not None:
                self.fail(*cut)
                return
        if status < 0:
            self._finish(Outcome.SIGNALLED, None, -status, f"ended by signal {-status}")
        else:
            self._finish(Outcome.EXITED, status, None, f"exit code {status}" if status else "")

    def _cut_off(self, workers: Sequence[Pod]) -> diagnosis.Finding | None:
        """Name a worker that does not answer any more: its node, not the benchmark, ended the command."""
        for pod in workers:
            address, port = pod["status"].get("podIP"), self.site.settings["ssh_port"]
            if address and (why := diagnosis.unreachable(str(address), port)) is not None:
                self.blamed = diagnosis.node_of(pod)
                return Code.NODE_LOST, f"node {self.blamed}: its worker does not answer any more: {why}"
        return None

    # -- ending -----------------------------------------------------------------------------------------------------

    def stop_command(self) -> None:
        """End the command, where the launcher runs one."""
        if self._process is not None and self._process.poll() is None:
            stop_group(self._process)

    def fail(self, code: Code, reason: str) -> None:
        """End with a record that says what of the infrastructure is to blame."""
        self.delete_job()
        began = self._started_at or self._created_at or None
        lasted = time.monotonic() - (self._started or self._created) if began else 0.0
        if self._raw_dir is None:
            self.record = files.record_fault(
                self.spec, self.site.evidence, code, reason, started_at=began, duration_s=lasted
            )
            return
        self.record = files.fault_record(
            self.spec, self.attempt, code, reason, started_at=began, duration_s=lasted, raw_dir=self._raw_dir,
            replaced=self.replaced,
        )  # fmt: skip
        self._write(self.record)

    def _finish(self, outcome: Outcome, exit_code: int | None, signal_number: int | None, reason: str) -> None:
        """Note how the command ended, and ask the workers to end: what their machines say then is in the record."""
        ended_at, lasted = self._exited_at or utc_now(), (self._exited or time.monotonic()) - self._started
        self._since["ending"] = time.monotonic()
        self.delete_job()

        def record(told: machine_reports.Reports) -> RunRecord:
            assert self._raw_dir is not None  # claimed by start
            return RunRecord(
                launch_id=self.spec.launch_id,
                run_id=self.spec.run_id,
                cluster=self.spec.cluster,
                attempt=self.attempt,
                spec_sha256=self.spec.digest(),
                outcome=outcome,
                exit_code=exit_code,
                signal=signal_number,
                reason=reason,
                argv=self.spec.argv,
                hosts=self.placed.nodes,
                replaced=self.replaced,
                started_at=self._started_at,
                ended_at=ended_at,
                duration_s=round(lasted, 6),
                origin=self.spec.origin,
                device=self.spec.device,
                hardware={"nodes": {node: one["before"].get("hardware") for node, one in told.items()}},
                environment={
                    "nodes": {node: one["before"].get("software") for node, one in told.items()},
                    "env": shown_environment(self.spec.env),
                },
                snapshots={when: machine_reports.snapshots(told, when) for when in ("before", "after")},
                raw_dir=f"raw/{self._raw_dir.name}",
                raw_files=tuple(digest_files(self._raw_dir)),
            )

        self._ending = record

    def _step_ending(self) -> None:
        """Write the record when every worker has said its last, or has had the time to."""
        there = machine_reports.all_reported(self.site.evidence, self.spec.launch_id, self.attempt, self.placed.nodes)
        if there or time.monotonic() - self._since["ending"] > _LAST_WORDS_S:
            self.conclude()

    def conclude(self) -> None:
        """Write the record of a command that has ended, with what the workers have said by now."""
        if self._ending is None or self.done:
            return
        self.record = self._ending(
            machine_reports.read_reports(self.site.evidence, self.spec.launch_id, self.attempt, self.placed.nodes)
        )
        self._write(self.record)

    def _write(self, record: RunRecord) -> None:
        with contextlib.suppress(OSError):  # the record stands in the pod's log then
            write_record(record, self.site.evidence)

    def delete_job(self) -> None:
        """Have the Job removed with its pods, whenever the API does it."""
        if self._job:
            self.site.sweeper.add(f"{self.site.jobs}/{self._job}")
