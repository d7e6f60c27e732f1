"""For every code of a verdict: what it is called, and what a person does about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plumbline.model import Code


@dataclass(frozen=True, slots=True)
class Advice:
    """`label` ends the sentence 'the problem is: …'; `action` starts with a verb, {run_id} in it is the run's."""

    label: str
    action: str


ADVICE: Mapping[Code, Advice] = {
    Code.OK: Advice("none", "Do nothing."),
    # WARN
    Code.NO_BASELINE: Advice(
        "no approved history to compare with",
        "Look the figures over and, when they are this cluster's normal, approve the run: "
        "plumbline approve {run_id} --by NAME.",
    ),
    Code.NEAR_LIMIT: Advice(
        "beyond a warning limit", "Look at the trend; take the component out for a check at the next maintenance."
    ),
    Code.PAGE_CACHE: Advice(
        "the page cache took part", "Read it as memory speed; use a file system with direct I/O to measure the storage."
    ),
    Code.GPU_STATE_UNKNOWN: Advice(
        "GPUs that don't tell their state",
        "Run nvidia-smi there by hand; nobody knows whether these numbers are those of a throttled GPU.",
    ),
    Code.WAIVER_UNUSED: Advice("waived, and passing", "Remove the waiver: what it excuses is over."),
    Code.WAIVER_EXPIRED: Advice("covered by an expired waiver", "Repair the component, or renew the waiver."),
    Code.EXPECTED_FINDING: Advice(
        "a known limit of the reduced-size proxy", "Do nothing: the benchmark lists it among the findings it expects."
    ),
    # FAIL
    Code.OUTSIDE_REFERENCE: Advice(
        "outside the reference for this hardware",
        "Repeat on the same nodes; if it stays, take the component out of service and compare clocks, power, link "
        "widths and error counters with a good one.",
    ),
    Code.WORSE_THAN_BASELINE: Advice(
        "worse than this cluster's own history",
        "Look at what changed since the last good run (driver, firmware, kernel, images), then at the component.",
    ),
    Code.WORSE_THAN_PEERS: Advice(
        "worse than its peers in this run", "Swap the component's cable, slot or node and see whether the fault moves."
    ),
    Code.WRONG_RESULT: Advice(
        "a wrong result", "Take the nodes out of service now: they compute or transfer wrong data. Run diagnostics."
    ),
    Code.RESIDUAL_FAILED: Advice(
        "a solution that is not accurate enough", "Take the node out of service and run memory and GPU diagnostics."
    ),
    Code.NOT_CONVERGED: Advice(
        "training that did not reach its target", "Read the loss curve in the raw log; repeat on other nodes."
    ),
    Code.CHECKPOINT_DIFFERS: Advice(
        "a checkpoint that came back changed", "Stop writing checkpoints there; check the file system and the memory."
    ),
    Code.BENCHMARK_FAILED: Advice("a benchmark that ended in an error", "Read the end of its stderr, linked below."),
    Code.TIMEOUT: Advice(
        "a launch that did not end in time", "Look for a hung rank or a stalled file system; see the raw output's end."
    ),
    Code.OUT_OF_MEMORY: Advice(
        "out of memory", "Check for other processes on the node and the pod's limits; then reduce the problem size."
    ),
    Code.STORAGE_UNAVAILABLE: Advice(
        "storage that can't be used", "Check the mount, its permissions and its free space on the named nodes."
    ),
    Code.THROTTLED: Advice(
        "throttled clocks", "Check cooling, power caps and the power supply of the named node or GPU."
    ),
    Code.WRONG_TRANSPORT: Advice(
        "another transport than the fabric's", "Check the NICs, the RDMA devices in the pods and NCCL's plugin."
    ),
    Code.MISSING_GPU: Advice(
        "missing GPUs", "Look for Xid errors and reseat or replace the GPU that fell off the bus."
    ),
    Code.MISSING_RANK: Advice("missing ranks", "Check that every node of the group started its processes."),
    Code.WRONG_LINK_WIDTH: Advice(
        "a link narrower than its slot", "Reseat the card or cable; replace the riser if the width stays down."
    ),
    Code.DIAGNOSTIC_FAILED: Advice("a failed diagnostic", "Open a repair ticket with the diagnostic's output."),
    Code.COVERAGE: Advice("too little of the inventory measured", "See what was not covered, and why."),
    # INVALID
    Code.IMPOSSIBLE_VALUE: Advice(
        "a value that physics doesn't allow", "Distrust the measurement: check tool version, units and clocks."
    ),
    Code.ABOVE_CEILING: Advice(
        "a value above the physical ceiling", "Check the profile's link rates and the algorithm that NCCL used."
    ),
    Code.NOT_A_NUMBER: Advice("not a number", "Read the raw output: the tool printed no number there."),
    Code.UNREADABLE: Advice("output that can't be read", "Read the raw output; report the format if the tool is fine."),
    Code.INCOMPLETE_OUTPUT: Advice("output that stops too early", "See why the launch ended before its output did."),
    Code.ABORTED: Advice("a run that the tool itself aborted", "Read the tool's reason in the raw output."),
    Code.COMPLETENESS_UNKNOWN: Advice(
        "output whose completeness nobody can tell",
        "State the expectation in the benchmark, or use a format with an end.",
    ),
    Code.WRONG_PARAMETERS: Advice("other parameters than asked", "Check image and wrapper scripts for overrides."),
    Code.WRONG_VERSION: Advice("another version than planned", "Check the image: the tool is not the planned one."),
    Code.WRONG_UNIT: Advice("another unit than the indicator's", "Report it: reader and indicator disagree."),
    Code.WRONG_HOST: Advice("output of another host", "Check how the launch was placed and what the volume holds."),
    Code.WRONG_HARDWARE: Advice(
        "other hardware than the profile says", "Update the profile after a repair, or correct the placement."
    ),
    Code.WRONG_CLUSTER: Advice("output of another cluster", "Check which results volume is mounted."),
    Code.OLD_OUTPUT: Advice("output older than the run", "Look for files that an earlier run left behind."),
    Code.CLOCK_SKEW: Advice("clocks that disagree", "Check time synchronisation on the named nodes."),
    Code.DUPLICATE: Advice("the same value twice", "Read the raw output: neither of the two counts."),
    Code.UNPLANNED: Advice("a result that nobody planned", "Find out who wrote into this run's directory."),
    Code.SCHEMA: Advice("rows that break the schema", "Report it with the run directory: this is a defect."),
    Code.EVIDENCE_CHANGED: Advice(
        "evidence that was changed after the seal", "Run plumbline verify and find out who changed the named files."
    ),
    Code.NO_LIMITS: Advice("no limits to judge by", "Add references for this hardware, or approve a run as baseline."),
    Code.JUDGE_ERROR: Advice("an error while judging", "Report it with the run directory: this is a defect."),
    Code.UNEXPECTED_FINDING: Advice(
        "a finding that the benchmark does not expect", "Read the finding; the run can't be taken for what it claims."
    ),
    # NOT_RUN
    Code.NO_RECORD: Advice("a launch that left no record", "See the launcher's log of that time, and repeat the run."),
    Code.NO_MEASUREMENT: Advice("a value that is missing", "Read the launch's raw output."),
    Code.BUSY: Advice("nodes in use by others", "Wait: the place is stale after the suite's allowed nights."),
    Code.PREEMPTED: Advice("launches pushed aside by other work", "Repeat when the cluster is quieter."),
    Code.EXCLUDED: Advice("left out on purpose", "See to it that the exclusion ends on its date."),
    Code.UNREACHABLE_SCALE: Advice(
        "more nodes than can be measured", "Bring the missing nodes back, or ask for fewer."
    ),
    Code.UNSCHEDULABLE: Advice("pods that found no place", "Compare what the pods ask for with what the nodes offer."),
    Code.IMAGE_PULL: Advice("an image that can't be pulled", "Check its name, the registry and the pull secret."),
    Code.NODE_LOST: Advice("a node lost in mid-run", "Check the node's health and its kernel log."),
    Code.NODE_NOT_READY: Advice("a node that is not ready", "Check kubelet and network of the node."),
    Code.EVICTED: Advice("an evicted pod", "See why the node was under pressure."),
    Code.QUOTA: Advice("a quota that is used up", "Raise the namespace's quota, or run fewer nodes at once."),
    Code.BUDGET: Advice("beyond the run's budget", "Raise the limit in the profile, or wait for the rotation."),
    Code.STOPPED: Advice("a launch stopped from outside", "Repeat the run."),
    Code.INFRASTRUCTURE: Advice("an infrastructure fault", "See the launcher's log, and repeat the run."),
    Code.REPLACED: Advice(
        "a node that was replaced for a retry", "Check the node that was replaced; it was not measured."
    ),
    # STALE, WAIVED
    Code.TOO_OLD: Advice(
        "not measured for too many nights", "Free the node for one night, or run the suite on it by hand."
    ),
    Code.WAIVED: Advice("excused by a waiver", "See to it that the waiver ends on its date."),
}


def advice(code: str) -> Advice:
    """Give the advice for a code; one that a later version wrote is named as it is."""
    try:
        return ADVICE[Code(code)]
    except ValueError:
        return Advice(code.replace("_", " "), "See the message.")
