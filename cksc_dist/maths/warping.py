"""The warping path of two series: which frames DTW lays beside each other.

    V(i, j) = c(i, j) + min(V(i-1, j-1), V(i-1, j), V(i, j-1))

with the local cost c of `cksc_dist.maths.dtw`; the path is followed back from the last pair of frames. Cells of one
anti-diagonal i + j do not depend on each other and are filled together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.dtw_naive import window_frames
from cksc_dist.spec import DistanceSpec

__all__ = ["warping_path"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]


def warping_path(a: Float, b: Float, spec: DistanceSpec = DistanceSpec()) -> Index:  # noqa: B008  frozen
    """Return the cheapest path as pairs of frames, from (0, 0) to the last of both.

    Parameters
    ----------
    a, b
        Two series (time, dims), scaled as they are compared. One warping serves all dimensions; where the settings
        have one for each, give a dimension alone.
    spec
        Window and local cost.

    Examples
    --------
    >>> a, b = np.array([[0.0], [1.0], [5.0]]), np.array([[0.0], [0.0], [1.0], [5.0]])
    >>> warping_path(a, b).tolist()
    [[0, 0], [0, 1], [1, 2], [2, 3]]
    """
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1] or not len(a) or not len(b):
        raise InputError(f"series of shapes {a.shape} and {b.shape}: give two of (time, dims), with the same dims")
    n, m = len(a), len(b)
    with np.errstate(over="ignore"):  # it is told below
        V = _path_sums(_costs(a, b, spec), window_frames(spec.window, n, m))
    if not np.isfinite(V[n, m]):
        largest = max(float(np.abs(a).max()), float(np.abs(b).max()))
        raise InputError(
            f"no path has a finite cost: the series have values of up to {largest:.3g}; leave out NaN and infinite "
            "values, or rescale both series by one factor"
        )
    i, j = n, m
    path = [(n - 1, m - 1)]
    while i > 1 or j > 1:
        # of equal ones the first is taken: the diagonal
        i, j = min(((i - 1, j - 1), (i - 1, j), (i, j - 1)), key=lambda cell: float(V[cell]))
        path.append((i - 1, j - 1))
    return np.array(path[::-1], np.int64)


def _costs(a: Float, b: Float, spec: DistanceSpec) -> Float:
    """Return the local cost of all pairs of frames, a dimension at a time: all at once would fill memory."""
    costs = np.zeros((len(a), len(b)))
    for q in range(a.shape[1]):
        difference = np.subtract.outer(a[:, q], b[:, q])
        costs += difference**2 if spec.cost == "squared" else np.abs(difference)
    return costs


def _path_sums(costs: Float, window: int | None) -> Float:
    """Return V with an edge of infinity before the first frames."""
    n, m = costs.shape
    if window is not None:
        ahead = np.subtract.outer(-np.arange(n), -np.arange(m))  # j - i
        inside = (-(max(0, n - m) + window) < ahead) & (ahead < max(0, m - n) + window)
        costs = np.where(inside, costs, np.inf)
    V = np.full((n + 1, m + 1), np.inf)
    V[0, 0] = 0.0
    for total in range(n + m - 1):
        i = np.arange(max(0, total - m + 1), min(n, total + 1))
        j = total - i
        V[i + 1, j + 1] = costs[i, j] + np.minimum(np.minimum(V[i, j], V[i, j + 1]), V[i + 1, j])
    return V
