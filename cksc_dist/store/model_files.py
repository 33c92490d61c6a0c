"""A saved model: one Zarr group of plain arrays, with its settings as JSON. Nothing is ever pickled.

    MODEL/zarr.json         attributes: format, version, model, digest, settings; a digest of each other file, and of
                            the attributes, for ``cksc verify``
    MODEL/<name>/           one array each, chunks with a crc32c checksum

The digest covers all arrays and the settings, so that a damaged or mixed-up model is noticed at loading.
A model appears under its name in one rename, when it is complete. Beside it there may be, while it is written,

    MODEL.<process>.<random>.partial     the new one
    MODEL.<process>.<random>.replaced    the old one, set aside for the moment between two renames

and these stay where a process was killed. A reader that finds no MODEL reads what was set aside, and never renames;
the next writer puts back or removes what belongs to a process that is no more.

Behind a URL nothing can be renamed. There a model lies one level deeper, and one put of a small file publishes it:

    MODEL/model.json        format, version, digest, and where the model is: <seconds>-<random>
    MODEL/<seconds>-<random>/    as above

What a new model replaces is removed after that; a reader whose model vanished under it looks again. Copies are models
as well: a local one that was uploaded, and one from a URL that was downloaded.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BloscCodec, Crc32cCodec

from cksc_dist.errors import CkscError, ModelFileError, StoreError, brief, want_of_threads
from cksc_dist.processes import SIGNATURE, is_of_the_dead, signature
from cksc_dist.store.chunk_sizes import check_held, taken
from cksc_dist.store.folder import Folder, local_path
from cksc_dist.store.in_flight import settle
from cksc_dist.store.local_files import MOST_LETTERS, check_unlinked, sync_folder, sync_tree
from cksc_dist.store.manifest import differing, digests_of, listed_files
from cksc_dist.store.trouble import named_trouble

__all__ = ["check_place", "files_of_a_model", "model_digest", "read_model", "remove_left_over", "write_model"]

FORMAT = "cksc_dist model"
VERSION = 1

POINTER = "model.json"
PLACE = re.compile(r"(\d+)-[0-9a-f]{32}")
ABANDONED_SECONDS = 86400
"""So old is what nobody will publish any more: its writer was killed."""

Arrays = dict[str, NDArray[Any]]
Model = tuple[str, Arrays, dict[str, Any]]


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
        Folder to make, or a URL.
    model
        Name of the class that will read it.
    arrays
        Numeric or boolean arrays by name.
    settings
        Anything that JSON can hold.
    """
    folder = Folder(path)
    try:
        _write(folder, path, model, arrays, settings)
    except OSError as error:
        if (trouble := named_trouble(error, folder.url)) is None:
            raise
        raise trouble from error


