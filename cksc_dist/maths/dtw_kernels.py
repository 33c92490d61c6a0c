"""DTW of one series against many at once, the many side by side in vector lanes.

    V[i, j] = c(a_i, b_j) + min(V[i-1, j-1], V[i-1, j], V[i, j-1]),    V[-1, -1] = 0, otherwise inf outside
    c(a_i, b_j) = sum_q (a_iq - b_jq)^2   or   sum_q |a_iq - b_jq|
    value = V[len a - 1, len b - 1]   (the root is taken by the caller)

A lane is one series b; the frames of a are broadcast to all lanes. Lanes of a group are sorted by length, and
each lane is read at its own end. Two forms, chosen by the number of dimensions alone:

`row_strip`
    For dims <= 3. A strip of frames of a passes over all frames of b; the strip's V[i, j-1] and the frames of
    a stay in registers. The cost is added to the minimum dimension by dimension.
`column_tiles`
    For more dims. One frame of b against a tile of frames of a: costs accumulate in registers over the
    dimensions, then feed the recurrence.

All operations are the same if a and b change places, and for every lane, so the bits of a value depend on the
two series and the settings only.

With a band, ``low < j - i < high`` bounds the cells; low and high differ between lanes of different length:

    low = min(len b - len a, 0) - w,    high = max(len b - len a, 0) + w,    w = max(reach of a, reach of b)

where the reach of a series is the window that its own length asks for. What a band needs is emitted as
instructions too: the same in Python's words would take Numba most of a second to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import (
    NativeValue,
    intrinsic,
    models,
    overload,
    register_model,
    typeof_impl,
    unbox,
)

from cksc_dist.maths import simd
from cksc_dist.maths.simd import Vectors, array_data, counted_loop, get, index, larger, put, smaller

__all__ = ["MOST_ROW_DIMS", "Tile", "jit", "set_band", "sweep"]

MOST_ROW_DIMS = 3
"""Up to so many dimensions the row form is used."""

INFINITY = float("inf")

jit = numba.njit(nogil=True, cache=True, error_model="numpy", boundscheck=False)


class Tile(NamedTuple):
    """What a kernel is compiled for; passed to it as an argument that only its type matters of.

    Parameters
    ----------
    rows, vectors
        Frames of a, and vectors of lanes, that are held in registers at once.
    lanes, bits
        Numbers in a vector, and bits of each.
    dims
        Dimensions, for the row form; 0 where they are known at run time only.
    cost
        ``"squared"`` or ``"abs"``.
    banded
        Whether there is a Sakoe-Chiba band.
    """

    rows: int
    vectors: int
    lanes: int
    bits: int
    dims: int
    cost: str
    banded: bool

    @property
    def stride(self) -> int:
        """Lanes of a group."""
        return self.vectors * self.lanes


# Numba caches compiled code under the file of the outermost function: this makes it see changes of these two as well
_SOURCE = sha256(Path(__file__).read_bytes() + Path(simd.__file__).read_bytes()).hexdigest()[:12]


class TileType(types.Type):
    """Numba's type of a `Tile`: every field is known when a kernel is compiled."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        super().__init__(name=f"Tile{tuple(tile)!r} of {_SOURCE}")


register_model(TileType)(models.OpaqueModel)


_tile_type = cache(TileType)


@typeof_impl.register(Tile)
def _typeof_tile(value: Tile, context: Any) -> TileType:
    return _tile_type(value)


@unbox(TileType)
def _unbox_tile(kind: TileType, value: Any, context: Any) -> NativeValue:
    return NativeValue(context.context.get_dummy_value())


def _recurrence(v: Vectors, diagonal: Any, left: Any, up: Any) -> Any:
    return v.minimum(v.minimum(diagonal, left), up)


def _offset(v: Vectors, i: Any, j: Any) -> Any:
    """Return j - i in every lane."""
    return v.splat(v.builder.sitofp(v.builder.sub(j, i), v.element))


def _by_width(builder: ir.IRBuilder, tile: Tile, span: Any, body: Callable[[int], None]) -> None:
    """Emit the body for all vectors of a tile, and for one: which is run depends on the span asked for."""
    narrow = builder.icmp_signed("==", span, index(tile.lanes))
    with builder.if_else(narrow) as (one, all_of_them):
        with one:
            body(1)
        with all_of_them:
            body(tile.vectors)


