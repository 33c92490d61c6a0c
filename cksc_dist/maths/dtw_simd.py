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
from numba.extending import overload
from numpy.typing import NDArray

from cksc_dist.maths.dtw_kernels import MOST_ROW_DIMS, Tile, jit, sweep, tile_span
from cksc_dist.maths.threads import run_blocks
from cksc_dist.spec import DistanceSpec

__all__ = ["pairwise"]

VECTORS = 2
ROWS_AT_MOST = 16


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
def _pack_lanes(values, offsets, order, planes, stride, starts, ends, out):
    """Fill out[group][plane][frame][dim of the plane][lane]; a lane that ends early repeats its last frame."""
    n = len(order)
    dims = values.shape[1] // planes
    for g in range(len(starts)):
        longest = ends[g * stride + stride - 1]
        for w in range(stride):
            s = order[min(g * stride + w, n - 1)]
            begin, length = offsets[s], offsets[s + 1] - offsets[s]
            for plane in range(planes):
                at = starts[g] + plane * longest * dims * stride + w
                for t in range(longest):
                    frame = begin + min(t, length - 1)
                    for q in range(dims):
                        out[at] = values[frame, plane * dims + q]
                        at += stride


@jit
def _pack_rows(values, offsets, order, planes, high, low, starts, out):
    """Fill out[series][plane][tile][dim of the plane][row of the tile]: high tiles as long as they fit, then low ones.

    A series that ends within a low tile repeats its last frame.
    """
    dims = values.shape[1] // planes
    for i in range(len(order)):
        begin, end = offsets[order[i]], offsets[order[i] + 1]
        at = starts[i]
        for plane in range(planes):
            t = begin
            while t < end:
                height = high if t + high <= end else low
                for q in range(dims):
                    for r in range(height):
                        out[at] = values[t + r if t + r < end else end - 1, plane * dims + q]
                        at += 1
                t += height


def set_band(tile, frames, fraction, a_length, ends, e_at, band, limits):
    """Set low and high of each lane (low < j - i < high), and their least and greatest; for compiled code only."""
    raise RuntimeError("set_band is compiled by Numba and cannot be called from Python")


@overload(set_band)
def _set_band(tile, frames, fraction, a_length, ends, e_at, band, limits):
    def without(tile, frames, fraction, a_length, ends, e_at, band, limits):
        pass

    def within(tile, frames, fraction, a_length, ends, e_at, band, limits):
        stride = len(limits) // 2
        for w in range(stride):
            b_length = ends[e_at + w]
            width = frames
            if fraction > 0:
                # a fraction of the longer series, rounded up as in dtw_naive.window_frames
                width = max(1, int(np.ceil(fraction * max(a_length, b_length) - 1e-9)))
            low = -(max(0, a_length - b_length) + width)
            high = max(0, b_length - a_length) + width
            limits[w] = low
            limits[stride + w] = high
            band[0] = low if w == 0 else min(band[0], low)
            band[1] = low if w == 0 else max(band[1], low)
            band[2] = high if w == 0 else min(band[2], high)
            band[3] = high if w == 0 else max(band[3], high)

    return within if tile.tile.banded else without


@jit
def _compute(
    wide,
    narrow,
    units,
    first,
    last,
    planes,
    dims,
    rooted,
    per_length,
    frames,
    fraction,
    a,
    a_starts,
    a_lengths,
    a_padded,
    a_order,
    b,
    b_starts,
    ends,
    b_order,
    symmetric,
    scratch,
    distances,
):
    """Compute the units ``first .. last`` and write their values, and the mirror's where symmetric."""
    span = tile_span(wide[0])
    lanes = tile_span(narrow[0])
    n_columns = len(b_order)
    work, limits, carry, out, block, band, edges = scratch
    for unit in range(first, last):
        g, begin, end = units[unit, 0], units[unit, 1], units[unit, 2]
        e_at = g * span
        used = min(span, n_columns - e_at)
        banded_length = -1
        for i in range(begin, end):
            a_length = a_lengths[i]
            if a_length != banded_length:
                set_band(wide[0], frames, fraction, a_length, ends, e_at, band, limits)
                banded_length = a_length
            # lanes up to the diagonal are not needed
            lane = max(0, i + 1 - e_at) // lanes * lanes if symmetric else 0
            for w in range(span):
                block[i - begin, w] = 0.0
            for plane in range(planes):
                a_at = a_starts[i] + plane * a_padded[i] * dims
                b_at = b_starts[g] + plane * ends[e_at + span - 1] * dims * span
                where = (a, a_at, a_length, dims, b, b_at, ends, e_at, lane)
                if used - lane > lanes:
                    sweep(wide, *where, band, limits, work, edges, carry, out)
                elif used > lane:
                    sweep(narrow, *where, band, limits, work, edges, carry, out)
                for w in range(lane, used):
                    block[i - begin, w] += out[w]
            for w in range(lane, used):
                total = block[i - begin, w]
                if per_length:
                    total = total / (a_length + ends[e_at + w])
                block[i - begin, w] = np.sqrt(total) if rooted else total
        for i in range(begin, end):
            for w in range(max(0, i + 1 - e_at) if symmetric else 0, used):
                distances[a_order[i], b_order[e_at + w]] = block[i - begin, w]
        if symmetric:
            for w in range(used):
                for i in range(begin, min(end, e_at + w)):
                    distances[b_order[e_at + w], a_order[i]] = block[i - begin, w]


