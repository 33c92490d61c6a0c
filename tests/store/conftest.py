"""A place for a store, on disk and behind a URL: what tests of the store layer share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest

from cksc_dist.store.folder import Folder


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    """A folder that is not there yet, of both kinds."""
    if request.param == "local":
        yield Folder(tmp_path / "store")
        return
    name = f"/{uuid4().hex}"
    yield Folder(f"memory:/{name}")
    memory = fsspec.filesystem("memory")
    if memory.exists(name):
        memory.rm(name, recursive=True)
