from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cksc_dist.dist.plan import BASE_BYTES, LANES, LARGEST_EDGE, Plan, Rate, Todo, tile_edge
from cksc_dist.errors import InputError, PlanError
from cksc_dist.spec import DistanceSpec
from cksc_dist.store.grid import Grid
from tests import naive_plan

DTW = DistanceSpec().resolved()
RATE = Rate(cells=1e6, write_seconds=0.0, ratio=0.8)
PAST_32_BITS = 46_342
MIB = 2**20


def even_plan(tiles_a_side: int, *, edge: int = 16, length: int = 10) -> Plan:
    """Return a plan whose tiles off the diagonal all cost the same."""
    n = tiles_a_side * edge
    return Plan(Grid(n, edge), np.full(n, length), 1, DTW)


# costs


@st.composite
def grown_tiles(draw: st.DrawFn) -> tuple[list[int], int, tuple[int, int], tuple[int, int]]:
    lengths = draw(st.lists(st.integers(1, 60), min_size=2, max_size=40))
    edge = draw(st.integers(1, 16))
    grid = Grid(len(lengths), edge)
    i = draw(st.integers(0, grid.blocks - 1))
    j = draw(st.integers(i, grid.blocks - 1))
    rows = draw(st.integers(0, grid.size(i)))
    columns = rows if i == j else draw(st.integers(0, grid.size(j)))
    return lengths, edge, (i, j), (rows, columns)


@given(case=grown_tiles(), dims=st.integers(1, 5))
@settings(max_examples=150, deadline=None)
def test_a_tile_costs_what_its_pairs_cost(
    case: tuple[list[int], int, tuple[int, int], tuple[int, int]], dims: int
) -> None:
    lengths, edge, tile, kept = case
    plan = Plan(Grid(len(lengths), edge), np.array(lengths), dims, DTW)
    todo = Todo(tile, kept)
    assert plan.cells(todo) == naive_plan.cells(lengths, dims, edge, tile, kept)
    assert plan.pairs(todo) == len(list(naive_plan.pairs_to_compute(len(lengths), edge, tile, kept)))


@pytest.mark.parametrize("metric", ["euclidean", "chi2"])
def test_a_tile_of_vectors_costs_what_its_pairs_cost(metric: str) -> None:
    grid = Grid(37, 16)
    spec = DistanceSpec(metric=metric)  # type: ignore[arg-type]
    plan = Plan(grid, np.full(37, 9), 3, spec)
    for tile in grid.all_tiles():
        for kept in [(0, 0), (2, 2), (5, 5)]:
            assert plan.cells(Todo(tile, kept)) == naive_plan.vector_cells(9, 37, 3, 16, tile, kept)


def test_all_tiles_together_are_every_pair_once() -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 400, 333)
    plan = Plan(Grid(333, 48), lengths, 7, DTW)
    need = plan.need(RATE, 1, None)
    total = int(lengths.sum())
    assert need.pairs == 333 * 332 // 2
    assert need.cells == (total * total - int((lengths**2).sum())) // 2 * 7
    assert need.tiles == 7 * 8 // 2


@given(
    old=st.integers(1, 60),
    new=st.integers(1, 40),
    edge=st.sampled_from([1, 3, 16]),
)
@settings(max_examples=60, deadline=None)
def test_grown_tiles_are_the_pairs_with_a_new_series(old: int, new: int, edge: int) -> None:
    before, after = Grid(old, edge), Grid(old + new, edge)
    lengths = np.random.default_rng(old * 100 + new).integers(1, 30, old + new)
    todo = []
    for tile in after.all_tiles():
        sizes = tuple(before.size(block) if block < before.blocks else 0 for block in tile)
        kept = (0, 0) if 0 in sizes else sizes
        if kept != (after.size(tile[0]), after.size(tile[1])):
            todo.append(Todo(tile, (kept[0], kept[1])))
    plan = Plan(after, lengths, 2, DTW, todo)
    need = plan.need(RATE, 2, None)
    assert need.pairs == new * old + new * (new - 1) // 2
    whole = Plan(after, lengths, 2, DTW).need(RATE, 2, None).cells
    assert need.cells == whole - Plan(before, lengths[:old], 2, DTW).need(RATE, 2, None).cells


