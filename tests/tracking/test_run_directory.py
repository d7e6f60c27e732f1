import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.run_builder import build_run

from plumbline.errors import ConfigError, OutputError, ValidationError
from plumbline.model import RunRecord
from plumbline.tracking.run_directory import RunDirectory, find_runs, link_latest, new_run_id, run_time


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return build_run(tmp_path_factory.mktemp("results"), nodes=2)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return build_run(tmp_path, nodes=1)


def problems(run: RunDirectory) -> list[tuple[str, str]]:
    return [(item["problem"], item["path"]) for item in run.problems()]


def evidence_files(run: RunDirectory) -> list[Path]:
    return sorted(path for path in run.evidence.rglob("*") if path.is_file() and path.name != "manifest.json")


# -- ids and directories ---------------------------------------------------------------------------------------------


def test_a_run_id_tells_its_second_and_two_of_one_second_differ():
    now = datetime(2026, 3, 1, 2, 3, 4, 999999, tzinfo=UTC)
    first, second = new_run_id(now), new_run_id(now)
    assert first.startswith("20260301T020304Z-") and first != second
    assert run_time(first) == now.replace(microsecond=0)


@pytest.mark.parametrize(
    "text", ["", "latest", "20260301T020304Z", "20260301T020304Z-00000G", "x20260301T020304Z-000000"]
)
def test_what_is_no_run_id_is_refused_by_name(text: str):
    with pytest.raises(ConfigError, match=r"not a run id.*YYYYMMDDTHHMMSSZ"):
        run_time(text)


def test_a_run_is_created_once(tmp_path: Path):
    run = RunDirectory.create(tmp_path, "local", "nightly", "20260301T020304Z-00000a")
    assert run.run_id == "20260301T020304Z-00000a" and not run.sealed
    with pytest.raises(ConfigError, match="cannot make run directory"):
        RunDirectory.create(tmp_path, "local", "nightly", "20260301T020304Z-00000a")


def test_a_results_folder_that_cannot_be_written_is_said(tmp_path: Path):
    (tmp_path / "results").write_text("a file where the folder should be")
    with pytest.raises(ConfigError, match=r"cannot make run directory .*results"):
        RunDirectory.create(tmp_path / "results", "local", "nightly", "20260301T020304Z-00000a")


def test_opening_what_is_no_run_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="has no evidence/"):
        RunDirectory.open(tmp_path)


def test_plan_profile_suite_and_records_come_back(sealed: RunDirectory):
    plan = sealed.plan()
    assert plan.run_id == sealed.run_id and sealed.profile().name == "local" and sealed.suite().name == "nightly"
    records = [record for _, record in sealed.records()]
    assert {r.launch_id for r in records if isinstance(r, RunRecord)} == {spec.launch_id for spec in plan.launches}


def test_a_damaged_record_is_given_as_an_error_beside_the_good_ones(run: RunDirectory):
    paths = sorted((run.evidence / "records").glob("*.json"))
    paths[0].write_text(paths[0].read_text()[:-40])
    paths[1].write_text(json.dumps({"launch_id": "x"}))
    found = [record for _, record in run.records()]
    assert [type(item) for item in found[:2]] == [OutputError, OutputError]
    assert all(isinstance(item, RunRecord) for item in found[2:]) and len(found) == len(paths)


def test_a_damaged_plan_names_itself(run: RunDirectory):
    (run.evidence / "plan.json").write_text('{"run_id": "x"}')
    with pytest.raises(OutputError, match=r"plan\.json: damaged plan"):
        run.plan()


# -- the seal --------------------------------------------------------------------------------------------------------


def test_a_sealed_run_is_whole_and_sealing_again_changes_nothing(sealed: RunDirectory):
    before = (sealed.evidence / "manifest.json").read_bytes()
    assert problems(sealed) == []
    assert sealed.seal() == sealed.manifest_sha256()
    assert (sealed.evidence / "manifest.json").read_bytes() == before


def test_nothing_is_added_to_a_sealed_run(sealed: RunDirectory):
    with pytest.raises(ValidationError, match=r"is sealed: plan\.json cannot be added"):
        sealed.write_evidence("plan", {})


