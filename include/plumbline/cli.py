"""`plumbline …`: every stage without Airflow. Exit codes are in plumbline.errors.ExitCode."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from plumbline import __version__
from plumbline.commands import demonstrating, inspecting, operating, reviewing, running, scoring
from plumbline.errors import ExitCode, PlumblineError

_EPILOG = """\
exit codes: 0 ok, gate open · 1 gate closed, or verify found something · 2 wrong use or configuration ·
            3 read, but incomplete, aborted or failed · 4 not readable as that format ·
            5 a stage or the infrastructure failed

examples:
  plumbline run --cluster local --suite nightly          measure this machine, judge, report
  plumbline parse nccl_tests all_reduce.log              what does this log really say?
  plumbline verify results/latest                        is the evidence what was measured?
  plumbline status --max-age 26h                         is there a finished nightly that young?
"""


def build_parser() -> argparse.ArgumentParser:
    """Give the whole command line."""
    parser = argparse.ArgumentParser(
        prog="plumbline",
        description="Baseline GPU clusters every night and accept new ones: run, judge, remember.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"plumbline {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in (running, inspecting, reviewing, operating, demonstrating, scoring):
        group.add_commands(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; errors that name their cause go to stderr without a traceback."""
    parser = build_parser()
    chosen = parser.parse_args(arguments)
    try:
        return int(chosen.run(chosen))
    except PlumblineError as error:
        print(f"plumbline {chosen.command}: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # `plumbline run | head`: nobody read how it ended, so it did not end well
        sys.stderr.close()
        return ExitCode.INFRASTRUCTURE
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return ExitCode.INFRASTRUCTURE


if __name__ == "__main__":
    sys.exit(main())
