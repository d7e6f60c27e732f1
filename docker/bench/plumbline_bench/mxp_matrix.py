"""The matrix of the HPL-MxP reference: entries of a linear congruential generator, rows diagonally dominant.

Source: icl/hpl-ai matgen.c. Such a matrix needs no pivoting, which is what the rules ask of a generator.
"""

from __future__ import annotations

import torch
from torch import Tensor

LCG_MULTIPLIER, LCG_INCREMENT = 6364136223846793005, 1


def _signed(value: int) -> int:
    """Give a 64-bit value as torch's signed integer of the same bits."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _jumps(multiplier: int, increment: int, count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Give (a, c), each of `count` elements: element i maps a state to the one i + 1 steps further, modulo 2^64."""
    a = torch.tensor([_signed(multiplier)], device=device)
    c = torch.tensor([_signed(increment)], device=device)
    while len(a) < count:
        a, c = torch.cat((a, a[-1] * a)), torch.cat((c, a[-1] * c + c[-1]))
    return a[:count], c[:count]


def _uniform(states: Tensor) -> Tensor:
    """Map generator states to FP64 in [-0.5, 0.5): the unsigned state times 2^-64, less a half."""
    return (states ^ _signed(1 << 63)).to(torch.float64).mul_(2.0**-64)


def generate(n: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Give A (n × n) and b (n) in FP64: the reference's uniform entries, each row's diagonal the sum of its others.

    Column j continues where column j - 1 ended; b starts from seed + 1. Equal to the reference's to one rounding.
    """
    a, c = _jumps(LCG_MULTIPLIER, LCG_INCREMENT, n, device)
    column_a, column_c = _jumps(int(a[-1]), int(c[-1]), n, device)
    starts = torch.cat((torch.tensor([seed], device=device), column_a[:-1] * seed + column_c[:-1]))
    matrix = torch.empty((n, n), dtype=torch.float64, device=device)
    for first in range(0, n, 256):
        rows = slice(first, min(first + 256, n))
        matrix[rows] = _uniform(torch.addcmul(c[rows, None], a[rows, None], starts[None, :]))
    diagonal = matrix.diagonal()
    diagonal.copy_(row_sums(matrix) - diagonal.abs())
    return matrix, _uniform(a * (seed + 1) + c)


def row_sums(matrix: Tensor) -> Tensor:
    """Give the sums of magnitudes of each row, without a second matrix in memory."""
    return torch.cat([chunk.abs().sum(dim=1) for chunk in matrix.split(256)])
