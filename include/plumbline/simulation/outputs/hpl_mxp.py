"""hpl_mxp: stdout of NVIDIA's image. Silent corruption shows as a residual that fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from plumbline.benchmarks._mxp_problem import Problem
from plumbline.model import LaunchSpec
from plumbline.simulation.night import Night
from plumbline.simulation.physics import hpl_mxp
from plumbline.simulation.printers.hpl_mxp import Solve, text

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rates(night: Night, specs: Sequence[LaunchSpec]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Give reportable GFLOPS, LU GFLOPS and scaled residual of each launch: [launches] each."""
    import numpy as np

    groups = night.groups(specs)
    rng = night.noise("hpl", groups.nodes)
    performance, lu = hpl_mxp(night.truth, groups, night.model, rng)
    corrupt = night.truth.wrong[groups.index].reshape(len(specs), -1).max(axis=1)
    residual = np.where(rng.random(len(specs)) < corrupt, 3.2e3, 4.4e-4 * (1 + 0.05 * rng.random(len(specs))))
    return performance, lu, residual


def files(night: Night, specs: Sequence[LaunchSpec]) -> Iterator[Mapping[str, str]]:
    """Print stdout of each launch."""
    for spec, performance, lu, residual in zip(specs, *rates(night, specs), strict=True):
        asked = Problem.of(spec)
        yield {
            "stdout": text(
                Solve(
                    n=asked.n,
                    nb=asked.nb,
                    p=asked.p,
                    q=asked.q,
                    sloppy=asked.precision.upper(),
                    gflops=float(performance),
                    lu_gflops=float(lu),
                    residual=float(residual),
                    host=spec.nodes[0],
                )
            )
        }
