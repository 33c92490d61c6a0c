"""UTKinect-Action3D: skeletons of 20 joints, cut into actions by a list of first and last frames.

The folder holds ``joints/joints_sSS_eEE.txt`` (in each row a frame number and 60 coordinates) and
``actionLabel_modified.txt``, in which typing errors of the published ``actionLabel.txt`` are mended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError, ReadError
from cksc_dist.io.text import parse_dimensions, quote, statements
from cksc_dist.series import SeriesSet

__all__ = ["LABEL_FILE", "read_utkinect"]

LABEL_FILE = "actionLabel_modified.txt"
_JOINTS = (
    *("hip_centre", "spine", "shoulder_centre", "head"),
    *("shoulder_left", "elbow_left", "wrist_left", "hand_left"),
    *("shoulder_right", "elbow_right", "wrist_right", "hand_right"),
    *("hip_left", "knee_left", "ankle_left", "foot_left"),
    *("hip_right", "knee_right", "ankle_right", "foot_right"),
)
_DIM_NAMES = tuple(f"{joint}_{axis}" for joint in _JOINTS for axis in "xyz")
_RECORDING = re.compile(r"s\d+_e\d+", re.ASCII)
_ACTION = re.compile(r"(\w+)\s*:\s*(\d{1,9}|NaN)\s+(\d{1,9}|NaN)", re.ASCII)


@dataclass(frozen=True)
class _Action:
    recording: str
    name: str
    first: int
    last: int
    line: int


def _read_actions(path: Path) -> Iterator[_Action]:
    """Yield the actions of the label file; one with ``NaN NaN`` was not recorded and is left out."""
    recording = ""
    for line, text in statements(path):
        if _RECORDING.fullmatch(text):
            recording = text
            continue
        match = _ACTION.fullmatch(text)
        if match is None or not recording:
            raise ReadError(path, f"{quote(text)} is no recording (s01_e01) and no action of one (walk: 252 390)", line)
        name, first, last = match.groups()
        if "NaN" in (first, last):
            continue
        if int(first) > int(last):
            raise ReadError(path, f"{recording} {name} ends in frame {last}, before its first, {first}", line)
        yield _Action(recording, name, int(first), int(last), line)


def _read_recording(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return frame numbers in order, each once, and the coordinates (frames, 60) of a joints file."""
    rows: list[NDArray[np.float64]] = []
    for line, text in statements(path):
        row = parse_dimensions([",".join(text.split())], path, line)[:, 0]
        if len(row) != 1 + len(_DIM_NAMES) or np.isnan(row).any():
            raise ReadError(
                path,
                f"the row has {np.isfinite(row).sum()} numbers; expected a frame number and "
                f"{len(_DIM_NAMES)} coordinates",
                line,
            )
        rows.append(row)
    if not rows:
        raise ReadError(path, "has no frames; fetch it again")
    table = np.array(rows)
    # frame numbers repeat in places; np.unique keeps the first row of each
    frames, index = np.unique(table[:, 0], return_index=True)
    return frames, table[index, 1:]


def _locate(folder: Path) -> tuple[Path, Path]:
    """Return the label file and the folder of the joints files."""
    joints = folder / "joints" if (folder / "joints").is_dir() else folder
    for place in (folder, joints):
        if (place / LABEL_FILE).is_file():
            return place / LABEL_FILE, joints
    raise ReadError(
        folder,
        f"has no {LABEL_FILE}, neither beside nor in joints/; put it there (actionLabel.txt has typing "
        "errors and is not read)",
    )


def read_utkinect(path: str | Path, *, centre: Literal["hip"] | None = "hip") -> SeriesSet:
    """Read the folder of UTKinect-Action3D.

    Parameters
    ----------
    path
        The folder that holds ``joints/``, or ``joints/`` itself.
    centre
        ``"hip"``: coordinates are relative to the hip centre (the first joint) of the same frame, so that
        where a person stands does not count; None: as recorded.

    Returns
    -------
    SeriesSet
        60 dims; labels are the names of actions, ids ``<recording>/<action>``.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "joints").mkdir()
    ...     actions = "s01_e01\\nwalk: 2 4\\nsitDown: NaN NaN\\n"
    ...     _ = Path(folder, "actionLabel_modified.txt").write_text(actions)
    ...     rows = "\\n".join(f"{frame}" + " 0.5" * 60 for frame in (1, 2, 2, 4))
    ...     _ = Path(folder, "joints", "joints_s01_e01.txt").write_text(rows)
    ...     data = read_utkinect(folder)
    >>> data, data.ids.tolist(), data.dim_names[3]
    (SeriesSet('UTKinect': 1 series, 60 dims, length 2, 1 classes), ['s01_e01/walk'], 'spine_x')
    """
    if centre not in ("hip", None):
        raise InputError(f"centre={centre!r}: must be one of 'hip', None")
    label_file, joints = _locate(Path(path))
    recordings: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
    series: dict[str, NDArray[np.float64]] = {}
    labels: list[str] = []
    for action in _read_actions(label_file):
        name = f"{action.recording}/{action.name}"
        if name in series:
            raise ReadError(label_file, f"{name} is given twice; remove one", action.line)
        if action.recording not in recordings:
            recordings[action.recording] = _read_recording(joints / f"joints_{action.recording}.txt")
        frames, coordinates = recordings[action.recording]
        values = coordinates[(action.first <= frames) & (frames <= action.last)]
        if not len(values):
            raise ReadError(
                label_file,
                f"joints_{action.recording}.txt has no frame from {action.first} to {action.last}; mend the "
                f"frames of {action.name}",
                action.line,
            )
        if centre == "hip":
            values = values - np.tile(values[:, :3], len(_JOINTS))
        series[name] = values
        labels.append(action.name)
    if not series:
        raise ReadError(label_file, "lists no action with frames; fetch it again")
    return SeriesSet.from_list(list(series.values()), labels, list(series), name="UTKinect", dim_names=_DIM_NAMES)
