"""mlperf_logging's own checker on the log that was written: which of the rounds' rules a proxy breaks."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mlperf_logging.compliance_checker import mlp_compliance

RULESETS = {"gpt3": "4.1.0", "bert": "5.0.0"}
"""The last round that each benchmark was part of."""
_NAMED = re.compile(r"Failed checks for (\S+) :|occurrence of '([^']+)'")


def check(log: Path, benchmark: str) -> dict[str, Any]:
    """Give {ruleset, version, findings: [{key, message}]}. A finding that names no key has the key 'other'."""
    ruleset = RULESETS[benchmark]
    checker = mlp_compliance.make_checker("training", ruleset, quiet=False, werror=False)
    noise = logging.getLogger()
    level = noise.level
    noise.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            passed = checker.check_file(str(log), f"training_{ruleset}/common.yaml")
    finally:
        noise.setLevel(level)
    findings = [_finding(key, message) for key, message in {**checker.warnings, **checker.overwritable}.items()]
    findings += [_finding(None, message) for message in checker.not_overwritable]
    if not passed and not findings:
        findings.append(_finding("other", "the checker failed without saying why"))
    return {"ruleset": ruleset, "version": version("mlperf-logging"), "passed": passed, "findings": findings}


def _finding(key: str | None, message: str) -> dict[str, str]:
    if key is None:
        match = _NAMED.search(message)
        key = (match[1] or match[2]) if match else "other"
    return {"key": key, "message": " ".join(message.split())[:600]}
