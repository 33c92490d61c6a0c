"""A saved model: one Zarr group of plain arrays, with its settings as JSON. Nothing is ever pickled.

    MODEL/zarr.json         attributes: format, version, model, digest, settings
    MODEL/<name>/           one array each, chunks with a crc32c checksum

The digest covers all arrays and the settings, so that a damaged or mixed-up model is noticed at loading.
A model appears under its name in one rename, when it is complete. Beside it there may be, while it is written,

    MODEL.<process>.<random>.partial     the new one
    MODEL.<process>.<random>.replaced    the old one, set aside for the moment between two renames

and these stay where a process was killed. A reader that finds no MODEL reads what was set aside, and never renames;
the next writer puts back or removes what belongs to a process that is no more.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import uuid
from contextlib import suppress
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
    _check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = _beside(target, "partial")
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
        for left in _left_by_the_dead(target, "partial") + _left_by_the_dead(target, "replaced"):
            shutil.rmtree(left, ignore_errors=True)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _check_replaceable(target: Path) -> None:
    while (seen := _identity(target)) is not None and _attributes(target).get("format") != FORMAT:
        # another writer may have taken a model away while its attributes were read
        if _identity(target) == seen:
            raise ModelFileError(f"{target} exists and is no saved model; choose another name or remove it")


def _put_in_place(partial: Path, target: Path) -> None:
    asides: list[Path] = []
    try:
        while not _renamed(partial, target):
            # a folder cannot be renamed over another one that has files in it
            aside = _beside(target, "replaced")
            with suppress(FileNotFoundError):  # another writer was quicker
                target.rename(aside)
                asides.append(aside)
    except BaseException:
        if asides and _renamed(asides[-1], target):
            asides.pop()
        raise
    finally:
        for aside in asides:
            shutil.rmtree(aside, ignore_errors=True)


def _renamed(folder: Path, target: Path) -> bool:
    """Rename a folder, or return False where the target is taken."""
    try:
        folder.rename(target)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _put_back(target: Path) -> None:
    """Undo a replacement that was killed between its two renames: the old model is still there, set aside."""
    if not target.exists():
        whole = [path for path in _left_by_the_dead(target, "replaced") if _attributes(path).get("format") == FORMAT]
        for aside in whole[-1:]:
            with suppress(OSError):  # another writer was quicker
                aside.rename(target)


def _beside(target: Path, role: str) -> Path:
    """Return a new name beside the target, which no other process or thread will use."""
    return target.with_name(f"{target.name}.{os.getpid()}.{uuid.uuid4().hex}.{role}")


def _found_beside(target: Path, role: str) -> list[tuple[Path, int]]:
    """Return what writers left beside the target, the newest last, with the process of each."""
    form = re.compile(rf"{re.escape(target.name)}\.(\d+)\.[0-9a-f]{{32}}\.{role}")
    named = [(path, form.fullmatch(path.name)) for path in target.parent.glob(f"*.{role}")]
    found = [(_written(path), path, int(match[1])) for path, match in named if match]
    return [(path, process) for _, path, process in sorted(found)]


def _left_by_the_dead(target: Path, role: str) -> list[Path]:
    return [path for path, process in _found_beside(target, role) if not _is_alive(process)]


def _is_alive(process: int) -> bool:
    if os.name == "nt":
        return True  # signal 0 would end it there
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True  # somebody else's
    return True


def _written(folder: Path) -> int:
    with suppress(FileNotFoundError):
        return folder.stat().st_mtime_ns
    return 0


def _identity(folder: Path) -> int | None:
    """Return a number that tells a folder from another one of the same name; None where there is none."""
    with suppress(FileNotFoundError):
        return folder.stat().st_ino
    return None


def _attributes(path: Path) -> dict[str, Any]:
    try:
        metadata = json.loads((path / "zarr.json").read_text())
        attributes = metadata.get("attributes", {})
    except (OSError, ValueError, AttributeError):
        return {}
    return attributes if isinstance(attributes, dict) else {}


def read_model(path: str | Path) -> tuple[str, dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the class name, the arrays and the settings of a saved model, or say what is wrong with it."""
    target = Path(path)
    while True:
        folder, seen = _present(target)
        try:
            return _read_folder(folder)
        except ModelFileError:
            # a writer may have replaced the model while it was read
            if _present(target) == (folder, seen):
                raise


def _present(target: Path) -> tuple[Path, int | None]:
    """Return the folder that holds the model now: its own or, between two renames, the one set aside."""
    for folder in [target, *(path for path, _ in reversed(_found_beside(target, "replaced")))]:
        if (seen := _identity(folder)) is not None:
            return folder, seen
    return target, None


def _read_folder(source: Path) -> tuple[str, dict[str, NDArray[Any]], dict[str, Any]]:
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
