"""Videos in folders of classes: every form is read as what was written, and no file does more harm than an error."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import wave
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from cksc_dist.errors import CkscError, InputError, ReadError
from cksc_dist.io import videos
from cksc_dist.io.videos import VideoFile, find_videos, read_video
from tests.memory import little_memory

SHAPE = (5, 8, 12)
"""Time, height and width, all different."""


def made(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def write_film(path: Path, frames: Any, codec: str = "ffv1", pixels: str = "gray") -> Path:
    """Write a video file; this codec keeps every bit."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=25)
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape, pixels
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="gray")))
        container.mux(stream.encode())
    return path


def write_frames(folder: Path, frames: Any, suffix: str = ".png", first: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, frame in enumerate(frames, first):
        Image.fromarray(frame).save(folder / f"frame{number}{suffix}")
    return folder


def write(path: Path, video: Any) -> Path:
    """Write a video in the form of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.lower()
    if kind == ".npy":
        with path.open("wb") as handle:
            np.save(handle, video)
    elif kind == ".npz":
        with path.open("wb") as handle:
            np.savez_compressed(handle, video=video)
    elif kind == ".mat":
        savemat(path, {"video": np.moveaxis(video, 0, -1)}, appendmat=False, do_compression=True)
    elif kind:
        write_film(path, video)
    else:
        write_frames(path, video)
    return path


FORMS = [".npy", ".npz", ".mat", ".avi", ".mkv", ""]


def fails(path: Path, words: str, **options: Any) -> None:
    """Reading must end in an error that names the file and says so."""
    with pytest.raises(ReadError, match=words) as caught:
        read_video(path, **options)
    assert str(path) in str(caught.value)


# ---- finding


def ids_of(folder: Path) -> list[str]:
    return [video.id for video in find_videos(folder)]


def test_classes_by_name_and_videos_by_number(tmp_path: Path) -> None:
    for name in ("water/v10.npy", "water/v9.npz", "water/v1.mat", "flame/b.AVI", "flame/a.npy", "Zebra/x.y.npy"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()  # they are listed, not opened
    write_frames(tmp_path / "water" / "v2", made())
    found = find_videos(str(tmp_path))
    expected = ["Zebra/x.y", "flame/a", "flame/b", "water/v1", "water/v2", "water/v9", "water/v10"]
    assert [video.id for video in found] == expected
    assert [video.label for video in found] == [name.split("/")[0] for name in expected]
    assert found[0] == VideoFile(tmp_path / "Zebra" / "x.y.npy", "Zebra", "Zebra/x.y")
    assert found[4].path == tmp_path / "water" / "v2"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form or "frames")
def test_what_is_found_is_what_was_written(tmp_path: Path, form: str) -> None:
    for number, name in enumerate(("flame/a", "flame/b", "water/a")):
        write(tmp_path / f"{name}{form}", made(seed=number))
    found = find_videos(tmp_path)
    assert [video.id for video in found] == ["flame/a", "flame/b", "water/a"]
    for number, video in enumerate(found):
        np.testing.assert_array_equal(read_video(video.path), made(seed=number))


def test_hidden_and_other_files_and_empty_folders_are_left_out(tmp_path: Path) -> None:
    write(tmp_path / "flame" / "a.npy", made())
    for name in (
        "stray.npy",
        "flame/.a.npy.partial",
        "flame/._a.npy",
        "flame/README.txt",
        "flame/notes/words.txt",
        "flame/shadow/._1.png",
        "flame/deep/folder.png/1.png",
        "flame/.cache/1.png",
        ".git/x.npy",
        "empty/.keep",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert ids_of(tmp_path) == ["flame/a"]


def test_the_order_does_not_come_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["1", "01", "001", "1a", "a1b2", "a01b2", "b", "²", "1²", "1²3", "٣", "x9", "x10"]
    for name in names:
        write(tmp_path / "c" / f"{name}.npy", made((3, 3, 3)))
    orders = []
    listed = Path.iterdir
    for turn in (sorted, lambda paths: sorted(paths, reverse=True)):
        monkeypatch.setattr(Path, "iterdir", lambda self, turn=turn: iter(turn(listed(self))))
        orders.append(ids_of(tmp_path))
    assert orders[0] == orders[1]
    assert sorted(orders[0]) == sorted(f"c/{name}" for name in names)
    assert orders[0].index("c/x9") < orders[0].index("c/x10")


@pytest.mark.parametrize("others", [("a.npy", "a.mat"), ("a.npy", "a.NPY"), ("a.avi", "a")])
def test_two_videos_of_one_name(tmp_path: Path, others: tuple[str, str]) -> None:
    for name in others:
        if "." in name:
            (tmp_path / "flame").mkdir(exist_ok=True)
            (tmp_path / "flame" / name).touch()
        else:
            write_frames(tmp_path / "flame" / name, made())
    with pytest.raises(ReadError, match=r"is a second video 'flame/a', as .* is; rename one of them"):
        find_videos(tmp_path)


def test_the_same_name_in_two_classes_is_no_harm(tmp_path: Path) -> None:
    for label in ("flame", "water"):
        write(tmp_path / label / "a.npy", made())
    assert ids_of(tmp_path) == ["flame/a", "water/a"]


@pytest.mark.parametrize("name", ["a b", "-rf", "%s%d", "http:x", "concat:a|b", "é", "x\ny", "a;b'c\"", "#1", "~"])
@pytest.mark.parametrize("form", [".npy", ".avi", ""], ids=lambda form: form or "frames")
def test_odd_names(tmp_path: Path, name: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "plain" / f"video{form}", made())
    (tmp_path / "plain" / f"video{form}").rename(tmp_path / "plain" / f"{name}{form}")
    (tmp_path / "plain").rename(tmp_path / name)
    monkeypatch.chdir(tmp_path / name)
    (video,) = find_videos(tmp_path)
    assert video.id == f"{name}/{name}"
    np.testing.assert_array_equal(read_video(video.path), made())
    np.testing.assert_array_equal(read_video(f"{name}{form}"), made())


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "flame").mkdir()
    try:
        open(os.fsencode(tmp_path / "flame") + b"/\xff.npy", "wb").close()
    except OSError:
        pytest.skip("the file system allows no such name")
    with pytest.raises(ReadError, match="a name that is no text in UTF-8; rename it") as caught:
        find_videos(tmp_path)
    str(caught.value).encode()  # it can be shown


def test_links_are_followed(tmp_path: Path) -> None:
    write(tmp_path / "there" / "a.npy", made())
    write_frames(tmp_path / "there" / "b", made())
    home = tmp_path / "here" / "flame"
    home.mkdir(parents=True)
    (home / "x.npy").symlink_to(tmp_path / "there" / "a.npy")
    (home / "y").symlink_to(tmp_path / "there" / "b")
    (tmp_path / "here" / "water").symlink_to(tmp_path / "there")
    (home / "up").symlink_to(tmp_path / "here")
    (home / "loop").symlink_to(home / "loop")
    found = find_videos(tmp_path / "here")
    assert [video.id for video in found] == ["flame/x", "flame/y", "water/a", "water/b"]
    for video in found:
        np.testing.assert_array_equal(read_video(video.path), made())


def test_a_link_to_nothing_is_named_when_it_is_read(tmp_path: Path) -> None:
    for name in ("a.npy", "b.mat", "c.avi"):
        (tmp_path / "flame").mkdir(exist_ok=True)
        (tmp_path / "flame" / name).symlink_to(tmp_path / "gone")
    found = find_videos(tmp_path)
    assert len(found) == 3
    for video in found:
        fails(video.path, "cannot be opened: No such file or directory; check the path")


def test_no_folder_and_no_videos(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "gone", tmp_path / "file"):
        with pytest.raises(ReadError, match="is no folder; videos come as FOLDER/<class>/<video>"):
            find_videos(path)
    write(tmp_path / "a.npy", made())  # of no class
    with pytest.raises(ReadError, match="holds no videos; videos come as FOLDER/<class>/<video>"):
        find_videos(tmp_path)


def test_a_folder_that_may_not_be_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system says it to others than root."""
    write(tmp_path / "flame" / "a.npy", made())
    listed = Path.iterdir

    def refuse(self: Path) -> Iterator[Path]:
        if self.name == "flame":
            raise PermissionError(13, "Permission denied", str(self))
        return listed(self)

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(ReadError, match=r"flame: cannot be opened: Permission denied; check the path and its"):
        find_videos(tmp_path)


# ---- arrays


@pytest.mark.parametrize("form", [".npy", ".npz", ".mat"])
@pytest.mark.parametrize("layout", ["thw", "hwt", "thwc", "hwct"])
def test_layouts(tmp_path: Path, form: str, layout: str) -> None:
    video = made()
    array = video[..., None] if "c" in layout else video
    path = tmp_path / f"a{form}"
    turned = array.transpose(["thwc".index(axis) for axis in layout])
    if form == ".mat":
        savemat(path, {"x": turned})
    else:
        {".npy": np.save, ".npz": np.savez}[form](path, turned)
    np.testing.assert_array_equal(read_video(path, layout=layout), video)  # type: ignore[arg-type]
    natural = layout in (("hwt", "hwct") if form == ".mat" else ("thw", "thwc"))
    if natural:
        found = read_video(path)
        np.testing.assert_array_equal(found, video)
        assert found.flags.c_contiguous
        assert found.dtype == np.uint8
        assert found.flags.writeable


@pytest.mark.parametrize("form", [".npy", ".npz", ".mat"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float32", "float64", ">f8", ">i2"])
def test_other_numbers_become_float64(tmp_path: Path, form: str, dtype: str) -> None:
    video = (made().astype(np.int16) - 100).astype(dtype)
    found = read_video(write(tmp_path / f"a{form}", video))
    # MATLAB keeps truth as bytes
    assert found.dtype == (np.uint8 if form == ".mat" and dtype == "bool" else np.float64)
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, video.astype(np.float64))


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_order_in_memory_is_no_matter(tmp_path: Path, order: Any) -> None:
    np.save(tmp_path / "a.npy", np.asarray(made(), order=order))
    found = read_video(tmp_path / "a.npy")
    np.testing.assert_array_equal(found, made())
    assert found.flags.c_contiguous


def test_what_matlab_keeps_in_small_types(tmp_path: Path) -> None:
    """MATLAB writes whole numbers in double arrays as bytes."""
    savemat(tmp_path / "a.mat", {"x": np.moveaxis(made(), 0, -1).astype(np.float64), "truth": True})
    found = read_video(tmp_path / "a.mat")
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, made())


@pytest.mark.parametrize("form", [".npy", ".mat"])
def test_colours_become_grey_levels(tmp_path: Path, form: str) -> None:
    colours = made((4, 5, 6, 4))
    path = tmp_path / f"a{form}"
    if form == ".npy":
        np.save(path, colours)
    else:
        savemat(path, {"x": colours.transpose(1, 2, 3, 0)})
    found = read_video(path)
    assert found.dtype == np.uint8
    exact = colours[..., :3].astype(np.float64) @ [0.299, 0.587, 0.114]
    assert np.abs(found - exact).max() <= 0.5 + 1e-9
    assert found[0, 0, 0] == round(exact[0, 0, 0])


def test_grey_colours_keep_their_level(tmp_path: Path) -> None:
    """So that a grey video gives the same patterns, however it is kept."""
    levels = np.arange(256, dtype=np.uint8).reshape(4, 8, 8)
    for colours in (3, 4):
        np.save(tmp_path / "a.npy", np.repeat(levels[..., None], colours, axis=3))
        np.testing.assert_array_equal(read_video(tmp_path / "a.npy"), levels)
        np.save(tmp_path / "a.npy", np.repeat(levels[..., None], colours, axis=3).astype(np.float32))
        found = read_video(tmp_path / "a.npy")
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, levels)


