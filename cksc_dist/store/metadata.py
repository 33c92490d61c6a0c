"""A copy of every metadata file of a store: Zarr's checksums cover chunks only.

``metadata.json`` holds the text of each ``zarr.json`` of this package's own groups, with a digest of all. A metadata
file that differs from its copy is damaged, or was changed by somebody else; it can be put back.
"""

from __future__ import annotations

from collections.abc import Iterable

import zarr

from cksc_dist.store.folder import Folder

__all__ = ["damaged_metadata", "record_metadata", "restore_metadata"]

KEY = "metadata.json"


def record_metadata(folder: Folder, groups: Iterable[str]) -> None:
    """Take copies of the metadata of groups and all arrays in them; the store must be held for writing."""
    copies: dict[str, str] = folder.read_json(KEY) or {}
    for group in groups:
        prefix = f"{group}/" if group else ""
        copies = {key: text for key, text in copies.items() if not (prefix and key.startswith(prefix))}
        names = [f"{prefix}zarr.json"]
        if group:
            names += [f"{prefix}{name}/zarr.json" for name in _arrays(folder, group)]
        for name in names:
            content = folder.read(name)
            if content is not None:
                copies[name] = content.decode()
    folder.write_json(KEY, copies)


def _arrays(folder: Folder, group: str) -> list[str]:
    return sorted(zarr.open_group(folder.zarr(read_only=True), path=group, mode="r").array_keys())


def damaged_metadata(folder: Folder) -> list[str]:
    """Return the keys of metadata files that differ from their copies, or are missing."""
    copies: dict[str, str] = folder.read_json(KEY) or {}
    return [key for key, text in copies.items() if folder.read(key) != text.encode()]


def restore_metadata(folder: Folder) -> list[str]:
    """Put damaged metadata files back, and return their keys."""
    copies: dict[str, str] = folder.read_json(KEY) or {}
    damaged = damaged_metadata(folder)
    for key in damaged:
        folder.write(key, copies[key].encode())
    return damaged
