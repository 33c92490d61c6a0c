"""Tasks on videos: the same bytes whoever works, nothing twice, and what is changed, lost or damaged made again."""

from __future__ import annotations

import io
import os
import shutil
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from cksc_dist.dist import video_work
from cksc_dist.dist.dask_executor import DaskExecutor
from cksc_dist.dist.executors import SerialExecutor, ThreadExecutor
from cksc_dist.dist.progress import Progress, Running
from cksc_dist.dist.video_work import Described, describe_videos, make_textures
from cksc_dist.errors import CkscError, InputError, ReadError, StoreError
from cksc_dist.io.textures import TextureSpec, make_texture, texture_path
from cksc_dist.io.videos import VideoFile, find_videos, read_video
from cksc_dist.maths.local_patterns import frame_histograms, lbp_top

SPEC = TextureSpec(classes=3, videos_per_class=7, frames=4, side=8)
"""21 videos: two whole blocks and a part of one."""
BLOCK = 8


@pytest.fixture(autouse=True, scope="module")
def small_blocks() -> Iterator[None]:
    """Whatever the usual size of a task is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(video_work, "VIDEOS_A_TASK", BLOCK)
        yield


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """Two workers that are processes: what goes to and fro is pickled."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as found,
    ):
        yield found


def write_videos(folder: Path, count: int = 10, labels: Sequence[str] = ("flame", "water")) -> list[VideoFile]:
    """Videos of several lengths and sizes."""
    rng = np.random.default_rng(0)
    for number in range(count):
        path = folder / labels[number % len(labels)] / f"v{number}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, rng.integers(0, 256, (3 + number % 4, 5 + number % 3, 6)).astype(np.uint8))
    return find_videos(folder)


@pytest.fixture
def videos(tmp_path: Path) -> list[VideoFile]:
    return write_videos(tmp_path / "videos")


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "descriptors")


def described(videos: Sequence[VideoFile], store: Any, executor: Any = None, **options: Any) -> Described:
    return describe_videos(videos, store, executor or SerialExecutor(), Progress(), **options)


def files_of(folder: str | Path) -> dict[str, bytes]:
    top = Path(folder)
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}


