"""What the tests of commands share: run one, a table to read, and a verdict that somebody edited."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plumbline.cli import main
from plumbline.tracking.run_directory import RunDirectory

DATA = Path(__file__).parents[1] / "data"
TABLE = DATA / "nccl_tests" / "collectives_n2.txt"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command; give its exit code and what it wrote to stdout and stderr."""
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def edit_to_open(made: RunDirectory) -> None:
    """Write an open verdict over a run's own, as somebody might by hand."""
    path = made.derived / "verdict.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "gate": "open", "verdict": "PASS", "reasons": []}))
