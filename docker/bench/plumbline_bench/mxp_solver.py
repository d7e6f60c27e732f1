"""HPL-MxP's two halves: LU without pivoting from low-precision products, and FP64 GMRES that uses the factors.

Source: https://hpl-mxp.org/rules.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

EPS = 2.0**-53
"""Machine precision of FP64 in the scaled residual. Source: HPL-MxP rules."""
THRESHOLD = 16.0
"""A run whose scaled residual is not below it is invalid. Source: HPL-MxP rules."""
MOST_ITERATIONS = 50
"""More make the run invalid. Source: HPL-MxP rules."""
GOAL = 1.0
"""GMRES stops at this scaled residual: well inside the rules' bound, at a few per cent of an iteration's cost."""


class PivotError(Exception):
    """A diagonal block would need row interchanges: this is not a matrix for LU without pivoting."""


@dataclass(slots=True)
class Factors:
    """L (unit lower) and U (upper) off the diagonal blocks in a low precision, and those blocks' inverses in FP32.

    Inside diagonal blocks `low` holds what the factorization took off them, which is small beside the diagonal.
    """

    low: Tensor
    nb: int
    diagonal: list[Tensor]
    lower_inverses: list[Tensor]
    upper_inverses: list[Tensor]

    def solve(self, right: Tensor) -> Tensor:
        """Give U⁻¹ L⁻¹ right in FP64: off-diagonal products in the low precision, the rest in FP32."""
        n, scale = len(right), right.abs().max().clamp_min(torch.finfo(torch.float64).tiny)
        x = (right / scale).to(torch.float32)
        near = x.to(self.low.dtype)
        blocks = [slice(first, min(first + self.nb, n)) for first in range(0, n, self.nb)]
        for block, rows in enumerate(blocks):
            x[rows] = self.lower_inverses[block] @ (x[rows] - self.low[rows, : rows.start] @ near[: rows.start])
            near[rows] = x[rows]
        for block, rows in reversed(list(enumerate(blocks))):
            x[rows] = self.upper_inverses[block] @ (x[rows] - self.low[rows, rows.stop :] @ near[rows.stop :])
            near[rows] = x[rows]
        return x.to(torch.float64) * scale


def to_low_precision(matrix: Tensor, nb: int, kind: torch.dtype) -> Factors:
    """Round a matrix to what will be factorized: diagonal blocks in FP32, all else in `kind`."""
    n = len(matrix)
    low = torch.empty((n, n), dtype=kind, device=matrix.device)
    diagonal = []
    for first in range(0, n, nb):
        rows = slice(first, min(first + nb, n))
        low[rows] = matrix[rows]
        diagonal.append(matrix[rows, rows].to(torch.float32))
        low[rows, rows] = 0
    return Factors(low, nb, diagonal, [], [])


def factorize(factors: Factors, progress: Callable[[int], None]) -> None:
    """Overwrite the matrix with its LU factors, without pivoting.

    Recursive and right-looking: columns are halved down to nb, so that nearly all operations are large products.
    A product accumulates in FP32 and is rounded once. `progress` is told how many columns are finished.
    Raises PivotError.
    """
    low, nb = factors.low, factors.nb
    n = len(low)

    def panel(first: int, end: int) -> None:
        block = _factorize_block(factors.diagonal[first // nb] + low[first:end, first:end])
        identity = torch.eye(end - first, device=low.device)
        factors.lower_inverses.append(torch.linalg.solve_triangular(block, identity, upper=False, unitriangular=True))
        factors.upper_inverses.append(torch.linalg.solve_triangular(block, identity, upper=True))
        if end < n:
            low[end:, first:end] = low[end:, first:end] @ factors.upper_inverses[-1].to(low.dtype)
        progress(end)

    def solve_lower(first: int, end: int, columns: slice) -> None:
        if end - first <= nb:
            low[first:end, columns] = factors.lower_inverses[first // nb].to(low.dtype) @ low[first:end, columns]
            return
        middle = _middle(first, end, nb)
        solve_lower(first, middle, columns)
        low[middle:end, columns].addmm_(low[middle:end, first:middle], low[first:middle, columns], alpha=-1)
        solve_lower(middle, end, columns)

    def halve(first: int, end: int) -> None:
        if end - first <= nb:
            panel(first, end)
            return
        middle = _middle(first, end, nb)
        halve(first, middle)
        solve_lower(first, middle, slice(middle, end))
        low[middle:, middle:end].addmm_(low[middle:, first:middle], low[first:middle, middle:end], alpha=-1)
        halve(middle, end)

    halve(0, n)


def _middle(first: int, end: int, nb: int) -> int:
    blocks = -(-(end - first) // nb)
    return first + (blocks // 2) * nb


def _factorize_block(block: Tensor) -> Tensor:
    """Give the LU factors of one diagonal block in FP32. Raises PivotError where LAPACK would exchange rows."""
    if block.device.type == "cuda":
        return torch.linalg.lu_factor(block, pivot=False).LU
    compact, pivots = torch.linalg.lu_factor(block)
    if not torch.equal(pivots, torch.arange(1, len(block) + 1, dtype=pivots.dtype)):
        raise PivotError("the matrix is not one that can be factored without pivoting")
    return compact


# -- refinement -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Check:
    """The HPL check of a solution: norms and the scaled residual."""

    residual: float
    norm_a: float
    norm_x: float
    norm_b: float
    n: int

    @property
    def scaled(self) -> float:
        """||Ax-b|| / (eps (||A|| ||x|| + ||b||) n), in infinity norms."""
        return self.residual / (EPS * (self.norm_a * self.norm_x + self.norm_b) * self.n)

    @property
    def passed(self) -> bool:
        """Whether it is a number below the rules' threshold."""
        return self.scaled < THRESHOLD


