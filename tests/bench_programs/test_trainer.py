"""Plumbline's trainer at tiny sizes: what is logged is what was used, checkpoints are compared to the bit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from plumbline.benchmarks import benchmark
from plumbline.readers import mllog
from plumbline.readers.reading import Fact, Reading, Status
from plumbline.readers.source import Source

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-bench" / "bin" / "python"

pytestmark = [pytest.mark.bench, pytest.mark.skipif(not PYTHON.exists(), reason="no .venv-bench")]

SIZES = {"layers": 1, "hidden": 32, "heads": 2, "sequence": 32, "vocab": 64, "eval-samples": 16}
TINY = [word for name, size in SIZES.items() for word in (f"--{name}", str(size))]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "docker" / "bench")}


def train(where: Path, *arguments: str, check: bool = True):
    argv = [str(PYTHON), "-m", "plumbline_bench.trainer", *TINY, *arguments]
    done = subprocess.run(argv, cwd=where, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done


def run_script(script: str):
    argv = [str(PYTHON), "-c", script]
    done = subprocess.run(argv, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


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
    _, errors = program.communicate(timeout=100)
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


NUMERICS = """
import json, math, os, pathlib, tempfile
import torch
from torch import nn
from plumbline_bench.trainer import checkpoint, data, model, optimizer
from plumbline_bench.trainer.config import parse

torch.set_num_threads(1)
found = {}
where = pathlib.Path(tempfile.mkdtemp())
TINY = "--layers 1 --hidden 32 --heads 2 --sequence 32 --vocab 64".split()
gpt, bert = (parse(["--benchmark", name, *TINY, "--create-checkpoint-dir"]) for name in ("gpt3", "bert"))

# the text: its entropy is what the counts of successors say; the same seed gives the same text
chain = data.make_corpus("gpt3", 64, 3)
inputs, labels = chain.examples(2000, 64, torch.Generator().manual_seed(1))
again = data.make_corpus("gpt3", 64, 3).examples(2000, 64, torch.Generator().manual_seed(1))
counts = torch.zeros(64, 64, dtype=torch.float64)
ones = torch.ones(inputs.numel(), dtype=torch.float64)
counts.index_put_((inputs.flatten(), labels.flatten()), ones, accumulate=True)
shares = counts / counts.sum(1, keepdim=True)
logs = torch.where(counts > 0, shares.clamp_min(1e-300).log(), 0.0)
found["entropy"] = [chain.best_reachable, float(-(counts * logs).sum() / counts.sum())]
found["successors"] = int((counts > 0).sum(1).max())
found["same_text"] = torch.equal(inputs, again[0])
other = data.make_corpus("gpt3", 64, 4).examples(2000, 64, torch.Generator().manual_seed(1))
found["other_seed"] = torch.equal(inputs, other[0])
found["shifted"] = torch.equal(inputs[:, 1:], labels[:, :-1])

# the masks: how many, and what is shown there
patterns = data.make_corpus("bert", 64, 3)
shown, wanted = patterns.examples(4000, 64, torch.Generator().manual_seed(1))
chosen = wanted != -100
found["predicted"] = sorted(set(chosen.sum(1).tolist()))
found["masked"] = float((shown[chosen] == 63).double().mean())
found["kept"] = float((shown[chosen] == wanted[chosen]).double().mean())
found["mask_elsewhere"] = int((shown[~chosen] == 63).sum())
found["mask_wanted"] = int((wanted == 63).sum())

# the model: GPT sees no later token, BERT sees both sides; FLOPs as the formulas say
torch.manual_seed(0)
decoder = model.LanguageModel(gpt)
def hidden_at(net, tokens, place):
    seen = {}
    handle = net.blocks[-1].register_forward_hook(lambda m, i, o: seen.update(out=o))
    net(tokens, torch.zeros_like(tokens))
    handle.remove()
    return seen["out"][0, place]
one = torch.randint(60, (1, 32)); other = one.clone(); other[0, 20] = (one[0, 20] + 1) % 60
found["gpt_looks_ahead"] = not torch.allclose(hidden_at(decoder, one, 10), hidden_at(decoder, other, 10))
found["gpt_looks_back"] = not torch.allclose(hidden_at(decoder, one, 25), hidden_at(decoder, other, 25))
encoder = model.LanguageModel(bert)
found["bert_looks_ahead"] = not torch.allclose(hidden_at(encoder, one, 10), hidden_at(encoder, other, 10))
found["first_loss"] = float(decoder(inputs[:50, :32], labels[:50, :32])[0]) / (50 * 32)
found["flops"] = [model.flops_per_token(gpt), model.flops_per_token(bert)]

# LAMB: one step by hand
weight = nn.Parameter(torch.tensor([[3.0, 4.0]])); weight.grad = torch.tensor([[0.5, -0.25]])
lamb = optimizer.Lamb([{"params": [weight], "weight_decay": 0.1}], lr=0.01, betas=(0.9, 0.999), eps=1e-6)
lamb.step()
update = [0.5 / (0.5 + 1e-6) + 0.3, -0.25 / (0.25 + 1e-6) + 0.4]
trust = 5.0 / math.hypot(*update)
found["lamb"] = [weight.detach().flatten().tolist(), [3.0 - 0.01 * trust * update[0], 4.0 - 0.01 * trust * update[1]]]

