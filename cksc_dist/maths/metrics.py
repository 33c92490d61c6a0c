"""Distances of two sets of series by any metric: what a tile of a matrix is computed with.

    dtw         see `cksc_dist.maths.dtw`
    euclidean   sqrt(sum_k (a_k - b_k)^2)            series of one length, all frames and dimensions in a row
    chi2        sum_k (a_k - b_k)^2 / (a_k + b_k)    the same, not negative
    chi         sqrt(chi2)                           its Gaussian kernel is exp(-chi2 / delta)

A value depends on its two series alone: sums run over k in order, whatever block they are computed in.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.dtw import check_largest, pairwise_distances, prepare
from cksc_dist.maths.kernel import chi_square
from cksc_dist.maths.threads import run_blocks
from cksc_dist.series import Ragged
from cksc_dist.spec import DistanceSpec

__all__ = ["check_metric", "check_not_overflowing", "check_not_vanishing", "pairwise_metric", "pick_dims"]

ROWS_A_CALL = 64

FEW_FRAMES = 16
"""Enough of a series to see what an engine cannot do."""


def pick_dims(series: Ragged, spec: DistanceSpec) -> Ragged:
    """Return the dimensions that the settings ask for."""
    if spec.dims is None:
        return series
    if spec.dims[-1] >= series[0].shape[1]:
        raise InputError(
            f"dims: there is no dimension {spec.dims[-1]}; the series have {series[0].shape[1]}, from 0 on"
        )
    return np.ascontiguousarray(series[0][:, list(spec.dims)]), series[1]


def check_metric(series: Ragged, spec: DistanceSpec, first: int = 0, length: int | None = None) -> None:
    """Raise an InputError for what would fail in the middle of the work: say which series, and what to do.

    Parameters
    ----------
    series
        Some series of a set; ``first`` is the number of the first of them.
    length
        Frames that every series of the set must have, where the metric compares vectors.
    """
    values, offsets = pick_dims(series, spec)
    if spec.metric == "external":
        raise InputError("metric='external' is for a matrix that is brought ready: cksc ingest --distances FILE")
    if spec.metric == "dtw":
        values, offsets = prepare((values, offsets), spec, "series", first)
        few = min(int(offsets[1]), FEW_FRAMES)  # a long series against itself would take longer than the check is worth
        one = values[:few], np.array([0, few])
        pairwise_distances(one, one, replace(spec, normalise=None))  # what an engine cannot do, it says here
        return
    lengths = np.diff(offsets)
    odd = np.flatnonzero(lengths != length)
    if len(odd):
        raise InputError(
            f"metric={spec.metric!r} needs series of one length, but series {first + odd[0]} has {lengths[odd[0]]} "
            f"frames and series 0 has {length}; use metric='dtw'"
        )
    if spec.metric in ("chi2", "chi") and (values < 0).any():
        row, dim = (int(k) for k in np.argwhere(values < 0)[0])
        i = int(np.searchsorted(offsets, row, side="right")) - 1
        raise InputError(
            f"series {first + i} has {values[row, dim]:g} in dimension {_named(spec, dim)}; chi-square needs bins >= 0"
        )


def check_not_overflowing(series: Ragged, spec: DistanceSpec, first: int = 0) -> None:
    """Raise an InputError for a series whose distances would be infinite; ``first`` is the number of the first one."""
    if spec.metric in ("dtw", "euclidean") and spec.normalise is None:
        check_largest(pick_dims(series, spec), spec, first)


def check_not_vanishing(largest: float, spec: DistanceSpec) -> None:
    """Raise an InputError where all series are so small that squares of their values are 0, and so are distances.

    Parameters
    ----------
    largest
        The largest absolute value of all series.
    """
    squares = spec.metric == "euclidean" or (spec.metric == "dtw" and spec.cost == "squared" and not spec.normalise)
    least = 1e5 * math.sqrt(float(np.finfo(spec.dtype).tiny))
    if squares and 0 < largest < least:
        wider = " or use dtype='float64'" if spec.dtype == "float32" and largest > 1e-140 else ""
        raise InputError(
            f"all series have values of at most {largest:.3g}: too small to be squared; rescale all series, in "
            f"training and later, by one factor{wider}"
        )


def _named(spec: DistanceSpec, dim: int) -> int:
    """Return what a dimension among the chosen ones is called in the series."""
    return dim if spec.dims is None else spec.dims[dim]


def pairwise_metric(a: Ragged, b: Ragged | None, spec: DistanceSpec, n_jobs: int | None = None) -> NDArray[Any]:
    """Return the matrix of distances of two ragged sets by the metric of the settings; b None: of a with itself.

    Examples
    --------
    >>> import numpy as np
    >>> from cksc_dist.series import ragged
    >>> points = ragged([np.array([[0.0, 0.0]]), np.array([[3.0, 4.0]])])
    >>> pairwise_metric(points, None, DistanceSpec(metric="euclidean")).tolist()
    [[0.0, 5.0], [5.0, 0.0]]
    """
    a, b = pick_dims(a, spec), None if b is None else pick_dims(b, spec)
    if spec.metric == "dtw":
        return pairwise_distances(a, b, spec, n_jobs)
    rows = _vectors(a)
    columns = None if b is None else _vectors(b)
    if spec.metric in ("chi2", "chi"):
        squares = chi_square(rows, columns)
        return (squares if spec.metric == "chi2" else np.sqrt(squares)).astype(spec.dtype, copy=False)
    there = np.ascontiguousarray((rows if columns is None else columns).T)
    out = np.empty((len(rows), there.shape[1]))
    run_blocks(lambda i, j: _euclidean(rows[i:j], there, out[i:j]), len(rows), ROWS_A_CALL, n_jobs)
    return out.astype(spec.dtype, copy=False)


def _vectors(series: Ragged) -> NDArray[np.float64]:
    return series[0].reshape(len(series[1]) - 1, -1)


@njit(nogil=True, cache=True, error_model="numpy")
def _euclidean(a, b_columns, out):
    # the innermost loop runs over pairs: it fills vector registers while each pair sums in order
    for i in range(a.shape[0]):
        out[i] = 0.0
        for k in range(a.shape[1]):
            for j in range(b_columns.shape[1]):
                out[i, j] += (a[i, k] - b_columns[k, j]) ** 2
        for j in range(b_columns.shape[1]):
            out[i, j] = np.sqrt(out[i, j])