def same(a: Described, b: Described) -> bool:
    return all(
        x.values.tobytes() == y.values.tobytes()
        and x.offsets.tolist() == y.offsets.tolist()
        and x.ids.tolist() == y.ids.tolist()
        and x.labels.tolist() == y.labels.tolist()
        for x, y in zip(a, b, strict=True)
    )


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Paths of the videos that are read, as they are."""
    paths: list[Path] = []

    def counted(path: Path, **options: Any) -> NDArray[Any]:
        paths.append(path)
        return read_video(path, **options)

    monkeypatch.setattr(video_work, "read_video", counted)
    return paths


class Told(Progress):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.running: list[Running] = []
        self.done: list[tuple[int, int, int]] = []
        self.ticks = self.ends = 0

    def begin(self, running: Running) -> None:
        self.running.append(running)

    def advance(self, work: int, pairs: int, tiles: int = 1) -> None:
        self.done.append((work, pairs, tiles))

    def tick(self) -> None:
        self.ticks += 1

    def end(self) -> None:
        self.ends += 1


# ---- descriptors


def test_descriptors_are_those_of_the_videos(videos: list[VideoFile], store: str) -> None:
    found = described(videos, store, name="clips")
    assert found.frames.name == found.planes.name == "clips"
    assert len(found.frames) == len(found.planes) == 10 > BLOCK
    for data in found:
        assert data.ids.tolist() == [video.id for video in videos]
        assert data.labels.tolist() == [video.label for video in videos]
    assert len(set(found.frames.lengths.tolist())) == 4, "videos of several lengths"
    for series, row, video in zip(found.frames, found.planes, videos, strict=True):
        pixels = np.load(video.path)
        np.testing.assert_array_equal(series, frame_histograms(pixels))
        np.testing.assert_array_equal(row, lbp_top(pixels)[None])


def test_dimensions_are_named_after_planes_and_kinds(videos: list[VideoFile], store: str) -> None:
    found = described(videos, store)
    assert found.frames.dim_names == tuple(f"XY_{kind}" for kind in range(59))
    assert found.planes.dim_names == tuple(f"{plane}_{kind}" for plane in ("XY", "XT", "YT") for kind in range(59))


def test_videos_stay_in_the_order_in_which_they_are_given(videos: list[VideoFile], store: str) -> None:
    turned = [videos[i] for i in np.random.default_rng(1).permutation(len(videos))]
    found = described(turned, store)
    assert found.frames.ids.tolist() == [video.id for video in turned]
    for series, video in zip(found.frames, turned, strict=True):
        np.testing.assert_array_equal(series, frame_histograms(np.load(video.path)))


def test_threads_and_a_cluster_give_the_same_bytes(videos: list[VideoFile], tmp_path: Path, client: Client) -> None:
    executors = {"serial": SerialExecutor(), "threads": ThreadExecutor(3), "dask": DaskExecutor(client)}
    found = {name: described(videos, tmp_path / name, executor) for name, executor in executors.items()}
    kept = {name: files_of(tmp_path / name) for name in executors}
    assert len(kept["serial"]) == 2
    assert all(name.endswith(".npz") for name in kept["serial"])
    for name in ("threads", "dask"):
        assert kept[name] == kept["serial"]
        assert same(found[name], found["serial"])


def test_a_second_run_reads_no_video(videos: list[VideoFile], store: str, read: list[Path]) -> None:
    first = described(videos, store)
    assert Counter(read) == Counter(video.path for video in videos), "each once"
    read.clear()
    before = files_of(store)
    told = Told()
    second = describe_videos(videos, store, SerialExecutor(), told)
    assert read == []
    assert told.running == []
    assert same(first, second)
    assert files_of(store) == before


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, store: str, read: list[Path]) -> None:
    videos = write_videos(tmp_path / "many", 2 * BLOCK + 3)

    class Killed(BaseException):
        pass

    class Stops(SerialExecutor):
        def stream(self, function: Any, tasks: Any, name: str) -> Any:
            for came in super().stream(function, tasks, name):
                yield came
                raise Killed

    with pytest.raises(Killed):
        described(videos, store, Stops())
    assert len(files_of(store)) == 1
    read.clear()
    whole = described(videos, store)
    assert len(read) == BLOCK + 3, "the first block was kept"
    assert same(whole, described(videos, tmp_path / "other"))


def rewritten(video: VideoFile) -> NDArray[Any]:
    """Put other pixels in the place of a video, as many bytes as before."""
    pixels = np.load(video.path)[::-1, :, ::-1].copy()
    np.save(video.path, pixels)
    return pixels


def test_a_changed_video_is_described_again(videos: list[VideoFile], store: str, read: list[Path]) -> None:
    before = described(videos, store)
    read.clear()
    size = videos[-1].path.stat().st_size
    pixels = rewritten(videos[-1])
    assert videos[-1].path.stat().st_size == size
    after = described(videos, store)
    assert set(read) == {video.path for video in videos[BLOCK:]}, "its block, and no other"
    np.testing.assert_array_equal(after.frames[-1], frame_histograms(pixels))
    np.testing.assert_array_equal(after.frames[0], before.frames[0])
    assert not np.array_equal(after.frames[-1], before.frames[-1])


def test_a_change_that_keeps_size_and_time_is_seen(videos: list[VideoFile], store: str) -> None:
    """As unpacking and copying do: the file says that it is as old as before."""
    described(videos, store)
    found = videos[0].path.stat()
    pixels = rewritten(videos[0])
    os.utime(videos[0].path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert videos[0].path.stat().st_mtime_ns == found.st_mtime_ns
    np.testing.assert_array_equal(described(videos, store).frames[0], frame_histograms(pixels))


def test_other_videos_of_the_same_names_do_not_share_descriptors(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder, of the same names, sizes and times."""
    monkeypatch.setattr(video_work, "_state", lambda path: [])
    first = write_videos(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    second = find_videos(tmp_path / "b")
    for one, other in zip(first, second, strict=True):
        assert one.id == other.id
        rewritten(other)
    one, other = described(first, store), described(second, store)
    assert one.frames.ids.tolist() == other.frames.ids.tolist()
    np.testing.assert_array_equal(other.frames[0], frame_histograms(np.load(second[0].path)))
    assert not same(one, other)


def test_frames_that_are_swapped_make_another_video(tmp_path: Path, store: str) -> None:
    folder = tmp_path / "videos" / "flame" / "a"
    folder.mkdir(parents=True)
    for number, frame in enumerate(np.random.default_rng(0).integers(0, 256, (4, 6, 6)).astype(np.uint8)):
        Image.fromarray(frame).save(folder / f"{number}.png")
    videos = find_videos(tmp_path / "videos")
    before = described(videos, store)
    (folder / "0.png").rename(folder / "x.png")
    (folder / "1.png").rename(folder / "0.png")
    (folder / "x.png").rename(folder / "1.png")
    after = described(videos, store)
    np.testing.assert_array_equal(after.frames[0], before.frames[0][[1, 0, 2, 3]])
    (folder / "3.png").unlink()
    assert described(videos, store).frames.lengths.tolist() == [3]


def test_the_way_of_reading_is_part_of_the_name(tmp_path: Path, store: str) -> None:
    (tmp_path / "videos" / "flame").mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 6)).astype(np.uint8)
    np.save(tmp_path / "videos" / "flame" / "a.npy", pixels)
    videos = find_videos(tmp_path / "videos")
    plain, turned = described(videos, store), described(videos, store, layout="hwt")
    assert plain.frames.lengths.tolist() == [4]
    assert turned.frames.lengths.tolist() == [6]
    np.testing.assert_array_equal(turned.frames[0], frame_histograms(pixels.transpose(2, 0, 1)))


