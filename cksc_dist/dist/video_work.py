"""Work on videos as tasks: make textures, describe videos; a task holds one video at a time, and writes what it made.

    <folder>/<block>.npz     descriptors of a block of videos: frame histograms end to end, LBP-TOP as rows

A block is named after its videos (ids, paths, sizes, times of change) and how they are read: what is there already is
not made again; what is damaged, and what comes from a video that has changed, is.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cksc_dist.arrays import unpack_npz
from cksc_dist.dist.executors import Executor
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.errors import InputError, ReadError, StoreError
from cksc_dist.io.textures import TextureSpec, texture_path, write_texture
from cksc_dist.io.videos import Layout, VideoFile, read_video
from cksc_dist.maths.local_patterns import KINDS, describe_video
from cksc_dist.processes import signature
from cksc_dist.series import SeriesSet
from cksc_dist.store.folder import Folder

__all__ = ["Described", "describe_videos", "make_textures"]

ABOUT = "textures.json"
PLANES = ("XY", "XT", "YT")
"""What stands before the underscore groups dimensions: methods that take several kernels have one for each plane."""
FORMAT = 1
"""Of the files; another one makes all of them anew."""
VIDEOS_A_TASK = 8
"""About a tenth of a second of work for videos of 50 x 50 x 50; large ones take longer."""


class Described(NamedTuple):
    """Descriptors of the same videos.

    Parameters
    ----------
    frames
        A series of frame histograms each.
    planes
        The LBP-TOP histogram of each, as a series of one frame.
    """

    frames: SeriesSet
    planes: SeriesSet


@dataclass(frozen=True)
class TextureTask:
    """Textures to make: class and number of each."""

    folder: str
    spec: TextureSpec
    videos: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return f"textures from {self.videos[0]} on"


def write_textures(task: TextureTask) -> int:
    """Write the textures of a task, and return how many."""
    for label, number in task.videos:
        write_texture(task.folder, task.spec, label, number, signature())
    return len(task.videos)


def make_textures(
    folder: str | Path, spec: TextureSpec, executor: Executor, progress: Progress, who: str = "", dashboard: str = ""
) -> int:
    """Make the videos of a set that are missing in a folder, and return how many.

    Parameters
    ----------
    folder
        Where they go, seen by all workers. It keeps the settings as well: another set needs another folder.
    """
    root = Path(folder).absolute()
    if root.exists() and not root.is_dir():
        raise InputError(f"{root} is a file; name a folder")
    home, settings = Folder(root), json.dumps(vars(spec) | {"videos_per_class": 0}, sort_keys=True).encode()
    wanted = [(label, number) for label in range(spec.classes) for number in range(spec.videos_per_class)]
    missing = [video for video in wanted if not texture_path(root, *video).exists()]
    if home.read(ABOUT) is None and len(missing) == len(wanted):
        home.create(ABOUT, settings)
    if home.read(ABOUT) != settings:
        raise InputError(f"{root} holds textures made with other settings; name another folder, or remove it")
    with home.swept(held=False):
        if missing:
            tasks = [TextureTask(str(root), spec, tuple(part)) for part in _cut(missing)]
            running = Running("textures", len(missing), len(missing), who, executor.slots, dashboard, "videos")
            _run(executor, write_textures, tasks, running, progress)
    return len(missing)


def _cut(items: Sequence[Any]) -> list[Sequence[Any]]:
    return [items[at : at + VIDEOS_A_TASK] for at in range(0, len(items), VIDEOS_A_TASK)]


def _run(executor: Executor, function: Any, tasks: Sequence[Any], running: Running, progress: Progress) -> None:
    """Run tasks that each return how many videos they worked on."""
    progress.begin(running)
    try:
        for came in executor.stream(function, tasks, running.text):
            if came is None:
                progress.tick()
            else:
                progress.advance(came[1], 0, came[1])
    finally:
        progress.end()


@dataclass(frozen=True)
class VideoTask:
    """A block of videos to describe."""

    folder: str
    name: str
    videos: tuple[VideoFile, ...]
    layout: Layout

    def __str__(self) -> str:
        return f"videos from {self.videos[0].id} on"


def describe_block(task: VideoTask) -> int:
    """Read the videos of a block one by one, write their descriptors, and return how many there are."""
    described = [_describe(video, task.layout) for video in task.videos]
    content = io.BytesIO()
    np.savez(
        content,
        frames=np.concatenate([frames for frames, _ in described]),
        lengths=np.array([len(frames) for frames, _ in described]),
        planes=np.stack([planes for _, planes in described]),
    )
    Folder(task.folder).write(f"{task.name}.npz", content.getbuffer())
    return len(task.videos)


def _describe(video: VideoFile, layout: Layout) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both descriptors of a video, which is let go before the next one is read."""
    pixels = read_video(video.path, layout=layout)
    return describe_video(pixels)


