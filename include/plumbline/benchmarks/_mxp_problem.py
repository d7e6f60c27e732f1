"""Which linear system an HPL-MxP launch solves: order, block size, process grid, precision."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from plumbline.amounts import plural
from plumbline.benchmarks.benchmark import Placement
from plumbline.errors import ConfigError
from plumbline.model import Device, LaunchSpec, Params, Scalar

OWN_PROGRAM = "plumbline_bench.hpl_mxp"
_OWN_PRECISIONS = ("auto", "bf16", "fp16", "fp32")
_SLOPPY_NUMBERS = {"fp8": "1", "fp16": "2"}
"""How images up to 25.4 spell --sloppy-type. Source: usage of their hpl-mxp.sh."""
_CPU_ORDERS = ((8 << 30, 16384), (0, 8192))
"""Machine memory in bytes, from the largest → the order that it holds with room: 12 bytes an element are needed."""
_DEFAULT_NB = {Device.CPU: 256, Device.GPU: 2048}
_DEVICE_SHARE = 0.85
_DEVICE_BYTES = 4
"""hpl-mxp.sh holds four bytes an element on the GPUs. Source: a published log of 26.2, 'Per process device memory
consumption' of 80.06 GB at N 400,000 on 8 GPUs."""
_OWN_GPU_BYTES = 12.5
"""Plumbline's own holds A in FP64 and the factors on the one GPU."""
_MEMORY = re.compile(r"(\d{1,4})\s?GB\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What was asked. `precision` is the word of the parameter, resolved to fp16 where NVIDIA's program runs."""

    n: int
    nb: int
    p: int
    q: int
    precision: str
    loops: int
    own: bool
    options: tuple[str, ...] = ()

    @classmethod
    def of(cls, spec: LaunchSpec) -> Problem:
        """Give what a planned launch was asked, from its expectations."""
        expect = spec.expect
        return cls(
            n=int(str(expect["n"])),
            nb=int(str(expect["nb"])),
            p=int(str(expect["p"])),
            q=int(str(expect["q"])),
            precision=str(expect.get("precision", "auto")).lower(),
            loops=int(str(expect["tests"])),
            own=OWN_PROGRAM in spec.argv,
        )

    def expectations(self) -> Mapping[str, Scalar]:
        """Give what the reader is to hold the output against."""
        found: dict[str, Scalar] = {"n": self.n, "nb": self.nb, "p": self.p, "q": self.q, "tests": self.loops}
        return found if self.precision == "auto" else {**found, "precision": self.precision.upper()}

    def row_params(self, loop: int) -> dict[str, Scalar]:
        """Give the coordinates of a row; the loop only where there is more than one."""
        found: dict[str, Scalar] = {"n": self.n, "nb": self.nb, "p": self.p, "q": self.q, "precision": self.precision}
        return found if self.loops == 1 else {**found, "loop": loop}

    def sloppy_type(self, spelling: str) -> str:
        """Give the precision as hpl-mxp.sh takes it. Raises ConfigError where the number does not exist."""
        if spelling == "word":
            return self.precision.upper()
        try:
            return _SLOPPY_NUMBERS[self.precision]
        except KeyError:
            raise ConfigError(f"hpl_mxp.sloppy_spelling number has none for {self.precision}: fp8 or fp16") from None


def problem(placement: Placement, params: Params) -> Problem:
    """Fill in what the parameters leave open. Raises ConfigError for a matrix or grid that cannot be."""
    own = params["program"] == "own" or (params["program"] == "auto" and placement.launcher == "local")
    _check_place(placement, own)
    precision = _precision(str(params["precision"]), own)
    p, q = _grid(placement.ranks, _whole(params, "nprow"), _whole(params, "npcol"))
    nb = _whole(params, "nb") or _DEFAULT_NB[placement.device]
    n = _order(placement, params, nb * math.lcm(p, q), own)
    if nb > n:
        raise ConfigError(f"hpl_mxp.nb {nb} is larger than n {n}")
    try:
        options = tuple(shlex.split(str(params["options"])))
    except ValueError as error:
        raise ConfigError(f"hpl_mxp.options {params['options']!r} is not written as in a shell: {error}") from None
    if own and options:
        raise ConfigError("hpl_mxp.options are hpl-mxp.sh's; Plumbline's own program takes none of them")
    return Problem(n=n, nb=nb, p=p, q=q, precision=precision, loops=int(str(params["loops"])), own=own, options=options)


def _check_place(placement: Placement, own: bool) -> None:
    if own and placement.ranks != 1:
        raise ConfigError(
            f"hpl_mxp: Plumbline's own program runs on one device, not on {plural(placement.node_count, 'node')} with "
            f"{placement.accelerators_per_node}; write node_counts: [1]"
            + ("" if placement.launcher == "local" else " or program: nvidia")
        )
    if not own and placement.device is Device.CPU:
        raise ConfigError("hpl_mxp: hpl-mxp.sh runs on GPUs; write program: own")


def _precision(word: str, own: bool) -> str:
    if own:
        if word not in _OWN_PRECISIONS:
            raise ConfigError(f"hpl_mxp.precision {word}: Plumbline's own program knows {', '.join(_OWN_PRECISIONS)}")
        return word
    if word == "auto":
        return "fp16"
    if word in ("bf16", "fp32"):
        raise ConfigError(f"hpl_mxp.precision {word}: hpl-mxp.sh knows fp16, fp8 and fp4")
    return word


def _grid(ranks: int, rows: int | None, columns: int | None) -> tuple[int, int]:
    if rows is None and columns is None:
        columns = max(d for d in range(1, math.isqrt(ranks) + 1) if ranks % d == 0)
    rows = rows if rows is not None else ranks // (columns or 1)
    columns = columns if columns is not None else ranks // rows
    if rows * columns != ranks:
        raise ConfigError(f"hpl_mxp: a grid of {rows} × {columns} is not for {ranks} processes, one an accelerator")
    return rows, columns


def _order(placement: Placement, params: Params, step: int, own: bool) -> int:
    """Give N: as asked at one node, grown with the nodes, down to a whole number of blocks in every row and column."""
    given = _whole(params, "n")
    nodes = 1 if params["scaling"] == "strong" else placement.node_count
    if given is not None and nodes == 1:
        return given
    one_node = float(given) if given is not None else _default_order(placement, own)
    n = int(one_node * math.sqrt(nodes))
    if n < step:
        raise ConfigError(f"hpl_mxp.n: {n} is less than one block in each process ({step})")
    return n // step * step


def _default_order(placement: Placement, own: bool) -> float:
    if placement.device is Device.CPU:
        return float(next(order for least, order in _CPU_ORDERS if machine_bytes() >= least))
    if (match := _MEMORY.search(placement.accelerator)) is None:
        raise ConfigError(
            f"hpl_mxp.n: the memory of accelerator {placement.accelerator!r} is not in its name; write n in the profile"
        )
    node_bytes = float(match[1]) * 1e9 * placement.accelerators_per_node
    return math.sqrt(_DEVICE_SHARE * node_bytes / (_OWN_GPU_BYTES if own else _DEVICE_BYTES))


def machine_bytes() -> int:
    """Give this machine's memory: the local launcher plans where it runs."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _whole(params: Params, key: str) -> int | None:
    value = params[key]
    if value is None:
        return None
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 10**9:
        raise ConfigError(f"hpl_mxp.{key} must be a whole number from 1, not {value!r}")
    return int(text)