@intrinsic
def set_band(
    typing: Any, tile: Any, a_length: Any, a_reach: Any, ends: Any, reaches: Any, e_at: Any, band: Any, limits: Any
) -> Any:
    """Set ``limits`` to low, then high of each lane of a group, and ``band`` to bounds of these over all lanes.

    The bounds are at most the least low, at least the greatest low, at most the least high, at least the greatest
    high. ``ends`` and ``reaches`` (from ``e_at`` on) are the lengths of the lanes, ascending, and their reaches.
    """
    t = tile.tile

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        if not t.banded:
            return context.get_dummy_value()
        v = Vectors(builder, t.lanes, t.bits)
        end_data, reach_data, band_data, limit = (
            array_data(context, builder, signature.args[k], arguments[k]) for k in (3, 4, 6, 7)
        )
        length, reach, start = (arguments[k] for k in (1, 2, 5))

        def low_and_high(end: Any, low_reach: Any, high_reach: Any, length: Any, reach: Any, zero: Any) -> Any:
            gap = builder.sub(end, length)
            low = builder.sub(smaller(builder, gap, zero), larger(builder, low_reach, reach))
            return low, builder.add(larger(builder, gap, zero), larger(builder, high_reach, reach))

        lengths, own_reaches = v.splat(length), v.splat(reach)
        zeros = ir.Constant(lengths.type, [0] * t.lanes)
        for u in range(t.vectors):
            at = builder.add(start, index(u * t.lanes))
            there = v.load_integers(reach_data, at)
            low_high = low_and_high(v.load_integers(end_data, at), there, there, lengths, own_reaches, zeros)
            for k, value in enumerate(low_high):
                v.store(builder.sitofp(value, v.type), limit, index(k * t.stride + u * t.lanes))
        last = builder.add(start, index(t.stride - 1))
        ends_and_reaches = [
            [builder.load(builder.gep(data, [k])) for k in (start, last)] for data in (end_data, reach_data)
        ]
        (least, most), (least_reach, most_reach) = ends_and_reaches
        least_low, least_high = low_and_high(least, most_reach, least_reach, length, reach, index(0))
        most_low, most_high = low_and_high(most, least_reach, most_reach, length, reach, index(0))
        for k, value in enumerate((least_low, most_low, least_high, most_high)):
            builder.store(value, builder.gep(band_data, [index(k)]))
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(tile, i64, i64, ends, reaches, i64, band, limits), emit


