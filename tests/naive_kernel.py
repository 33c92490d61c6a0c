"""Slow, obvious twins of `cksc_dist.maths.kernel`: loops over entries and over eigenpairs."""

from __future__ import annotations

import math
import statistics

import numpy as np


def bandwidth(D, rule):
    entries = [float(value) for row in D for value in row]
    if rule == "mean":
        return 2 * (math.fsum(entries) / len(entries)) ** 2
    if rule == "median":
        return 2 * statistics.median(entries) ** 2
    if rule == "paper":
        return math.fsum(entries) / len(entries)
    if rule == "squares":
        return math.fsum(value**2 for value in entries) / len(entries)
    return rule


def gaussian_kernel(D, delta):
    return np.array([[math.exp(-(float(value) ** 2) / delta) for value in row] for row in D])


def chi_square(A, B):
    out = np.zeros((len(A), len(B)))
    for i, a in enumerate(A):
        for j, b in enumerate(B):
            out[i, j] = math.fsum(
                (x - y) ** 2 / (x + y) for x, y in zip(a.tolist(), b.tolist(), strict=True) if x + y > 0
            )
    return out


def chi_square_kernel(A, B, train):
    mean = chi_square(train, train).mean()
    return np.array([[math.exp(-value / mean) for value in row] for row in chi_square(A, B)])


def unit_diagonal_rows(K, own, own_train):
    out = np.zeros(np.shape(K))
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = K[i][j] / math.sqrt(own[i] * own_train[j])
    return out


def projector(K, how):
    """V_+ V_+' or V sign(S) V', one eigenpair after the other."""
    P = np.zeros_like(K)
    for eigenvalue, v in zip(*_pairs(K), strict=True):
        sign = 1.0 if eigenvalue > 0 else {"clip": 0.0, "flip": -1.0}[how]
        P += sign * np.outer(v, v)
    return P


def repaired_kernel(K, how):
    out = np.zeros_like(K)
    for eigenvalue, v in zip(*_pairs(K), strict=True):
        out += {"clip": max(eigenvalue, 0.0), "flip": abs(eigenvalue)}[how] * np.outer(v, v)
    return out


def self_similarity(K, k_z, how):
    """1 + w K_-(z, z), bounded by the largest (K_-)_ii of a training sample."""
    negative_kernel = np.zeros_like(K)
    own = 0.0
    for eigenvalue, v in zip(*_pairs(K), strict=True):
        if eigenvalue < 0:
            negative_kernel += -eigenvalue * np.outer(v, v)
            own += float(v @ k_z) ** 2 / -eigenvalue
    weight = {"clip": 1, "flip": 2}[how]
    return 1 + weight * min(own, negative_kernel.diagonal().max())


def negative_mass(K):
    eigenvalues = _pairs(K)[0]
    return sum(-s for s in eigenvalues if s < 0) / sum(abs(s) for s in eigenvalues)


def effective_rank(K):
    sizes = [abs(s) for s in _pairs(K)[0] if s != 0]
    shares = [size / sum(sizes) for size in sizes]
    return math.exp(-sum(share * math.log(share) for share in shares))


def _pairs(K):
    eigenvalues, vectors = np.linalg.eigh(K)
    return eigenvalues, vectors.T