# past 32 bits, without computing


@pytest.mark.parametrize("n", [PAST_32_BITS - 1, PAST_32_BITS, 200_000])
@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_counts_do_not_overflow(n: int, kind: type[np.integer]) -> None:
    lengths = np.full(n, 3000, kind)
    grid = Grid(n, tile_edge(lengths, 50, DTW))
    last = grid.blocks - 1
    beside, corner = Todo((0, last)), Todo((last, last))
    plan = Plan(grid, lengths, 50, DTW, [beside, corner])
    rest = n - last * grid.edge
    assert plan.cells(beside) == grid.edge * rest * 3000 * 3000 * 50
    assert plan.cells(corner) == rest * (rest - 1) // 2 * 3000 * 3000 * 50
    assert [grid.tile(grid.number(todo.tile)) for todo in plan.todo] == [(0, last), (last, last)]


@pytest.mark.parametrize("n", [PAST_32_BITS, 120_000])
def test_the_whole_matrix_is_counted_past_32_bits(n: int) -> None:
    lengths = np.full(n, 100_000)
    plan = Plan(Grid(n, 1024), lengths, 9, DTW)
    need = plan.need(RATE, 2, None)
    assert need.pairs == n * (n - 1) // 2 > 2**30
    assert need.cells == n * (n - 1) // 2 * 10**10 * 9 > 2**63  # past 64 bits, too
    assert need.disk == int(n * n * 8 * 0.8)
    assert plan.disk_bytes() == n * n * 8
    assert need.seconds == pytest.approx(need.cells / 1e6 / 2, rel=1e-9)


def test_a_tile_at_the_end_of_ten_million_series() -> None:
    n, edge = 10_000_000, 1024
    lengths = np.full(n, 1_000_000)
    last = Grid(n, edge).blocks - 1
    plan = Plan(Grid(n, edge), lengths, 3, DTW, [Todo((last - 1, last))])
    rest = n - last * edge
    need = plan.need(RATE, 1, None)
    assert (need.tiles, need.pairs) == (1, edge * rest)
    assert need.cells == edge * rest * 10**12 * 3
    assert need.disk == int(n * n * 8 * 0.8)


# edges


@given(
    n=st.integers(1, 3000),
    longest=st.integers(1, 3000),
    dims=st.integers(1, 200),
    window=st.sampled_from([None, 0.1, 1.0, 1, 50]),
    metric=st.sampled_from(["dtw", "euclidean", "chi2"]),
)
@settings(max_examples=150, deadline=None)
def test_a_tile_is_whole_lanes_within_limits(
    n: int, longest: int, dims: int, window: float | None, metric: str
) -> None:
    lengths = np.random.default_rng(n).integers(1, longest, n, endpoint=True)
    spec = DistanceSpec(metric=metric, window=window if metric == "dtw" else None)  # type: ignore[arg-type]
    edge = tile_edge(lengths, dims, spec)
    assert edge % LANES == 0
    assert LANES <= edge <= min(LARGEST_EDGE, n + LANES - 1 if n > LANES else LANES)
    # a function of the series and the settings: neither of their order nor of when it is asked
    assert edge == tile_edge(lengths[::-1], dims, spec) == tile_edge(lengths.copy(), dims, spec)


def test_more_work_a_pair_makes_smaller_tiles() -> None:
    n = 20_000
    edges = [tile_edge(np.full(n, length), 6, DTW) for length in (5, 50, 200, 1000)]
    assert edges == sorted(edges, reverse=True)
    assert edges[0] > edges[-1]
    slow, band = DistanceSpec(engine="dtaidistance"), DistanceSpec(window=0.05)
    lengths = np.full(n, 100)
    assert tile_edge(lengths, 6, slow) < tile_edge(lengths, 6, DTW) < tile_edge(lengths, 6, band)


