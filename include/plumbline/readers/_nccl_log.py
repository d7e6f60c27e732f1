"""What stands around the table of nccl-tests: banner, ranks, NCCL's own INFO lines, and what went wrong.

Source: NVIDIA/nccl-tests src/common.cu and src/util.cu, NVIDIA/nccl src/transport/*.cc, src/init.cc, src/enqueue.cc.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "alltoallv",
    "alltoall",
    "sendrecv",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "hypercube",
)
_PROGRAM = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(OPERATIONS)})_perf")
_STARTED = re.compile(rf"Collective test starting:\s+(?:\S*/)?({'|'.join(OPERATIONS)})(?:_perf|\b)")
_SETTINGS = re.compile(
    r"nThread:?\s+(?P<threads>\d{1,9})\s+nGpus:?\s+(?P<gpus>\d{1,9})\s+minBytes:?\s+(?P<min_bytes>\d{1,18})\s+"
    r"maxBytes:?\s+(?P<max_bytes>\d{1,18})\s+step:\s+(?P<step>\d{1,18})\((?P<by>factor|bytes)\)"
    r"(?:\s+warmup ?[iI]ters:\s+(?P<warmup>\d{1,9})\s+iters:\s+(?P<iterations>\d{1,9}))?"
    r"(?:\s+agg iters:\s+(?P<aggregated>\d{1,9}))?(?:\s+validation:\s+(?P<validation>\d{1,9}))?"
    r"(?:\s+graph:\s+(?P<graph>\d{1,9}))?"
)
_RANK = re.compile(
    r"#?\s*Rank\s+(?P<rank>\d{1,9})\s+(?:Group\s+(?P<group>\d{1,9})\s+)?(?:Pid\s+(?P<pid>\w{1,12})\s+)?"
    r"on\s+(?P<host>\S{1,255})\s+device\s+(?P<device>\d{1,9})\s+\[(?P<bus_id>[^\]]{0,64})\]\s*(?P<model>.{0,200})"
)
_VERSION = re.compile(r"NCCL version[ :]+(\d[\w.+-]{0,60})")
_RCCL_VERSION = re.compile(r"RCCL version\s*[:=]?\s*(\d[\w.+-]{0,60})")
_TESTS_VERSION = re.compile(r"nccl-tests version (\S{1,40}) nccl-headers=(\d{1,9}) nccl-library=(\d{1,9})")
_RCCL_TESTS_VERSION = re.compile(r"rccl-tests: Version (\S{1,60})")
_VIA = re.compile(r" via ([A-Z][A-Za-z0-9]*(?:/[A-Za-z][\w.-]{0,60}(?: (?:Libfabric|pointer|device)\b)?)?)")
_ALGORITHM = re.compile(r"-> Algo (\w{1,30}) proto (\w{1,30})")
_NETWORK = re.compile(r"Using network ([\w/ .-]{1,60}?)\s*$")
_KNOWN_CHANNELS = 5000
_MEMORY_LIMIT = re.compile(r"Reducing maxBytes to (\d{1,18}) due to memory limitation")
_NCCL_TAG = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d[ T][\d:.]{5,18}\] )?(?P<host>[A-Za-z0-9][\w-]{0,254}):\d{1,10}:\d{1,10} \[-?\d{1,6}\] "
    r"(?:[\w./]{1,80}:\d{1,6} )?NCCL (?:INFO|WARN|TRACE|CALL|VERSION)"
)


@dataclass(slots=True)
class Chatter:
    """What the lines around the tables told, for the whole file."""

    transports: set[str] = field(default_factory=set)
    algorithms: set[str] = field(default_factory=set)
    networks: set[str] = field(default_factory=set)
    net_channels: int = 0
    gdr_channels: int = 0
    nccl_version: str | None = None
    library: str | None = None
    tests_version: str | None = None
    warnings: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    _channels: dict[str, tuple[str, bool]] = field(default_factory=dict)
    programs: dict[str, None] = field(default_factory=dict)
    """Operations that command lines named since the last table began."""

    def next_program(self) -> str | None:
        """Give the operation of the table that begins now, where the command lines before it name just one."""
        named, self.programs = list(self.programs), {}
        return named[0] if len(named) == 1 else None

    def nccl_line(self, line: str) -> None:
        """Take over one line of NCCL's own log: there may be millions."""
        at = line.find(" via ")
        if at >= 0:
            self._channel(line[at:])
        elif " NCCL WARN " in line:
            if len(self.warnings) < 5:
                self.warnings.append(line[line.index("NCCL WARN") :].strip()[:300])
        elif "-> Algo" in line or "Using network" in line or "NVLS" in line or "ersion" in line:
            self._named(line)

    def _named(self, line: str) -> None:
        if match := _ALGORITHM.search(line):
            self.algorithms.add(f"{match[1]}/{match[2]}")
        elif match := _NETWORK.search(line):
            self.networks.add(match[1])
        elif "NVLS comm " in line or "Connected NVLS" in line:
            self.transports.add("NVLS")
        self.version_line(line)

    def version_line(self, line: str) -> None:
        """Take over the versions that a line names."""
        if "ersion" not in line:
            return
        if match := _RCCL_VERSION.search(line):
            self.nccl_version, self.library = self.nccl_version or match[1], "rccl"
        elif match := _VERSION.search(line):
            self.nccl_version, self.library = self.nccl_version or match[1], self.library or "nccl"
        elif match := _TESTS_VERSION.search(line):
            self.tests_version, self.library = match[1], "nccl"
            self.nccl_version = self.nccl_version or version_of_code(int(match[3]))
        elif match := _RCCL_TESTS_VERSION.search(line):
            self.tests_version, self.library = match[1], "rccl"

    def _channel(self, line: str) -> None:
        known = self._channels.get(line)
        if known is None:
            match = _VIA.search(line)
            name = "SHM" if "via direct shared memory" in line else match[1] if match else ""
            known = ("SHM" if name.startswith("SHM") else name, "GDRDMA" in line)
            if len(self._channels) < _KNOWN_CHANNELS:
                self._channels[line] = known
            if name:
                self.transports.add(known[0])
        if known[0].startswith("NET/"):
            self.net_channels += 1
            self.gdr_channels += known[1]

    def facts(self) -> Mapping[str, Any]:
        """Give the facts, without those that nothing was said of."""
        gdr = None
        if self.net_channels:
            gdr = "all" if self.gdr_channels == self.net_channels else "some" if self.gdr_channels else "none"
        found = {
            "nccl_version": self.nccl_version,
            "library": self.library,
            "tests_version": self.tests_version,
            "transports": sorted(self.transports) or None,
            "networks": sorted(self.networks) or None,
            "algorithms": sorted(self.algorithms) or None,
            "gpu_direct": gdr,
            "warnings": self.warnings or None,
        }
        return {name: value for name, value in found.items() if value is not None}


