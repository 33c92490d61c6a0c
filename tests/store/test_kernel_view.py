"""A kernel over rows of a stored matrix: what DistanceKernel gives on the same rows, learnt on these rows alone."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cksc_dist import CKSC, DistanceKernel, open_matrix
from cksc_dist.errors import InputError
from cksc_dist.io import make_gestures
from cksc_dist.spec import DistanceSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.kernel_view import KernelView
from cksc_dist.store.matrix import DistanceMatrix
from tests import naive_kernel
from tests.store.stored import finished

DATA = make_gestures(n_per_class=6)
RULES = ["mean", "median", "paper", "squares", 3.5]
TRAIN = np.array([0, 3, 4, 7, 9, 12, 15, 16, 21, 23])
TEST = np.setdiff1d(np.arange(len(DATA)), TRAIN)


def opened(dtype: str, edge: int = 5) -> DistanceMatrix:
    folder = Folder(f"memory://kernel-view-{dtype}-{edge}")
    finished(folder, DATA, DistanceSpec(dtype=dtype), edge)
    return open_matrix(folder.url)


@pytest.fixture(scope="module", params=["float64", "float32"])
def matrix(request: pytest.FixtureRequest) -> DistanceMatrix:
    return opened(request.param)


@pytest.fixture(scope="module")
def plain() -> DistanceMatrix:
    return opened("float64", edge=7)


@pytest.mark.parametrize("factor", [1.0, 0.25])
@pytest.mark.parametrize("rule", RULES)
def test_it_is_what_the_transformer_gives_on_the_same_rows(matrix: DistanceMatrix, rule: Any, factor: float) -> None:
    D = matrix[:]
    kernel = DistanceKernel(bandwidth=rule, factor=factor)
    K_train = kernel.fit_transform(D[np.ix_(TRAIN, TRAIN)])
    K_test = kernel.transform(D[np.ix_(TEST, TRAIN)])
    view = matrix.kernel(TRAIN, bandwidth=rule, factor=factor)
    tolerance = 1e-12 if matrix.dtype == np.float64 else 1e-6
    assert view.delta == pytest.approx(kernel.bandwidth_, rel=1e-14)
    assert view[:].dtype == K_train.dtype == view.dtype
    np.testing.assert_allclose(view[:], K_train, rtol=tolerance)
    np.testing.assert_allclose(view.against(TEST), K_test, rtol=tolerance)


@pytest.mark.parametrize("rule", ["median", 3.5])
def test_with_the_same_bandwidth_it_is_the_same_to_the_bit(matrix: DistanceMatrix, rule: Any) -> None:
    D = matrix[:]
    kernel = DistanceKernel(bandwidth=rule).fit(D[np.ix_(TRAIN, TRAIN)])
    view = matrix.kernel(TRAIN, bandwidth=rule)
    assert view.delta == kernel.bandwidth_
    np.testing.assert_array_equal(view[:], kernel.transform(D[np.ix_(TRAIN, TRAIN)]))
    np.testing.assert_array_equal(view.against(TEST), kernel.transform(D[np.ix_(TEST, TRAIN)]))


@pytest.mark.parametrize("rule", RULES)
def test_against_the_slow_twin(plain: DistanceMatrix, rule: Any) -> None:
    D = plain[TRAIN, TRAIN]
    delta = naive_kernel.bandwidth(D, rule)
    view = plain.kernel(TRAIN, bandwidth=rule, factor=0.5)
    assert view.delta == pytest.approx(delta, rel=1e-13)
    np.testing.assert_allclose(view[:], naive_kernel.gaussian_kernel(D, 0.5 * delta), rtol=1e-12)


class Watched:
    def __len__(self) -> int:
        return 24

    """A matrix that remembers which rows and columns were read."""

    def __init__(self, distances: DistanceMatrix) -> None:
        self.distances = distances
        self.dtype, self.tile_edge = distances.dtype, distances.tile_edge
        self.seen: set[int] = set()
        self.largest = 0

    def __getitem__(self, key: Any) -> Any:
        for part in key:
            self.seen |= set(np.atleast_1d(np.arange(24)[part]).tolist())
        values = self.distances[key]
        self.largest = max(self.largest, values.size)
        return values


@pytest.mark.parametrize("rule", RULES)
def test_the_bandwidth_is_learnt_from_training_rows_alone(plain: DistanceMatrix, rule: Any) -> None:
    watched = Watched(plain)
    view = KernelView(watched, TRAIN, bandwidth=rule, factor=1.0)
    assert watched.seen <= set(TRAIN.tolist())
    before = view.delta
    view.against(TEST)
    assert view.delta == before
    if isinstance(rule, str):
        assert before != plain.kernel(bandwidth=rule).delta


def test_the_mean_is_learnt_tile_by_tile(plain: DistanceMatrix) -> None:
    watched = Watched(plain)
    KernelView(watched, np.arange(24), bandwidth="mean", factor=1.0)
    assert watched.largest == 7 * 7


def test_nothing_is_read_before_it_is_asked_for(plain: DistanceMatrix) -> None:
    watched = Watched(plain)
    view = KernelView(watched, TRAIN, bandwidth=2.0, factor=1.0)
    assert view.shape == (10, 10)
    assert watched.seen == set()
    view[2, 3:5]
    assert watched.seen == {TRAIN[2], TRAIN[3], TRAIN[4]}


def test_it_looks_like_a_square_array(plain: DistanceMatrix) -> None:
    view = plain.kernel(TRAIN)
    whole = np.asarray(view)
    assert (view.shape, view.ndim, len(view), whole.shape) == ((10, 10), 2, 10, (10, 10))
    assert not np.array_equal(whole, np.eye(10))
    np.testing.assert_array_equal(whole, whole.T)
    np.testing.assert_array_equal(whole.diagonal(), 1.0)
    assert np.asarray(view, dtype=np.float32).dtype == np.float32
    assert repr(view) == f"KernelView(10 rows, delta {view.delta:.6g}, factor 1)"


KEYS = st.one_of(
    st.integers(-10, 9),
    st.slices(10).filter(lambda part: len(range(10)[part]) > 0),
    st.lists(st.integers(-10, 9), min_size=1, max_size=6),
    st.lists(st.booleans(), min_size=10, max_size=10).filter(any),
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=KEYS, columns=KEYS)
def test_entries_by_any_positions(rows: Any, columns: Any, plain: DistanceMatrix) -> None:
    view = plain.kernel(TRAIN)
    index = [np.arange(10)[part] for part in (rows, columns)]
    picked = np.asarray(view)[np.ix_(*map(np.atleast_1d, index))]
    expected = picked.reshape([len(part) for part in index if np.ndim(part)])
    np.testing.assert_array_equal(view[rows, columns], expected)
    np.testing.assert_array_equal(view[rows], np.asarray(view)[rows])


@pytest.mark.parametrize("position", [10, -11, [0, 10]])
def test_positions_are_among_the_training_rows(plain: DistanceMatrix, position: Any) -> None:
    with pytest.raises(IndexError):
        plain.kernel(TRAIN)[position]


def test_rows_by_mask_by_positions_or_all(plain: DistanceMatrix) -> None:
    mask = np.isin(np.arange(24), TRAIN)
    for rows in (mask, mask.tolist(), TRAIN.tolist(), TRAIN - 24):
        np.testing.assert_array_equal(plain.kernel(rows)[:], plain.kernel(TRAIN)[:])
    assert plain.kernel().shape == (24, 24)
    np.testing.assert_array_equal(plain.kernel(TRAIN).against(~mask), plain.kernel(TRAIN).against(TEST))
    np.testing.assert_array_equal(plain.kernel(TRAIN).against(TEST.tolist()), plain.kernel(TRAIN).against(TEST))
    assert plain.kernel(TRAIN).against(5).shape == (1, 10)


def test_the_order_of_rows_is_kept(plain: DistanceMatrix) -> None:
    turned = plain.kernel(TRAIN[::-1], bandwidth=2.0)
    np.testing.assert_array_equal(turned[:], plain.kernel(TRAIN, bandwidth=2.0)[:][::-1, ::-1])


@pytest.mark.parametrize("rows", [[], np.array([], np.int64), np.zeros(24, bool)], ids=["list", "array", "mask"])
def test_no_training_rows(plain: DistanceMatrix, rows: Any) -> None:
    with pytest.raises(InputError, match="rows: give at least one training row, as a list of positions or a mask"):
        plain.kernel(rows)


@pytest.mark.parametrize("rows", [[0, 24], np.ones(23, bool)], ids=["beyond", "short-mask"])
def test_rows_that_are_not_there(plain: DistanceMatrix, rows: Any) -> None:
    with pytest.raises((IndexError, InputError)):
        plain.kernel(rows)
    with pytest.raises((IndexError, InputError)):
        plain.kernel(TRAIN).against(rows)


@pytest.mark.parametrize("none", [[], np.zeros(24, bool)], ids=["list", "mask"])
def test_no_test_rows_are_an_empty_kernel_or_a_named_error(plain: DistanceMatrix, none: Any) -> None:
    view = plain.kernel(TRAIN)
    with suppress(InputError):
        assert view.against(none).shape == (0, 10)


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        ({"bandwidth": "avg"}, "bandwidth='avg': must be one of"),
        ({"bandwidth": -1.0}, "bandwidth=-1.0: must be a number"),
        ({"factor": 0}, "factor=0: must be a number"),
    ],
)
def test_settings_that_cannot_be(plain: DistanceMatrix, settings_: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        plain.kernel(TRAIN, **settings_)


@pytest.mark.parametrize("rule", ["mean", "median", "paper"])
def test_copies_of_one_sample_have_no_bandwidth(plain: DistanceMatrix, rule: str) -> None:
    with pytest.raises(InputError, match=rf"bandwidth='{rule}' gives delta = 0, because all samples are identical"):
        plain.kernel([3, 3, 3], bandwidth=rule)


def test_the_bandwidth_does_not_follow_the_tiles_beyond_rounding() -> None:
    deltas = [opened("float64", edge).kernel(TRAIN).delta for edge in (2, 5, 16, 64)]
    assert deltas == pytest.approx([deltas[0]] * 4, rel=1e-14)


def test_a_model_is_fitted_on_a_view(plain: DistanceMatrix) -> None:
    train = np.arange(24) % 3 > 0
    y = plain.labels
    view = plain.kernel(train, bandwidth="median")
    kernel = DistanceKernel(bandwidth="median")
    K = kernel.fit_transform(plain[train, train])
    on_view = CKSC(sparsity=3, random_state=0).fit(view, y[train])
    on_array = CKSC(sparsity=3, random_state=0).fit(K, y[train])
    assert on_view.objective_history_.tolist() == on_array.objective_history_.tolist()
    np.testing.assert_array_equal(on_view.dictionary_.toarray(), on_array.dictionary_.toarray())
    K_test = kernel.transform(plain[~train, train])
    np.testing.assert_array_equal(on_view.class_shares(view.against(~train)), on_array.class_shares(K_test))
    assert on_view.predict(view.against(~train)).tolist() == on_array.predict(K_test).tolist()
