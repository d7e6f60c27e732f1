import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.run_builder import Scenario, build_history, build_run, rewrite_json

from plumbline.model import MEASUREMENT_COLUMNS, Code, Device, Origin, verdict
from plumbline.tracking.history import load_history, rows_of, series
from plumbline.tracking.run_directory import RunDirectory

BASE = Scenario(nodes=2)


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RunDirectory]]:
    results = tmp_path_factory.mktemp("results")
    return results, build_history(results, 4, BASE)


def ids(runs) -> list[str]:
    return [run.run_id for run in runs]


# -- which runs ------------------------------------------------------------------------------------------------------


def test_all_runs_are_read_oldest_first_with_every_column(four):
    results, runs = four
    found = load_history(results, "local", origin=Origin.MEASURED)
    assert ids(found.runs) == ids(runs) and found.skipped == ()
    assert found.table.column_names == list(MEASUREMENT_COLUMNS)
    assert found.table.num_rows == sum(rows_of(run).num_rows for run in runs) > 0
    assert found.table["run_id"].to_pylist() == sorted(found.table["run_id"].to_pylist())


def test_newest_counts_runs_and_before_is_exclusive(four):
    results, runs = four
    found = load_history(results, "local", origin=Origin.MEASURED, newest=2, before=runs[3].run_id)
    assert ids(found.runs) == ids(runs[1:3])
    assert set(found.table["run_id"].to_pylist()) == set(ids(runs[1:3]))
    assert load_history(results, "local", origin=Origin.MEASURED, before=runs[0].run_id).runs == ()


def test_nothing_there_is_an_empty_table_with_the_columns_asked_for(tmp_path: Path):
    found = load_history(tmp_path, "local", origin=Origin.MEASURED, columns=["value", "node"])
    assert found.table.num_rows == 0 and found.table.column_names == ["value", "node"]
    assert series(load_history(tmp_path, "local", origin=Origin.MEASURED)) == {}


def test_simulated_numbers_never_appear_among_measured_ones(tmp_path: Path):
    measured = build_run(tmp_path, BASE, seed=1)
    simulated = build_run(tmp_path, BASE, seed=2, origin=Origin.SIMULATED, device=Device.GPU)
    for origin, mine, other in ((Origin.MEASURED, measured, simulated), (Origin.SIMULATED, simulated, measured)):
        found = load_history(tmp_path, "local", origin=origin)
        assert ids(found.runs) == [mine.run_id] and set(found.table["origin"].to_pylist()) == {origin.value}
        assert [item.run_id for item in found.skipped] == [other.run_id]
        assert "not " + origin.value in found.skipped[0].reason


def test_a_verdict_that_lies_about_the_origin_brings_no_row(tmp_path: Path):
    run = build_run(tmp_path, BASE, origin=Origin.SIMULATED, device=Device.GPU)
    rewrite_json(run, "verdict.json", origin="measured")
    assert load_history(tmp_path, "local", origin=Origin.MEASURED).table.num_rows == 0


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda run: (run.derived / "provenance.json").unlink(), "not judged"),
        (lambda run: (run.derived / "provenance.json").write_text("{"), "not judged"),
        (lambda run: (run.derived / "measurements.parquet").write_bytes(b"PAR1"), r"measurements\.parquet was changed"),
        (lambda run: (run.derived / "verdicts.parquet").unlink(), r"verdicts\.parquet is missing"),
        (lambda run: rewrite_json(run, "verdict.json", origin=None), "its numbers are None"),
        (lambda run: (run.derived / "verdict.json").unlink(), r"verdict\.json is missing"),
    ],
)
def test_a_run_whose_derived_files_are_not_its_judges_is_skipped_with_the_reason(tmp_path: Path, damage, reason: str):
    good, bad = build_history(tmp_path, 2, replace(BASE, nodes=1))
    damage(bad)
    found = load_history(tmp_path, "local", origin=Origin.MEASURED)
    assert ids(found.runs) == [good.run_id]
    assert [item.run_id for item in found.skipped] == [bad.run_id]
    assert re.search(reason, found.skipped[0].reason)


def test_measurements_copied_from_another_run_are_skipped(tmp_path: Path):
    good, bad = build_history(tmp_path, 2, replace(BASE, nodes=1))
    (bad.derived / "measurements.parquet").write_bytes((good.derived / "measurements.parquet").read_bytes())
    assert ids(load_history(tmp_path, "local", origin=Origin.MEASURED).runs) == [good.run_id]


def test_a_run_judged_on_other_evidence_is_skipped(tmp_path: Path):
    run = build_run(tmp_path, replace(BASE, nodes=1))
    (run.evidence / "manifest.json").unlink()
    (run.evidence / "note.json").write_text("{}")
    run.seal()
    found = load_history(tmp_path, "local", origin=Origin.MEASURED)
    assert found.runs == () and "other evidence" in found.skipped[0].reason


# -- which rows ------------------------------------------------------------------------------------------------------


def test_rows_are_filtered_by_version_indicator_machine_and_params(tmp_path: Path):
    build_run(tmp_path, BASE, seed=1)
    build_run(tmp_path, BASE, seed=2, version="2", when=BASE.when + timedelta(days=1))

    def rows(**wanted) -> list[dict]:
        return load_history(tmp_path, "local", origin=Origin.MEASURED, **wanted).table.to_pylist()

    found = rows(benchmark_versions={"fio": "2", "hpl_mxp": "7"})
    assert {(row["benchmark"], row["benchmark_version"]) for row in found} == {("fio", "2")}
    assert {row["indicator"] for row in rows(indicators={"residual", "step_time"})} == {"residual", "step_time"}
    assert {row["hardware_id"] for row in rows(hardware_ids=["test-local-0"])} == {"test-local-0"}
    params = '{"message_bytes":8192,"operation":"all_reduce"}'
    assert {row["params"] for row in rows(params=params)} == {params}
    assert rows(benchmark_versions={}) == [] and rows(hardware_ids=["elsewhere"]) == []


