"""Plumbline's trainer at tiny sizes: what is logged is what was used, checkpoints are compared to the bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.bench_programs.bench_python import ENVIRONMENT, NEEDED, PYTHON, run_script

from plumbline.benchmarks import benchmark
from plumbline.readers import mllog
from plumbline.readers.reading import Fact, Reading, Status
from plumbline.readers.source import Source

pytestmark = NEEDED
SIZES = {"layers": 1, "hidden": 32, "heads": 2, "sequence": 32, "vocab": 64, "eval-samples": 16}
TINY = [word for name, size in SIZES.items() for word in (f"--{name}", str(size))]


def train(where: Path, *arguments: str, check: bool = True):
    argv = [str(PYTHON), "-m", "plumbline_bench.trainer", *TINY, *arguments]
    done = subprocess.run(argv, cwd=where, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def read(text: str):
    items = list(mllog.read(Source.of_text(text), {}))
    facts = {item.name: item.value for item in items if isinstance(item, Fact)}
    return [item for item in items if isinstance(item, Reading)], facts, items[-1]


def values(readings, indicator):
    return [item.value for item in readings if item.indicator == indicator]


@pytest.mark.parametrize("name", ["gpt3", "bert"])
def test_fixed_steps_on_two_ranks(tmp_path, name):
    arguments = ["--benchmark", name, "--nodes", "2", "--checkpoint-dir", "c", "--create-checkpoint-dir"]
    done = train(tmp_path, *arguments)
    readings, facts, completeness = read(done.stdout)
    assert completeness.status is Status.COMPLETE
    assert facts["status"] == "completed"
    assert len(values(readings, "step_time")) == 20
    losses = values(readings, "train_loss")
    assert len(losses) == 23
    assert losses[-1] < losses[0]
    assert values(readings, "time_to_train") == []
    assert facts["settings"]["checkpoint_restored"] is True
    assert facts["settings"]["proxy"] is True
    assert "proxy" in facts["submission_platform"]
    assert "not an MLPerf result" in facts["submission_org"]
    assert "not an MLPerf result" in done.stdout.splitlines()[-1]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["proxy"] is True
    assert summary["time_to_train_s"] is None
    assert list((tmp_path / "c").iterdir()) == []
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")] == []


def test_to_target_reaches_what_a_model_can_reach(tmp_path):
    arguments = "--benchmark gpt3 --mode to_target --target 3.2 --eval-every 10 --max-steps 200 --learning-rate 1e-2"
    done = train(tmp_path, *arguments.split())
    readings, facts, completeness = read(done.stdout)
    assert completeness.status is Status.COMPLETE
    assert values(readings, "eval_accuracy")[-1] <= 3.2
    assert all(value > 3.2 for value in values(readings, "eval_accuracy")[:-1])
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["status"] == "success"
    assert summary["time_to_train_s"] == values(readings, "time_to_train")[0] == facts["time_to_train_ms"] / 1000
    assert summary["best_reachable"] < summary["target"]
    report = json.loads((tmp_path / "compliance.json").read_text())
    training = benchmark("mlperf_gpt3").TRAINING
    assert report["ruleset"] == training.ruleset
    assert {item["key"] for item in report["findings"]} <= training.expected_findings


def test_bert_gives_up_and_keeps_every_rule(tmp_path):
    arguments = "--benchmark bert --mode to_target --target 0.7 --eval-every 5 --max-steps 10"
    done = train(tmp_path, *arguments.split())
    readings, _, completeness = read(done.stdout)
    assert completeness.status is Status.ABORTED
    assert values(readings, "time_to_train") == []
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["status"], summary["time_to_train_s"]) == ("aborted", None)
    report = json.loads((tmp_path / "compliance.json").read_text())
    assert report["ruleset"] == benchmark("mlperf_bert").TRAINING.ruleset
    assert report["findings"] == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("--benchmark gpt3 --mode to_target --target 1.5", "entropy"),
        ("--benchmark bert --mode to_target --target 0.9", "at most"),
        ("--benchmark gpt3 --nodes 3 --scaling strong --global-batch 8", "evenly"),
        ("--benchmark gpt3 --hidden 30 --heads 4", "multiple"),
        ("--benchmark gpt3 --nodes 32", "eval-samples"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, arguments, word):
    done = train(tmp_path, *arguments.split(), check=False)
    assert done.returncode == 2
    assert word in done.stderr


def test_sharded_and_replicated_training_are_the_same(tmp_path):
    losses = {}
    for parallelism in ("ddp", "fsdp"):
        where = tmp_path / parallelism
        where.mkdir()
        arguments = ["--benchmark", "bert", "--nodes", "2", "--parallelism", parallelism, "--steps", "6"]
        done = train(where, *arguments, "--checkpoint-dir", "c", "--create-checkpoint-dir")
        readings, facts, _ = read(done.stdout)
        losses[parallelism] = values(readings, "train_loss")
        assert facts["settings"]["checkpoint_restored"] is True
    assert losses["ddp"] == pytest.approx(losses["fsdp"], rel=1e-4)


def test_a_checkpoint_directory_that_is_not_there_loses_no_step_time(tmp_path):
    done = train(tmp_path, "--benchmark", "gpt3", "--checkpoint-dir", str(tmp_path / "absent"))
    readings, facts, completeness = read(done.stdout)
    assert completeness.status is Status.COMPLETE
    assert len(values(readings, "step_time")) == 20
    assert "FileNotFoundError" in facts["settings"]["checkpoint_error"]
    assert "checkpoint_restored" not in facts["settings"]
    assert not (tmp_path / "absent").exists()


def test_the_ranks_of_a_launcher_are_joined(tmp_path):
    argv = [str(PYTHON), "-m", "plumbline_bench.trainer", *TINY, "--benchmark", "gpt3", "--nodes", "2", "--steps", "4"]
    meeting = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20_000 + os.getpid() % 10_000)}
    ranks = [
        subprocess.Popen(
            argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**ENVIRONMENT, **meeting, "RANK": str(rank), "LOCAL_RANK": "0", "GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=300) for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], outputs
    _, facts, completeness = read(outputs[0][0])
    assert completeness.status is Status.COMPLETE
    assert facts["n_run_start"] == 1
    assert ":::MLLOG" not in outputs[1][0]
    one = [*argv, "--nodes", "3"]
    alone = {**ENVIRONMENT, "WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}
    done = subprocess.run(one, env=alone, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "3 were asked for" in done.stderr


def test_no_rank_outlives_one_that_dies(tmp_path):
    argv = [str(PYTHON), "-m", "plumbline_bench.trainer", *TINY, "--benchmark", "gpt3", "--nodes", "2"]
    program = subprocess.Popen(
        [*argv, "--steps", "1000000"], cwd=tmp_path, env=ENVIRONMENT,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
    deadline = time.monotonic() + 200
    while len(ranks := [int(pid) for pid in children.read_text().split()]) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(ranks) == 2
    os.kill(ranks[1], signal.SIGKILL)
    _, errors = program.communicate(timeout=300)
    assert program.returncode == 128 + signal.SIGKILL
    assert "rank 1 died of signal 9" in errors
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)


USED = """
import json, sys
import torch
from plumbline_bench.trainer import group, optimizer
from plumbline_bench.trainer.config import parse
from plumbline_bench.trainer.loop import Trainer

