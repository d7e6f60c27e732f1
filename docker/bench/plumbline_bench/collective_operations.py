"""The collective operations that Plumbline's own program measures: how torch runs them and what must come out.

Sizes, counts, bandwidth factors and the rounding of sizes follow NVIDIA/nccl-tests (the operation files in src/,
doc/PERFORMANCE.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist

DTYPES = {
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "int32": torch.int32,
}
_EXACT_BELOW = {torch.bfloat16: 256, torch.float16: 2048}
"""Whole numbers are exact below this: the sum over all ranks must be, for its check to be exact."""
_ALIGNMENT_BYTES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One collective: how its buffers relate, how its bandwidth is named, and how torch runs it.

    `run` takes (output, input); `divided` says that each rank holds a share of the message, so that the column `count`
    is that share; `factor` gives bus ÷ algorithm bandwidth for n ranks.
    """

    name: str
    redop: str
    divided: bool
    factor: Callable[[int], float]
    run: Callable[[torch.Tensor, torch.Tensor], None]
    in_place: bool


def _all_reduce(output: torch.Tensor, source: torch.Tensor) -> None:
    if output.data_ptr() != source.data_ptr():
        output.copy_(source)
    dist.all_reduce(output)


def _named(new: str, old: str) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Give torch's function under its new or its old name: images may hold an older torch."""
    function = getattr(dist, new, None) or getattr(dist, old)

    def run(output: torch.Tensor, source: torch.Tensor) -> None:
        function(output, source)

    return run


def _alltoall(output: torch.Tensor, source: torch.Tensor) -> None:
    dist.all_to_all_single(output, source)


def _sendrecv(output: torch.Tensor, source: torch.Tensor) -> None:
    """Send to the next rank and receive from the one before, as sendrecv_perf does."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks == 1:
        output.copy_(source)
        return
    pair = [
        dist.P2POp(dist.isend, source, (rank + 1) % ranks),
        dist.P2POp(dist.irecv, output, (rank - 1) % ranks),
    ]
    for request in dist.batch_isend_irecv(pair):
        request.wait()


def _share(ranks: int) -> float:
    return (ranks - 1) / ranks


OPERATIONS = {
    operation.name: operation
    for operation in (
        Operation(
            name="all_reduce",
            redop="sum",
            divided=False,
            factor=lambda n: 2 * _share(n),
            run=_all_reduce,
            in_place=True,
        ),
        Operation(
            name="all_gather",
            redop="none",
            divided=True,
            factor=_share,
            run=_named("all_gather_single", "all_gather_into_tensor"),
            in_place=True,
        ),
        Operation(
            name="reduce_scatter",
            redop="sum",
            divided=True,
            factor=_share,
            run=_named("reduce_scatter_single", "reduce_scatter_tensor"),
            in_place=False,
        ),
        Operation(name="alltoall", redop="none", divided=True, factor=_share, run=_alltoall, in_place=False),
        Operation(name="sendrecv", redop="none", divided=False, factor=lambda _: 1.0, run=_sendrecv, in_place=False),
    )
}
"""In place is offered where torch allows output and input to share memory."""


# ---------------------------------------------------------------------------------------------------------------
# Values and their check


def fill(count: int, rank: int, ranks: int, dtype: torch.dtype) -> torch.Tensor:
    """Give a rank's input: small whole numbers that differ between ranks and positions, whose sum is exact."""
    modulus = max(2, min(61, _EXACT_BELOW.get(dtype, 1 << 20) // ranks))
    values = (torch.arange(count, dtype=torch.int64) * 7 + rank * 13) % modulus
    return values.to(dtype)


def input_count(operation: Operation, count: int, ranks: int) -> int:
    """Give the elements of a rank's input when the column `count` says `count`."""
    return count * ranks if operation.name in ("reduce_scatter", "alltoall") else count


def output_count(operation: Operation, count: int, ranks: int) -> int:
    """Give the elements of a rank's output when the column `count` says `count`."""
    return count * ranks if operation.name in ("all_gather", "alltoall") else count


def expected(operation: Operation, count: int, rank: int, ranks: int, dtype: torch.dtype) -> torch.Tensor:
    """Give what a rank's output must be, computed without any communication."""
    inputs = [fill(input_count(operation, count, ranks), other, ranks, dtype) for other in range(ranks)]
    if operation.name == "all_reduce":
        return torch.stack(inputs).sum(0, dtype=dtype)
    if operation.name == "all_gather":
        return torch.cat(inputs)
    mine = slice(rank * count, (rank + 1) * count)
    if operation.name == "reduce_scatter":
        return torch.stack([values[mine] for values in inputs]).sum(0, dtype=dtype)
    if operation.name == "alltoall":
        return torch.cat([values[mine] for values in inputs])
    return inputs[(rank - 1) % ranks]


def wrong_elements(output: torch.Tensor, wanted: torch.Tensor) -> int:
    """Count the elements that are not what they must be. NaN is wrong."""
    return int((output.cpu() != wanted).sum().item())


def sizes(least: int, most: int, factor: int) -> Iterator[int]:
    """Give the sizes of a sweep."""
    size = least
    while size <= most:
        yield size
        size *= factor


def count_of(operation: Operation, size: int, ranks: int, element_bytes: int) -> int:
    """Give the column `count` for a message size: shares are whole multiples of 16 bytes, as in nccl-tests."""
    if not operation.divided:
        return size // element_bytes
    per_piece = _ALIGNMENT_BYTES // element_bytes
    return size // element_bytes // ranks // per_piece * per_piece
