"""The power goes: what was written and not brought to the disk itself is empty afterwards.

That is simulated. Files are known by their inodes; after some work, those that were never synced are emptied. A rename
that the disk has not seen is not simulated: journals keep the order of renames and later syncs.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cksc_dist import open_matrix
from cksc_dist.dist import ingest as ingest_module
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import append, ingest
from cksc_dist.errors import StoreError
from cksc_dist.models.training import train
from cksc_dist.spec import ModelSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.model_files import read_model
from cksc_dist.store.series_files import open_series
from tests.dist.processes import chunk_files
from tests.small_stores import made_series, small_tiles

SERIAL = RunSpec(executor="serial")
DATA, MORE = made_series(40), made_series(8, prefix="more")


class Power:
    """Knows what has reached the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._synced: set[int] = set()
        really = os.fsync

        def sync(number: int) -> None:
            self._synced.add(os.fstat(number).st_ino)
            really(number)

        monkeypatch.setattr(os, "fsync", sync)

    def settle(self, folder: Path) -> None:
        """Let time pass, until the system has written all of it."""
        self._synced |= {path.stat().st_ino for path in folder.rglob("*")}

    def cut(self, folder: Path) -> list[str]:
        """Empty what has not reached the disk; return the names."""
        lost = [path for path in folder.rglob("*") if path.is_file() and path.stat().st_ino not in self._synced]
        for path in lost:
            path.write_bytes(b"")
        return [str(path.relative_to(folder)) for path in lost]


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Power:
    small_tiles(monkeypatch)
    return Power(monkeypatch)


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


def test_series_of_before_an_append_are_not_lost_with_it(
    power: Power, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    ingest(DATA, store)
    power.settle(store)
    monkeypatch.setattr(ingest_module, "compute_distances", lambda *_: None)
    append(store, MORE)
    power.cut(store)
    kept = open_series(Folder(store))
    values, offsets = kept.read(0, len(DATA))
    np.testing.assert_array_equal(values, DATA.values)
    np.testing.assert_array_equal(offsets, DATA.offsets)


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
