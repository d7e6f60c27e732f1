"""The mutation suite: break a good run one way at a time and see the gate close with the right reason.

`python -m tests.validation.mutations --table` runs all of them and prints what became of each;
`--markdown` prints docs/mutations.md.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.validation.mutant_night import make_base
from tests.validation.mutation import Mutation, Outcome, judge_mutant
from tests.validation.mutations_output import DISKS, EARLIER, MATRICES, TABLES
from tests.validation.mutations_policy import LIMITS, POLICIES, VERDICTS
from tests.validation.mutations_record import PLANS, RECORDS, SEALS

MUTATIONS: tuple[Mutation, ...] = (
    *TABLES, *MATRICES, *DISKS, *EARLIER, *RECORDS, *PLANS, *SEALS, *LIMITS, *POLICIES, *VERDICTS,
)  # fmt: skip
DOCUMENT = Path(__file__).parents[2] / "docs" / "mutations.md"

INTRODUCTION = """\
# Mutations

A good night on a small simulated cluster (six nodes of eight GPUs: collectives, HPL-MxP, storage; one approved night
before it) is broken one way at a time and judged through the same stages as any run. Every mutation must end in a
closed gate with a reason that names the cause, or in an error that does. `make mutations` runs them and prints the
reasons; the tests hold this table to what happens. Written by `python -m tests.validation.mutations --markdown`.

*Raw output*: the tool printed it so, and the record lists the file as it is. *Record*, *plan*, *limits*, *policy*: so
they were sealed. *Sealed evidence*: changed after the seal. *Verdict*: changed after judging.
"""


def row(mutation: Mutation, outcome: Outcome) -> str:
    """Give the table row of a mutation: what closes the gate for it."""
    cause = outcome.cause(mutation.codes)
    if outcome.error:
        word = f"{outcome.error.partition(':')[0]}, exit status {outcome.exit_code}"
        return f"| {mutation.where} | {mutation.name} | – | {word} |"
    if cause is None:
        return f"| {mutation.where} | {mutation.name} | **NOT CAUGHT** | |"
    return f"| {mutation.where} | {mutation.name} | {cause['verdict']} | {cause['code']} |"


def outcomes(folder: Path) -> Iterator[tuple[Mutation, Outcome]]:
    """Judge every mutation in a folder of its own, which is removed again."""
    base = make_base(folder)
    for number, mutation in enumerate(MUTATIONS):
        place = folder / f"m{number}"
        yield mutation, judge_mutant(base, place, mutation)
        shutil.rmtree(place, ignore_errors=True)


def caught(mutation: Mutation, outcome: Outcome) -> bool:
    """Say whether the gate is closed for the right reason."""
    named = mutation.error in outcome.error if mutation.error else outcome.cause(mutation.codes) is not None
    return not outcome.open and named


def main() -> int:
    """Print the table; 1 when a mutation was not caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    form = parser.add_mutually_exclusive_group(required=True)
    form.add_argument("--table", action="store_true", help="what became of each mutation, with the reason's words")
    form.add_argument("--markdown", action="store_true", help="docs/mutations.md")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    folder = Path(tempfile.mkdtemp(prefix="plumbline-mutations-"))
    lost = 0
    if arguments.markdown:
        print(INTRODUCTION)
        print("| broken | how | verdict | code |\n|---|---|---|---|")
    try:
        for mutation, outcome in outcomes(folder):
            lost += not caught(mutation, outcome)
            if arguments.markdown:
                print(row(mutation, outcome), flush=True)
            else:
                cause = outcome.cause(mutation.codes) or {}
                word = cause.get("verdict", "ERROR" if outcome.error else "NOT CAUGHT")
                said = cause.get("message") or outcome.error
                print(
                    f"{word:8} {cause.get('code', ''):20} {mutation.where}: {mutation.name}\n{'':30}{said}", flush=True
                )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not arguments.markdown:
        print(f"{len(MUTATIONS) - lost} of {len(MUTATIONS)} mutations caught")
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
