"""NQP, non-negative quadratic pursuit: sparse codes and sparse atoms from one greedy solver.

    minimise  f(x) = 1/2 x' H x + c' x   subject to  x >= 0,  at most T entries of x non-zero

with H positive semi-definite. S is the support, g = H x + c the gradient.

1. S = {}, x = 0, g = c.
2. Of the candidates j outside S with ``g_j < -tol max|c|`` pick the one of least ``g_j / sqrt(H_jj)``
   (selection "scaled") or of least ``g_j`` ("plain"); of equals the lowest index. Stop if none, or |S| = T.
3. Grow the factor of H_SS by j. A pivot below ``1e-10 H_jj`` means that j depends on S: ban j, back to 2.
4. Solve on S. While an entry is <= 0: step from the last feasible point to the first zero crossing, drop what
   hits zero, solve again (the inner loop of Lawson and Hanson's NNLS). If j itself is dropped: undo, ban j,
   back to 2.
5. Accept only if f fell; otherwise undo and stop. Renew g, back to 2.
6. With ``reach`` > T: the support was let grow to `reach` entries; drop the one that raises f least,
   ``x_s^2 / (2 (H_SS^-1)_ss)``, and solve again, until T are left. Where the first picks mislead, this finds its way
   back; it costs about (reach / T)^2 as much.
7. With ``prune`` > 0: drop the entries below ``prune max(x)`` once, and solve again on the rest as in 4.

All tolerances are relative: scaling H and c alike leaves x as it is, scaling c alone scales x.
With T = n the result is that of `scipy.optimize.nnls`. The steps are in `cksc_dist.maths.nqp_steps`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths import nqp_steps as steps
from cksc_dist.maths.sparse import sum_rows
from cksc_dist.maths.threads import run_blocks
from cksc_dist.spec import check_choice, check_count, check_number

__all__ = ["SparseSolutions", "nqp", "nqp_atoms", "nqp_codes", "nqp_images", "nqp_rows"]

Float = NDArray[np.float64]
Selection = Literal["scaled", "plain"]


class SparseSolutions(NamedTuple):
    """Solutions of several problems, one a row, in sparse form of fixed width.

    Parameters
    ----------
    indices
        (problems, T) positions of the non-zeros, ascending; -1 where unused.
    values
        (problems, T) the non-zeros; 0 where unused.
    counts
        (problems,) how many of each row are used.
    objective
        (problems,) 1/2 x'Hx + c'x.
    """

    indices: NDArray[np.int64]
    values: Float
    counts: NDArray[np.int64]
    objective: Float

    def dense(self, n: int) -> Float:
        """Return the solutions as an array (problems, n)."""
        x = np.zeros((len(self.counts), n))
        row, place = np.nonzero(self.indices >= 0)
        x[row, self.indices[row, place]] = self.values[row, place]
        return x


def nqp(
    H: ArrayLike,
    c: ArrayLike,
    T: int,
    *,
    selection: Selection = "scaled",
    prune: float = 0.0,
    tol: float = 1e-10,
) -> Float:
    """Solve one problem: minimise 1/2 x'Hx + c'x with x >= 0 and at most T non-zeros.

    Parameters
    ----------
    H
        (n, n) symmetric positive semi-definite. A candidate with ``H_jj <= 0`` is never picked.
    c
        (n,) linear term.
    T
        At most this many non-zeros.
    selection
        How the next entry is picked: ``"scaled"`` by the gradient over the root of the diagonal, ``"plain"``
        by the gradient.
    prune
        Drop entries below this share of the largest, then refit; 0: off.
    tol
        A candidate needs a gradient below ``-tol * max|c|``.

    Returns
    -------
    ndarray
        x, dense, (n,).

    Examples
    --------
    >>> import numpy as np
    >>> H = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0], [0.0, 0.0, 2.0]])
    >>> nqp(H, [-4.0, -2.0, -1.0], T=3)
    array([2. , 0. , 0.5])
    >>> nqp(H, [-4.0, -2.0, -1.0], T=1)
    array([2., 0., 0.])
    """
    linear = np.asarray(c, dtype=np.float64)
    if linear.ndim != 1:
        raise InputError(f"c has shape {linear.shape}; one problem takes a vector, nqp_codes takes many")
    check_count("T", T)
    width = min(T, max(len(linear), 1))
    solution = nqp_codes(H, linear[None, :], width, selection=selection, prune=prune, tol=tol)
    return solution.dense(len(linear)).reshape(-1)


def nqp_codes(
    H: ArrayLike,
    C: ArrayLike,
    T: int,
    *,
    selection: Selection = "scaled",
    prune: float = 0.0,
    tol: float = 1e-10,
    n_jobs: int | None = None,
    block: int = 64,
    reach: int | None = None,
) -> SparseSolutions:
    """Solve many problems with the same H, as the codes of many samples on one dictionary are.

    Parameters
    ----------
    H
        (k, k) symmetric positive semi-definite.
    C
        (problems, k), the linear term of one problem a row.
    T, selection, prune, tol
        As for `nqp`.
    n_jobs
        Threads: None is 1, -1 all cores.
    block
        Problems that a thread takes at a time. Neither this nor `n_jobs` changes a bit of the result.
    reach
        Let the support grow to this many entries before it is cut back to T; None: T.

    Examples
    --------
    >>> solutions = nqp_codes([[2.0, 0.0], [0.0, 2.0]], [[-2.0, 1.0], [-1.0, -4.0]], T=2)
    >>> solutions.indices.tolist(), solutions.values.tolist()
    ([[0, -1], [0, 1]], [[1.0, 0.0], [0.5, 2.0]])
    >>> solutions.objective.tolist()
    [-1.0, -4.25]
    """
    quadratic = np.ascontiguousarray(H, dtype=np.float64)
    _check_square(quadratic, "H")
    if not np.isfinite(quadratic).all():
        row, column = (int(v) for v in np.argwhere(~np.isfinite(quadratic))[0])
        raise InputError(f"H[{row}, {column}] is {quadratic[row, column]}; H must be finite")
    _check_symmetric(quadratic)
    if reach is not None:
        check_count("reach", reach, low=T)
    return _solve_blocks(quadratic, 1.0, 0.0, C, T, selection, prune, tol, n_jobs, block, reach or T)


def nqp_atoms(
    K: NDArray[np.float64] | NDArray[np.float32],
    beta: float,
    C: ArrayLike,
    T: int,
    *,
    selection: Selection = "scaled",
    prune: float = 0.0,
    tol: float = 1e-10,
    n_jobs: int | None = None,
    block: int = 4,
) -> SparseSolutions:
    """Solve many problems with H = 2 (K + beta I), as the atoms of a dictionary on N samples are.

    K is read in place, neither copied nor scaled. Its values are not looked at beforehand: see to it that
    they are finite and that K is symmetric.

    Parameters
    ----------
    K
        (N, N) symmetric Gram matrix, C-contiguous, float64 or float32 (sums are float64 all the same).
    beta
        Ridge, >= 0, that makes K + beta I positive semi-definite.
    C
        (problems, N), the linear term of one problem a row.
    T, selection, prune, tol
        As for `nqp`.
    n_jobs, block
        As for `nqp_codes`.

    Examples
    --------
    >>> import numpy as np
    >>> solutions = nqp_atoms(np.eye(3), 1.0, [[-4.0, 1.0, -8.0]], T=2)
    >>> solutions.indices.tolist(), solutions.values.tolist()
    ([[0, 2]], [[1.0, 2.0]])
    """
    if not isinstance(K, np.ndarray) or K.dtype not in (np.float64, np.float32) or not K.flags.c_contiguous:
        kind = f"{K.dtype}, strides {K.strides}" if isinstance(K, np.ndarray) else type(K).__name__
        raise InputError(
            f"K must be a C-contiguous array of float64 or float32, because it is read in place; got {kind}; "
            "pass np.ascontiguousarray(K, dtype=np.float64)"
        )
    _check_square(K, "K")
    check_number("beta", beta, 0.0, np.inf)
    return _solve_blocks(K, 2.0, 2.0 * float(beta), C, T, selection, prune, tol, n_jobs, block, T)


def nqp_rows(
    fetch_row: Callable[[int], NDArray[np.float64] | NDArray[np.float32]],
    diagonal: ArrayLike,
    beta: float,
    c: ArrayLike,
    T: int,
    *,
    selection: Selection = "scaled",
    prune: float = 0.0,
    tol: float = 1e-10,
) -> SparseSolutions:
    """Solve one problem with H = 2 (K + beta I) whose K is out of reach: rows are fetched as they are needed.

    A row is fetched when its candidate is picked: about T of them in all. The result has the same bits as
    that of `nqp_atoms` on the whole K.

    Parameters
    ----------
    fetch_row
        ``fetch_row(j)`` returns row j of K, (N,).
    diagonal
        (N,) diagonal of K.
    beta, T, selection, prune, tol
        As for `nqp_atoms`.
    c
        (N,) linear term.

    Returns
    -------
    SparseSolutions
        Of one problem.

    Examples
    --------
    >>> import numpy as np
    >>> K = np.eye(3)
    >>> solution = nqp_rows(lambda j: K[j], np.ones(3), 1.0, [-4.0, 1.0, -8.0], T=2)
    >>> solution.indices.tolist(), solution.values.tolist()
    ([[0, 2]], [[1.0, 2.0]])
    """
    linear = np.asarray(c, dtype=np.float64)[None]
    return nqp_images(fetch_row, diagonal, beta, linear, T, selection=selection, prune=prune, tol=tol)[0]


def nqp_images(
    fetch_row: Callable[[int], NDArray[np.float64] | NDArray[np.float32]],
    diagonal: ArrayLike,
    beta: float,
    C: ArrayLike,
    T: int,
    *,
    selection: Selection = "scaled",
    prune: float = 0.0,
    tol: float = 1e-10,
) -> tuple[SparseSolutions, Float]:
    """Solve several problems as `nqp_rows` does, and return K x of each as well, from the rows that were fetched.

    Examples
    --------
    >>> import numpy as np
    >>> K = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> solutions, images = nqp_images(lambda j: K[j], np.ones(2), 0.0, [[-2.0, -1.0], [1.0, -2.0]], T=1)
    >>> solutions.values.tolist(), images.tolist()
    ([[1.0], [1.0]], [[1.0, 0.5], [0.5, 1.0]])
    """
    check_number("beta", beta, 0.0, np.inf)
    _check_settings(T, selection, prune, tol)
    gram_diagonal = np.asarray(diagonal, dtype=np.float64)
    if gram_diagonal.ndim != 1 or not len(gram_diagonal):
        raise InputError(f"diagonal has shape {gram_diagonal.shape}; it must be (N,), the diagonal of K")
    n = len(gram_diagonal)
    linear = _linear_terms(np.asarray(C, dtype=np.float64), n)
    scale, ridge, width = 2.0, 2.0 * float(beta), min(int(T), n)
    base_weights = _selection_weights(scale * gram_diagonal + ridge, selection)
    state = steps.new_pursuit(n, width)
    marks, vectors, _, wide = state
    solutions, images = _no_solutions(len(linear), int(T)), np.zeros(linear.shape)
    fetched: NDArray[Any] = np.empty((width, n))
    for problem, term in enumerate(linear):
        marks[steps.SLOT] = np.arange(width)
        j, floor = steps.start(vectors, wide, term, base_weights, float(tol))
        size, objective = 0, 0.0
        while j >= 0:
            row = _checked_row(fetch_row(j), j, n)
            if row.dtype != fetched.dtype:  # of the first row: all others are like it
                fetched = np.empty((width, n), row.dtype)
            fetched[marks[steps.SLOT, size]] = row
            j, size, objective = steps.take_row(
                *state, size, objective, base_weights, term, fetched, j, scale, ridge, floor
            )
        size, objective = steps.prune_entries(*state, size, objective, base_weights, float(prune))
        steps.write_entries(marks, vectors, size, solutions.indices[problem], solutions.values[problem])
        solutions.counts[problem], solutions.objective[problem] = size, objective
        # K x = sum_s x_s K[s], ascending
        places = marks[steps.SLOT, :size][np.argsort(marks[steps.SUPPORT, :size])]
        image = images[problem : problem + 1]
        sum_rows(fetched, np.array([0, size]), places, solutions.values[problem, :size], 0, 1, image)
    return solutions, images


def _solve_blocks(
    rows: NDArray[np.float64] | NDArray[np.float32],
    scale: float,
    ridge: float,
    C: ArrayLike,
    T: int,
    selection: Selection,
    prune: float,
    tol: float,
    n_jobs: int | None,
    block: int,
    reach: int,
) -> SparseSolutions:
    """Solve the problems of C with H = scale * rows + ridge * I, a block of them at a time."""
    _check_settings(T, selection, prune, tol)
    n = len(rows)
    linear = _linear_terms(np.asarray(C, dtype=np.float64), n)
    base_weights = _selection_weights(scale * np.diagonal(rows).astype(np.float64) + ridge, selection)
    solutions = _no_solutions(len(linear), int(T))

    def solve(start: int, stop: int) -> None:
        part = slice(start, stop)
        steps.solve_block(
            *steps.new_pursuit(n, min(int(reach), n)),
            rows,
            scale,
            ridge,
            base_weights,
            linear[part],
            int(T),
            float(prune),
            float(tol),
            solutions.indices[part],
            solutions.values[part],
            solutions.counts[part],
            solutions.objective[part],
        )

    run_blocks(solve, len(linear), block, n_jobs)
    return solutions


def _no_solutions(problems: int, T: int) -> SparseSolutions:
    return SparseSolutions(
        np.full((problems, T), -1, dtype=np.int64),
        np.zeros((problems, T)),
        np.zeros(problems, dtype=np.int64),
        np.zeros(problems),
    )


def _selection_weights(diagonal: Float, selection: Selection) -> Float:
    """Return 1 / sqrt(H_jj) up to a common factor, or 1; 0 for what is never to be picked."""
    if not np.isfinite(diagonal).all():
        j = int(np.flatnonzero(~np.isfinite(diagonal))[0])
        raise InputError(f"entry {j} of the diagonal is {diagonal[j]}; it must be finite")
    # relative to a power of two, so that scaling H by one leaves every bit of the weights as it is
    _, exponent = np.frexp(diagonal.max())
    relative = np.ldexp(diagonal, -exponent)
    usable = relative >= np.finfo(np.float64).tiny  # below it, a quotient by H_jj has no correct digits
    weights = np.zeros(len(diagonal))
    weights[usable] = 1.0 if selection == "plain" else 1.0 / np.sqrt(relative[usable])
    return weights


def _check_settings(T: int, selection: Any, prune: float, tol: float) -> None:
    check_count("T", T)
    check_choice("selection", selection, ("scaled", "plain"))
    check_number("prune", prune, 0.0, 1.0)
    check_number("tol", tol, 0.0, 1.0)


def _check_square(matrix: NDArray[Any], name: str) -> None:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise InputError(f"{name} has shape {matrix.shape}; it must be square with at least one row")


def _check_symmetric(H: Float) -> None:
    if np.array_equal(H, H.T):  # the usual case, at a tenth of the cost of what follows
        return
    gap = np.abs(H - H.T)
    if gap.max() > 1e-8 * np.abs(H).max():
        row, column = (int(v) for v in np.unravel_index(np.argmax(gap), gap.shape))
        raise InputError(
            f"H is not symmetric: H[{row}, {column}] = {H[row, column]:g}, H[{column}, {row}] = "
            f"{H[column, row]:g}; pass (H + H.T) / 2"
        )


def _linear_terms(C: Float, n: int) -> Float:
    if C.ndim != 2 or C.shape[1] != n:
        raise InputError(
            f"the linear terms have shape {C.shape}; with {n} candidates they must be (problems, {n}), "
            "one problem a row"
        )
    finite = np.isfinite(C)
    if not finite.all():
        problem, j = (int(v) for v in np.argwhere(~finite)[0])
        raise InputError(f"the linear term of problem {problem} has {C[problem, j]} at {j}; it must be finite")
    # a read-only array is another type to the compiled steps, which would be compiled once more for it
    return np.require(C, requirements=["C", "W"])


def _checked_row(row: Any, j: int, n: int) -> NDArray[Any]:
    values = np.asarray(row)
    if values.shape != (n,) or not np.isfinite(values).all():
        raise InputError(f"fetch_row({j}) must return {n} finite values, row {j} of K; got shape {values.shape}")
    return values
