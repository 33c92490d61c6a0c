"""Videos in folders of classes, as DynTex++ comes: files of one array each, video files, or folders of frames.

    FOLDER/<class>/<video>.npy | .npz | .mat      one 3-D array, grey levels; or a 4-D one, colours
    FOLDER/<class>/<video>.avi | .mp4 | ...       needs PyAV
    FOLDER/<class>/<video>/<frame>.png | ...      frames in the order of their names, numbers by size; needs Pillow

A video is listed first and read later, by whoever works on it: nobody holds more than a few.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError, ReadError
from cksc_dist.io.mat import load_variables, variable_names

__all__ = ["LAYOUTS", "VideoFile", "find_videos", "read_video"]

Layout = Literal["auto", "thw", "hwt", "thwc", "hwct"]
LAYOUTS = ("auto", "thw", "hwt", "thwc", "hwct")
"""Order of the axes of an array: time, height, width, colour."""

ARRAYS = (".npy", ".npz", ".mat")
VIDEOS = (".avi", ".mp4", ".mkv", ".mov", ".mpg", ".mpeg", ".webm")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".pgm")

MOST_VALUES = 2**30
"""A video of more pixels than this is cut before it comes here."""
LEAST_SIDE = 3
"""A pixel has neighbours on all sides, in time as well."""
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a grey level (ITU-R BT.601)."""

FORMS = (
    "videos come as FOLDER/<class>/<video>, a video being an array (.npy, .npz, .mat), a video file "
    f"({', '.join(VIDEOS)}) or a folder of frames ({', '.join(IMAGES)})"
)


@dataclass(frozen=True)
class VideoFile:
    """A video that has not been read yet.

    Parameters
    ----------
    path
        File, or folder of frames.
    label
        Name of its class.
    id
        ``<class>/<name>``.
    """

    path: Path
    label: str
    id: str


def find_videos(folder: str | Path) -> list[VideoFile]:
    """Return the videos of a folder of classes, in the order of their names.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("flame/a.npy", "flame/b.npy", "water/a.npy"):
    ...         Path(folder, name).parent.mkdir(exist_ok=True)
    ...         np.save(Path(folder, name), np.zeros((4, 5, 6), np.uint8))
    ...     [video.id for video in find_videos(folder)], read_video(find_videos(folder)[0].path).shape
    (['flame/a', 'flame/b', 'water/a'], (4, 5, 6))
    """
    root = Path(folder)
    if not root.is_dir():
        raise ReadError(root, f"is no folder; {FORMS}")
    found: dict[str, VideoFile] = {}
    for home in sorted((each for each in root.iterdir() if each.is_dir()), key=lambda each: each.name):
        for path in sorted(home.iterdir(), key=lambda each: _natural(each.name)):
            if path.name.startswith(".") or not _is_video(path):
                continue
            name = f"{home.name}/{path.stem if path.is_file() else path.name}"
            if name in found:
                raise ReadError(path, f"is a second video {name!r}, as {found[name].path} is; rename one of them")
            found[name] = VideoFile(path, home.name, name)
    if not found:
        raise ReadError(root, f"holds no videos; {FORMS}")
    return list(found.values())


def _natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key by which 2 comes before 10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _is_video(path: Path) -> bool:
    if path.is_dir():
        return any(each.suffix.lower() in IMAGES for each in path.iterdir())
    return path.suffix.lower() in ARRAYS + VIDEOS


def read_video(path: str | Path, *, layout: Layout = "auto") -> NDArray[Any]:
    """Return a video as grey levels, (time, height, width).

    Parameters
    ----------
    path
        File, or folder of frames.
    layout
        Order of the axes of an array: letters of time, height, width, colour. ``"auto"``: ``"thw"`` and ``"thwc"``, but
        as MATLAB has it, ``"hwt"`` and ``"hwct"``, for ``.mat``. Only for arrays.

    Returns
    -------
    ndarray
        Bytes as they are, all else as float64.
    """
    path = Path(path)
    if layout not in LAYOUTS:
        raise InputError(f"layout={layout!r}: must be one of {', '.join(LAYOUTS)}")
    kind = path.suffix.lower()
    if path.is_dir():
        video = _read_frames(path)
    elif kind in VIDEOS:
        video = _read_film(path)
    elif kind in ARRAYS:
        video = _arranged(path, _read_array(path), layout)
    else:
        raise ReadError(path, f"is in no form that can be read; {FORMS}")
    if min(video.shape) < LEAST_SIDE:
        raise ReadError(
            path, f"has shape {video.shape} (time, height, width); each must be at least {LEAST_SIDE}: check the layout"
        )
    if video.dtype == np.uint8:
        return video
    video = video.astype(np.float64)
    if not np.isfinite(video).all():
        raise ReadError(path, "has a NaN or infinite value; fill it, or leave the video out")
    return video


