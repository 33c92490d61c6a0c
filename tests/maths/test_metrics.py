"""Metrics beside DTW: against slow twins, the same bits in whatever block, and words for what cannot be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cksc_dist import pairwise_dtw
from cksc_dist.errors import EngineError, InputError
from cksc_dist.maths.metrics import ROWS_A_CALL, check_metric, pairwise_metric, pick_dims
from cksc_dist.series import Ragged, ragged
from cksc_dist.spec import DistanceSpec
from tests import naive_metrics

ALL = ("euclidean", "chi2", "chi", "dtw")
VECTORS = ("euclidean", "chi2", "chi")


def histograms(seed: int, n: int, length: int = 5, dims: int = 3) -> list[np.ndarray]:
    """Series of one length, not negative, with empty bins."""
    rng = np.random.default_rng(seed)
    values = rng.exponential(size=(n, length, dims)) * 10.0 ** rng.integers(-3, 4, size=(n, 1, 1))
    return list(np.where(rng.random(values.shape) < 0.2, 0.0, values))


def spec_of(metric: str, **others: Any) -> DistanceSpec:
    return DistanceSpec(metric=metric, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("dims", [None, (0,), (0, 2)])
@pytest.mark.parametrize("metric", ALL)
def test_two_sets_against_the_slow_twin(metric: str, dims: tuple[int, ...] | None) -> None:
    A, B = histograms(0, 7), histograms(1, 4)
    found = pairwise_metric(ragged(A), ragged(B), spec_of(metric, dims=dims))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, naive_metrics.matrix(metric, A, B, dims), rtol=1e-13)


@pytest.mark.parametrize("metric", ALL)
def test_a_set_with_itself_is_symmetric_to_the_bit_and_zero_on_the_diagonal(metric: str) -> None:
    A = histograms(2, ROWS_A_CALL + 6)
    found = pairwise_metric(ragged(A), None, spec_of(metric))
    np.testing.assert_array_equal(found, found.T)
    assert not found.diagonal().any()
    np.testing.assert_allclose(found[:6], naive_metrics.matrix(metric, A[:6], A), rtol=1e-13)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), metric=st.sampled_from(ALL), dtype=st.sampled_from(["float64", "float32"]))
def test_a_value_has_the_same_bits_in_whatever_block_it_is_computed(
    data: st.DataObject, metric: str, dtype: str
) -> None:
    n = 150  # more rows than one call takes
    A = histograms(3, n, length=3, dims=2)
    spec = spec_of(metric, dtype=dtype)
    rows = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=80), "rows")
    columns = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=40), "columns")
    n_jobs = data.draw(st.sampled_from([1, 2]), "n_jobs")
    whole = pairwise_metric(ragged(A), None, spec)
    block = pairwise_metric(ragged([A[i] for i in rows]), ragged([A[j] for j in columns]), spec, n_jobs)
    np.testing.assert_array_equal(block, whole[np.ix_(rows, columns)])


@pytest.mark.parametrize("metric", VECTORS)
def test_float32_is_the_exact_value_rounded_once(metric: str) -> None:
    A = ragged(histograms(4, 9))
    found = pairwise_metric(A, None, spec_of(metric, dtype="float32"))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, pairwise_metric(A, None, spec_of(metric)).astype(np.float32))


def test_dtw_is_pairwise_dtw_to_the_bit() -> None:
    rng = np.random.default_rng(5)
    A = [rng.standard_normal((length, 3)) for length in (4, 9, 1, 6)]
    settled = {"mode": "independent", "window": 0.5, "normalise": None, "per_length": True}
    expected = pairwise_dtw([series[:, [0, 2]] for series in A], **settled)  # type: ignore[arg-type]
    np.testing.assert_array_equal(pairwise_metric(ragged(A), None, DistanceSpec(**settled, dims=(0, 2))), expected)  # type: ignore[arg-type]


def test_chosen_dims_keep_offsets_and_are_in_order() -> None:
    values, offsets = ragged([np.arange(6.0).reshape(2, 3), np.arange(6.0, 9.0).reshape(1, 3)])
    picked, edges = pick_dims((values, offsets), DistanceSpec(dims=(0, 2)))
    assert picked.tolist() == [[0.0, 2.0], [3.0, 5.0], [6.0, 8.0]]
    assert edges is offsets
    assert picked.flags.c_contiguous
    assert pick_dims((values, offsets), DistanceSpec())[0] is values


def sound() -> Ragged:
    return ragged(histograms(6, 4, length=3, dims=3))


def unequal() -> Ragged:
    return ragged([np.ones((3, 3)), np.ones((3, 3)), np.ones((5, 3))])


def with_negative(dim: int) -> Ragged:
    values, offsets = sound()
    values[offsets[2] + 1, dim] = -0.5
    return values, offsets


@pytest.mark.parametrize("metric", ALL)
def test_sound_series_are_let_through(metric: str) -> None:
    check_metric(sound(), spec_of(metric), length=3)


def test_dtw_does_not_mind_lengths_and_signs() -> None:
    check_metric(unequal(), DistanceSpec(), length=3)
    check_metric(with_negative(0), DistanceSpec(), length=3)
    check_metric(with_negative(0), spec_of("euclidean"), length=3)


@pytest.mark.parametrize("metric", VECTORS)
def test_series_of_several_lengths_are_named_by_their_number_in_the_set(metric: str) -> None:
    words = rf"metric='{metric}' needs series of one length, but series 102 has 5 frames and series 0 has 3; use metric"
    with pytest.raises(InputError, match=words):
        check_metric(unequal(), spec_of(metric), first=100, length=3)
    # these alone are of one length, but not of that of the set
    with pytest.raises(InputError, match=r"series 100 has 3 frames and series 0 has 7"):
        check_metric(sound(), spec_of(metric), first=100, length=7)


def test_a_negative_bin_is_named_by_series_and_dimension() -> None:
    with pytest.raises(InputError, match=r"series 12 has -0.5 in dimension 1; chi-square needs bins >= 0"):
        check_metric(with_negative(1), spec_of("chi2"), first=10, length=3)
    # a dimension that is not compared does no harm
    check_metric(with_negative(1), spec_of("chi2", dims=(0, 2)), length=3)


def test_a_negative_bin_is_named_by_the_dimension_that_the_series_has_it_in() -> None:
    with pytest.raises(InputError, match=r"series 2 has -0.5 in dimension 2"):
        check_metric(with_negative(2), spec_of("chi2", dims=(0, 2)), length=3)


@pytest.mark.parametrize("metric", ALL)
def test_a_dimension_that_is_not_there(metric: str) -> None:
    spec = spec_of(metric, dims=(1, 3))
    words = r"dims: there is no dimension 3; the series have 3, from 0 on"
    with pytest.raises(InputError, match=words):
        check_metric(sound(), spec, length=3)
    with pytest.raises(InputError, match=words):
        pairwise_metric(sound(), None, spec)


def test_a_ready_matrix_is_not_computed() -> None:
    with pytest.raises(InputError, match=r"metric='external' is for a matrix that is brought ready: cksc ingest"):
        check_metric(sound(), spec_of("external"), length=3)


def test_a_constant_dimension_is_named_by_series_before_work_starts() -> None:
    values, offsets = sound()
    values[offsets[1] : offsets[2], 2] = 4.0
    spec = DistanceSpec(normalise="z")
    with pytest.raises(InputError, match=r"series\[51\], dim 2 has zero variance and cannot be z-normalised"):
        check_metric((values, offsets), spec, first=50)


def test_values_beyond_float32_are_named_by_series_before_work_starts() -> None:
    values, offsets = sound()
    values[offsets[3], 1] = 1e39
    with pytest.raises(InputError, match=r"series\[23\] has a value beyond float32; use dtype='float64'"):
        check_metric((values, offsets), DistanceSpec(dtype="float32"), first=20)


def test_what_an_engine_cannot_do_is_said_before_work_starts() -> None:
    spec = DistanceSpec(engine="dtaidistance", cost="abs")
    with pytest.raises(EngineError, match="dtaidistance"):
        check_metric(sound(), spec)


def test_a_constant_dimension_is_named_by_the_dimension_that_the_series_has_it_in() -> None:
    values, offsets = sound()
    values[offsets[1] : offsets[2], 2] = 4.0
    with pytest.raises(InputError, match=r"series\[1\], dim 2 has zero variance"):
        check_metric((values, offsets), DistanceSpec(normalise="z", dims=(1, 2)))


def test_large_values_do_not_overflow() -> None:
    points = ragged([np.array([[3e150, 0.0]]), np.array([[0.0, 4e150]])])
    assert pairwise_metric(points, None, spec_of("euclidean"))[0, 1] == 5e150
