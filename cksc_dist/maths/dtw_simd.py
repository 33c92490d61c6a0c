"""The engine ``simd``: an exact DTW matrix, many series at a time in vector lanes, on threads.

One side of the matrix is cut into groups of series that stand side by side in lanes (the *columns*), the other
is taken series by series (the *rows*). Both are sorted by length, so that the lanes of a group end at about the
same frame. A unit of work is some rows against one group; units run on threads in any order. For A against A
only the upper triangle in sorted order is computed; on the diagonal, vectors of lanes that lie wholly below it
are left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.dtw_kernels import MOST_ROW_DIMS, Tile, jit, set_band, sweep, tile_lanes, tile_stride
from cksc_dist.maths.simd import get, put
from cksc_dist.maths.threads import resolve_n_jobs, run_blocks
from cksc_dist.spec import DistanceSpec

__all__ = ["pairwise"]

VECTORS = 2
"""Vectors of lanes side by side in a group."""

ROWS_AT_MOST = 128
"""Rows of a unit, for short series: the longer the columns of the mirror that are written at once, the quicker."""

WORK_A_CALL = 1e9
"""Cells times dims of one call of compiled code: some hundredths of a second, so that Ctrl-C need not wait."""


class Lanes(NamedTuple):
    """Series packed side by side: group g holds series ``g * stride ...`` in the order of their lengths."""

    order: NDArray[np.int64]
    values: NDArray[Any]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


class Rows(NamedTuple):
    """Series packed one after the other, as the kernel wants to broadcast them."""

    order: NDArray[np.int64]
    values: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    padded: NDArray[np.int64]


@jit
def _compute(tiles, units, first, last, metric, rows, lanes, symmetric, shuffled, scratch, distances):
    """Compute the units ``first .. last`` and write their values, and the mirror's where symmetric.

    Parameters
    ----------
    tiles
        High and low tile of the kernel.
    units
        (group of lanes, first row, last row) of each unit.
    metric
        Planes that are warped on their own, dims of each, whether the root is taken, whether path sums are divided
        by the lengths.
    rows, lanes
        `Rows` and `Lanes` as plain tuples, each with the reaches of its series (see dtw_kernels) at the end.
    symmetric, shuffled
        Whether rows and lanes are the same set; whether their order differs from that of the result.
    scratch
        Working arrays that no other thread uses.
    distances
        The result, as one vector.
    """
    planes, dims, rooted, per_length = metric
    a_order, a, a_starts, a_lengths, a_padded, a_reaches = rows
    b_order, b, b_starts, ends, b_reaches = lanes
    span = tile_stride(tiles[0])
    vector = tile_lanes(tiles[0])
    n_columns = len(b_order)
    work, limits, carry, out, block, band = scratch
    for unit in range(first, last):
        g, begin, end = units[unit, 0], units[unit, 1], units[unit, 2]
        e_at = g * span
        used = span if e_at + span <= n_columns else n_columns - e_at
        banded_length = -1
        for i in range(begin, end):
            a_length = a_lengths[i]
            if a_length != banded_length:
                set_band(tiles[0], a_length, a_reaches[i], ends, b_reaches, e_at, band, limits)
                banded_length = a_length
            # lanes up to the diagonal are not needed
            lane = (i + 1 - e_at) // vector * vector if symmetric and i >= e_at else 0
            at = (i - begin) * span
            for plane in range(planes):
                a_at = a_starts[i] + plane * a_padded[i] * dims
                b_at = b_starts[g] + plane * ends[e_at + span - 1] * dims * span
                if used > lane:
                    width = span if used - lane > vector else vector
                    sweep(
                        tiles, width, a, a_at, a_length, dims, b, b_at, ends, e_at, lane,
                        band, limits, work, carry, out,
                    )  # fmt: skip
                for w in range(span):
                    put(block, at + w, out[w] if plane == 0 else get(block, at + w) + out[w])
            if per_length:
                for w in range(span):
                    put(block, at + w, get(block, at + w) / (a_length + get(ends, e_at + w)))
            if rooted:
                for w in range(span):
                    put(block, at + w, np.sqrt(get(block, at + w)))
        for i in range(begin, end):
            row, at = a_order[i] * n_columns, (i - begin) * span
            if symmetric and i >= e_at:
                put(distances, row + a_order[i], 0.0)
            for w in range(i + 1 - e_at if symmetric and i >= e_at else 0, used):
                put(distances, row + (b_order[e_at + w] if shuffled else e_at + w), get(block, at + w))
        if symmetric:
            for w in range(used):
                row = b_order[e_at + w] * n_columns
                for i in range(begin, end if end < e_at + w else e_at + w):
                    put(distances, row + (a_order[i] if shuffled else i), get(block, (i - begin) * span + w))


def _scratch(kind: np.dtype[Any], span: int, frames: int) -> tuple[NDArray[Any], ...]:
    """Return the working arrays of one thread (made here because allocations take long to compile)."""
    floats = [frames * span, 2 * span, 2 * span, span, ROWS_AT_MOST * span]
    return (*(np.empty(shape, kind) for shape in floats), np.zeros(4, np.int64))


def _sorted_order(offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order by length (of equal ones, as they came), and the lengths in that order."""
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    return order, lengths[order]


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def pack_lanes(values: NDArray[Any], offsets: NDArray[np.int64], planes: int, stride: int) -> Lanes:
    """Pack series as [group][plane][frame][dim of the plane][lane], ``stride`` of them a group.

    A lane that ends early repeats its last frame, and the last series fills lanes that are left over.
    """
    order, lengths = _sorted_order(offsets)
    n, dims = len(order), values.shape[1] // planes
    member = np.minimum(np.arange(-(-n // stride) * stride), n - 1).reshape(-1, stride)
    ends = lengths[member]
    longest = ends[:, -1]
    starts = _starts(longest * values.shape[1] * stride)
    packed = np.empty(int(starts[-1]), values.dtype)
    for length in np.unique(longest):
        groups = np.flatnonzero(longest == length)  # neighbours, because of the order
        frame = np.minimum(np.arange(length), ends[groups][:, :, None] - 1) + offsets[order[member[groups]]][:, :, None]
        block = values[frame].reshape(len(groups), stride, length, planes, dims)
        packed[starts[groups[0]] : starts[groups[-1] + 1]] = block.transpose(0, 3, 2, 4, 1).ravel()
    return Lanes(order, packed, starts[:-1], ends.ravel())


def pack_rows(values: NDArray[Any], offsets: NDArray[np.int64], planes: int, high: int, low: int) -> Rows:
    """Pack series as [series][plane][tile][dim of the plane][row of the tile].

    Tiles have ``high`` frames as long as these fit, then ``low`` ones; a series that ends within a low tile repeats
    its last frame.
    """
    order, lengths = _sorted_order(offsets)
    dims = values.shape[1] // planes
    padded = lengths + -(lengths % high) % low
    starts = _starts(padded * values.shape[1])
    packed = np.empty(int(starts[-1]), values.dtype)
    for length in np.unique(lengths):
        series = np.flatnonzero(lengths == length)
        size = int(padded[series[0]])
        frame = np.minimum(np.arange(size), length - 1) + offsets[order[series]][:, None]
        block = values[frame].reshape(len(series), size, planes, dims).transpose(0, 2, 1, 3)
        edge = int(length) // high * high
        parts = [
            part.reshape(len(series), planes, -1, height, dims).swapaxes(3, 4).reshape(len(series), planes, -1)
            for part, height in ((block[:, :, :edge], high), (block[:, :, edge:], low))
            if part.size
        ]
        packed[starts[series[0]] : starts[series[-1] + 1]] = np.concatenate(parts, axis=2).ravel()
    return Rows(order, packed, starts[:-1], lengths, padded)


def _units(n_rows: int, n_columns: int, span: int, rows: int, symmetric: bool) -> NDArray[np.int64]:
    """Return (group, first row, last row) of all units of work, largest groups first."""
    groups = np.arange(-(-n_columns // span))[::-1]
    last = np.minimum(n_rows, (groups + 1) * span) if symmetric else np.full(len(groups), n_rows)
    counts = -(-last // rows)
    begin = (np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)) * rows
    return np.column_stack([np.repeat(groups, counts), begin, np.minimum(begin + rows, np.repeat(last, counts))])


def _tiles(spec: DistanceSpec, dims: int) -> tuple[Tile, Tile]:
    """Return the tiles of the kernel for this metric; their shapes change the speed, never a value."""
    bits = 64 if spec.dtype == "float64" else 32
    lanes = 512 // bits
    form = dims if dims <= MOST_ROW_DIMS else 0
    heights = (4, 1) if form else (8, 2)
    return tuple(  # type: ignore[return-value]
        Tile(rows, VECTORS, lanes, bits, form, spec.cost, spec.window is not None) for rows in heights
    )


def pairwise(
    a: tuple[NDArray[np.float64], NDArray[np.int64]],
    b: tuple[NDArray[np.float64], NDArray[np.int64]] | None,
    spec: DistanceSpec,
    n_jobs: int | None,
) -> NDArray[Any]:
    """Return the matrix of distances of ragged sets (values, offsets); b None: of a with itself."""
    if b is not None and len(b[1]) < len(a[1]):
        # the larger set fills lanes better
        return np.ascontiguousarray(pairwise(b, a, spec, n_jobs).T)
    total_dims = a[0].shape[1]
    planes = total_dims if spec.mode == "independent" else 1
    dims = total_dims // planes
    tiles = _tiles(spec, dims)
    span = tiles[0].stride
    # the row form reads frames as they come, which is what tiles of one frame are
    high, low = (tile.rows for tile in tiles) if tiles[0].dims == 0 else (1, 1)
    kind = np.dtype(spec.dtype)
    row_values = a[0].astype(kind, copy=False)
    rows = pack_rows(row_values, a[1], planes, high, low)
    columns = a if b is None else b
    lanes = pack_lanes(columns[0].astype(kind, copy=False), columns[1], planes, span)
    n_rows, n_columns = len(rows.order), len(lanes.order)
    distances = np.empty((n_rows, n_columns), kind)
    units = _units(n_rows, n_columns, span, _rows_a_unit(n_rows, n_columns, span), b is None)
    reaches = _reaches(spec.window, rows.lengths), _reaches(spec.window, lanes.ends)
    shuffled = bool((np.diff(rows.order) < 0).any() or (np.diff(lanes.order) < 0).any())
    longest = int(max(rows.padded.max(), lanes.ends[-1]))

    metric = (planes, dims, spec.cost == "squared", spec.per_length)

    def compute(first: int, last: int) -> None:
        scratch = _scratch(kind, span, longest)
        # plain tuples, because a class would be part of what the compiled code is cached under
        shared = ((*rows, reaches[0]), (*lanes, reaches[1]), b is None, shuffled, scratch, distances.reshape(-1))
        _compute(tiles, units, first, last, metric, *shared)

    calls = _calls(float(rows.lengths.sum()) * float(lanes.ends.sum()) * total_dims, resolve_n_jobs(n_jobs))
    run_blocks(compute, len(units), -(-len(units) // calls), n_jobs)
    return distances


def _reaches(window: int | float | None, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the window that each length asks for: frames, or a fraction of them rounded up as in dtw_naive."""
    if window is None or isinstance(window, int):
        return np.full(len(lengths), window or 0, np.int64)
    frames: NDArray[np.float64] = np.ceil(window * lengths - 1e-9)
    return np.maximum(frames, 1).astype(np.int64)


def _calls(work: float, jobs: int) -> int:
    """Return into how many calls the units are cut: a few for each thread, none so long that Ctrl-C waits."""
    return max(int(work / WORK_A_CALL), 8 * jobs if jobs > 1 else 1)


def _rows_a_unit(n_rows: int, n_columns: int, span: int) -> int:
    """Return how many rows a unit has: many write the mirror quicker, few share the work more evenly."""
    groups = -(-n_columns // span)
    return max(1, min(ROWS_AT_MOST, n_rows * groups // 256))
