"""A store that goes away while it is read: that says nothing of what it holds, and nothing is taken for damaged."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from fsspec.implementations.memory import MemoryFileSystem

from cksc_dist import CKSC, load_model, open_matrix
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.dist.status import store_status
from cksc_dist.dist.verify import verify
from cksc_dist.dist.verify_files import verify_files
from cksc_dist.errors import StoreAwayError, StoreError
from cksc_dist.models.training import train
from cksc_dist.spec import ModelSpec, RunSpec
from cksc_dist.store import patience
from cksc_dist.store.folder import Folder
from cksc_dist.store.patience import Waiting
from cksc_dist.store.series_files import open_series
from tests.small_stores import made_series

URL = "memory://away/store"
SERIAL = RunSpec(executor="serial")
DATA = made_series(24)

ACTIONS: dict[str, Callable[[], object]] = {
    "distances": lambda: compute_distances(URL, run=SERIAL),
    "verify": lambda: verify(URL),
    "files": lambda: verify_files(Folder(URL)),
    "matrix": lambda: np.asarray(open_matrix(URL)),
    "xarray": lambda: np.asarray(open_matrix(URL).to_xarray()),
    "series": lambda: open_series(Folder(URL)).load(),
    "ingest": lambda: ingest(DATA, URL),
    "replace": lambda: ingest(DATA, URL, replace=True),
    "status": lambda: store_status(URL),
    "model": lambda: load_model(f"{URL}/models/m"),
}


@pytest.fixture(scope="module", autouse=True)
def made() -> None:
    """A store behind a URL, with a model and a kernel copy."""
    ingest(DATA, URL)
    compute_distances(URL, run=SERIAL)
    CKSC(sparsity=2, kernel="dtw", random_state=0).fit(DATA, DATA.labels).save(f"{URL}/models/m")
    train(URL, f"{URL}/models/copied", spec=ModelSpec(sparsity=2), place="disk", run=SERIAL)


def content() -> dict[str, bytes | None]:
    folder = Folder(URL)
    return {key: folder.read(key) for key in folder.files("")}


@pytest.mark.parametrize(
    ("away", "action"),
    [
        (away, action)
        for away, actions in {
            "/distance/c/": "distances verify matrix xarray",
            "/distance/zarr.json": "distances verify matrix xarray status",
            "/distances/.*/(row|label)/": "verify",
            "/ledger/": "distances verify status matrix files",
            "/series/values/c": "series replace verify",
            "/series/zarr.json": "series ingest replace distances status",
            "/series/label/c": "series ingest replace",
            "metadata.json": "series ingest verify",
            "/models/m/": "model files",
            "/kernels/": "files",
            "lock.json": "distances ingest",
        }.items()
        for action in actions.split()
    ],
)
def test_it_is_said_to_be_away_and_nothing_is_changed(away: str, action: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, before, asked = MemoryFileSystem.cat_file, content(), []

    def cat_file(self: MemoryFileSystem, path: str, *args: Any, **options: Any) -> bytes:
        if re.search(away, path):
            asked.append(path)
            raise ConnectionResetError(104, "the server is down")
        found: bytes = real(self, path, *args, **options)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(patience, "PATIENCE", 0.3)
        patched.setattr(MemoryFileSystem, "cat_file", cat_file)
        AsyncFileSystemWrapper.clear_instance_cache()  # some versions keep the function that was there before
        with pytest.raises(
            StoreAwayError, match=r"has been away for 0 s .*the server is down.*run the same command again"
        ):
            ACTIONS[action]()
    AsyncFileSystemWrapper.clear_instance_cache()
    assert asked
    now = content()
    left = {key for key in now.keys() | before.keys() if now.get(key) != before.get(key)}
    assert left <= {"lock.json"}  # a lock that cannot be read is nobody's to remove, and is taken over
    Folder(URL).remove("lock.json")


def test_keys_that_have_run_out_are_no_damage() -> None:
    class NoCredentialsError(Exception):
        __module__ = "botocore.exceptions"

    with pytest.raises(StoreAwayError, match="set AWS_ACCESS_KEY_ID") as found:
        Waiting("s3://bucket/store").pause(NoCredentialsError("none"))
    assert not isinstance(found.value, StoreError | ValueError)
