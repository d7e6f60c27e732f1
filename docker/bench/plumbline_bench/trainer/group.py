"""The ranks of a run: joined under torchrun or mpirun, or started here, one process an emulated node, over loopback."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

import torch
import torch.distributed as dist
from torch import nn

from plumbline_bench.trainer.config import Config

_JOIN_TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """This process among the ranks."""

    rank: int
    ranks: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Whether this is rank 0, the one that writes."""
        return self.rank == 0

    def total(self, *numbers: float) -> list[float]:
        """Give each number's sum over all ranks."""
        sums = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(sums)
        return sums.tolist()

    def wait(self) -> None:
        """Finish what the device has to do, and wait for all ranks."""
        self.finish()
        dist.barrier()

    def finish(self) -> None:
        """Finish what the device has to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def run(config: Config, work: Callable[[Config, Group], int]) -> int:
    """Run `work` on every rank and give the exit status: the first that isn't 0."""
    given = _given_ranks()
    if given is None:
        return _start_here(config, work)
    rank, ranks, local_rank = given
    if ranks != config.ranks:
        sys.stderr.write(f"trainer: the launcher started {ranks} ranks, {config.ranks} were asked for\n")
        return 2
    return _join(config, work, rank, local_rank, "env://")


def _given_ranks() -> tuple[int, int, int] | None:
    """Give (rank, ranks, local rank) as torchrun or Open MPI tells them, None when neither started this process."""
    for names in (
        ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ):
        if all(name in os.environ for name in names):
            rank, ranks, local_rank = (int(os.environ[name]) for name in names)
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(local_rank)}
            return rank, ranks, local_rank
    return None


def _join(config: Config, work: Callable[[Config, Group], int], rank: int, local_rank: int, meeting: str) -> int:
    torch.set_num_threads(config.threads)
    device = torch.device("cuda", local_rank) if config.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=config.ranks, timeout=_JOIN_TIMEOUT)
    try:
        return work(config, Group(rank=rank, ranks=config.ranks, device=device))
    finally:
        dist.destroy_process_group()


# ---------------------------------------------------------------------------------------------------------------
# All ranks on this machine


def _start_here(config: Config, work: Callable[[Config, Group], int]) -> int:
    """Fork the ranks: torch is imported once, and a group of four starts in the time of one process."""
    # Optimizers and DDP import this on first use: 2.5 CPU seconds that every rank would spend again.
    importlib.import_module("torch._dynamo")
    os.environ.update(GLOO_SOCKET_IFNAME="lo", NCCL_SOCKET_IFNAME="lo")
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(prefix="plumbline-trainer-") as meeting_place:
        meeting = f"file://{meeting_place}/ranks"
        ranks = [
            context.Process(target=_rank_process, args=(config, work, rank, meeting), name=f"rank {rank}")
            for rank in range(config.ranks)
        ]
        for process in ranks:
            process.start()
        previous = signal.signal(signal.SIGTERM, lambda *_: _stop(ranks))
        try:
            return _outcome(ranks)
        finally:
            _stop(ranks)
            signal.signal(signal.SIGTERM, previous)


def _rank_process(config: Config, work: Callable[[Config, Group], int], rank: int, meeting: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    status = _join(config, work, rank, rank % config.ranks_per_node, meeting)
    sys.stdout.flush()
    sys.exit(status)


def _outcome(ranks: list[BaseProcess]) -> int:
    """Wait for all ranks, and no longer than for the first that fails: the others would wait for it."""
    running = {process.sentinel: process for process in ranks}
    while running:
        for sentinel in wait(list(running)):
            process = running.pop(sentinel)
            process.join()
            if process.exitcode:
                how = (
                    f"died of signal {-process.exitcode}" if process.exitcode < 0 else f"ended with {process.exitcode}"
                )
                sys.stderr.write(f"trainer: {process.name} {how}\n")
                return process.exitcode if process.exitcode > 0 else 128 - process.exitcode
    return 0


def _stop(ranks: list[BaseProcess]) -> None:
    for process in ranks:
        if process.is_alive():
            process.terminate()
    for process in ranks:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join()


# ---------------------------------------------------------------------------------------------------------------
# The model on all ranks


def spread(model: nn.Module, config: Config, group: Group) -> nn.Module:
    """Put the model on all ranks: replicated (DDP) or sharded (FSDP2)."""
    if config.parallelism == "fsdp":
        # Only sharding needs these, and importing them takes a while.
        from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
        from torch.distributed.fsdp import fully_shard  # noqa: PLC0415

        mesh = init_device_mesh(group.device.type, (group.ranks,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    if group.ranks == 1:
        return model
    devices = [group.device.index] if group.device.type == "cuda" else None
    return nn.parallel.DistributedDataParallel(model, device_ids=devices)


def plain(model: nn.Module) -> nn.Module:
    """Give the model without its DDP wrapper."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
