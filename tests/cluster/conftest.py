"""What every kind of cluster must come to: the bytes that the embedded cluster writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cksc_dist.dist.ingest import ingest
from cksc_dist.io import make_gestures
from tests.cluster.recipes import check_that_two_worked
from tests.dist.processes import Starter, chunk_files, starter


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def start(folder: Path) -> Iterator[Starter]:
    with starter(folder) as started:
        yield started


SERIES = {"n_per_class": 160, "dims": 6, "length": (150, 220)}
"""So many, and so long, that they are several tasks on a quick machine, too: both workers have a part in them."""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    ingest(make_gestures(**SERIES), tmp_path / "gestures.zarr")  # type: ignore[arg-type]
    return tmp_path / "gestures.zarr"


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A digest of every file of the matrix, as two workers of the embedded cluster write it."""
    folder = tmp_path_factory.mktemp("embedded")
    path = folder / "gestures.zarr"
    ingest(make_gestures(**SERIES), path)  # type: ignore[arg-type]
    with starter(folder) as start:  # in a process of its own: Dask forgets a socket where its port is taken
        run = start.cksc("distances", str(path), "--executor", "dask", "--workers", "2")
        assert run.wait() == 0, run.output
        assert "computed 204,480 pairs" in run.output
    check_that_two_worked(path)
    files = chunk_files(path)
    assert any("/c/" in name for name in files)
    return files
