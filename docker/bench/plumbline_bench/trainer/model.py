"""The two architectures: GPT-3's decoder (Brown et al. 2020) and BERT's encoder (Devlin et al. 2018).

Embeddings and output share their matrix in both. BERT is its masked-token task alone: MLPerf measures nothing else.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from plumbline_bench.trainer.config import Config


class Attention(nn.Module):
    """Multi-head attention with one projection for queries, keys and values."""

    def __init__(self, hidden: int, heads: int, *, causal: bool) -> None:
        """Lay out the projections."""
        super().__init__()
        self.heads, self.causal = heads, causal
        self.projection = nn.Linear(hidden, 3 * hidden)
        self.output = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, sequence, hidden] → the same."""
        batch, length, hidden = x.shape
        parts = self.projection(x).view(batch, length, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, hidden))


class Block(nn.Module):
    """Attention and a feed-forward layer of four times the width, each with a residual.

    GPT-3 normalises before each, BERT behind.
    """

    def __init__(self, hidden: int, heads: int, *, causal: bool) -> None:
        """Lay out the layers."""
        super().__init__()
        self.before = causal
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads, causal=causal)
        self.widen, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, sequence, hidden] → the same."""
        if self.before:
            x = x + self.attention(self.norm_1(x))
            return x + self._feed_forward(self.norm_2(x))
        x = self.norm_1(x + self.attention(x))
        return self.norm_2(x + self._feed_forward(x))

    def _feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(functional.gelu(self.widen(x), approximate="tanh"))


class LanguageModel(nn.Module):
    """Token and position embeddings, blocks, and logits over the vocabulary."""

    def __init__(self, config: Config) -> None:
        """Draw the weights: normal with 0.02, residual outputs of GPT-3 smaller with depth."""
        super().__init__()
        causal = config.benchmark == "gpt3"
        self.tokens = nn.Embedding(config.vocab, config.hidden)
        self.positions = nn.Embedding(config.sequence, config.hidden)
        self.blocks = nn.ModuleList(Block(config.hidden, config.heads, causal=causal) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden)
        self.transform = None if causal else nn.Linear(config.hidden, config.hidden)
        self.transform_norm = None if causal else nn.LayerNorm(config.hidden)
        self.bias = None if causal else nn.Parameter(torch.zeros(config.vocab))
        self.apply(_initialise)
        if causal:
            for block in self.blocks:
                for layer in (block.attention.output, block.narrow):
                    nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * config.layers))

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Give (loss summed over what is predicted, how many of it were right) of [batch, sequence] tokens.

        Only predicted places pass through the output layer: all of GPT-3's, 15 % of BERT's.
        """
        x = self.tokens(inputs) + self.positions.weight[: inputs.shape[1]]
        if self.transform is not None:
            x = self.norm(x)
        for block in self.blocks:
            x = block(x)
        if self.transform is None:
            logits = functional.linear(self.norm(x), self.tokens.weight).flatten(0, 1)
            wanted = labels.flatten()
        else:
            chosen = labels != -100
            x, wanted = x[chosen], labels[chosen]
            x = self.transform_norm(functional.gelu(self.transform(x), approximate="tanh"))
            logits = functional.linear(x, self.tokens.weight, self.bias)
        loss = functional.cross_entropy(logits.float(), wanted, reduction="sum")
        return loss, (logits.detach().argmax(-1) == wanted).sum()


def _initialise(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


MASK_SHARE = 0.15
"""Of the tokens are predicted in BERT's task (Devlin et al. 2018, 3.1)."""


def predictions(length: int) -> int:
    """How many places of a sequence BERT's task predicts."""
    return max(1, round(MASK_SHARE * length))


def predicted_per_sequence(config: Config) -> int:
    """How many tokens of a sequence are predicted, so that sums become means."""
    return config.sequence if config.benchmark == "gpt3" else predictions(config.sequence)


FLOPS_FORMULA = "72·L·h²·(1 + s/(6h)) + 6·p·(h·V + t·h²)"
FLOPS_SOURCE = (
    "Narayanan et al. 2021 (arXiv:2104.04473, equation 3) without recomputation, per token: forward and backward of "
    "the matrix products; L layers, h hidden, s sequence, V vocabulary, p share of tokens that pass the output layer, "
    "t = 1 where it has a transform (BERT)"
)


def flops_per_token(config: Config) -> float:
    """Give the model FLOPs that training on one token takes (FLOPS_FORMULA). Embedding look-ups count nothing.

    With p = 1 and t = 0 this is the paper's 72·L·h²·(1 + s/(6h) + V/(12·L·h)).
    """
    layers, hidden, length = config.layers, config.hidden, config.sequence
    share = predicted_per_sequence(config) / length
    transform = 0 if config.benchmark == "gpt3" else 1
    trunk = 72 * layers * hidden**2 * (1 + length / (6 * hidden))
    return trunk + 6 * share * (hidden * config.vocab + transform * hidden**2)
