"""Made dynamic textures: videos of linear dynamical systems, in the folders of classes that `find_videos` reads.

    x_{t+1} = A x_t + v_t,    frame_t = mean + C x_t + w_t                      G. Doretto and others, IJCV 2003

A turns pairs of states by an angle (speed) and shrinks them a little; columns of C are random images of one grain, that
is noise filtered to a band of spatial frequencies around one direction. A class has a grain, a direction and a speed of
its own, which are near those of other classes; each of its videos departs from them by chance, and has other images,
states and noise. A video follows from the seed, its class and its number alone: any of them can be made anywhere.

How hard they are, with 36 classes of 20 videos, one half to train on: a nearest neighbour is right for 82 % by frame
histograms under DTW, and for 92 % by LBP-TOP under chi-square (``jobs/run_dyntex.py``).
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cksc_dist.spec import check_count, check_number

__all__ = ["TextureSpec", "make_texture", "texture_id", "texture_path", "write_texture"]

Float = NDArray[np.float64]

PAIRS = 5
"""Pairs of states."""
WARM_UP = 30
"""Steps before the first frame: the start is forgotten."""
GRAINS, SPEEDS = (0.05, 0.22), (0.12, 0.9)
"""Cycles a pixel, and radians a frame, between which classes lie."""


@dataclass(frozen=True)
class TextureSpec:
    """A set of made textures.

    Parameters
    ----------
    classes, videos_per_class
        How many.
    frames, side
        Of a video: time, and height and width.
    jitter
        How far videos depart from their class: at 0 they differ by chance alone.
    noise
        Of a pixel, in standard deviations of the texture.
    seed
        Of everything.
    """

    classes: int = 36
    videos_per_class: int = 20
    frames: int = 50
    side: int = 50
    jitter: float = 1.0
    noise: float = 0.05
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("classes", self.classes, low=2)
        check_count("videos_per_class", self.videos_per_class)
        check_count("frames", self.frames, low=3)
        check_count("side", self.side, low=3)
        check_number("jitter", self.jitter, 0.0, 10.0)
        check_number("noise", self.noise, 0.0, 10.0)
        check_count("seed", self.seed, low=0)
        for name in ("classes", "videos_per_class", "frames", "side", "seed"):
            object.__setattr__(self, name, int(getattr(self, name)))  # NumPy's numbers are the same settings
        for name in ("jitter", "noise"):
            object.__setattr__(self, name, float(getattr(self, name)))


def make_texture(spec: TextureSpec, label: int, number: int) -> NDArray[np.uint8]:
    """Return video ``number`` of class ``label``, (time, height, width), grey levels.

    Examples
    --------
    >>> video = make_texture(TextureSpec(frames=8, side=16), 3, 0)
    >>> video.shape, video.dtype.name, int(video.std()) > 10
    ((8, 16, 16), 'uint8', True)
    """
    check_count("label", label, low=0)
    check_count("number", number, low=0)
    kind, rng = np.random.default_rng([spec.seed, 0, label]), np.random.default_rng([spec.seed, 1, label, number])
    # of the class, then of the video
    grain = np.exp(kind.uniform(*np.log(GRAINS)) + 0.07 * spec.jitter * rng.standard_normal())
    direction = kind.uniform(0.0, np.pi) + 0.15 * spec.jitter * rng.standard_normal()
    speed = np.exp(kind.uniform(*np.log(SPEEDS)) + 0.09 * spec.jitter * rng.standard_normal())
    focus = kind.uniform(0.5, 3.0)
    images = _images(spec.side, grain, direction, focus, 2 * PAIRS, rng)
    states = _states(spec.frames, speed, rng)
    video = states @ images.reshape(2 * PAIRS, -1)
    video += 0.5 * video.std() * _images(spec.side, grain, direction, focus, 1, rng).reshape(1, -1)  # the mean
    video /= video.std()
    video += spec.noise * rng.standard_normal(video.shape)
    grey = 128.0 + 40.0 * video
    return np.clip(grey, 0.0, 255.0).astype(np.uint8).reshape(spec.frames, spec.side, spec.side)


def _images(side: int, grain: float, direction: float, focus: float, count: int, rng: np.random.Generator) -> Float:
    """Return random images of one grain and direction, (count, side, side), each of deviation 1."""
    fy, fx = np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side)[None, :]
    radius, angle = np.hypot(fx, fy), np.arctan2(fy, fx)
    band = -0.5 * (np.log(np.maximum(radius, 1e-9) / grain) / 0.35) ** 2
    weight = band + focus * (np.cos(2.0 * (angle - direction)) - 1.0)  # as logarithms: a grain may lie far from all
    weight[0, 0] = -np.inf  # no grain at all
    spectrum = np.fft.rfft2(rng.standard_normal((count, side, side))) * np.exp(weight - weight.max())
    images = np.fft.irfft2(spectrum, s=(side, side))
    return np.asarray(images / images.std(axis=(1, 2), keepdims=True))


def _states(frames: int, speed: float, rng: np.random.Generator) -> Float:
    """Return states of the system, (frames, 2 pairs)."""
    angles = speed * np.exp(0.3 * rng.standard_normal(PAIRS))
    turn = 0.96 * np.exp(1j * angles)  # a pair of states as one complex number
    x = np.zeros(PAIRS, complex)
    found = np.empty((frames, 2 * PAIRS))
    for t in range(-WARM_UP, frames):
        x = turn * x + 0.28 * (rng.standard_normal(PAIRS) + 1j * rng.standard_normal(PAIRS))
        if t >= 0:
            found[t, :PAIRS], found[t, PAIRS:] = x.real, x.imag
    return found


def texture_id(label: int, number: int) -> str:
    """Return the name of a video, ``texture<class>/<number>``."""
    return f"texture{label:02d}/{number:03d}"


def texture_path(folder: str | Path, label: int, number: int) -> Path:
    """Return where a video goes: ``FOLDER/texture<class>/<number>.npy``."""
    return Path(folder) / f"{texture_id(label, number)}.npy"


def write_texture(folder: str | Path, spec: TextureSpec, label: int, number: int, writer: str = "process") -> Path:
    """Write one video as a file of one array, whole or not at all, and return its path.

    ``writer`` is a word for this process, in the name of the file until it is whole.
    """
    video = make_texture(spec, label, number)
    path = texture_path(folder, label, number)
    path.parent.mkdir(parents=True, exist_ok=True)
    # two may write the same video at once
    partial = path.with_name(f".{path.name}.{writer}.{uuid.uuid4().hex}.partial")
    try:
        with partial.open("wb") as handle:
            np.save(handle, video)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path
