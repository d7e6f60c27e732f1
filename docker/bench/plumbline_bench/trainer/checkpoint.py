"""A checkpoint as training jobs need it: written whole or not at all, and the same to the last bit when it is read.

Two phases: a temporary file, fsync, rename, fsync of the directory. Then it is read back from the file system, not
from memory where that can be helped, into a fresh model and optimizer, and both are compared bit by bit.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from plumbline_bench.trainer.config import Config
from plumbline_bench.trainer.group import Group, plain
from plumbline_bench.trainer.model import LanguageModel
from plumbline_bench.trainer.optimizer import make_optimizer

_PREFIX = "plumbline-checkpoint-"
_ABANDONED_AFTER_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Times in seconds. `restored` is true when every rank read back what it has in memory, bit by bit.

    `error` says why there is nothing to compare: the directory is missing, full, not writable.
    """

    size_bytes: int | None = None
    write_time: float | None = None
    read_time: float | None = None
    restored: bool | None = None
    error: str | None = None


def try_checkpoint(
    model: nn.Module, optimizer: torch.optim.Optimizer, step: int, config: Config, group: Group
) -> Result:
    """Write a checkpoint into the directory under test, restore it on every rank, compare, and remove it."""
    # Groups share the directory: rank 0 draws the name, and the sum over ranks tells it to all.
    (mark,) = group.total(float(secrets.randbits(48)) if group.first else 0.0)
    path = Path(str(config.checkpoint_dir)) / f"{_PREFIX}{int(mark):012x}.pt"
    state = full_state(model, optimizer, step, config)
    group.wait()
    try:
        size, write_time, error = _attempt(lambda: write(state, path, config) if group.first else 0)
        if _any(group, error):
            return Result(error=error or "another rank could not write it")
        loaded, read_time, error = _attempt(lambda: torch.load(path, map_location="cpu", weights_only=True))
        if _any(group, error):
            return Result(size_bytes=size, write_time=write_time, error=error or "another rank could not read it")
        different = _any(group, None if _restores(loaded, state, config) else "different")
    finally:
        group.wait()
        if group.first:
            path.unlink(missing_ok=True)
    return Result(size_bytes=size, write_time=write_time, read_time=read_time, restored=not different)


def _attempt(work: Callable[[], Any]) -> tuple[Any, float, str | None]:
    """Give (what the work gave, seconds, what the file system said against it)."""
    started = time.perf_counter()
    try:
        return work(), time.perf_counter() - started, None
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as problem:
        # torch.load tells of a damaged file with any of these.
        return None, time.perf_counter() - started, f"{type(problem).__name__}: {problem}"[:300]


def _any(group: Group, problem: str | None) -> bool:
    """Say whether any rank has a problem, so that no rank goes on alone."""
    (count,) = group.total(0.0 if problem is None else 1.0)
    return count > 0


def write(state: dict[str, Any], path: Path, config: Config) -> int:
    """Write the state in two phases and give its size. An interrupted write leaves `path` as it was.

    The directory must be there unless the run may create it: writing beside a missing mount would test the wrong disk.
    """
    if config.create_checkpoint_dir:
        path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
            size = stream.tell()
            # Read back from the file system, not from what this write left in memory.
            with contextlib.suppress(OSError):
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        temporary.replace(path)
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    finally:
        temporary.unlink(missing_ok=True)
    return size


def remove_abandoned(directory: Path) -> None:
    """Remove what runs left that were killed a day ago or longer."""
    for left in (*directory.glob(f"{_PREFIX}*.pt"), *directory.glob(f".{_PREFIX}*.tmp")):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_AFTER_S:
                left.unlink()


def full_state(model: nn.Module, optimizer: torch.optim.Optimizer, step: int, config: Config) -> dict[str, Any]:
    """Give everything that training needs to go on, on CPU: the same on every rank, also of sharded models."""
    if config.parallelism == "fsdp":
        weights = {name: _whole(tensor) for name, tensor in model.state_dict().items()}
    else:
        weights = {name: tensor.detach().cpu().clone() for name, tensor in plain(model).state_dict().items()}
    state = optimizer.state_dict()
    moments = {
        number: {name: _whole(item) if isinstance(item, torch.Tensor) else item for name, item in entry.items()}
        for number, entry in state["state"].items()
    }
    groups = [dict(entry) for entry in state["param_groups"]]
    return {"model": weights, "optimizer": {"state": moments, "param_groups": groups}, "step": step}


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    full = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full.detach().cpu().clone()


def _restores(loaded: dict[str, Any], state: dict[str, Any], config: Config) -> bool:
    """Load into a fresh model and optimizer, and compare what these then hold with the state in memory."""
    fresh = LanguageModel(config)
    optimizer = make_optimizer(fresh, config)
    fresh.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])
    restored = {"model": dict(fresh.state_dict()), "optimizer": optimizer.state_dict(), "step": loaded["step"]}
    return bit_equal(restored, state)


def bit_equal(one: Any, other: Any) -> bool:
    """Compare nested dicts and lists; tensors by type, shape and bytes, so that NaN equals itself and 0 isn't −0."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        raw = [tensor.detach().cpu().contiguous().flatten().view(torch.uint8) for tensor in (one, other)]
        return torch.equal(*raw)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(bit_equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(bit_equal(*pair) for pair in zip(one, other, strict=True))
    return type(one) is type(other) and one == other
