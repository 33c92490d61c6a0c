"""Made series: gestures of unequal length and speed, for examples, tests and benchmarks.

Class c is a smooth curve p_c(t) in [0, 1] -> R^dims: a movement that all classes share plus one of its own,
both sums of a few sine waves. A sample of length L is

    x[i] = a * (p_c(w(i / (L - 1))) + s(i / (L - 1))) + noise * e[i],

with a random monotone warp w of time, a random amplitude a for each dimension, a small smooth wandering s,
and white noise e.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.series import SeriesSet
from cksc_dist.spec import check_count

__all__ = ["make_gestures"]

_WAVES = 4
_OWN = 0.6  # how far a class departs from what all share
_SPEED = 0.8  # log speed varies by this
_AMPLITUDE = 0.15
_WANDERING = 0.35


@dataclass(frozen=True)
class _Curve:
    """A sum of slow sine waves for each dimension, the slower the stronger."""

    weight: NDArray[np.float64]
    phase: NDArray[np.float64]

    @classmethod
    def random(cls, dims: int, rng: np.random.Generator) -> _Curve:
        weight = rng.standard_normal((dims, _WAVES)) / np.arange(1, _WAVES + 1)
        return cls(weight, rng.uniform(0.0, 2.0 * np.pi, (dims, _WAVES)))

    def __call__(self, time: NDArray[np.float64]) -> NDArray[np.float64]:
        order = np.arange(1, _WAVES + 1)
        waves = np.sin(np.pi * order * time[:, None, None] + self.phase)
        return np.asarray((self.weight * waves).sum(axis=2))


def _warp(time: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a monotone map of [0, 1] onto itself: the integral of a random positive speed."""
    speed = np.exp(_SPEED * _Curve.random(1, rng)(time)[:, 0])
    steps = (speed[1:] + speed[:-1]) / 2.0
    passed = np.concatenate([[0.0], np.cumsum(steps)])
    return np.asarray(passed / passed[-1])


def _check_length(length: Any) -> None:
    if not isinstance(length, Sequence) or len(length) != 2:
        raise InputError(f"length={length!r}: must be (shortest, longest)")
    check_count("shortest length", length[0], 2)
    check_count("longest length", length[1], int(length[0]))


def _check_noise(noise: Any) -> None:
    if isinstance(noise, bool) or not isinstance(noise, Real) or not 0.0 <= float(noise) < np.inf:
        raise InputError(f"noise={noise!r}: must be a finite number of at least 0")


def make_gestures(
    n_per_class: int = 20,
    n_classes: int = 4,
    dims: int = 3,
    length: tuple[int, int] = (40, 80),
    noise: float = 0.3,
    random_state: int | np.random.Generator | None = 0,
) -> SeriesSet:
    """Make labelled series of unequal length, speed and amplitude.

    At the defaults 1-nearest-neighbour DTW, each series against all others, is right for 77 of 80 (96 %; over
    seeds 0 to 5: 89 to 99 %); without noise for all.

    Parameters
    ----------
    n_per_class, n_classes, dims
        How many series a class, classes, and dimensions.
    length
        Shortest and longest series; lengths are drawn evenly from both and all between.
    noise
        Standard deviation of the white noise on every value.
    random_state
        Seed or generator; the same seed gives the same bits. None: different each time.

    Returns
    -------
    SeriesSet
        Class after class; labels ``gesture0``, ``gesture1``, ..., ids ``<label>/<index>``.

    Examples
    --------
    >>> make_gestures(n_per_class=5, n_classes=3, dims=2)
    SeriesSet('gestures': 15 series, 2 dims, length 45..79, 3 classes)
    """
    check_count("n_per_class", n_per_class, 1)
    check_count("n_classes", n_classes, 1)
    check_count("dims", dims, 1)
    _check_length(length)
    _check_noise(noise)
    rng = np.random.default_rng(random_state)
    shared = _Curve.random(dims, rng)
    series: list[NDArray[np.float64]] = []
    for own in [_Curve.random(dims, rng) for _ in range(n_classes)]:
        for _ in range(n_per_class):
            time = np.linspace(0.0, 1.0, int(rng.integers(length[0], length[1], endpoint=True)))
            warped = _warp(time, rng)
            path = shared(warped) + _OWN * own(warped) + _WANDERING * _Curve.random(dims, rng)(time)
            amplitude = np.exp(_AMPLITUDE * rng.standard_normal(dims))
            series.append(amplitude * path + noise * rng.standard_normal(path.shape))
    labels = [f"gesture{c}" for c in range(n_classes) for _ in range(n_per_class)]
    ids = [f"gesture{c}/{i}" for c in range(n_classes) for i in range(n_per_class)]
    return SeriesSet.from_list(series, labels, ids, name="gestures")
