"""A list of files with a digest of each, kept beside what is written once and has no checksum of every byte.

Zarr's checksums cover chunks; the metadata of an array, attributes and names are covered by nothing. A list is itself
JSON with a digest, written after all that it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

from cksc_dist.store.folder import Folder

__all__ = ["differing", "digests_of", "listed_files"]

_BELOW = re.compile(r"[^/\x00-\x1f]{1,255}(/[^/\x00-\x1f]{1,255})*")


def digests_of(folder: Folder, keys: Iterable[str]) -> dict[str, str]:
    """Return a digest of each of some files; empty for one that is not there.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as path:
    ...     folder = Folder(path)
    ...     folder.write("a", b"1")
    ...     listed = digests_of(folder, ["a"])
    ...     folder.write("a", b"2")
    ...     differing(folder, listed)
    ['a']
    """
    found = {key: folder.read(key) for key in keys}
    return {key: "" if content is None else sha256(content).hexdigest() for key, content in found.items()}


def listed_files(found: object) -> dict[str, str]:
    """Return a list as it was read, or raise a ValueError where it is none, or names what is not below the folder."""
    if not isinstance(found, dict) or not all(isinstance(text, str) for pair in found.items() for text in pair):
        raise ValueError("it is no list of files with their digests")
    outside = [key for key in found if not _BELOW.fullmatch(key) or {".", ".."} & set(key.split("/"))]
    if outside:
        raise ValueError(f"it lists {outside[0][:100]!r}, which is no file of it")
    return found


def differing(folder: Folder, listed: dict[str, str]) -> list[str]:
    """Return the files of a list that are lost, or not what was written."""
    now = digests_of(folder, listed)
    return [key for key, digest in listed.items() if now[key] != digest]
