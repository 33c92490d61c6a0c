"""The ledger: a tile is valid iff both its blocks still are what they were; nothing is lost when anyone is killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cksc_dist.errors import StoreError
from cksc_dist.store.folder import Folder
from cksc_dist.store.grid import Grid, Tile
from cksc_dist.store.ledger import Blocks, Entry, Ledger
from tests.store.stored import entry_of, flip, killed_at

NAME = "0123456789abcdef"
GRID = Grid(10, 4)


def digests(n: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (n, 16), np.uint8)


def entries_of(blocks: Blocks) -> dict[Tile, Entry]:
    return {tile: entry_of(blocks, tile, np.array(tile)) for tile in blocks.grid.all_tiles()}


def done(blocks: Blocks, entries: dict[Tile, Entry]) -> set[Tile]:
    return {tile for tile in blocks.grid.all_tiles() if blocks.is_done(tile, entries.get(tile))}


SIZES = {"n": st.integers(1, 40), "edge": st.integers(1, 12)}


@given(**SIZES)
def test_unchanged_series_keep_all_tiles(n: int, edge: int) -> None:
    blocks = Blocks(Grid(n, edge), digests(n))
    again = Blocks(Grid(n, edge), digests(n))
    assert done(again, entries_of(blocks)) == set(again.grid.all_tiles())


@given(data=st.data(), **SIZES)
def test_changed_series_invalidate_exactly_their_tiles(data: st.DataObject, n: int, edge: int) -> None:
    grid = Grid(n, edge)
    entries = entries_of(Blocks(grid, digests(n)))
    changed = data.draw(st.sets(st.integers(0, n - 1)), "changed series")
    now = digests(n)
    for row in changed:
        now[row, data.draw(st.integers(0, 15), "byte")] ^= 1
    blocks = Blocks(grid, now)
    touched = {row // edge for row in changed}
    assert done(blocks, entries) == {(i, j) for i, j in grid.all_tiles() if i not in touched and j not in touched}
    for tile in grid.all_tiles():
        if tile[0] in touched or tile[1] in touched:
            assert blocks.kept(tile, entries[tile]) == (0, 0)


@given(data=st.data(), more=st.integers(1, 30), **SIZES)
def test_grown_blocks_keep_what_they_had(data: st.DataObject, more: int, n: int, edge: int) -> None:
    old, new = Grid(n, edge), Grid(n + more, edge)
    entries = entries_of(Blocks(old, digests(n)))
    blocks = Blocks(new, np.vstack([digests(n), digests(more, seed=1)]))
    for i, j in new.all_tiles():
        kept = blocks.kept((i, j), entries.get((i, j)))
        assert kept == ((old.size(i), old.size(j)) if j < old.blocks else (0, 0))
        assert blocks.is_done((i, j), entries.get((i, j))) == (kept == (new.size(i), new.size(j)))


@given(data=st.data(), n=st.integers(2, 40), edge=st.integers(1, 12))
def test_fewer_series_keep_only_whole_blocks(data: st.DataObject, n: int, edge: int) -> None:
    fewer = data.draw(st.integers(1, n - 1))
    entries = entries_of(Blocks(Grid(n, edge), digests(n)))
    blocks = Blocks(Grid(fewer, edge), digests(n)[:fewer])
    whole = {block for block in range(blocks.grid.blocks) if blocks.grid.size(block) == Grid(n, edge).size(block)}
    assert done(blocks, entries) == {(i, j) for i, j in blocks.grid.all_tiles() if i in whole and j in whole}
    gone = Grid(n, edge).blocks - 1
    if gone >= blocks.grid.blocks:
        assert blocks.kept((0, gone), entries[0, gone]) == (0, 0)


def test_series_that_changed_places_are_changed() -> None:
    entries = entries_of(Blocks(GRID, digests(10)))
    swapped = digests(10)[[1, 0, *range(2, 10)]]
    assert done(Blocks(GRID, swapped), entries) == {(1, 1), (1, 2), (2, 2)}


def test_what_is_in_no_ledger_is_not_done() -> None:
    blocks = Blocks(GRID, digests(10))
    assert blocks.kept((0, 1), None) == (0, 0)
    assert not blocks.is_done((0, 1), None)


@pytest.mark.parametrize("n", [46_342, 10**7])
def test_blocks_at_the_end_of_a_long_matrix(n: int) -> None:
    grid = Grid(n, 1000)
    now = np.zeros((n, 16), np.uint8)
    now[:, :4] = np.arange(n, dtype=">u4").view(np.uint8).reshape(n, 4)
    blocks, last = Blocks(grid, now), grid.blocks - 1
    entry = entry_of(blocks, (last - 1, last), np.zeros(3))
    assert blocks.is_done((last - 1, last), entry)
    assert entry.computed == 1000 * grid.size(last)
    now[-1] ^= 1
    assert not Blocks(grid, now).is_done((last - 1, last), entry)
    assert blocks.digest(last) != blocks.digest(last - 1)


def loaded(folder: Folder) -> dict[Tile, Entry]:
    return Ledger(folder, NAME).load().entries


def test_an_empty_ledger(folder: Folder) -> None:
    assert loaded(folder) == {}
    Ledger(folder, NAME).collect()
    assert folder.files("ledger") == {}


def test_marks_are_found_at_once_and_collected_into_one_file(folder: Folder) -> None:
    entries = entries_of(Blocks(GRID, digests(10)))
    worker, client = Ledger(folder, NAME), Ledger(folder, NAME)
    for tile, entry in entries.items():
        worker.mark(tile, entry)
        client.add(tile, entry)
    assert len(folder.files(f"ledger/{NAME}/done")) == len(entries)
    assert loaded(folder) == entries
    client.collect()
    assert list(folder.files(f"ledger/{NAME}")) == ["tiles.json"]
    assert loaded(folder) == entries


def test_ledgers_of_two_matrices_are_two(folder: Folder) -> None:
    entry = entry_of(Blocks(GRID, digests(10)), (0, 0), np.zeros(1))
    Ledger(folder, NAME).mark((0, 0), entry)
    assert Ledger(folder, "f" * 16).load().entries == {}


def test_a_newer_mark_counts_more_than_what_was_collected(folder: Folder) -> None:
    blocks = Blocks(GRID, digests(10))
    old, new = (entry_of(blocks, (0, 1), np.array([k])) for k in (1, 2))
    ledger = Ledger(folder, NAME)
    ledger.mark((0, 1), old)
    ledger.add((0, 1), old)
    ledger.collect()
    ledger.mark((0, 1), new)
    assert loaded(folder) == {(0, 1): new}
    Ledger(folder, NAME).load().collect()
    assert loaded(folder) == {(0, 1): new}
    assert list(folder.files(f"ledger/{NAME}")) == ["tiles.json"]


def test_dropped_tiles_are_forgotten_for_good(folder: Folder) -> None:
    entries = entries_of(Blocks(GRID, digests(10)))
    ledger = Ledger(folder, NAME)
    for number, (tile, entry) in enumerate(entries.items()):
        ledger.mark(tile, entry)
        ledger.add(tile, entry)
        if number == 2:
            ledger.collect()
    ledger.drop([(0, 0), (2, 2), (7, 9)])  # collected, marked only, never there
    left = {tile: entry for tile, entry in entries.items() if tile not in ((0, 0), (2, 2))}
    assert ledger.entries == left
    assert loaded(folder) == left
    ledger.collect()
    assert loaded(folder) == left


def test_marks_of_others_are_not_removed_by_collecting(folder: Folder) -> None:
    entries = entries_of(Blocks(GRID, digests(10)))
    client = Ledger(folder, NAME).load()
    client.add((0, 0), entries[0, 0])
    # a worker has marked a tile of which the client has not heard yet
    Ledger(folder, NAME).mark((0, 0), entries[0, 0])
    Ledger(folder, NAME).mark((1, 2), entries[1, 2])
    client.collect()
    assert loaded(folder) == {tile: entries[tile] for tile in ((0, 0), (1, 2))}


@pytest.mark.parametrize("step", ["_write", "remove_many"])
def test_collecting_may_be_killed_at_any_step(folder: Folder, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = entries_of(Blocks(GRID, digests(10)))
    ledger = Ledger(folder, NAME)
    for tile, entry in entries.items():
        ledger.mark(tile, entry)
        ledger.add(tile, entry)
    with killed_at(monkeypatch, ledger if step == "_write" else folder, step):
        ledger.collect()
    assert loaded(folder) == entries
    Ledger(folder, NAME).load().collect()
    assert list(folder.files(f"ledger/{NAME}")) == ["tiles.json"]
    assert loaded(folder) == entries


class Meddled(Folder):
    """A folder in which somebody else does something once, before or after the k-th access of the reader."""

    def __init__(self, folder: Folder, at: int, action: Callable[[], None]) -> None:
        super().__init__(folder.url)
        self.left, self.action = at, action

    def _step(self) -> None:
        if self.left == 0:
            self.action()
        self.left -= 1

    def read(self, key: str) -> bytes | None:
        self._step()
        return super().read(key)

    def files(self, key: str) -> dict[str, int]:
        self._step()
        return super().files(key)


@pytest.mark.parametrize("at", [0, 1, 2, 5, 7, 8])
def test_a_reader_sees_every_tile_whenever_the_writer_collects(folder: Folder, at: int) -> None:
    entries = entries_of(Blocks(GRID, digests(10)))
    writer = Ledger(folder, NAME)
    for tile, entry in entries.items():
        writer.mark(tile, entry)
        writer.add(tile, entry)
    assert loaded(Meddled(folder, at, writer.collect)) == entries


def test_a_mark_that_cannot_be_read_is_none(folder: Folder) -> None:
    blocks = Blocks(GRID, digests(10))
    ledger = Ledger(folder, NAME)
    for tile in ((0, 0), (0, 1)):
        ledger.mark(tile, entry_of(blocks, tile, np.zeros(1)))
    flip(folder, f"ledger/{NAME}/done/0.1.json", 8 * 40)
    assert set(loaded(folder)) == {(0, 0)}
    folder.write(f"ledger/{NAME}/done/0.0.json", b"")
    assert loaded(folder) == {}


def test_what_a_killed_writer_left_beside_the_marks_is_no_mark(folder: Folder) -> None:
    ledger = Ledger(folder, NAME)
    entry = entry_of(Blocks(GRID, digests(10)), (0, 0), np.zeros(1))
    ledger.mark((0, 0), entry)
    folder.write(f"ledger/{NAME}/done/1.1.json.{'0' * 32}.partial", b'{"sha')
    assert loaded(folder) == {(0, 0): entry}


def test_a_damaged_collection_is_named(folder: Folder) -> None:
    ledger = Ledger(folder, NAME)
    ledger.add((0, 0), entry_of(Blocks(GRID, digests(10)), (0, 0), np.zeros(1)))
    ledger.collect()
    flip(folder, f"ledger/{NAME}/tiles.json", 8 * 100 + 1)
    with pytest.raises(
        StoreError, match=rf"{folder.url}/ledger/{NAME}/tiles\.json is damaged: .*; restore it from a copy"
    ):
        loaded(folder)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.sampled_from(["mark", "collect", "drop", "reload"]), st.integers(0, 5)), max_size=25)
)
def test_any_history_ends_with_what_was_marked_and_not_dropped(steps: list[tuple[str, int]]) -> None:
    folder = Folder("memory://any-history")
    for name in folder.files("ledger"):
        folder.remove(f"ledger/{name}")
    blocks = Blocks(GRID, digests(10))
    ledger, expected = Ledger(folder, NAME).load(), dict[Tile, Any]()
    for count, (step, number) in enumerate(steps):
        tile = GRID.tile(number)
        if step == "mark":
            expected[tile] = entry_of(blocks, tile, np.array([count]))
            Ledger(folder, NAME).mark(tile, expected[tile])
            ledger.add(tile, expected[tile])
        elif step == "collect":
            ledger.collect()
        elif step == "drop":
            ledger.drop([tile])
            expected.pop(tile, None)
        else:
            ledger = Ledger(folder, NAME).load()
        assert ledger.entries == expected
        assert loaded(folder) == expected