# checkpoints: bits, two phases
same = {"a": torch.tensor([1.0, float("nan"), 0.0]), "b": [1, {"c": torch.arange(3)}]}
copy = {"a": same["a"].clone(), "b": [1, {"c": torch.arange(3)}]}
flipped = {"a": torch.tensor([1.0, float("nan"), -0.0]), "b": copy["b"]}
found["equal"] = [checkpoint.bit_equal(same, copy), checkpoint.bit_equal(same, flipped),
                  checkpoint.bit_equal(same, {"a": same["a"]}), checkpoint.bit_equal(same["a"], same["a"].double())]
adam = optimizer.make_optimizer(decoder, gpt)
decoder(inputs[:4, :32], labels[:4, :32])[0].backward(); adam.step()
state = checkpoint.full_state(decoder, adam, 1, gpt)
path = where / "c" / "x.pt"
size = checkpoint.write(state, path, gpt)
loaded = torch.load(path, weights_only=True)
files = len(list(path.parent.iterdir()))
found["restores"] = [checkpoint._restores(loaded, state, gpt), size == path.stat().st_size, files]
loaded["optimizer"]["state"][0]["exp_avg"][0, 0] += 1e-7
found["moment_changed"] = checkpoint._restores(loaded, state, gpt)
loaded = torch.load(path, weights_only=True); loaded["model"]["norm.weight"][3] = 1.0000001
found["weight_changed"] = checkpoint._restores(loaded, state, gpt)
before = path.read_bytes()
def disk_full(state, stream):
    stream.write(b"half")
    raise OSError("full")
torch_save, torch.save = torch.save, disk_full
try:
    checkpoint.write(state, path, gpt)
except OSError:
    pass
torch.save = torch_save
found["interrupted"] = [path.read_bytes() == before, len(list(path.parent.iterdir()))]
old = path.parent / "plumbline-checkpoint-0.pt"; old.write_bytes(b"x"); os.utime(old, (0, 0))
checkpoint.remove_abandoned(path.parent)
found["abandoned"] = [old.exists(), path.exists()]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def numerics():
    return run_script(NUMERICS)


def test_the_text_is_what_it_claims(numerics):
    claimed, counted = numerics["entropy"]
    assert counted == pytest.approx(claimed, rel=0.01)
    assert numerics["successors"] == 8
    assert numerics["same_text"]
    assert not numerics["other_seed"]
    assert numerics["shifted"]


def test_masks_are_as_in_the_paper(numerics):
    assert numerics["predicted"] == [10]  # 15 % of 64
    assert numerics["masked"] == pytest.approx(0.8, abs=0.02)
    assert numerics["kept"] == pytest.approx(0.1 + 0.1 / 63, abs=0.02)
    assert numerics["mask_elsewhere"] == numerics["mask_wanted"] == 0


def test_the_models_see_what_they_should(numerics):
    assert not numerics["gpt_looks_ahead"]
    assert numerics["gpt_looks_back"]
    assert numerics["bert_looks_ahead"]
    assert numerics["first_loss"] == pytest.approx(4.16, abs=0.1)  # ln 64: an untrained model knows nothing


def test_flops_are_those_of_the_formulas(numerics):
    gpt = 72 * 1 * 32**2 * (1 + 32 / (6 * 32) + 64 / (12 * 1 * 32))
    share = 5 / 32
    bert = 72 * 32**2 * (1 + 32 / (6 * 32)) + 6 * share * (32 * 64 + 32**2)
    assert numerics["flops"] == pytest.approx([gpt, bert])


def test_lamb_takes_the_step_of_the_paper(numerics):
    taken, by_hand = numerics["lamb"]
    assert taken == pytest.approx(by_hand, rel=1e-5)


def test_checkpoints_are_compared_to_the_bit_and_written_whole_or_not_at_all(numerics):
    assert numerics["equal"] == [True, False, False, False]
    assert numerics["restores"] == [True, True, 1]
    assert not numerics["moment_changed"]
    assert not numerics["weight_changed"]
    assert numerics["interrupted"] == [True, 1]
    assert numerics["abandoned"] == [False, True]


def test_several_hosts_start_through_mpirun(tmp_path):
    """mpirun is a stand-in that prints its arguments."""
    stand_in = tmp_path / "mpirun"
    stand_in.write_text('#!/bin/sh\nfor a in "$@"; do echo "$a"; done; echo "at $MASTER_ADDR"\n')
    stand_in.chmod(0o755)
    argv = [str(PYTHON), "-m", "plumbline_bench.trainer.hosts", "--hosts", "a,b", "--per-node", "8"]
    environment = {**ENVIRONMENT, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*argv, "--", "--benchmark", "gpt3"], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["-np", "16"]
    assert "a:8,b:8" in lines
    assert {"MASTER_ADDR", "MASTER_PORT", "PYTHONPATH"} <= set(lines)
    assert lines[-6:] == [str(PYTHON), "-m", "plumbline_bench.trainer", "--benchmark", "gpt3", "at a"]
    renamed = {**environment, "PLUMBLINE_HOSTS": "only-one"}
    done = subprocess.run([*argv, "--", "x"], env=renamed, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
