"""Slow, obvious twins of `cksc_dist.maths.metrics`: one pair after the other, one number after the other."""

from __future__ import annotations

import math

import numpy as np


def euclidean(a, b):
    """The root of the exactly rounded sum of squares; both series as one long vector."""
    return math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)))


def chi2(a, b):
    pairs = zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)
    return math.fsum((x - y) ** 2 / (x + y) for x, y in pairs if x + y > 0)


def dtw(a, b):
    """The cheapest path through the table of squared distances of frames, no band."""
    table = np.full((len(a) + 1, len(b) + 1), np.inf)
    table[0, 0] = 0.0
    for i in range(len(a)):
        for j in range(len(b)):
            cost = math.fsum((x - y) ** 2 for x, y in zip(a[i].tolist(), b[j].tolist(), strict=True))
            table[i + 1, j + 1] = cost + min(table[i, j], table[i, j + 1], table[i + 1, j])
    return math.sqrt(table[-1, -1])


METRICS = {"euclidean": euclidean, "chi2": chi2, "chi": lambda a, b: math.sqrt(chi2(a, b)), "dtw": dtw}


def matrix(metric, A, B, dims=None):
    """All pairs of two lists of (time, dims) arrays."""
    chosen = slice(None) if dims is None else list(dims)
    return np.array([[METRICS[metric](a[:, chosen], b[:, chosen]) for b in B] for a in A])