def check_solution(matrix: Tensor, x: Tensor, b: Tensor, norm_a: float) -> tuple[Check, Tensor]:
    """Give the check and the residual b - Ax in FP64."""
    residual = b - matrix @ x
    norms = [value.abs().max().item() for value in (residual, x, b)]
    return Check(norms[0], norm_a, norms[1], norms[2], len(b)), residual


def refine(
    matrix: Tensor,
    b: Tensor,
    solve: Callable[[Tensor], Tensor],
    norm_a: float,
    report: Callable[[int, Check], None],
) -> tuple[Tensor, Check, int]:
    """Solve Ax = b in FP64 by flexible GMRES from x = solve(b), with `solve` as preconditioner.

    Gives x, its check and the number of iterations (at most MOST_ITERATIONS over all restarts).
    `report` sees the true residual after every restart.
    """
    x = solve(b)
    check, residual = check_solution(matrix, x, b, norm_a)
    done = 0
    report(done, check)
    while check.scaled > GOAL and done < MOST_ITERATIONS:
        goal = check.residual / check.scaled * GOAL * math.sqrt(len(b)) / 6  # a norm-2 that brings the largest below it
        step, taken = _gmres_cycle(matrix, residual, solve, goal, MOST_ITERATIONS - done)
        done += taken
        x = x + step
        check, residual = check_solution(matrix, x, b, norm_a)
        report(done, check)
    return x, check, done


def _gmres_cycle(
    matrix: Tensor, residual: Tensor, solve: Callable[[Tensor], Tensor], goal: float, most: int
) -> tuple[Tensor, int]:
    """Give a correction that takes the residual's 2-norm below `goal`, and the iterations that it took."""
    size = residual.norm()
    basis, directions = [residual / size], []
    hessenberg = torch.zeros((most + 1, most), dtype=torch.float64)
    coefficients = torch.zeros(0, dtype=torch.float64)
    for k in range(most):
        directions.append(solve(basis[k]))
        w = matrix @ directions[k]
        for i in range(k + 1):
            hessenberg[i, k] = (basis[i] @ w).item()
            w = w - hessenberg[i, k].item() * basis[i]
        hessenberg[k + 1, k] = w.norm().item()
        target = torch.zeros(k + 2, dtype=torch.float64)
        target[0] = size.item()
        system = hessenberg[: k + 2, : k + 1]
        if not torch.isfinite(system).all():
            break
        coefficients = torch.linalg.lstsq(system, target[:, None]).solution[:, 0]
        left = (target - system @ coefficients).norm().item()
        if left <= goal or hessenberg[k + 1, k] == 0:
            break
        basis.append(w / hessenberg[k + 1, k].item())
    step = torch.zeros_like(residual)
    for coefficient, direction in zip(coefficients.tolist(), directions, strict=False):
        step += coefficient * direction
    return step, len(directions)
