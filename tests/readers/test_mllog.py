"""MLPerf logs: one run counted once however often ranks tell it, and a time only where a run says success."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from tests.readers import item_lists
from tests.readers.item_lists import facts, readings, values
from tests.readers.mllog_text import WHOLE, event, run, text

from plumbline.errors import OutputError
from plumbline.readers import detect, mllog
from plumbline.readers.reading import Fact, Reading, Status
from plumbline.units import UNITS

DATA = Path(__file__).parents[1] / "data" / "mllog"
items = partial(item_lists.items, mllog)


# ---------------------------------------------------------------------------------------------------------------
# What a log gives


def test_a_success_has_a_time_and_its_rows():
    found = items(WHOLE)
    assert values(found, "time_to_train") == [100.0]
    assert values(found, "eval_accuracy") == [2.9, 2.8375, 2.775]
    assert values(found, "step_time") == [1.5, 1.625, 1.75, 1.875] * 3
    assert values(found, "train_loss") == [3.0] * 4 + [2.875] * 4 + [2.75] * 4
    assert readings(found)[0].params == {"step": 0}
    told = facts(found)
    assert told["submission_org"] == "somebody"
    assert told["time_to_train_min"] == pytest.approx(100 / 60)
    assert told["settings"] == {"opt_base_learning_rate": 2e-5}
    assert told["final_statistics"] == {"throughput": 1234.5}
    assert values(found, "throughput") == []
    assert found[-1].found == {"runs": 1, "evals": [3], "steps": [12], "statuses": ["success"]}


def test_our_own_trainers_logs():
    found = items((DATA / "gpt3_success.txt").read_bytes())
    assert found[-1].status is Status.COMPLETE
    assert values(found, "eval_accuracy") == [3.690676122903824, 3.0732007175683975]
    assert values(found, "time_to_train") == [facts(found)["time_to_train_ms"] / 1000]
    found = items((DATA / "bert_aborted.txt").read_bytes())
    assert found[-1].status is Status.ABORTED
    assert values(found, "time_to_train") == []
    assert facts(found)["elapsed_until_abort_ms"] > 0
    found = items((DATA / "gpt3_fixed_steps.txt").read_bytes(), steps=20, runs=1)
    assert found[-1].status is Status.COMPLETE
    assert len(values(found, "step_time")) == 20
    assert len(values(found, "train_loss")) == 23
    assert values(found, "time_to_train") == []
    assert not {"time_to_train_ms", "elapsed_until_abort_ms"} & set(facts(found))
    assert facts(found)["settings"]["checkpoint_restored"] is True


def test_declared_names_are_the_names_used():
    for path in DATA.iterdir():
        for item in items(path.read_bytes()):
            if isinstance(item, Reading):
                assert mllog.INDICATORS[item.indicator][0] == item.unit
            elif isinstance(item, Fact):
                assert item.name in mllog.FACTS
    assert {unit for unit, _ in mllog.INDICATORS.values()} <= UNITS


def test_sniff_and_detect():
    assert mllog.sniff(WHOLE) == 1.0
    assert mllog.sniff("# nccl-tests version 2.13\n") == 0.0
    assert detect(DATA / "gpt3_success.txt").NAME == "mllog"


@pytest.mark.parametrize(
    ("stats", "indicator", "value"),
    [
        ({"train_step_timing": 1.5}, "step_time", 1.5),
        ({"train_step_timing in s": 1.5}, "step_time", 1.5),
        ({"train_step_time": 1.5}, "step_time", 1.5),
        ({"step_time_ms": 1500.0}, "step_time", 1.5),
        ({"step_time (ms)": 1500.0}, "step_time", 1.5),
        ({"time": 1.5, "data": 0.1}, "step_time", 1.5),
        ({"Train_Step_Time ": "1.5"}, "step_time", 1.5),
        ({"imgs_sec": 7.0}, "throughput", 7.0),
        ({"samples_per_sec": 7.0}, "throughput", 7.0),
        ({"validation_step_timing in s": 2.5}, "validation_step_time", 2.5),
        ({"reduced_train_loss": 2.5}, "train_loss", 2.5),
    ],
)
def test_statistics_are_known_under_every_name(stats, indicator, value):
    lines = run(steps=0)
    lines.insert(9, event("tracked_stats", stats, 12, step=1))
    assert values(items(text(lines)), indicator) == [value]


def test_names_that_only_look_like_times_are_left_alone():
    lines = run(steps=0)
    other = {"train_time": 4.6, "walltime": 4.6, "warmup_time": 3.0, "init_finished": 1.0, "time_now": "2023-10-06"}
    lines.insert(9, event("tracked_stats", {**other, "max_memory_usage": 14.4, "seconds": 1}, 12, step=1))
    found = items(text(lines))
    assert values(found, "step_time") == []
    assert facts(found).get("not_finite") is None


def test_own_keys_pairs_of_steps_and_what_a_throughput_counts():
    lines = run(steps=0, benchmark="bert")
    lines.insert(9, event("train_loss ", 2.25, 12, samples_count=80, lr=0.1))
    lines.insert(10, event("tracked_stats", {"throughput": 7.5, "epoch_num": 8}, 13, step=[2, 332]))
    found = [item for item in items(text(lines)) if isinstance(item, Reading)]
    assert Reading("train_loss", 2.25, "1", {"samples_count": 80}) in found
    where = {"step_first": 2, "step_last": 332, "epoch_num": 8, "counts": "samples"}
    assert Reading("throughput", 7.5, "1/s", where) in found
    counted = items(WHOLE.replace('"train_step_timing in s"', '"throughput"'))
    assert {i.params["counts"] for i in counted if isinstance(i, Reading) and i.indicator == "throughput"} == {"tokens"}


def test_several_metrics_of_one_evaluation():
    lines = run(evals=1)
    lines = [line.replace('"value": 2.9', '"value": {"BBOX": 0.375, "SEGM": 0.25}') for line in lines]
    found = items(text(lines))
    assert values(found, "eval_accuracy") == [0.375, 0.25]
    assert [i.params["metric"] for i in found if isinstance(i, Reading) and i.indicator == "eval_accuracy"] == [
        "BBOX", "SEGM",
    ]  # fmt: skip
    assert facts(found)["n_eval"] == 1
    assert found[-1].status is Status.COMPLETE


# ---------------------------------------------------------------------------------------------------------------
# What becomes of a run


@pytest.mark.parametrize(
    ("status", "expected", "word"),
    [
        ("aborted", Status.ABORTED, "aborted"),
        ("ABORTED", Status.ABORTED, "aborted"),
        ("failed", Status.FAILED, "failed"),
        ("", Status.UNKNOWN, "no status"),
        (None, Status.UNKNOWN, "no status"),
        (True, Status.UNKNOWN, "no status"),
    ],
)
def test_only_success_has_a_time(status, expected, word):
    found = items(text(run(status=status)))
    assert found[-1].status is expected
    assert word in found[-1].reason
    assert values(found, "time_to_train") == []
    assert not any(name.startswith("time_to_train") for name in facts(found))


def test_success_of_one_rank_and_abort_of_another_is_no_success():
    lines = run()
    stop = next(i for i, line in enumerate(lines) if '"run_stop"' in line)
    lines.insert(stop + 1, event("run_stop", None, 110.1, status="aborted"))
    found = items(text(lines))
    assert found[-1].status is Status.ABORTED
    assert values(found, "time_to_train") == []
    assert facts(found)["run_stop_status"] == ["success", "aborted"]


def test_without_run_stop():
    found = items(text(line for line in run() if '"run_stop"' not in line))
    assert found[-1].status is Status.INCOMPLETE
    assert "run_stop" in found[-1].reason
    assert values(found, "time_to_train") == []


def test_without_run_start():
    lines = run()
    start = next(i for i, line in enumerate(lines) if '"run_start"' in line)
    found = items(text(lines[start + 1 :]))
    assert found[-1].status is Status.INCOMPLETE
    assert "head" in found[-1].reason
    assert values(found, "time_to_train") == []
    assert all(i.params["phase"] == "before run_start" for i in found if isinstance(i, Reading))


def test_never_started():
    found = items(text(run()[:4]))
    assert found[-1].status is Status.NOT_STARTED
    assert facts(found)["status"] == "not_started"


def test_a_launch_that_failed_is_not_started_and_other_text_is_refused():
    found = items("+ srun --ntasks=1 run.sh\nsrun: error: node73: task 0: Exited with exit code 1\n")
    assert found[-1].status is Status.NOT_STARTED
    assert facts(found)["mllog_lines"] == 0
    others = ["", "\n\n", "# nccl-tests version 2.13.9\n#  size count\n 8 2\n", '{"a": 1}', "<xml/>", "hello world\n"]
    for other in [*others, "\x7fELF\x02\x01\x00\x00 srun"]:
        with pytest.raises(OutputError):
            items(other)


@pytest.mark.parametrize("length", [-50.0, 0.0, 500 * 86400.0])
def test_a_clock_that_cannot_be_believed_gives_no_time(length):
    lines = run(length=100)
    stop = next(i for i, line in enumerate(lines) if '"run_stop"' in line)
    lines[stop] = event("run_stop", None, 10 + length, status="success")
    found = items(text(lines))
    assert found[-1].status is Status.UNKNOWN
    assert "clock" in found[-1].reason
    assert values(found, "time_to_train") == []


def test_records_older_than_run_start_give_no_time():
    lines = run()
    lines.insert(12, event("tracked_stats", {"step_time": 1.0}, -3600, step=99))
    found = items(text(lines))
    assert found[-1].status is Status.UNKNOWN
    assert "clock" in found[-1].reason
    assert values(found, "time_to_train") == []


def test_two_jobs_in_one_log_give_no_time():
    lines = run()
    lines.insert(12, event("global_batch_size", 128, 15))
    found = items(text(lines))
    assert found[-1].status is Status.UNKNOWN
    assert "two jobs" in found[-1].reason


def test_success_needs_its_evaluations():
    found = items(text(line for line in run() if "eval_" not in line))
    assert found[-1].status is Status.INCOMPLETE
    lines = run()
    lines.remove(next(line for line in lines if '"eval_accuracy"' in line))
    found = items(text(lines))
    assert found[-1].status is Status.INCOMPLETE
    assert "3 evaluations ended, 2 have a result" in found[-1].reason


def test_values_that_are_no_numbers_are_counted_and_not_given():
    lines = run()
    for value in (float("nan"), float("inf"), "NaN"):
        lines.insert(12, event("tracked_stats", {"reduced_train_loss": value}, 15, step=77))
    lines.insert(12, event("tracked_stats", {"step_time": True, "loss": None, "throughput": "12 img/s"}, 15, step=78))
    lines.insert(
        12, event("tracked_stats", {"step_time": 1}, 15, step=79).replace('"step_time": 1}', '"step_time": 1e999}')
    )
    lines.insert(
        12, event("tracked_stats", {"step_time": 1}, 15, step=80).replace('time": 1}', 'time": 1' + "0" * 400 + "}")
    )
    found = items(text(lines))
    assert facts(found)["not_finite"] == {"train_loss": 3, "step_time": 1}
    assert len(values(found, "step_time")) == 12
    assert len(values(found, "train_loss")) == 12


def test_expectations():
    assert items(WHOLE, runs=1, evals=3, steps=12)[-1].status is Status.COMPLETE
    for expect in ({"runs": 2}, {"evals": 4}, {"steps": 13}, {"steps": "11"}):
        found = items(WHOLE, **expect)
        assert found[-1].status is Status.INCOMPLETE
        assert "expected" in found[-1].reason


def test_a_power_log_holds_no_training_run():
    lines = [event("power_measurement_start", None, 0, kind="INTERVAL_START")]
    lines += [event("power_reading", 2844.0 + number % 2, number, host="node_0") for number in range(5)]
    lines.append(event("power_measurement_stop", None, 6, kind="INTERVAL_END"))
    found = items(text(lines))
    assert values(found, "power") == [2844.0, 2845.0, 2844.0, 2845.0, 2844.0]
    assert found[-1].status is Status.NOT_STARTED
    assert "power log" in found[-1].reason
