"""Slow, obvious twin of EKDL: samples are the columns of the symmetric root of K, and every matrix is really built.

    J = ||F - D G||^2 + a (||Lab - W G||^2 + ridge ||W||^2),    D'D = E

K must be positive definite. Nothing here is taken from the package.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import polar, sqrtm

from tests.naive_kgdl import omp, root

Float = NDArray[np.float64]


class Trained(NamedTuple):
    """What `train` returns: D (n, k) in the root's space, U (n, k), codes (k, n), W of recall, J of every half step."""

    D: Float
    U: Float
    G: Float
    W: Float
    history: list[float]


def equiangular(k: int, mu: float) -> Float:
    E = np.full((k, k), mu)
    np.fill_diagonal(E, 1.0)
    return E


def best_dictionary(F: Float, G: Float, mu: float) -> Float:
    """The D = Z E^(1/2), Z'Z = I, nearest to what G asks for: Z is the polar factor of F G' E^(1/2)."""
    half = np.real(sqrtm(equiangular(len(G), mu)))
    return np.asarray(polar(F @ G.T @ half)[0] @ half)


def objective(F: Float, Lab: Float, D: Float, G: Float, W: Float, a: float, ridge: float) -> float:
    return float(((F - D @ G) ** 2).sum() + a * (((Lab - W @ G) ** 2).sum() + ridge * (W**2).sum()))


def regression(Lab: Float, G: Float, ridge: float) -> Float:
    return np.asarray(Lab @ G.T @ np.linalg.inv(G @ G.T + ridge * np.eye(len(G))))


def train(
    K: Float, Lab: Float, samples: list[int], sparsity: int, mu: float, a: float, ridge: float, alternations: int
) -> Trained:
    F, k = root(K), len(samples)
    E = equiangular(k, mu)
    D = best_dictionary(F[:, samples], np.eye(k), mu)
    G = np.column_stack([omp(E, D.T @ x, sparsity) for x in F.T])
    W = regression(Lab, G, ridge)
    history = [objective(F, Lab, D, G, W, a, ridge)]
    for _ in range(alternations):
        D, W = best_dictionary(F, G, mu), regression(Lab, G, ridge)
        history.append(objective(F, Lab, D, G, W, a, ridge))
        A, B = E + a * W.T @ W, D.T @ F + a * W.T @ Lab
        roots = np.sqrt(np.diag(A))
        for i, b in enumerate(B.T):
            # atoms of unequal norm are compared by what they explain
            new = omp(A / np.outer(roots, roots), b / roots, sparsity) / roots
            if new @ A @ new - 2 * b @ new < G[:, i] @ A @ G[:, i] - 2 * b @ G[:, i]:
                G[:, i] = new
        history.append(objective(F, Lab, D, G, W, a, ridge))
    G = np.column_stack([omp(E, D.T @ x, sparsity) for x in F.T])
    return Trained(D, root(K, -0.5) @ D, G, regression(Lab, G, ridge), history)