def test_colours_of_floats(tmp_path: Path) -> None:
    colours = np.random.default_rng(0).random((3, 4, 5, 3))
    np.save(tmp_path / "a.npy", colours)
    np.testing.assert_allclose(read_video(tmp_path / "a.npy"), colours @ [0.299, 0.587, 0.114], rtol=1e-14)


def test_other_things_beside_the_video_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", clip=made(), fps=25, name="flame", about=np.array([{"a": 1}], dtype=object))
    np.testing.assert_array_equal(read_video(tmp_path / "a.npz"), made())
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("README.txt", "a flame")
    np.testing.assert_array_equal(read_video(tmp_path / "a.npz"), made())
    cell = np.empty((2, 2, 2), object)
    cell.fill(1.0)
    savemat(tmp_path / "a.mat", {"clip": np.moveaxis(made(), 0, -1), "s": {"x": 1}, "cell": cell, "t": "flame"})
    np.testing.assert_array_equal(read_video(tmp_path / "a.mat"), made())


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({}, r"holds the arrays none; it must hold one array of numbers with 3 or 4 axes"),
        ({"x": np.zeros((3, 3))}, r"holds the arrays x \(3, 3\) float64; it must hold one"),
        ({"x": np.zeros((3, 3, 3, 3, 3))}, r"x \(3, 3, 3, 3, 3\)"),
        ({"x": np.zeros((3, 3, 3)), "y": np.zeros((3, 3, 3))}, r"x \(3, 3, 3\) float64, y \(3, 3, 3\) float64"),
        ({f"x{i}": np.zeros(2) for i in range(20)}, r"x7 \(2,\) float64 and 12 more; it must"),
        ({"x": np.zeros((3, 3, 3), complex)}, r"x \(3, 3, 3\) complex128"),
        ({"x": np.full((3, 3, 3), "a")}, r"x \(3, 3, 3\) <U1"),
        ({"x": np.zeros((2, 9, 9))}, r"has shape \(2, 9, 9\) \(time, height, width\); each must be at least 3"),
        ({"x": np.zeros((0, 9, 9))}, r"has shape \(0, 9, 9\)"),
        ({"x": np.zeros((3, 9, 2))}, r"has shape \(3, 9, 2\)"),
        ({"x": np.zeros((3, 4, 5, 2))}, r"has 2 colours in its shape \(3, 4, 5, 2\); 1, 3 or 4 are known"),
        ({"x": np.full((3, 3, 3), np.nan)}, "has a NaN or infinite value; fill it"),
        ({"x": np.full((3, 3, 3), -np.inf)}, "has a NaN or infinite value"),
        ({"x": np.full((3, 3, 3, 3), np.inf)}, "has a NaN or infinite value"),
        ({"x": np.full((3, 3, 3, 3), 1.7e308)}, "has a NaN or infinite value"),
        ({"x": np.full((3, 3, 3), np.finfo(np.longdouble).max)}, "has a NaN or infinite value"),
    ],
)
def test_arrays_that_are_no_video(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    fails(tmp_path / "a.npz", words)
    if len(arrays) == 1:
        np.save(tmp_path / "x.npy", arrays["x"])
        fails(tmp_path / "x.npy", words)


def test_complex_numbers_of_matlab(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"x": np.full((3, 3, 3), 1j)})
    fails(tmp_path / "a.mat", "values of type complex128; grey levels must be real numbers")


