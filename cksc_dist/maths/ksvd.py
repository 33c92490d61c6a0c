"""K-SVD on a Gram matrix: atoms that are combinations of the samples, and signed sparse codes.

    minimise  J = ||Y - Y U G||^2   subject to  ||g_i||_0 <= T0,  u_j'K u_j = 1,      K = Y'Y

U (n, k) is dense and signed, atom j is Y u_j. Two half steps alternate:

- codes: orthogonal matching pursuit on (U'K U, U'k_i) for each sample. It is greedy and may do worse than the old code
  under the new atoms: then the old one is kept, its values solved anew by the atoms' step.
- atoms, one after the other with the newest ones: with w = {i : g^j_i != 0} the users of atom j and
  E_R = (I - sum_{l != j} u_l g^l)[:, w], the best rank-1 fit of Y E_R: top eigenpair (s^2, v) of
  ``E_R'K E_R``, u_j = E_R v / s, g^j_w = s v'.

An atom without users becomes the worst represented sample, each a different one. J never rises.

Nothing of size n x n is made but K. With S_a the support of code a without atom j, x_a its values, KU = K U, A = U'K U:

    (E_R'K E_R)_ab = K_ab - KU[a, S_b] x_b - KU[b, S_a] x_a + x_a'A[S_a, S_b] x_b
    K u_j = (K[:, w] v - KU c) / s,     U'K u_j = (KU[w]'v - A c) / s,     c = sum_b v_b g_b without atom j

M. Aharon, M. Elad, A. Bruckstein, K-SVD, IEEE Trans. Signal Processing 2006; on a Gram matrix: H. Van Nguyen,
V. Patel, N. Nasrabadi, R. Chellappa, Design of non-linear kernel dictionaries for object recognition, IEEE TIP 2013.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.nqp_steps import compiled
from cksc_dist.maths.omp import explained, omp_codes
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.maths.threads import one_blas_thread

__all__ = ["Dictionary", "ksvd", "start_samples"]

Float = NDArray[np.float64]
Int = NDArray[np.int64]

NEGLIGIBLE = 1e-12
"""A residual below this share of the largest squared norm of a sample is rounding."""


class Dictionary(NamedTuple):
    """What K-SVD learns.

    Parameters
    ----------
    U
        (n, k) atoms, of norm 1.
    codes
        Codes of the samples.
    history
        J after every half step.
    n_iter
        Alternations.
    converged
        Whether J settled.
    """

    U: Float
    codes: SparseRows
    history: Float
    n_iter: int
    converged: bool


def start_samples(y: Int, n_classes: int, per_class: int, rng: np.random.Generator) -> Int:
    """Return different samples of every class that atoms can start from; a smaller class gives all it has."""
    members = [np.flatnonzero(y == c) for c in range(n_classes)]
    return np.concatenate([np.sort(rng.permutation(rows)[:per_class]) for rows in members])


@compiled
def _residual_gram(
    K: Float, KU: Float, A: Float, users: Int, j: int, indices: Int, values: Float, counts: Int, out: Float
) -> None:
    """Fill E_R'K E_R."""
    along = np.empty(len(A))
    for b in range(len(users)):
        i = users[b]
        # A x_b
        along[:] = 0.0
        for s in range(counts[i]):
            atom = indices[i, s]
            if atom != j:
                along += values[i, s] * A[atom]
        for a in range(b + 1):
            h = users[a]
            total = K[h, i]
            for s in range(counts[i]):
                if indices[i, s] != j:
                    total -= KU[h, indices[i, s]] * values[i, s]
            for s in range(counts[h]):
                atom = indices[h, s]
                if atom != j:
                    total -= (KU[i, atom] - along[atom]) * values[h, s]
            out[a, b] = out[b, a] = total


@compiled
def _renew_atom(
    K: Float, U: Float, KU: Float, A: Float, users: Int, j: int, v: Float, indices: Int, values: Float, counts: Int
) -> None:
    """Set u_j = E_R v over its norm, and what follows from it."""
    c = np.zeros(len(A))
    for a in range(len(users)):
        i = users[a]
        for s in range(counts[i]):
            if indices[i, s] != j:
                c[indices[i, s]] += v[a] * values[i, s]
    u, image, row = -np.dot(U, c), -np.dot(KU, c), -np.dot(A, c)
    for a in range(len(users)):
        u[users[a]] += v[a]
        image += v[a] * K[users[a]]
        row += v[a] * KU[users[a]]
    norm = np.sqrt(np.dot(u, image))
    U[:, j], KU[:, j] = u / norm, image / norm
    A[j, :], A[:, j] = row / norm, row / norm
    A[j, j] = 1.0