config = parse(sys.argv[1:] or ARGUMENTS)
found = {}

def work(config, ranks):
    trainer = Trainer(config, ranks)
    model, first = trainer.model, trainer.optimizer.param_groups
    inputs, labels = trainer.batches.take(0)
    rates = []
    for step in range(config.total_steps):
        trainer.step()
        rates.append(trainer.optimizer.param_groups[0]["lr"])
    found.update(
        layers=len(model.blocks), hidden=model.tokens.weight.shape[1], vocab=model.tokens.weight.shape[0],
        heads=model.blocks[0].attention.heads, batch=inputs.shape[0], sequence=inputs.shape[1],
        betas=list(first[0]["betas"]), eps=first[0]["eps"], decay=first[0]["weight_decay"],
        no_decay=first[1]["weight_decay"], kind=type(trainer.optimizer).__name__, rates=rates,
        eval_samples=len(trainer.evaluation[0]), seed=torch.initial_seed(), steps=trainer.progress.steps,
    )
    gradients = trainer.model.tokens.weight
    trainer.model.zero_grad()
    inputs, labels = trainer.batches.take(0)
    (trainer.model(inputs, labels)[0] * 1000).backward()
    optimizer.clip(trainer.model, config)
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in trainer.model.parameters()]))
    found["clipped_norm"] = float(norm)
    trainer.events.end("run_stop", status="completed")
    return 0

