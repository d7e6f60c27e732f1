"""Records of MLPerf logs among what stands around them, told by many ranks, and of several runs in one log."""

from __future__ import annotations

import json
import random
from functools import partial

import pytest
from tests.readers import item_lists
from tests.readers.item_lists import facts, values
from tests.readers.mllog_text import WHOLE, assert_same_as_whole, event, run, text

from plumbline.readers import mllog
from plumbline.readers.reading import Reading, Status

items = partial(item_lists.items, mllog)


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


def test_records_shuffled_by_buffers_keep_their_run():
    """Rank 0's lines arrive in order in real logs; a block of other ranks' late init lines does not open a run."""
    lines = run(ranks=64)
    late = [line for line in lines if '"init_start"' in line][32:]
    rest = [line for line in lines if line not in late]
    place = random.Random(3).randrange(12, len(rest))
    assert_same_as_whole(items(text([*rest[:place], *late, *rest[place:]])))
