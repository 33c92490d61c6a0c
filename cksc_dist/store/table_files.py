"""Tables of results in a store: each a Zarr group that xarray reads and writes, with a list of its files beside it.

    results/<name>/              the table
    results/<name>.files.json    a digest of every file of it; written last: a table without it was cut off

xarray takes a lost chunk for zeros, and nothing tells a changed attribute: what is not as listed is not read.
"""

from __future__ import annotations

import zarr

from cksc_dist.errors import StoreError, brief
from cksc_dist.store.chunk_sizes import check_held, taken
from cksc_dist.store.folder import Folder
from cksc_dist.store.manifest import differing, digests_of, listed_files

__all__ = ["RESULTS", "check_table", "check_table_size", "forget_table", "record_table", "table_files"]

RESULTS = "results"

ROOT = b'{"attributes": {}, "node_type": "group", "zarr_format": 3}'
"""The group above all tables; those who write several at a time write the same."""

_AGAIN = "run the evaluation again: fits that are done are not repeated"


def _list(name: str) -> str:
    return f"{RESULTS}/{name}.files.json"


def forget_table(folder: Folder, name: str) -> None:
    """Begin to write a table: the one that is there does not count any more."""
    folder.remove(_list(name))
    folder.write(f"{RESULTS}/zarr.json", ROOT, durable=True)


def record_table(folder: Folder, name: str) -> None:
    """List the files of a table that is written."""
    top = f"{RESULTS}/{name}"
    listed = digests_of(folder, [f"{top}/{file}" for file in sorted(folder.files(top))])
    folder.write_json(_list(name), listed, durable=True)


def table_files(folder: Folder, name: str) -> dict[str, str]:
    """Return the files of a table with their digests, or say that it was cut off."""
    listed = folder.read_json(_list(name))
    if listed is None:
        raise StoreError(
            f"{folder.url}/{RESULTS}/{name} was cut off while it was written, or by an older release: there is no "
            f"{_list(name)}; {_AGAIN}"
        )
    try:
        return listed_files(listed)
    except ValueError as error:
        raise StoreError(f"{folder.url}/{_list(name)} is damaged ({brief(error)}); remove it, and {_AGAIN}") from error


def check_table(folder: Folder, name: str) -> None:
    """Raise a StoreError where a file of a table is not what was written."""
    bad = differing(folder, table_files(folder, name))
    if bad:
        raise StoreError(
            f"{folder.url}/{RESULTS}/{name} is damaged ({bad[0]} is lost, or not what was written); remove it, and "
            f"{_AGAIN}"
        )


def check_table_size(folder: Folder, name: str) -> None:
    """Raise a ValueError where a table, which is read as a whole, asks for more memory than its files can hold."""
    top = f"{RESULTS}/{name}"
    arrays = zarr.open_group(folder.zarr(read_only=True), path=top, mode="r").array_values()
    check_held(sum(map(taken, arrays)), lambda: folder.files(top).values())
