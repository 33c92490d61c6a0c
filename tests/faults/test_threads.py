"""A process that may start no more threads: that says nothing of a store, and nothing of it is taken for damaged."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.memory import MemoryFileSystem
from zarr.storage import FsspecStore

from cksc_dist import CKSC, load_model, open_matrix
from cksc_dist.cli import main
from cksc_dist.dist import embedded as embedded_module
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.verify import verify
from cksc_dist.errors import NoThreadError
from cksc_dist.evaluate import Protocol, evaluate
from cksc_dist.evaluate.results import find_evaluations
from cksc_dist.spec import RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.series_files import open_series
from cksc_dist.store.zarr_stores import PlainLocalStore
from tests.small_stores import files_below, made_series

SERIAL = RunSpec(executor="serial")
DATA = made_series(24)

ACTIONS: dict[str, Callable[[Path], object]] = {
    "distances": lambda store: compute_distances(store, run=SERIAL),
    "verify": verify,
    "matrix": lambda store: np.asarray(open_matrix(store)),
    "xarray": lambda store: np.asarray(open_matrix(store).to_xarray()),
    "series": lambda store: open_series(Folder(store)).load(),
    "replace": lambda store: ingest(DATA, store, replace=True),
    "model": lambda store: load_model(store / "models" / "m"),
    "tables": lambda store: find_evaluations(Folder(store)),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("threads") / "s.zarr"
    ingest(DATA, store)
    compute_distances(store, run=SERIAL)
    CKSC(sparsity=2, kernel="dtw", random_state=0).fit(DATA, DATA.labels).save(store / "models" / "m")
    evaluate(store, ["1nn"], Protocol(n_splits=2, tune=False), run=SERIAL)
    return store


def without_threads(monkeypatch: pytest.MonkeyPatch, where: str) -> list[str]:
    """Let whatever Zarr reads in some place need a thread that cannot be started; return what was asked for."""
    real, asked = PlainLocalStore.get, list[str]()

    async def get(self: Any, key: str, *args: Any, **options: Any) -> Any:
        if re.search(where, f"{self.root}/{key}"):
            asked.append(key)
            raise RuntimeError("can't start new thread")
        return await real(self, key, *args, **options)

    monkeypatch.setattr(PlainLocalStore, "get", get)
    return asked


@pytest.mark.parametrize(
    ("where", "action"),
    [
        (where, action)
        for where, actions in {
            "/distance/c/": "matrix verify",
            "/distance/zarr.json": "distances verify matrix",
            "/distances/.*/(row|label)/": "xarray verify",
            "/series/values/c": "series replace verify",
            "/series/zarr.json": "series replace distances",
            "/series/label/c": "series replace",
            "/models/m/": "model",
            "/results/": "tables",
        }.items()
        for action in actions.split()
    ],
)
def test_it_is_told_and_nothing_is_changed(
    store: Path, where: str, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_below(store)
    with monkeypatch.context() as patched:
        asked = without_threads(patched, where)
        with pytest.raises(NoThreadError, match=r"can't start new thread: this user may have no more \(ulimit -u\)"):
            ACTIONS[action](store)
    assert asked
    assert files_below(store) == before


@pytest.mark.parametrize("place", [FsspecStore, Folder], ids=["zarr", "files"])
def test_a_server_is_not_said_to_be_away(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "memory://threads"
    ingest(DATA, url)

    def get(*_: object, **__: object) -> object:
        raise RuntimeError("can't start new thread")

    if place is Folder:
        AsyncFileSystemWrapper.clear_instance_cache()
        monkeypatch.setattr(MemoryFileSystem, "cat_file", get)
    else:
        monkeypatch.setattr(FsspecStore, "get", get)
    with pytest.raises(NoThreadError, match="can't start new thread: this user may have no more"):
        open_series(Folder(url)).load()
    AsyncFileSystemWrapper.clear_instance_cache()


def test_a_cluster_is_not_started_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def start(**_: object) -> object:
        tries.append(1)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(embedded_module, "LocalCluster", start)
    with pytest.raises(NoThreadError, match="can't start new thread: this user may have no more"):
        embedded_module.local_cluster(2, None)
    assert len(tries) == 1


def test_a_command_says_what_to_do(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_threads(monkeypatch, "/series/")
    assert main(["verify", str(store)]) == 2
    said = capsys.readouterr()
    assert "can't start new thread: this user may have no more (ulimit -u)" in said.err
    assert "damaged" not in said.out + said.err
