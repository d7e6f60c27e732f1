"""What a made-up run is like, and its numbers: plausible, scattered by one per cent, and all of them invented."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from plumbline.model import Device, LaunchSpec, Origin, Verdict

STAMP = "TEST DATA, invented numbers"
SIZES = tuple(1 << n for n in range(13, 31, 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """One made-up row before it becomes a Measurement: what, how much, and its limits as fractions of the value."""

    indicator: str
    value: float
    unit: str
    params: Mapping[str, Any] = field(default_factory=dict)
    node: str | None = None
    lower: float | None = None
    upper: float | None = None
    expected: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What the made-up run is like. `speed` multiplies the rates of one benchmark; `slow_nodes` those of one node."""

    cluster: str = "local"
    suite: str = "nightly"
    nodes: int = 4
    when: datetime = datetime(2026, 3, 1, 2, 0, tzinfo=UTC)
    device: Device = Device.CPU
    origin: Origin = Origin.MEASURED
    repeats: int = 1
    seed: int = 1
    speed: Mapping[str, float] = field(default_factory=dict)
    slow_nodes: Mapping[str, float] = field(default_factory=dict)
    excluded: Mapping[str, str] = field(default_factory=dict)
    missing_launches: Sequence[str] = ()
    failing_launches: Mapping[str, str] = field(default_factory=dict)
    kernel: str = "6.1.0-test"
    version: str = "1"
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    omitted: Sequence[str] = ()
    extra: Sequence[Verdict] = ()
    invalid: Sequence[str] = ()
    """Launches whose rows are judged INVALID."""
    asked: Sequence[Mapping[str, Any]] = ()
    """What was asked for otherwise than the suite says."""
    references: str = ""
    """Hardware whose shipped references are sealed with the run; without it there are none."""

    @property
    def run_id(self) -> str:
        """A run id that depends on time and seed only."""
        return f"{self.when.strftime('%Y%m%dT%H%M%SZ')}-{self.seed:06x}"


def make(chosen: Scenario, spec: LaunchSpec) -> Iterator[Made]:
    """Make the numbers of one launch: rates fall with size and scale the way real ones do, with 1 % scatter."""
    rng = random.Random(f"{chosen.seed}/{spec.launch_id}")
    slowest = min((chosen.slow_nodes.get(node, 1.0) for node in spec.nodes), default=1.0)
    rate = chosen.speed.get(spec.benchmark, 1.0) * slowest
    big = 40.0 if chosen.device is Device.GPU else 1.0

    def about(value: float) -> float:
        return value * rng.gauss(1.0, 0.01)

    if spec.benchmark == "fio":
        for direction, bandwidth, iops in (("read", 2100.0, 52_000.0), ("write", 1400.0, 31_000.0)):
            shape = {"bs": "1M", "clients": 2}
            top = bandwidth * big
            yield Made(indicator=f"{direction}_bandwidth", value=about(top * rate), unit="MB/s", params=shape,
                       lower=top * 0.8, expected=top)  # fmt: skip
            shape = {"bs": "4k", "clients": 2, "iodepth": 16}
            yield Made(indicator=f"{direction}_iops", value=about(iops * rate), unit="IOPS", params=shape,
                       lower=iops * 0.7, expected=iops)  # fmt: skip
            wait = 32e6 / iops
            yield Made(indicator=f"{direction}_latency_p99", value=about(wait / rate), unit="us", params=shape,
                       upper=wait * 1.4, expected=wait)  # fmt: skip
    elif spec.benchmark == "nccl_tests":
        for operation in ("all_reduce", "all_gather"):
            yield from _collective(spec, operation, rate, big, about)
    elif spec.benchmark == "hpl_mxp":
        top, shape = 21_000.0 * big if big > 1 else 210.0, {"precision": "bf16"}
        yield Made(indicator="effective_flops", value=about(top * rate), unit="GFLOPS", params=shape,
                   lower=top * 0.9, expected=top)  # fmt: skip
        yield Made(indicator="residual", value=abs(about(3.1e-3)), unit="1", params=shape, upper=16.0)
    else:
        good, shape = 0.82 * (1 + 0.06 * math.log2(spec.node_count)), {"mode": "fixed_steps"}
        tokens = 1025.0 * big / good
        yield Made(indicator="step_time", value=about(good / rate), unit="s", params=shape, upper=good * 1.3,
                   expected=good)  # fmt: skip
        yield Made(indicator="tokens_per_s_per_gpu", value=about(tokens * rate), unit="tokens/s", params=shape,
                   lower=tokens * 0.85, expected=tokens)  # fmt: skip


def _collective(spec: LaunchSpec, operation: str, rate: float, big: float, about: Any) -> Iterator[Made]:
    top = 9.5 * big * (1.0 if operation == "all_reduce" else 0.92) / (1 + 0.08 * math.log2(spec.node_count))
    for size in SIZES:
        good = top * size / (size + 4e6)
        params = {"operation": operation, "message_bytes": size}
        yield Made(indicator="bus_bandwidth", value=about(good * rate), unit="GB/s", params=params,
                   lower=good * 0.8, expected=good)  # fmt: skip
    params = {"operation": operation, "message_bytes": 8 << 30}
    yield Made(indicator="bus_bandwidth_headline", value=about(top * 0.99 * rate), unit="GB/s", params=params,
               lower=top * 0.85, expected=top * 0.99)  # fmt: skip
    delay = 21 + 4 * math.log2(spec.node_count)
    yield Made(indicator="latency_smallest", value=about(delay), unit="us", upper=120.0,
               params={"operation": operation, "message_bytes": SIZES[0]})  # fmt: skip