def version_of_code(code: int) -> str | None:
    """Give 2.21.5 for 22105 (and 2.8.4 for 2804). Source: NCCL_VERSION in nccl.h."""
    if code >= 10000:
        return f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    return f"{code // 1000}.{code // 100 % 10}.{code % 100}" if code >= 1000 else None


def program_named(line: str) -> str | None:
    """Give the operation whose program a line names ('…/all_reduce_perf_mpi -b 8' is all_reduce)."""
    match = _PROGRAM.search(line)
    return match[1] if match else None


def operation_started(line: str) -> str | None:
    """Give the operation of 'Collective test starting: all_reduce_perf' (or, of Plumbline's program, 'all_reduce')."""
    match = _STARTED.search(line)
    return match[1] if match else None


def settings(line: str) -> dict[str, int | bool] | None:
    """Read the banner line of the settings."""
    match = _SETTINGS.search(line)
    if match is None:
        return None
    found: dict[str, int | bool] = {
        name: int(text) for name, text in match.groupdict().items() if text is not None and name != "by"
    }
    found["by_factor"] = match["by"] == "factor"
    return found


def rank_line(line: str) -> dict[str, Any] | None:
    """Read one line of the list of ranks: rank, group, pid, host, device, bus_id, model."""
    match = _RANK.match(line.strip())
    if match is None:
        return None
    found: dict[str, Any] = {name: text for name, text in match.groupdict().items() if text}
    for name in ("rank", "group", "device", "pid"):
        if found.get(name, "").isdecimal():
            found[name] = int(found[name])
    if "model" in found:
        found["model"] = found["model"].strip()
    return found


def memory_limit(line: str) -> int | None:
    """Give the largest size that the tool lowered its sweep to for want of memory."""
    match = _MEMORY_LIMIT.search(line)
    return int(match[1]) if match else None


def nccl_tag(line: str, hosts: set[str]) -> tuple[int | None, bool]:
    """Give where NCCL's own message begins in a line, also when it is glued to a number before it; and how sure.

    `hosts` are the names known so far: they tell where a name that begins with a digit starts.
    """
    match = _NCCL_TAG.search(line[:1500])
    if match is None:
        return None, False
    host = match["host"]
    if match.start("host") != match.start() or host in hosts:
        return match.start(), True
    for known in sorted(hosts, key=len, reverse=True):
        if host.endswith(known):
            return match.end("host") - len(known), True
    if match.start() == 0:
        hosts.add(host)
    return match.start(), False


# ---------------------------------------------------------------------------------------------------------------
# What went wrong. The order is that of `fault`: the first kind whose words stand in the line.

_STOPPED = (
    "exited on signal",
    "Segmentation fault",
    "Bus error (core",
    "CANCELLED AT",
    "DUE TO TIME LIMIT",
    "terminated by signal",
    "Killed",
    "Signal: ",
)
_FAILED = ("Test NCCL failure", "Test CUDA failure", "Test HIP failure", ": Test failure ", ": Test timeout (")
_LAUNCH = (
    "srun: error:",
    "slurmstepd: error:",
    "mpirun was unable to",
    "mpirun noticed that",
    "mpirun detected that",
    "prterun was unable to",
    "prterun noticed that",
    "There are not enough slots",
    "command not found",
    "No such file or directory",
    "error while loading shared libraries",
    "Invalid number of GPUs",
    "The number of requested GPUs",
    "CUDA driver version is insufficient",
    "no CUDA-capable device",
    "Out of memory",
    "out of memory",
    "invalid sizes for 'minbytes'",
    "is not supported by this test",
    "Permission denied",
    "plumbline: error:",
)


def fault(line: str) -> tuple[str, str] | None:
    """Say what a line reports as gone wrong: (kind, the line), kind one of stopped, failed, launch.

    `failed` and `stopped` are the test's own end; `launch` explains why a table is missing and proves nothing alone.
    """
    for kind, words in (("failed", _FAILED), ("stopped", _STOPPED), ("launch", _LAUNCH)):
        for word in words:
            if word in line:
                return kind, line.strip()[:300]
    return None
