"""Work on videos as tasks: make textures, describe videos; a task holds one video at a time, and writes what it made.

    <folder>/<block>.npz     descriptors of a block of videos: frame histograms end to end, LBP-TOP as rows

A block is named after its videos (ids, sizes, times of change) and how they are read: what is there already is not made
again, and a changed video is.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cksc_dist.dist.executors import Executor
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.errors import InputError, ReadError, StoreError
from cksc_dist.io.textures import TextureSpec, texture_path, write_texture
from cksc_dist.io.videos import VideoFile, read_video
from cksc_dist.maths.local_patterns import frame_histograms, lbp_top
from cksc_dist.series import SeriesSet
from cksc_dist.store.folder import Folder

__all__ = ["Described", "describe_videos", "make_textures"]

FORMAT = 1
"""Of the files; another one makes all of them anew."""
VIDEOS_A_TASK = 8
"""About half a second of work for videos of 50 x 50 x 50."""


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
        write_texture(task.folder, task.spec, label, number)
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
    about, settings = root / "textures.json", json.dumps(vars(spec) | {"videos_per_class": 0}, sort_keys=True)
    if about.exists() and about.read_text() != settings:
        raise InputError(f"{root} holds textures made with other settings; name another folder, or remove it")
    wanted = [(label, number) for label in range(spec.classes) for number in range(spec.videos_per_class)]
    missing = [video for video in wanted if not texture_path(root, *video).exists()]
    if not missing:
        return 0
    root.mkdir(parents=True, exist_ok=True)
    about.write_text(settings)
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
    layout: str

    def __str__(self) -> str:
        return f"videos from {self.videos[0].id} on"


def describe_block(task: VideoTask) -> int:
    """Read the videos of a block one by one, write their descriptors, and return how many there are."""
    frames, planes = [], []
    for video in task.videos:
        pixels = read_video(video.path, layout=task.layout)  # type: ignore[arg-type]  # checked there
        frames.append(frame_histograms(pixels))
        planes.append(lbp_top(pixels))
    content = io.BytesIO()
    lengths = np.array([len(series) for series in frames])
    np.savez(content, frames=np.concatenate(frames), lengths=lengths, planes=np.stack(planes))
    Folder(task.folder).write(f"{task.name}.npz", content.getbuffer())
    return len(task.videos)


def describe_videos(
    videos: Sequence[VideoFile],
    folder: str | Folder,
    executor: Executor,
    progress: Progress,
    *,
    layout: str = "auto",
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
    home = Folder.of(folder)
    blocks = {_block_name(part, layout): tuple(part) for part in _cut(videos)}
    there = home.files("")
    missing = [VideoTask(home.url, key, part, layout) for key, part in blocks.items() if f"{key}.npz" not in there]
    if missing:
        count = sum(len(task.videos) for task in missing)
        running = Running("descriptors", count, count, who, executor.slots, dashboard, "videos")
        _run(executor, describe_block, missing, running, progress)
    parts = [_read_block(home, key, len(part)) for key, part in blocks.items()]
    labels = [video.label for video in videos]
    ids = [video.id for video in videos]
    edges = np.concatenate([[0], np.cumsum(np.concatenate([part["lengths"] for part in parts]))])
    frames = SeriesSet(
        np.concatenate([part["frames"] for part in parts]), edges, np.array(labels), np.array(ids), name, ()
    )
    planes = np.concatenate([part["planes"] for part in parts])
    return Described(frames, SeriesSet.from_list(planes[:, None, :], labels, ids, name=name))


def _block_name(videos: Sequence[VideoFile], layout: str) -> str:
    """Return a name that tells what the descriptors of some videos come from."""
    about = [(video.id, video.label, *_state(video.path)) for video in videos]
    return hashlib.sha256(json.dumps([FORMAT, layout, about]).encode()).hexdigest()[:24]


def _state(path: Path) -> tuple[int, int]:
    """Return size and time of change of a file, or of a folder of frames."""
    try:
        found = path.stat()
        if not path.is_dir():
            return found.st_size, found.st_mtime_ns
        frames = [each.stat() for each in sorted(path.iterdir())]
    except OSError as error:
        raise ReadError(path, f"cannot be read: {error.strerror}; check the path and its permissions") from error
    return sum(each.st_size for each in frames), max((each.st_mtime_ns for each in frames), default=0)


def _read_block(folder: Folder, name: str, count: int) -> dict[str, NDArray[Any]]:
    content = folder.read(f"{name}.npz")
    try:
        if content is None:
            raise ValueError("it is lost")
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            found = {key: arrays[key] for key in ("frames", "lengths", "planes")}
        if not len(found["lengths"]) == len(found["planes"]) == count or found["lengths"].sum() != len(found["frames"]):
            raise ValueError("its arrays do not fit each other")
    except Exception as error:  # damaged bytes end in any of a dozen kinds
        raise StoreError(
            f"{folder.url}/{name}.npz is damaged ({error}); remove it, and run the command again"
        ) from error
    return found
