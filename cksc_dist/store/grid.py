"""The grid of tiles of a square, symmetric matrix: which rows a block has, and how tiles are counted.

Rows are cut into blocks of ``edge``; tile (i, j) with i <= j is block i against block j, and stands for its mirror
(j, i) as well. Tiles of the upper triangle are numbered row by row. Python's whole numbers have no largest one, and
arrays are of 64 bits: n^2 exceeds 32 bits from 46,342 series on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

__all__ = ["Grid", "Tile", "places"]

Tile = tuple[int, int]


@dataclass(frozen=True)
class Grid:
    """Tiles of an n x n matrix.

    Examples
    --------
    >>> grid = Grid(n=10, edge=4)
    >>> grid.blocks, grid.tiles, grid.rows(2)
    (3, 6, (8, 10))
    >>> [grid.tile(k) for k in range(grid.tiles)]
    [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]
    """

    n: int
    edge: int

    @property
    def blocks(self) -> int:
        """Number of blocks of rows."""
        return -(-self.n // self.edge)

    @property
    def tiles(self) -> int:
        """Number of tiles, the upper triangle alone."""
        return self.blocks * (self.blocks + 1) // 2

    def rows(self, block: int) -> tuple[int, int]:
        """Return the first row of a block, and the one after its last."""
        return block * self.edge, min((block + 1) * self.edge, self.n)

    def size(self, block: int) -> int:
        """Return how many rows a block has."""
        begin, end = self.rows(block)
        return end - begin

    def number(self, tile: Tile) -> int:
        """Return the number of a tile."""
        i, j = tile
        return i * self.blocks - i * (i - 1) // 2 + j - i

    def tile(self, number: int) -> Tile:
        """Return the tile of a number."""
        # counted from the end, row i begins where a triangle of blocks - i rows does
        left = self.tiles - 1 - number
        height = (isqrt(8 * left + 1) - 1) // 2
        i = self.blocks - 1 - height
        return i, i + number - self.number((i, i))

    def all_tiles(self) -> Iterator[Tile]:
        """Go through all tiles in the order of their numbers."""
        return ((i, j) for i in range(self.blocks) for j in range(i, self.blocks))

    def pairs(self, tile: Tile, kept: tuple[int, int] = (0, 0)) -> int:
        """Return how many unordered pairs of rows a tile holds, without those of its first ``kept`` ones."""
        whole = (self.size(tile[0]), self.size(tile[1]))
        return _pairs(tile, whole) - _pairs(tile, kept)


def _pairs(tile: Tile, shape: tuple[int, int]) -> int:
    rows, columns = shape
    return rows * (rows - 1) // 2 if tile[0] == tile[1] else rows * columns


def places(tile: Tile) -> tuple[Tile, ...]:
    """Return where the values of a tile are stored: its own chunk, and the mirror's.

    Examples
    --------
    >>> places((1, 2)), places((1, 1))
    (((1, 2), (2, 1)), ((1, 1),))
    """
    return (tile,) if tile[0] == tile[1] else (tile, (tile[1], tile[0]))
