"""Synthetic text that a small model can learn, and what the best model could reach on it, computed exactly.

GPT-3: a first-order Markov chain over the vocabulary. Every token has the same number of successors, with the same
probabilities; which tokens they are is drawn from the seed. Every successor table is a permutation, so all tokens are
equally frequent, and the entropy of the next token is that of the probabilities, whatever came before.

BERT: every sequence follows one of a few patterns that repeat along it, and a share of its tokens is noise. To tell a
masked token, a model must find the pattern from the tokens around, on both sides, and know the place in it.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch

from plumbline_bench.trainer.config import Config
from plumbline_bench.trainer.model import predictions

_SUCCESSORS = 8
_PATTERNS, _PERIOD, _NOISE = 16, 16, 0.15
_CHUNK_STEPS = 32


class Corpus(Protocol):
    """The text of one benchmark and seed."""

    best_reachable: float
    """The best log perplexity in nat (gpt3) or masked-token accuracy (bert) that any model can have on it."""

    def examples(self, count: int, length: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw (inputs, labels), [count, length] each; a label of −100 is not predicted."""


def make_corpus(benchmark: str, vocab: int, seed: int) -> Corpus:
    """Build the text of a benchmark."""
    return Chain(vocab, seed) if benchmark == "gpt3" else Patterns(vocab, seed)


class Chain:
    """The Markov chain: successors' probabilities follow Zipf's law, 1.82 nat of entropy."""

    def __init__(self, vocab: int, seed: int) -> None:
        """Draw the successor tables."""
        self._tokens = vocab
        weights = 1 / torch.arange(1, _SUCCESSORS + 1, dtype=torch.float64)
        self._probabilities = weights / weights.sum()
        draw = torch.Generator().manual_seed(_mix(seed, 1))
        order = torch.randperm(vocab, generator=draw)
        offsets = torch.randperm(vocab, generator=draw)[:_SUCCESSORS]
        self._successors = order[(torch.arange(vocab)[:, None] + offsets[None, :]) % vocab]
        self.best_reachable = float(-(self._probabilities * self._probabilities.log()).sum())

    def examples(self, count: int, length: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw (inputs, labels), [count, length] each: the label is the next token."""
        text = torch.empty(count, length + 1, dtype=torch.int64)
        text[:, 0] = torch.randint(self._tokens, (count,), generator=generator)
        choices = torch.multinomial(self._probabilities, text.numel(), replacement=True, generator=generator)
        choices = choices.view(text.shape)
        for place in range(1, length + 1):
            text[:, place] = self._successors[text[:, place - 1], choices[:, place]]
        return text[:, :-1].contiguous(), text[:, 1:].contiguous()


class Patterns:
    """The patterns with noise; the vocabulary's last token is [MASK] and occurs in no text."""

    def __init__(self, vocab: int, seed: int) -> None:
        """Draw the patterns."""
        self._tokens, self._mask = vocab - 1, vocab - 1
        draw = torch.Generator().manual_seed(_mix(seed, 1))
        self._patterns = torch.randint(self._tokens, (_PATTERNS, _PERIOD), generator=draw)
        # Whoever knows the pattern is right unless noise changed the token, and noise draws the right one now and then.
        self.best_reachable = 1 - _NOISE + _NOISE / self._tokens

    def examples(self, count: int, length: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw (inputs, labels), [count, length] each: the same number of places in every sequence is predicted.

        Of these, 80 % are masked, 10 % replaced and 10 % kept (Devlin et al. 2018, 3.1).
        """
        pattern = torch.randint(_PATTERNS, (count,), generator=generator)
        text = self._patterns[pattern][:, torch.arange(length) % _PERIOD]
        noisy = torch.rand(count, length, generator=generator) < _NOISE
        text = torch.where(noisy, torch.randint(self._tokens, text.shape, generator=generator), text)
        chosen = torch.rand(count, length, generator=generator).topk(predictions(length), dim=1).indices
        right = text.gather(1, chosen)
        labels = torch.full_like(text, -100).scatter_(1, chosen, right)
        fate = torch.rand(chosen.shape, generator=generator)
        replaced = torch.randint(self._tokens, chosen.shape, generator=generator)
        shown = torch.where(fate < 0.8, torch.full_like(right, self._mask), right)
        shown = torch.where(fate >= 0.9, replaced, shown)
        return text.scatter(1, chosen, shown), labels


class Batches:
    """One rank's training batches: endless, each sequence drawn once, the same for the same seed and rank."""

    def __init__(self, corpus: Corpus, config: Config, rank: int, device: torch.device) -> None:
        """Draw the first batches, so that a measured step only takes them."""
        self._corpus, self._config, self._rank, self._device = corpus, config, rank, device
        self._chunk = -1
        self._fill(0)

    def take(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Give the batch of a step, counted from 0."""
        chunk, place = divmod(step, self._steps)
        if chunk != self._chunk:
            self._fill(chunk)
        batch = slice(place * self._config.batch_per_rank, (place + 1) * self._config.batch_per_rank)
        return self._inputs[batch], self._labels[batch]

    def _fill(self, chunk: int) -> None:
        config = self._config
        self._steps = config.total_steps if config.mode == "fixed_steps" else _CHUNK_STEPS
        generator = torch.Generator().manual_seed(_mix(config.seed, 2, self._rank, chunk))
        inputs, labels = self._corpus.examples(self._steps * config.batch_per_rank, config.sequence, generator)
        self._inputs, self._labels, self._chunk = inputs.to(self._device), labels.to(self._device), chunk


def evaluation_share(
    corpus: Corpus, config: Config, rank: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give one rank's part of the evaluation set, which is the same for every number of ranks."""
    generator = torch.Generator().manual_seed(_mix(config.seed, 3))
    inputs, labels = corpus.examples(config.eval_samples, config.sequence, generator)
    return inputs[rank :: config.ranks].to(device), labels[rank :: config.ranks].to(device)


def check_target(config: Config, corpus: Corpus) -> str | None:
    """Say why no model could reach the target, or None when one could."""
    best, target = corpus.best_reachable, config.target
    if config.lower_is_better and not (math.isfinite(target) and target > best):
        return f"--target {target:g}: the text has an entropy of {best:.4f} nat; no model gets there"
    if not config.lower_is_better and not 0 < target < best:
        return f"--target {target:g}: masked tokens can be told right in {best:.4f} of all cases at most"
    return None


def _mix(*numbers: int) -> int:
    """Give one generator seed for a run's seed and a purpose, so that no two draws share their numbers."""
    mixed = 0x9E3779B97F4A7C15
    for number in numbers:
        mixed = ((mixed ^ (number & 0xFFFFFFFFFFFFFFFF)) * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) % (1 << 64)
    return mixed >> 1
