"""The launcher of a batch: owns the GPU workers of all its groups, and leaves one record for each launch.

    python -m plumbline.kubernetes.gang --evidence DIR --batch ID

Runs in a pod without GPUs, with the standard library and, where groups have several nodes, ssh and mpirun. What has an
answer already is not run again, so a launcher that was lost is simply started anew. Groups of a round run at the same
time; a worker that can't start ends its group at once, and no other. Exits 0 when every launch has a record, whatever
it says; failing to clean up never changes that, since owner references and deadlines clean up as well.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plumbline.amounts import node_list
from plumbline.execution.pods import PREFIX, rounds, selector
from plumbline.execution.run_one import AttemptTakenError, raise_stop
from plumbline.kubernetes import diagnosis, elsewhere, files, ssh
from plumbline.kubernetes.api import Api, ApiError, in_cluster
from plumbline.kubernetes.launches import Launch
from plumbline.kubernetes.mirror import Mirror
from plumbline.kubernetes.site import STARTS_A_TICK, Site
from plumbline.kubernetes.sweeping import Sweeper, keep_beating
from plumbline.model import Code, LaunchSpec

TICK_S = 0.2
MOST_PER_S = 16.0
"""Requests to the API, which others need too."""
_JOBS_A_TICK = 4
NO_RECORD, TAKEN = 70, 76
_CLEANUP_S = 60.0
_LAST_WORDS_S = 8.0
Pods = Mapping[tuple[str, str], list[Mapping[str, Any]]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the batch; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--evidence", type=Path, required=True, help="the run's evidence directory")
    parser.add_argument("--batch", required=True, help="one of the plan's batches")
    options = parser.parse_args(arguments)
    specs = files.without_answer(options.evidence, files.read_batch(options.evidence, options.batch))
    if not specs:
        say("every launch of this batch has an answer already")
        return 0
    profile = files.read_profile(options.evidence)
    api = Api(in_cluster(), patience_s=profile["kubernetes"]["waits"]["outage_s"], most_per_s=MOST_PER_S)
    site = Site(
        api=api,
        sweeper=Sweeper(api),
        profile=profile,
        batch_id=options.batch,
        evidence=options.evidence,
        owner=(os.environ["PLUMBLINE_POD"], os.environ["PLUMBLINE_POD_UID"]),
    )
    signal.signal(signal.SIGTERM, raise_stop)
    return Gang(site).run(specs)


def say(text: str) -> None:
    """Report one step in the pod's log."""
    print(text, flush=True)


