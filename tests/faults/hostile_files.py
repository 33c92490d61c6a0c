"""Files that would run code if anything unpickled them: it makes a folder, which a test looks for."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

from cksc_dist.store.folder import Folder


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.makedirs, (str(self._marker), 0o777, True)


def objects(marker: Path, n: int = 3) -> Any:
    """Return an array of objects, one of which is a bomb."""
    array = np.empty(n, object)
    array[:] = [Bomb(marker), *(0.0 for _ in range(n - 1))]
    return array


def npy(marker: Path) -> bytes:
    """Return a .npy file of objects."""
    content = io.BytesIO()
    np.save(content, objects(marker), allow_pickle=True)
    return content.getvalue()


def plain_pickle(marker: Path) -> bytes:
    """Return a pickle, which np.load takes for one whatever the file is called."""
    return pickle.dumps(objects(marker))


def npz(marker: Path, names: tuple[str, ...]) -> bytes:
    """Return a .npz file of object arrays of these names."""
    content = io.BytesIO()
    np.savez(content, **{name: objects(marker) for name in names})  # type: ignore[arg-type]
    return content.getvalue()


def mat(path: Path, kind: int) -> None:
    """Write a MATLAB file whose variable is of another class: 3 object, 16 function handle, 17 opaque."""
    cells = np.empty(2, dtype=object)
    cells[:] = [{"data": np.zeros((5, 3)), "class": 1}, {"data": np.ones((8, 3)), "class": 2}]
    savemat(path, {"data_all": cells})
    content = bytearray(path.read_bytes())
    assert content[144] == 1  # a cell
    content[144] = kind
    path.write_bytes(content)


OLD_ARRAY = {
    "zarr_format": 2,
    "dtype": "|O",
    "filters": [{"id": "vlen-utf8"}],
    "compressor": {"id": "pickle", "protocol": 4},
    "fill_value": "",
    "order": "C",
}
"""An array of Zarr version 2 whose chunks are pickles, which hides behind a harmless type."""


def plant(store: Path, group: str, name: str, how: str, marker: Path) -> None:
    """Turn an array of a Zarr group into one that is unpickled, in one of several ways; copies of metadata as well."""
    top, array = store / group, store / group / name
    about = json.loads((array / "zarr.json").read_text())
    old = OLD_ARRAY | {"shape": about["shape"], "chunks": about["shape"]}
    whole = json.loads((top / "zarr.json").read_text())
    chunk = pickle.dumps(objects(marker, max(1, int(np.prod(about["shape"])))))
    (array / ".".join("0" for _ in about["shape"])).write_bytes(chunk)
    if how == "a group of version 2":
        (top / "zarr.json").unlink()
        (top / ".zgroup").write_text('{"zarr_format": 2}')
        (top / ".zattrs").write_text(json.dumps(whole["attributes"]))
    elif how == "consolidated metadata":
        whole["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": {name: old}}
    elif how == "version 2 by name":
        whole["zarr_format"] = 2
    else:
        codec, _, settings = how.partition(" ")
        about["codecs"] = [about["codecs"][0], {"name": codec, "configuration": json.loads(settings or "{}")}]
        (array / "zarr.json").write_text(json.dumps(about))
        for chunk_file in (array / "c").rglob("*"):
            if chunk_file.is_file():
                chunk_file.write_bytes(chunk)
    if (top / "zarr.json").exists():
        (top / "zarr.json").write_text(json.dumps(whole))
    if how in ("a group of version 2", "version 2 by name"):
        (array / "zarr.json").unlink()
        (array / ".zarray").write_text(json.dumps(old))
    _forge_copies(store)


def _forge_copies(store: Path) -> None:
    """Make lists of files and copies of metadata agree: whoever makes a hostile store makes these as well."""
    from cksc_dist.store.manifest import digests_of

    folder = Folder(store)
    copies = folder.read_json("metadata.json")
    if copies is not None:
        there = {key: content.decode() for key in copies if (content := folder.read(key)) is not None}
        folder.write_json("metadata.json", there)
    for name in [name for name in folder.files("") if name.endswith("files.json")]:
        listed = [key for key in folder.read_json(name) if folder.read(key) is not None]
        folder.write_json(name, digests_of(folder, listed))


WAYS = (
    "a group of version 2",
    "consolidated metadata",
    "version 2 by name",
    "pickle",
    "numcodecs.pickle",
    'numcodecs.zlib {"level": 1}',
    'sharding_indexed {"chunk_shape": [1], "codecs": [{"name": "pickle"}], "index_codecs": []}',
)
