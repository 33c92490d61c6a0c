"""The engine ``dtaidistance``: an adapter that hides the traps of that library's C functions.

- Its values are roots of path sums (squared cost); with ``inner_dist="euclidean"`` in one dimension they are the
  plain path sums of absolute differences. Several dimensions with ``abs`` do not exist there.
- It computes in float64 only; for float32 the result is rounded.
- It holds Python's lock during a whole call, so the matrix is computed in bands of rows that take a second or so.
- A block needs ``False`` as its third part, or everything below the diagonal is empty; it needs ``compact``, or the
  library allocates the full square.
- Its one-dimensional function for a single pair gives inf for about one pair in twenty of short series; its matrix
  functions, and the function for several dimensions, are right.
- Builds of its C part have been seen that return zeros: a tiny known matrix is computed before the first use.
"""

from __future__ import annotations

import threading
from functools import cache
from itertools import pairwise as pairs
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from cksc_dist.errors import EngineError
from cksc_dist.maths.dtw_naive import window_frames
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.series import Ragged
from cksc_dist.spec import DistanceSpec

__all__ = ["pairwise"]

CELLS_A_CALL = 2e8

_OPENMP = threading.Lock()


@cache
def _library() -> tuple[Any, Any]:
    try:
        from dtaidistance import dtw, dtw_ndim
    except ImportError as error:
        raise EngineError("engine='dtaidistance' needs the package dtaidistance; install it or use 'simd'") from error
    if dtw.dtw_cc is None:
        raise EngineError("dtaidistance is installed without its C library; reinstall it or use engine='simd'")
    known = dtw_ndim.distance_matrix_fast([np.array([[0.0, 0.0], [3.0, 4.0]]), np.zeros((1, 2))], parallel=False)[0, 1]
    if known != 5.0:
        raise EngineError(f"dtaidistance gives {known} for a distance of 5: its C library is broken; use engine='simd'")
    return dtw, dtw_ndim


@cache
def _openmp() -> ThreadpoolController:
    """Return what sets the number of threads; looking for it takes longer than a distance."""
    _library()  # is loaded, and with it what it runs on
    return ThreadpoolController().select(user_api="openmp")


def pairwise(a: Ragged, b: Ragged | None, spec: DistanceSpec, n_jobs: int | None) -> NDArray[Any]:
    """Return the matrix of distances of ragged sets; b None: of a with itself."""
    dims = a[0].shape[1]
    if spec.cost == "abs" and spec.mode == "dependent" and dims > 1:
        raise EngineError(
            "engine='dtaidistance' has no cost='abs' for several dimensions; use engine='simd' or mode='independent'"
        )
    _library()
    if spec.mode == "dependent":
        out = _matrix(a, b, spec, n_jobs)
    else:
        # path sums of the dimensions add up
        out = np.zeros((len(a[1]) - 1, len((a if b is None else b)[1]) - 1))
        for q in range(dims):
            one = _matrix(_dimension(a, q), None if b is None else _dimension(b, q), spec, n_jobs)
            out += one**2 if spec.cost == "squared" else one
        if spec.cost == "squared":
            np.sqrt(out, out=out)
    if spec.per_length:
        lengths = np.add.outer(np.diff(a[1]), np.diff((a if b is None else b)[1]))
        out /= np.sqrt(lengths) if spec.cost == "squared" else lengths
    return out.astype(spec.dtype, copy=False)


def _dimension(series: Ragged, q: int) -> Ragged:
    return np.ascontiguousarray(series[0][:, q : q + 1]), series[1]


def _split(series: Ragged, flat: bool) -> list[NDArray[np.float64]]:
    values, offsets = series
    values = np.ascontiguousarray(values[:, 0] if flat else values)
    return [values[i:j] for i, j in pairs(offsets)]


def _matrix(a: Ragged, b: Ragged | None, spec: DistanceSpec, n_jobs: int | None) -> NDArray[np.float64]:
    dtw, dtw_ndim = _library()
    lengths = np.concatenate([np.diff(a[1]), np.diff((a if b is None else b)[1])])
    flat = a[0].shape[1] == 1
    rows = _split(a, flat)
    columns = rows if b is None else _split(b, flat)
    module = dtw if flat else dtw_ndim
    options = {"inner_dist": "euclidean"} if spec.cost == "abs" else {}
    out = np.zeros((len(rows), len(columns)))
    if isinstance(spec.window, float) and lengths.min() != lengths.max():
        # a fraction is another number of frames for each pair, which the matrix function cannot express
        for i, x in enumerate(rows):
            for j in range(i + 1 if b is None else 0, len(columns)):
                frames = window_frames(spec.window, len(x), len(columns[j]))
                pair = (x.reshape(len(x), -1), columns[j].reshape(len(columns[j]), -1))
                out[i, j] = dtw_ndim.distance_fast(*pair, window=frames, **options)
        return out + out.T if b is None else out
    window = window_frames(spec.window, int(lengths[0]), int(lengths[0]))
    series = rows if b is None else rows + columns
    jobs = resolve_n_jobs(n_jobs)
    for begin, end in _bands(rows, columns):
        low = begin + 1 if b is None else len(rows)
        if low >= len(series):
            break
        band = _call(module, series, ((begin, end), (low, len(series)), False), window, jobs, options)
        out[begin:end, low - (0 if b is None else len(rows)) :] = band
    if b is None:
        upper = np.triu(out, 1)
        return upper + upper.T
    return out


def _bands(rows: list[NDArray[Any]], columns: list[NDArray[Any]]) -> list[tuple[int, int]]:
    """Return bands of rows whose calls take about a second each."""
    frames = sum(len(x) * (x.shape[1] if x.ndim == 2 else 1) for x in columns)
    cells = np.cumsum([len(x) * frames for x in rows])
    inner = np.searchsorted(cells, np.arange(CELLS_A_CALL, cells[-1], CELLS_A_CALL))
    cuts = np.unique(np.concatenate([[0], inner, [len(rows)]]))
    return [(int(i), int(j)) for i, j in pairs(cuts)]


def _call(
    module: Any, series: list[NDArray[Any]], block: Any, window: int | None, jobs: int, options: dict[str, str]
) -> NDArray[np.float64]:
    (r0, r1), (c0, c1), _ = block
    # the number of OpenMP threads belongs to the process; the call holds Python's lock anyway
    with _OPENMP, _openmp().limit(limits=jobs):
        flat = module.distance_matrix_fast(
            series, block=block, compact=True, parallel=jobs > 1, window=window, **options
        )
    return np.asarray(flat, dtype=np.float64).reshape(r1 - r0, c1 - c0)