class Gang:
    """All launches of one batch, round after round."""

    def __init__(self, site: Site) -> None:
        """Prepare; nothing is asked yet."""
        self.site = site
        namespace = site.settings["namespace"]
        run_id = site.evidence.parent.name
        self.mirror = Mirror(site.api, f"/api/v1/namespaces/{namespace}/pods", selector(run_id, site.batch_id))
        self.launches: list[Launch] = []
        self._replaced: dict[str, dict[str, str]] = {}
        """Nodes that stand in for planned ones, by launch: {planned: substitute}."""

    def run(self, specs: Sequence[LaunchSpec]) -> int:
        """Run the launches; give the exit code."""
        waits = self.site.settings["waits"]
        self.mirror.start()
        try:
            self.mirror.wait_listed(waits["outage_s"])
            if (other := self._older_launcher()) is not None:
                say(f"launcher {other} runs this batch: leaving it alone")
                return TAKEN
            keep_beating(self.site.evidence, self.site.owner[1], waits["orphan_s"])
            specs = self._without_held(specs)
            for _ in range(1 + self.site.settings["retries"]):
                for group in rounds(specs):
                    self._run_round(group)
                specs = self._worth_another_try(specs)
        except (SystemExit, KeyboardInterrupt):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            say("asked to stop: ending every launch")
            self._stop_all("the launcher was asked to stop")
        except AttemptTakenError as error:
            self._stop_all("another launcher runs this batch")
            say(f"{error}: another launcher runs this batch")
            return TAKEN
        finally:
            self._clean_up()
        missing = [one.spec.launch_id for one in self.launches if not self._on_disk(one)]
        if missing:
            say(f"no record could be written of {node_list(missing, 5)}")
        return NO_RECORD if missing else 0

    def _older_launcher(self) -> str | None:
        """Name another launcher of this batch that lives and was there first.

        The API gives every pod its time, in whole seconds: of two of one second the one that has begun was first.
        """
        others = {pod["metadata"]["uid"]: pod for pod in self.mirror.objects() if not _is_worker(pod)}
        own = others.pop(self.site.owner[1], None)
        for pod in others.values():
            metadata = pod["metadata"]
            alive = not diagnosis.ended(pod) and not metadata.get("deletionTimestamp")
            if alive and (own is None or self._age_order(pod) < self._age_order(own)):
                return str(metadata["name"])
        return None

    def _age_order(self, pod: Mapping[str, Any]) -> tuple[str, bool, str]:
        created, uid = str(pod["metadata"]["creationTimestamp"]), str(pod["metadata"]["uid"])
        return created, not files.has_beaten(self.site.evidence, uid), uid

    def _without_held(self, specs: Sequence[LaunchSpec]) -> list[LaunchSpec]:
        """Remove workers of an earlier launcher of this batch; leave out launches whose nodes still have one.

        A worker that can't be removed may still run on a node that doesn't answer: nothing is started beside it.
        """
        waits = self.site.settings["waits"]
        end = time.monotonic() + waits["orphan_s"] + waits["grace_s"] + 30
        while (held := self._foreign_nodes()) and time.monotonic() < end:
            self._remove_foreign_jobs()
            time.sleep(1)
        free = []
        for spec in files.without_answer(self.site.evidence, specs):  # workers may have finished meanwhile
            on = sorted(held & set(spec.nodes))
            if on:
                reason = f"node {on[0]}: a worker of an earlier launcher is still on it and can't be removed"
                files.record_fault(spec, self.site.evidence, Code.NODE_LOST, reason)
            else:
                free.append(spec)
        return free

    def _foreign_nodes(self) -> set[str]:
        """Give the nodes on which workers of this batch live before this launcher has made any."""
        workers = [pod for pod in self.mirror.objects() if _is_worker(pod)]
        return {node for pod in workers if not diagnosis.ended(pod) and (node := diagnosis.node_of(pod))}

    def _remove_foreign_jobs(self) -> None:
        query = {"labelSelector": selector(self.site.evidence.parent.name, self.site.batch_id)}
        try:
            for job in self.site.api.list(self.site.jobs, query, patience_s=0)[0]:
                self.site.api.delete(f"{self.site.jobs}/{job['metadata']['name']}", patience_s=0)
        except ApiError as error:
            say(f"workers of an earlier launcher can't be removed: {error}")

    # -- a round ----------------------------------------------------------------------------------------------------

    def _run_round(self, specs: Sequence[LaunchSpec]) -> None:
        """Run launches that share no node, all at once, to their records."""
        pending = [
            Launch(
                site=self.site,
                spec=spec,
                attempt=files.next_attempt(self.site.evidence, spec.launch_id),
                replaced=self._replaced.get(spec.launch_id, {}),
            )
            for spec in specs
        ]
        self.launches += pending
        active: list[Launch] = []
        while pending or active:
            active += self._start_some(pending)
            self.site.starts_left = STARTS_A_TICK
            there, gone = _by_launch(self.mirror.objects()), _by_launch(self.mirror.gone())
            for launch in active:
                key = (launch.spec.launch_id, str(launch.attempt))
                launch.step(there.get(key, []), gone.get(key, []), outage=self.mirror.outage)
            for launch in (one for one in active if one.done):
                launch.delete_job()
                _tell(launch)
            active = [launch for launch in active if not launch.done]
            time.sleep(TICK_S)

    def _start_some(self, pending: list[Launch]) -> list[Launch]:
        """Start a few of the launches that wait, in order; give them. An API that doesn't answer is asked later."""
        started = []
        for launch in pending[:_JOBS_A_TICK]:
            try:
                launch.start()
            except ApiError as error:
                if error.outage and launch.tried_s < self.site.settings["waits"]["outage_s"]:
                    time.sleep(error.retry_after_s)
                    break
                code = Code.QUOTA if error.status == 403 and "quota" in str(error) else Code.INFRASTRUCTURE
                launch.fail(code, str(error))
                _tell(launch)
            except ssh.NoKeysError as error:
                launch.fail(Code.INFRASTRUCTURE, str(error))
                _tell(launch)
            else:
                started.append(launch)
                stand_in = ", ".join(f"{new} in place of {old}" for old, new in launch.replaced.items())
                say(f"{launch.spec.launch_id}: {len(launch.spec.nodes)} workers asked for{stand_in and ': '}{stand_in}")
            pending.remove(launch)
        return started

    def _worth_another_try(self, specs: Iterable[LaunchSpec]) -> list[LaunchSpec]:
        """Give the launches that infrastructure stopped in a way that may be gone by now. Never a low number.

        Nodes that were to blame are left out where others of the inventory are free by now.
        """
        last = {launch.spec.launch_id: launch for launch in self.launches}
        again = [
            launch for spec in specs
            if (launch := last.get(spec.launch_id)) is not None
            and launch.record is not None and launch.record.code in diagnosis.TRANSIENT
        ]  # fmt: skip
        bad = {launch.blamed for launch in self.launches if launch.blamed is not None}
        retries = [elsewhere.Retry(spec=one.spec, replaced=one.replaced, blamed=one.blamed) for one in again]
        self._replaced |= elsewhere.substitutes(files.read_inventory(self.site.evidence), retries, bad) if again else {}
        return [launch.spec for launch in again]

    # -- the end ----------------------------------------------------------------------------------------------------

    def _stop_all(self, reason: str) -> None:
        """End what runs: workers first, so that those which write their own records can."""
        for launch in self.launches:
            launch.conclude()
            launch.stop_command()
            launch.delete_job()
        end = time.monotonic() + _LAST_WORDS_S
        while any(not one.recorded_by_worker() for one in self.launches) and time.monotonic() < end:
            time.sleep(TICK_S)
        for launch in self.launches:
            if not launch.done:
                launch.fail(Code.STOPPED, reason)

    def _clean_up(self) -> None:
        """Remove what is left, for a minute at most. What stays goes with this pod: it is owned by it."""
        for launch in self.launches:
            launch.delete_job()
        for path in self.site.sweeper.drain(_CLEANUP_S):
            say(f"{path} stays until this pod is removed")
        self.mirror.stop()

    def _on_disk(self, launch: Launch) -> bool:
        return bool(files.records_of(self.site.evidence, launch.spec.launch_id))


def _tell(launch: Launch) -> None:
    if (record := launch.record) is not None:
        say(f"{record.launch_id}: {record.outcome.value} {record.code or ''} {record.reason}".rstrip())


def _is_worker(pod: Mapping[str, Any]) -> bool:
    return PREFIX + "launch" in (pod["metadata"].get("labels") or {})


def _by_launch(found: Iterable[Mapping[str, Any]]) -> Pods:
    """Sort pods by (launch id, attempt); others are left out."""
    sorted_pods: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for pod in found:
        labels = pod["metadata"].get("labels") or {}
        if PREFIX + "launch" in labels:
            sorted_pods[labels[PREFIX + "launch"], labels[PREFIX + "attempt"]].append(pod)
    return sorted_pods


if __name__ == "__main__":
    sys.exit(main())