def test_layouts_that_do_not_fit(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", made())
    fails(tmp_path / "a.npy", r"array of shape \(5, 8, 12\); layout='thwc' is for 4 axes", layout="thwc")
    with pytest.raises(InputError, match="layout='wht': must be one of auto, thw, hwt, thwc, hwct"):
        read_video(tmp_path / "a.npy", layout="wht")  # type: ignore[arg-type]


@pytest.mark.parametrize("head", [b"MATLAB 7.3 MAT-file, Platform: GLNXA64", b"\x89HDF\r\n\x1a\n"])
def test_matlab_7_3_says_how_to_save_it_again(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "a.mat").write_bytes(head)
    fails(tmp_path / "a.mat", r"MATLAB 7.3 \(HDF5\) file, .*save\(name, '-v7'\)")


def test_matlab_4_has_no_videos(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"x": np.ones((2, 2))}, format="4")
    fails(tmp_path / "a.mat", "a MATLAB 4 file, which is not supported; save it again")
    # a matrix of -22 bytes: whoever skips it, comes back to where it begins
    (tmp_path / "a.mat").write_bytes(struct.pack("<5i", 50, -22, 1, 0, 2) + b"x\0" + bytes(40))
    fails(tmp_path / "a.mat", "a MATLAB 4 file")