def _write(folder: Folder, path: str | Path, model: str, arrays: Arrays, settings: dict[str, Any]) -> None:
    target = _own_path(path)
    if target is None:
        _publish(folder, model, arrays, settings)
        return
    _put_back(target)
    _check_replaceable(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = _beside(target, "partial")
    try:
        _write_group(Folder(partial), model, arrays, settings)
        sync_tree(partial)  # checkpoints go once there is a model
        _put_in_place(partial, target)
        sync_folder(target.parent)
        remove_left_over(path)
    except BaseException:
        settle(partial)
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def remove_left_over(path: str | Path) -> None:
    """Remove what writers left beside a model that were killed."""
    target = _own_path(path)
    if target is None or not target.exists():
        return  # without the model, what was set aside is the model
    for left in _left_by_the_dead(target, "partial") + _left_by_the_dead(target, "replaced"):
        _remove(left, target)


def _write_group(place: Folder, model: str, arrays: Arrays, settings: dict[str, Any]) -> str:
    """Write the arrays, then what they mean, and return the digest of all."""
    group = zarr.create_group(store=place.zarr(), zarr_format=3)
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
    digest = _digest(arrays, settings)
    attributes: dict[str, Any] = {"format": FORMAT, "version": VERSION, "model": model}
    files = digests_of(place, [name for name in sorted(place.files("")) if name != "zarr.json"])
    attributes |= {"settings": settings, "digest": digest, "files": files}
    attributes["sha256"] = _attributes_digest(attributes)
    place.write("zarr.json", _canonical({"zarr_format": 3, "node_type": "group", "attributes": attributes}))
    return digest


def _canonical(metadata: Any) -> bytes:
    """Return the one form in which the metadata of a model is written: any other tells of damage."""
    return json.dumps(metadata, indent=2).encode()


def _attributes_digest(attributes: dict[str, Any]) -> str:
    own = {name: value for name, value in attributes.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()


def _model_path(path: str | Path) -> Path | None:
    """Return where a model is; of a link, what it leads to: a folder cannot be renamed over a link. None for URLs."""
    local = local_path(path)
    return local.resolve() if local is not None and local.is_symlink() else local


def _own_path(path: str | Path) -> Path | None:
    """Return where a model is written or removed; a StoreError tells of a link inside a store."""
    local = local_path(path)
    if local is not None:
        check_unlinked(local)
    return _model_path(path)


def check_place(path: str | Path) -> None:
    """Raise a ModelFileError where no model can be saved; for those who would otherwise work in vain."""
    target = _own_path(path)
    if target is None:
        return
    if not str(path) or not target.name:
        raise ModelFileError(f"{str(path)!r} is no name of a model; give a folder to make")
    if len(os.fsencode(target.name)) > MOST_LETTERS:
        raise ModelFileError(f"{target.name[:50]}...: the name is too long; {MOST_LETTERS} letters are the most")
    _check_replaceable(target)


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
            _remove(aside, target)


def _remove(folder: Path, target: Path) -> None:
    """Remove a folder beside the target: under another name, so that no reader takes what is half gone for a model."""
    dying = _beside(target, "partial")
    with suppress(OSError):  # another writer was quicker
        folder.rename(dying)
    shutil.rmtree(dying, ignore_errors=True)


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
    return target.with_name(f"{target.name}.{signature()}.{uuid.uuid4().hex}.{role}")


def _found_beside(target: Path, role: str) -> list[tuple[Path, str]]:
    """Return what writers left beside the target, the newest last, with the process of each."""
    form = re.compile(rf"{re.escape(target.name)}\.({SIGNATURE})\.[0-9a-f]{{32}}\.{role}")
    named = [(path, form.fullmatch(path.name)) for path in target.parent.glob(f"*.{role}")]
    found = [(_written(path), path, match[1]) for path, match in named if match]
    return [(path, process) for _, path, process in sorted(found)]


def _left_by_the_dead(target: Path, role: str) -> list[Path]:
    return [path for path, process in _found_beside(target, role) if is_of_the_dead(process, path)]


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
    """Return what a folder says that it is; nothing where it is no model, or a damaged one."""
    if not (path / "zarr.json").exists() and (path / POINTER).exists():
        with suppress(StoreError):
            return _pointer(Folder(path))
    try:
        return _parsed(Folder(path).read("zarr.json"))
    except (OSError, StoreError):
        return {}


def _parsed(content: bytes | None) -> dict[str, Any]:
    """Return the attributes of a Zarr group; nothing where they cannot be read."""
    try:
        attributes = json.loads(content or b"").get("attributes", {})
    except (ValueError, AttributeError, RecursionError):
        return {}
    return attributes if isinstance(attributes, dict) else {}


def read_model(path: str | Path) -> Model:
    """Return the class name, the arrays and the settings of a saved model, or say what is wrong with it."""
    target = _model_path(path)
    if target is None:
        return _read_published(Folder(path))
    while True:
        place, seen = _present(target)
        try:
            return _read_folder(place)
        except ModelFileError:
            # a writer may have replaced the model while it was read
            if _present(target) == (place, seen):
                raise


def files_of_a_model(path: str | Path) -> tuple[Folder, list[str], list[str]]:
    """Read a saved model; return where it is, its files, and which of them are lost or not what was written.

    Of a model of an older release, which kept no digests, only the content can be checked, and no files are named.
    """
    folder = Folder(path)
    try:
        place = _place(folder, _published(folder))
    except ModelFileError as error:
        if folder.read(POINTER) is not None:
            raise
        raise ModelFileError(f"{folder.url}/zarr.json is lost, or not what was written: {error}") from error
    content = place.read("zarr.json")
    attributes = _parsed(content)
    if attributes.get("format") != FORMAT:
        raise ModelFileError(f"{place.url}/zarr.json is lost, or not what was written")
    try:
        listed = listed_files(attributes.get("files", {}))
    except ValueError as error:
        raise ModelFileError(f"{place.url}/zarr.json is not what was written: {error}") from error
    if not {"files", "sha256"} & set(attributes):
        read_model(path)
        return place, [], []
    if content != _canonical(json.loads(content or b"")) or attributes.get("sha256") != _attributes_digest(attributes):
        return place, ["zarr.json", *listed], ["zarr.json"]
    bad = differing(place, listed)
    if not bad:
        read_model(path)
    return place, ["zarr.json", *listed], bad


def model_digest(path: str | Path) -> str:
    """Return what tells a saved model from any other, without reading it."""
    target = _model_path(path)
    if target is None:
        return str(_published(Folder(path)).get("digest"))
    while True:
        place, seen = _present(target)
        try:
            return str(_checked(place, place.exists(), _attributes(place)).get("digest"))
        except ModelFileError:
            if _present(target) == (place, seen):
                raise


def _present(target: Path) -> tuple[Path, int | None]:
    """Return the folder that holds the model now: its own or, between two renames, the one set aside."""
    for folder in [target, *(path for path, _ in reversed(_found_beside(target, "replaced")))]:
        if (seen := _identity(folder)) is not None:
            return folder, seen
    return target, None


def _checked(name: object, exists: bool, attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes of a model that this release reads, or say what is there instead."""
    if not exists:
        raise ModelFileError(f"{name} does not exist; give the folder that save() wrote")
    if attributes.get("format") != FORMAT:
        raise ModelFileError(f"{name} is no saved model; give the folder that save() wrote")
    if attributes.get("version") != VERSION:
        raise ModelFileError(
            f"{name} has version {attributes.get('version')!r}, but this release reads version {VERSION}; "
            "train the model again, or install the release that wrote it"
        )
    return attributes


def _read_folder(source: Path) -> Model:
    attributes = _checked(source, source.exists(), _attributes(source))
    return _read_group(source, _place(Folder(source), attributes), attributes.get("digest"))


def _place(folder: Folder, attributes: dict[str, Any]) -> Folder:
    """Return where the arrays of a model are; a folder that says it of itself may say anything."""
    at = str(attributes.get("at", ""))
    return Folder(f"{folder.url}/{at}") if PLACE.fullmatch(at) else folder


def _read_group(name: object, place: Folder, digest: str | None) -> Model:
    try:
        attributes = _parsed(place.read("zarr.json"))
        group: Any = zarr.open_group(store=place.zarr(read_only=True), mode="r")
        stored, settings = {key: group[key] for key in _array_names(place)}, attributes["settings"]
        check_held(sum(map(taken, stored.values())), lambda: place.files("").values())
        arrays = {key: _whole(array) for key, array in stored.items()}
        found = _digest(arrays, settings)
    except (CkscError, MemoryError):
        raise  # the store is away, or too little memory is there: this is no damage
    except Exception as error:  # damage shows in many ways: a checksum, a missing file, a broken header
        want_of_threads(error)
        raise ModelFileError(f"{name} is damaged ({brief(error)}); save the model again") from error
    if found != digest:
        raise ModelFileError(f"{name} is damaged: its digest does not match; save the model again")
    return str(attributes.get("model")), arrays, settings


def _whole(array: Any) -> NDArray[Any]:
    """Return all of an array, which is written as one chunk; Zarr would look for each of any number of others."""
    if array.chunks != tuple(max(1, size) for size in array.shape):
        raise ValueError(f"an array of shape {array.shape} is in chunks of {array.chunks}")
    return np.asarray(array[...])


def _array_names(place: Folder) -> list[str]:
    """Return the names of the arrays of a group; what else may lie there is nobody's business."""
    return [name for name in place.names("", folders_only=True) if _is_array(place.read(f"{name}/zarr.json"))]


def _is_array(metadata: bytes | None) -> bool:
    try:
        return bool(json.loads(metadata or b"")["node_type"] == "array")
    except (ValueError, LookupError, TypeError, RecursionError):
        return False


def _pointer(folder: Folder) -> dict[str, Any]:
    """Return what the small file says that publishes a model; nothing where there is none."""
    found = folder.read_json(POINTER)
    if not isinstance(found, dict) or not PLACE.fullmatch(str(found.get("at"))):
        return {}
    return found


def _published(folder: Folder) -> dict[str, Any]:
    """Return what is known of the model behind a URL before it is read, or say what is there instead."""
    try:
        found = _pointer(folder) or _parsed(folder.read("zarr.json"))
    except StoreError as error:
        raise ModelFileError(str(error)) from error
    return _checked(folder.url, bool(found or folder.names("")), found)


def _read_published(folder: Folder) -> Model:
    while True:
        seen = _published(folder)
        try:
            return _read_group(folder.url, _place(folder, seen), seen.get("digest"))
        except ModelFileError:
            # a writer may have published another model, and removed this one
            if _published(folder) == seen:
                raise


def _publish(folder: Folder, model: str, arrays: Arrays, settings: dict[str, Any]) -> None:
    """Write a model behind a URL: whole, then published in one put, then what it replaces is removed."""
    _check_publishable(folder)
    at = f"{int(time.time())}-{uuid.uuid4().hex}"
    try:
        digest = _write_group(Folder(f"{folder.url}/{at}"), model, arrays, settings)
        replaced = _files_of_the_model(folder)
    except BaseException:
        _remove_below(folder, at)
        raise
    # from here on it stays whatever happens: even a put without an answer may have arrived
    folder.write_json(POINTER, {"format": FORMAT, "version": VERSION, "digest": digest, "at": at})
    folder.remove_many(replaced)
    for name in folder.names(""):
        match = PLACE.fullmatch(name)
        if match and name != at and time.time() - int(match[1]) > ABANDONED_SECONDS:
            _remove_below(folder, name)


def _check_publishable(folder: Folder) -> None:
    """Raise a ModelFileError where there is something else than a model, or than what a killed writer left."""
    try:
        if (_pointer(folder) or _parsed(folder.read("zarr.json"))).get("format") == FORMAT:
            return
    except StoreError:
        pass  # somebody else's file, or damaged: in either case not to be written over
    if any(not PLACE.fullmatch(name) for name in folder.names("")):
        raise ModelFileError(f"{folder.url} exists and is no saved model; choose another name or remove it")


def _files_of_the_model(folder: Folder) -> list[str]:
    """Return the files of the model that is published now; of a copy of a local one, only what is surely its own."""
    found = _pointer(folder)
    if found:
        return [f"{found['at']}/{name}" for name in folder.files(found["at"])]
    if _parsed(folder.read("zarr.json")).get("format") != FORMAT:
        return []
    return ["zarr.json", *(f"{name}/{file}" for name in _array_names(folder) for file in folder.files(name))]


def _remove_below(folder: Folder, place: str) -> None:
    folder.remove_many([f"{place}/{name}" for name in folder.files(place)])
