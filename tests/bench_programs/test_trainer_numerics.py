"""The parts of Plumbline's trainer by their numbers: text, masks, models, LAMB, and checkpoints to the bit."""

from __future__ import annotations

import pytest
from tests.bench_programs.bench_python import NEEDED, run_script

pytestmark = NEEDED

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
