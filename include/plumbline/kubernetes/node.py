"""Runs the launches of one node inside its GPU pod, and leaves a record of each. Standard library only.

    python -m plumbline.kubernetes.node --evidence DIR --batch ID [--launch ID --attempt N]

Without --launch: every launch of the batch that has no answer yet, one after the other; this pod is then the batch's
only one. With it: that launch, at exactly that attempt, on a launcher's behalf. Exits 0 when records were written;
76 when the attempt is somebody else's.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from plumbline.execution.run_one import AttemptTakenError, raise_stop, run
from plumbline.kubernetes import files
from plumbline.kubernetes.idle import wait_until_idle
from plumbline.model import Code, LaunchSpec

TAKEN = 76


def parse_options(arguments: Sequence[str] | None, description: str | None) -> argparse.Namespace:
    """Read the command line that programs in worker pods share."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n", 1)[0])
    parser.add_argument("--evidence", type=Path, required=True, help="the run's evidence directory")
    parser.add_argument("--batch", required=True, help="one of the plan's batches")
    parser.add_argument("--launch", help="only this launch, whose spec the launcher left")
    parser.add_argument("--attempt", type=int, help="claim exactly this attempt")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked; see the module."""
    options = parse_options(arguments, __doc__)
    signal.signal(signal.SIGTERM, raise_stop)
    settings = files.read_profile(options.evidence)["kubernetes"]
    if options.launch:
        specs: Sequence[LaunchSpec] = [files.read_spec(options.evidence, options.launch)]
        heart = files.Heart(options.evidence, os.environ.get("PLUMBLINE_LAUNCHER", ""), settings["waits"]["orphan_s"])
        heart.stop_process_when_stopped()
    else:
        specs = files.read_batch(options.evidence, options.batch)
    for spec in files.without_answer(options.evidence, specs):
        busy = wait_until_idle(settings["idle"])
        if busy:
            print(f"{spec.launch_id}: {busy}", flush=True)
            files.record_fault(spec, options.evidence, Code.BUSY, busy)
            continue
        print(f"{spec.launch_id}: running, at most {spec.timeout_s:g} s", flush=True)
        try:
            record = run(spec, options.evidence, options.attempt)
        except SystemExit:
            return 0  # stopped, and the record says so
        except AttemptTakenError as error:
            print(error, file=sys.stderr)
            return TAKEN
        print(f"{spec.launch_id}: {record.outcome.value} after {record.duration_s:.1f} s {record.reason}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
