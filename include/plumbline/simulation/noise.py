"""Noise of nights side by side: the same numbers as each night would draw alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Which of T nights share their noise: `first` names a night of each noise, `of` [T] its place in `first`."""

    nights: int
    first: tuple[int, ...]
    of: NDArray[Any] | None
    """None where no two nights share."""

    @classmethod
    def of_keys(cls, keys: Sequence[str]) -> Sharing:
        """Let nights with an equal key share."""
        import numpy as np

        place: dict[str, int] = {}
        of = [place.setdefault(key, len(place)) for key in keys]
        first = tuple(of.index(number) for number in range(len(place)))
        return cls(nights=len(keys), first=first, of=None if len(place) == len(keys) else np.array(of))


class Noise:
    """Draws like numpy's Generator, one generator a night: the first axis of every draw is T nights × rows.

    Nights that share their noise get the same numbers: a fault does not change the noise.
    """

    def __init__(self, sharing: Sharing, make: Callable[[int], Generator]) -> None:
        """Take which nights share, and how to make the generator of night t."""
        self._sharing, self._make = sharing, make
        self._made: list[Generator] | None = None

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

        rows = len(p) // self._sharing.nights
        parts = (p[rows * t : rows * (t + 1)] for t in range(self._sharing.nights))
        return np.concatenate([self._make(t).binomial(n, part, (rows, *size[1:])) for t, part in enumerate(parts)])

    def _drawn(self, size: Any, draw: Callable[[Generator, tuple[int, ...]], NDArray[Any]]) -> NDArray[Any]:
        import numpy as np

        rows, *rest = (size,) if isinstance(size, int) else size
        shape = (rows // self._sharing.nights, *rest)
        if self._made is None:
            self._made = [self._make(t) for t in self._sharing.first]
        parts = [draw(rng, shape) for rng in self._made]
        if self._sharing.of is None:
            return parts[0] if len(parts) == 1 else np.concatenate(parts)
        return np.asarray(np.stack(parts)[self._sharing.of].reshape(rows, *rest))
