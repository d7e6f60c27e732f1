"""MLPerf logs: one run counted once however often ranks tell it, and a time only where a run says success."""

from __future__ import annotations

import io
import itertools
import json
import random
import tracemalloc
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.readers import item_lists
from tests.readers.item_lists import facts, readings, values

from plumbline.errors import OutputError
from plumbline.readers import detect, mllog
from plumbline.readers.reading import Fact, Reading, Status
from plumbline.readers.source import Source
from plumbline.units import UNITS

DATA = Path(__file__).parents[1] / "data" / "mllog"
T0 = 1_700_000_000_000
items = partial(item_lists.items, mllog)


def event(key, value=None, at=0.0, kind="POINT_IN_TIME", **metadata):
    """Write one record, `at` seconds after T0."""
    record = {
        "namespace": "", "time_ms": T0 + round(at * 1000), "event_type": kind, "key": key, "value": value,
        "metadata": {"file": "train.py", "lineno": 7, **metadata},
    }  # fmt: skip
    return ":::MLLOG " + json.dumps(record)


def run(start=10.0, length=100.0, status="success", seed=17, evals=3, steps=4, benchmark="gpt3", ranks=1) -> list[str]:
    """Write the lines of one run."""
    lines = [event("cache_clear", True, start - 9)]
    lines += [event("init_start", None, start - 8 + rank / 1000) for rank in range(ranks)]
    lines += [
        event("submission_benchmark", benchmark, start - 7),
        event("submission_org", "somebody", start - 7),
        event("seed", seed, start - 7),
        event("global_batch_size", 64, start - 7),
        event("opt_base_learning_rate", 2e-5, start - 7),
        event("init_stop", None, start - 1),
        event("run_start", None, start),
    ]
    for number in range(evals):
        at = start + (number + 1) * length / (evals + 1)
        for step in range(steps):
            stats = {"train_step_timing in s": 1.5 + step / 8, "reduced_train_loss": 3.0 - number / 8}
            lines.append(event("tracked_stats", stats, at - 1 + step / 8, step=number * steps + step))
        lines.append(event("eval_start", None, at, epoch_num=number * 640))
        lines.append(event("eval_accuracy", 2.9 - number / 16, at, epoch_num=number * 640))
        lines.append(event("eval_stop", None, at, epoch_num=number * 640))
    lines.append(event("run_stop", None, start + length, status=status))
    lines.append(event("train_samples", evals * 640, start + length))
    lines.append(event("tracked_stats", {"throughput": 1234.5}, start + length + 0.5, step=evals * 640))
    return lines


def text(lines) -> str:
    return "\n".join(lines) + "\n"


WHOLE = text(run())


def assert_same_as_whole(found, *, duplicates=False):
    reference = items(WHOLE)
    assert found[-1].status is Status.COMPLETE, found[-1].reason
    assert [item for item in found if isinstance(item, Reading)] == [i for i in reference if isinstance(i, Reading)]
    told, wanted = facts(found), facts(reference)
    for name in ("time_to_train_ms", "n_eval", "last_eval_accuracy", "seed", "distinct_seeds", "global_batch_size"):
        assert told[name] == wanted[name]
    assert ("duplicate_records" in told) is duplicates


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


# ---------------------------------------------------------------------------------------------------------------
# What stands around the records


def collector(line):
    return json.dumps({"log": line + "\n", "stream": "stdout", "time": "2026-01-01T00:00:00.000000000Z"})


