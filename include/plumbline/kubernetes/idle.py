"""Whether this node's GPUs are idle and cool: what else runs on them, or ran just now, would be measured too.

Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from plumbline.execution.environment import snapshot

_LOOK_S = 5.0


def wait_until_idle(
    limits: Mapping[str, Any], look: Callable[[], dict[str, Any]] = snapshot, *, every_s: float = _LOOK_S
) -> str | None:
    """Wait until the GPUs are idle and cool; give None, or in words what still is not so after `wait_s`.

    `limits` is the profile's kubernetes.idle. A machine that tells nothing of GPUs is taken as idle.
    """
    end = time.monotonic() + float(limits["wait_s"])
    while (trouble := _trouble(look(), limits)) is not None:
        if time.monotonic() >= end:
            return f"{trouble} after {limits['wait_s']} s of waiting"
        time.sleep(every_s)
    return None


def _trouble(now: Mapping[str, Any], limits: Mapping[str, Any]) -> str | None:
    for gpu in now.get("gpus") or ():
        for key, limit, unit in (
            ("utilization.gpu", limits["utilization_percent"], "% busy"),
            ("temperature.gpu", limits["temperature_degc"], " °C"),
        ):
            value = _number(gpu.get(key))
            if limit is not None and value is not None and value > limit:
                return f"GPU {gpu.get('index', '?')} is at {value:g}{unit} (limit {limit:g})"
    return None


def _number(text: Any) -> float | None:
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
