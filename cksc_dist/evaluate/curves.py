"""How series are drawn: up to three dimensions as they are, more as the first three principal components of frames.

A series of one frame is a vector, such as a histogram: it is drawn along its dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.threads import one_blas_thread

__all__ = ["Curves", "thinned"]

Float = NDArray[np.float64]

DRAWN = 3
"""At most so many curves a series."""
FRAMES = 1500
"""So many frames, evenly taken, tell the components."""
POINTS = 160
"""At most so many points a curve."""


def thinned(length: int, most: int = POINTS) -> NDArray[np.int64]:
    """Return positions of frames to draw: all of a short series, evenly spaced ones of a long one, both ends always.

    Examples
    --------
    >>> thinned(4).tolist(), thinned(9, 3).tolist()
    ([0, 1, 2, 3], [0, 4, 8])
    """
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(np.int64))


@dataclass(frozen=True)
class Curves:
    """What of a frame is drawn.

    Parameters
    ----------
    centre, directions
        A frame x is drawn as ``(x - centre) @ directions``.
    names
        Of the curves.
    explained
        Share of the frames' variance that the curves show.
    along_dims
        Vectors: one curve each, from the first dimension to the last.
    """

    centre: Float
    directions: Float
    names: tuple[str, ...]
    explained: float
    along_dims: bool = False

    @classmethod
    @one_blas_thread()
    def of(cls, series: Sequence[Float], dim_names: Sequence[Any] = ()) -> Curves:
        """Learn from series (time, dims) how to draw them and others like them.

        Examples
        --------
        >>> line = np.outer(np.arange(5.0), np.ones(6))
        >>> curves = Curves.of([line])
        >>> curves.names, round(curves.explained, 3), curves(line).shape
        (('component 1', 'component 2', 'component 3'), 1.0, (5, 3))
        """
        frames = np.concatenate(list(series))
        frames = frames[thinned(len(frames), FRAMES)]
        centre, dims = frames.mean(axis=0), frames.shape[1]
        if dims > DRAWN and all(len(each) == 1 for each in series):
            return cls(np.zeros(dims), np.eye(dims), ("values",), 1.0, along_dims=True)
        if dims <= DRAWN:
            # each dimension has units of its own
            deviation = frames.std(axis=0)
            scale = np.diag(1.0 / np.where(deviation > 0, deviation, 1.0))
            names = tuple(str(name) for name in dim_names) or tuple(f"dimension {q + 1}" for q in range(dims))
            return cls(centre, scale, names, 1.0)
        _, strength, rows = np.linalg.svd(frames - centre, full_matrices=False)
        directions = np.zeros((dims, DRAWN))
        directions[:, : len(rows[:DRAWN])] = rows[:DRAWN].T
        # the sign of a component means nothing: the largest part of each is made positive
        largest = directions[np.abs(directions).argmax(axis=0), np.arange(DRAWN)]
        directions *= np.where(largest < 0, -1.0, 1.0)
        total = float((strength**2).sum())
        longest = float(strength[0]) / np.sqrt(len(frames)) or 1.0  # frames that are all the same have none
        explained = float((strength[:DRAWN] ** 2).sum()) / total if total > 0 else 1.0
        return cls(centre, directions / longest, tuple(f"component {q + 1}" for q in range(DRAWN)), explained)

    @one_blas_thread()
    def __call__(self, series: Float) -> Float:
        """Return the curves of a series, (time, curves)."""
        if self.along_dims:
            return np.asarray(series[0][:, None])
        drawn: Float = (series - self.centre) @ self.directions
        return drawn

    @property
    def note(self) -> str:
        """Say what the curves are."""
        if self.along_dims:
            return f"Curves: the {len(self.centre)} values of each, from left to right."
        if len(self.centre) <= DRAWN:
            return "" if len(self.names) == 1 else f"Curves: {', '.join(self.names)}, each on a scale of its own."
        return f"Curves: the first three principal components of the frames ({self.explained:.0%} of their variance)."
