"""hpl_mxp: stdout of NVIDIA's image. Silent corruption shows as a residual that fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks._mxp_problem import Problem
from plumbline.model import LaunchSpec
from plumbline.simulation.night import Night, Nights, Rung
from plumbline.simulation.outputs import Printed
from plumbline.simulation.physics import hpl_mxp
from plumbline.simulation.printers.hpl_mxp import ITERATIONS, Solve, text
from plumbline.simulation.rounding import scientific

if TYPE_CHECKING:
    from numpy.typing import NDArray

_THRESHOLD = 16.0
_LOW_FLOPS = 2e14
"""Of one GPU, operations a second. Assumption."""


def rates(nights: Nights, rung: Rung) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Give reportable GFLOPS, LU GFLOPS and scaled residual of each launch: [launches] each."""
    import numpy as np

    groups = rung.groups
    size, rng = len(groups.index), nights.noise("hpl", groups.nodes)
    performance, lu = hpl_mxp(nights.truth, groups, nights.model, rng)
    corrupt = nights.truth.wrong[groups.index].reshape(size, -1).max(axis=1)
    residual = np.where(rng.random(size) < corrupt, 3.2e3, 4.4e-4 * (1 + 0.05 * rng.random(size)))
    return performance, lu, residual


def files(night: Night, specs: Sequence[LaunchSpec], rows: Sequence[int], begin: datetime) -> Iterator[Printed]:
    """Print stdout of each launch: it tells no moment, only how long it took."""
    del begin
    nights = Nights.of([night])
    performance, lu, residual = rates(nights, nights.rung_of(specs))
    for row in rows:
        asked = Problem.of(specs[row])
        solve = Solve(
            n=asked.n,
            nb=asked.nb,
            p=asked.p,
            q=asked.q,
            sloppy=asked.precision.upper(),
            gflops=float(performance[row]),
            lu_gflops=float(lu[row]),
            residual=float(residual[row]),
            host=specs[row].nodes[0],
        )
        yield Printed({"stdout": text(solve)}, solve.lu_s + solve.solver_s)


def works_s(spec: LaunchSpec) -> float:
    """Give how long a solve takes at a low rate of every GPU."""
    asked = Problem.of(spec)
    return asked.loops * 2 / 3 * asked.n**3 / (asked.p * asked.q * _LOW_FLOPS)


def values(nights: Nights, rung: Rung) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give both rates, the residual and the iterations as printed; a residual that fails says more than a number."""
    import numpy as np

    performance, lu, residual = rates(nights, rung)
    columns = [scientific(performance, 4), scientific(lu, 4), scientific(residual, 6)]
    columns.append(np.full(len(residual), float(ITERATIONS)))
    several = Problem.of(rung.spec).loops != 1  # one is what the printer prints: the text tells the rest
    return np.stack(columns, axis=1), (columns[2] >= _THRESHOLD) | several