def _scratch(kind: np.dtype[Any], span: int, longest: int) -> tuple[NDArray[Any], ...]:
    """Return the working arrays of one thread (made here because allocations take long to compile)."""
    floats = [(longest + 1) * span, 2 * span, 2 * span, span, (ROWS_AT_MOST, span)]
    return (*(np.empty(shape, kind) for shape in floats), np.zeros(4, np.int64), np.zeros(4, np.int64))


def _sorted_order(offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the order by length (of equal ones, as they came), and the lengths in that order."""
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")
    return order, lengths[order]


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def pack_lanes(values: NDArray[Any], offsets: NDArray[np.int64], planes: int, stride: int) -> Lanes:
    """Pack series side by side, ``stride`` of them a group."""
    order, lengths = _sorted_order(offsets)
    groups = -(-len(order) // stride)
    ends = np.full(groups * stride, lengths[-1])
    ends[: len(order)] = lengths
    starts = _starts(ends[stride - 1 :: stride] * values.shape[1] * stride)
    packed = np.empty(int(starts[-1]), values.dtype)
    _pack_lanes(values, offsets, order, planes, stride, starts[:-1], ends, packed)
    return Lanes(order, packed, starts[:-1], ends)


def pack_rows(values: NDArray[Any], offsets: NDArray[np.int64], planes: int, high: int, low: int) -> Rows:
    """Pack series one after the other, in tiles of ``high`` frames, then of ``low`` ones."""
    order, lengths = _sorted_order(offsets)
    padded = lengths + -(lengths % high) % low
    starts = _starts(padded * values.shape[1])
    packed = np.empty(int(starts[-1]), values.dtype)
    _pack_rows(values, offsets, order, planes, high, low, starts[:-1], packed)
    return Rows(order, packed, starts[:-1], lengths, padded)


def _units(n_rows: int, n_columns: int, span: int, rows: int, symmetric: bool) -> NDArray[np.int64]:
    """Return (group, first row, last row) of all units of work, largest groups first."""
    units = [
        (g, begin, min(begin + rows, last))
        for g in reversed(range(-(-n_columns // span)))
        for last in [min(n_rows, (g + 1) * span) if symmetric else n_rows]
        for begin in range(0, last, rows)
    ]
    return np.array(units, dtype=np.int64)


def _tiles(spec: DistanceSpec, dims: int, vectors: int) -> tuple[Tile, Tile]:
    """Return the tiles of the kernel for this metric; their shapes change the speed, never a value."""
    bits = 64 if spec.dtype == "float64" else 32
    lanes = 512 // bits
    form = dims if dims <= MOST_ROW_DIMS else 0
    heights = (4, 1) if form else (8, 2)
    return tuple(  # type: ignore[return-value]
        Tile(rows, vectors, VECTORS * lanes, lanes, bits, form, spec.cost, spec.window is not None) for rows in heights
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
    wide, narrow = _tiles(spec, dims, VECTORS), _tiles(spec, dims, 1)
    span = wide[0].span
    # the row form reads frames as they come, which is what tiles of one frame are
    high, low = (tile.rows for tile in wide) if wide[0].dims == 0 else (1, 1)
    kind = np.dtype(spec.dtype)
    row_values = a[0].astype(kind, copy=False)
    rows = pack_rows(row_values, a[1], planes, high, low)
    columns = a if b is None else b
    lanes = pack_lanes(columns[0].astype(kind, copy=False), columns[1], planes, span)
    n_rows, n_columns = len(rows.order), len(lanes.order)
    distances = np.empty((n_rows, n_columns), kind)
    if b is None:
        np.fill_diagonal(distances, 0)
    units = _units(n_rows, n_columns, span, _rows_a_unit(n_rows, n_columns, span), b is None)
    frames = spec.window if isinstance(spec.window, int) else 0
    fraction = spec.window if isinstance(spec.window, float) else 0.0

    def compute(first: int, last: int) -> None:
        _compute(
            wide, narrow, units, first, last, planes, dims, spec.cost == "squared", spec.per_length, frames, fraction,
            rows.values, rows.starts, rows.lengths, rows.padded, rows.order,
            lanes.values, lanes.starts, lanes.ends, lanes.order,
            b is None, _scratch(kind, span, int(max(rows.lengths[-1], lanes.ends[-1]))), distances,
        )  # fmt: skip

    run_blocks(compute, len(units), max(1, len(units) // 64), n_jobs)
    return distances


def _rows_a_unit(n_rows: int, n_columns: int, span: int) -> int:
    """Return how many rows a unit has: many write the mirror quicker, few share the work more evenly."""
    groups = -(-n_columns // span)
    return max(1, min(ROWS_AT_MOST, n_rows * groups // 128))
