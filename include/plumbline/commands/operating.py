"""Commands for whoever runs a cluster: reap."""

from __future__ import annotations

import argparse
import json

from plumbline.clusters.profile import load_profile
from plumbline.errors import ExitCode
from plumbline.kubernetes.access import connect
from plumbline.kubernetes.reaper import reap
from plumbline.model import to_plain

Commands = argparse._SubParsersAction  # the type has no public name


def add_commands(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add reap."""
    reaper = commands.add_parser(
        "reap",
        help="remove what finished runs left on a Kubernetes cluster",
        description="Remove pods and Jobs of runs that don't hold the cluster's Lease, and say which. Exit 5 when "
        "something could not be removed.",
        epilog="example: plumbline reap hgx-h100",
    )
    reaper.add_argument("cluster", help="cluster profile: a name or a YAML file")
    reaper.add_argument("--json", action="store_true", help="print JSON lines")
    reaper.set_defaults(run=_reap)


def _reap(chosen: argparse.Namespace) -> int:
    profile = load_profile(chosen.cluster)
    removed = reap(connect(profile), profile)
    for one in removed:
        print(json.dumps(to_plain(one)) if chosen.json else one.sentence())
    if not removed and not chosen.json:
        print(f"{profile.name}: nothing was left over")
    return ExitCode.INFRASTRUCTURE if any(one.error for one in removed) else ExitCode.OK
