"""The mean distance from sums of tiles: the same bits whoever reads them, in whatever order, wherever tiles begin."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.kernel import bandwidth
from cksc_dist.spec import KernelSpec
from cksc_dist.store.bandwidth import as_slice, block_sums, delta_of_mean, row_blocks
from tests import naive_kernel


class ArrayDistances:
    """A matrix in memory with tiles of some size, and a note of what is read."""

    def __init__(self, D: NDArray[Any], edge: int) -> None:
        self._D, self.tile_edge = D, edge
        self.dtype = D.dtype
        self.seen = np.zeros(D.shape, dtype=int)

    def __len__(self) -> int:
        return len(self._D)

    def __getitem__(self, key: Any) -> NDArray[Any]:
        rows, columns = (np.arange(len(self))[part] for part in key)
        self.seen[np.ix_(rows, columns)] += 1
        part: NDArray[Any] = self._D[np.ix_(rows, columns)]
        return part


def made(n: int, dtype: str = "float64", seed: int = 0) -> NDArray[Any]:
    points = np.random.default_rng(seed).standard_normal((n, 3))
    D = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    return np.asarray(np.triu(D, 1) + np.triu(D, 1).T, dtype=dtype)


def sums_of(distances: ArrayDistances, rows: NDArray[np.int64], rule: str = "mean") -> list[float]:
    blocks = len(row_blocks(rows, distances.tile_edge))
    return [part for number in range(blocks) for part in block_sums(distances, rows, number, rule)]


some_rows = st.lists(st.integers(0, 59), min_size=2, max_size=60, unique=True).map(lambda rows: np.array(sorted(rows)))


@settings(max_examples=60, deadline=None)
@given(rows=some_rows, edge=st.integers(1, 70), rule=st.sampled_from(["mean", "paper", "squares"]))
def test_delta_is_that_of_all_pairs(rows: NDArray[np.int64], edge: int, rule: str) -> None:
    D = made(60)
    found = delta_of_mean(sums_of(ArrayDistances(D, edge), rows, rule), len(rows), KernelSpec(bandwidth=rule))
    part = D[np.ix_(rows, rows)]
    assert found == pytest.approx(naive_kernel.bandwidth(part, rule), rel=1e-13)  # type: ignore[no-untyped-call]
    assert found == pytest.approx(bandwidth(part, rule), rel=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_order_in_which_tiles_are_read_changes_no_bit(dtype: str) -> None:
    sums = sums_of(ArrayDistances(made(60, dtype), 7), np.arange(60))
    mixed = sums.copy()
    found = set()
    for seed in range(50):
        random.Random(seed).shuffle(mixed)
        found.add(delta_of_mean(mixed, 60, KernelSpec()))
    assert len(found) == 1
    plain = {sum(random.Random(seed).sample(sums, len(sums))) for seed in range(50)}
    assert dtype == "float32" or len(plain) > 1  # so that there is something to see


@settings(max_examples=40, deadline=None)
@given(rows=some_rows, edge=st.integers(1, 70))
def test_only_one_half_is_read_and_once(rows: NDArray[np.int64], edge: int) -> None:
    distances = ArrayDistances(made(60), edge)
    sums_of(distances, rows)
    block = rows // edge
    expected = np.zeros((60, 60), dtype=int)
    expected[np.ix_(rows, rows)] = block[:, None] <= block[None, :]
    assert np.array_equal(distances.seen, expected)


def test_float32_distances_are_summed_in_float64() -> None:
    D = np.full((400, 400), 0.1, np.float32)
    np.fill_diagonal(D, 0.0)
    found = delta_of_mean(sums_of(ArrayDistances(D, 400), np.arange(400)), 400, KernelSpec(bandwidth="paper"))
    assert found == pytest.approx(float(np.float32(0.1)) * 399 / 400, rel=1e-14)


@settings(max_examples=60, deadline=None)
@given(rows=some_rows, edge=st.integers(1, 70))
def test_blocks_are_the_rows_of_each_tile(rows: NDArray[np.int64], edge: int) -> None:
    blocks = row_blocks(rows, edge)
    assert [row for a, b in blocks for row in rows[a:b]] == rows.tolist()
    tiles = [set((rows[a:b] // edge).tolist()) for a, b in blocks]
    assert all(len(tile) == 1 for tile in tiles)
    assert len(set.union(*tiles)) == len(tiles)


@settings(max_examples=60, deadline=None)
@given(rows=some_rows)
def test_a_slice_names_the_same_rows(rows: NDArray[np.int64]) -> None:
    found = as_slice(rows)
    assert np.array_equal(np.arange(60)[found], rows)
    assert isinstance(found, slice) == (rows[-1] - rows[0] == len(rows) - 1)


@pytest.mark.parametrize("rows", [[3, 2], [2, 4, 3], [1, 1, 2], [5, 5], [0, 0, 1, 3]])
def test_rows_that_do_not_follow_each_other_are_no_slice(rows: list[int]) -> None:
    assert not isinstance(as_slice(np.array(rows)), slice)


def test_no_rows_are_no_slice() -> None:
    assert not isinstance(as_slice(np.array([], dtype=np.int64)), slice)


@pytest.mark.parametrize("rule", ["median", 2.5])
def test_other_rules_do_not_come_from_the_mean(rule: Any) -> None:
    with pytest.raises(InputError, match="does not come from the mean distance"):
        delta_of_mean([1.0], 2, KernelSpec(bandwidth=rule))


def test_distances_that_are_all_zero_are_told() -> None:
    with pytest.raises(InputError, match="delta = 0"):
        delta_of_mean(sums_of(ArrayDistances(np.zeros((8, 8)), 3), np.arange(8)), 8, KernelSpec())