FRAMES = {
    "srun": lambda line: f"   0: {line}",
    "mpich": lambda line: f"[0] {line}",
    "mpirun": lambda line: f"[1,0]<stdout>:{line}",
    "cri": lambda line: f"2026-01-01T00:00:00.000000000Z stdout F {line}",
    "pod": lambda line: f"[pod/train-0/main] {line}",
    "host": lambda line: f"node12: {line}",
    "collector": collector,
    "colour": lambda line: f"\x1b[32m{line}\x1b[0m",
    "glued": lambda line: f"device: cuda:0 n_gpu: 1, distributed training: True{line}",
    "progress": lambda line: f" 45%|████▌     | 5.00M/11.1M [00:01<00:01, 4.6MB/s]{line}",
    "behind": lambda line: f"{line} &&&& MLPERF METRIC",
    "no blank": lambda line: line.replace(":::MLLOG ", ":::MLLOG"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_prefixes_and_other_text_around_records(name):
    assert_same_as_whole(items(text(FRAMES[name](line) for line in run())))


def test_line_ends_and_text_between():
    assert_same_as_whole(items(WHOLE.replace("\n", "\r\n")))
    assert_same_as_whole(items(WHOLE.replace("\n", "\r")))
    chatter = "node1:77:99 [0] NCCL INFO Channel 00/32 : 0 1 2 3\nEpoch 1: 100%|███| 10/10\n"
    found = items("".join(f"{chatter}{line}\n" for line in run()))
    assert_same_as_whole(found)
    assert facts(found)["lines"] == 3 * len(run())


def test_prefixes_are_counted_by_their_shape():
    lines = [f"  {number % 3}: {line}" if number % 2 else line for number, line in enumerate(run(steps=1))]
    assert facts(items(text(lines)))["prefixes"] == {"": (len(lines) + 1) // 2, "N:": len(lines) // 2}


def test_two_records_on_one_line_and_the_token_inside_a_record():
    lines = run()
    pairs = zip(lines[::2], [*lines[1::2], ""], strict=False)
    assert_same_as_whole(items(text(first + second for first, second in pairs)))
    quoted = [line.replace('"file": "train.py"', '"file": "grep :::MLLOG x"') for line in lines]
    assert_same_as_whole(items(text(quoted)))


@pytest.mark.parametrize("width", [80, 132, 37])
def test_records_that_a_terminal_has_wrapped(width):
    def wrap(line, prefix=""):
        return [prefix + line[place : place + width] for place in range(0, len(line), width)]

    assert_same_as_whole(items(text(piece for line in run() for piece in wrap(line))))
    assert_same_as_whole(items(text(piece for line in run() for piece in wrap(line, "0: "))))


def test_lines_between_the_pieces_of_a_record_make_no_record():
    lines = run()
    victim = next(i for i, line in enumerate(lines) if '"eval_accuracy"' in line)
    cut = lines[victim].index('"value": 2.9') + len('"value": 2')
    lines[victim : victim + 1] = [lines[victim][:cut], "7", lines[victim][cut:]]
    found = items(text(lines))
    assert found[-1].status is Status.INCOMPLETE
    assert len(values(found, "eval_accuracy")) == 2


def test_ranks_that_log_together_count_once():
    assert_same_as_whole(items(text(f"{rank}: {line}" for line in run() for rank in range(8))), duplicates=True)
    assert_same_as_whole(items(text(line for line in run() for _ in range(8))), duplicates=True)
    found = items(text(run(ranks=512)))
    assert_same_as_whole(found)


def test_ranks_that_measure_their_own_step_time_are_not_added():
    lines = []
    for line in run():
        slower = line.replace('"train_step_timing in s": 1.', '"train_step_timing in s": 9.')
        lines += [f"[1,0]<stdout>: {line}", f"[1,1]<stdout>: {slower}"]
    assert_same_as_whole(items(text(lines)), duplicates=True)


def test_ranks_leave_the_barrier_apart():
    """Time to train is latest stop − earliest start."""
    lines = []
    for line in run():
        lines.append(line)
        if '"run_start"' in line:
            lines.append(event("run_start", None, 10.25))
        if '"run_stop"' in line:
            lines.append(event("run_stop", None, 110.5, status="success"))
    found = items(text(lines))
    assert values(found, "time_to_train") == [100.5]
    assert facts(found)["n_run_start"] == facts(found)["n_run_stop"] == 2
    assert found[-1].status is Status.COMPLETE


def test_ranks_logs_one_behind_the_other_count_once():
    assert_same_as_whole(items(text([*run(), *run(), *run()])), duplicates=True)
    silent = [event("init_start", None, 2.5), event("init_start", None, 2.6)]
    assert_same_as_whole(items(text([*run(), *silent])))


# ---------------------------------------------------------------------------------------------------------------
# Several runs


def test_several_runs_are_told_apart():
    lines = [*run(), *run(start=300, length=90, seed=18), *run(start=600, length=80, seed=19, status="aborted")]
    found = items(text(lines))
    assert found[-1].status is Status.ABORTED
    assert found[-1].reason.startswith("run 2:")
    times = [item for item in found if isinstance(item, Reading) and item.indicator == "time_to_train"]
    assert [(item.value, item.params) for item in times] == [(100.0, {"run": 0}), (90.0, {"run": 1})]
    assert {item.params["run"] for item in found if isinstance(item, Reading)} == {0, 1, 2}
    told = facts(found)
    assert told["n_runs"] == 3
    assert told["distinct_seeds"] == 3
    assert told["run_stop_status"] == ["success", "success", "aborted"]
    assert told["status"] == "aborted"
    assert "seed" not in told
    assert [one["seed"] for one in told["runs"]] == [17, 18, 19]
    assert told["global_batch_size"] == 64


def test_runs_in_reverse_order_of_time_are_still_two():
    found = items(text([*run(start=900), *run(start=10, length=90)]))
    assert sorted(values(found, "time_to_train")) == [90.0, 100.0]


def test_a_job_that_was_killed_and_started_again():
    killed = run()[:16]
    found = items(text([*killed, *run(start=400)]))
    assert found[-1].status is Status.INCOMPLETE
    assert values(found, "time_to_train") == [100.0]
    assert facts(found)["n_runs"] == 2


def test_a_job_that_died_when_started_again():
    found = items(text([*run(), *run(start=400)[:5]]))
    assert found[-1].status is Status.NOT_STARTED
    assert values(found, "time_to_train") == [100.0]


# ---------------------------------------------------------------------------------------------------------------
# Damage


def test_a_damaged_hyperparameter_is_counted():
    lines = run()
    lines.insert(4, event("opt_name", "adamw", 3).replace('"metadata": {"file": "', "Somewhere/"))
    found = items(text(lines))
    assert facts(found)["bad_mllog_lines"] == 1
    assert facts(found)["mllog_lines"] == len(lines)
    assert_same_as_whole(found)


@pytest.mark.parametrize(
    "damaged",
    [
        ':::MLLOG {"namespace": "", "time_ms": 1700000015000, "key": "eval_accuracy", "value": 2.',
        ":::MLLOG {not json}",
        ":::MLLOG",
        ":::MLLOG null",
        ":::MLLOG [1, 2]",
        ':::MLLOG {"key": "eval_accuracy", "value": 1.0}',
        ':::MLLOG {"time_ms": "soon", "key": "eval_accuracy", "value": 1.0}',
        ':::MLLOG {"time_ms": -5, "key": "eval_accuracy", "value": 1.0}',
        ':::MLLOG {"time_ms": 1700000015000, "key": 7, "value": 1.0}',
        ':::MLLOG {"time_ms": 1700000015000, "key": "eval_accuracy", "value": 1.0, "value": 2.0}',
        ':::MLLOG {"time_ms": 1700000015000, "key": "eval_accuracy", "key": "seed", "value": 2.0}',
        ':::MLLOG {"time_ms": 1' + "0" * 5000 + ', "key": "eval_accuracy", "value": 2.0}',
        ":::MLLOG " + '{"a":' * 100_000,
    ],
)
def test_a_row_that_cannot_be_read_is_no_row_and_the_run_not_whole(damaged):
    lines = run()
    lines.insert(12, damaged)
    found = items(text(lines))
    assert found[-1].status is Status.INCOMPLETE
    assert "damaged" in found[-1].reason
    assert facts(found)["bad_mllog_lines"] == 1
    assert values(found, "eval_accuracy") == [2.9, 2.8375, 2.775]


def test_interleaved_halves_of_two_ranks():
    lines = run()
    victim = next(i for i, line in enumerate(lines) if '"eval_accuracy"' in line)
    lines[victim] = lines[victim][:90] + lines[victim + 1]
    found = items(text(lines))
    assert found[-1].status is Status.INCOMPLETE
    assert len(values(found, "eval_accuracy")) == 2


@pytest.mark.parametrize("name", ["gpt3_success.txt", "bert_aborted.txt", "gpt3_fixed_steps.txt", "generated"])
def test_a_log_that_is_cut_anywhere_is_never_called_complete_with_fewer_rows(name):
    data = WHOLE.encode() if name == "generated" else (DATA / name).read_bytes()
    whole = readings(items(data))
    cuts = {*range(0, len(data), max(1, len(data) // 400)), *range(len(data) - 120, len(data))}
    for cut in sorted(cuts):
        try:
            found = items(data[:cut])
        except OutputError:
            continue
        if found[-1].status is Status.COMPLETE:
            assert readings(found) == whole, f"cut at {cut}"
        else:
            assert [item for item in readings(found) if item not in whole] == []


def test_every_byte_around_the_end_of_a_run():
    data = text(run(steps=1, evals=1)).encode()
    whole = readings(items(data))
    for cut in range(len(data)):
        try:
            found = items(data[:cut])
        except OutputError:
            continue
        if found[-1].status is Status.COMPLETE:
            assert readings(found) == whole, f"cut at {cut}"


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_bytes_raise_nothing_else_and_invent_no_time(data):
    raw = bytearray(WHOLE.encode())
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(raw) - 1))
        change = data.draw(st.sampled_from(["delete", "insert", "replace", "double"]))
        piece = data.draw(st.binary(min_size=1, max_size=30))
        end = place + data.draw(st.integers(1, 300))
        if change == "delete":
            del raw[place:end]
        elif change == "insert":
            raw[place:place] = piece
        elif change == "replace":
            raw[place : place + len(piece)] = piece
        else:
            raw[place:place] = raw[place:end]
        if not raw:
            return
    try:
        found = items(bytes(raw))
    except OutputError:
        return
    assert len(values(found, "time_to_train")) <= facts(found)["n_run_start"]
    for item in readings(found):
        assert item.value - item.value == 0


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*run(steps=1), *run(start=400, steps=1, status="aborted"), "chatter", ":::MLLOG {"])))
def test_records_in_any_order_raise_nothing_else(lines):
    try:
        found = items(text(lines))
    except OutputError:
        return
    stops = [line for line in lines if '"run_stop"' in line and '"success"' in line]
    assert len(values(found, "time_to_train")) <= len(stops)