def describe_videos(
    videos: Sequence[VideoFile],
    folder: str | Folder,
    executor: Executor,
    progress: Progress,
    *,
    layout: Layout = "auto",
    name: str = "videos",
    who: str = "",
    dashboard: str = "",
) -> Described:
    """Return the descriptors of videos; those that are there already are read, the others made.

    Parameters
    ----------
    videos
        Of `find_videos`; their files are seen by all workers.
    folder
        Where descriptors are kept: a folder or URL.
    layout
        As for `read_video`.
    name
        Of the sets.
    """
    _check_ids(videos)
    home = Folder.of(folder)
    # workers may run in another folder
    there = [VideoFile(video.path.absolute(), video.label, video.id) for video in videos]
    blocks = {_block_name(part, layout): tuple(part) for part in _cut(there)}
    found = {key: _read_block(home, key, len(part)) for key, part in blocks.items()}
    missing = [VideoTask(home.url, key, part, layout) for key, part in blocks.items() if found[key] is None]
    with home.swept(held=False):
        if missing:
            count = sum(len(task.videos) for task in missing)
            running = Running("descriptors", count, count, who, executor.slots, dashboard, "videos")
            _run(executor, describe_block, missing, running, progress)
    found |= {task.name: _read_block(home, task.name, len(task.videos)) for task in missing}
    parts = [part for part in found.values() if part is not None]
    if len(parts) < len(blocks):
        lost = next(key for key, part in found.items() if part is None)
        raise StoreError(
            f"{home.url}/{lost}.npz was written, but cannot be read from here; name a folder that all workers share"
        )
    labels = [video.label for video in videos]
    ids = [video.id for video in videos]
    edges = np.concatenate([[0], np.cumsum(np.concatenate([part["lengths"] for part in parts]))])
    frames = np.concatenate([part["frames"] for part in parts])
    planes = np.concatenate([part["planes"] for part in parts])
    names = [f"{plane}_{kind}" for plane in PLANES for kind in range(KINDS)]
    return Described(
        SeriesSet(frames, edges, np.array(labels), np.array(ids), name, tuple(names[:KINDS])),
        SeriesSet.from_list(planes[:, None, :], labels, ids, name=name, dim_names=names),
    )


def _check_ids(videos: Sequence[VideoFile]) -> None:
    """Say before any work what the sets would say after it."""
    if not videos:
        raise InputError("there are no videos to describe; give at least one")
    name, count = Counter(video.id for video in videos).most_common(1)[0]
    if count > 1:
        raise InputError(f"the id {name!r} is used by {count} videos; ids must differ")


def _block_name(videos: Sequence[VideoFile], layout: str) -> str:
    """Return a name that tells what the descriptors of some videos come from."""
    about = [(video.id, str(video.path), _state(video.path)) for video in videos]
    return hashlib.sha256(json.dumps([FORMAT, layout, about]).encode()).hexdigest()[:24]


def _state(path: Path) -> list[tuple[str, int, int, int]]:
    """Return name, size and times of change of a file, or of all in a folder of frames."""
    try:
        files = [(each.name, each.stat()) for each in (sorted(path.iterdir()) if path.is_dir() else [path])]
    except OSError as error:
        raise ReadError(path, f"cannot be read: {error.strerror}; check the path and its permissions") from error
    # a copy may keep the time of its original; that of the system tells
    return [(name, found.st_size, found.st_mtime_ns, found.st_ctime_ns) for name, found in files]


def _read_block(folder: Folder, name: str, count: int) -> dict[str, NDArray[Any]] | None:
    """Return the descriptors of a block of so many videos; None where they are missing or damaged."""
    content = folder.read(f"{name}.npz")
    if content is None:
        return None
    try:
        arrays = unpack_npz(content)
        found = {key: arrays[key] for key in ("frames", "lengths", "planes")}
        shapes = {"frames": (found["lengths"].sum(), KINDS), "lengths": (count,), "planes": (count, 3 * KINDS)}
    except Exception:  # damaged bytes end in any of a dozen kinds
        return None
    fit = (found[key].shape == shape and found[key].dtype.kind in "if" for key, shape in shapes.items())
    return found if all(fit) else None