def test_names_of_blocks_hold_for_all_that_is_in_them(videos: list[VideoFile], store: str, read: list[Path]) -> None:
    """Other labels need no work; other ids are other videos."""
    described(videos, store)
    read.clear()
    other = [replace(video, label="fire") for video in videos]
    assert described(other, store).frames.labels.tolist() == ["fire"] * 10
    assert read == []
    # the same eight files twice
    twice = [replace(videos[i % 8], id=f"{i}") for i in range(16)]
    found = described(twice, store)
    assert len(found.frames) == 16
    np.testing.assert_array_equal(found.frames[9], found.frames[1])


# ---- damage


def test_a_lost_block_is_made_again(videos: list[VideoFile], store: str, read: list[Path]) -> None:
    whole = described(videos, store)
    before = files_of(store)
    read.clear()
    Path(store, min(before)).unlink()
    assert same(described(videos, store), whole)
    assert 0 < len(read) < len(videos)
    assert files_of(store) == before


def npz(**arrays: Any) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: content[:200] + b"x" + content[201:],
        lambda content: bytes(len(content)),
        lambda content: npz(frames=np.zeros((9, 59))),
        lambda content: npz(frames=np.zeros((9, 59)), lengths=np.array([9]), planes=np.zeros((1, 177))),
        lambda content: npz(frames=np.zeros((5, 59)), lengths=np.full(8, 3), planes=np.zeros((8, 177))),
        lambda content: npz(frames=np.zeros((24, 59)), lengths=np.array([24]), planes=np.zeros((8, 177))),
        lambda content: npz(frames=np.zeros((24, 58)), lengths=np.full(8, 3), planes=np.zeros((8, 177))),
        lambda content: npz(frames=np.zeros((24, 59)), lengths=np.full(8, 3), planes=np.zeros((8, 176))),
        lambda content: npz(frames=np.full((24, 59), "a"), lengths=np.full(8, 3), planes=np.zeros((8, 177))),
        lambda content: npz(frames=np.zeros((24, 59)), lengths=np.full(8, "3"), planes=np.zeros((8, 177))),
        lambda content: npz(frames=np.full((24, 59), None), lengths=np.full(8, 3), planes=np.zeros((8, 177))),
    ],
    ids=[
        "empty", "half", "but the last byte", "a byte", "zeros", "parts missing", "other videos", "other lengths",
        "one length", "other kinds", "other planes", "text", "lengths of text", "objects",
    ],
)  # fmt: skip
def test_a_damaged_block_is_made_again(
    videos: list[VideoFile], store: str, damage: Callable[[bytes], bytes], read: list[Path]
) -> None:
    whole = described(videos, store)
    good = files_of(store)
    eight = next(name for name, content in good.items() if len(np.load(io.BytesIO(content))["lengths"]) == 8)
    Path(store, eight).write_bytes(damage(good[eight]))
    read.clear()
    told = Told()
    assert same(describe_videos(videos, store, SerialExecutor(), told), whole)
    assert len(read) == 8, "the other block is good"
    assert [running.total for running in told.running] == [8]
    assert files_of(store) == good


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[VideoFile], Path, bytes, Described]:
    """A video, and its block."""
    folder = tmp_path_factory.mktemp("kept")
    videos = write_videos(folder / "videos", 2)
    whole = described(videos, folder / "store")
    (block,) = (folder / "store").iterdir()
    return videos, block, block.read_bytes(), whole


