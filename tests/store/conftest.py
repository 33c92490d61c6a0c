"""A place for a store, on disk and behind a URL: what tests of the store layer share."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fsspec
import pytest

from cksc_dist.store.folder import Folder
from tests.dist.processes import answers, free_port, starter, wait_until


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


_held: list[Any] = []


def _forget_connections() -> None:
    """Let the next call connect anew; the old ones are held, because they complain when they are dropped unclosed."""
    import s3fs  # type: ignore[import-untyped]  # it has no types

    _held.extend(s3fs.S3FileSystem._cache.values())
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket of an S3 server on loopback."""
    for needed in ("s3fs", "moto", "flask"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"needs {needed}: pip install cksc_dist[test]")
    import s3fs

    from tests.dist.test_s3 import Server

    port = free_port()
    with starter(tmp_path_factory.mktemp("server")) as start, pytest.MonkeyPatch.context() as patch:
        server = Server(start(sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)), port)
        wait_until(lambda: answers(port), "a server that answers")
        for name, value in server.environment().items():
            patch.setenv(name, value)
        _forget_connections()  # those of other modules ask servers that are gone
        s3fs.S3FileSystem().mkdir("objects")
        yield "s3://objects"
        _forget_connections()
