"""Slow, obvious twins of `cksc_dist.maths.nqp`: the algorithm in plain NumPy, and every support tried."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


def objective(H: Float, c: Float, x: Float) -> float:
    return float(0.5 * x @ H @ x + c @ x)


def solve_on(H: Float, c: Float, support: list[int]) -> Float:
    z = np.zeros(len(c))
    if support:
        z[support] = np.linalg.solve(H[np.ix_(support, support)], -c[support])
    return z


def lawson_hanson(H: Float, c: Float, support: list[int], x: Float) -> tuple[list[int], Float]:
    """Minimise on the support with x >= 0, starting from a feasible x."""
    support = list(support)
    z = solve_on(H, c, support)
    while any(z[i] <= 0 for i in support):
        step = {i: x[i] / (x[i] - z[i]) if x[i] > 0 else 0.0 for i in support if z[i] <= 0}
        first = min(step, key=lambda i: step[i])
        x = x + step[first] * (z - x)
        x[first] = 0.0
        support = [i for i in support if x[i] > 0]
        x[[i for i in range(len(c)) if i not in support]] = 0.0
        z = solve_on(H, c, support)
    return support, z


def nqp(H: Float, c: Float, T: int, *, selection: str = "scaled", prune: float = 0.0, tol: float = 1e-10) -> Float:
    n = len(c)
    support: list[int] = []
    banned: set[int] = set()
    x = np.zeros(n)
    while len(support) < T:
        # 2. the most negative gradient outside the support
        g = H @ x + c
        floor = -tol * np.abs(c).max()
        candidates = [j for j in range(n) if j not in support and j not in banned and H[j, j] > 0 and g[j] < floor]
        if not candidates:
            break
        j = min(candidates, key=lambda j: g[j] / np.sqrt(H[j, j]) if selection == "scaled" else g[j])
        # 3. dependent on the support?
        pivot = H[j, j]
        if support:
            pivot -= H[j, support] @ np.linalg.solve(H[np.ix_(support, support)], H[support, j])
        if pivot < 1e-10 * H[j, j]:
            banned.add(j)
            continue
        # 4. solve, drop, solve again
        new_support, new_x = lawson_hanson(H, c, [*support, j], x)
        if j not in new_support:
            banned.add(j)
            continue
        # 5. only if the objective fell
        if not objective(H, c, new_x) < objective(H, c, x):
            break
        support, x = new_support, new_x
    if support:
        kept = [i for i in support if x[i] >= prune * x.max()]
        if len(kept) < len(support):
            start = np.zeros(n)
            start[kept] = x[kept]
            _, x = lawson_hanson(H, c, kept, start)
    return x


def best_of_all_supports(H: Float, c: Float, T: int) -> tuple[Float, float]:
    """Try every support of at most T entries; the best is optimal on its support, all entries positive."""
    n = len(c)
    best_x, best = np.zeros(n), 0.0
    for size in range(1, T + 1):
        supports = np.array(list(combinations(range(n), size)))
        blocks = H[supports[:, :, None], supports[:, None, :]]
        z = np.linalg.solve(blocks, -c[supports][:, :, None])[:, :, 0]
        values = np.where((z > 0).all(axis=1), 0.5 * (c[supports] * z).sum(axis=1), np.inf)
        at = int(np.argmin(values))
        if values[at] < best:
            best = float(values[at])
            best_x = np.zeros(n)
            best_x[supports[at]] = z[at]
    return best_x, best


def cut_back(H: Float, c: Float, x: Float, T: int) -> Float:
    """Drop the entry whose loss raises the objective least, and solve again, until T entries are left."""
    while np.count_nonzero(x) > T:
        support = np.flatnonzero(x)
        loss = x[support] ** 2 / np.diag(np.linalg.inv(H[np.ix_(support, support)]))
        rest = [int(j) for j in np.delete(support, np.argmin(loss))]
        start = np.zeros_like(x)
        start[rest] = x[rest]
        _, x = lawson_hanson(H, c, rest, start)
    return x
