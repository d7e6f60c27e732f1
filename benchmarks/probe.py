"""Print what a process was given, as JSON: arguments, environment, CPUs, control group, limits, signals."""

import json
import os
import resource
import sys
from pathlib import Path


def _status(keys: tuple[str, ...]) -> dict[str, str]:
    lines = Path("/proc/self/status").read_text().splitlines()
    found = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {key: found[key] for key in keys if key in found}


if __name__ == "__main__":
    given = {
        "argv": Path("/proc/self/cmdline").read_bytes().decode().split("\0")[:-1],
        "environment": dict(os.environ),
        "affinity": sorted(os.sched_getaffinity(0)),
        "cgroup": Path("/proc/self/cgroup").read_text(),
        "nice": os.nice(0),
        "scheduler": os.sched_getscheduler(0),
        "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")},
        "signals_and_memory_nodes": _status(("SigBlk", "SigIgn", "Mems_allowed_list", "Umask", "CapEff", "NoNewPrivs")),
    }
    json.dump(given, sys.stdout, sort_keys=True)