# ---- files that lie, and files that bite


def npy_header(shape: tuple[int, ...], descr: str = "|u1") -> bytes:
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": descr, "fortran_order": False, "shape": shape})
    return content.getvalue()


HUGE = [(50, 2**12, 2**12), (3, 2**40, 2**40), (2**62, 2**62, 3), (10**300, 3, 3)]


@pytest.mark.parametrize("shape", HUGE, ids=["800 MB", "much", "more", "most"])
def test_headers_of_numpy_are_not_believed(tmp_path: Path, shape: tuple[int, ...]) -> None:
    content = npy_header(shape) + bytes(1000)
    (tmp_path / "a.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("x.npy", content)
    for path in (tmp_path / "a.npy", tmp_path / "b.npz"):
        with little_memory():
            fails(path, r"bytes, but 1,000 are there\).*; write it again|bytes in memory, more than")


def test_a_header_of_four_gigabytes(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + bytes(100))
    fails(tmp_path / "a.npy", "cannot be read as arrays of numbers")


@pytest.mark.parametrize("shape", [(-5, -8, 12), (5, 8, -12), (-1, 8, 12)], ids=str)
def test_negative_sides(tmp_path: Path, shape: tuple[int, ...]) -> None:
    (tmp_path / "a.npy").write_bytes(npy_header(shape) + bytes(5 * 8 * 12))
    fails(tmp_path / "a.npy", "it again|each must be at least 3")


@pytest.mark.parametrize("cut", [-1, 1])
def test_too_few_and_too_many_bytes(tmp_path: Path, cut: int) -> None:
    content = npy_header(SHAPE) + made().tobytes()
    (tmp_path / "a.npy").write_bytes(content[:cut] if cut < 0 else content + b"x")
    there = 480 + cut
    fails(
        tmp_path / "a.npy",
        rf"its shape \(5, 8, 12\) and type uint8 take 480 bytes, but {there} are there\).*; write it again",
    )


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """A bomb of gigabytes would take long to make."""
    monkeypatch.setattr(videos, "MOST_BYTES", 2**20)
    return 2**20


def bomb(path: Path) -> Path:
    """32 megabytes in a few kilobytes."""
    video = np.zeros((2, 2**12, 2**12), np.uint8)
    if path.suffix == ".npz":
        np.savez_compressed(path, x=video)
    elif path.suffix == ".mat":
        savemat(path, {"x": video}, do_compression=True)
    elif path.suffix == ".png":
        Image.fromarray(video[0]).save(path)
    return path


@pytest.mark.parametrize("form", [".npz", ".mat"])
def test_bombs_are_refused_before_memory_is_taken(tmp_path: Path, form: str, small_limit: int) -> None:
    path = bomb(tmp_path / f"a{form}")
    assert path.stat().st_size < 2**16
    with little_memory():
        fails(
            path,
            "bytes in memory, more than 1,048,576; cut it into shorter videos|unpacks to more than 1,048,576 bytes",
        )


def test_films_and_frames_of_one_colour_are_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(videos, "SMALL", 2**12)
    (tmp_path / "frames").mkdir()
    Image.fromarray(np.zeros((2**10, 2**10), np.uint8)).save(tmp_path / "frames" / "0.png")
    with little_memory():
        fails(tmp_path / "frames", "has 1,048,576 pixels or more, but .* more than 200 pixels in each")
    (tmp_path / "frames" / "0.png").unlink()
    for k in range(300):
        Image.fromarray(np.zeros((64, 64), np.uint8)).save(tmp_path / "frames" / f"{k}.png")
    monkeypatch.setattr(videos, "PIXELS_A_BYTE", 10)
    fails(tmp_path / "frames", "has 1,228,800 pixels or more, but .* more than 10 pixels in each")
    film = write_film(tmp_path / "a.mkv", np.zeros((99, 64, 64), np.uint8))
    fails(film, "pixels or more, but .* more than 10 pixels in each; cut it into shorter or smaller videos")


def test_a_bomb_beside_the_video_is_not_opened(tmp_path: Path, small_limit: int) -> None:
    np.savez_compressed(tmp_path / "a.npz", video=made(), more=np.zeros(2**25, np.uint8))
    with little_memory():
        np.testing.assert_array_equal(read_video(tmp_path / "a.npz"), made())


def test_many_small_variables_of_matlab_make_a_bomb_too(tmp_path: Path, small_limit: int) -> None:
    savemat(tmp_path / "a.mat", {f"x{i}": np.zeros(2**17, np.uint8) for i in range(9)}, do_compression=True)
    fails(tmp_path / "a.mat", "unpacks to more than 1,048,576 bytes")


def element(order: str, kind: int, content: bytes) -> bytes:
    return struct.pack(f"{order}II", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(order: str, shape: tuple[int, int, int], values: bytes, cut: int = 0) -> bytes:
    """A variable of a MATLAB file, of bytes; the last of them may be cut off."""
    parts = [
        element(order, 6, struct.pack(f"{order}II", 9, 0)),
        element(order, 5, struct.pack(f"{order}3I", *shape)),
        element(order, 1, b"x"),
        element(order, 2, values),
    ]
    content = b"".join(parts)
    return element(order, 14, content[: len(content) - cut])


def packed(order: str, variable: bytes) -> bytes:
    content = zlib.compress(variable)
    return struct.pack(f"{order}II", 15, len(content)) + content


def matlab_file(path: Path, order: str, *variables: bytes) -> Path:
    head = b"MATLAB 5.0".ljust(124) + struct.pack(f"{order}H2s", 0x0100, b"IM" if order == "<" else b"MI")
    path.write_bytes(head + b"".join(variables))
    return path


@pytest.mark.parametrize("order", ["<", ">"])
def test_orders_of_bytes_in_matlab_files(tmp_path: Path, order: str) -> None:
    variable = matrix(order, (8, 12, 5), made().transpose(0, 2, 1).tobytes())
    for each in (variable, packed(order, variable)):
        np.testing.assert_array_equal(read_video(matlab_file(tmp_path / "a.mat", order, each)), made())


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_shape_of_matlab_is_not_believed(tmp_path: Path, order: str) -> None:
    """Few numbers, and a shape of many; in either order of bytes, packed or not."""
    variable = matrix(order, (2**10, 2**10, 2**11), bytes(8))
    for each in (variable, packed(order, variable)):
        path = matlab_file(tmp_path / "a.mat", order, each)
        with little_memory():
            fails(path, "damaged: a shape of 2,147,483,648 entries with 8 bytes for them")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("cut", [0, 3])
def test_a_bomb_behind_another_variable(tmp_path: Path, order: str, cut: int, small_limit: int) -> None:
    """The first one may end without the bytes that fill it up."""
    first = matrix(order, (3, 3, 5), bytes(45), cut)
    bomb = packed(order, matrix(order, (2**8, 2**8, 2**8), bytes(2**24)))
    path = matlab_file(tmp_path / "a.mat", order, first, bomb)
    with little_memory():
        fails(path, "unpacks to more than 1,048,576 bytes")


def test_matlab_files_are_walked_before_scipy_reads_them(tmp_path: Path) -> None:
    """One damaged byte could end the process there."""
    path = write(tmp_path / "a.mat", made())
    path.write_bytes(path.read_bytes() + bytes(4))
    fails(path, "damaged: a tag that is cut short")


def test_floats_count_for_what_they_take(tmp_path: Path, small_limit: int) -> None:
    np.save(tmp_path / "a.npy", np.zeros((2**7, 2**6, 2**6), np.uint8))
    assert read_video(tmp_path / "a.npy").nbytes == 2**19
    np.save(tmp_path / "a.npy", np.zeros((2**7, 2**6, 2**6), np.float16))
    fails(tmp_path / "a.npy", "takes 4,194,304 bytes in memory, more than 1,048,576; .* or store bytes")


def test_memory_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise MemoryError

    np.save(tmp_path / "a.npy", made())
    monkeypatch.setattr(np.lib.format, "read_array", refuse)
    fails(tmp_path / "a.npy", "needs more memory than there is; cut it into shorter videos")


class Malice:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    evil = np.empty((3, 3, 3), object)
    evil[:] = Malice(mark)
    np.save(tmp_path / "a.npy", evil, allow_pickle=True)
    np.savez(tmp_path / "b.npz", x=evil, allow_pickle=True)
    with (tmp_path / "c.npy").open("wb") as handle:
        pickle.dump(Malice(mark), handle)
    (tmp_path / "d.npz").write_bytes((tmp_path / "c.npy").read_bytes())
    # numbers by its header, a pickle by its content
    (tmp_path / "e.npy").write_bytes(npy_header((3, 3, 3), "|O") + (tmp_path / "c.npy").read_bytes())
    for name in ("a.npy", "b.npz", "c.npy", "d.npz", "e.npy"):
        fails(tmp_path / name, "cannot be read as arrays of numbers|holds the arrays")
    assert not mark.exists()
    np.load(tmp_path / "a.npy", allow_pickle=True)
    assert mark.exists(), "it would have bitten"


@pytest.mark.parametrize("form", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_archives_that_numpy_does_not_write(tmp_path: Path, form: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w", form) as archive:
        archive.writestr("x.npy", npy_header(SHAPE) + made().tobytes())
    fails(tmp_path / "a.npz", r"x\.npy is packed in a way that NumPy does not know\).*; write it again")


def test_an_archive_with_one_name_twice(tmp_path: Path) -> None:
    content = npy_header(SHAPE) + made().tobytes()
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", content)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.npy", content)
    fails(tmp_path / "a.npz", r"holds the arrays x \(5, 8, 12\) uint8, x \(5, 8, 12\) uint8; it must hold one")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.mat", "a.avi", "a.mkv", "frames/1.png", "frames/1.tif"])
@pytest.mark.parametrize("content", [b"", b"\0", b"x" * 500, b"PK\x03\x04", b"\x93NUMPY"], ids=repr)
def test_files_that_are_something_else(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(ReadError) as caught:
        read_video(path.parent if "frames" in name else path)
    assert str(path) in str(caught.value)
    assert any(words in str(caught.value) for words in ("write it again", "save it again"))


def test_forms_under_another_name(tmp_path: Path) -> None:
    for form in (".npy", ".npz", ".mat", ".avi"):
        content = write(tmp_path / f"a{form}", made()).read_bytes()
        for other in {".npy", ".npz", ".mat", ".avi"} - {form}:
            (tmp_path / f"b{other}").write_bytes(content)
            fails(tmp_path / f"b{other}", "it again")


def test_a_form_that_is_not_known(tmp_path: Path) -> None:
    (tmp_path / "a.gif").touch()
    for name in ("a.gif", "gone", "a"):
        fails(tmp_path / name, "is in no form that can be read; videos come as FOLDER")


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.mat", "a.avi"])
def test_files_that_are_gone_or_locked(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    fails(path, "cannot be opened: No such file or directory; check the path and its permissions")
    write(path, made())

    def refuse(self: Path, *_: Any) -> Any:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    fails(path, "cannot be opened: Permission denied; check the path and its permissions")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.mat", "a.avi", "frames/1.png"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, name: str) -> None:
    path = tmp_path / "flame" / name
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    (video,) = find_videos(tmp_path)
    with pytest.raises(ReadError, match="is no plain file; remove it") as caught:
        read_video(video.path)
    assert str(path) in str(caught.value)


# ---- video files


@pytest.mark.parametrize(
    ("form", "codec", "pixels", "exact"),
    [
        (".avi", "ffv1", "gray", True),
        (".mkv", "ffv1", "gray", True),
        (".AVI", "rawvideo", "gray", True),
        (".avi", "png", "gray", True),
        (".mp4", "mpeg4", "yuv420p", False),
        (".mov", "mpeg4", "yuv420p", False),
        (".mpg", "mpeg2video", "yuv420p", False),
    ],
)
def test_video_files(tmp_path: Path, form: str, codec: str, pixels: str, exact: bool) -> None:
    slope = np.linspace(40, 200, 32)[None, None, :] + np.zeros((7, 16, 1)) + 5 * np.arange(7)[:, None, None]
    video = slope.astype(np.uint8)
    found = read_video(write_film(tmp_path / f"a{form}", video, codec, pixels))
    assert found.dtype == np.uint8
    assert found.shape == video.shape
    assert np.abs(found.astype(int) - video).max() <= (0 if exact else 24)


def test_a_video_file_is_read_to_its_end(tmp_path: Path) -> None:
    video = made((60, 4, 6))
    np.testing.assert_array_equal(read_video(write_film(tmp_path / "a.mkv", video)), video)


def film_of_pictures(path: Path, frames: list[NDArray[np.uint8]], declared: tuple[int, int]) -> Path:
    """A video file whose pictures have sizes of their own."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("png", rate=25)
        stream.height, stream.width, stream.pix_fmt = *declared, "gray"
        for number, frame in enumerate(frames):
            content = io.BytesIO()
            Image.fromarray(frame).save(content, "PNG")
            packet = av.Packet(content.getvalue())
            packet.stream, packet.pts, packet.dts, packet.is_keyframe = stream, number, number, True
            container.mux(packet)
    return path


def test_frames_of_several_sizes(tmp_path: Path) -> None:
    path = film_of_pictures(tmp_path / "a.avi", [made((8, 12))] * 4 + [made((9, 12))], (8, 12))
    fails(
        path, r"frame 4 has shape \(9, 12\) and type uint8, but frame 0 \(8, 12\) and uint8; all frames must be alike"
    )


def test_a_film_of_too_many_or_too_large_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = write_film(tmp_path / "a.mkv", made((50, 8, 12)))
    large = film_of_pictures(tmp_path / "b.avi", [np.zeros((2**11, 2**11), np.uint8)] * 3, (8, 12))
    monkeypatch.setattr(videos, "MOST_BYTES", 40 * 8 * 12)
    fails(many, "bytes in memory, more than 3,840; cut it into shorter videos")
    with little_memory():
        fails(large, "cannot be read as a video|holds no frames")


def test_sound_without_pictures(tmp_path: Path) -> None:
    import av

    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), format="s16", layout="mono")
        sound.sample_rate = 8000
        container.mux(stream.encode(sound))
        container.mux(stream.encode())
    fails(tmp_path / "a.mkv", "holds no pictures; leave it out")
    with wave.open(str(tmp_path / "a.avi"), "wb") as sounds:
        sounds.setparams((1, 2, 8000, 0, "NONE", ""))
        sounds.writeframes(bytes(1000))
    fails(tmp_path / "a.avi", "cannot be read as a video")


def test_a_list_of_addresses_is_no_video(tmp_path: Path) -> None:
    """FFmpeg would open what such a file names."""
    good = write_film(tmp_path / "good.avi", made())
    for name, content in {
        "a.mp4": f"#EXTM3U\n#EXTINF:1,\n{good}\n#EXT-X-ENDLIST\n",
        "b.avi": f"ffconcat version 1.0\nfile {good.name}\n",
    }.items():
        (tmp_path / name).write_text(content)
        fails(tmp_path / name, "cannot be read as a video")


def test_without_pyav(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.avi", made())
    monkeypatch.setitem(sys.modules, "av", None)
    fails(tmp_path / "a.avi", "is a video file, which needs PyAV; install it with: pip install av")


# ---- folders of frames


@pytest.mark.parametrize("suffix", [".png", ".PNG", ".bmp", ".tif", ".pgm"])
def test_frames_that_keep_every_bit(tmp_path: Path, suffix: str) -> None:
    found = read_video(write_frames(tmp_path / "a", made(), suffix))
    np.testing.assert_array_equal(found, made())
    assert found.dtype == np.uint8


def test_frames_of_jpeg(tmp_path: Path) -> None:
    video = np.broadcast_to(np.arange(0, 240, 10, dtype=np.uint8), (4, 16, 24))
    found = read_video(write_frames(tmp_path / "a", video, ".jpg"))
    assert np.abs(found.astype(int) - video).max() <= 4


def test_frames_stand_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    video = made((12, 4, 5))
    write_frames(tmp_path / "a", video)
    (tmp_path / "a" / "frame7.png").rename(tmp_path / "a" / "frame007.png")
    for name in (".frame0.png", "._frame3.png", "notes.txt", "Thumbs.db"):
        (tmp_path / "a" / name).write_text("no image")
    (tmp_path / "a" / "more.png").mkdir()
    np.testing.assert_array_equal(read_video(tmp_path / "a"), video)


def test_colours_and_palettes_become_grey(tmp_path: Path) -> None:
    colours = made((3, 6, 7, 3))
    grey = np.stack([np.asarray(Image.fromarray(frame).convert("L")) for frame in colours])
    write_frames(tmp_path / "rgb", colours)
    np.testing.assert_array_equal(read_video(tmp_path / "rgb"), grey)
    (tmp_path / "p").mkdir()
    for number, frame in enumerate(colours):
        image = Image.fromarray(frame).quantize(256)
        image.save(tmp_path / "p" / f"{number}.png", transparency=bytes(range(256)))
    assert np.abs(read_video(tmp_path / "p").astype(int) - grey).max() <= 6


def test_deep_images_keep_their_levels(tmp_path: Path) -> None:
    video = np.random.default_rng(0).integers(0, 2**16, (3, 5, 6)).astype(np.uint16)
    for name, frames, suffix in (
        ("16", video, ".png"),
        ("32", video.astype(np.int32) * 3, ".tif"),
        ("f", video.astype(np.float32) / 7, ".tif"),
    ):
        found = read_video(write_frames(tmp_path / name, frames, suffix))
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, frames)


def test_frames_that_are_not_alike(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "a", made())
    Image.fromarray(made((8, 13))).save(folder / "frame3.png")
    fails(folder, r"frame3.png has shape \(8, 13\) and type uint8, but frame0.png \(8, 12\) and uint8; all frames must")
    Image.fromarray(np.zeros((8, 12), np.uint16)).save(folder / "frame3.png")
    fails(folder, r"frame3.png has shape \(8, 12\) and type uint16, but frame0.png \(8, 12\) and uint8")


def test_a_folder_without_frames_or_with_few(tmp_path: Path) -> None:
    (tmp_path / "a.avi").mkdir()
    fails(tmp_path / "a.avi", r"holds no frames \(.png, .jpg")
    fails(write_frames(tmp_path / "b", made()[:2]), r"has shape \(2, 8, 12\) .*; each must be at least 3")


def test_a_damaged_frame_is_named(tmp_path: Path) -> None:
    folder = write_frames(tmp_path / "a", made())
    content = (folder / "frame3.png").read_bytes()
    (folder / "frame3.png").write_bytes(content[:80])
    fails(folder, r"frame3.png: cannot be read as an image \(.*\); write it again")


def test_several_images_in_a_file(tmp_path: Path) -> None:
    images = [Image.fromarray(frame) for frame in made()]
    (tmp_path / "a").mkdir()
    images[0].save(tmp_path / "a" / "1.tif", save_all=True, append_images=images[1:])
    fails(tmp_path / "a", "1.tif: holds 5 images; write each of them to a file of its own")


def test_an_image_that_is_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow would start Ghostscript for it."""
    from PIL import EpsImagePlugin

    started: list[Any] = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *given: started.append(given))
    folder = write_frames(tmp_path / "a", made())
    Image.fromarray(made()[0]).save(tmp_path / "x.eps")
    (tmp_path / "x.eps").rename(folder / "frame1.png")
    fails(folder, "frame1.png: cannot be read as an image")
    assert started == []


def png_that_says(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("side", [2000, 9000, 20_000, 2**31 - 1])
def test_a_head_of_an_image_is_not_believed(tmp_path: Path, side: int) -> None:
    (tmp_path / "a").mkdir()
    for number in range(20):
        (tmp_path / "a" / f"{number}.png").write_bytes(png_that_says(side, side))
    words = r"0.png: (has 2000 x 2000 pixels by its head, but \d+ bytes; write it again|cannot be read as an image|has)"
    with little_memory():
        fails(tmp_path / "a", words)


def test_an_image_that_is_all_of_one_level_is_no_lie(tmp_path: Path) -> None:
    for suffix in (".png", ".tif", ".jpg"):
        frames = np.zeros((3, 600, 800), np.uint8)
        assert not read_video(write_frames(tmp_path / suffix, frames, suffix)).any()
    for number in range(3):
        (tmp_path / "1").mkdir(exist_ok=True)
        Image.new("1", (2000, 2000)).save(tmp_path / "1" / f"{number}.png", optimize=True)
    assert read_video(tmp_path / "1").shape == (3, 2000, 2000)


def test_an_image_that_is_a_bomb(tmp_path: Path, small_limit: int) -> None:
    (tmp_path / "a").mkdir()
    bomb(tmp_path / "a" / "1.png")
    with little_memory():
        fails(tmp_path / "a", "1.png: takes 16,777,216 bytes in memory, more than 1,048,576")


def test_without_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_frames(tmp_path / "a", made())
    for name in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, name, None)
    fails(tmp_path / "a", "is a folder of frames, which needs Pillow; install it with: pip install pillow")


# ---- any bytes

EDITS = st.lists(
    st.tuples(st.floats(0, 1), st.integers(0, 9), st.one_of(st.binary(max_size=8), st.just(b"\xff" * 8))),
    min_size=1,
    max_size=4,
)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("originals")
    video = made((3, 6, 7))
    found = {form: write(folder / f"a{form}", video).read_bytes() for form in (".npy", ".npz", ".mat", ".avi", ".mkv")}
    savemat(folder / "b.mat", {"x": video, "y": {"z": 1}})
    found["plain.mat"] = (folder / "b.mat").read_bytes()
    found["mpeg4.mp4"] = write_film(folder / "a.mp4", made((3, 16, 16)), "mpeg4", "yuv420p").read_bytes()
    for form in (".png", ".tif", ".bmp", ".jpg", ".pgm"):
        Image.fromarray(video[0]).save(folder / f"a{form}")
        found[form] = (folder / f"a{form}").read_bytes()
    return found


KINDS = [".npy", ".npz", ".mat", "plain.mat", ".avi", ".mkv", "mpeg4.mp4", ".png", ".tif", ".bmp", ".jpg", ".pgm"]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, bytes], NDArray[Any] | None]:
    """Read some bytes under a name of a kind; an image stands three times in a folder."""
    folder = tmp_path_factory.mktemp("fuzzed")
    (folder / "frames").mkdir()

    def attempt(kind: str, content: bytes) -> NDArray[Any] | None:
        suffix = f".{kind.rsplit('.')[-1]}"
        if suffix in videos.IMAGES:
            for old in (folder / "frames").iterdir():
                old.unlink()
            for number in range(3):
                (folder / "frames" / f"{number}{suffix}").write_bytes(content)
            path = folder / "frames"
        else:
            path = folder / f"a{suffix}"
            path.write_bytes(content)
        try:
            return read_video(path)
        except CkscError:
            return None

    return attempt


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_that_are_edited_are_good(kind: str, originals: dict[str, bytes], fuzzed: Any) -> None:
    assert fuzzed(kind, originals[kind]) is not None


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(edits=EDITS)
@example(edits=[(0.5, 10**6, b"")])
@example(edits=[(0.9, 10**6, b"")])
def test_edited_files(
    kind: str, originals: dict[str, bytes], fuzzed: Any, edits: list[tuple[float, int, bytes]]
) -> None:
    content = originals[kind]
    for place, removed, added in edits:
        start = int(place * len(content))
        content = content[:start] + added + content[start + removed :]
    video = fuzzed(kind, content)
    if video is not None:
        assert video.ndim == 3
        assert min(video.shape) >= 3
        assert video.dtype in (np.uint8, np.float64)
        assert np.isfinite(video).all()