@intrinsic
def row_strip(
    typing: Any, tile: Any, span: Any, a: Any, a_at: Any, i: Any, b: Any, b_at: Any, b_length: Any, front: Any,
    lane: Any, band: Any, limits: Any,
) -> Any:  # fmt: skip
    """Pass a strip of ``tile.rows`` frames of a (from frame i) over the frames of b, ``span`` lanes of them.

    ``front`` holds V of the frame above the strip and receives V of its last frame. ``band`` and ``limits`` are
    those of `set_band`.
    """
    t = tile.tile

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        v = Vectors(builder, t.lanes, t.bits)
        v.align_stack()
        a_data, b_data, front_data, band_data, limit = (
            array_data(context, builder, signature.args[k], arguments[k]) for k in (2, 5, 8, 10, 11)
        )
        width, a_start, first, b_start, frames_of_b, lane_at = (arguments[k] for k in (1, 3, 4, 6, 7, 9))
        infinite = v.constant(INFINITY)

        def lane_of(base: Any, u: int) -> Any:
            return builder.add(base, builder.add(lane_at, index(u * t.lanes)))

        def cut() -> tuple[list[Any], list[bool]]:
            """Cut the frames of b where the band begins and ends; in the middle, it holds all cells of all lanes."""
            least_low, most_low, least_high, most_high = (
                builder.load(builder.gep(band_data, [index(k)])) for k in range(4)
            )
            begin = larger(builder, builder.add(builder.add(first, least_low), index(1)), index(0))
            end = smaller(builder, builder.add(builder.add(first, most_high), index(t.rows - 1)), frames_of_b)
            if t.rows == 1:
                return [begin, end], [True]
            all_from = builder.add(builder.add(first, most_low), index(t.rows))
            all_from = smaller(builder, larger(builder, all_from, begin), end)
            all_to = larger(builder, smaller(builder, builder.add(first, least_high), end), all_from)
            return [begin, all_from, all_to, end], [True, False, True]

        def strip(vectors: int) -> None:
            us = range(vectors)
            frames = [
                [v.load_splat(a_data, builder.add(a_start, index(r * t.dims + q))) for q in range(t.dims)]
                for r in range(t.rows)
            ]
            if t.banded:
                low = [v.load(limit, lane_of(index(0), u)) for u in us]
                high = [v.load(limit, lane_of(index(t.stride), u)) for u in us]

            def column(j: Any, carried: list[Any], masked: bool) -> list[Any]:
                diagonal, left = list(carried[:vectors]), list(carried[vectors:])
                at = builder.mul(j, index(t.stride))
                frame_at = builder.add(b_start, builder.mul(j, index(t.stride * t.dims)))
                there = [
                    [v.load(b_data, lane_of(builder.add(frame_at, index(q * t.stride)), u)) for u in us]
                    for q in range(t.dims)
                ]
                up = [v.load(front_data, lane_of(at, u)) for u in us]
                above = list(up)
                for r in range(t.rows):
                    if masked:
                        offset = _offset(v, builder.add(first, index(r)), j)
                    for u in us:
                        # V[i, j] = min(V[i-1, j-1], V[i, j-1], V[i-1, j]) + c(a_i, b_j)
                        value = _recurrence(v, diagonal[u], left[r * vectors + u], up[u])
                        for q in range(t.dims):
                            value = v.add_cost(t.cost, frames[r][q], there[q][u], value)
                        if masked:
                            value = v.where(v.inside(offset, low[u], high[u]), value, infinite)
                        diagonal[u] = left[r * vectors + u]
                        left[r * vectors + u] = up[u] = value
                for u in us:
                    v.store(up[u], front_data, lane_of(at, u))
                return above + left

            edges, masks = cut() if t.banded else ([index(0), frames_of_b], [False])
            begin = edges[0]
            # V[-1, -1] = 0 starts the path; the corner of a later strip is what the strip above left there
            at_start = builder.and_(
                builder.icmp_signed("==", first, index(0)), builder.icmp_signed("==", begin, index(0))
            )
            corner = [v.where(at_start, v.constant(0.0), infinite) for _ in us]
            if t.banded:
                inside = builder.icmp_signed(">", begin, index(0))
                corner_at = builder.mul(builder.select(inside, builder.sub(begin, index(1)), index(0)), index(t.stride))
                corner = [v.where(inside, v.load(front_data, lane_of(corner_at, u)), corner[u]) for u in us]
            state = corner + [infinite] * (t.rows * vectors)
            for e, masked in enumerate(masks):
                state = counted_loop(builder, edges[e], edges[e + 1], state, partial(column, masked=masked))

        _by_width(builder, t, width, strip)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(tile, i64, a, i64, i64, b, i64, i64, front, i64, band, limits), emit