def test_rows_that_their_own_run_judged_invalid_are_no_values(tmp_path: Path):
    run = build_run(tmp_path, BASE, invalid=["fio-n1-g0-r1"])
    assert "fio-n1-g0-r1" not in rows_of(run)["launch_id"].to_pylist()
    assert "hpl_mxp-n1-g0-r1" in rows_of(run)["launch_id"].to_pylist()


def test_an_invalid_launch_takes_all_its_rows_and_an_invalid_row_only_itself(tmp_path: Path):
    extra = [
        verdict(Code.WRONG_HOST, "somewhere", "wrong host", launch_id="hpl_mxp-n1-g0-r1"),
        verdict(Code.ABOVE_CEILING, "somewhere", "too fast", launch_id="fio-n1-g0-r1", indicator="read_iops"),
        verdict(
            Code.DUPLICATE,
            "somewhere",
            "twice",
            launch_id="nccl_tests-n2-g0-r1",
            indicator="bus_bandwidth",
            params='{"message_bytes":8192,"operation":"all_reduce"}',
        ),
    ]
    whole, left = (build_run(tmp_path, BASE, seed=n, extra=items) for n, items in ((1, []), (2, extra)))

    def keys(run: RunDirectory) -> set[tuple]:
        return {(row["launch_id"], row["indicator"], row["params"]) for row in rows_of(run).to_pylist()}

    gone = keys(whole) - keys(left)
    assert {key[0] for key in gone if key[0].startswith("hpl")} == {"hpl_mxp-n1-g0-r1"}
    assert {key[1] for key in gone if key[0].startswith("hpl")} == {"effective_flops", "residual"}
    assert {key[1] for key in gone if key[0].startswith("fio")} == {"read_iops"}
    nccl = {key for key in gone if key[0].startswith("nccl")}
    assert nccl == {("nccl_tests-n2-g0-r1", "bus_bandwidth", '{"message_bytes":8192,"operation":"all_reduce"}')}


# -- approval --------------------------------------------------------------------------------------------------------


def test_approved_history_holds_the_approved_runs_only(tmp_path: Path):
    runs = build_history(tmp_path, 4, replace(BASE, nodes=1))
    for run in (runs[0], runs[2]):
        run.add_decision({"kind": "approve_baseline", "by": "ann"})
    found = load_history(tmp_path, "local", origin=Origin.MEASURED, approved_only=True)
    assert ids(found.runs) == [runs[0].run_id, runs[2].run_id]
    before = load_history(tmp_path, "local", origin=Origin.MEASURED, approved_only=True, before=runs[2].run_id)
    assert ids(before.runs) == [runs[0].run_id]
    newest = load_history(tmp_path, "local", origin=Origin.MEASURED, approved_only=True, newest=1)
    assert ids(newest.runs) == [runs[2].run_id]


# -- series ----------------------------------------------------------------------------------------------------------


def test_a_series_follows_the_median_of_its_repeats(tmp_path: Path):
    runs = build_history(tmp_path, 3, replace(BASE, repeats=3))
    found = series(load_history(tmp_path, "local", origin=Origin.MEASURED))
    lines = [line for key, line in found.items() if (key.benchmark, key.indicator) == ("fio", "read_iops")]
    assert len(lines) == 1 and lines[0].unit == "IOPS" and lines[0].key.node == "local-0"
    assert [point.run_id for point in lines[0].points] == ids(runs)
    assert [point.repeats for point in lines[0].points] == [3, 3, 3]
    values = sorted(
        row["value"]
        for row in rows_of(runs[1]).to_pylist()
        if (row["benchmark"], row["indicator"]) == ("fio", "read_iops")
    )
    assert lines[0].points[1].value == values[1]


def test_a_node_is_one_series_whatever_group_it_was_in(tmp_path: Path):
    base = Scenario(cluster="h100", nodes=4, device=Device.GPU)
    build_history(tmp_path, 3, base)  # another seed every night: another group for the same node
    loaded = load_history(tmp_path, "h100", origin=Origin.MEASURED)
    groups = {
        (row["run_id"], row["node"], row["group"])
        for row in loaded.table.to_pylist()
        if row["benchmark"] == "hpl_mxp" and row["node"] == "n0002"
    }
    assert len({group for _, _, group in groups}) > 1
    lines = [s for k, s in series(loaded).items() if (k.indicator, k.node) == ("effective_flops", "n0002")]
    assert len(lines) == 1 and len(lines[0].points) == 3 and lines[0].key.group is None


def test_places_can_be_put_together(tmp_path: Path):
    build_run(tmp_path, Scenario(cluster="h100", nodes=4, device=Device.GPU, slow_nodes={"n0002": 0.5}))
    found = series(load_history(tmp_path, "h100", origin=Origin.MEASURED), by_place=False)
    lines = [s for k, s in found.items() if k.indicator == "effective_flops"]
    assert len(lines) == 1 and lines[0].points[0].repeats == 4
    assert lines[0].points[0].value > 0.9 * 840_000  # the median doesn't follow one slow node of four


def test_versions_and_params_are_series_of_their_own(tmp_path: Path):
    build_run(tmp_path, BASE, seed=1)
    build_run(tmp_path, BASE, seed=2, version="2", when=BASE.when + timedelta(days=1))
    found = series(load_history(tmp_path, "local", origin=Origin.MEASURED))
    assert all(len(line.points) == 1 for line in found.values())
    assert {key.benchmark_version for key in found} == {"1", "2"}
