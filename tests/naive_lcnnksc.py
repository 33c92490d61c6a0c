"""Slow, obvious twin of LC-NNKSC: every matrix of the equations is really built, dense, and J is computed whole.

    J = ||Phi(X) - Phi(X) U G||^2 + b ||L - L U G||^2 + gamma sum_j u_j' Delta u_j

U is (n, k), G is (k, n), L is (C, n), Delta is (n, n). Nothing here is taken from the package.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests import naive_nqp

Float = NDArray[np.float64]
Index = NDArray[np.int64]


class Trained(NamedTuple):
    """What `train` returns; `history` has J after every half step."""

    U: Float
    G: Float
    history: list[float]
    replaced: int


def one_hot(y: Index) -> Float:
    return np.array([[1.0 if label == q else 0.0 for label in y] for q in range(int(y.max()) + 1)])


def spread(K: Float) -> Float:
    """Delta: half the squared distances in feature space."""
    squares = np.array([[K[i, i] + K[j, j] - 2.0 * K[i, j] for j in range(len(K))] for i in range(len(K))])
    return squares / 2.0


def objective(K: Float, y: Index, U: Float, G: Float, label_weight: float, locality: float) -> float:
    E, L = np.eye(len(K)) - U @ G, one_hot(y)
    reconstruction = float(np.trace(E.T @ K @ E))
    labels = float(((L - L @ U @ G) ** 2).sum())
    return reconstruction + label_weight * labels + locality * float(np.trace(U.T @ spread(K) @ U))


def code_pass(labelled: Float, U: Float, G: Float, T: int) -> Float:
    """New codes of all samples on K~; a sample keeps its old one where the new one is not better."""
    G = G.copy()
    H = 2.0 * U.T @ labelled @ U
    for i in range(len(labelled)):
        c = -2.0 * U.T @ labelled[:, i]
        new = naive_nqp.nqp(H, c, T, selection="plain")
        if naive_nqp.objective(H, c, new) < naive_nqp.objective(H, c, G[:, i]):
            G[:, i] = new
    return G


def replace_unused(K: Float, labelled: Float, U: Float, G: Float, home: Index, y: Index) -> tuple[Float, int]:
    """Atoms without users become the worst rebuilt samples of their class, none of which is an atom already."""
    U, replaced = U.copy(), 0
    E = np.eye(len(K)) - U @ G
    error = np.diag(E.T @ labelled @ E)
    single = {int(np.flatnonzero(u)[0]) for u in U.T if np.count_nonzero(u) == 1}
    for j in range(U.shape[1]):
        free = [i for i in range(len(y)) if y[i] == home[j] and i not in single]
        if G[j].any() or not free:
            continue
        worst = max(free, key=lambda i: error[i])
        U[:, j] = 0.0
        U[worst, j] = 1.0 / np.sqrt(K[worst, worst])
        single.add(worst)
        replaced += 1
    return U, replaced


def atom_pass(
    K: Float, y: Index, U: Float, G: Float, home: Index, T: int, label_weight: float, locality: float
) -> tuple[Float, Float]:
    """Atom after atom, on the samples of its class; kept only if J, computed whole, fell."""
    labelled, Delta = K + label_weight * one_hot(y).T @ one_hot(y), spread(K)
    for j in range(U.shape[1]):
        g = G[j]
        s = float(g @ g)
        if s == 0.0:
            continue
        E = np.eye(len(K)) - sum(np.outer(U[:, other], G[other]) for other in range(U.shape[1]) if other != j)
        H = 2.0 * s * labelled + 2.0 * min(locality, s) * Delta
        c = -2.0 * labelled @ E @ g
        mine = np.flatnonzero(y == home[j])
        u = np.zeros(len(K))
        u[mine] = naive_nqp.nqp(H[np.ix_(mine, mine)], c[mine], T, selection="plain")
        norm = float(u @ K @ u)
        if norm <= 0.0:
            continue
        new_U, new_G = U.copy(), G.copy()
        new_U[:, j], new_G[j] = u / np.sqrt(norm), g * np.sqrt(norm)
        old, new = (objective(K, y, *pair, label_weight, locality) for pair in ((U, G), (new_U, new_G)))
        if new < old:
            U, G = new_U, new_G
    return U, G


def train(K: Float, y: Index, start: Index, T: int, label_weight: float, locality: float, alternations: int) -> Trained:
    """Codes, atoms, codes, atoms, ..., codes, from atoms that are the samples ``start``."""
    U, home = np.eye(len(K))[:, start] / np.sqrt(np.diag(K)[start]), y[start]
    labelled = K + label_weight * one_hot(y).T @ one_hot(y)
    G, history, replaced = np.zeros((len(start), len(K))), list[float](), 0
    for turn in range(alternations + 1):
        G = code_pass(labelled, U, G, T)
        history.append(objective(K, y, U, G, label_weight, locality))
        if turn < alternations:
            U, count = replace_unused(K, labelled, U, G, home, y)
            replaced += count
            U, G = atom_pass(K, y, U, G, home, T, label_weight, locality)
            history.append(objective(K, y, U, G, label_weight, locality))
    return Trained(U, G, history, replaced)
