"""Made textures: the same wherever they are made, different from each other, and written whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.io import textures
from cksc_dist.io.textures import TextureSpec, make_texture, texture_path, write_texture
from cksc_dist.io.videos import find_videos, read_video
from cksc_dist.maths.local_patterns import lbp_top

SMALL = TextureSpec(classes=3, videos_per_class=2, frames=6, side=12, seed=5)


def all_of(spec: TextureSpec) -> dict[tuple[int, int], NDArray[np.uint8]]:
    return {
        (label, number): make_texture(spec, label, number)
        for label in range(spec.classes)
        for number in range(spec.videos_per_class)
    }


def test_a_video_follows_from_seed_class_and_number_alone() -> None:
    whole = all_of(SMALL)
    for (label, number), video in reversed(whole.items()):
        np.random.default_rng().random(3)  # others may draw numbers meanwhile
        np.testing.assert_array_equal(make_texture(SMALL, label, number), video)
    larger = replace(SMALL, classes=30, videos_per_class=50)
    np.testing.assert_array_equal(make_texture(larger, 2, 1), whole[2, 1])


def test_another_process_makes_the_same_bytes(tmp_path: Path) -> None:
    path = write_texture(tmp_path / "here", SMALL, 1, 1)
    code = (
        "import sys; from cksc_dist.io.textures import *\n"
        "write_texture(sys.argv[1], TextureSpec(classes=3, videos_per_class=2, frames=6, side=12, seed=5), 1, 1)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "there")], check=True, env=environment)
    assert texture_path(tmp_path / "there", 1, 1).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "spec",
    [SMALL, TextureSpec(frames=3, side=3), TextureSpec(frames=4, side=5, jitter=0, noise=0)],
    ids=["small", "smallest", "odd"],
)
def test_bytes_with_contrast(spec: TextureSpec) -> None:
    video = make_texture(spec, 0, 0)
    assert video.shape == (spec.frames, spec.side, spec.side)
    assert video.dtype == np.uint8
    assert video.flags.c_contiguous
    assert 20 < video.std() < 80
    assert 64 < video.mean() < 192


def test_any_two_videos_differ() -> None:
    found = [*all_of(SMALL).values(), *all_of(replace(SMALL, seed=6)).values()]
    assert len({video.tobytes() for video in found}) == len(found)
    # not by a little: they are no copies with other noise
    still = [*all_of(replace(SMALL, noise=0.0, jitter=0.0)).values()]
    apart = [np.corrcoef(a.ravel(), b.ravel())[0, 1] for i, a in enumerate(still) for b in still[:i]]
    assert max(np.abs(apart)) < 0.8


@pytest.mark.parametrize("name", ["frames", "side", "jitter", "noise", "seed"])
def test_every_setting_has_an_effect(name: str) -> None:
    other = replace(SMALL, **{name: getattr(SMALL, name) + 1})
    assert make_texture(other, 0, 0).tobytes() != make_texture(SMALL, 0, 0).tobytes()


def test_frames_are_of_one_motion() -> None:
    """A frame is near the next one, nearer than two at any other times."""
    spec = replace(SMALL, frames=30, side=24, noise=0.0)
    for video in (make_texture(spec, label, 0).astype(np.float64) for label in range(3)):
        apart = np.mean((video[:, None] - video[None]) ** 2, axis=(2, 3))
        assert 0 < np.diagonal(apart, 1).mean() < 0.8 * apart.sum() / (30 * 29)


def test_noise_is_noise() -> None:
    loud, quiet = (make_texture(replace(SMALL, noise=noise), 0, 0).astype(np.float64) for noise in (3.0, 0.0))
    steps = [np.abs(np.diff(video, axis=2)).mean() for video in (loud, quiet)]
    assert steps[0] > 2 * steps[1]


def test_levels_beyond_bytes_are_the_darkest_and_the_brightest() -> None:
    loud = make_texture(replace(SMALL, noise=10.0), 0, 0)
    assert 0.6 < np.isin(loud, (0, 255)).mean() < 0.9


@pytest.mark.parametrize("grain", [1e-8, 1e-3, 0.1, 30.0, 1e6])
def test_images_of_a_grain_that_is_far_from_all(grain: float) -> None:
    images = textures._images(9, grain, 0.3, 2.0, 4, np.random.default_rng(0))
    np.testing.assert_allclose(images.std(axis=(1, 2)), 1.0)
    np.testing.assert_allclose(images.mean(axis=(1, 2)), 0.0, atol=1e-12)


def test_videos_of_a_class_are_nearer_than_those_of_others() -> None:
    """What they are made for: a classifier has something to learn."""
    spec = TextureSpec(classes=6, videos_per_class=4, frames=20, side=24, jitter=0.0, noise=0.0)
    features = np.array([lbp_top(video) for video in all_of(spec).values()])
    labels = np.repeat(np.arange(6), 4)
    apart = np.abs(features[:, None] - features[None]).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    assert (labels[apart.argmin(axis=1)] == labels).mean() > 0.4, "by chance it would be 3 of 23"


def test_jitter_takes_videos_away_from_their_class() -> None:
    """At 0 the videos of a class differ by chance alone, further on by their settings as well."""

    def spread(jitter: float) -> float:
        spec = TextureSpec(classes=2, videos_per_class=8, frames=12, side=24, jitter=jitter, noise=0.0)
        return float(np.mean([np.std([lbp_top(make_texture(spec, c, n)) for n in range(8)], axis=0) for c in range(2)]))

    assert spread(10.0) > 1.2 * spread(0.0)


@pytest.mark.parametrize("jitter", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("side", [3, 4, 7])
def test_no_setting_ends_in_nothing(jitter: float, side: int) -> None:
    spec = TextureSpec(side=side, frames=3, jitter=jitter, noise=0.0)
    assert min(make_texture(replace(spec, seed=seed), seed % 7, seed).std() for seed in range(40)) > 5


def test_written_videos_are_found_and_read_back(tmp_path: Path) -> None:
    whole = all_of(SMALL)
    for label, number in whole:
        path = write_texture(tmp_path, SMALL, label, number)
        assert path == texture_path(tmp_path, label, number)
    found = find_videos(tmp_path)
    assert [video.id for video in found] == [f"texture{label:02d}/{number:03d}" for label, number in whole]
    assert [video.label for video in found] == [f"texture{label:02d}" for label, _ in whole]
    for video, expected in zip(found, whole.values(), strict=True):
        read = read_video(video.path)
        assert read.dtype == np.uint8
        np.testing.assert_array_equal(read, expected)


def test_names_of_many_stay_in_order_and_differ(tmp_path: Path) -> None:
    places = [texture_path(tmp_path, label, number) for label in (0, 9, 99, 100) for number in (0, 9, 999, 1000)]
    assert len(set(places)) == len(places)
    for place in places:
        place.parent.mkdir(exist_ok=True)
        place.touch()
    names = [video.id.split("/")[1] for video in find_videos(tmp_path)][:4]
    assert names == ["000", "009", "999", "1000"]


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_video_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(handle: Any, video: Any) -> None:
        handle.write(b"\x93NUMPY half of it")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "save", stumble)
        with pytest.raises(OSError, match="No space left"):
            write_texture(tmp_path, SMALL, 0, 0)
    assert files_of(tmp_path) == []
    before = write_texture(tmp_path, SMALL, 0, 0).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(np, "save", stumble)
        with pytest.raises(OSError, match="No space left"):
            write_texture(tmp_path, SMALL, 0, 0)
    assert files_of(tmp_path) == ["texture00/000.npy"]
    assert texture_path(tmp_path, 0, 0).read_bytes() == before


def test_a_killed_writer_leaves_nothing_that_is_taken_for_a_video(tmp_path: Path) -> None:
    write_texture(tmp_path, SMALL, 0, 0)
    code = (
        "import os, sys; from pathlib import Path; from cksc_dist.io.textures import *\n"
        "Path.replace = lambda *_: os._exit(9)\n"
        "write_texture(sys.argv[1], TextureSpec(frames=6, side=12), 0, 1)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == 9
    assert len(files_of(tmp_path)) == 2
    assert [video.id for video in find_videos(tmp_path)] == ["texture00/000"]


def test_two_writers_of_one_video_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have begun before either has ended; a backup copy of a task does just that."""
    both = threading.Barrier(2, timeout=20)
    save = np.save

    def together(handle: Any, video: Any) -> None:
        both.wait()
        save(handle, video)
        handle.flush()
        both.wait()

    monkeypatch.setattr(np, "save", together)
    errors: list[BaseException] = []

    def write() -> None:
        try:
            write_texture(tmp_path, SMALL, 0, 0)
        except BaseException as error:
            errors.append(error)
            both.abort()

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert files_of(tmp_path) == ["texture00/000.npy"]
    np.testing.assert_array_equal(read_video(texture_path(tmp_path, 0, 0)), make_texture(SMALL, 0, 0))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"classes": 1}, "classes=1: must be a whole number of at least 2"),
        ({"videos_per_class": 0}, "videos_per_class=0: must be a whole number of at least 1"),
        ({"frames": 2}, "frames=2: must be a whole number of at least 3"),
        ({"side": 2.5}, "side=2.5: must be a whole number"),
        ({"side": True}, "side=True: must be a whole number"),
        ({"jitter": -0.1}, r"jitter=-0.1: must be a number in \[0, 10\]"),
        ({"noise": float("nan")}, "noise=nan: must be a number"),
        ({"seed": -1}, "seed=-1: must be a whole number of at least 0"),
    ],
)
def test_settings_that_cannot_be(setting: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        TextureSpec(**setting)


@pytest.mark.parametrize(("label", "number", "name"), [(-1, 0, "label"), (0, -1, "number"), (0.5, 0, "label")])
def test_a_video_that_cannot_be(label: Any, number: Any, name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"{name}=-?[\d.]+: must be a whole number of at least 0"):
        write_texture(tmp_path, SMALL, label, number)
    assert files_of(tmp_path) == []


def test_numbers_of_numpy_are_the_same_settings() -> None:
    other = TextureSpec(
        np.int64(3), np.int32(2), np.uint8(6), np.int64(12), jitter=np.float32(1), noise=0, seed=np.int64(5)
    )
    same = TextureSpec(3, 2, 6, 12, jitter=1, noise=0.0, seed=5)
    assert repr(other) == repr(same)
    assert all(type(value) in (int, float) for value in vars(other).values())
    np.testing.assert_array_equal(make_texture(other, 1, 0), make_texture(same, 1, 0))
