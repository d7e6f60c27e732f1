"""A second process for report and track: it imports what they need while the first one judges."""

from __future__ import annotations

import importlib
import multiprocessing
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from types import TracebackType
from typing import ParamSpec, TypeVar

from plumbline.errors import StageLostError

P = ParamSpec("P")
T = TypeVar("T")


class Beside:
    """Runs calls one after the other in a process of their own, forked before anything heavy is imported.

    Importing matplotlib and MLflow's store takes seconds, and so does importing great-expectations: side by side, a
    person who waits for `plumbline run` waits for one of them. Never while something is measured.
    """

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("fork"))

    def __enter__(self) -> Beside:
        self._pool.submit(_import_early)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Give what the function gives, or raise what it raises. Raises StageLostError when its process is gone."""
        return self.result(self.start(function, *args, **kwargs), getattr(function, "__name__", "it"))

    def start(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Let the other process do it while this one goes on; `result` gives what came of it."""
        return self._pool.submit(function, *args, **kwargs)

    def result(self, started: Future[T], name: str) -> T:
        """Wait for what `start` began; `name` is the command that repeats it."""
        try:
            return started.result()
        except BrokenExecutor:
            raise StageLostError(f"the process of {name} was killed; `plumbline {name} RUN_DIR` repeats it") from None


_SLOW_IMPORTS = ("matplotlib.figure", "matplotlib.backends.backend_svg", "mlflow.store.tracking.sqlalchemy_store")


def _import_early() -> None:
    """Import what takes report and track longest: plotting, and MLflow with the client of its SQLite store."""
    for name in _SLOW_IMPORTS:
        importlib.import_module(name)
