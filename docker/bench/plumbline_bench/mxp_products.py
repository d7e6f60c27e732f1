"""How fast a device multiplies dense matrices in each precision, and which precision that speaks for."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
"""What the factors are stored and multiplied in. 16-bit products accumulate in FP32 wherever hardware has them."""


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Give the seconds that `work` takes on the device, queued work included."""
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - start


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that was queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def product_rate(precision: str, size: int, device: torch.device, seconds: float) -> float:
    """Give the best rate (operations a second) of square products: at least three, and for `seconds`."""
    kind = PRECISIONS[precision]
    a, b = ((torch.rand((size, size), device=device) - 0.5).to(kind) for _ in range(2))
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        times.append(timed(lambda: torch.mm(a, b), device))
    return 2.0 * size**3 / min(times)


def choose_precision(device: torch.device, size: int) -> str:
    """Give the precision whose products are fastest here; FP32 unless a 16-bit one gains at least 10 %."""
    rates = {name: product_rate(name, size, device, 0.2) for name in PRECISIONS}
    best = max(rates, key=lambda name: rates[name])
    return best if rates[best] > 1.1 * rates["fp32"] else "fp32"