def test_a_power_log_holds_no_training_run():
    lines = [event("power_measurement_start", None, 0, kind="INTERVAL_START")]
    lines += [event("power_reading", 2844.0 + number % 2, number, host="node_0") for number in range(5)]
    lines.append(event("power_measurement_stop", None, 6, kind="INTERVAL_END"))
    found = items(text(lines))
    assert values(found, "power") == [2844.0, 2845.0, 2844.0, 2845.0, 2844.0]
    assert found[-1].status is Status.NOT_STARTED
    assert "power log" in found[-1].reason


# ---------------------------------------------------------------------------------------------------------------
# Size


def test_one_line_of_a_million_tokens_stays_linear():
    for piece in (":::MLLOG ", ':::MLLOG {"', ':::MLLOG {"a": "\\"', ":::MLLOG {"):
        found = items(piece * 8_000 + "\n")
        assert facts(found)["bad_mllog_lines"] >= 1


class Endless(io.RawIOBase):
    """A log of many lines that is never held as a whole."""

    def __init__(self, lines, repeats):
        self._pieces = itertools.chain.from_iterable(lines(number) for number in range(repeats))

    def read(self, size=-1):
        return next(self._pieces, b"")


def test_a_large_log_takes_constant_memory():
    chatter = b"node1:77:99 [0] NCCL INFO Channel 00/32 : 0 1 2 3 4 5 6 7\n" * 1000
    start, stop = run()[:9], run()[-3:]

    def lines(number):
        if number == 0:
            yield text(start).encode()
        yield chatter
        steps = (event("tracked_stats", {"step_time": 1.5}, 20 + number, step=number * 99 + i) for i in range(99))
        yield text(steps).encode()
        if number == 59:
            yield text([event("eval_accuracy", 0.5, 90, epoch_num=1), *stop]).encode()

    tracemalloc.start()
    count = sum(1 for item in mllog.read(Source(Endless(lines, 60)), {}) if isinstance(item, Reading))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 60 * 99 + 2
    assert peak < 24 << 20


def test_records_shuffled_by_buffers_keep_their_run():
    """Rank 0's lines arrive in order in real logs; a block of other ranks' late init lines does not open a run."""
    lines = run(ranks=64)
    late = [line for line in lines if '"init_start"' in line][32:]
    rest = [line for line in lines if line not in late]
    place = random.Random(3).randrange(12, len(rest))
    assert_same_as_whole(items(text([*rest[:place], *late, *rest[place:]])))
