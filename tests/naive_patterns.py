"""Slow, obvious twins of `cksc_dist.maths.local_patterns`: pixel by pixel, neighbour by neighbour, in fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

NEIGHBOURS = 8


def interpolated(image, row, column):
    """The grey level between pixels: of the four around, each weighs as much as the point is near to it."""
    top, left = math.floor(row), math.floor(column)
    level = Fraction(0)
    for r in (top, top + 1):
        for c in (left, left + 1):
            weight = (1 - abs(row - r)) * (1 - abs(column - c))
            if weight:
                level += weight * Fraction(image[r, c].item())
    return level


def ring(image, row, column):
    """For each neighbour on the circle whether it is at least as bright, against the clock from the right."""
    bits = []
    for p in range(NEIGHBOURS):
        angle = 2 * math.pi * p / NEIGHBOURS
        up, right = (Fraction(f"{length:.5f}") for length in (math.sin(angle), math.cos(angle)))
        bits.append(interpolated(image, row - up, column + right) >= Fraction(image[row, column].item()))
    return bits


def kind(bits):
    """The number of a pattern: by how many are bright, then by how far these are turned from the beginning."""
    if sum(bits[p] != bits[p - 1] for p in range(NEIGHBOURS)) > 2:
        return 58
    ones = sum(bits)
    if ones in (0, NEIGHBOURS):
        return 57 if ones else 0
    for turn in range(NEIGHBOURS):
        if all(bits[(at - turn) % NEIGHBOURS] for at in range(ones)):
            return 1 + (ones - 1) * NEIGHBOURS + turn
    raise AssertionError("a pattern of two changes has its bright neighbours side by side")


def kinds(image):
    return [[kind(ring(image, r, c)) for c in range(1, image.shape[1] - 1)] for r in range(1, image.shape[0] - 1)]


def shares(images):
    found = np.concatenate([np.ravel(kinds(image)) for image in images]).tolist()
    return [found.count(k) / len(found) for k in range(59)]


def frame_histograms(video):
    return np.array([shares([frame]) for frame in video])


def lbp_top(video):
    times, rows, columns = video.shape
    return np.concatenate(
        [
            shares([video[t, :, :] for t in range(times)]),
            shares([video[:, y, :] for y in range(rows)]),
            shares([video[:, :, x] for x in range(columns)]),
        ]
    )
