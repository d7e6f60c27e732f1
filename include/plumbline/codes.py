"""Kinds of verdicts and the one closed list of reasons. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class VerdictKind(StrEnum):
    """The judgement on one item, in display order; see validation/gate.py for what each does to the gate."""

    PASS = "PASS"  # noqa: S105 - a verdict
    WAIVED = "WAIVED"
    WARN = "WARN"
    NOT_RUN = "NOT_RUN"
    STALE = "STALE"
    INVALID = "INVALID"
    FAIL = "FAIL"


class Code(StrEnum):
    """Why a verdict was given: the one closed list. KINDS_OF_CODE says which kinds may carry which code."""

    # PASS
    OK = "ok"
    EXPECTED_FINDING = "expected_finding"
    # WARN
    NO_BASELINE = "no_baseline"
    NEAR_LIMIT = "near_limit"
    PAGE_CACHE = "page_cache"
    GPU_STATE_UNKNOWN = "gpu_state_unknown"
    WAIVER_UNUSED = "waiver_unused"
    WAIVER_EXPIRED = "waiver_expired"
    # FAIL: the cluster's doing
    OUTSIDE_REFERENCE = "outside_reference"
    WORSE_THAN_BASELINE = "worse_than_baseline"
    WORSE_THAN_PEERS = "worse_than_peers"
    WRONG_RESULT = "wrong_result"
    RESIDUAL_FAILED = "residual_failed"
    NOT_CONVERGED = "not_converged"
    CHECKPOINT_DIFFERS = "checkpoint_differs"
    BENCHMARK_FAILED = "benchmark_failed"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    STORAGE_UNAVAILABLE = "storage_unavailable"
    THROTTLED = "throttled"
    WRONG_TRANSPORT = "wrong_transport"
    MISSING_GPU = "missing_gpu"
    MISSING_RANK = "missing_rank"
    WRONG_LINK_WIDTH = "wrong_link_width"
    DIAGNOSTIC_FAILED = "diagnostic_failed"
    COVERAGE = "coverage"
    # INVALID: the measurement's doing
    IMPOSSIBLE_VALUE = "impossible_value"
    ABOVE_CEILING = "above_ceiling"
    NOT_A_NUMBER = "not_a_number"
    UNREADABLE = "unreadable"
    INCOMPLETE_OUTPUT = "incomplete_output"
    ABORTED = "aborted"
    COMPLETENESS_UNKNOWN = "completeness_unknown"
    WRONG_PARAMETERS = "wrong_parameters"
    WRONG_VERSION = "wrong_version"
    WRONG_UNIT = "wrong_unit"
    WRONG_HOST = "wrong_host"
    WRONG_HARDWARE = "wrong_hardware"
    WRONG_CLUSTER = "wrong_cluster"
    OLD_OUTPUT = "old_output"
    CLOCK_SKEW = "clock_skew"
    DUPLICATE = "duplicate"
    UNPLANNED = "unplanned"
    SCHEMA = "schema"
    EVIDENCE_CHANGED = "evidence_changed"
    NO_LIMITS = "no_limits"
    JUDGE_ERROR = "judge_error"
    UNEXPECTED_FINDING = "unexpected_finding"
    # NOT_RUN
    NO_RECORD = "no_record"
    NO_MEASUREMENT = "no_measurement"
    BUSY = "busy"
    PREEMPTED = "preempted"
    EXCLUDED = "excluded"
    UNREACHABLE_SCALE = "unreachable_scale"
    UNSCHEDULABLE = "unschedulable"
    IMAGE_PULL = "image_pull"
    NODE_LOST = "node_lost"
    NODE_NOT_READY = "node_not_ready"
    EVICTED = "evicted"
    QUOTA = "quota"
    BUDGET = "budget"
    STOPPED = "stopped"
    INFRASTRUCTURE = "infrastructure"
    REPLACED = "replaced"
    # STALE
    TOO_OLD = "too_old"
    # WAIVED
    WAIVED = "waived"


_NOT_RUN_CODES = (
    Code.NO_RECORD, Code.NO_MEASUREMENT, Code.BUSY, Code.PREEMPTED, Code.EXCLUDED, Code.UNREACHABLE_SCALE,
    Code.UNSCHEDULABLE, Code.IMAGE_PULL, Code.NODE_LOST, Code.NODE_NOT_READY, Code.EVICTED, Code.QUOTA,
    Code.BUDGET, Code.STOPPED, Code.INFRASTRUCTURE, Code.REPLACED,
)  # fmt: skip
_WARN_CODES = (
    Code.NO_BASELINE, Code.NEAR_LIMIT, Code.PAGE_CACHE, Code.GPU_STATE_UNKNOWN, Code.WAIVER_UNUSED,
    Code.WAIVER_EXPIRED,
)  # fmt: skip
_FAIL_CODES = (
    Code.OUTSIDE_REFERENCE, Code.WORSE_THAN_BASELINE, Code.WORSE_THAN_PEERS, Code.WRONG_RESULT,
    Code.RESIDUAL_FAILED, Code.NOT_CONVERGED, Code.CHECKPOINT_DIFFERS, Code.BENCHMARK_FAILED, Code.TIMEOUT,
    Code.OUT_OF_MEMORY, Code.STORAGE_UNAVAILABLE, Code.THROTTLED, Code.WRONG_TRANSPORT, Code.MISSING_GPU,
    Code.MISSING_RANK, Code.WRONG_LINK_WIDTH, Code.DIAGNOSTIC_FAILED, Code.COVERAGE,
)  # fmt: skip

KIND_OF_CODE: Mapping[Code, VerdictKind] = {
    Code.OK: VerdictKind.PASS,
    Code.EXPECTED_FINDING: VerdictKind.PASS,
    **dict.fromkeys(_WARN_CODES, VerdictKind.WARN),
    **dict.fromkeys(_FAIL_CODES, VerdictKind.FAIL),
    **dict.fromkeys(_NOT_RUN_CODES, VerdictKind.NOT_RUN),
    Code.TOO_OLD: VerdictKind.STALE,
    Code.WAIVED: VerdictKind.WAIVED,
    **{
        code: VerdictKind.INVALID
        for code in Code
        if code
        not in (Code.OK, Code.EXPECTED_FINDING, Code.TOO_OLD, Code.WAIVED, *_WARN_CODES, *_FAIL_CODES, *_NOT_RUN_CODES)
    },
}
"""The one kind that each code belongs to."""
