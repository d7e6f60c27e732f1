"""`plumbline …`: every stage without Airflow. Exit codes are in plumbline.errors.ExitCode."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from plumbline import __version__
from plumbline.commands import demonstrating, inspecting, operating, reviewing, running, scoring
from plumbline.errors import ExitCode, PlumblineError, near_match
from plumbline.reports.wording import clean

_EPILOG = """\
words:
  cluster profile  a YAML file that says what a cluster is made of and how it is reached
  suite            a YAML file: which benchmarks run, with which parameters, and what closes the gate
  run              one measuring of a suite on a cluster: a directory below results/
  rung             a node count that a benchmark is measured at: at 4, the nodes are cut into groups of 4
  ladder           all rungs: 1, 2, 4, 8 … and the number of nodes itself
  launch           one execution of a benchmark on one group of nodes
  indicator        a quantity with a unit that is judged, such as nccl_tests/bus_bandwidth_headline
  verdict          PASS, WAIVED (excused), WARN, NOT_RUN (no result), STALE (none for too long), INVALID (the
                   measurement's fault) or FAIL (the cluster's fault)
  gate             open or closed: FAIL, INVALID, NOT_RUN and STALE close it; for an acceptance, WARN too
  baseline         what is normal for this cluster: the runs that a person approved

exit codes: 0 ok, gate open · 1 gate closed, or verify found something · 2 wrong use or configuration ·
            3 read, but incomplete, aborted or failed · 4 not readable as that format ·
            5 a stage or the infrastructure failed · 128 + n stopped by signal n

examples:
  plumbline run --cluster local --suite nightly          measure this machine, judge, report
  plumbline parse nccl_tests all_reduce.log              what does this log really say?
  plumbline verify latest:local                          is the evidence what was measured?
  plumbline status --max-age 26h                         is there a finished nightly that young?
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest command, choice or option."""

    commands: Mapping[str, _Parser]
    """Of the whole command line: the parser of each command."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, f"no {value!r}{near_match(str(value), map(str, action.choices))}")

    def refuse(self, extras: Sequence[str]) -> NoReturn:
        """End with the first word that no argument takes."""
        known = [option for action in self._actions for option in action.option_strings]
        word = extras[0].partition("=")[0]
        near = near_match(word, known) if word.startswith("-") else "; it takes no further words"
        self.error(f"no argument {word!r}{near}")


def build_parser() -> _Parser:
    """Give the whole command line."""
    parser = _Parser(
        prog="plumbline",
        description="Baseline GPU clusters every night and accept new ones: run, judge, remember.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"plumbline {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for group in (running, inspecting, reviewing, operating, demonstrating, scoring):
        group.add_commands(commands)
    parser.commands = commands.choices
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; errors that name their cause go to stderr without a traceback."""
    parser = build_parser()
    chosen, extras = parser.parse_known_args(arguments)
    if extras:
        parser.commands[chosen.command].refuse(extras)
    try:
        return int(chosen.run(chosen))
    except PlumblineError as error:
        _complain(f"plumbline {chosen.command}: {error}")
        return error.exit_code
    except BrokenPipeError:  # `plumbline run | head`: nobody read how it ended, so it did not end well
        return ExitCode.INFRASTRUCTURE
    except OSError as error:  # a folder that can't be written, a full disk: nothing that a traceback would explain
        place = f"{error.filename}: " if error.filename else ""
        _complain(f"plumbline {chosen.command}: {place}{error.strerror or error}")
        return ExitCode.INFRASTRUCTURE
    except KeyboardInterrupt:
        _complain("stopped")
        return ExitCode.INFRASTRUCTURE


def _complain(text: str) -> None:
    """Write to stderr, if that is possible: the exit code says the same, and must not become another."""
    if sys.stderr is not None:  # None where it was closed, and print would write to stdout
        with contextlib.suppress(OSError, ValueError):
            print(clean(text), file=sys.stderr, flush=True)


def console() -> NoReturn:
    """Be the whole process: `main`, with a collector that doesn't search what great-expectations and MLflow import.

    Their hundreds of thousands of objects live as long as the process. Python's own thresholds would go through them
    again and again while they are imported, and once more at the end, which alone takes a second.
    """
    gc.set_threshold(_COLLECT_AFTER)
    try:
        code = main()
    except SystemExit as end:  # argparse's, or that of a signal
        code = end.code if isinstance(end.code, int) else ExitCode.OK
    finally:
        gc.freeze()
    sys.exit(_written(code))


def _written(code: int) -> int:
    """Give the exit code; where all was well but what was printed can't be written to its end, that of a failure."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            if stream is sys.stdout:
                code = code or ExitCode.INFRASTRUCTURE
                if not isinstance(error, BrokenPipeError):
                    _complain(f"plumbline: what it printed can't be written: {error}")
            with contextlib.suppress(OSError, ValueError):  # or Python tries once more as it ends, and exits with 120
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


_COLLECT_AFTER = 50_000
"""New objects between two collections; Python's own is 700."""

if __name__ == "__main__":
    console()
