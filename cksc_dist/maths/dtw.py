"""Exact dynamic time warping (DTW) distances between all pairs of multivariate series.

    V[i, j] = c(a_i, b_j) + min(V[i-1, j-1], V[i-1, j], V[i, j-1])        path sum = V[len a - 1, len b - 1]

    dependent      one warping for all dimensions, c = sum_q (a_iq - b_jq)^2;   D = sqrt(path sum)
    independent    one warping for each dimension q;                           D = sqrt(sum_q path sum_q)
    cost "abs"     c = sum_q |a_iq - b_jq|;                                    D = path sum (no root)
    window w       only cells with  -(max(0, len a - len b) + w) < j - i < max(0, len b - len a) + w
    normalise "z"  every dimension of every series to mean 0 and deviation 1 first
    per_length     path sum / (len a + len b), before the root

Engines share one signature and are chosen by name; all give the same values to rounding.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.series import Ragged, ragged
from cksc_dist.spec import DistanceSpec

MOST_TERMS = 1e8
"""Frames times dimensions that a sum of squares is sure to have room for."""

__all__ = ["pairwise_distances", "pairwise_dtw", "prepare"]

_DEFAULT = DistanceSpec()

_ENGINE_HOME = {
    "simd": "cksc_dist.maths.dtw_simd",
    "dtaidistance": "cksc_dist.maths.dtw_dtai",
    "naive": "cksc_dist.maths.dtw_naive",
}


def pairwise_dtw(
    A: Any,
    B: Any = None,
    *,
    mode: str = _DEFAULT.mode,
    window: int | float | None = _DEFAULT.window,
    engine: str = _DEFAULT.engine,
    dtype: str = _DEFAULT.dtype,
    n_jobs: int | None = None,
    cost: str = _DEFAULT.cost,
    normalise: str | None = _DEFAULT.normalise,
    per_length: bool = _DEFAULT.per_length,
) -> NDArray[Any]:
    """Return the matrix of exact DTW distances between two sets of series.

    Parameters
    ----------
    A, B
        Sets of series: a `SeriesSet`, a list of (time, dims) arrays of any lengths, or an array
        (n, time, dims). B None: A against itself, symmetric, at half the work.
    mode
        ``"dependent"``: one warping for all dimensions. ``"independent"``: one for each dimension, values
        combined as the root of the sum of squares.
    window
        Sakoe-Chiba band. None: none. A whole number: frames, as dtaidistance counts them (1 = the diagonal,
        widened by the difference of lengths). A float in (0, 1]: a fraction of the longer series.
    engine
        ``"simd"``, ``"dtaidistance"``, ``"naive"`` (slow and obvious, for tests), or ``"auto"``.
    dtype
        ``"float64"`` or ``"float32"``: arithmetic and result.
    n_jobs
        Threads; None means 1, -1 all cores. The values do not depend on it.
    cost
        ``"squared"``: squared Euclidean distance of frames, root of the path sum. ``"abs"``: sum of absolute
        differences, no root.
    normalise
        ``"z"``: every dimension of every series is brought to mean 0 and deviation 1 first.
    per_length
        Divide the path sum by the sum of both lengths (before the root).

    Returns
    -------
    ndarray of shape (len(A), len(B))

    Examples
    --------
    >>> import numpy as np
    >>> a, b = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [2.0]])
    >>> pairwise_dtw([a, b])
    array([[0., 1.],
           [1., 0.]])
    """
    spec = DistanceSpec(
        mode=mode,  # type: ignore[arg-type]
        window=window,
        cost=cost,  # type: ignore[arg-type]
        normalise=normalise,  # type: ignore[arg-type]
        per_length=per_length,
        engine=engine,
        dtype=dtype,
    )
    a = ragged(A, name="A")
    b = None if B is None else ragged(B, name="B")
    return pairwise_distances(a, b, spec, n_jobs)


def pairwise_distances(
    a: Ragged,
    b: Ragged | None,
    spec: DistanceSpec,
    n_jobs: int | None = None,
    names: tuple[str, str] = ("A", "B"),
) -> NDArray[Any]:
    """Return the matrix of distances of checked ragged sets; b None: of a with itself.

    ``names`` is what the sets are called in an error.
    """
    dims = a[0].shape[1]
    if b is not None and b[0].shape[1] != dims:
        raise InputError(
            f"{names[0]} has {dims} dims but {names[1]} has {b[0].shape[1]}; both sets must have the same dims"
        )
    engine = import_module(_ENGINE_HOME[spec.resolved().engine])
    a = prepare(a, spec, names[0])
    b = None if b is None else prepare(b, spec, names[1])
    distances: NDArray[Any] = engine.pairwise(a, b, spec, n_jobs)
    return distances


def prepare(series: Ragged, spec: DistanceSpec, name: str, first: int = 0) -> Ragged:
    """Return the series as they are compared, or say which cannot be; ``first`` is the number of the first one."""
    values, offsets = series
    if spec.normalise == "z":
        scaled = np.empty_like(values)
        i, q = _z_normalise(values, offsets, scaled)
        if i >= 0:
            dim = q if spec.dims is None else spec.dims[q]
            raise InputError(
                f"{name}[{first + i}], dim {dim} has zero variance and cannot be z-normalised; remove that dimension "
                "(SeriesSet.select_dims) or the series, or use normalise=None"
            )
        values = scaled
    if spec.dtype == "float32" and not np.abs(values).max() <= np.finfo(np.float32).max:
        i, _ = _largest((values, offsets))
        raise InputError(f"{name}[{first + i}] has a value beyond float32; use dtype='float64'")
    return values, offsets


def check_largest(series: Ragged, spec: DistanceSpec, first: int = 0) -> None:
    """Raise an InputError for the series with the largest value, where sums of such end numbers.

    A sum of many terms must be a number as well, so there is room for `MOST_TERMS` of them.
    """
    most = float(np.finfo(spec.dtype).max) / MOST_TERMS
    most = most / 2 if spec.cost == "abs" else math.sqrt(most) / 2
    if max(float(series[0].max()), -float(series[0].min())) <= most:
        return
    i, largest = _largest(series)
    wider = " or use dtype='float64'" if spec.dtype == "float32" else ""
    what = "added up" if spec.cost == "abs" else "squared"
    raise InputError(
        f"series[{first + i}] has values of up to {largest:.3g}: too large to be {what}; rescale all series, in "
        f"training and later, by one factor{wider}"
    )


def _largest(series: Ragged) -> tuple[int, float]:
    """Return which series has the largest absolute value, and that."""
    largest = np.abs(series[0]).max(axis=1)
    row = int(np.argmax(largest))
    return int(np.searchsorted(series[1], row, side="right")) - 1, float(largest[row])


@numba.njit(nogil=True, cache=True, error_model="numpy")
def _z_normalise(values, offsets, out):
    """Scale each dimension of each series; return the first (series, dim) without variance, else (-1, -1).

    Sums run frame by frame, so the bits of a series do not depend on the set it comes in.
    """
    for i in range(len(offsets) - 1):
        begin, end = offsets[i], offsets[i + 1]
        for q in range(values.shape[1]):
            constant = True
            largest = 0.0
            for t in range(begin, end):
                constant &= values[t, q] == values[begin, q]
                largest = max(largest, abs(values[t, q]))
            if constant:
                return i, q
            # brought to about 1 by a power of two, which changes no digit: squares neither overflow nor vanish
            exponent = math.frexp(largest)[1]
            total = 0.0
            for t in range(begin, end):
                out[t, q] = math.ldexp(values[t, q], -exponent)
                total += out[t, q]
            mean = total / (end - begin)
            squares = 0.0
            for t in range(begin, end):
                squares += (out[t, q] - mean) ** 2
            deviation = np.sqrt(squares / (end - begin))
            for t in range(begin, end):
                out[t, q] = (out[t, q] - mean) / deviation
    return -1, -1
