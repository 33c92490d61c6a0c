"""Slow, obvious twin of CKSC training and recall: every matrix of the equations is really built, dense.

    J = ||Phi(X) - Phi(X) U G||^2 + beta ||U G||^2 + alpha sum(M * (U G)'),    M = 11' - L'L

U is (n, k), G is (k, n), L is (C, n). Nothing here is taken from the package, not even the order of a sum.
Beside it: kernels to try things on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests import naive_nqp

Float = NDArray[np.float64]
Index = NDArray[np.int64]


class Terms(NamedTuple):
    """J term by term."""

    reconstruction: float
    ridge: float
    discrimination: float


class Trained(NamedTuple):
    """What `train` returns; `history` has a row of J's terms for each half step."""

    U: Float
    G: Float
    history: Float
    n_iter: int
    converged: bool
    replaced: int


def one_hot(y: Index, n_classes: int) -> Float:
    L = np.zeros((n_classes, len(y)))
    for i, c in enumerate(y):
        L[c, i] = 1.0
    return L


def other_class(y: Index, n_classes: int) -> Float:
    """M = 11' - L'L."""
    L = one_hot(y, n_classes)
    return np.ones((len(y), len(y))) - L.T @ L


def sample_errors(K: Float, U: Float, G: Float) -> Float:
    """||phi(x_i) - Phi(X) U g_i||^2 of each sample: the diagonal of E'K E with E = I - U G."""
    E = np.eye(len(K)) - U @ G
    return np.diag(E.T @ K @ E).copy()


def objective(K: Float, M: Float, U: Float, G: Float, alpha: float, beta: float) -> Terms:
    UG = U @ G
    return Terms(float(sample_errors(K, U, G).sum()), beta * float((UG**2).sum()), alpha * float((M * UG.T).sum()))


def least_ridge(K: Float, M: Float, alpha: float) -> float:
    """max(0, -lambda_min(K + alpha M), -lambda_min(K))."""
    return max(0.0, -float(np.linalg.eigvalsh(K + alpha * M)[0]), -float(np.linalg.eigvalsh(K)[0]))


def code_problem(K: Float, M: Float, U: Float, i: int, alpha: float, beta: float) -> tuple[Float, Float]:
    """H and c of 1/2 g'H g + c'g for the code of sample i."""
    return 2.0 * U.T @ (K + beta * np.eye(len(K))) @ U, U.T @ (alpha * M[:, i] - 2.0 * K[:, i])


def atom_problem(K: Float, M: Float, U: Float, G: Float, j: int, alpha: float, beta: float) -> tuple[Float, Float]:
    """H and c of 1/2 u'H u + c'u for atom j.

    With E_j = I - sum_{l != j} u_l g^l, so that U G = (I - E_j) + u_j g^j, the three terms of J are

        ||Phi(X) (E_j - u g)||^2       = tr(E_j'K E_j) - 2 u'K E_j g' + (g g') u'K u
        beta ||(I - E_j) + u g||^2     = beta ||I - E_j||^2 + 2 beta u'(I - E_j) g' + beta (g g') u'u
        alpha sum(M * ((I-E_j) + ug)') = alpha sum(M * (I - E_j)') + alpha u'M g'
    """
    identity = np.eye(len(K))
    E = identity.copy()
    for other in range(U.shape[1]):
        if other != j:
            E -= np.outer(U[:, other], G[other])
    g = G[j]
    H = 2.0 * (g @ g) * (K + beta * identity)
    c = -2.0 * K @ E @ g + 2.0 * beta * (identity - E) @ g + alpha * M @ g
    return H, c


def recall_problem(K: Float, M: Float, U: Float, k_z: Float, alpha: float, beta: float) -> tuple[Float, Float]:
    """H and c of the code of a new sample."""
    return 2.0 * U.T @ (K + alpha * M + beta * np.eye(len(K))) @ U, -2.0 * U.T @ k_z


def drop_small(H: Float, c: Float, x: Float, share: float) -> Float:
    """Drop the entries below a share of the largest, once, and solve again on the rest."""
    kept = np.flatnonzero((x > 0) & (x >= share * x.max()))
    return naive_nqp.lawson_hanson(H, c, kept.tolist(), np.where(np.isin(np.arange(len(x)), kept), x, 0.0))[1]


