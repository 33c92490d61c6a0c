"""The power goes: what was written and not brought to the disk itself is empty afterwards.

That is simulated. Files are known by their inodes; after some work, or at any sync of it, those that were never synced
are emptied, and the same command has to go through. A rename that the disk has not seen is not simulated: journals keep
the order of renames and later syncs.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from zarr.core.sync import sync

from cksc_dist import SeriesSet, open_matrix
from cksc_dist.dist import ingest as ingest_module
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest, ingest_distances
from cksc_dist.dist.verify import verify
from cksc_dist.dist.verify_files import verify_files
from cksc_dist.errors import SmallClassWarning, StoreError
from cksc_dist.evaluate import Protocol, evaluate
from cksc_dist.evaluate.results import find_evaluations
from cksc_dist.models.training import Place, train
from cksc_dist.spec import ModelSpec, RunSpec
from cksc_dist.store import series_files
from cksc_dist.store.folder import Folder
from cksc_dist.store.model_files import read_model
from cksc_dist.store.series_files import open_series
from tests.dist.processes import chunk_files
from tests.small_stores import joined, made_series, matrix_of, small_tiles

SERIAL = RunSpec(executor="serial")
DATA, MORE = made_series(40), made_series(8, prefix="more")


class Dark(Exception):
    """The power is gone."""


class Power:
    """Knows what has reached the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._synced: dict[int, int] = {}
        """Files by their inodes, and when each was written last: what is written later has not reached the disk."""
        self.most: int | None = None
        """How many cuts of a command are tried; None: one at every sync."""
        self.seen = 0
        self.left: int | None = None
        """How many more times something is synced before the power goes; None: it stays."""
        really = os.fsync

        def noticed(number: int) -> None:
            self.seen += 1
            if self.left is not None:
                if self.left <= 0:
                    raise Dark
                self.left -= 1
            self._note(os.fstat(number))
            really(number)

        monkeypatch.setattr(os, "fsync", noticed)
        # the inode of what is removed is soon that of another file
        for name in ("unlink", "remove", "rmdir", "replace", "rename"):
            monkeypatch.setattr(os, name, self._forgetting(getattr(os, name), name in ("replace", "rename")))

    def _note(self, found: os.stat_result) -> None:
        self._synced[found.st_ino] = found.st_mtime_ns

    def _forgetting(self, really: Callable[..., None], renames: bool) -> Callable[..., None]:
        def act(*args: Any, **options: Any) -> None:
            with suppress(OSError):
                found = os.lstat(args[1]) if renames else os.stat(args[0], follow_symlinks=False, **options)
                if found.st_nlink == 1 or stat.S_ISDIR(found.st_mode):
                    self._synced.pop(found.st_ino, None)
            really(*args, **options)

        return act

    def settle(self, folder: Path) -> None:
        """Let time pass, until the system has written all of it."""
        for path in folder.rglob("*"):
            self._note(path.stat())

    def cut(self, folder: Path) -> list[str]:
        """Empty what has not reached the disk; return the names."""
        lost = [path for path in folder.rglob("*") if path.is_file() and not self._has(path.stat())]
        for path in lost:
            path.write_bytes(b"")
        return [str(path.relative_to(folder)) for path in lost]

    def _has(self, found: os.stat_result) -> bool:
        return self._synced.get(found.st_ino) == found.st_mtime_ns

    def at_each_sync(self, store: Path, begin: Callable[[], Any], work: Callable[[], Any]) -> Iterator[None]:
        """Begin anew and let the power go at some sync of some work, and after it; the caller looks each time."""
        shutil.rmtree(store, ignore_errors=True)
        begin()
        before = self.seen
        work()
        syncs = self.seen - before
        tried = range(syncs) if self.most is None else np.linspace(0, syncs - 1, self.most).astype(int).tolist()
        for number in (*tried, None):
            shutil.rmtree(store)
            begin()
            self.settle(store)
            self.left = number
            # syncs of a heartbeat count, too: the last of them may not be reached
            with suppress(Dark):
                work()
            sync(_quiet())  # Zarr does not wait for others where one thread fails
            self.left = None
            self.cut(store)
            yield


