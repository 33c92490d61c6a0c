"""Slow, obvious twins of OMP, K-SVD, K-KSVD and LP-KSVD: samples and atoms are vectors, residuals are written out.

Samples are the columns of X (d, n), atoms those of D (d, k), codes those of G (k, n). Nothing here is taken from the
package.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Index = NDArray[np.int64]


class Trained(NamedTuple):
    """What `ksvd` returns: U (n, k), D = X U, codes (k, n), J after every half step."""

    U: Float
    D: Float
    G: Float
    history: list[float]


class Stacked(NamedTuple):
    """What `lpksvd` returns: D of norm 1, W (C, k), codes on them, J, where passes begin."""

    D: Float
    W: Float
    G: Float
    history: list[float]
    passes: list[int]


def omp(D: Float, x: Float, T: int, selection: str = "scaled", tol: float = 1e-10) -> Float:
    """Greedy: the atom of largest correlation with the rest, then least squares on all that were picked."""
    code, chosen, first = np.zeros(D.shape[1]), list[int](), 0.0
    for _ in range(min(T, D.shape[1])):
        correlation = np.abs(D.T @ (x - D @ code))
        if selection == "scaled":
            correlation /= np.linalg.norm(D, axis=0)
        correlation[chosen] = 0.0
        first = first or float(correlation.max())
        if correlation.max() <= tol * first:
            break
        chosen.append(int(correlation.argmax()))
        code[chosen] = np.linalg.lstsq(D[:, chosen], x, rcond=None)[0]
    return code


def objective(K: Float, U: Float, G: Float) -> float:
    """tr((I - U G)'K (I - U G))."""
    rest = np.eye(len(K)) - U @ G
    return float(np.trace(rest.T @ K @ rest))


def ksvd(X: Float, U: Float, T: int, alternations: int, G: Float | None = None) -> Trained:
    """K-SVD with the SVD of every residual matrix."""
    n, k = U.shape
    lengths = np.linalg.norm(X @ U, axis=0)
    U = U / lengths
    G = np.zeros((k, n)) if G is None else G * lengths[:, None]
    D, history = X @ U, list[float]()
    for turn in range(alternations + 1):
        for i, x in enumerate(X.T):
            new = omp(D, x, T)
            if ((x - D @ new) ** 2).sum() < ((x - D @ G[:, i]) ** 2).sum():
                G[:, i] = new
        errors = ((X - D @ G) ** 2).sum(axis=0)
        history.append(float(errors.sum()))
        if turn == alternations:
            break
        unused = np.flatnonzero(~G.any(axis=1))
        for j, i in zip(unused, np.argsort(-errors), strict=False):
            U[:, j] = np.eye(n)[:, i] / np.linalg.norm(X[:, i])
            D[:, j] = X[:, i] / np.linalg.norm(X[:, i])
        for j in range(k):
            users = np.flatnonzero(G[j])
            if not len(users):
                continue
            G[j] = 0.0
            rest = (np.eye(n) - U @ G)[:, users]
            left, sizes, right = np.linalg.svd((X - D @ G)[:, users])
            U[:, j], D[:, j] = rest @ right[0] / sizes[0], left[:, 0]
            G[j, users] = sizes[0] * right[0]
        history.append(float(((X - D @ G) ** 2).sum()))
    return Trained(U, D, G, history)


def residual(K_zz: float, k_z: Float, K: Float, U: Float, g: Float) -> float:
    """||Phi(z) - Phi(X) U g||^2, term by term."""
    return float(K_zz - 2 * k_z @ U @ g + g @ U.T @ K @ U @ g)


def nearest(K: Float, D: Float, p: int) -> Float:
    """Q (k, n): of each column of K at norm 1, the p atoms at norm 1 that it is nearest to, or to their negatives."""
    Q = np.zeros((D.shape[1], len(K)))
    for i, column in enumerate(K.T):
        here = column / np.linalg.norm(column)
        away = [min(np.linalg.norm(here - sign * d / np.linalg.norm(d)) for sign in (1, -1)) for d in D.T]
        Q[np.argsort(away)[:p], i] = 1.0
    return Q


def stack(K: Float, Q: Float, L: Float, a: float, b: float) -> Float:
    """The data (Y; sqrt(a) Q; sqrt(b) L)."""
    return np.vstack([K, np.sqrt(a) * Q, np.sqrt(b) * L])


def lpksvd(K: Float, L: Float, U: Float, T: int, p: int, a: float, b: float, alternations: int, outer: int) -> Stacked:
    """K-SVD on stacked data, again for every new Q."""
    G, history, passes = None, list[float](), list[int]()
    Q = nearest(K, K @ U, p)
    for _ in range(outer):
        passes.append(len(history))
        learnt = ksvd(stack(K, Q, L, a, b), U, T, alternations, G)
        U, G, old = learnt.U, learnt.G, Q
        history += learnt.history
        Q = nearest(K, K @ U, p)
        if np.array_equal(Q, old):
            break
    assert G is not None
    lengths = np.linalg.norm(K @ U, axis=0)
    return Stacked(K @ U / lengths, L @ U / lengths, G * lengths[:, None], history, passes)
