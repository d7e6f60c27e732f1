"""Outputs of fio: recorded ones, a document to change, a report of fio 2, and what is read of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.readers.infra_outputs import Outcome, outcome

from plumbline.readers import fio

DATA = Path(__file__).parents[1] / "data" / "fio"
RECORDED = sorted(DATA.iterdir())


class Output(Outcome):
    """All that is read of one output."""

    def __init__(self, data: bytes | str, **expect: Any) -> None:
        found = outcome(fio, data, expect)
        super().__init__(found.readings, found.facts, found.end)

    def rows(self, without: Collection[str] = ("instance",)) -> Counter[tuple[Any, ...]]:
        """Give the readings without `instance`, which a lone first entry does not have yet."""
        return super().rows(without)


def recorded(name: str) -> bytes:
    return (DATA / name).read_bytes()


def document(**direction: Any) -> dict[str, Any]:
    """A small fio 3 document with one read job."""
    data = {
        "io_bytes": 1 << 30, "io_kbytes": 1 << 20, "bw_bytes": 107374182, "bw": 104857, "iops": 102.4,
        "runtime": 10000, "total_ios": 1024,
        "clat_ns": {"max": 9000, "mean": 4000.0, "N": 1024, "percentile": {"50.000000": 3000, "99.000000": 8000}},
        **direction,
    }  # fmt: skip
    return {
        "fio version": "fio-3.36",
        "timestamp_ms": 1_700_000_000_123,
        "jobs": [{"jobname": "job", "groupid": 0, "error": 0, "job options": {"rw": "read", "bs": "1M"}, "read": data}],
    }


def text_of(doc: Any) -> str:
    return json.dumps(doc, indent=2)


OLD_TEXT = """\
old: (g=0): rw=randrw, bs=4K-4K/4K-4K/4K-4K, ioengine=libaio, iodepth=64
fio-2.1.11
Starting 1 process

old: (groupid=0, jobs=1): err= 0: pid=1234: Sat Feb  2 17:40:10 2019
  read : io=784996KB, bw=133662KB/s, iops=33415 , runt=  5873msec
    slat (usec): min=2, max=372 , avg= 3.10, stdev= 1.00
    clat (msec): min=1, max=9 , avg= 2.50, stdev= 0.25
    clat percentiles (usec):
     |  1.00th=[  900], 50.00th=[ 2400], 99.00th=[ 4192],
     | 99.99th=[ 8000]
    bw (KB  /s): min=130000, max=140000, per=100.00%, avg=133662.00, stdev=100.00
  write: io=1.5GB, bw=44.5MB/s, iops=11.2K, runt= 35000msec
    lat (usec) : 100=0.01%, 250=0.01%
  cpu          : usr=6.56%, sys=23.11%, ctx=266267, majf=0, minf=8

Run status group 0 (all jobs):
   READ: io=784996KB, aggrb=133661KB/s, minb=133661KB/s, maxb=133661KB/s, mint=5873msec, maxt=5873msec
  WRITE: io=1.5GB, aggrb=44.5MB/s, minb=44.5MB/s, maxb=44.5MB/s, mint=35000msec, maxt=35000msec
"""
