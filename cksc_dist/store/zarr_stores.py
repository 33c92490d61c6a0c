"""Zarr stores that let nothing through but what this package writes: Zarr version 3, and a few harmless codecs.

Zarr does what the metadata of an array says, and a store may come from anybody. In the older version 2 of the format
that may be to unpickle chunks, which runs whatever code they hold; and a group of version 3 may hold arrays of version
2, in what it calls consolidated metadata. So what is read is looked at before Zarr sees it: files of version 2 are not
there, and metadata that names another version or codec is refused.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from zarr.storage import FsspecStore, LocalStore

from cksc_dist.processes import unfinished

__all__ = ["PlainFsspecStore", "PlainLocalStore", "check_metadata"]

CODECS = {"bytes", "vlen-utf8", "blosc", "zstd", "gzip", "crc32c", "transpose"}
"""Codecs of this package and of xarray, and those that others may have packed a store anew with."""

Result = TypeVar("Result")

METADATA = "zarr.json"
OLD = (".zarray", ".zgroup", ".zattrs", ".zmetadata")


def check_metadata(key: str, content: bytes) -> None:
    """Raise a ValueError for metadata that asks for more than this package ever needs; damage is for Zarr to tell.

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
        return
    if not isinstance(found, dict):
        return
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


def _is_old(key: str) -> bool:
    return key.rsplit("/", 1)[-1] in OLD


def _checked(key: str, found: Any) -> Any:
    if found is not None and key.rsplit("/", 1)[-1] == METADATA:
        check_metadata(key, found.to_bytes())
    return found


class PlainLocalStore(LocalStore):
    """A folder of this machine; what is not whole yet has a name that tells who writes it."""

    async def set(self, key: str, value: Any) -> None:
        """Put something under a key."""
        self._check_writable()
        await asyncio.to_thread(_put, self.root / key, value)

    def set_sync(self, key: str, value: Any) -> None:
        """Do the same at once."""
        self._check_writable()
        _put(self.root / key, value)

    async def set_if_not_exists(self, key: str, value: Any) -> None:
        """Put something under a key where there is nothing."""
        self._check_writable()
        with suppress(FileExistsError):
            await asyncio.to_thread(_put, self.root / key, value, new=True)

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        """Return what is under a key, None where there is nothing or what may not be read."""
        return None if _is_old(key) else _checked(key, await super().get(key, *args, **options))

    def get_sync(self, key: str, **options: Any) -> Any:
        """Do the same at once."""
        return None if _is_old(key) else _checked(key, super().get_sync(key, **options))


def _put(path: Path, value: Any, *, new: bool = False) -> None:
    """Write a file, whole or not at all; new: unless there is one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = unfinished(path)
    try:
        partial.write_bytes(value.as_buffer_like())
        if new:
            os.link(partial, path)  # fails where the name is taken
        else:
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


class PlainFsspecStore(FsspecStore):
    """A place behind a URL; whatever Zarr asks of it, it is waited for while it is away."""

    async def _patiently(self, action: Callable[[], Awaitable[Result]]) -> Result:
        from cksc_dist.store import folder  # which makes these stores

        protocol = self.fs.protocol
        waiting = folder.Waiting(f"{protocol if isinstance(protocol, str) else protocol[0]}://{self.path}")
        while True:
            try:
                return await action()
            except folder.NOT_AWAY:
                raise
            except Exception as error:
                pause = waiting.pause(error)
            await asyncio.sleep(pause)

    async def get(self, key: str, *args: Any, **options: Any) -> Any:
        """Return what is under a key, None where there is nothing or what may not be read."""
        parent: Any = super()
        if _is_old(key):
            return None
        return _checked(key, await self._patiently(lambda: parent.get(key, *args, **options)))

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