group._join(config, work, 0, 0, "file://" + __import__("tempfile").mktemp())
print(json.dumps(found))
"""


@pytest.mark.parametrize("name", ["gpt3", "bert"])
def test_every_logged_hyperparameter_is_the_one_used(tmp_path, name):
    """The log is read back and compared with the model, the optimizer, the batches and the rates that were in use."""
    given = [*TINY, "--benchmark", name, "--steps", "20", "--warmup-steps", "2", "--batch-per-rank", "4"]
    given += ["--output-dir", str(tmp_path), "--seed", "7", "--learning-rate-warmup-steps", "5"]
    used = run_script(f"ARGUMENTS = {given!r}\n{USED}")
    _, facts, _ = read((tmp_path / "mllog.txt").read_text())
    logged = {**facts, **facts["settings"]}
    assert logged["num_layers"] == used["layers"] == 1
    assert logged["hidden_size"] == used["hidden"] == 32
    assert logged["vocab_size"] == used["vocab"] == 64
    assert logged["num_heads"] == used["heads"] == 2
    assert logged["batch_size_per_rank"] == logged["global_batch_size"] == used["batch"] == 4
    assert logged["max_sequence_length"] == used["sequence"] == 32
    assert logged["eval_samples"] == used["eval_samples"] == 16
    assert logged["seed"] == used["seed"] == 7
    assert logged["planned_steps"] == used["steps"] == len(used["rates"]) == 22
    assert logged["gradient_accumulation_steps"] == 1
    base, warmup = logged["opt_base_learning_rate"], logged["opt_learning_rate_warmup_steps"]
    assert used["rates"][:warmup] == pytest.approx([base * (step + 1) / warmup for step in range(warmup)])
    assert max(used["rates"]) == base
    if name == "gpt3":
        assert (logged["opt_name"], used["kind"]) == ("adam", "AdamW")
        assert used["betas"] == [logged["opt_adam_beta_1"], logged["opt_adam_beta_2"]]
        assert used["eps"] == logged["opt_adam_epsilon"]
        assert used["decay"] == logged["opt_weight_decay"]
        assert used["clipped_norm"] == pytest.approx(logged["opt_gradient_clip_norm"], rel=1e-3)
        assert logged["opt_learning_rate_decay_steps"] == used["steps"]
        assert logged["opt_end_learning_rate"] < used["rates"][-1] < base / 5
    else:
        assert (logged["opt_name"], used["kind"]) == ("lamb", "Lamb")
        assert used["betas"] == [logged["opt_lamb_beta_1"], logged["opt_lamb_beta_2"]]
        assert used["eps"] == logged["opt_lamb_epsilon"]
        assert used["decay"] == logged["opt_lamb_weight_decay_rate"]
        assert logged["num_warmup_steps"] == warmup
        assert logged["opt_learning_rate_training_steps"] == used["steps"]
        assert logged["opt_lamb_learning_rate_decay_poly_power"] == 1.0
        expected = [base * (1 - step / used["steps"]) for step in range(warmup, used["steps"])]
        assert used["rates"][warmup:] == pytest.approx(expected)
    assert used["no_decay"] == 0


def test_several_hosts_start_through_mpirun(tmp_path):
    """mpirun is a stand-in that prints its arguments."""
    stand_in = tmp_path / "mpirun"
    stand_in.write_text('#!/bin/sh\nfor a in "$@"; do echo "$a"; done; echo "at $MASTER_ADDR"\n')
    stand_in.chmod(0o755)
    argv = [str(PYTHON), "-m", "plumbline_bench.trainer.hosts", "--hosts", "a,b", "--per-node", "8"]
    environment = {**ENVIRONMENT, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*argv, "--", "--benchmark", "gpt3"], env=environment, capture_output=True, text=True, timeout=300, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["-np", "16"]
    assert "a:8,b:8" in lines
    assert {"MASTER_ADDR", "MASTER_PORT", "PYTHONPATH"} <= set(lines)
    assert lines[-6:] == [str(PYTHON), "-m", "plumbline_bench.trainer", "--benchmark", "gpt3", "at a"]
    renamed = {**environment, "PLUMBLINE_HOSTS": "only-one"}
    done = subprocess.run([*argv, "--", "x"], env=renamed, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