@compiled
def _sweep(
    K: Float,
    U: Float,
    KU: Float,
    A: Float,
    edges: Int,
    users_of: Int,
    indices: Int,
    values: Float,
    counts: Int,
    floor: float,
) -> None:
    """Renew all atoms that have users, and their codes, in place."""
    for j in range(len(A)):
        users = users_of[edges[j] : edges[j + 1]]
        if len(users) == 0:
            continue
        R = np.empty((len(users), len(users)))
        _residual_gram(K, KU, A, users, j, indices, values, counts, R)
        squares, vectors = np.linalg.eigh(R)
        top, v = squares[-1], vectors[:, -1].copy()
        fits = top > floor  # otherwise the others do without this atom, which stays as it is
        if fits:
            _renew_atom(K, U, KU, A, users, j, v, indices, values, counts)
        for a in range(len(users)):
            for s in range(counts[users[a]]):
                if indices[users[a], s] == j:
                    values[users[a], s] = np.sqrt(top) * v[a] if fits else 0.0


def _users(codes: SparseRows, n_atoms: int) -> tuple[Int, Int]:
    """Return the samples that use each atom, ascending, one list after the other, and where each begins."""
    # an entry that a sweep has set to 0 is no use: its atom must not count as used for it
    samples, places = np.nonzero(codes.values)
    atoms = codes.indices[samples, places]
    edges = np.concatenate([[0], np.cumsum(np.bincount(atoms, minlength=n_atoms))])
    return edges, samples[np.argsort(atoms, kind="stable")]


def _replace_unused(U: Float, KU: Float, K: Float, used: NDArray[np.bool_], errors: Float, floor: float) -> int:
    """Let atoms without users be the worst represented samples; return how many."""
    worst = np.argsort(-errors, kind="stable")
    worst = worst[errors[worst] > floor]
    unused = np.flatnonzero(~used)[: len(worst)]
    for j, i in zip(unused, worst, strict=False):
        length = np.sqrt(K[i, i])
        U[:, j] = 0.0
        U[i, j], KU[:, j] = 1.0 / length, K[i] / length
    return len(unused)


def _code(
    A: Float, KU: Float, old: SparseRows, diagonal: Float, T: int, n_jobs: int | None
) -> tuple[SparseRows, Float]:
    """Return the codes, each as it was where the new one is no better, and the squared residual of each sample."""
    new = omp_codes(A, KU, T, n_jobs=n_jobs)
    gain, before = explained(A, KU, new), explained(A, KU, old)
    better = gain > before
    for fresh, kept in zip(new, old, strict=True):
        fresh[~better] = kept[~better]
    return new, np.maximum(diagonal - np.maximum(gain, before), 0.0)


@one_blas_thread()
def ksvd(
    K: Float,
    U: Float,
    T: int,
    max_iter: int,
    tol: float,
    codes: SparseRows | None = None,
    n_jobs: int | None = None,
) -> Dictionary:
    """Learn dictionary and codes on a Gram matrix.

    Parameters
    ----------
    K
        (n, n) Gram matrix, symmetric, positive semi-definite.
    U
        (n, k) atoms to start from; they need not be of norm 1.
    T
        At most this many non-zeros in each code.
    max_iter, tol
        At most so many alternations; stop once J changes by less than ``tol``, relatively.
    codes
        Codes to start from, on the atoms as they are given; None: zeros.
    n_jobs
        Threads of the coding. The result does not depend on it.

    Examples
    --------
    >>> K = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> learnt = ksvd(K, np.eye(3)[:, [0, 2]], T=1, max_iter=5, tol=1e-4)
    >>> abs(learnt.U).round(3).tolist(), learnt.history.round(3).tolist()
    ([[0.513, 0.0], [0.513, 0.0], [0.0, 1.0]], [0.19, 0.1, 0.1, 0.1, 0.1])
    """
    n, k = U.shape
    diagonal = np.diagonal(K).copy()
    floor = NEGLIGIBLE * float(diagonal.max())
    least = 1e-9 * float(diagonal.sum())  # below it J is rounding
    lengths = np.sqrt(np.einsum("ij,ij->j", U, K @ U))
    U = U / lengths
    if codes is None:
        codes = SparseRows.empty(n, min(T, k))
    else:
        codes = codes._replace(values=codes.values * lengths[codes.indices])  # U G stays as it is
    history: list[float] = []
    before, n_iter, converged, settled = float(diagonal.sum()), 0, False, False
    while n_iter < max_iter and not converged:
        KU = K @ U
        A = U.T @ KU
        codes, errors = _code(A, KU, codes, diagonal, T, n_jobs)
        history.append(float(errors.sum()))
        edges, users = _users(codes, k)
        replaced = _replace_unused(U, KU, K, np.diff(edges) > 0, errors, floor)
        A = U.T @ KU
        _sweep(K, U, KU, A, edges, users, *codes, floor)
        now = float(np.maximum(diagonal - explained(A, KU, codes), 0.0).sum())
        history.append(now)
        n_iter += 1
        settled_before, settled = settled, abs(before - now) <= tol * max(before, least)
        # a new atom first has to be found by the codes
        converged = settled and (replaced == 0 or settled_before)
        before = now
    KU = K @ U
    codes, errors = _code(U.T @ KU, KU, codes, diagonal, T, n_jobs)
    history.append(float(errors.sum()))
    return Dictionary(U, codes, np.array(history), n_iter, converged)