def cut_back(H: Float, c: Float, x: Float, T: int) -> Float:
    """Drop the entry whose loss raises f least, x_s^2 / (2 (H_SS^-1)_ss), solve again, until T are left."""
    while np.count_nonzero(x) > T:
        support = np.flatnonzero(x)
        inverse = np.linalg.inv(H[np.ix_(support, support)])
        cheapest = support[np.argmin(x[support] ** 2 / (2.0 * np.diag(inverse)))]
        start = x.copy()
        start[cheapest] = 0.0
        _, x = naive_nqp.lawson_hanson(H, c, [int(i) for i in support if i != cheapest], start)
    return x


def recall_code(H: Float, c: Float, T: int, reach: int, selection: str, prune: float) -> Float:
    """The better of a greedy search, and of one that goes as far as `reach` entries and is cut back to T."""
    greedy = naive_nqp.nqp(H, c, T, selection=selection, prune=prune)
    thorough = drop_small(H, c, cut_back(H, c, naive_nqp.nqp(H, c, reach, selection=selection), T), prune)
    return min(greedy, thorough, key=lambda x: naive_nqp.objective(H, c, x))


def code_pass(
    K: Float,
    M: Float,
    U: Float,
    G: Float,
    T: int,
    alpha: float,
    beta: float,
    selection: str,
    prune: float,
) -> Float:
    """All codes, each kept as it is where the new one is no better."""
    G = G.copy()
    for i in range(len(K)):
        H, c = code_problem(K, M, U, i, alpha, beta)
        new = naive_nqp.nqp(H, c, T, selection=selection, prune=prune)
        if naive_nqp.objective(H, c, new) < naive_nqp.objective(H, c, G[:, i]):
            G[:, i] = new
    return G


def replace_unused(K: Float, U: Float, G: Float, home: Index, y: Index) -> tuple[Float, int]:
    """Atoms without a user become the worst reconstructed sample of their class that is no atom yet."""
    U = U.copy()
    errors = sample_errors(K, U, G)
    single = {int(np.flatnonzero(u)[0]) for u in U.T if np.count_nonzero(u) == 1}
    replaced = 0
    for j in range(U.shape[1]):
        free = [i for i in range(len(y)) if y[i] == home[j] and i not in single]
        if G[j].any() or not free:
            continue
        worst = max(free, key=lambda i: errors[i])
        U[:, j] = 0.0
        U[worst, j] = 1.0 / np.sqrt(K[worst, worst])
        single.add(worst)
        replaced += 1
    return U, replaced


def schedule_rounds(home: Index, schedule: str) -> list[list[int]]:
    """Atoms one by one, or the first of each class, the second of each class, ..."""
    if schedule == "sequential":
        return [[j] for j in range(len(home))]
    waiting = {c: [j for j in range(len(home)) if home[j] == c] for c in sorted(set(home.tolist()))}
    rounds = []
    while any(waiting.values()):
        rounds.append(sorted(queue.pop(0) for queue in waiting.values() if queue))
    return rounds


def atom_pass(
    K: Float,
    M: Float,
    U: Float,
    G: Float,
    rounds: list[list[int]],
    T: int,
    alpha: float,
    beta: float,
    selection: str,
    prune: float,
) -> tuple[Float, Float]:
    """All atoms that somebody uses, in rounds."""
    U, G = U.copy(), G.copy()
    for members in rounds:
        proposals = []
        for j in members:
            if not G[j].any():
                continue
            H, c = atom_problem(K, M, U, G, j, alpha, beta)
            new = naive_nqp.nqp(H, c, T, selection=selection, prune=prune)
            gain = naive_nqp.objective(H, c, U[:, j]) - naive_nqp.objective(H, c, new)
            if gain > 0 and new @ K @ new > 0:
                proposals.append((gain, j, new))
        changed: list[int] = []
        for _, j, new in sorted(proposals, key=lambda proposal: -proposal[0]):
            trial = U.copy()
            trial[:, j] = new
            # the gain of the first is known; the others must lower J given those before them
            if not changed or sum(objective(K, M, trial, G, alpha, beta)) < sum(objective(K, M, U, G, alpha, beta)):
                U = trial
                changed.append(j)
        for j in changed:
            r = np.sqrt(U[:, j] @ K @ U[:, j])
            U[:, j] /= r
            G[j] *= r
    return U, G


