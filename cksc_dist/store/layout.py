"""How a store is laid out (Zarr v3), and the root that says which version of the layout it has.

zarr.json                        format and version
series/                          values (frame, dim), offsets (edge), label, row (ids), digest of each series
distances/<fingerprint>/         distance (row, col) with its coordinates row, col and label: what xarray opens
ledger/<fingerprint>/            which tiles are done (`cksc_dist.store.ledger`)
kernels/<key>/                   kernels that do not fit in memory, row by row (`cksc_dist.store.kernel_copy`)
models/<name>/                   models, where they are kept with their series (`cksc_dist.store.model_files`)
fits/<name>/, results/<name>/    single fits of an evaluation; its tables (`cksc_dist.store.table_files`)
metadata.json, lock.json         copies of all zarr.json; who is writing
"""

from __future__ import annotations

import json
import struct
from typing import Any

import zarr
from zarr.codecs import BloscCodec, Crc32cCodec

from cksc_dist.errors import StoreError, brief
from cksc_dist.processes import PARTIAL
from cksc_dist.store.folder import Folder
from cksc_dist.store.local_files import groups_above
from cksc_dist.store.zarr_stores import check_metadata

__all__ = ["CHUNK_BYTES", "DAMAGE", "check_place", "check_store", "compressors", "create_root", "is_store"]

FORMAT = "cksc_dist store"
VERSION = 1

CHUNK_BYTES = 2**20
"""About so large are chunks of arrays other than matrices."""


DAMAGE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
    MemoryError,
    struct.error,
)
"""What Zarr and xarray raise where metadata or chunks are not what was written; a lost file is another thing."""


def compressors(itemsize: int) -> list[Any]:
    """Return the codecs of every array: the quickest that gains anything, then a checksum that notices flipped bits."""
    return [BloscCodec(cname="lz4", shuffle="shuffle", typesize=itemsize), Crc32cCodec()]


def create_root(folder: Folder) -> None:
    """Make the root group of a new store; one that is there stays as it is."""
    if not is_store(folder):
        zarr.create_group(folder.zarr(), zarr_format=3, attributes={"format": FORMAT, "version": VERSION})


def is_store(folder: Folder) -> bool:
    """Tell whether there is a store, or say what else is there."""
    attributes = _attributes(folder)
    if attributes is None:
        return False
    if attributes.get("format") != FORMAT:
        raise StoreError(f"{folder.url} is something else than a store of this package; choose another place")
    if attributes.get("version") != VERSION:
        raise StoreError(
            f"{folder.url} has layout version {attributes.get('version')!r}, but this release reads version {VERSION}; "
            "install the release that wrote it, or ingest the series into a new store"
        )
    return True


def check_place(folder: Folder) -> None:
    """Raise a StoreError where no store may be made, because something else is there, or around it."""
    if is_store(folder) or folder.local is None:
        return
    for above in groups_above(folder.local.resolve()):
        raise StoreError(f"{folder.url} lies inside {above}, another store or model; choose another place")


def _attributes(folder: Folder) -> dict[str, Any] | None:
    content = folder.read("zarr.json")
    if content is None:
        if folder.local is not None and folder.local.is_file():
            raise StoreError(f"{folder.url} is a file; a store is a folder: choose another place")
        # an empty place is fine, a full one is somebody's
        strange = [name for name in folder.names("") if not name.startswith("lock.json") and not name.endswith(PARTIAL)]
        return {"format": strange} if strange else None
    try:
        found = json.loads(content)
        check_metadata("zarr.json", content)  # or Zarr would refuse it in the middle of writing
        if found["node_type"] != "group":
            raise ValueError("it is no group")
        return dict(found["attributes"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if folder.read("metadata.json") is None:
            return {"format": "unreadable"}
        raise StoreError(
            f"{folder.url}/zarr.json is damaged ({brief(error)}); mend it with: {folder.repair}"
        ) from error


def check_store(folder: Folder) -> None:
    """Raise a StoreError unless there is a store."""
    if not is_store(folder):
        raise StoreError(f"{folder.url} is no store; make one with: cksc ingest SOURCE {folder.typed}")
