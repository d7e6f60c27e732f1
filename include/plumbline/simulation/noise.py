"""Noise of nights side by side: the same numbers as each night would draw alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray


class Noise:
    """Draws like numpy's Generator, one generator a night: the first axis of every draw is T nights × rows.

    Nights with an equal key share a generator, and so their numbers: a fault does not change the noise.
    """

    def __init__(self, keys: Sequence[str], make: Callable[[int], Generator]) -> None:
        """Take the key of each night, and how to make the generator of night t."""
        import numpy as np

        first: dict[str, int] = {}
        of_key = [first.setdefault(key, len(first)) for key in keys]
        self._night = [keys.index(key) for key in first]
        self._shared = None if len(first) == len(keys) else np.array(of_key)
        self._make = make
        self._made: list[Generator] | None = None
        self._nights = len(keys)

    def random(self, size: Any, /) -> NDArray[Any]:
        """Draw from 0 to 1."""
        return self._drawn(size, lambda rng, shape: rng.random(shape))

    def normal(self, loc: float, scale: float, size: Any, /) -> NDArray[Any]:
        """Draw normally."""
        return self._drawn(size, lambda rng, shape: rng.normal(loc, scale, shape))

    def standard_t(self, df: float, size: Any, /) -> NDArray[Any]:
        """Draw from Student's t."""
        return self._drawn(size, lambda rng, shape: rng.standard_t(df, shape))

    def binomial(self, n: int, p: NDArray[Any], size: Any, /) -> NDArray[Any]:
        """Draw counts, once from this noise: what is drawn depends on `p` [rows, …], so no night shares a generator."""
        import numpy as np

        rows = len(p) // self._nights
        parts = (p[rows * t : rows * (t + 1)] for t in range(self._nights))
        return np.concatenate([self._make(t).binomial(n, part, (rows, *size[1:])) for t, part in enumerate(parts)])

    def _drawn(self, size: Any, draw: Callable[[Generator, tuple[int, ...]], NDArray[Any]]) -> NDArray[Any]:
        import numpy as np

        rows, *rest = (size,) if isinstance(size, int) else size
        shape = (rows // self._nights, *rest)
        if self._made is None:
            self._made = [self._make(t) for t in self._night]
        parts = [draw(rng, shape) for rng in self._made]
        if self._shared is None:
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        return np.asarray(np.stack(parts)[self._shared].reshape(rows, *rest))
