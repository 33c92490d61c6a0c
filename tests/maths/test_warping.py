"""Warping paths: as cheap as the distance says, in one piece from the first frames to the last."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from dtaidistance import dtw_ndim
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cksc_dist import pairwise_dtw
from cksc_dist.errors import InputError
from cksc_dist.maths.dtw_naive import window_frames
from cksc_dist.maths.warping import warping_path
from cksc_dist.spec import DistanceSpec

Float = NDArray[np.float64]

windows = st.one_of(st.none(), st.integers(1, 9), st.sampled_from([0.1, 0.3, 1.0]))
costs = st.sampled_from(["squared", "abs"])


@st.composite
def pairs_of_series(draw: st.DrawFn) -> tuple[Float, Float]:
    """Two walks; whole numbers among them, so that several paths cost the same."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    dims = draw(st.sampled_from([1, 2, 5]))
    walks = [rng.standard_normal((draw(st.integers(1, 24)), dims)).cumsum(axis=0) for _ in range(2)]
    return tuple(walk.round() if draw(st.booleans()) else walk for walk in walks)  # type: ignore[return-value]


def local_cost(a: Float, b: Float, spec: DistanceSpec) -> float:
    difference = a - b
    return float((difference**2 if spec.cost == "squared" else np.abs(difference)).sum())


def cost_along(path: Any, a: Float, b: Float, spec: DistanceSpec) -> float:
    return sum(local_cost(a[i], b[j], spec) for i, j in path)


def distance(a: Float, b: Float, spec: DistanceSpec) -> float:
    """Return what a path costs, as the recurrence that is written down plainly has it."""
    value = float(pairwise_dtw([a], [b], window=spec.window, cost=spec.cost, engine="naive")[0, 0])
    return value**2 if spec.cost == "squared" else value


@settings(max_examples=150, deadline=None)
@given(pairs_of_series(), windows, costs)
def test_a_path_costs_what_the_distance_says(pair: tuple[Float, Float], window: Any, cost: Any) -> None:
    (a, b), spec = pair, DistanceSpec(window=window, cost=cost)
    path = warping_path(a, b, spec)
    assert cost_along(path, a, b, spec) == pytest.approx(distance(a, b, spec), rel=1e-10, abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(pairs_of_series(), windows, costs)
def test_a_path_goes_from_the_first_frames_to_the_last_and_never_back(
    pair: tuple[Float, Float], window: Any, cost: Any
) -> None:
    (a, b), spec = pair, DistanceSpec(window=window, cost=cost)
    path = warping_path(a, b, spec)
    assert path.dtype == np.int64
    assert path[0].tolist() == [0, 0]
    assert path[-1].tolist() == [len(a) - 1, len(b) - 1]
    steps = {(int(i - k), int(j - m)) for (k, m), (i, j) in pairwise(path)}
    assert steps <= {(1, 1), (1, 0), (0, 1)}
    frames = window_frames(window, len(a), len(b))
    if frames is not None:
        ahead = path[:, 1] - path[:, 0]
        assert -(max(0, len(a) - len(b)) + frames) < ahead.min()
        assert ahead.max() < max(0, len(b) - len(a)) + frames


@settings(max_examples=60, deadline=None)
@given(pairs_of_series(), st.one_of(st.none(), st.integers(1, 9)))
def test_a_path_costs_what_that_of_dtaidistance_does(pair: tuple[Float, Float], window: int | None) -> None:
    """Where several are cheapest, the two may differ in the frames, but not in what they cost."""
    (a, b), spec = pair, DistanceSpec(window=window)
    theirs = dtw_ndim.warping_path(a, b, window=window)
    ours = warping_path(a, b, spec)
    assert cost_along(ours, a, b, spec) == pytest.approx(cost_along(theirs, a, b, spec), rel=1e-10, abs=1e-12)


def all_paths(i: int, j: int) -> list[list[tuple[int, int]]]:
    """Return every way from (0, 0) to (i, j)."""
    if i < 0 or j < 0:
        return []
    if i == j == 0:
        return [[(0, 0)]]
    before = all_paths(i - 1, j - 1) + all_paths(i - 1, j) + all_paths(i, j - 1)
    return [[*path, (i, j)] for path in before]


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 4), (5, 1), (4, 4), (5, 3), (3, 6)])
@pytest.mark.parametrize("cost", ["squared", "abs"])
def test_none_of_all_paths_is_cheaper(n: int, m: int, cost: Any) -> None:
    rng = np.random.default_rng(10 * n + m)
    a, b, spec = rng.standard_normal((n, 2)), rng.standard_normal((m, 2)), DistanceSpec(cost=cost)
    cheapest = min(all_paths(n - 1, m - 1), key=lambda path: cost_along(path, a, b, spec))
    assert warping_path(a, b, spec).tolist() == [list(cell) for cell in cheapest]


def test_of_equal_ways_the_diagonal_is_taken() -> None:
    same = np.zeros((5, 1))
    assert warping_path(same, same).tolist() == [[k, k] for k in range(5)]
    assert warping_path(same, same[:3]).tolist() == [[0, 0], [1, 0], [2, 0], [3, 1], [4, 2]]


def test_the_path_of_exchanged_series_is_the_mirror() -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((17, 3)), rng.standard_normal((11, 3))
    assert (warping_path(b, a) == warping_path(a, b)[:, ::-1]).all()


def test_a_frame_that_stays_is_laid_beside_all_its_copies() -> None:
    slow = np.array([[0.0], [1.0], [1.0], [1.0], [5.0]])
    assert warping_path(slow, np.array([[0.0], [1.0], [5.0]])).tolist() == [[0, 0], [1, 1], [2, 1], [3, 1], [4, 2]]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((3, 2), (4, 1)), r"series of shapes \(3, 2\) and \(4, 1\): give two of \(time, dims\), with the same dims"),
        (((3,), (3,)), r"series of shapes \(3,\) and \(3,\): give two of \(time, dims\)"),
        (((0, 2), (3, 2)), r"series of shapes \(0, 2\) and \(3, 2\)"),
        (((3, 2), (0, 2)), r"series of shapes \(3, 2\) and \(0, 2\)"),
    ],
)
def test_what_are_no_two_series_is_told(shapes: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        warping_path(np.zeros(shapes[0]), np.zeros(shapes[1]))


@pytest.mark.parametrize(("value", "size"), [(1e200, "1e\\+200"), (np.inf, "inf"), (np.nan, "nan")])
def test_numbers_that_end_are_told(value: float, size: str) -> None:
    """Without a word, the way back through sums that are all infinite would leave the series."""
    strange = np.array([[0.0], [value], [1.0]])
    with pytest.raises(InputError, match=f"no path has a finite cost: the series have values of up to {size}; leave"):
        warping_path(strange, np.array([[0.0], [-1.0]]))
