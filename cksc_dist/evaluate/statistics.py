"""Figures of a comparison: is one method better than another, and is a confidence worth its name.

Two methods on the same splits, with differences d_1 .. d_m of their accuracies:

    paired t        t = mean(d) / sqrt(var(d) / m)                       the test that papers report
    corrected t     t = mean(d) / sqrt(var(d) (1/m + n_test / n_train))  C. Nadeau and Y. Bengio, 2003

Splits of one data set share samples, so their differences are not independent, and the plain test finds more than
there is; the corrected one makes up for that. Both two-sided with m - 1 degrees of freedom.

    calibration error = sum_b (n_b / n) |accuracy of bin b - mean confidence of bin b|     ten bins of confidence
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from cksc_dist.errors import InputError

__all__ = ["calibration_error", "paired_p_values", "standard_error"]

Float = NDArray[np.float64]

BINS = 10


def paired_p_values(one: ArrayLike, other: ArrayLike, test_share: float) -> tuple[float, float]:
    """Return the two-sided p values of the paired and of the corrected t-test; NaN for one split, which tells nothing.

    Two splits whose differences agree, as they may by chance, tell nothing either.

    Parameters
    ----------
    one, other
        Accuracies on the same splits.
    test_share
        Share of the samples that a split tests on.

    Examples
    --------
    >>> p, corrected = paired_p_values([0.9, 0.92, 0.91, 0.93], [0.8, 0.85, 0.84, 0.83], test_share=0.5)
    >>> p < 0.05 < 1.0, p < corrected
    (True, True)
    """
    first, second = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if first.shape != second.shape or first.ndim != 1:
        raise InputError(f"accuracies of shapes {first.shape} and {second.shape}; give those of the same splits")
    difference = first - second
    m = len(difference)
    if m < 2:
        return float("nan"), float("nan")
    variance = float(difference.var(ddof=1))
    if variance <= 1e-24:  # always the same difference: rounding is no spread
        same = abs(float(difference.mean())) <= 1e-12
        certain = 0.0 if m > 2 else float("nan")
        return (1.0, 1.0) if same else (certain, certain)
    share = test_share / (1.0 - test_share)
    found = []
    for spread in (1.0 / m, 1.0 / m + share):
        t = float(difference.mean()) / np.sqrt(variance * spread)
        found.append(float(2.0 * stats.t.sf(abs(t), m - 1)))
    return found[0], found[1]


def standard_error(values: ArrayLike) -> float:
    """Return the standard error of the mean.

    Examples
    --------
    >>> round(standard_error([1.0, 2.0, 3.0]), 4)
    0.5774
    """
    found = np.asarray(values, dtype=np.float64)
    return float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else float("nan")


def calibration_error(confidence: ArrayLike, right: ArrayLike) -> float:
    """Return the expected calibration error: how far confidence and accuracy are apart, bin by bin.

    Parameters
    ----------
    confidence
        Share of the decided class, in [0, 1].
    right
        Whether the decision was.

    Examples
    --------
    >>> calibration_error([0.75, 0.75, 0.25, 0.25], [True, True, False, False])
    0.25
    """
    sure, true = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if not len(sure):
        return float("nan")
    bins = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    error = 0.0
    for number in np.unique(bins):
        inside = bins == number
        error += float(inside.mean()) * abs(float(true[inside].mean() - sure[inside].mean()))
    return error
