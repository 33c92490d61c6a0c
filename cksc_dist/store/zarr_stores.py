"""Zarr stores that let nothing through but what this package writes: Zarr version 3, and a few harmless codecs.

Zarr does what the metadata of an array says, and a store may come from anybody. In the older version 2 of the format
that may be to unpickle chunks, which runs whatever code they hold; and a group of version 3 may hold arrays of version
2, in what it calls consolidated metadata. So what is read is looked at before Zarr sees it: files of version 2 are not
there, and metadata that names another version or codec is refused, as are chunks that ask for more memory than they can
hold (`cksc_dist.store.chunk_sizes`).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import zarr
from zarr.storage import FsspecStore, LocalStore, MemoryStore

from cksc_dist.errors import CkscError, want_of_threads
from cksc_dist.store.chunk_sizes import Chunks, check_chunk, chunks_of
from cksc_dist.store.in_flight import writing
from cksc_dist.store.local_files import check_stored, path_below, put
from cksc_dist.store.patience import NOT_AWAY, Waiting

__all__ = ["PlainFsspecStore", "PlainLocalStore", "check_assertions", "check_metadata"]

CODECS = {"bytes", "vlen-utf8", "blosc", "zstd", "crc32c", "transpose"}
"""Codecs of this package and of xarray, and what others may have packed a store anew with; gzip does not say what it
unpacks to."""

Result = TypeVar("Result")

METADATA = "zarr.json"
HEAD = 18
"""Bytes at the beginning of a chunk that tell how large it is."""
OLD = (".zarray", ".zgroup", ".zattrs", ".zmetadata")


def check_metadata(key: str, content: bytes) -> Chunks | None:
    """Raise a ValueError for metadata that asks for more than this package ever needs; damage is for Zarr to tell.

    Returns what it says of chunks, where it is that of an array.

    Examples
    --------
    >>> check_metadata("a/zarr.json", b'{"zarr_format": 3, "node_type": "array", "codecs": [{"name": "pickle"}]}')
    Traceback (most recent call last):
    ...
    ValueError: a/zarr.json asks for the codec 'pickle', which is not used by this package and may run code
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    if found.get("zarr_format", 3) != 3:
        raise ValueError(f"{key} is of Zarr version {found['zarr_format']!r:.50}; this package reads version 3 alone")
    consolidated = found.get("consolidated_metadata")
    if consolidated and (not isinstance(consolidated, dict) or consolidated.get("metadata")):
        raise ValueError(f"{key} holds metadata of other files (consolidated), which this package never writes")
    codecs = found.get("codecs", [])
    for codec in codecs if isinstance(codecs, list) else [codecs]:
        name = codec.get("name") if isinstance(codec, dict) else codec
        if name not in CODECS:
            raise ValueError(
                f"{key} asks for the codec {name!r:.50}, which is not used by this package and may run code"
            )
    return chunks_of(key, found) if found.get("node_type") == "array" and isinstance(codecs, list) else None


@cache
def check_assertions() -> None:
    """Raise a CkscError where Python runs without assertions, and Zarr does work inside of these."""
    if not sys.flags.optimize:
        return
    group = zarr.create_group(MemoryStore())
    group.create_group("inner")
    try:
        group["inner"]
    except TypeError as error:
        raise CkscError(  # no StoreError: nothing is damaged
            f"this release of Zarr ({zarr.__version__}) does not work without assertions; run Python without -O, and "
            "without the variable PYTHONOPTIMIZE"
        ) from error


def _is_old(key: str) -> bool:
    return key.rsplit("/", 1)[-1] in OLD


def _is_metadata(key: str) -> bool:
    return key.rsplit("/", 1)[-1] == METADATA


