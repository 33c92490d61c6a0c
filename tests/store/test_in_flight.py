"""Whoever gives up waits for what is still being written."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cksc_dist import CKSC
from cksc_dist.dist.ingest import ingest
from cksc_dist.errors import StoreError
from cksc_dist.store import in_flight, zarr_stores
from cksc_dist.store.in_flight import settle, writing
from tests.small_stores import made_series


def test_a_folder_settles_once_nothing_below_it_is_written(tmp_path: Path) -> None:
    begun, ended = threading.Event(), []

    def write() -> None:
        for _ in range(3):  # one begins when the one before it has ended
            with writing(tmp_path / "store"):
                begun.set()
                time.sleep(0.1)
                ended.append(1)

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait()
    settle(tmp_path / "other")
    assert len(ended) < 3
    settle(tmp_path)
    assert len(ended) == 3
    thread.join()
    assert not in_flight._now


def test_it_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "PATIENCE", 0.1)
    with writing(tmp_path):
        settle(tmp_path)


@pytest.fixture
def first_fails_others_are_slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that is full for a moment: Zarr tells of the first, and goes on with the others."""
    real, failed = zarr_stores.put, list[str]()

    def put(top: Path, key: str, content: Any, **options: Any) -> bool:
        if failed:
            time.sleep(0.3)
        elif request.param in key:
            failed.append(key)
            raise OSError(28, "No space left on device")
        return real(top, key, content, **options)

    monkeypatch.setattr(zarr_stores, "put", put)


def files(place: Path) -> set[Path]:
    return {path for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("first_fails_others_are_slow", ["/c/"], indirect=True)
@pytest.mark.usefixtures("first_fails_others_are_slow")
def test_a_store_is_given_back_after_the_last_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cksc_dist.store.series_files.CHUNK_BYTES", 64)
    with pytest.raises(StoreError, match="make room"):
        ingest(made_series(12), tmp_path / "s.zarr")
    found = files(tmp_path)
    assert not any(path.name.startswith("lock.json") or path.suffix == ".partial" for path in found)
    time.sleep(0.7)
    assert files(tmp_path) == found


@pytest.mark.parametrize("first_fails_others_are_slow", ["/zarr.json"], indirect=True)
@pytest.mark.usefixtures("first_fails_others_are_slow")
@pytest.mark.parametrize("relative", [False, True])
def test_half_a_model_is_removed_after_the_last_write(
    relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = made_series(6)
    model = CKSC(sparsity=2, kernel="dtw", random_state=0).fit(data, data.labels)
    with pytest.raises(Exception, match="make room"):
        model.save("m" if relative else tmp_path / "m")
    time.sleep(0.7)
    assert not files(tmp_path)
