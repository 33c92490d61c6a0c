"""Slow, obvious twin of KGDL: projectors are really built, as matrices in a feature space, and so is T_r.

A line is the projector x x' with x of norm 1. Nothing here is taken from the package.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


class Trained(NamedTuple):
    """What `train` returns: V (n, k), codes (n, k), J after every half step."""

    V: Float
    codes: Float
    history: list[float]


def root(K: Float, power: float = 0.5) -> Float:
    """K to some power, inside its range."""
    values, vectors = np.linalg.eigh(K)
    used = values > 1e-10 * values[-1]
    return (vectors[:, used] * values[used] ** power) @ vectors[:, used].T


def projector(x: Float) -> Float:
    return np.outer(x, x) / (x @ x)


def objective(K: Float, V: Float, codes: Float, shrinkage: float) -> float:
    X = root(K)  # columns are samples
    atoms = [projector(X @ v) for v in V.T]
    total = shrinkage * float(np.abs(codes).sum())
    for x, code in zip(X.T, codes, strict=True):
        rest = np.outer(x, x) - sum(a * atom for a, atom in zip(code, atoms, strict=True))
        total += float((rest**2).sum())
    return total


def omp(A: Float, b: Float, T: int) -> Float:
    """Greedy: the atom of largest correlation with the rest, then least squares on all that were picked."""
    code, chosen = np.zeros(len(b)), list[int]()
    for _ in range(T):
        rest = np.abs(b - A @ code)
        rest[chosen] = 0.0
        if rest.max() < 1e-9:
            break
        chosen.append(int(rest.argmax()))
        code[:] = 0.0
        code[chosen] = np.linalg.lstsq(A[np.ix_(chosen, chosen)], b[chosen], rcond=None)[0]
    return code


def move_atom(K: Float, V: Float, codes: Float, r: int) -> Float:
    """v_r = K^(-1/2) w with w the top eigenvector of K^(1/2) T_r K^(1/2)."""
    T_r = np.diag(codes[:, r])
    for j in range(V.shape[1]):
        if j != r:
            T_r = T_r - (codes[:, r] @ codes[:, j]) * np.outer(V[:, j], V[:, j])
    w = np.linalg.eigh(root(K) @ T_r @ root(K))[1][:, -1]
    return root(K, -0.5) @ w


def move_atoms(K: Float, V: Float, codes: Float) -> Float:
    V = V.copy()
    for r in range(V.shape[1]):
        if codes[:, r].any():
            V[:, r] = move_atom(K, V, codes, r)
    return V


def train(K: Float, V: Float, sparsity: int, alternations: int) -> Trained:
    """Alternate with OMP codes, each kept only if it is better; every atom must have users all the time."""
    codes, history = np.zeros((len(K), V.shape[1])), list[float]()
    for turn in range(alternations + 1):
        A, B = (V.T @ K @ V) ** 2, (K @ V) ** 2
        for i, b in enumerate(B):
            new = omp(A, b, sparsity)
            if new @ A @ new - 2 * b @ new < codes[i] @ A @ codes[i] - 2 * b @ codes[i]:
                codes[i] = new
        history.append(objective(K, V, codes, 0.0))
        if turn < alternations:
            assert codes.any(axis=0).all()
            V = move_atoms(K, V, codes)
            history.append(objective(K, V, codes, 0.0))
    return Trained(V, codes, history)
