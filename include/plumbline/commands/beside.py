"""A second process for report and track: it imports what they need while the first one judges."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from io import BytesIO
from types import TracebackType
from typing import ParamSpec, TypeVar

from plumbline.errors import StageLostError

P = ParamSpec("P")
T = TypeVar("T")


class Beside:
    """Runs calls one after the other in a process of their own, which first gets ready for them.

    Importing matplotlib and MLflow's store takes seconds, and so does importing great-expectations: side by side, a
    person who waits for `plumbline run` waits for one of them. Never while something is measured.
    """

    def __init__(self, *, tracking: bool = True) -> None:
        """Start nothing yet. Without `tracking` there is nothing to get ready for it."""
        self._early = (*_DRAWING, *_TRACKING) if tracking else _DRAWING
        self._pool = ProcessPoolExecutor(
            max_workers=1, mp_context=multiprocessing.get_context("fork"), initializer=_begin, initargs=(os.getpid(),)
        )

    def __enter__(self) -> Beside:
        for early in self._early:
            self._pool.submit(early)
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
        try:
            return self._pool.submit(function, *args, **kwargs)
        except BrokenExecutor as error:  # it was killed before it was asked: `result` tells
            lost: Future[T] = Future()
            lost.set_exception(error)
            return lost

    def result(self, started: Future[T], name: str) -> T:
        """Wait for what `start` began; `name` is what was begun."""
        try:
            return started.result()
        except BrokenExecutor:
            raise StageLostError(f"the process of {name} was killed") from None


def _begin(parent: int) -> None:
    """Be ended by what ends the first process, and by every signal at once: what it does can be repeated."""
    from plumbline.execution.run_one import die_with_parent  # noqa: PLC0415

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    die_with_parent()
    if os.getppid() != parent:  # it was gone before
        os._exit(1)


# What fails below fails again, and is told, in the call that needs it.


def _import_drawing() -> None:
    for name in ("matplotlib.figure", "matplotlib.backends.backend_svg", "pyarrow.dataset", "plumbline.reports.report"):
        importlib.import_module(name)


def _import_tracking() -> None:
    importlib.import_module("mlflow.store.tracking.sqlalchemy_store")


def _draw() -> None:
    """Have fonts found and templates compiled."""
    from matplotlib.figure import Figure

    from plumbline.reports.report import templates  # noqa: PLC0415

    figure = Figure(layout="constrained")
    figure.add_subplot()
    figure.savefig(BytesIO(), format="svg")
    templates().get_template("report.html.j2")


def _open_store() -> None:
    from plumbline.tracking.mlflow_tracking import open_store  # noqa: PLC0415

    open_store()


_DRAWING: tuple[Callable[[], None], ...] = (_import_drawing, _draw)
_TRACKING: tuple[Callable[[], None], ...] = (_import_tracking, _open_store)
"""What takes report and track longest, in the order in which it is needed."""
