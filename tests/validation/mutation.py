"""What a mutation is, and how one is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.validation.mutant_night import Broken, environment

from plumbline import stages
from plumbline.errors import PlumblineError
from plumbline.model import Code


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One way to break a good night. One of `codes` must close the gate, or `error` must be raised by a stage.

    `apply` works before the seal, `tamper` after it, `forge` after judging. `where` says what is broken.
    """

    name: str
    where: str
    codes: tuple[Code, ...] = ()
    error: str = ""
    """Words that the error must hold."""
    apply: Callable[[Broken], None] | None = None
    tamper: Callable[[Broken], None] | None = None
    forge: Callable[[Broken], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a mutated night. `reasons` are those that close the gate; `error` is what a stage raised."""

    open: bool
    reasons: tuple[dict[str, Any], ...] = ()
    error: str = ""
    exit_code: int = 0

    def cause(self, codes: tuple[Code, ...]) -> dict[str, Any] | None:
        """Give the first closing reason with one of the codes, in the order of the codes."""
        for code in codes:
            for reason in self.reasons:
                if reason["code"] == code.value:
                    return reason
        return None


def judge_mutant(base: Path, folder: Path, mutation: Mutation) -> Outcome:
    """Copy the night, break it, and take it through seal, judge and gate."""
    with environment(PLUMBLINE_RESULTS=str(folder / "results")):
        try:
            night = Broken(base, folder)
            if mutation.apply:
                mutation.apply(night)
            night.seal()
            if mutation.tamper:
                mutation.tamper(night)
            verdict = stages.judge(night.run.path)
            if mutation.forge:
                mutation.forge(night)
            gate = stages.gate(night.run.path)
        except PlumblineError as error:
            return Outcome(open=False, error=f"{type(error).__name__}: {error}", exit_code=int(error.exit_code))
    closing = tuple(reason for reason in verdict["reasons"] if reason["blocks"])
    assert gate.open == (verdict["gate"] == "open") == (not closing)
    return Outcome(open=gate.open, reasons=closing, exit_code=0 if gate.open else 1)
