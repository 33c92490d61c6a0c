"""Slow, obvious twin of JKSRC: least squares on the support, FISTA, and sums that are written out.

K is (M, n, n), rows are k_z of one sample, (M, n), X is (M, n): one code for each kernel. Nothing here is taken from
the package.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Index = NDArray[np.int64]


def residual(K: Float, rows: Float, X: Float) -> Float:
    """k_z - K x of each kernel."""
    return rows - np.einsum("mij,mj->mi", K, X)


def greedy(K: Float, rows: Float, T: int) -> tuple[list[int], Float]:
    """Return the support in the order in which it was picked, and X by least squares of each kernel on it."""
    X, support = np.zeros(rows.shape), list[int]()
    while len(support) < T:
        rest = residual(K, rows, X)
        gain = np.array([sum(rest[m, j] ** 2 / K[m, j, j] for m in range(len(K))) for j in range(K.shape[1])])
        gain[support] = 0.0
        if gain.max() < 1e-18:
            break
        support.append(int(gain.argmax()))
        for m in range(len(K)):
            X[m, support] = np.linalg.lstsq(K[m][np.ix_(support, support)], rows[m, support], rcond=1e-12)[0]
    return support, X


def row_norms(X: Float) -> Float:
    return np.sqrt((X**2).sum(axis=0))


def largest_penalty(rows: Float) -> float:
    """lambda_max = 2 max_j |(k_z)_j|."""
    return 2.0 * float(row_norms(rows).max())


def convex_objective(K: Float, rows: Float, X: Float, penalty: float) -> float:
    """f(X) + lambda sum_j |X_j|, without K_zz."""
    fit = sum(float(x @ K_m @ x - 2.0 * k_z @ x) for K_m, k_z, x in zip(K, rows, X, strict=True))
    return fit + penalty * float(row_norms(X).sum())


def fista(K: Float, rows: Float, penalty: float) -> Float:
    """Proximal gradient with momentum, until nothing moves; the proximal step shrinks the length of every row."""
    slope = 2.0 * max(float(np.linalg.eigvalsh(K_m)[-1]) for K_m in K)
    X = ahead = np.zeros(rows.shape)
    t = 1.0
    for _ in range(20_000):
        moved = ahead + 2.0 * residual(K, rows, ahead) / slope
        length = np.maximum(row_norms(moved), 1e-300)
        new = moved * np.maximum(0.0, 1.0 - penalty / slope / length)
        # momentum that points uphill is dropped, which makes it converge to rounding
        t_next = 1.0 if float(((ahead - new) * (new - X)).sum()) > 0 else (1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2.0
        ahead = new + (t - 1.0) / t_next * (new - X)
        if np.abs(new - X).max() <= 1e-14 * np.abs(new).max():
            break
        X, t = new, t_next
    return new


def violation(K: Float, rows: Float, X: Float, penalty: float) -> float:
    """By how much the worst row violates its optimality condition, as a share of lambda."""
    worst = 0.0
    for gradient, x in zip((2.0 * residual(K, rows, X)).T, X.T, strict=True):
        if x.any():
            worst = max(worst, float(np.linalg.norm(gradient - penalty * x / np.linalg.norm(x))))
        else:
            worst = max(worst, float(np.linalg.norm(gradient)) - penalty)
    return worst / penalty


def class_residual(K: Float, rows: Float, X: Float, y: Index, q: int, own: float) -> float:
    """sum_m K^m_zz - 2 k_z^m' x_q^m + x_q^m' K^m x_q^m, with ``own`` for the sum of K^m_zz."""
    total = own
    for K_m, k_z, x in zip(K, rows, X, strict=True):
        mine = np.where(y == q, x, 0.0)
        total += float(mine @ K_m @ mine - 2.0 * k_z @ mine)
    return total