def test_an_unsealed_run_is_a_problem_and_has_no_digest(tmp_path: Path):
    run = RunDirectory.create(tmp_path, "local", "nightly", "20260301T020304Z-00000a")
    assert problems(run) == [("unsealed", "evidence/manifest.json")]
    with pytest.raises(OutputError, match="unfinished"):
        run.manifest_sha256()
    with pytest.raises(OutputError, match="unfinished"):
        run.add_decision({"kind": "approve_baseline", "by": "x"})


def test_deleting_any_one_file_of_the_evidence_names_it(run: RunDirectory):
    for path in evidence_files(run):
        content = path.read_bytes()
        path.unlink()
        assert problems(run) == [("missing", path.relative_to(run.path).as_posix())]
        path.write_bytes(content)
    assert problems(run) == []


def test_changing_one_digit_of_any_file_names_it(run: RunDirectory):
    changed = 0
    for path in evidence_files(run):
        content = path.read_bytes()
        place = next((i for i, byte in enumerate(content) if chr(byte).isdigit()), None)
        if place is None:
            continue
        other = b"7" if content[place : place + 1] != b"7" else b"3"
        path.write_bytes(content[:place] + other + content[place + 1 :])
        assert problems(run) == [("changed", path.relative_to(run.path).as_posix())]
        path.write_bytes(content)
        changed += 1
    assert changed > 8 and problems(run) == []


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_flipping_any_bit_of_a_raw_output_is_found(sealed: RunDirectory, data: st.DataObject):
    path = data.draw(st.sampled_from([p for p in evidence_files(sealed) if p.stat().st_size]))
    content = bytearray(path.read_bytes())
    original = bytes(content)
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    try:
        assert problems(sealed) == [("changed", path.relative_to(sealed.path).as_posix())]
    finally:
        path.write_bytes(original)


@pytest.mark.parametrize("name", ["raw/fio-n1-g0-r1.a1/second.tmp", "records/fio-n1-g0-r1.a2.json", "waivers.json"])
def test_a_file_that_was_added_is_named(run: RunDirectory, name: str):
    (run.evidence / name).write_text("added later")
    assert problems(run) == [("extra", f"evidence/{name}")]


def test_the_rest_of_an_interrupted_write_is_no_evidence(run: RunDirectory):
    (run.evidence / ".plan.json.123.tmp").write_text("{")
    assert problems(run) == []


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"files": [1]}', '{"files": {"plan.json": 3}}'])
def test_a_damaged_manifest_is_named(run: RunDirectory, text: str):
    (run.evidence / "manifest.json").write_text(text)
    assert ("changed", "evidence/manifest.json") in problems(run)
    assert ("stale_derived", "derived/provenance.json") in problems(run)


def test_a_manifest_made_to_fit_changed_evidence_does_not_fit_the_derived_files(run: RunDirectory):
    (run.evidence / "suite.json").write_text("{}")
    (run.evidence / "manifest.json").unlink()
    run.seal()
    assert problems(run) == [("stale_derived", "derived/provenance.json")]


# -- derived ---------------------------------------------------------------------------------------------------------


def test_derived_files_are_held_to_their_provenance(run: RunDirectory):
    run.write_derived_json("extra.json", {})
    (run.derived / "gx.json").unlink()
    (run.derived / "verdict.json").write_text('{"gate": "open"}')
    assert problems(run) == [
        ("extra", "derived/extra.json"),
        ("missing", "derived/gx.json"),
        ("changed", "derived/verdict.json"),
    ]


@pytest.mark.parametrize("text", ["", "{}", '{"files": 3, "manifest_sha256": "x"}', '{"files": {}}'])
def test_derived_files_without_a_good_provenance_are_stale(run: RunDirectory, text: str):
    (run.derived / "provenance.json").write_text(text)
    assert ("stale_derived", "derived/provenance.json") in problems(run)


def test_judging_again_leaves_the_seal_intact(run: RunDirectory):
    digest = run.manifest_sha256()
    run.write_derived_json("gx.json", {"again": True})
    run.write_provenance({"version": "next"})
    assert run.manifest_sha256() == digest and problems(run) == []


def test_numbers_that_json_does_not_have_are_refused(run: RunDirectory):
    with pytest.raises(ValueError, match="Out of range float"):
        run.write_derived_json("gx.json", {"value": float("nan")})
    assert problems(run) == []


# -- decisions -------------------------------------------------------------------------------------------------------


