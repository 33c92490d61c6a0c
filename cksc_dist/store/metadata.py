"""A copy of every metadata file of a store: Zarr's checksums cover chunks only.

``metadata.json`` holds the text of each ``zarr.json`` of this package's own groups, with a digest of all. A metadata
file that differs from its copy is damaged, or was changed by somebody else; it can be put back.

Who changes a group forgets its copies first and takes new ones at the end. Killed in between, it leaves no copies, and
never old ones, which a repair would put back; whoever comes next takes them.
"""

from __future__ import annotations

import zarr

from cksc_dist.store.folder import Folder

__all__ = ["damaged_metadata", "ensure_recorded", "forget_metadata", "record_metadata", "restore_metadata"]

KEY = "metadata.json"


def _copies(folder: Folder) -> dict[str, str]:
    return dict(folder.read_json(KEY) or {})


def _without(copies: dict[str, str], group: str) -> dict[str, str]:
    return {key: text for key, text in copies.items() if not key.startswith(f"{group}/")}


def forget_metadata(folder: Folder, group: str) -> None:
    """Forget the copies of a group, before it is changed; the store must be held for writing."""
    copies = _copies(folder)
    rest = _without(copies, group)
    if rest != copies:
        folder.write_json(KEY, rest)


def record_metadata(folder: Folder, group: str) -> None:
    """Take copies of the metadata of a group, of its arrays and of the groups above it."""
    arrays = zarr.open_group(folder.zarr(read_only=True), path=group, mode="r").array_keys()
    parts = group.split("/")
    above = ["", *(f"{'/'.join(parts[:k])}/" for k in range(1, len(parts)))]
    keys = [f"{prefix}zarr.json" for prefix in (*above, f"{group}/", *(f"{group}/{name}/" for name in arrays))]
    found = {key: content.decode() for key in keys if (content := folder.read(key)) is not None}
    folder.write_json(KEY, _without(_copies(folder), group) | found)


def ensure_recorded(folder: Folder, group: str) -> None:
    """Take the copies of a group that a killed process has left without them."""
    if f"{group}/zarr.json" not in _copies(folder):
        record_metadata(folder, group)


def damaged_metadata(folder: Folder) -> list[str]:
    """Return the keys of metadata files that differ from their copies, or are missing."""
    return [key for key, text in _copies(folder).items() if folder.read(key) != text.encode()]


def restore_metadata(folder: Folder) -> list[str]:
    """Put damaged metadata files back, and return their keys."""
    copies = _copies(folder)
    damaged = damaged_metadata(folder)
    for key in damaged:
        folder.write(key, copies[key].encode())
    return damaged
