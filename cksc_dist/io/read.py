"""One door to all forms: `read` recognises a form by its suffix or by what a folder holds."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cksc_dist.errors import InputError, ReadError
from cksc_dist.io.arff import read_arff
from cksc_dist.io.mat import read_mat
from cksc_dist.io.npz import read_npz
from cksc_dist.io.schunk import read_schunk
from cksc_dist.io.ts import read_ts
from cksc_dist.io.utkinect import LABEL_FILE, read_utkinect
from cksc_dist.series import SeriesSet

__all__ = ["read"]

Reader = Callable[..., SeriesSet]

_FILES: dict[str, Reader] = {".ts": read_ts, ".arff": read_arff, ".npz": read_npz, ".mat": read_mat}
_FORMS = f"""the known forms are
  *.ts, *.arff                   files of the UEA and UCR archives
  *.npz                          values, offsets, labels; or X and y
  *.mat                          cell data_all of structs with data and class (Cricket)
  folder with NAME_TRAIN and NAME_TEST, both .ts or both .arff
  folder with joints/ and {LABEL_FILE} (UTKinect)
  folder of <OBJECT>/*.mat       one folder for each object (Schunk)"""
_PART = re.compile(r"(.+)_(TRAIN|TEST)", re.IGNORECASE)


def read(path: str | Path | Sequence[str | Path], **options: Any) -> SeriesSet:
    """Read series from a file, a folder, or several of them together.

    Parameters
    ----------
    path
        A file (``.ts``, ``.arff``, ``.npz``, ``.mat``), a folder (``NAME_TRAIN`` and ``NAME_TEST`` of an
        archive, UTKinect, Schunk), or a list of such paths, whose series are then one set in that order.
    **options
        Options of the form: ``missing`` (.ts, .arff), ``centre`` (UTKinect), ``baseline`` (Schunk).

    Returns
    -------
    SeriesSet
        Ids tell the file: ``<file stem>/<index>`` where a form has no names of its own.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for part, values in [("TRAIN", "1,2,3:a"), ("TEST", "4,5:b")]:
    ...         text = f"@problemName taps\\n@classLabel true a b\\n@data\\n{values}\\n"
    ...         _ = Path(folder, f"taps_{part}.ts").write_text(text)
    ...     data = read(folder)
    >>> data
    SeriesSet('taps': 2 series, 1 dims, length 2..3, 2 classes)
    >>> data.ids.tolist()
    ['taps_TRAIN/0', 'taps_TEST/0']
    """
    if isinstance(path, str | Path):
        return _read_one(Path(path), options)
    paths = [Path(item) for item in path]
    if not paths:
        raise InputError("the list of paths to read is empty; give at least one")
    return _join([_read_one(item, options) for item in paths], paths)


def _read_one(path: Path, options: Mapping[str, Any]) -> SeriesSet:
    if path.is_dir():
        parts = _archive_parts(path)
        if parts:
            return _join([_read_one(part, options) for part in parts], parts)
        reader = _folder_reader(path)
    elif path.exists():
        reader = _FILES.get(path.suffix.lower())
    else:
        raise ReadError(path, "does not exist; check the path")
    if reader is None:
        raise ReadError(path, f"is in no form that can be read; {_FORMS}")
    parameters = inspect.signature(reader).parameters.values()
    known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise InputError(
            f"{path}: option {unknown[0]!r} does not apply to it; its form takes {', '.join(known) or 'no options'}"
        )
    return reader(path, **options)


def _folder_reader(folder: Path) -> Reader | None:
    if (folder / "joints").is_dir() or (folder / LABEL_FILE).is_file():
        return read_utkinect
    return read_schunk if any(folder.glob("*/*.mat")) else None


def _archive_parts(folder: Path) -> list[Path]:
    """Return ``NAME_TRAIN`` and ``NAME_TEST`` of a folder, in this order; empty where there are none."""
    for suffix in (".ts", ".arff"):
        problems: dict[str, dict[str, Path]] = {}
        for file in sorted(folder.iterdir()):
            match = _PART.fullmatch(file.stem)
            if match and file.suffix.lower() == suffix:
                problems.setdefault(match[1], {})[match[2].upper()] = file
        # the archive adds every dimension as a problem of its own: NAMEDimension1_TRAIN.arff
        whole = {name: re.sub(r"Dimension\d+$", "", name) for name in problems}
        names = [name for name in problems if whole[name] == name or whole[name] not in problems]
        if len(names) > 1:
            raise ReadError(folder, f"holds several problems, {', '.join(names)}; name the files to read as a list")
        for name in names:
            absent = {"TRAIN", "TEST"} - problems[name].keys()
            if absent:
                raise ReadError(
                    folder,
                    f"has no {name}_{absent.pop()}{suffix}; to read the other part alone, name its file",
                )
            return [problems[name]["TRAIN"], problems[name]["TEST"]]
    return []


def _join(parts: Sequence[SeriesSet], paths: Sequence[Path]) -> SeriesSet:
    """Return one set of several, in their order."""
    first = parts[0]
    home: dict[str, Path] = {}
    for part, path in zip(parts, paths, strict=True):
        if part.dims != first.dims:
            raise ReadError(
                path, f"has {part.dims} dims but {paths[0]} has {first.dims}; only sets of the same dims join"
            )
        if _label_kind(part) != _label_kind(first):
            raise ReadError(
                path,
                f"has labels of kind {_label_kind(part)} but those of {paths[0]} are {_label_kind(first)}; "
                "read them alone, or write the labels in one kind",
            )
        if part.dim_names != first.dim_names:
            raise ReadError(path, f"has other names of dims than {paths[0]}; only sets of the same dims join")
        for name in map(str, part.ids):
            if name in home:
                raise ReadError(
                    path,
                    f"has the id {name!r}, as {home[name]} has; give a path once, rename files of one name",
                )
            home[name] = path
    names = list(dict.fromkeys(part.name for part in parts))
    return SeriesSet.from_list(
        [values for part in parts for values in part],
        np.concatenate([part.labels for part in parts]),
        list(home),
        name=" + ".join(names),
        dim_names=first.dim_names,
    )


def _label_kind(part: SeriesSet) -> str:
    return {"U": "str", "T": "str", "b": "bool"}.get(part.labels.dtype.kind, "int")