async def _quiet() -> None:
    """Wait until nothing else goes on in Zarr's threads."""
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.005)


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Power:
    small_tiles(monkeypatch)
    # what is added has chunks of its own: those that take the place of others are synced anyway
    monkeypatch.setattr(series_files, "CHUNK_BYTES", 256)
    return Power(monkeypatch)


@pytest.fixture(params=[2, pytest.param(None, marks=pytest.mark.campaign)], ids=["some", "all"])
def cuts(power: Power, request: pytest.FixtureRequest) -> Power:
    """Power that goes at some syncs of a command, or at each."""
    power.most = request.param
    return power


@pytest.fixture
def expected(tmp_path: Path) -> Path:
    """A store in which nothing happened."""
    path = tmp_path / "expected"
    ingest(DATA, path)
    compute_distances(path, run=SERIAL)
    return path


def test_tiles_that_were_lost_are_computed_again(power: Power, expected: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    ingest(DATA, store)
    power.settle(store)
    compute_distances(store, run=SERIAL)
    lost = power.cut(store)
    assert any("/distance/c/" in name for name in lost)  # a tile is not worth the wait for the disk
    assert not any(name.endswith("zarr.json") for name in lost)
    with pytest.raises(StoreError, match=r"is damaged .*; mend it with: cksc verify .* --repair"):
        open_matrix(store)[:, :]
    compute_distances(store, run=SERIAL)
    assert chunk_files(store) == chunk_files(expected)


def check_series(store: Path, data: SeriesSet) -> None:
    """The series are there, and the store has nothing to complain of."""
    found = open_series(Folder(store)).load()
    np.testing.assert_array_equal(found.values, data.values)
    assert (found.ids.tolist(), found.labels.tolist()) == (data.ids.tolist(), data.labels.tolist())
    assert verify(store, sample=0)[0] == []


def test_an_ingest_goes_through_after_a_power_cut(cuts: Power, tmp_path: Path) -> None:
    store = tmp_path / "store"
    for _ in cuts.at_each_sync(store, store.mkdir, lambda: ingest(DATA, store)):
        ingest(DATA, store)
        check_series(store, DATA)
    assert not ingest(DATA, store)  # the last cut came when all was done, and took nothing


def test_series_that_were_ingested_are_on_the_disk(power: Power, tmp_path: Path) -> None:
    ingest(DATA, tmp_path / "store")
    assert power.cut(tmp_path / "store") == []


def test_an_append_goes_through_after_a_power_cut(cuts: Power, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "store"
    monkeypatch.setattr(ingest_module, "compute_distances", lambda *_: None)
    for _ in cuts.at_each_sync(store, lambda: ingest(DATA, store), lambda: append(store, MORE)):
        kept = open_series(Folder(store)).read(0, len(DATA))
        np.testing.assert_array_equal(kept[0], DATA.values)  # nothing of before is lost
        np.testing.assert_array_equal(kept[1], DATA.offsets)
        append(store, MORE)
        check_series(store, joined(DATA, MORE))
    cuts.settle(store)
    append(store, MORE)
    assert cuts.cut(store) == []


def test_distances_go_through_after_a_power_cut(cuts: Power, expected: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    work = partial(compute_distances, store, run=SERIAL)
    ingest(DATA, tmp_path / "series")
    for _ in cuts.at_each_sync(store, lambda: shutil.copytree(tmp_path / "series", store), work):
        work()
        assert chunk_files(store) == chunk_files(expected)
        problems, (verdict,) = verify(store, sample=0)
        assert (problems, verdict.ok) == ([], True)


@pytest.mark.parametrize("data", [None, DATA], ids=["matrix", "with-series"])
def test_a_ready_matrix_goes_through_after_a_power_cut(
    cuts: Power, expected: Path, tmp_path: Path, data: SeriesSet | None
) -> None:
    """Nobody could compute its tiles again."""
    store, matrix = tmp_path / "store", matrix_of(expected)
    for _ in cuts.at_each_sync(store, store.mkdir, lambda: ingest_distances(matrix, store, data=data)):
        ingest_distances(matrix, store, data=data)
        np.testing.assert_array_equal(matrix_of(store), matrix)
    cuts.settle(store)
    for chunk in list(store.glob("distances/*/distance/c/*/*"))[::3]:
        chunk.write_bytes(b"")  # by somebody else
    ingest_distances(matrix, store, data=data)
    np.testing.assert_array_equal(matrix_of(store), matrix)


@pytest.mark.parametrize("data", [None, DATA], ids=["matrix", "with-series"])
def test_a_ready_matrix_is_on_the_disk_once_it_is_ingested(
    power: Power, expected: Path, tmp_path: Path, data: SeriesSet | None
) -> None:
    store, matrix = tmp_path / "store", matrix_of(expected)
    ingest_distances(matrix, store, data=data)
    assert power.cut(store) == []
    np.testing.assert_array_equal(matrix_of(store), matrix)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_a_training_goes_through_after_a_power_cut(cuts: Power, expected: Path, tmp_path: Path, place: Place) -> None:
    store = tmp_path / "store"
    model = store / "models" / "first"

    def work() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return train(store, model, spec=ModelSpec(sparsity=2, max_iter=2), place=place, run=SERIAL)

    def begin() -> None:
        shutil.copytree(expected, store)

    begin()
    work()
    right: Any = read_model(model)
    for _ in cuts.at_each_sync(store, begin, work):
        work()
        found: Any = read_model(model)
        assert found[0] == right[0]
        assert all(np.array_equal(found[1][name], right[1][name]) for name in right[1])
        # a strip that is lost once nobody needs it is named, and written again for the next training
        assert not [each for each in verify_files(Folder(store)).damaged if "/strips/kernel/c/" not in each]


def test_an_evaluation_goes_through_after_a_power_cut(cuts: Power, expected: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"

    def work() -> Any:
        with warnings.catch_warnings():
            for kind in (SmallClassWarning, ConvergenceWarning):
                warnings.simplefilter("ignore", kind)
            return evaluate(store, ["1nn"], Protocol(n_splits=2, tune=False), run=SERIAL)

    shutil.copytree(expected, store)
    cuts.settle(store)
    right = work()
    assert not [name for name in cuts.cut(store) if not name.startswith("fits/")]
    assert find_evaluations(Folder(store))[0].table["accuracy"].equals(right["accuracy"])
    for _ in cuts.at_each_sync(store, lambda: shutil.copytree(expected, store), work):
        assert work()["accuracy"].equals(right["accuracy"])
        assert find_evaluations(Folder(store))[0].table["accuracy"].equals(right["accuracy"])


def test_a_model_is_on_the_disk_before_its_checkpoints_go(power: Power, expected: Path) -> None:
    power.settle(expected)
    model = expected / "models" / "first"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(expected, model, spec=ModelSpec(sparsity=2, max_iter=40), place="memory", run=SERIAL)
    assert not list(model.parent.glob("*.training/*/checkpoint*"))
    before: Any = read_model(model)
    power.cut(expected)
    after: Any = read_model(model)
    assert (before[0], before[2]) == (after[0], after[2])
    assert all(np.array_equal(before[1][name], after[1][name]) for name in before[1])


def test_what_takes_the_place_of_a_file_is_on_the_disk_before_it_does(power: Power, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("new", b"old")
    folder.write("replaced", b"old")
    folder.write("replaced", b"new")
    folder.write("durable", b"new", durable=True)
    assert power.cut(tmp_path) == ["new"]


def test_what_was_synced_and_removed_does_not_vouch_for_others(power: Power, tmp_path: Path) -> None:
    """An inode is used again at once."""
    folder, names = Folder(tmp_path), [f"{number}" for number in range(20)]
    for name in names:
        folder.write(name, b"old", durable=True)
        folder.remove(name)
    for name in names:
        folder.write(name, b"new")
    assert sorted(power.cut(tmp_path)) == sorted(names)
