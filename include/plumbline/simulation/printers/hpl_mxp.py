"""NVIDIA HPL-MxP 26.2: settings, progress, residual and the two GFLOPS lines. Layout: a published log of that image."""

from __future__ import annotations

from dataclasses import dataclass

from plumbline.simulation.printers import STAMP

_TITLE = "=" * 80
ITERATIONS = 2
"""Number of the last refinement step that is printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solve:
    """One solve: rates in GFLOPS, `residual` scaled as the rules say."""

    n: int
    nb: int
    p: int
    q: int
    sloppy: str
    gflops: float
    lu_gflops: float
    residual: float
    host: str

    @property
    def lu_s(self) -> float:
        """Seconds of the factorisation."""
        return 2 / 3 * self.n**3 / self.lu_gflops / 1e9

    @property
    def solver_s(self) -> float:
        """Seconds of the iterative solver."""
        return 2 / 3 * self.n**3 / self.gflops / 1e9 - self.lu_s


def text(solve: Solve) -> str:
    """Print one test with one loop."""
    gpus = solve.p * solve.q
    rank = f"(0->{solve.host})"
    progress = "".join(
        f" Prog= {part * 100:6.2f}% N_left= {round(solve.n * (1 - part) ** (1 / 3)):8d} Time= {solve.lu_s * part:8.2f} "
        f"Time_left= {solve.lu_s * (1 - part):10.2f} iTF= {solve.lu_gflops / 1e3:10.2f} "
        f"TF= {solve.lu_gflops / 1e3:8.2f} iTF_per= {solve.lu_gflops / 1e3 / gpus:8.2f} "
        f"TF_per= {solve.lu_gflops / 1e3 / gpus:8.2f}\n"
        for part in (0.25, 0.5, 0.75, 0.99)
    )
    scaled = "||Ax-b||_oo / (EPS * (||A||_oo * ||x||_oo + ||b||_oo) * N)"
    verdict = "PASSED" if solve.residual < 16 else "FAILED"
    return f"""{STAMP}
{_TITLE}
HPL-MxP-NVIDIA 26.2.0  -- NVIDIA accelerated HPL-MxP benchmark benchmark -- NVIDIA
{_TITLE}

 ****** HPL MxP Settings ****** 

   --nprow =  {solve.p} 
   --npcol =  {solve.q} 
   --order = row 
   --n     = {solve.n} 
   --nb    = {solve.nb} 
   --tolerance                        = 1.000000e-12 
   --test-loop                        = 1 
   --sloppy-type                      = {solve.sloppy} 


 ****** test 1 of 1 starts ****** 

   n      = {solve.n}
   nb     = {solve.nb}
   nprow  = {solve.p}
   npcol  = {solve.q}


 ****** test loop 1 of 1 starts ****** 

{progress}LU seconds: AVG = {solve.lu_s:.2f}, MAX = {solve.lu_s:.2f} {rank}, MIN = {solve.lu_s:.2f} {rank}

Solver iteration  0, L-infinite residual = 4.70962601e-04
Solver iteration  1, L-infinite residual = 8.71678618e-10
Solver iteration  2, L-infinite residual = 1.07617040e-13
Iterative Solver seconds: AVG = {solve.solver_s:.2f}, MAX = {solve.solver_s:.2f} {rank}, MIN = {solve.solver_s:.2f} {rank}


 ****** HPL MxP Result    ****** 

    EPS           . . . . . . . . . . . . . . . . .          =    2.000000E-16
    Threshold     . . . . . . . . . . . . . . . . .          =    1.600000E+01
  {scaled} =    {solve.residual:.6E} ...... {verdict}

    N = {solve.n}, NB = {solve.nb}, NPROW = {solve.p}, NPCOL = {solve.q}, SLOPPY-TYPE = {solve.sloppy}
       GFLOPS = {solve.gflops:.4e}, per GPU = {solve.gflops / gpus:10.2f} ------ The HPL-MxP performance to report
    LU GFLOPS = {solve.lu_gflops:.4e}, per GPU = {solve.lu_gflops / gpus:10.2f} ------ The performance excluding the iterative solver part

 ****** HPL MxP Result    ****** 


 ****** test loop 1 of 1 done   ****** 


 ****** test 1 of 1 done   ****** 
"""  # noqa: E501, W291 - the tool's own lines
