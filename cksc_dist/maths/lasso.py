"""Lasso on a Gram matrix, for many samples that share it.

    minimise  f(x) = 1/2 x' H x - b' x + s ||x||_1

with H positive semi-definite. Cyclic coordinate descent: with all other entries fixed, the best x_j is

    x_j = soft(b_j - (H x)_j + H_jj x_j, s) / H_jj,    soft(r, s) = sign(r) max(|r| - s, 0)

Every such step lowers f or leaves it, so codes that start from earlier ones are never worse than they. Sweeps go over
the entries that are not zero until these settle, then once over all, until nothing moves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.nqp_steps import compiled
from cksc_dist.maths.threads import run_blocks

__all__ = ["lasso_codes"]

Float = NDArray[np.float64]

BLOCK = 64
"""Samples that a thread takes at a time."""


@compiled
def _sweep(H: Float, b: Float, shrinkage: float, x: Float, image: Float, everywhere: bool) -> float:
    """Go over the entries of x once, those that are zero only if told; return the largest move, in units of b."""
    largest = 0.0
    for j in range(len(x)):
        old = x[j]
        if (old == 0.0 and not everywhere) or H[j, j] <= 0.0:
            continue
        rest = b[j] - image[j] + H[j, j] * old
        size = abs(rest) - shrinkage
        new = np.sign(rest) * size / H[j, j] if size > 0.0 else 0.0
        if new != old:
            move = new - old
            x[j] = new
            row = H[j]
            for i in range(len(x)):
                image[i] += move * row[i]
            largest = max(largest, abs(move) * H[j, j])
    return largest


@compiled
def _solve(
    H: Float, linear: Float, shrinkage: float, tol: float, max_sweeps: int, first: int, last: int, out: Float
) -> None:
    """Improve the rows first .. last of out."""
    for sample in range(first, last):
        b, x = linear[sample], out[sample]
        floor = tol * np.abs(b).max()
        image = np.zeros(len(x))
        for j in range(len(x)):
            if x[j] != 0.0:
                image += x[j] * H[j]
        sweeps, moved = 0, np.inf
        while moved > floor and sweeps < max_sweeps:
            moved = _sweep(H, b, shrinkage, x, image, True)
            sweeps += 1
            inner = moved
            while inner > floor and sweeps < max_sweeps:
                inner = _sweep(H, b, shrinkage, x, image, False)
                sweeps += 1


def lasso_codes(
    H: Float,
    linear: Float,
    shrinkage: float,
    start: Float | None = None,
    *,
    tol: float = 1e-7,
    max_sweeps: int = 1000,
    n_jobs: int | None = None,
) -> Float:
    """Return the lasso codes of many samples, (m, k), dense.

    Parameters
    ----------
    H
        (k, k) symmetric positive semi-definite. An entry with ``H_jj <= 0`` stays as it is.
    linear
        (m, k), b of one sample a row.
    shrinkage
        s, at least 0.
    start
        Codes to start from, (m, k); None: zeros. The result is at least as good.
    tol
        A sample is done once no entry moves by more than ``tol * max|b| / H_jj`` in a sweep.
    max_sweeps
        At most so many sweeps a sample.
    n_jobs
        Threads: None is 1, -1 all cores. The result does not depend on it.

    Examples
    --------
    >>> import numpy as np
    >>> lasso_codes(np.eye(3), np.array([[1.0, 0.2, -0.5]]), 0.3).round(6).tolist()
    [[0.7, 0.0, -0.2]]
    """
    quadratic = np.ascontiguousarray(H, dtype=np.float64)
    terms = np.ascontiguousarray(linear, dtype=np.float64)
    out = np.zeros(terms.shape) if start is None else np.array(start, dtype=np.float64, order="C")

    def block(first: int, last: int) -> None:
        _solve(quadratic, terms, float(shrinkage), float(tol), int(max_sweeps), first, last, out)

    run_blocks(block, len(out), BLOCK, n_jobs)
    return out
