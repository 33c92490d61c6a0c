"""The mean distance of some rows of a stored matrix, or the mean of their squares, tile by tile.

    mean = (sum of the tiles on the diagonal + 2 sum of the tiles above it) / n^2

Only the upper half is read. Each tile is summed by itself and the sums are added without rounding in between, so the
mean has the same bits whoever reads the tiles, and in whatever order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.kernel import bandwidth as bandwidth_of
from cksc_dist.spec import KernelSpec

__all__ = ["Distances", "as_slice", "block_sums", "delta_of_mean", "reading_blocks", "row_blocks"]

Index = NDArray[np.int64]


class Distances(Protocol):
    """What is needed of a matrix."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""

    @property
    def tile_edge(self) -> int:
        """Rows of a tile."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: Any) -> NDArray[Any]: ...


def as_slice(rows: Index) -> slice | Index:
    """Return rows that follow each other as a slice, which is much quicker to read.

    Examples
    --------
    >>> import numpy as np
    >>> as_slice(np.array([3, 4, 5])), as_slice(np.array([3, 5]))
    (slice(3, 6, None), array([3, 5]))
    """
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows


def row_blocks(rows: Index, edge: int) -> list[tuple[int, int]]:
    """Return where ascending rows pass from one block of a matrix to the next: (first, last) position in each.

    Examples
    --------
    >>> import numpy as np
    >>> row_blocks(np.array([0, 3, 4, 9]), edge=4)
    [(0, 2), (2, 3), (3, 4)]
    """
    steps = np.flatnonzero(np.diff(rows // edge)) + 1
    edges = [0, *steps.tolist(), len(rows)]
    return list(itertools.pairwise(edges))


def reading_blocks(rows: Index, edge: int) -> list[tuple[int, int]]:
    """Return ranges of positions to read by: where rows ascend, each lies in one block of the matrix."""
    if (np.diff(rows) > 0).all():
        return row_blocks(rows, edge)
    return [(begin, min(begin + edge, len(rows))) for begin in range(0, len(rows), edge)]


def block_sums(distances: Distances, rows: Index, number: int, rule: str = "mean") -> list[float]:
    """Return the sums of one block of rows with itself and twice those with all later ones; rows ascend.

    With the rule ``"squares"`` squares are summed.
    """
    blocks = row_blocks(rows, distances.tile_edge)
    mine = as_slice(rows[slice(*blocks[number])])
    out = []
    for other in range(number, len(blocks)):
        values = distances[mine, as_slice(rows[slice(*blocks[other])])].astype(np.float64, copy=False)
        total = np.square(values).sum() if rule == "squares" else values.sum()
        out.append((1.0 if other == number else 2.0) * float(total))
    return out


def delta_of_mean(sums: Iterable[float], n: int, kernel: KernelSpec) -> float:
    """Return delta by the rule ``"mean"``, ``"paper"`` or ``"squares"``, from the sums of all blocks."""
    if kernel.bandwidth not in ("mean", "paper", "squares"):
        raise InputError(f"bandwidth={kernel.bandwidth!r} does not come from the mean distance")
    mean = math.fsum(sums) / n**2
    if kernel.bandwidth == "squares":
        return bandwidth_of(np.full((1, 1), math.sqrt(mean)), "squares")
    return bandwidth_of(np.full((1, 1), mean), kernel.bandwidth)
