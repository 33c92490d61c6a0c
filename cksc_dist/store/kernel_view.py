"""A kernel over rows of a stored distance matrix, computed where it is looked at.

    K[i, j] = exp(-D[i, j]^2 / (factor * delta)),    delta by the bandwidth rule over the training rows alone

The bandwidth comes from sums of tiles (`cksc_dist.store.bandwidth`) and does not depend on how much memory there is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.kernel import bandwidth as bandwidth_of
from cksc_dist.maths.kernel import gaussian_kernel
from cksc_dist.maths.threads import run_blocks
from cksc_dist.spec import KernelSpec
from cksc_dist.store.bandwidth import Distances, as_slice, block_sums, delta_of_mean, reading_blocks, row_blocks

__all__ = ["KernelView", "positions"]


def positions(n: int, rows: ArrayLike) -> NDArray[np.int64]:
    """Return rows as positions, from positions or a mask, or say that there are none such."""
    given = np.asarray(rows)
    # NumPy takes an empty list for one of floats
    given = given if given.size else given.astype(bool if given.dtype == bool else np.int64)
    try:
        found: NDArray[np.int64] = np.atleast_1d(np.arange(n)[given])
    except IndexError as error:
        raise InputError(f"rows: {error}; there are {n} rows, give positions or a mask of as many") from error
    return found


class KernelView:
    """The kernel of training rows: looks like a square array, reads what is asked for.

    Parameters
    ----------
    distances
        Stored matrix.
    rows
        Training rows.
    bandwidth, factor
        As in `KernelSpec`.
    delta
        What the rule gives for these rows, where that is known already.
    """

    ndim = 2

    def __init__(
        self,
        distances: Distances,
        rows: NDArray[np.int64],
        *,
        bandwidth: str | float,
        factor: float,
        delta: float | None = None,
    ) -> None:
        if rows.ndim != 1 or not len(rows):
            raise InputError("rows: give at least one training row, as a list of positions or a mask")
        self.spec = KernelSpec(bandwidth=bandwidth, factor=factor)
        self.rows = rows
        self._distances = distances
        self.delta = self._learn() if delta is None else delta

    def _learn(self) -> float:
        rule = self.spec.bandwidth
        if not isinstance(rule, str):
            return float(rule)
        if rule == "median":
            # every value counts: there is no way round the whole matrix
            return bandwidth_of(self._distances[self.rows, self.rows], rule)
        ascending = np.sort(self.rows)
        blocks = range(len(row_blocks(ascending, self._distances.tile_edge)))
        sums = [part for number in blocks for part in block_sums(self._distances, ascending, number, rule)]
        return delta_of_mean(sums, len(self.rows), self.spec)

    @property
    def matrix(self) -> Distances:
        """The stored matrix."""
        return self._distances

    @property
    def shape(self) -> tuple[int, int]:
        """Training rows, twice."""
        return len(self.rows), len(self.rows)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values: that of the distances."""
        return self._distances.dtype

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        return f"KernelView({len(self.rows):,} rows, delta {self.delta:.6g}, factor {self.spec.factor:g})"

    def __getitem__(self, key: Any) -> NDArray[Any]:
        """Return entries by positions among the training rows; lists of positions give the matrix of both."""
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        values = self._values(np.atleast_1d(self.rows[rows]), np.atleast_1d(self.rows[columns]))
        scalar = tuple(0 if isinstance(part, int | np.integer) else slice(None) for part in (rows, columns))
        return np.asarray(values[scalar])

    def _values(self, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> NDArray[Any]:
        return gaussian_kernel(self._distances[as_slice(rows), as_slice(columns)], self.width)

    @property
    def width(self) -> float:
        """What squared distances are divided by: factor times delta."""
        return self.spec.factor * self.delta

    def against(self, rows: ArrayLike) -> NDArray[Any]:
        """Return the kernel of other rows of the matrix (test samples) with the training rows."""
        return self._values(positions(len(self._distances), rows), self.rows)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the whole kernel, in memory."""
        return self.load().astype(dtype or self.dtype, copy=False)

    def load(self, n_jobs: int | None = None) -> NDArray[Any]:
        """Return the whole kernel, in memory: filled tile by tile, so that it does not take twice its size.

        Parameters
        ----------
        n_jobs
            Threads that read.
        """
        K = np.empty(self.shape, self.dtype)
        blocks = [slice(*block) for block in reading_blocks(self.rows, self._distances.tile_edge)]

        def fill(number: int, _: int) -> None:
            for part in blocks:
                K[blocks[number], part] = self._values(self.rows[blocks[number]], self.rows[part])

        run_blocks(fill, len(blocks), 1, n_jobs)
        return K
