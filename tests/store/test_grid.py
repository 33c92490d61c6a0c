"""Tiles are counted without gaps or repeats, far beyond where 32 bits end."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cksc_dist.store.grid import Grid

GRIDS = st.builds(Grid, n=st.integers(1, 10**7), edge=st.integers(1, 1024))
SMALL = st.builds(Grid, n=st.integers(1, 60), edge=st.integers(1, 20))


@given(SMALL)
def test_numbers_run_through_the_upper_triangle_row_by_row(grid: Grid) -> None:
    expected = [(i, j) for i in range(grid.blocks) for j in range(grid.blocks) if i <= j]
    assert list(grid.all_tiles()) == expected
    assert [grid.tile(number) for number in range(grid.tiles)] == expected
    assert [grid.number(tile) for tile in expected] == list(range(grid.tiles))


@given(SMALL)
def test_blocks_hold_every_row_once(grid: Grid) -> None:
    rows = [row for block in range(grid.blocks) for row in range(*grid.rows(block))]
    assert rows == list(range(grid.n))
    assert [grid.size(block) for block in range(grid.blocks)] == [
        sum(row // grid.edge == block for row in rows) for block in range(grid.blocks)
    ]


@given(SMALL)
def test_tiles_hold_every_pair_once(grid: Grid) -> None:
    for tile in grid.all_tiles():
        rows, columns = (range(*grid.rows(block)) for block in tile)
        assert grid.pairs(tile) == sum(a < b for a in rows for b in columns)
    assert sum(map(grid.pairs, grid.all_tiles())) == grid.n * (grid.n - 1) // 2


@given(grid=GRIDS, data=st.data())
@example(Grid(46_342, 1), None)
@example(Grid(10**7, 1), None)
@example(Grid(10**7, 16), None)
def test_a_number_and_its_tile_know_each_other(grid: Grid, data: st.DataObject | None) -> None:
    numbers = {0, grid.tiles - 1, grid.tiles // 2}
    if data is not None:
        numbers.add(data.draw(st.integers(0, grid.tiles - 1)))
    for number in numbers:
        i, j = grid.tile(number)
        assert 0 <= i <= j < grid.blocks
        assert grid.number((i, j)) == number


@given(grid=GRIDS, data=st.data())
def test_a_tile_is_followed_by_the_next_one(grid: Grid, data: st.DataObject) -> None:
    i = data.draw(st.integers(0, grid.blocks - 1))
    j = data.draw(st.integers(i, grid.blocks - 1))
    number = grid.number((i, j))
    after = (i, j + 1) if j + 1 < grid.blocks else (i + 1, i + 1)
    assert grid.tile(number) == (i, j)
    if number + 1 < grid.tiles:
        assert grid.tile(number + 1) == after
    else:
        assert (i, j) == (grid.blocks - 1, grid.blocks - 1)


@given(GRIDS)
def test_all_pairs_of_any_number_of_series(grid: Grid) -> None:
    # whole blocks, and what they have with the last, shorter one
    last = grid.blocks - 1
    whole = last * (last - 1) // 2 * (grid.pairs((0, 1)) if last > 1 else 0) + last * (
        grid.pairs((0, 0)) if last else 0
    )
    edge = (last * grid.pairs((0, last)) if last else 0) + grid.pairs((last, last))
    assert whole + edge == grid.n * (grid.n - 1) // 2


@pytest.mark.parametrize("n", [46_341, 46_342, 65_537, 100_000, 10**7])
def test_counts_past_32_bits_are_exact(n: int) -> None:
    grid = Grid(n, 1)
    assert grid.tiles == n * (n + 1) // 2
    assert grid.number((n - 1, n - 1)) == grid.tiles - 1
    assert grid.number((0, n - 1)) == n - 1
    assert grid.number((n // 2, n // 2)) == sum(range(n, n - n // 2, -1))
    assert isinstance(grid.pairs((0, 1)), int)


def test_a_grid_larger_than_its_matrix_has_one_tile() -> None:
    grid = Grid(n=5, edge=16)
    assert (grid.blocks, grid.tiles, grid.rows(0), grid.size(0)) == (1, 1, (0, 5), 5)
    assert grid.pairs((0, 0)) == 10
