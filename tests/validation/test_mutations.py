from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.validation.mutant_night import make_base
from tests.validation.mutation import Mutation, judge_mutant
from tests.validation.mutations import DOCUMENT, INTRODUCTION, MUTATIONS, caught, row


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("mutants"))


@pytest.fixture
def place(tmp_path: Path):
    yield tmp_path / "night"
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_the_night_that_is_broken_is_good(base: Path, place: Path):
    outcome = judge_mutant(base, place, Mutation(name="nothing", where="nowhere"))
    assert outcome.open and outcome.reasons == () and outcome.error == ""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: f"{m.where}: {m.name}")
def test_every_mutation_closes_the_gate_for_its_reason(base: Path, place: Path, mutation: Mutation):
    outcome = judge_mutant(base, place, mutation)
    assert caught(mutation, outcome), outcome
    assert row(mutation, outcome) in DOCUMENT.read_text(encoding="utf-8"), (
        "run: make mutations, and write the table anew"
    )


def test_the_table_holds_these_mutations_and_no_others():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.startswith(INTRODUCTION)
    rows = [line.split(" | ")[:2] for line in text.splitlines() if line.startswith("| ") and "broken | how" not in line]
    assert rows == [[f"| {m.where}", m.name] for m in MUTATIONS]
    assert len({(m.where, m.name) for m in MUTATIONS}) == len(MUTATIONS) >= 60
