"""Commands for whoever runs a cluster: doctor and reap."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime

from plumbline.clusters.profile import ClusterProfile, load_profile
from plumbline.errors import ExitCode
from plumbline.execution import lock
from plumbline.kubernetes import lease
from plumbline.kubernetes.access import NoAccessError, connect
from plumbline.kubernetes.doctor import Check, State, no_access, quick_checks
from plumbline.kubernetes.probing import probe_checks
from plumbline.kubernetes.reaper import reap, reap_run
from plumbline.model import to_plain
from plumbline.stages import results_directory

Commands = argparse._SubParsersAction  # the type has no public name


def add_commands(commands: Commands[argparse.ArgumentParser]) -> None:
    """Add doctor and reap."""
    doctor = commands.add_parser(
        "doctor",
        help="check that a Kubernetes cluster has all that a run needs",
        description="Check API, rights, volumes, images, nodes and devices, and say how to mend what is wrong. Takes a "
        "minute at most; starts a pod of each image on an idle node. Exit 1 when a run can't work.",
        epilog="example: plumbline doctor hgx-h100",
    )
    _add_cluster(doctor)
    doctor.add_argument("--quick", action="store_true", help="only what takes no pods")
    doctor.add_argument("--json", action="store_true", help="print JSON lines")
    doctor.set_defaults(run=_doctor)

    reaper = commands.add_parser(
        "reap",
        help="remove what finished runs left on a Kubernetes cluster",
        description="Remove pods and Jobs of runs that don't hold the cluster's Lease, and say which. A run whose "
        "process was killed on this machine loses its Lease. Exit 5 when something could not be removed.",
        epilog="example: plumbline reap hgx-h100",
    )
    _add_cluster(reaper)
    reaper.add_argument("--json", action="store_true", help="print JSON lines")
    reaper.set_defaults(run=_reap)


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    """Take the cluster as a word, or as the other commands do."""
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("cluster", nargs="?", help="cluster profile: a name or a YAML file")
    either.add_argument(
        "--cluster", dest="cluster_option", metavar="CLUSTER", help="the same, as `plumbline run` takes it"
    )


def _profile(chosen: argparse.Namespace) -> ClusterProfile:
    return load_profile(chosen.cluster or chosen.cluster_option)


def _doctor(chosen: argparse.Namespace) -> int:
    profile, today = _profile(chosen), datetime.now(UTC).date()
    try:
        api = connect(profile)
    except NoAccessError as error:
        _print_check(no_access(error), as_json=chosen.json)
        return ExitCode.CLOSED
    failed = False
    for check in quick_checks(api, profile, today):
        failed |= _print_check(check, as_json=chosen.json)
    if not chosen.quick and not failed:
        for check in probe_checks(api, profile, results_directory(profile), today):
            failed |= _print_check(check, as_json=chosen.json)
    elif not chosen.quick and not chosen.json:
        print("no pod was started: mend the above first")
    return ExitCode.CLOSED if failed else ExitCode.OK


def _print_check(check: Check, *, as_json: bool) -> bool:
    """Print one check; say whether it failed."""
    if as_json:
        print(json.dumps(to_plain(check)), flush=True)
    else:
        mend = f"\n{'':6}→ {check.mend}" if check.mend else ""
        print(f"{check.state.value:<5} {check.name}: {check.found}{mend}", flush=True)
    return check.state is State.FAIL


def _reap(chosen: argparse.Namespace) -> int:
    profile = _profile(chosen)
    api = connect(profile)
    gone = lock.left_behind(results_directory(profile) / profile.name)
    removed = reap_run(api, profile, gone) if gone else []
    if gone:
        lease.release(api, profile, gone)
    removed += reap(api, profile)
    for one in removed:
        print(json.dumps(to_plain(one)) if chosen.json else one.sentence())
    if gone and not chosen.json:
        print(f"run {gone}: its process is gone; it doesn't hold the cluster any more")
    if not removed and not chosen.json:
        print(f"{profile.name}: nothing was left over")
    return ExitCode.INFRASTRUCTURE if any(one.error for one in removed) else ExitCode.OK
