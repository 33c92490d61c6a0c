"""Videos in folders of classes, as DynTex++ comes: files of one array each, video files, or folders of frames.

    FOLDER/<class>/<video>.npy | .npz | .mat      one 3-D array, grey levels; or a 4-D one, colours
    FOLDER/<class>/<video>.avi | .mp4 | ...       needs PyAV
    FOLDER/<class>/<video>/<frame>.png | ...      frames in the order of their names, numbers by size; needs Pillow

A video is listed first and read later, by whoever works on it: nobody holds more than a few. What a file says about its
own size is checked before memory is taken for it. Names that begin with a dot are left out everywhere.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat, whosmat

from cksc_dist.arrays import Npz, read_array, read_header
from cksc_dist.errors import InputError, ReadError, brief
from cksc_dist.io.mat5 import check_release, check_structure

__all__ = ["LAYOUTS", "Layout", "VideoFile", "find_videos", "read_video"]

Layout = Literal["auto", "thw", "hwt", "thwc", "hwct"]
LAYOUTS = ("auto", "thw", "hwt", "thwc", "hwct")
"""Order of the axes of an array: time, height, width, colour."""

ARRAYS = (".npy", ".npz", ".mat")
VIDEOS = (".avi", ".mp4", ".mkv", ".mov", ".mpg", ".mpeg", ".webm")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".pgm")

# what these names may hold: others may run programs or reach out to addresses that a file names
CONTAINERS = "avi,mov,mp4,matroska,webm,mpeg,mpegts,mpegvideo"
PICTURES = ("PNG", "JPEG", "BMP", "TIFF", "PPM")

MOST_BYTES = 2**30
"""A video that takes more memory than this is cut before it comes here."""
SMALL = 2**24
"""Pixels of a frame, and eight times as many of a video, that may be packed as well as can be."""
PIXELS_A_BYTE = 200
"""Of more pixels, so many are in a byte of files at most: photos have some ten, films some hundred."""
LEAST_SIDE = 3
"""A pixel has neighbours on all sides, in time as well."""
LUMA = (299, 587, 114)
"""Thousandths of red, green and blue in a grey level (ITU-R BT.601)."""

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
    found: dict[str, VideoFile] = {}
    with _words(root):
        if not root.is_dir():
            raise ReadError(root, f"is no folder; {FORMS}")
        for home in sorted(each for each in _shown(root) if each.is_dir()):
            for path in sorted(filter(_is_video, _shown(home)), key=_natural):
                name = f"{home.name}/{path.name if path.is_dir() else path.stem}"
                if not _is_text(name):
                    raise ReadError(root, f"holds {name!r}, a name that is no text in UTF-8; rename it")
                if name in found:
                    raise ReadError(path, f"is a second video {name!r}, as {found[name].path} is; rename one of them")
                found[name] = VideoFile(path, home.name, name)
    if not found:
        raise ReadError(root, f"holds no videos; {FORMS}")
    return list(found.values())


@contextmanager
def _words(path: Path) -> Iterator[None]:
    """Say in this package's words that the system refuses something."""
    try:
        yield
    except OSError as error:
        raise ReadError(
            error.filename or path,
            f"cannot be opened: {error.strerror or error}; check the path and its permissions",
        ) from error


def _shown(folder: Path) -> Iterator[Path]:
    """Give what is in a folder, but for hidden files."""
    return (each for each in folder.iterdir() if not each.name.startswith("."))


def _is_text(name: str) -> bool:
    """Tell whether a name can be kept in files and shown: the system lets any bytes be a name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _natural(path: Path) -> tuple[list[tuple[int, int, str]], str]:
    """Return a key by which 2 comes before 10; of 1 and 01 the order is always the same."""
    parts = [part for part in re.split(r"(\d+)", path.name) if part]
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts], path.name


def _is_video(path: Path) -> bool:
    return bool(_frame_files(path)) if path.is_dir() else path.suffix.lower() in ARRAYS + VIDEOS


def _frame_files(folder: Path) -> list[Path]:
    return sorted(
        (each for each in _shown(folder) if each.suffix.lower() in IMAGES and not each.is_dir()), key=_natural
    )


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
        Bytes as bytes, all else as float64.
    """
    path = Path(path)
    if layout not in LAYOUTS:
        raise InputError(f"layout={layout!r}: must be one of {', '.join(LAYOUTS)}")
    try:
        with _words(path):
            video = _read(path, layout)
    except MemoryError as error:
        raise ReadError(path, "needs more memory than there is; cut it into shorter videos") from error
    if min(video.shape) < LEAST_SIDE:
        raise ReadError(
            path, f"has shape {video.shape} (time, height, width); each must be at least {LEAST_SIDE}: check the layout"
        )
    if video.dtype != np.uint8 and not np.isfinite(video).all():
        raise ReadError(path, "has a NaN or infinite value; fill it, or leave the video out")
    return video


