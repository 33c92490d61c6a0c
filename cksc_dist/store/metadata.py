"""A copy of every metadata file of a store: Zarr's checksums cover chunks only.

``metadata.json`` holds the text of each ``zarr.json`` of this package's own groups, with a digest of all. A metadata
file that differs from its copy is damaged, or was changed by somebody else; it can be put back.

Who changes a group forgets its copies first and takes new ones at the end. Killed in between, it leaves no copies, and
never old ones, which a repair would put back; whoever comes next takes them. All of it is on the disk at once, as the
files are that it copies: a power cut must not bring back what was forgotten.
"""

from __future__ import annotations

import re

import zarr

from cksc_dist.errors import StoreError
from cksc_dist.store.folder import Folder

__all__ = [
    "check_metadata",
    "damaged_metadata",
    "ensure_recorded",
    "forget_metadata",
    "record_metadata",
    "recorded_metadata",
    "restore_metadata",
]

KEY = "metadata.json"


def _copies(folder: Folder) -> dict[str, str]:
    found = folder.read_json(KEY) or {}
    if not isinstance(found, dict) or not all(_is_copy(key, text) for key, text in found.items()):
        raise StoreError(
            f"{folder.url}/{KEY} holds something else than copies of metadata: it was not written by this package; "
            "restore it, or remove it and run cksc verify"
        )
    return found


def _is_copy(key: str, text: object) -> bool:
    """Tell whether it is the copy of a file below the store: a repair writes it there."""
    *parts, name = key.split("/")
    below = all(re.fullmatch(r"[A-Za-z0-9_-]+", part) for part in parts)
    return name == "zarr.json" and below and isinstance(text, str) and text.isascii()


def recorded_metadata(folder: Folder) -> list[str]:
    """Return the keys of the metadata files that there are copies of."""
    return list(_copies(folder))


def _without(copies: dict[str, str], group: str) -> dict[str, str]:
    return {key: text for key, text in copies.items() if not key.startswith(f"{group}/")}


def forget_metadata(folder: Folder, group: str) -> None:
    """Forget the copies of a group, before it is changed; the store must be held for writing."""
    copies = _copies(folder)
    rest = _without(copies, group)
    if rest != copies:
        folder.write_json(KEY, rest, durable=True)


def record_metadata(folder: Folder, group: str) -> None:
    """Take copies of the metadata of a group, of its arrays and of the groups above it."""
    arrays = zarr.open_group(folder.zarr(read_only=True), path=group, mode="r").array_keys()
    parts = group.split("/")
    above = ["", *(f"{'/'.join(parts[:k])}/" for k in range(1, len(parts)))]
    keys = [f"{prefix}zarr.json" for prefix in (*above, f"{group}/", *(f"{group}/{name}/" for name in arrays))]
    found = {key: content.decode() for key in keys if (content := folder.read(key)) is not None}
    folder.write_json(KEY, _without(_copies(folder), group) | found, durable=True)


def ensure_recorded(folder: Folder, group: str) -> None:
    """Take the copies of a group that a killed process has left without them."""
    if f"{group}/zarr.json" not in _copies(folder):
        record_metadata(folder, group)


def damaged_metadata(folder: Folder) -> list[str]:
    """Return the keys of metadata files that differ from their copies, or are missing."""
    copies = _copies(folder)
    found = [key for key, text in copies.items() if folder.read(key) != text.encode()]
    # whoever changes a file forgets its copy first: only a copy that stays tells of damage
    now = _copies(folder) if found else copies
    return [key for key in found if now.get(key) == copies[key]]


def check_metadata(folder: Folder, *keys: str) -> None:
    """Raise a StoreError for a metadata file that differs from its copy: what it says may be wrong and look right."""
    copies = _copies(folder)
    for key in keys:
        while key in copies and folder.read(key) != copies[key].encode():
            now = _copies(folder)
            # whoever changes a file forgets its copy first: a copy that stays tells of damage
            if now.get(key) == copies[key]:
                raise StoreError(
                    f"{folder.url}/{key} is damaged (it differs from its copy in {KEY}); mend it with: {folder.repair}"
                )
            copies = now


def restore_metadata(folder: Folder) -> list[str]:
    """Put damaged metadata files back, and return their keys."""
    copies = _copies(folder)
    damaged = damaged_metadata(folder)
    for key in damaged:
        folder.write(key, copies[key].encode())
    return damaged
