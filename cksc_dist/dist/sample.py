"""A timed sample of pairs: how fast this machine computes and writes tiles of a plan, before the work starts.

It decides how many tiles a task takes, which executor is used, and the forecast; never a chunk or a value.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray

from cksc_dist.dist.plan import LANES, Plan, Rate, Todo
from cksc_dist.dist.tile_work import compute_values
from cksc_dist.errors import PlanError, StoreAwayError, StoreError
from cksc_dist.processes import PARTIAL
from cksc_dist.store.folder import Folder
from cksc_dist.store.layout import compressors
from cksc_dist.store.ledger import checksum
from cksc_dist.store.matrix_files import transposed
from cksc_dist.store.series_files import StoredSeries

__all__ = ["average", "few_tiles", "sample_rate", "sample_with_threads"]

SAMPLE_CELLS = 10**8
"""Cells of one piece that is timed: a few hundredths of a second."""
SAMPLE_SECONDS = 0.4
MOST_SAMPLES = 12
MOST_WRITTEN = 4


def sample_rate(series: StoredSeries, plan: Plan, seed: int = 0) -> Rate:
    """Compute and write pieces of some tiles of a plan, chosen by a seed, and return how fast that went."""
    cells, pieces = _compute(series, plan, seed)
    return Rate(cells, *_write(series.folder, pieces))


def sample_with_threads(series: StoredSeries, plan: Plan, threads: int) -> Rate:
    """Take the sample with several threads at once, as the work will run.

    Threads that write wait for each other's Python code, processes only for memory and disk: what several threads take
    is too much for them, what one takes alone too little, and the truth lies between.
    """
    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(lambda seed: _compute(series, plan, seed), range(threads)))
        alone, ratio = _write(series.folder, found[0][1])
        together = list(pool.map(lambda item: _write(series.folder, item[1])[0], found))
    return Rate(float(np.mean([cells for cells, _ in found])), float(np.sqrt(alone * np.mean(together))), ratio)


def few_tiles(plan: Plan) -> Plan:
    """Return the plan of a few tiles of a plan, drawn at random, for samples alone."""
    drawn = np.random.default_rng(0).permutation(len(plan.todo))[: 4 * MOST_SAMPLES]
    chosen = [plan.todo[k] for k in drawn]
    return Plan(plan.grid, plan.lengths, plan.dims, plan.spec, chosen, plan.stored_dims)


def average(rates: Sequence[Rate]) -> Rate:
    """Return the mean of what several workers found."""
    return Rate(*(float(np.mean([getattr(rate, field.name) for rate in rates])) for field in fields(Rate)))


def _compute(series: StoredSeries, plan: Plan, seed: int) -> tuple[float, list[NDArray[Any]]]:
    """Return cells a second, and the values that were computed on the way."""
    chosen = np.random.default_rng(seed).permutation(len(plan.todo))[:MOST_SAMPLES]
    _compute_piece(series, plan, plan.todo[chosen[0]])  # compiles
    cells, seconds, pieces = 0, 0.0, []
    for k in chosen:
        count, taken, values = _compute_piece(series, plan, plan.todo[k])
        cells += count
        seconds += taken
        pieces.append(values)
        if seconds > SAMPLE_SECONDS:
            break
    return max(cells, 1) / max(seconds, 1e-9), pieces


def _compute_piece(series: StoredSeries, plan: Plan, todo: Todo) -> tuple[int, float, NDArray[Any]]:
    """Compute the first rows and columns of a tile; return their cells, the seconds they took, and the values."""
    height, width = _block(plan, todo)
    while True:
        try:
            return _compute_block(series, plan, todo, height, width)
        except MemoryError as error:
            if max(height, width) <= LANES:
                raise PlanError(
                    f"memory runs out even with {LANES} series at a time; start fewer workers, each with more memory"
                ) from error
        height, width = _part(height, 0.5), _part(width, 0.5)


def _block(plan: Plan, todo: Todo) -> tuple[int, int]:
    """Return how many rows and columns of a tile are timed: all columns, unless even a few rows of them take long."""
    height, width = (plan.grid.size(block) for block in todo.tile)
    height = _part(height, SAMPLE_CELLS / max(1, plan.cells(Todo(todo.tile))))
    return height, _part(width, SAMPLE_CELLS / max(1, plan.cells_of_block(todo.tile, height, width)))


def _part(size: int, share: float) -> int:
    """Return about a share of some series, in whole lanes and at least so many."""
    return min(size, max(LANES, int(size * share) // LANES * LANES))


def _compute_block(
    series: StoredSeries, plan: Plan, todo: Todo, height: int, width: int
) -> tuple[int, float, NDArray[Any]]:
    (row, _), (column, _) = (plan.grid.rows(block) for block in todo.tile)
    rows, columns = (row, row + height), (column, column + width)
    # read before the clock starts: a worker reads a block once for many tiles
    held = {rows: series.read(*rows), columns: series.read(*columns)}
    begin = time.perf_counter()
    values = compute_values(lambda first, last: held[first, last], rows, columns, plan.spec)
    return plan.cells_of_block(todo.tile, height, width), time.perf_counter() - begin, values


def _write(folder: Folder, pieces: list[NDArray[Any]]) -> tuple[float, float]:
    """Return the seconds to store one byte of values, and the bytes on disk for it."""
    pieces = pieces[:MOST_WRITTEN]
    _write_piece(folder, pieces[0])
    begin = time.perf_counter()
    stored = sum(_write_piece(folder, values) for values in pieces)
    seconds = time.perf_counter() - begin
    raw = sum(values.nbytes for values in pieces)
    return seconds / raw, stored / raw


def _write_piece(folder: Folder, values: NDArray[Any]) -> int:
    """Store values as a chunk is stored, forget it, and return its bytes."""
    checksum(values)
    memory = zarr.storage.MemoryStore()
    array = zarr.create_array(
        memory,
        shape=values.shape,
        chunks=values.shape,
        dtype=values.dtype,
        compressors=compressors(values.itemsize),
        config={"write_empty_chunks": True},
    )
    array[...] = transposed(values).reshape(values.shape)
    content = next(buffer for key, buffer in memory._store_dict.items() if key.startswith("c/")).to_bytes()
    name = f"sample.{uuid.uuid4().hex}{PARTIAL}"  # swept up with the rest, should this process be killed here
    try:
        folder.write(name, content)
        folder.remove(name)
    except (OSError, StoreError, StoreAwayError):  # to plan, a store need not be writable
        pass
    return len(content)
