"""Tests of one method against another, and whether a confidence is worth its name."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan, sqrt

import numpy as np
import pytest
from scipy import integrate, special, stats

from cksc_dist.errors import InputError
from cksc_dist.evaluate.statistics import calibration_error, paired_p_values, standard_error


def accuracies(seed: int, m: int) -> tuple[list[float], list[float]]:
    """Return accuracies of two methods on the same splits, as they come: shares of 30 test rows."""
    rng = np.random.default_rng(seed)
    first = rng.integers(20, 30, m)
    return (first / 30).tolist(), (np.minimum(30, first + rng.integers(-2, 5, m)) / 30).tolist()


def student_tail(t: float, degrees: int) -> float:
    """Return the two-sided p value by integrating Student's density, which no table gives."""
    scale = special.gamma((degrees + 1) / 2) / (sqrt(degrees * np.pi) * special.gamma(degrees / 2))
    area, _ = integrate.quad(lambda x: scale * (1 + x * x / degrees) ** (-(degrees + 1) / 2), 0.0, abs(t))
    return float(1.0 - 2.0 * area)


@pytest.mark.parametrize("m", [2, 3, 10])
@pytest.mark.parametrize("seed", range(5))
def test_the_paired_test_is_that_of_scipy(seed: int, m: int) -> None:
    one, other = accuracies(seed, m)
    p, _ = paired_p_values(one, other, 0.5)
    # scipy takes rounding for spread where all differences are the same
    spread = np.ptp(np.subtract(one, other)) > 1e-12
    if spread or m > 2:
        assert p == pytest.approx(float(stats.ttest_rel(one, other).pvalue) if spread else float(one == other))
    assert paired_p_values(other, one, 0.5)[0] == pytest.approx(p, nan_ok=True)  # two-sided


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("seed", range(4))
def test_the_corrected_test_is_its_formula(seed: int, share: float) -> None:
    one, other = accuracies(seed, 10)
    d = [a - b for a, b in zip(one, other, strict=True)]
    mean = sum(d) / 10
    variance = sum((each - mean) ** 2 for each in d) / 9
    t = mean / sqrt(variance * (1 / 10 + share / (1 - share)))  # n_test / n_train
    plain, corrected = paired_p_values(one, other, share)
    assert corrected == pytest.approx(student_tail(t, 9), abs=1e-9)
    assert corrected >= plain


def test_a_difference_that_the_plain_test_finds_and_the_corrected_one_does_not() -> None:
    better = [0.92, 0.90, 0.94, 0.91, 0.93, 0.92, 0.90, 0.95, 0.91, 0.92]
    worse = [0.90, 0.91, 0.91, 0.90, 0.91, 0.92, 0.88, 0.93, 0.90, 0.91]
    plain, corrected = paired_p_values(worse, better, 0.5)
    assert plain < 0.01 < 0.05 < corrected


def test_methods_that_tie_are_not_told_apart() -> None:
    same = [0.8, 0.9, 0.85]
    assert paired_p_values(same, same, 0.5) == (1.0, 1.0)
    # 0.3 - 0.2 and 0.2 - 0.1 differ by rounding alone, and so do both sides here
    assert paired_p_values([0.1 + 0.2, 0.7, 0.5], [0.3, 0.7, 0.5], 0.5) == (1.0, 1.0)


def test_a_difference_that_is_always_the_same_is_one() -> None:
    assert paired_p_values([0.3, 0.2, 0.9], [0.2, 0.1, 0.8], 0.5) == (0.0, 0.0)


def test_one_split_tells_nothing() -> None:
    assert np.isnan(paired_p_values([0.9], [0.1], 0.5)).all()
    assert np.isnan(paired_p_values([0.9, 0.8], [0.1, 0.0], 0.5)).all()


@pytest.mark.parametrize(("one", "other"), [([0.5], [0.5, 0.6]), ([[0.5, 0.6]], [[0.5, 0.7]]), (0.5, 0.5)])
def test_accuracies_of_other_splits_are_refused(one: list[float], other: list[float]) -> None:
    with pytest.raises(InputError, match=r"accuracies of shapes .* give those of the same splits"):
        paired_p_values(one, other, 0.5)


@pytest.mark.parametrize("m", [2, 7])
def test_the_standard_error_of_a_mean(m: int) -> None:
    values, _ = accuracies(m, m)
    assert standard_error(values) == pytest.approx(float(stats.sem(values)))


def test_one_value_has_no_standard_error() -> None:
    assert isnan(standard_error([0.5]))


def naive_calibration(confidence: Sequence[float], right: Sequence[bool]) -> float:
    """Return the error bin by bin, and sample by sample."""
    error = 0.0
    for number in range(10):
        low, high = number / 10, (number + 1) / 10
        inside = [i for i, sure in enumerate(confidence) if low <= sure < high or (number == 9 and sure == 1.0)]
        if inside:
            hits = sum(right[i] for i in inside) / len(inside)
            sure = sum(confidence[i] for i in inside) / len(inside)
            error += len(inside) / len(confidence) * abs(hits - sure)
    return error


@pytest.mark.parametrize("seed", range(6))
def test_the_calibration_error_is_that_of_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.0, 1.0, 80)
    confidence[:11] = np.arange(11) / 10  # the edges of the bins
    right = rng.uniform(size=80) < confidence**2
    expected = naive_calibration(confidence.tolist(), right.tolist())
    assert calibration_error(confidence, right) == pytest.approx(expected, abs=1e-12)
    order = rng.permutation(80)
    assert calibration_error(confidence[order], right[order]) == pytest.approx(expected, abs=1e-12)


def test_what_calibration_errors_mean() -> None:
    always = np.ones(4)
    assert calibration_error(always, [True] * 4) == 0.0
    assert calibration_error(always, [False] * 4) == 1.0
    assert calibration_error(always, [True, False, True, False]) == 0.5
    # errors of two bins do not make up for each other
    assert calibration_error([0.5, 0.5, 0.95, 0.95], [True, True, False, True]) == pytest.approx(0.5 * 0.5 + 0.5 * 0.45)
    # the last bin ends with 1, which has none of its own
    assert calibration_error([1.0, 0.9], [False, True]) == pytest.approx(0.95 - 0.5)
    assert isnan(calibration_error([], []))
