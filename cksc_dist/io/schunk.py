"""Grasps of the Schunk Dexterous hand: one folder for each object, in it one MATLAB file for each grasp.

A file holds ``TS``, a cell of tactile sensors, each an array (rows x columns x time); all their elements
(taxels) side by side are the dims of the series.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError, ReadError
from cksc_dist.io.mat import load_variables
from cksc_dist.series import SeriesSet

__all__ = ["read_schunk"]

_FORM = "a cell TS of tactile sensors, each rows x columns x time"


def _read_grasp(path: Path) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return the taxels (time, dims) of one grasp, and their names."""
    cell = load_variables(path, ["TS"], _FORM)["TS"]
    sensors = [np.asarray(sensor) for sensor in cell.ravel()] if cell.dtype == object else []
    if not sensors:
        raise ReadError(path, f"TS has shape {cell.shape} and type {cell.dtype}; expected {_FORM}")
    for number, sensor in enumerate(sensors, start=1):
        if sensor.ndim != 3 or not sensor.size or sensor.dtype.kind not in "fiu":
            raise ReadError(path, f"TS{{{number}}} has shape {sensor.shape} and type {sensor.dtype}; expected {_FORM}")
        if not np.isfinite(sensor).all():
            raise ReadError(path, f"TS{{{number}}} has a NaN or infinite value; fill it or remove the file")
        if sensor.shape[2] != sensors[0].shape[2]:
            raise ReadError(
                path,
                f"TS{{{number}}} has {sensor.shape[2]} frames but TS{{1}} has {sensors[0].shape[2]}; all "
                "sensors of a grasp must have the same",
            )
    names = tuple(
        f"sensor{number}_row{row}_column{column}"
        for number, sensor in enumerate(sensors, start=1)
        for row in range(1, sensor.shape[0] + 1)
        for column in range(1, sensor.shape[1] + 1)
    )
    taxels = [sensor.reshape(-1, sensor.shape[2]) for sensor in sensors]
    # as floats before anything is subtracted: the files hold unsigned integers, which would wrap round
    return np.concatenate(taxels).T.astype(np.float64), names


def read_schunk(path: str | Path, *, baseline: Literal["first"] | None = "first") -> SeriesSet:
    """Read a folder of Schunk grasps, ``<OBJECT>/<grasp>.mat``.

    Parameters
    ----------
    path
        The folder that holds one folder for each object.
    baseline
        ``"first"``: subtract the first frame of each grasp, since every taxel rests at a level of its own;
        None: as recorded.

    Returns
    -------
    SeriesSet
        Labels are the names of the objects' folders, ids ``<OBJECT>/<file stem>``; sorted by both.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> import numpy as np
    >>> from scipy.io import savemat
    >>> sensors = np.empty(2, dtype=object)
    >>> sensors[:] = [np.full((3, 2, 9), 7, dtype=np.uint8), np.full((2, 2, 9), 7, dtype=np.uint8)]
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "DUCK").mkdir()
    ...     savemat(Path(folder, "DUCK", "grasp-1.mat"), {"TS": sensors})
    ...     data = read_schunk(folder)
    >>> data[0].shape, data.ids.tolist(), data.dim_names[-1], float(data.values.max())
    ((9, 10), ['DUCK/grasp-1'], 'sensor2_row2_column2', 0.0)
    """
    if baseline not in ("first", None):
        raise InputError(f"baseline={baseline!r}: must be one of 'first', None")
    folder = Path(path)
    files = sorted(folder.glob("*/*.mat"))
    if not files:
        raise ReadError(folder, "has no <OBJECT>/*.mat files; give the folder that holds one folder for each object")
    series: list[NDArray[np.float64]] = []
    dim_names: tuple[str, ...] = ()
    for file in files:
        values, names = _read_grasp(file)
        if series and names != dim_names:
            raise ReadError(
                file, f"its sensors have other shapes than those of {files[0]}; all grasps must have the same"
            )
        dim_names = names
        series.append(values - values[0] if baseline == "first" else values)
    return SeriesSet.from_list(
        series,
        [file.parent.name for file in files],
        [f"{file.parent.name}/{file.stem}" for file in files],
        name=folder.resolve().name,
        dim_names=dim_names,
    )
