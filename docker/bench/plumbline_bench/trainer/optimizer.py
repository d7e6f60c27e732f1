"""Optimizers and learning rates of the references: Adam and cosine for GPT-3, LAMB and a polynomial for BERT."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import nn

from plumbline_bench.trainer.config import Config

POLY_POWER = 1.0
START_WARMUP_STEP = 0


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020, algorithm 2) with bias correction: Adam's step, scaled by each tensor's ‖w‖ ÷ ‖step‖."""

    def __init__(self, params: Iterable[dict], lr: float, betas: tuple[float, float], eps: float) -> None:
        """Take parameter groups, each with its `weight_decay`."""
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        """Take one step."""
        del closure
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update(weight, group)

    def _update(self, weight: torch.Tensor, group: dict) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        beta_1, beta_2 = group["betas"]
        state["step"] += 1
        count = int(state["step"])
        state["exp_avg"].mul_(beta_1).add_(weight.grad, alpha=1 - beta_1)
        state["exp_avg_sq"].mul_(beta_2).addcmul_(weight.grad, weight.grad, value=1 - beta_2)
        mean = state["exp_avg"] / (1 - beta_1**count)
        spread = (state["exp_avg_sq"] / (1 - beta_2**count)).sqrt().add_(group["eps"])
        update = mean / spread
        if group["weight_decay"]:
            update = update + group["weight_decay"] * weight
        weight_norm, update_norm = _norm(weight), _norm(update)
        trust = torch.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)
        if hasattr(weight, "full_tensor"):
            weight.add_(update, alpha=-group["lr"] * float(trust))
        else:
            weight.sub_(update * (group["lr"] * trust))


def _norm(tensor: torch.Tensor) -> torch.Tensor:
    """Give the Euclidean norm of the whole tensor, also when the ranks hold shards of it."""
    norm = torch.linalg.vector_norm(tensor)
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def make_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """Build the optimizer. Biases and norms are not decayed, as in both references."""
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in weights if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in weights if p.ndim <= 1], "weight_decay": 0.0},
    ]
    betas = (config.beta_1, config.beta_2)
    if config.optimizer == "adam":
        return torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, eps=config.epsilon)
    return Lamb(groups, lr=config.learning_rate, betas=betas, eps=config.epsilon)


def learning_rate(config: Config, step: int) -> float:
    """Give the rate of a step, counted from 0: linear warm-up, then cosine (GPT-3) or polynomial decay (BERT)."""
    warmup, total, top = config.learning_rate_warmup_steps, config.total_steps, config.learning_rate
    if step < warmup:
        return top * (step + 1) / warmup
    if config.optimizer == "adam":
        part = min(1.0, (step - warmup) / max(1, total - warmup))
        return config.learning_rate_end + 0.5 * (top - config.learning_rate_end) * (1 + math.cos(math.pi * part))
    return top * (1 - step / total) ** POLY_POWER


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use a rate for the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def clip(model: nn.Module, config: Config) -> None:
    """Clip the gradient's norm where the reference does."""
    if config.gradient_clip_norm is not None:
        nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip_norm)