def _read_array(path: Path) -> NDArray[Any]:
    """Return the one array of a file with three or four axes."""
    kind = path.suffix.lower()
    if kind == ".mat":
        names = variable_names(path)
        found: dict[str, NDArray[Any]] = load_variables(path, [], FORMS, optional=names)
    else:
        found = _load_numpy(path)
    films = {name: array for name, array in found.items() if array.ndim in (3, 4) and array.dtype.kind in "uifb"}
    if len(films) != 1:
        shapes = ", ".join(f"{name} {array.shape} {array.dtype}" for name, array in found.items()) or "none"
        raise ReadError(path, f"holds the arrays {shapes}; it must hold one array of numbers with 3 or 4 axes")
    return next(iter(films.values()))


def _load_numpy(path: Path) -> dict[str, NDArray[Any]]:
    try:
        if path.suffix.lower() == ".npy":
            # mapped: a header that tells of more than the file holds is an error before memory is taken
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            _check_size(path, mapped.size)
            return {path.stem: np.array(mapped)}
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except ReadError:
        raise
    except Exception as error:  # damaged bytes end in any of a dozen kinds
        raise ReadError(path, f"cannot be read as arrays of numbers ({error}); object arrays are refused") from error


def _check_size(path: Path, values: int) -> None:
    if values > MOST_VALUES:
        raise ReadError(path, f"has {values:,} values, more than {MOST_VALUES:,}; cut it into shorter videos")


def _arranged(path: Path, array: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Return an array as (time, height, width), colours as grey levels."""
    _check_size(path, array.size)
    matlab = path.suffix.lower() == ".mat"
    order = layout
    if order == "auto":
        order = ("hwt" if matlab else "thw") if array.ndim == 3 else ("hwct" if matlab else "thwc")
    if len(order) != array.ndim:
        raise ReadError(path, f"has an array of shape {array.shape}; layout={order!r} is for {len(order)} axes")
    arranged = array.transpose([order.index(axis) for axis in ("thwc" if "c" in order else "thw")])
    if arranged.ndim == 3:
        return np.ascontiguousarray(arranged)
    if arranged.shape[3] not in (1, 3, 4):
        raise ReadError(
            path, f"has {arranged.shape[3]} colours in its shape {array.shape}; 1, 3 or 4 are known: check the layout"
        )
    if arranged.shape[3] == 1:
        return np.ascontiguousarray(arranged[..., 0])
    return np.asarray(arranged[..., :3] @ np.array(LUMA))


def _read_film(path: Path) -> NDArray[Any]:
    try:
        import av
    except ImportError as error:
        raise ReadError(path, "is a video file, which needs PyAV; install it with: pip install av") from error
    frames: list[NDArray[Any]] = []
    try:
        with av.open(str(path)) as container:
            for frame in container.decode(video=0):
                frames.append(frame.to_ndarray(format="gray"))
                _check_size(path, sum(each.size for each in frames[:1]) * len(frames))
    except ReadError:
        raise
    except Exception as error:  # of FFmpeg, one for each of its codes
        raise ReadError(path, f"cannot be read as a video ({error}); play it, or write it again") from error
    if not frames:
        raise ReadError(path, "holds no frames")
    return np.stack(frames)


def _read_frames(folder: Path) -> NDArray[Any]:
    try:
        from PIL import Image
    except ImportError as error:
        raise ReadError(
            folder, "is a folder of frames, which needs Pillow; install it with: pip install pillow"
        ) from error
    names = sorted((each for each in folder.iterdir() if each.suffix.lower() in IMAGES), key=lambda f: _natural(f.name))
    frames: list[NDArray[Any]] = []
    for name in names:
        try:
            with Image.open(name) as image:
                _check_size(name, image.width * image.height * len(names))
                frames.append(np.asarray(image.convert("L")))
        except ReadError:
            raise
        except Exception as error:  # of a dozen formats
            raise ReadError(name, f"cannot be read as an image ({error}); write it again") from error
        if frames[-1].shape != frames[0].shape:
            raise ReadError(
                name, f"has shape {frames[-1].shape}, but {names[0].name} {frames[0].shape}; all must be alike"
            )
    return np.stack(frames)