def test_auto_has_the_tiles_of_the_engine_that_it_stands_for() -> None:
    lengths = np.random.default_rng(0).integers(20, 90, 700)
    for engine in ("auto", "simd"):
        assert tile_edge(lengths, 4, DistanceSpec(engine=engine)) == tile_edge(lengths, 4, DTW)


# tasks


def task_seconds(plan: Plan, tasks: list[list[Todo]], rate: Rate) -> list[float]:
    return [sum(sum(plan.seconds(todo, rate)) for todo in task) for task in tasks]


@given(
    n=st.integers(2, 300),
    cells=st.floats(1e2, 1e8),
    write=st.floats(0, 1e-4),
    slots=st.integers(1, 64),
)
@settings(max_examples=80, deadline=None)
def test_tasks_hold_every_tile_once_largest_first(n: int, cells: float, write: float, slots: int) -> None:
    rate = Rate(cells, write, 1.0)
    plan = Plan(Grid(n, 16), np.random.default_rng(n).integers(1, 50, n), 3, DTW)
    tasks = plan.tasks(rate, slots)
    assert sorted(todo.tile for task in tasks for todo in task) == list(plan.grid.all_tiles())
    seconds = task_seconds(plan, tasks, rate)
    assert all(a >= b - 1e-9 * a for a, b in pairwise(seconds))
    for task in tasks:  # neighbours, which share series
        numbers = [plan.grid.number(todo.tile) for todo in task]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert plan.need(rate, slots, None).tasks == len(tasks)


def test_tiny_tiles_make_tasks_of_half_a_second_or_more() -> None:
    plan = even_plan(40)
    rate = Rate(plan.cells(Todo((0, 1))) / 0.01, 0.0, 1.0)  # a hundredth of a second a tile
    tasks = plan.tasks(rate, 1)
    seconds = sorted(task_seconds(plan, tasks, rate))
    assert len(tasks) > 10
    assert all(0.49 <= each <= 0.55 for each in seconds[1:])  # but for the last one, which is what was left


def test_much_work_makes_tasks_of_five_seconds_at_most() -> None:
    plan = even_plan(60)
    rate = Rate(plan.cells(Todo((0, 1))) / 1.0, 0.0, 1.0)  # a second a tile, half an hour in all
    seconds = task_seconds(plan, plan.tasks(rate, 1), rate)
    assert max(seconds) <= 5.0 + 1e-6
    assert np.median(seconds) > 4.0


@pytest.mark.parametrize("tile_seconds", [0.02, 0.1, 0.3, 0.5, 0.6])
@pytest.mark.parametrize("slots", [2, 8])
def test_every_worker_has_twenty_tasks_where_there_is_enough_work(tile_seconds: float, slots: int) -> None:
    plan = even_plan(30)
    rate = Rate(plan.cells(Todo((0, 1))) / tile_seconds, 0.0, 1.0)
    total = sum(task_seconds(plan, plan.tasks(rate, slots), rate))
    if total / (20 * slots) < 0.5:
        assert len(plan.tasks(rate, slots)) >= 0.9 * total  # tasks of half a second are small enough
    else:
        assert len(plan.tasks(rate, slots)) >= 20 * slots


@pytest.mark.parametrize("tile_seconds", [2.0, 3.0, 4.0])
def test_no_task_of_several_tiles_takes_more_than_five_seconds(tile_seconds: float) -> None:
    plan = even_plan(40)
    rate = Rate(plan.cells(Todo((0, 1))) / tile_seconds, 0.0, 1.0)
    tasks = plan.tasks(rate, 1)
    several = [each for each, task in zip(task_seconds(plan, tasks, rate), tasks, strict=True) if len(task) > 1]
    assert all(each <= 5.0 + 1e-6 for each in several)


def test_a_tile_that_takes_longer_is_a_task_of_its_own() -> None:
    plan = even_plan(4)
    rate = Rate(plan.cells(Todo((0, 1))) / 60.0, 0.0, 1.0)
    assert sorted(len(task) for task in plan.tasks(rate, 1)) == [1] * 10


