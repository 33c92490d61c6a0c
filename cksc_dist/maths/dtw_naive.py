"""The engine ``naive``: the recurrence of `cksc_dist.maths.dtw` written down as it stands.

It is slow and obvious, and stands there to check the others.
"""

from __future__ import annotations

import math
from itertools import pairwise as pairs
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.series import Ragged
from cksc_dist.spec import DistanceSpec

__all__ = ["pairwise", "window_frames"]


def window_frames(window: int | float | None, a_length: int, b_length: int) -> int | None:
    """Return the window of a pair in frames; a fraction is of the longer series and rounded up."""
    if isinstance(window, float):
        # 0.1 * 30 is a little above 3 in floating point and must not become 4
        return max(1, math.ceil(window * max(a_length, b_length) - 1e-9))
    return window


def _path_sum(cost: NDArray[Any], window: int | None) -> Any:
    n, m = cost.shape
    V = np.full((n + 1, m + 1), np.inf, dtype=cost.dtype)
    V[0, 0] = 0
    for i in range(n):
        for j in range(m):
            if window is not None and not (-(max(0, n - m) + window) < j - i < max(0, m - n) + window):
                continue
            V[i + 1, j + 1] = cost[i, j] + min(V[i, j], V[i, j + 1], V[i + 1, j])
    return V[n, m]


def _distance(a: NDArray[Any], b: NDArray[Any], spec: DistanceSpec) -> Any:
    window = window_frames(spec.window, len(a), len(b))
    difference = a[:, None, :] - b[None, :, :]
    costs = difference**2 if spec.cost == "squared" else np.abs(difference)
    if spec.mode == "dependent":
        total = _path_sum(costs.sum(axis=2), window)
    else:
        total = sum(_path_sum(costs[:, :, q], window) for q in range(a.shape[1]))
    if spec.per_length:
        total = total / (len(a) + len(b))
    return np.sqrt(total) if spec.cost == "squared" else total


def pairwise(a: Ragged, b: Ragged | None, spec: DistanceSpec, n_jobs: int | None) -> NDArray[Any]:
    """Return the matrix of distances of ragged sets, pair by pair in one thread, whatever ``n_jobs`` is."""
    resolve_n_jobs(n_jobs)
    rows = _split(a, spec.dtype)
    columns = rows if b is None else _split(b, spec.dtype)
    out = np.zeros((len(rows), len(columns)), dtype=spec.dtype)
    for i, x in enumerate(rows):
        for j, y in enumerate(columns):
            if b is not None or i != j:
                with np.errstate(over="ignore"):  # infinity, as the other engines have it
                    out[i, j] = _distance(x, y, spec)
    return out


def _split(series: Ragged, dtype: str) -> list[NDArray[Any]]:
    values, offsets = series
    return [values[i:j].astype(dtype) for i, j in pairs(offsets)]