def _read(path: Path, layout: Layout) -> NDArray[Any]:
    kind = path.suffix.lower()
    if path.is_dir():
        return _as_levels(_read_frames(path))
    if kind in VIDEOS:
        return _read_film(path)
    if kind in ARRAYS:
        return _as_levels(_arranged(path, _read_array(path), layout))
    raise ReadError(path, f"is in no form that can be read; {FORMS}")


def _as_levels(video: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # what a float64 cannot hold is found afterwards
        return np.ascontiguousarray(video, dtype=np.uint8 if video.dtype == np.uint8 else np.float64)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file, but nothing that only looks like one: a pipe would wait for ever."""
    if path.exists() and not path.is_file():
        raise ReadError(path, "is no plain file; remove it")
    with path.open("rb") as handle:
        yield handle


def _check_size(path: Path, values: int, dtype: np.dtype[Any] | type) -> None:
    """Refuse what takes too much memory; all but bytes become float64."""
    size = values * (1 if np.dtype(dtype) == np.uint8 else 8)
    if size > MOST_BYTES:
        raise ReadError(
            path,
            f"takes {size:,} bytes in memory, more than {MOST_BYTES:,}; cut it into shorter videos, or store bytes",
        )


class _Listed(NamedTuple):
    """An array that has not been loaded yet."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _read_array(path: Path) -> NDArray[Any]:
    """Return the one array of a file with three or four axes."""
    load = {".npy": _load_npy, ".npz": _load_npz, ".mat": _load_mat}[path.suffix.lower()]
    with _opened(path) as handle:
        try:
            array = load(path, handle)
        except (ReadError, MemoryError):
            raise
        except Exception as error:  # damaged bytes end in any of a dozen kinds
            raise ReadError(
                path, f"cannot be read as arrays of numbers ({brief(error)}); object arrays are refused; write it again"
            ) from error
    if array.dtype.kind not in "uifb":
        raise ReadError(path, f"has values of type {array.dtype}; grey levels must be real numbers")
    return array


def _choose(path: Path, listed: Sequence[_Listed]) -> _Listed:
    """Return the one array that can be a video, if memory can hold it."""
    films = [each for each in listed if len(each.shape) in (3, 4) and each.dtype.kind in "uifb"]
    if len(films) != 1:
        shapes = ", ".join(f"{each.name} {each.shape} {each.dtype}" for each in listed[:8]) or "none"
        more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
        raise ReadError(path, f"holds the arrays {shapes}{more}; it must hold one array of numbers with 3 or 4 axes")
    _check_size(path, math.prod(films[0].shape), films[0].dtype)
    return films[0]


def _size(handle: BinaryIO) -> int:
    return os.fstat(handle.fileno()).st_size


def _load_npy(path: Path, handle: BinaryIO) -> NDArray[Any]:
    _choose(path, [_Listed(path.stem, *read_header(handle))])
    return read_array(handle, _size(handle))


def _load_npz(path: Path, handle: BinaryIO) -> NDArray[Any]:
    archive = Npz(handle)
    film = _choose(path, [_Listed(name, *header) for name, header in archive.headers()])
    archive.check([film.name])
    return archive.read(film.name)


def _load_mat(path: Path, handle: BinaryIO) -> NDArray[Any]:
    _check_size(path, _size(handle), np.uint8)
    content = handle.read()
    check_release(path, content)
    check_structure(content, MOST_BYTES)
    kinds = {"double": "f8", "single": "f4", "logical": "u1"}
    listed = [
        _Listed(name, shape, np.dtype(kinds.get(kind, kind if "int" in kind else "O")))
        for name, shape, kind in whosmat(BytesIO(content))
    ]
    name = _choose(path, listed).name
    return np.asarray(loadmat(BytesIO(content), variable_names=[name])[name])


def _arranged(path: Path, array: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """Return an array as (time, height, width), colours as grey levels."""
    matlab = path.suffix.lower() == ".mat"
    order: str = layout
    if order == "auto":
        order = ("hwt" if matlab else "thw") if array.ndim == 3 else ("hwct" if matlab else "thwc")
    if len(order) != array.ndim:
        raise ReadError(path, f"has an array of shape {array.shape}; layout={order!r} is for {len(order)} axes")
    arranged = array.transpose([order.index(axis) for axis in ("thwc" if "c" in order else "thw")])
    if arranged.ndim == 3:
        return arranged
    if arranged.shape[3] not in (1, 3, 4):
        raise ReadError(
            path, f"has {arranged.shape[3]} colours in its shape {array.shape}; 1, 3 or 4 are known: check the layout"
        )
    return arranged[..., 0] if arranged.shape[3] == 1 else _grey(arranged)


def _grey(colours: NDArray[Any]) -> NDArray[Any]:
    """Return the grey levels of colours; of bytes as bytes, so that grey colours keep their level."""
    whole = colours.dtype == np.uint8
    levels = np.empty(colours.shape[:3], np.uint8 if whole else np.float64)
    for level, frame in zip(levels, colours, strict=True):  # one by one: they take more memory on the way
        with np.errstate(over="ignore", invalid="ignore"):
            red, green, blue = (
                weight * frame[..., at].astype(np.int32 if whole else np.float64) for at, weight in enumerate(LUMA)
            )
            level[...] = (red + green + blue + 500) // 1000 if whole else (red + green + blue) / 1000
    return levels


def _read_film(path: Path) -> NDArray[Any]:
    try:
        import av
    except ImportError as error:
        raise ReadError(path, "is a video file, which needs PyAV; install it with: pip install av") from error
    frames: list[NDArray[Any]] = []
    with _opened(path) as handle:
        # one frame takes several times its pixels, in colours and as what the next is told from
        most = min(MOST_BYTES // LEAST_SIDE, max(SMALL, PIXELS_A_BYTE * _size(handle)))
        limit = {"max_pixels": str(most)}
        try:
            with av.open(handle, "r", options=limit | {"format_whitelist": CONTAINERS}) as container:
                if not container.streams.video:
                    raise ReadError(path, "holds no pictures; leave it out")
                stream = container.streams.video[0]
                stream.codec_context.options = limit
                for frame in container.decode(stream):
                    frames.append(frame.to_ndarray(format="gray"))
                    _check_alike(path, f"frame {len(frames) - 1}", frames[-1], "frame 0", frames[0])
                    _check_size(path, frames[0].size * len(frames), np.uint8)
                    _check_packing(path, frames[0].size * len(frames), 8 * SMALL, _size(handle))
        except (ReadError, MemoryError):
            raise
        except Exception as error:  # of FFmpeg, one for each of its codes
            raise ReadError(path, f"cannot be read as a video ({brief(error)}); play it, or write it again") from error
    if not frames:
        raise ReadError(path, "holds no frames; play it, or write it again")
    return np.stack(frames)


def _check_packing(path: Path, pixels: int, small: int, size: int) -> None:
    """Refuse what is packed as no video is: a few kilobytes can hold a gigabyte of one colour."""
    if pixels > max(small, PIXELS_A_BYTE * size):
        raise ReadError(
            path,
            f"has {pixels:,} pixels or more, but {size:,} bytes, more than {PIXELS_A_BYTE} pixels in each; cut it into "
            "shorter or smaller videos",
        )


def _check_alike(path: Path, name: str, frame: NDArray[Any], first_name: str, first: NDArray[Any]) -> None:
    if (frame.shape, frame.dtype) != (first.shape, first.dtype):
        raise ReadError(
            path,
            f"{name} has shape {frame.shape} and type {frame.dtype}, but {first_name} {first.shape} and {first.dtype}; "
            "all frames must be alike",
        )


def _read_frames(folder: Path) -> NDArray[Any]:
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ReadError(
            folder, "is a folder of frames, which needs Pillow; install it with: pip install pillow"
        ) from error
    files = _frame_files(folder)
    if not files:
        raise ReadError(folder, f"holds no frames ({', '.join(IMAGES)})")
    first = _read_frame(files[0], len(files))
    _check_packing(folder, first.size * len(files), 8 * SMALL, sum(file.stat().st_size for file in files))
    video = np.empty((len(files), *first.shape), first.dtype)
    for at, file in enumerate(files):
        frame = _read_frame(file, len(files))
        _check_alike(folder, file.name, frame, files[0].name, first)
        video[at] = frame
    return video


def _read_frame(path: Path, count: int) -> NDArray[Any]:
    """Return one of so many images that are alike."""
    from PIL import Image

    with _opened(path) as handle:
        try:
            with Image.open(handle, formats=PICTURES) as image:
                size = _size(handle)
                _check_packing(path, image.width * image.height, SMALL, size)
                deep = image.mode in ("I", "F") or image.mode.startswith("I;16")  # more than bytes
                _check_size(path, image.width * image.height * count, np.float64 if deep else np.uint8)
                pages = getattr(image, "n_frames", 1)
                if pages > 1 and image.format != "MPO":  # a photo with its preview
                    raise ReadError(path, f"holds {pages} images; write each of them to a file of its own")
                if deep:
                    return np.array(image)
                plain = image.convert("RGBA") if image.mode == "P" else image  # some colour may be the transparent one
                return np.array(plain.convert("L"))
        except (ReadError, MemoryError):
            raise
        except Exception as error:  # of a dozen formats
            raise ReadError(path, f"cannot be read as an image ({brief(error)}); write it again") from error