def test_nothing_to_do_needs_nothing() -> None:
    plan = Plan(Grid(100, 16), np.full(100, 5), 2, DTW, [])
    need = plan.need(RATE, 4, None)
    assert (need.tiles, need.pairs, need.cells, need.tasks, need.seconds) == (0, 0, 0, 0, 0.0)
    assert plan.tasks(RATE, 4) == []


# forecast


def test_time_falls_with_workers_until_one_tile_each() -> None:
    plan = even_plan(12)
    one, two, many = (plan.need(RATE, slots, None).seconds for slots in (1, 2, 10_000))
    assert two == pytest.approx(one / 2)
    assert many == pytest.approx(max(sum(plan.seconds(todo, RATE)) for todo in plan.todo))


def test_writing_is_part_of_the_time_and_mirrors_count() -> None:
    plan = even_plan(3)
    rate = Rate(1e6, 1e-6, 0.5)
    need = plan.need(rate, 1, None)
    square = 48 * 48 * 8
    assert plan.disk_bytes() == square
    assert need.writing == pytest.approx(square * 1e-6)
    assert need.seconds == pytest.approx(need.cells / 1e6 + need.writing)
    assert need.disk == square // 2


def test_float32_halves_the_disk() -> None:
    lengths = np.full(100, 9)
    sizes = [
        Plan(Grid(100, 16), lengths, 2, DistanceSpec(dtype=dtype)).need(RATE, 1, None).disk
        for dtype in ("float64", "float32")
    ]
    assert sizes[0] == 2 * sizes[1]


def test_repr_says_what_there_is_to_do() -> None:
    plan = Plan(Grid(50_000, 1024), np.full(50_000, 3), 1, DTW, [Todo((0, 0))])
    assert repr(plan) == "Plan(50,000 series, 1 of 1,225 tiles of 1024 to compute)"


# memory


def long_series() -> Plan:
    """Return a plan in which whole tiles need much more memory than pieces of them."""
    return Plan(Grid(400, 128), np.full(400, 20_000), 30, DTW)


def test_enough_memory_takes_whole_tiles() -> None:
    plan = long_series()
    assert plan.piece(None) is None
    assert plan.piece(10**12) is None
    assert plan.need(RATE, 1, None).memory > BASE_BYTES + 2 * 128 * 20_000 * 30 * 8


def test_less_memory_takes_pieces_that_fit() -> None:
    plan = long_series()
    whole = plan.need(RATE, 1, None).memory
    pieces = []
    for memory in range(whole, BASE_BYTES, -whole // 12):
        try:
            pieces.append(plan.piece(memory) or plan.grid.edge)
        except PlanError:
            break
        assert plan.need(RATE, 1, memory).memory <= memory
    assert pieces[0] == 128
    assert len(set(pieces)) > 3
    assert pieces == sorted(pieces, reverse=True)
    assert all(piece % LANES == 0 for piece in pieces)


def test_too_little_memory_is_refused_and_the_advice_works() -> None:
    plan = long_series()
    with pytest.raises(
        PlanError,
        match=r"a worker needs [\d,]+ MiB, but may use 100 MiB; start fewer workers, each with --memory \d+MiB",
    ) as refused:
        plan.piece(100 * MIB)
    assert isinstance(refused.value, InputError)
    advised = int(str(refused.value).split("--memory ")[1].split("MiB")[0])
    assert plan.piece(advised * MIB) == LANES
    with pytest.raises(PlanError):
        plan.piece((advised - 1) * MIB)
    with pytest.raises(PlanError):
        plan.need(RATE, 1, 100 * MIB)


def test_a_few_long_series_count_as_what_they_are() -> None:
    """One series of a million frames among short ones must not count for all of them."""
    lengths = np.full(2000, 10)
    lengths[7] = 1_000_000
    plan = Plan(Grid(2000, 256), lengths, 2, DTW)
    assert plan.need(RATE, 1, None).memory < BASE_BYTES + 6 * 2 * (1_000_000 + 512 * 10) * 2 * 8