@intrinsic
def column_tiles(
    typing: Any, tile: Any, span: Any, a: Any, a_at: Any, i: Any, tiles: Any, b: Any, b_at: Any, j: Any, dims: Any,
    column: Any, carry: Any, lane: Any, limits: Any,
) -> Any:  # fmt: skip
    """Put ``tiles`` tiles of ``tile.rows`` frames of a (from frame i) through the recurrence at frame j of b.

    ``column`` holds V[:, j-1] and receives V[:, j], for ``span`` lanes. ``carry`` holds V[i-1, j-1], then V[i-1, j],
    and receives the same for the frame below the last tile. The frames of a are packed as (tile, dim, row of the tile).
    """
    t = tile.tile

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        v = Vectors(builder, t.lanes, t.bits)
        v.align_stack()
        a_data, b_data, column_data, carry_data, limit = (
            array_data(context, builder, signature.args[k], arguments[k]) for k in (2, 6, 10, 11, 13)
        )
        width, a_start, first, n_tiles, b_start, j_value, n_dims, lane_at = (
            arguments[k] for k in (1, 3, 4, 5, 7, 8, 9, 12)
        )

        def lane_of(base: Any, u: int) -> Any:
            return builder.add(base, builder.add(lane_at, index(u * t.lanes)))

        def all_tiles(vectors: int) -> None:
            us = range(vectors)
            if t.banded:
                low = [v.load(limit, lane_of(index(0), u)) for u in us]
                high = [v.load(limit, lane_of(index(t.stride), u)) for u in us]

            def one_tile(number: Any, carried: list[Any]) -> list[Any]:
                top = builder.add(first, builder.mul(number, index(t.rows)))
                a_tile = builder.add(a_start, builder.mul(top, n_dims))

                def add_dimension(q: Any, costs: list[Any]) -> list[Any]:
                    at = builder.add(b_start, builder.mul(q, index(t.stride)))
                    there = [v.load(b_data, lane_of(at, u)) for u in us]
                    a_row = builder.add(a_tile, builder.mul(q, index(t.rows)))
                    out = []
                    for r in range(t.rows):
                        here = v.load_splat(a_data, builder.add(a_row, index(r)))
                        out += [v.add_cost(t.cost, here, there[u], costs[r * vectors + u]) for u in us]
                    return out

                # c(a_i, b_j) for all frames of the tile, dimension after dimension
                zeros = [v.constant(0.0)] * (t.rows * vectors)
                costs = counted_loop(builder, index(0), n_dims, zeros, add_dimension)
                diagonal, up = carried[:vectors], carried[vectors:]
                for r in range(t.rows):
                    row = builder.add(top, index(r))
                    at = builder.mul(row, index(t.stride))
                    if t.banded:
                        offset = _offset(v, row, j_value)
                    for u in us:
                        left = v.load(column_data, lane_of(at, u))
                        # V[i, j] = c(a_i, b_j) + min(V[i-1, j-1], V[i, j-1], V[i-1, j])
                        up[u] = v.add(costs[r * vectors + u], _recurrence(v, diagonal[u], left, up[u]))
                        if t.banded:
                            up[u] = v.where(v.inside(offset, low[u], high[u]), up[u], v.constant(INFINITY))
                        diagonal[u] = left
                        v.store(up[u], column_data, lane_of(at, u))
                return diagonal + up

            carried = [v.load(carry_data, index(k * t.lanes)) for k in range(2 * vectors)]
            carried = counted_loop(builder, index(0), n_tiles, carried, one_tile)
            for k in range(2 * vectors):
                v.store(carried[k], carry_data, index(k * t.lanes))

        _by_width(builder, t, width, all_tiles)
        return context.get_dummy_value()

    i64 = types.int64
    return types.void(tile, i64, a, i64, i64, i64, b, i64, i64, i64, column, carry, i64, limits), emit


def _tile_constant(name: str) -> Any:
    """Make a function that compiles to a field of a tile's type."""

    @intrinsic
    def constant(typing: Any, tile: Any) -> Any:
        value = getattr(tile.tile, name)

        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return index(value)

        return types.int64(tile), emit

    return constant


tile_rows = _tile_constant("rows")
tile_lanes = _tile_constant("lanes")
tile_stride = _tile_constant("stride")


@intrinsic
def first_row(typing: Any, tile: Any, j: Any, rows: Any, band: Any) -> Any:
    """Return the first frame of a, at most ``rows``, of the first whole tile with cells in the band at frame j of b."""
    t = tile.tile

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        if not t.banded:
            return index(0)
        most_high = builder.load(builder.gep(array_data(context, builder, band, arguments[3]), [index(3)]))
        row = larger(builder, builder.add(builder.sub(arguments[1], most_high), index(1)), index(0))
        return smaller(builder, builder.mul(builder.udiv(row, index(t.rows)), index(t.rows)), arguments[2])

    return types.int64(tile, types.int64, types.int64, band), emit


