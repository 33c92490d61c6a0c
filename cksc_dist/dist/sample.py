"""A timed sample of pairs: how fast this machine computes and writes tiles of a plan, before the work starts.

It decides how many tiles a task takes, which executor is used, and the forecast; never a chunk or a value.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import zarr

from cksc_dist.dist.plan import LANES, Plan, Rate, Todo
from cksc_dist.dist.tile_work import compute_values
from cksc_dist.errors import StoreError
from cksc_dist.store.folder import PARTIAL, Folder
from cksc_dist.store.layout import compressors
from cksc_dist.store.matrix_files import checksum
from cksc_dist.store.series_files import StoredSeries

__all__ = ["average", "sample_rate", "sample_with_threads"]

SAMPLE_CELLS = 10**8
"""Cells of one piece that is timed: a few hundredths of a second."""
SAMPLE_SECONDS = 0.4
MOST_SAMPLES = 12


def sample_rate(series: StoredSeries, plan: Plan, seed: int = 0) -> Rate:
    """Compute and write pieces of some tiles of a plan, chosen by a seed, and return how fast that went."""
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(len(plan.todo))[:MOST_SAMPLES]
    _time_tile(series, plan, plan.todo[chosen[0]])  # compiles
    sums = np.zeros(5)
    begin = time.perf_counter()
    for k in chosen:
        sums += _time_tile(series, plan, plan.todo[k])
        if time.perf_counter() - begin > SAMPLE_SECONDS:
            break
    cells, compute, raw, stored, write = sums
    return Rate(cells=max(cells, 1.0) / max(compute, 1e-9), write_seconds=write / raw, ratio=stored / raw)


def _time_tile(series: StoredSeries, plan: Plan, todo: Todo) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return cells, seconds to compute them, bytes of values, bytes to store, seconds to store, of a part of a tile."""
    i, j = todo.tile
    (row, row_end), columns = plan.grid.rows(i), plan.grid.rows(j)
    cells = max(1, plan.cells(replace(todo, kept=(0, 0))))
    height = row_end - row
    rows = min(height, max(LANES, int(height * SAMPLE_CELLS / cells) // LANES * LANES))
    begin = time.perf_counter()
    values = compute_values(series.read, (row, row + rows), columns, plan.spec)
    middle = time.perf_counter()
    stored = _write(series.folder, values)
    end = time.perf_counter()
    if (row, row + rows) == columns:
        done = plan.cells(Todo(todo.tile))
    else:
        frames = (int(plan.lengths[slice(*span)].sum()) for span in ((row, row + rows), columns))
        done = int(np.prod([*frames], dtype=object)) * plan.dims if plan.spec.metric == "dtw" else rows
        if plan.spec.metric != "dtw":
            done *= (columns[1] - columns[0]) * plan.dims * int(plan.lengths[0])
    return np.array([done, middle - begin, values.nbytes, stored, end - middle])


def _write(folder: Folder, values: np.ndarray[tuple[int, int], np.dtype[np.floating]]) -> int:
    """Store values as a chunk is stored, forget it, and return its bytes."""
    checksum(values)
    memory = zarr.storage.MemoryStore()
    array = zarr.create_array(
        memory, shape=values.shape, chunks=values.shape, dtype=values.dtype, compressors=compressors(values.itemsize)
    )
    array[...] = np.ascontiguousarray(values.T).reshape(values.shape)
    content = next(buffer for key, buffer in memory._store_dict.items() if key.startswith("c/")).to_bytes()
    name = f"sample.{uuid.uuid4().hex}{PARTIAL}"  # swept up with the rest, should this process be killed here
    try:
        folder.write(name, content)
        folder.remove(name)
    except (PermissionError, StoreError):  # to plan, a store need not be writable
        pass
    return len(content)


def sample_with_threads(series: StoredSeries, plan: Plan, threads: int) -> Rate:
    """Take the sample with several threads at once, as the work will run."""
    with ThreadPoolExecutor(threads) as pool:
        return average(list(pool.map(lambda seed: sample_rate(series, plan, seed), range(threads))))


def average(rates: Sequence[Rate]) -> Rate:
    """Return the mean of what several workers found."""
    return Rate(*(float(np.mean([getattr(rate, name) for rate in rates])) for name in ("cells", "write_seconds", "ratio")))
