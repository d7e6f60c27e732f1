"""fio's json+ report of one client, and its bandwidth log. Shape: fio 3.36, stat.c; only what one client fills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One client in one job: `ios` in `runtime_ms`, ended at epoch `ended_ms`."""

    job: str
    rw: str
    direction: str
    block_bytes: int
    block_size: str
    size: int
    iodepth: int
    ioengine: str
    runtime_s: float
    ramp_s: float
    ios: int
    runtime_ms: int
    ended_ms: int
    filename: str

    @property
    def moved_bytes(self) -> int:
        """How much it moved."""
        return self.ios * self.block_bytes

    @property
    def mean_latency_ns(self) -> float:
        """Mean completion latency by Little's law: the queue is always full."""
        return self.iodepth * self.runtime_ms * 1e6 / max(self.ios, 1)


_SHAPE = ((0.70, 0.10), (0.85, 0.20), (1.00, 0.30), (1.15, 0.20), (1.40, 0.15), (2.40, 0.05))
"""Latency ÷ mean and its share: a long right tail. Assumption."""


def moved_ios(rate: Any, block_bytes: int, runtime_ms: int, sequential: bool) -> Any:
    """Give the whole I/Os that a rate makes in the runtime, of one client or many; MB/s where sequential, else IOPS."""
    import numpy as np

    return np.rint((rate * 1e6 / block_bytes if sequential else rate) * runtime_ms / 1000)


def bins(ios: Any, iodepth: int, runtime_ms: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give the latency histogram of one client or many: buckets in nanoseconds and counts, [..., bins] each.

    The counts add up to the I/Os; the mean follows from Little's law, for the queue is always full.
    """
    import numpy as np

    ios = np.asarray(ios, float)
    part, share = (np.array(column) for column in zip(*_SHAPE, strict=True))
    counts = np.rint(ios[..., None] * share)
    counts[..., 2] += ios - counts.sum(axis=-1)
    mean = iodepth * runtime_ms * 1e6 / np.maximum(ios, 1)
    return bucket(mean[..., None] * part), counts


def bucket(latency_ns: Any) -> NDArray[Any]:
    """Give the value by which fio names the bucket of a latency: 64 buckets a power of two. Source: stat.c."""
    import numpy as np

    value = np.rint(latency_ns).astype(np.int64)
    bits = np.maximum(0, np.frexp(np.maximum(value, 1))[1] - 7)
    return np.asarray(((value >> bits) << bits) + ((1 << bits) >> 1))


def report(client: Client) -> str:
    """Print the report of `--output-format=json+`."""
    rate = client.moved_bytes / client.runtime_ms * 1000
    iops = client.ios / client.runtime_ms * 1000
    mean = client.mean_latency_ns
    buckets, counts = bins(client.ios, client.iodepth, client.runtime_ms)
    histogram = ", ".join(f'"{key}": {count:.0f}' for key, count in zip(buckets.tolist(), counts.tolist(), strict=True))
    return f"""{{
  "fio version": "fio-3.36",
  "simulated_by": "plumbline",
  "timestamp": {client.ended_ms // 1000},
  "timestamp_ms": {client.ended_ms},
  "time": "simulated",
  "jobs": [
    {{
      "jobname": "{client.job}",
      "groupid": 0,
      "job_start": {client.ended_ms - client.runtime_ms - round(client.ramp_s * 1000)},
      "error": 0,
      "eta": 0,
      "elapsed": {client.runtime_ms // 1000 + round(client.ramp_s) + 1},
      "job options": {{
        "name": "{client.job}", "filename": "{client.filename}",
        "rw": "{client.rw}", "bs": "{client.block_size}", "size": "{client.size}",
        "iodepth": "{client.iodepth}", "ioengine": "{client.ioengine}", "direct": "1",
        "runtime": "{client.runtime_s:g}", "ramp_time": "{client.ramp_s:g}", "time_based": "1"
      }},
      "{client.direction}": {{
        "io_bytes": {client.moved_bytes},
        "io_kbytes": {client.moved_bytes // 1024},
        "bw_bytes": {rate:.0f},
        "bw": {rate / 1024:.0f},
        "iops": {iops:.6f},
        "runtime": {client.runtime_ms},
        "total_ios": {client.ios},
        "short_ios": 0,
        "drop_ios": 0,
        "clat_ns": {{
          "min": {mean * 0.5:.0f}, "max": {mean * 4:.0f}, "mean": {mean:.6f}, "stddev": {mean * 0.3:.6f},
          "N": {client.ios}, "bins": {{ {histogram} }}
        }}
      }}
    }}
  ]
}}
"""


def bandwidth_log(client: Client) -> str:
    """Print the log of write_bw_log, 100 ms, epoch time: time, KiB/s, direction, block size, offset."""
    entries = client.runtime_ms // 100
    rate = round(client.moved_bytes / 1024 / client.runtime_ms * 1000)
    direction = 1 if client.direction == "write" else 0
    first = client.ended_ms - client.runtime_ms
    return "".join(f"{first + 100 * (i + 1)}, {rate}, {direction}, {client.block_bytes}, 0\n" for i in range(entries))