@intrinsic
def tile_count(typing: Any, tile: Any, start: Any, rows: Any, j: Any, band: Any) -> Any:
    """Return how many tiles between frames ``start`` and ``rows`` of a begin before the band ends at frame j of b."""
    t = tile.tile

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        first, stop = arguments[1], arguments[2]
        if t.banded:
            least_low = builder.load(builder.gep(array_data(context, builder, band, arguments[4]), [index(0)]))
            stop = larger(builder, smaller(builder, stop, builder.sub(arguments[3], least_low)), first)
        return builder.udiv(builder.add(builder.sub(stop, first), index(t.rows - 1)), index(t.rows))

    i64 = types.int64
    return i64(tile, i64, i64, i64, band), emit


def sweep(tiles, span, a, a_at, a_length, dims, b, b_at, ends, e_at, lane, band, limits, work, carry, out):
    """Write V at the end of the lanes from ``lane`` on to ``out``; for compiled code only.

    Parameters
    ----------
    tiles
        A high and a low tile: as many high ones as fit, then low ones.
    span
        How many lanes to compute: those of one vector, or of all.
    a, a_at, a_length, dims
        Packed rows, where the series begins, its frames, and the dimensions.
    b, b_at, ends, e_at
        Packed lanes, where the group begins, the lengths of its lanes and where these begin.
    lane
        First lane to compute.
    band, limits
        Of the Sakoe-Chiba band: over all lanes, and of each lane.
    work, carry, out
        Scratch of (longest series, padded to tiles) x stride, and 2 x stride entries; results, one a lane.
    """
    raise RuntimeError("sweep is compiled by Numba and cannot be called from Python")


@overload(sweep)
def _choose_form(tiles, span, a, a_at, a_length, dims, b, b_at, ends, e_at, lane, band, limits, work, carry, out):
    return _sweep_rows if tiles[0].tile.dims else _sweep_columns


# Slices, min and max are written out below: each of them costs more to compile than the kernel itself.


def _sweep_rows(tiles, span, a, a_at, a_length, dims, b, b_at, ends, e_at, lane, band, limits, work, carry, out):
    high, low = tiles
    stride = len(out)
    b_length = ends[e_at + lane + span - 1]
    for k in range(b_length * stride):
        work[k] = np.inf
    i = 0
    while i < a_length:
        if i + tile_rows(high) <= a_length:
            row_strip(high, span, a, a_at + i * dims, i, b, b_at, b_length, work, lane, band, limits)
            i += tile_rows(high)
        else:
            row_strip(low, span, a, a_at + i * dims, i, b, b_at, b_length, work, lane, band, limits)
            i += 1
    if ends[e_at + lane] == b_length:
        # all lanes end at one frame: a copy of neighbours, which is quicker
        at = (b_length - 1) * stride
        for w in range(lane, lane + span):
            put(out, w, get(work, at + w))
    else:
        for w in range(lane, lane + span):
            put(out, w, get(work, (get(ends, e_at + w) - 1) * stride + w))


def _sweep_columns(tiles, span, a, a_at, a_length, dims, b, b_at, ends, e_at, lane, band, limits, work, carry, out):
    high, low = tiles
    stride = len(out)
    tiled = a_length // tile_rows(high) * tile_rows(high)
    padded = tiled + (a_length - tiled + tile_rows(low) - 1) // tile_rows(low) * tile_rows(low)
    for k in range(padded * stride):
        work[k] = np.inf
    reading = lane
    start_before = 0
    for j in range(ends[e_at + lane + span - 1]):
        start = first_row(high, j, tiled, band)
        count = tile_count(high, start, tiled, j, band)
        count_low = tile_count(low, tiled, padded, j, band)
        for w in range(span):
            # V[-1, -1] = 0 starts the path; a corner inside is a value of the frame before, where one was made
            corner = 0.0 if j == 0 else np.inf
            if start_before < start:
                corner = get(work, (start - 1) * stride + lane + w)
            put(carry, w, corner)
            put(carry, span + w, np.inf)
        start_before = start
        b_frame = b_at + j * dims * stride
        column_tiles(high, span, a, a_at, start, count, b, b_frame, j, dims, work, carry, lane, limits)
        column_tiles(low, span, a, a_at, tiled, count_low, b, b_frame, j, dims, work, carry, lane, limits)
        while reading < lane + span and ends[e_at + reading] == j + 1:
            out[reading] = work[(a_length - 1) * stride + reading]
            reading += 1