class _Looked:
    """What metadata says of the chunks of each array that was opened, and whether chunks are as it says."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._arrays: dict[str, Chunks | None] = {}

    def _checked(self, key: str, found: Any) -> Any:
        if found is None:
            return None
        above, _, name = key.rpartition("/")
        if name == METADATA:
            self._arrays[above] = check_metadata(key, found.to_bytes())
            return found
        # of a/b/c/0/0, the array is a/b
        while above not in self._arrays and above:
            above = above.rpartition("/")[0]
        chunks = self._arrays.get(above)
        if chunks is not None:
            check_chunk(key, chunks, found[:HEAD].to_bytes(), len(found))
        return found


class PlainLocalStore(_Looked, LocalStore):
    """A folder of this machine; what is not whole yet has a name that tells who writes it.

    Parameters
    ----------
    root, options
        As Zarr takes them.
    durable
        Chunks are on the disk itself once they are written, as metadata always is.
    """

    def __init__(self, root: Path | str, *, durable: bool = False, **options: Any) -> None:
        super().__init__(root, **options)
        self._durable = durable

    async def set(self, key: str, value: Any) -> None:
        """Put something under a key."""
        self._check_writable()
        with writing(self.root):
            await asyncio.to_thread(self._put, key, value)

    def set_sync(self, key: str, value: Any) -> None:
        """Do the same at once."""
        self._check_writable()
        self._put(key, value)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Put something under a key where there is nothing."""
        self._check_writable()
        with writing(self.root):
            await asyncio.to_thread(self._put, key, value, new=True)

    async def delete(self, key: str) -> None:
        """Remove what is under a key."""
        path_below(self.root, key)
        await super().delete(key)

    def delete_sync(self, key: str) -> None:
        """Do the same at once."""
        path_below(self.root, key)
        super().delete_sync(key)

    async def delete_dir(self, prefix: str) -> None:
        """Remove all below a prefix."""
        path_below(self.root, f"{prefix}/")
        await super().delete_dir(prefix)

    def _put(self, key: str, value: Any, *, new: bool = False) -> None:
        # without its metadata, nobody could tell which chunks are lost
        put(self.root, key, value.as_buffer_like(), durable=self._durable or _is_metadata(key), new=new)

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        """Return what is under a key, None where there is nothing or what may not be read."""
        if _is_old(key):
            return None
        await asyncio.to_thread(check_stored, self.root / key)
        return self._checked(key, await super().get(key, *args, **options))

    def get_sync(self, key: str, **options: Any) -> Any:
        """Do the same at once."""
        if _is_old(key):
            return None
        check_stored(self.root / key)
        return self._checked(key, super().get_sync(key, **options))


class PlainFsspecStore(_Looked, FsspecStore):
    """A place behind a URL; whatever Zarr asks of it, it is waited for while it is away."""

    async def _patiently(self, action: Callable[[], Awaitable[Result]]) -> Result:
        protocol = self.fs.protocol
        waiting = Waiting(f"{protocol if isinstance(protocol, str) else protocol[0]}://{self.path}")
        while True:
            try:
                return await action()
            except NOT_AWAY:
                raise
            except Exception as error:
                want_of_threads(error)
                pause = waiting.pause(error)
            await asyncio.sleep(pause)

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        """Return what is under a key, None where there is nothing or what may not be read."""
        parent: Any = super()
        if _is_old(key):
            return None
        return self._checked(key, await self._patiently(lambda: parent.get(key, *args, **options)))

    async def set(self, key: str, *args: Any, **options: Any) -> None:
        """Put something under a key."""
        parent: Any = super()
        await self._patiently(lambda: parent.set(key, *args, **options))

    async def exists(self, key: str) -> bool:
        """Tell whether there is something under a key."""
        parent: Any = super()
        return await self._patiently(lambda: parent.exists(key))

    async def delete(self, key: str) -> None:
        """Remove what is under a key."""
        parent: Any = super()
        await self._patiently(lambda: parent.delete(key))

    async def delete_dir(self, prefix: str) -> None:
        """Remove all below a prefix."""
        parent: Any = super()
        await self._patiently(lambda: parent.delete_dir(prefix))

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Give the names in a folder."""
        parent: Any = super()
        for name in await self._patiently(lambda: _all(parent.list_dir(prefix))):
            yield name

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Give all keys with a prefix."""
        parent: Any = super()
        for name in await self._patiently(lambda: _all(parent.list_prefix(prefix))):
            yield name


async def _all(names: AsyncIterator[str]) -> list[str]:
    return [name async for name in names]
