"""A saved model: one Zarr group of plain arrays, with its settings as JSON. Nothing is ever pickled.

    MODEL/zarr.json         attributes: format, version, model, digest, settings
    MODEL/<name>/           one array each, chunks with a crc32c checksum

The digest covers all arrays and the settings, so that a damaged or mixed-up model is noticed at loading.
A model appears under its name in one rename, when it is complete.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec

from cksc_dist.errors import ModelFileError

__all__ = ["read_model", "write_model"]

FORMAT = "cksc_dist model"
VERSION = 1


def _digest(arrays: dict[str, NDArray[Any]], settings: dict[str, Any]) -> str:
    total = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype.str} {array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def write_model(path: str | Path, model: str, arrays: dict[str, NDArray[Any]], settings: dict[str, Any]) -> None:
    """Write a model; an earlier model of that name is replaced once the new one is complete.

    Parameters
    ----------
    path
        Folder to make.
    model
        Name of the class that will read it.
    arrays
        Numeric or boolean arrays by name.
    settings
        Anything that JSON can hold.
    """
    target = Path(path)
    _put_back(target)
    if target.exists() and _attributes(target).get("format") != FORMAT:
        raise ModelFileError(f"{target} exists and is no saved model; choose another name or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        group = zarr.create_group(store=partial, zarr_format=3)
        for name, array in arrays.items():
            stored = group.create_array(
                name,
                shape=array.shape,
                dtype=array.dtype,
                chunks=tuple(max(1, size) for size in array.shape),
                compressors=[
                    BloscCodec(cname="lz4", shuffle="shuffle"),
                    Crc32cCodec(),
                ],
            )
            if array.size:
                stored[...] = array
        attributes: dict[str, Any] = {"format": FORMAT, "version": VERSION, "model": model}
        group.attrs.update(attributes | {"settings": settings, "digest": _digest(arrays, settings)})
        _put_in_place(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _put_in_place(partial: Path, target: Path) -> None:
    # a folder cannot be renamed over another one that has files in it
    aside = target.with_name(f"{target.name}.{os.getpid()}.replaced")
    shutil.rmtree(aside, ignore_errors=True)
    if target.exists():
        target.rename(aside)
    try:
        partial.rename(target)
    except BaseException:
        if aside.exists():
            aside.rename(target)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _put_back(target: Path) -> None:
    """Undo a replacement that was killed between its two renames: the old model is still there, set aside."""
    if not target.exists():
        for aside in sorted(target.parent.glob(f"{glob.escape(target.name)}.*.replaced")):
            aside.rename(target)
            break


def _attributes(path: Path) -> dict[str, Any]:
    try:
        metadata = json.loads((path / "zarr.json").read_text())
        attributes = metadata.get("attributes", {})
    except (OSError, ValueError, AttributeError):
        return {}
    return attributes if isinstance(attributes, dict) else {}


def read_model(path: str | Path) -> tuple[str, dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the class name, the arrays and the settings of a saved model, or say what is wrong with it."""
    source = Path(path)
    _put_back(source)
    if not source.exists():
        raise ModelFileError(f"{source} does not exist; give the folder that save() wrote")
    attributes = _attributes(source)
    if attributes.get("format") != FORMAT:
        raise ModelFileError(f"{source} is no saved model; give the folder that save() wrote")
    if attributes.get("version") != VERSION:
        raise ModelFileError(
            f"{source} has version {attributes.get('version')!r}, but this release reads version {VERSION}; "
            "train the model again, or install the release that wrote it"
        )
    try:
        group = zarr.open_group(store=source, mode="r")
        arrays = {name: np.asarray(array[...]) for name, array in group.arrays()}
        settings = attributes["settings"]
        digest = _digest(arrays, settings)
    except Exception as error:  # damage shows in many ways: a checksum, a missing file, a broken header
        raise ModelFileError(f"{source} is damaged ({error}); save the model again") from error
    if digest != attributes.get("digest"):
        raise ModelFileError(f"{source} is damaged: its digest does not match; save the model again")
    return str(attributes.get("model")), arrays, settings