@settings(max_examples=60, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_no_flipped_byte_changes_a_descriptor(kept: Any, place: float, mask: int) -> None:
    videos, block, good, whole = kept
    content = bytearray(good)
    content[int(place * len(good))] ^= mask
    block.write_bytes(content)
    assert same(described(videos, block.parent), whole)


def test_a_block_that_nobody_can_see(videos: list[VideoFile], store: str) -> None:
    class Elsewhere(SerialExecutor):
        """Workers that write to a disk of their own."""

        def stream(self, function: Any, tasks: Any, name: str) -> Any:
            return super().stream(function, [replace(task, folder=f"{store}-elsewhere") for task in tasks], name)

    with pytest.raises(StoreError, match=r"\.npz was written, but cannot be read from here; name a folder that all"):
        described(videos, store, Elsewhere())


# ---- bad videos


def test_a_bad_video_among_many_is_named(videos: list[VideoFile], store: str, client: Client) -> None:
    good = videos[3].path.read_bytes()
    videos[3].path.write_bytes(good[:-5])
    for executor in (SerialExecutor(), ThreadExecutor(2), DaskExecutor(client)):
        with pytest.raises(InputError, match=r"v6\.npy: .*\(its shape .*; write it again") as caught:
            described(videos, store, executor)
        assert str(videos[3].path) in str(caught.value)
    videos[3].path.write_bytes(good)
    assert len(described(videos, store).frames) == len(videos), "once it is mended"


def test_blocks_of_good_videos_are_kept_where_another_is_bad(
    videos: list[VideoFile], store: str, read: list[Path]
) -> None:
    good = videos[9].path.read_bytes()
    videos[9].path.write_bytes(b"nothing")
    with pytest.raises(InputError, match=str(videos[9].path)):
        described(videos, store)
    videos[9].path.write_bytes(good)
    read.clear()
    described(videos, store)
    assert len(read) == 2


def test_a_video_that_is_gone(videos: list[VideoFile], store: str) -> None:
    videos[1].path.unlink()
    with pytest.raises(ReadError, match="cannot be read: No such file or directory; check the path") as caught:
        described(videos, store)
    assert str(videos[1].path) in str(caught.value)
    assert not Path(store).exists()


def test_nothing_to_describe_and_ids_that_are_used_twice(videos: list[VideoFile], store: str, read: list[Path]) -> None:
    with pytest.raises(InputError, match="there are no videos to describe; give at least one"):
        described([], store)
    with pytest.raises(InputError, match=rf"the id '{videos[0].id}' is used by 2 videos; ids must differ"):
        described([*videos, videos[0]], store)
    with pytest.raises(InputError, match="layout='what': must be one of auto"):
        described(videos, store, layout="what")
    assert not Path(store).exists()


def test_paths_from_here_are_found_by_workers_elsewhere(
    tmp_path: Path, client: Client, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_videos(tmp_path / "videos", 4)
    monkeypatch.chdir(tmp_path)
    videos = find_videos("videos")
    assert not videos[0].path.is_absolute()
    found = described(videos, "relative", DaskExecutor(client))
    assert same(found, described(find_videos(tmp_path / "videos"), tmp_path / "relative"))
    assert len(files_of(tmp_path / "relative")) == 1


# ---- how they work


def test_a_task_holds_one_video_at_a_time(videos: list[VideoFile], store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[weakref.ref[Any]] = []
    most = 0

    def watched(path: Path, **options: Any) -> NDArray[Any]:
        nonlocal most
        # whatever is alive now stays so while the next one is read
        most = max(most, sum(1 for each in alive if each() is not None))
        pixels = read_video(path, **options)
        alive.append(weakref.ref(pixels))
        return pixels

    monkeypatch.setattr(video_work, "read_video", watched)
    described(videos, store)
    assert len(alive) == len(videos)
    assert most == 0
    assert not any(each() is not None for each in alive)


def test_tasks_carry_paths_and_bring_numbers(videos: list[VideoFile], store: str) -> None:
    class Seen(SerialExecutor):
        def stream(self, function: Any, tasks: Any, name: str) -> Any:
            for task in tasks:
                assert not any(isinstance(value, np.ndarray) for value in vars(task).values())
                assert len(task.videos) <= BLOCK
                assert str(task) == f"videos from {task.videos[0].id} on"
            for came in super().stream(function, tasks, name):
                assert isinstance(came[1], int)
                yield came

    described(videos, store, Seen())


def test_progress_is_told_in_videos(videos: list[VideoFile], store: str) -> None:
    class Slow(SerialExecutor):
        def stream(self, function: Any, tasks: Any, name: str) -> Any:
            assert name == "descriptors"
            yield None
            yield from super().stream(function, tasks, name)

    told = Told()
    describe_videos(videos, store, Slow(), told, who="me", dashboard="http://here")
    assert told.running == [Running("descriptors", 10, 10, "me", 1, "http://here", "videos")]
    assert told.done == [(8, 0, 8), (2, 0, 2)]
    assert (told.ticks, told.ends) == (1, 1)


def test_progress_ends_where_work_fails(videos: list[VideoFile], store: str) -> None:
    videos[0].path.write_bytes(b"")
    told = Told()
    with pytest.raises(CkscError):
        describe_videos(videos, store, SerialExecutor(), told)
    assert told.ends == 1


def test_two_runs_at_once_are_harmless(videos: list[VideoFile], store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are at the same video at the same time, all the way."""
    both = threading.Barrier(2, timeout=30)

    def together(path: Path, **options: Any) -> NDArray[Any]:
        both.wait()
        return read_video(path, **options)

    monkeypatch.setattr(video_work, "read_video", together)
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(described(videos, store))
        except BaseException as error:
            found.append(error)
            both.abort()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    assert [type(each) for each in found] == [Described, Described], found
    assert same(*found)
    assert len(files_of(store)) == 2, "nothing half-written is left"
    assert same(found[0], described(videos, store))


def test_descriptors_in_an_object_store(videos: list[VideoFile], store: str, read: list[Path]) -> None:
    whole = described(videos, store)
    url = f"memory://{Path(store).parent.name}"
    assert same(described(videos, url), whole)
    read.clear()
    assert same(described(videos, url), whole)
    assert read == []


# ---- textures


def made(folder: Path, spec: TextureSpec = SPEC, executor: Any = None, progress: Progress | None = None) -> int:
    return make_textures(folder, spec, executor or SerialExecutor(), progress or Progress())


def test_textures_are_those_of_the_set(tmp_path: Path) -> None:
    told = Told()
    assert made(tmp_path / "t", progress=told) == 21
    found = find_videos(tmp_path / "t")
    assert len(found) == 21
    for label in range(3):
        for number in range(7):
            video = read_video(texture_path(tmp_path / "t", label, number))
            np.testing.assert_array_equal(video, make_texture(SPEC, label, number))
    assert told.running == [Running("textures", 21, 21, "", 1, "", "videos")]
    assert told.done == [(8, 0, 8), (8, 0, 8), (5, 0, 5)]
    assert told.ends == 1


def test_textures_of_a_cluster_are_the_same_bytes(tmp_path: Path, client: Client) -> None:
    made(tmp_path / "serial")
    made(tmp_path / "threads", executor=ThreadExecutor(2))
    made(tmp_path / "dask", executor=DaskExecutor(client))
    assert files_of(tmp_path / "dask") == files_of(tmp_path / "serial") == files_of(tmp_path / "threads")


def test_only_what_is_missing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "t")
    before = files_of(tmp_path / "t")
    calls: list[tuple[int, int]] = []
    write = video_work.write_texture

    def counted(folder: str, spec: TextureSpec, label: int, number: int, writer: str) -> Path:
        calls.append((label, number))
        return write(folder, spec, label, number, writer)

    monkeypatch.setattr(video_work, "write_texture", counted)
    told = Told()
    assert made(tmp_path / "t", progress=told) == 0
    assert (calls, told.running) == ([], [])
    for label, number in ((0, 3), (2, 6)):
        texture_path(tmp_path / "t", label, number).unlink()
    assert made(tmp_path / "t") == 2
    assert calls == [(0, 3), (2, 6)]
    assert files_of(tmp_path / "t") == before


def test_more_videos_of_the_same_classes_may_follow(tmp_path: Path) -> None:
    made(tmp_path / "t")
    assert made(tmp_path / "t", replace(SPEC, videos_per_class=9)) == 6
    assert made(tmp_path / "t", SPEC) == 0
    made(tmp_path / "once", replace(SPEC, videos_per_class=9))
    assert files_of(tmp_path / "t") == files_of(tmp_path / "once")


@pytest.mark.parametrize("name", ["classes", "frames", "side", "jitter", "noise", "seed"])
def test_other_settings_need_another_folder(tmp_path: Path, name: str) -> None:
    made(tmp_path / "t")
    before = files_of(tmp_path / "t")
    with pytest.raises(InputError, match="holds textures made with other settings; name another folder, or remove it"):
        made(tmp_path / "t", replace(SPEC, **{name: getattr(SPEC, name) + 1}))
    assert files_of(tmp_path / "t") == before


def test_settings_that_are_lost_or_damaged(tmp_path: Path) -> None:
    made(tmp_path / "t")
    for content in (b"", b"{", None):
        if content is None:
            (tmp_path / "t" / "textures.json").unlink()
        else:
            (tmp_path / "t" / "textures.json").write_bytes(content)
        texture_path(tmp_path / "t", 0, 0).unlink(missing_ok=True)
        with pytest.raises(InputError, match="made with other settings"):
            made(tmp_path / "t")


def test_numbers_of_numpy_are_the_same_set(tmp_path: Path) -> None:
    made(tmp_path / "t", TextureSpec(np.int64(3), np.int64(1), 4, 8, jitter=1, seed=np.int32(0)))  # type: ignore[arg-type]
    assert made(tmp_path / "t", replace(SPEC, jitter=1.0, videos_per_class=1)) == 0


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "t").touch()
    with pytest.raises(InputError, match="t is a file; name a folder"):
        made(tmp_path / "t")


def test_two_makers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=30)
    save = np.save

    def together(handle: Any, video: Any) -> None:
        both.wait()
        save(handle, video)
        handle.flush()
        both.wait()

    monkeypatch.setattr(np, "save", together)
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(made(tmp_path / "t"))
        except BaseException as error:
            found.append(error)
            both.abort()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    assert found == [21, 21]
    made(tmp_path / "alone")
    assert files_of(tmp_path / "t") == files_of(tmp_path / "alone")


def test_from_textures_to_descriptors_on_a_cluster(tmp_path: Path, client: Client) -> None:
    """What the job does, twice; and the same without a cluster."""
    executor = DaskExecutor(client)
    for again in (False, True):
        assert make_textures(tmp_path / "t", SPEC, executor, Progress()) == (0 if again else 21)
        told = Told()
        found = describe_videos(find_videos(tmp_path / "t"), str(tmp_path / "d"), executor, told)
        assert len(told.running) == (0 if again else 1)
        assert len(found.frames) == 21
        assert found.frames.classes.tolist() == ["texture00", "texture01", "texture02"]
        assert len(files_of(tmp_path / "d")) == 3
    assert same(found, described(find_videos(tmp_path / "t"), tmp_path / "serial"))
