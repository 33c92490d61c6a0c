"""Slow, obvious twins of `cksc_dist.dist.plan`: loops over the pairs of a tile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def blocks(n: int, edge: int) -> list[list[int]]:
    """Return the rows of each block."""
    return [list(range(n))[begin : begin + edge] for begin in range(0, n, edge)]


def pairs_to_compute(n: int, edge: int, tile: tuple[int, int], kept: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Go through the unordered pairs of different rows of a tile, without those of its first rows and columns."""
    rows, columns = (blocks(n, edge)[block] for block in tile)
    for i, a in enumerate(rows):
        for j, b in enumerate(columns):
            if (tile[0] != tile[1] or a < b) and not (i < kept[0] and j < kept[1]):
                yield a, b


def cells(lengths: Sequence[int], dims: int, edge: int, tile: tuple[int, int], kept: tuple[int, int]) -> int:
    """Return the cell updates of DTW without a band."""
    found = pairs_to_compute(len(lengths), edge, tile, kept)
    return sum(int(lengths[a]) * int(lengths[b]) * dims for a, b in found)


def vector_cells(length: int, n: int, dims: int, edge: int, tile: tuple[int, int], kept: tuple[int, int]) -> int:
    """Return the values that are compared where series of one length are taken as vectors."""
    return sum(length * dims for _ in pairs_to_compute(n, edge, tile, kept))
