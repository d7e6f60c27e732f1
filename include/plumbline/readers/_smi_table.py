"""The boxed table that plain `nvidia-smi` prints: GPUs, MIG devices, processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from plumbline.model import Scalar
from plumbline.readers._quantities import quantity
from plumbline.readers.reading import Reading

_BANNER = re.compile(
    r"\| NVIDIA-SMI +(\S{3,20}) .{0,60}?(?:Driver|KMD) Version: +(\S{3,20})"
    r"(?: +.{0,40}?CUDA (?:UMD )?Version: +([\w./]{1,10}))?"
)
"""From driver 610 on: KMD Version, CUDA UMD Version."""
_MODE = r"(?:On|Off|N/A|WDDM|WDDM-\w{1,6}|TCC|MCDM|ERR!)"
_FIRST = re.compile(
    rf"\| {{0,4}}(?P<gpu>\d{{1,3}}) {{1,4}}(?P<name>\S.{{0,40}}?) {{1,30}}(?P<mode>{_MODE}) *\| *"
    rf"(?P<bus>[0-9A-Fa-f:.]{{7,16}}) +(?:On|Off|N/A|ERR!) *\| *(?P<ecc>\S{{1,12}}) *\|"
)
_WORD = r"(?:N/A|ERR!|\[?Unknown Error\]?|\[?N/A\]?)"
_STATE = re.compile(
    rf" *(?P<fan>\d{{1,3}}%|{_WORD}) +(?P<temp>\d{{1,3}}C|{_WORD}) +(?P<perf>P\d{{1,2}}|{_WORD}) +"
    rf"(?P<power>\d{{1,5}}W|{_WORD}) */ *(?P<cap>\d{{1,5}}W|{_WORD}) *"
)
_MEMORY = re.compile(rf" *(?P<used>\d{{1,8}}MiB|{_WORD}) */ *(?P<total>\d{{1,8}}MiB|{_WORD}) *")
_UTIL = re.compile(rf" *(?P<util>\d{{1,3}}%|{_WORD}) +(?P<compute>\S.*)")
_MIG = re.compile(
    r"\| +(?P<gpu>\d{1,3}) +(?P<gi>\d{1,3}) +(?P<ci>\d{1,3}) +(?P<mig>\d{1,3}) +\| *"
    r"(?P<used>\d{1,8}MiB) */ *(?P<total>\d{1,8}MiB) *\|"
)
_PROCESS = re.compile(r"\| +\d{1,3} +(?:N/A|\d{1,3}) ")


@dataclass(slots=True)
class BoxedTable:
    """One table as its lines come."""

    driver: str | None = None
    cuda: str | None = None
    gpus: list[dict[str, Any]] = field(default_factory=list)
    migs: int = 0
    processes: int = 0
    part: str = "head"
    """head, gpus, migs, processes: which box the lines are in."""
    state_due: bool = False
    damaged: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether the box of processes, the table's last, has begun."""
        return self.part == "processes" and not self.damaged and not self.state_due

    def take(self, line: str, *, ended: bool) -> Iterator[Reading]:
        """Take one line of the table."""
        if match := _BANNER.match(line):
            self.driver, self.cuda = match[2], match[3]
        elif "| Processes:" in line or "| Compute processes:" in line:
            self.part = "processes"
        elif "| MIG devices:" in line:
            self.part = "migs"
        elif "GPU" in line and "Name" in line and "Bus-Id" in line:
            self.part = "gpus"
        elif self.part == "gpus":
            yield from self._gpu_line(line, ended)
        elif self.part == "migs" and (match := _MIG.match(line)):
            self.migs += 1
            place: dict[str, Scalar] = {"gpu": match["gpu"], "mig": int(match["mig"])}
            for name in ("used", "total"):
                value = quantity(match[name], "MiB")
                if value is not None:
                    yield Reading(f"fb_memory_{name}", value, "MiB", place)
        elif self.part == "processes" and _PROCESS.match(line):
            self.processes += 1

    def _gpu_line(self, line: str, ended: bool) -> Iterator[Reading]:
        if "ERR!" in line or "Unknown Error" in line or "requires reset" in line:
            self.faults.append(f"GPU {self.gpus[-1]['index'] if self.gpus else '?'}: {line.strip('| ')[:80]}")
        if match := _FIRST.match(line):
            if self.state_due:
                self.damaged.append(f"GPU {self.gpus[-1]['index']}")
            self.gpus.append(
                {"index": int(match["gpu"]), "name": match["name"], "bus_id": match["bus"], "ecc_errors": match["ecc"]}
            )
            self.state_due = True
        elif self.state_due and line.startswith("|") and not line.startswith("|="):
            yield from self._state_line(line, ended)
        elif (
            self.gpus and line.startswith("|") and not self.state_due and (cells := line.strip().strip("|").split("|"))
        ):
            mode = cells[-1].strip()
            if mode in ("Enabled", "Enabled*", "Disabled", "Disabled*", "N/A"):
                self.gpus[-1].setdefault("mig_mode", mode)
        elif line.startswith("|") and re.match(r"\| {0,4}\d{1,3} {1,4}\S", line):
            self.damaged.append(line[:40].strip("| "))

    def _state_line(self, line: str, ended: bool) -> Iterator[Reading]:
        gpu = self.gpus[-1]
        cells = line.rstrip().strip("|").split("|")
        state, memory = _STATE.fullmatch(cells[0]), _MEMORY.fullmatch(cells[1]) if len(cells) > 1 else None
        util = _UTIL.fullmatch(cells[2]) if len(cells) > 2 else None
        self.state_due = False
        if state is None or memory is None or util is None or (not ended and not line.rstrip().endswith("|")):
            self.damaged.append(f"GPU {gpu['index']}")
            return
        gpu["performance_state"], gpu["compute_mode"] = state["perf"], util["compute"].strip()
        place: dict[str, Scalar] = {"gpu": str(gpu["index"]), "bus_id": gpu["bus_id"]}
        for indicator, text, unit, params in (
            ("temperature", state["temp"], "degC", {}),
            ("fan_speed", state["fan"], "%", {}),
            ("power", state["power"], "W", {}),
            ("power_limit", state["cap"], "W", {"limit": "enforced"}),
            ("fb_memory_used", memory["used"], "MiB", {}),
            ("fb_memory_total", memory["total"], "MiB", {}),
            ("utilization", util["util"], "%", {}),
        ):
            value = quantity(text, unit)
            if value is not None:
                yield Reading(indicator, value, unit, {**place, **params})