def test_decisions_are_appended_with_the_evidence_they_were_made_on(run: RunDirectory):
    first = run.add_decision({"kind": "approve_baseline", "by": "ann", "comment": "ok\nfine"})
    run.add_decision({"kind": "revoke_baseline", "by": "bob"})
    assert first["manifest_sha256"] == run.manifest_sha256() and first["decided_at"].endswith("Z")
    assert [(d["kind"], d["by"]) for d in run.decisions()] == [("approve_baseline", "ann"), ("revoke_baseline", "bob")]
    assert len((run.path / "decisions.jsonl").read_text().splitlines()) == 2
    assert problems(run) == []


@pytest.mark.parametrize(
    "sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1e", "\r", "\n", "\x00", "\udc80"]
)
def test_no_sign_in_a_comment_damages_the_decisions(run: RunDirectory, sign: str):
    line = run.add_decision({"kind": "approve_baseline", "by": "ann", "comment": f"as{sign}ordered"})
    run.add_decision({"kind": "note", "by": "bob"})
    assert run.decisions()[0] == line
    written = (run.path / "decisions.jsonl").read_bytes()
    assert written.isascii() and len(written.decode().splitlines()) == 2


def test_a_decision_after_a_torn_line_is_a_line_of_its_own(run: RunDirectory):
    path = run.path / "decisions.jsonl"
    path.write_text('{"by": "ann", "kind": "appro')
    line = run.add_decision({"kind": "revoke_baseline", "by": "bob"})
    assert json.loads(path.read_text().splitlines()[1]) == line
    with pytest.raises(OutputError, match=r"decisions\.jsonl:1: damaged decision"):
        run.decisions()


def test_a_decision_that_is_no_text_is_named(run: RunDirectory):
    (run.path / "decisions.jsonl").write_bytes(b'{"by": "\xff"}\n')
    with pytest.raises(OutputError, match=r"decisions\.jsonl:1: damaged decision"):
        run.decisions()


def test_a_decision_cannot_claim_another_run_or_digest(run: RunDirectory):
    line = run.add_decision({"kind": "approve_baseline", "run_id": "other", "manifest_sha256": "0" * 64})
    assert line["run_id"] == run.run_id and line["manifest_sha256"] == run.manifest_sha256()


def test_a_decision_on_other_evidence_does_not_count(run: RunDirectory):
    run.add_decision({"kind": "approve_baseline", "by": "ann"})
    (run.evidence / "manifest.json").unlink()
    (run.evidence / "note.json").write_text("{}")
    run.seal()
    assert run.decisions() == []


@pytest.mark.parametrize("line", ['{"kind": "approve_ba', "3", "[]", "null"])
def test_a_damaged_decision_is_named_by_its_line(run: RunDirectory, line: str):
    run.add_decision({"kind": "approve_baseline", "by": "ann"})
    with (run.path / "decisions.jsonl").open("a") as stream:
        stream.write(line + "\n")
    with pytest.raises(OutputError, match=r"decisions\.jsonl:2: damaged decision"):
        run.decisions()


# -- many runs -------------------------------------------------------------------------------------------------------


def test_only_finished_runs_are_found_oldest_first(tmp_path: Path):
    late = build_run(tmp_path, nodes=1, seed=2, when=datetime(2026, 3, 2, tzinfo=UTC))
    early = build_run(tmp_path, nodes=1, seed=3, when=datetime(2026, 3, 1, tzinfo=UTC), suite="acceptance")
    unfinished = RunDirectory.create(tmp_path, "local", "nightly", "20260303T020304Z-00000a")
    (tmp_path / "local" / "nightly" / "notes").mkdir()
    assert [run.run_id for run in find_runs(tmp_path, "local")] == [early.run_id, late.run_id]
    assert [run.run_id for run in find_runs(tmp_path, "local", "nightly")] == [late.run_id]
    assert find_runs(tmp_path, "elsewhere") == [] and not unfinished.sealed


def test_latest_is_a_relative_link_that_moves(tmp_path: Path):
    first = build_run(tmp_path, nodes=1, seed=1)
    second = build_run(tmp_path, nodes=1, seed=2)
    link_latest(tmp_path, first)
    link_latest(tmp_path, second)
    link = tmp_path / "latest"
    assert link.resolve() == second.path and not link.readlink().is_absolute()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "local"]