def train(
    K: Float,
    y: Index,
    n_classes: int,
    U: Float,
    home: Index,
    *,
    T: int,
    alpha: float,
    beta: float,
    schedule: str = "sequential",
    selection: str = "scaled",
    prune: float = 0.0,
    max_iter: int = 50,
    tol: float = 1e-4,
) -> Trained:
    """Codes, atoms, codes, atoms, ..., codes, from the start atoms U."""
    M = other_class(y, n_classes)
    rounds = schedule_rounds(home, schedule)
    G = np.zeros((U.shape[1], len(y)))
    before = sum(objective(K, M, U, G, alpha, beta))
    history: list[Terms] = []
    n_iter, converged, replaced, settled = 0, False, 0, False
    while n_iter < max_iter and not converged:
        G = code_pass(K, M, U, G, T, alpha, beta, selection, prune)
        history.append(objective(K, M, U, G, alpha, beta))
        U, count = replace_unused(K, U, G, home, y)
        replaced += count
        U, G = atom_pass(K, M, U, G, rounds, T, alpha, beta, selection, prune)
        history.append(objective(K, M, U, G, alpha, beta))
        n_iter += 1
        now = sum(history[-1])
        settled_before, settled = settled, abs(before - now) <= tol * max(abs(before), 1e-9 * np.trace(K))
        converged = settled and (count == 0 or settled_before)
        before = now
    G = code_pass(K, M, U, G, T, alpha, beta, selection, prune)
    history.append(objective(K, M, U, G, alpha, beta))
    return Trained(U, G, np.array(history), n_iter, converged, replaced)


def labels(sizes: list[int], rng: np.random.Generator) -> Index:
    """Class indices with the given class sizes, in random order."""
    return rng.permutation(np.repeat(np.arange(len(sizes)), sizes)).astype(np.int64)


def class_distances(y: Index, rng: np.random.Generator, dims: int = 5, spread: float = 0.7) -> Float:
    """Euclidean distances of points scattered around a centre for each class."""
    points = rng.normal(size=(int(y.max()) + 1, dims))[y] + spread * rng.normal(size=(len(y), dims))
    squares: Float = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)
    return np.sqrt(squares)


def gaussian(D: Float) -> Float:
    """exp(-D^2 / (2 mean(D)^2)), bit-symmetric."""
    K = np.exp(-(D**2) / (2.0 * D.mean() ** 2))
    return np.ascontiguousarray((K + K.T) / 2.0)


def class_kernel(y: Index, rng: np.random.Generator) -> Float:
    """Semi-definite, all entries positive."""
    return gaussian(class_distances(y, rng))


def indefinite_kernel(y: Index, rng: np.random.Generator, noise: float = 0.3) -> Float:
    """The Gaussian of perturbed distances: as with DTW, no triangle inequality and negative eigenvalues."""
    D = class_distances(y, rng)
    D = np.abs(D + noise * D.mean() * rng.normal(size=D.shape))
    D = np.triu(D, 1)
    return gaussian(D + D.T)


def signed_kernel(y: Index, rng: np.random.Generator, noise: float = 0.0) -> Float:
    """Cosines of vectors, many of them negative; indefinite where noise is added."""
    vectors = rng.normal(size=(int(y.max()) + 1, 8))[y] + 0.8 * rng.normal(size=(len(y), 8))
    K = vectors @ vectors.T / np.outer(np.linalg.norm(vectors, axis=1), np.linalg.norm(vectors, axis=1))
    K += noise * rng.normal(size=K.shape)
    K = (K + K.T) / 2.0
    np.fill_diagonal(K, 1.0)
    return np.ascontiguousarray(K)


def duplicated_kernel(y: Index, rng: np.random.Generator) -> Float:
    """Semi-definite with every third sample a copy of another one, whatever the labels of the two."""
    D = class_distances(y, rng)
    source = np.arange(len(y))
    copies = source[::3]
    source[copies] = rng.choice(np.setdiff1d(source, copies), size=len(copies))
    return gaussian(D[np.ix_(source, source)])


def uneven_kernel(y: Index, rng: np.random.Generator) -> Float:
    """Semi-definite, diagonal from 0.04 to 1: short samples are coded by longer ones, not by themselves."""
    lengths = rng.uniform(0.2, 1.0, size=len(y))
    K = class_kernel(y, rng) * np.outer(lengths, lengths)
    return np.ascontiguousarray((K + K.T) / 2.0)
