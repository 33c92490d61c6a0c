"""Descriptors of videos by local binary patterns (LBP).

The pattern of a pixel tells which of its eight neighbours on a circle of radius 1 are at least as bright. Patterns with
at most two changes along the circle ("uniform") count one by one, all others together: 59 kinds.

    frame histograms   the histogram of kinds in each frame, (time, 59): a series
    LBP-TOP            three histograms, of the planes XY, XT and YT, over all slices of each: a vector of 3 x 59

Both sum to 1 (a plane, a frame). Pixels at the border of a slice lack neighbours and are left out.

T. Ojala, M. Pietikainen, T. Maenpaa, Multiresolution gray-scale and rotation invariant texture classification with
local binary patterns, IEEE TPAMI 2002; G. Zhao, M. Pietikainen, Dynamic texture recognition using local binary patterns
with an application to facial expressions, IEEE TPAMI 2007.

Patterns and their numbers are those of scikit-image (``nri_uniform``), but for rounding. A neighbour between pixels is
interpolated: here by weighing differences from the pixel in the middle, which are exactly 0 where all are alike.
scikit-image weighs the pixels themselves: in even places rounding decides, and so the place and the machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError

__all__ = ["KINDS", "describe_video", "frame_histograms", "lbp_top"]

Float = NDArray[np.float64]

NEIGHBOURS = 8
CIRCLE = ((0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1), (1, 0), (1, 1))
"""Rows and columns towards each neighbour: from the right, against the clock."""
CORNER = 0.70711
"""How far a neighbour on a diagonal goes along rows and columns: sin 45 degrees, to the five digits of scikit-image."""
KINDS = NEIGHBOURS * (NEIGHBOURS - 1) + 3
"""Uniform patterns of eight neighbours, and one for all others."""
PIXELS = 2**15
"""About so many pixels are looked at together: NumPy is asked seldom, and what it needs stays in the cache."""


def _kind_of_pattern() -> NDArray[np.intp]:
    """Return the kind of each pattern, neighbour p being bit p."""
    kinds = np.full(2**NEIGHBOURS, KINDS - 1)  # not uniform
    kinds[0], kinds[-1] = 0, KINDS - 2
    for ones in range(1, NEIGHBOURS):
        for turn in range(NEIGHBOURS):
            pattern = sum(1 << (at - turn) % NEIGHBOURS for at in range(ones))
            kinds[pattern] = 1 + (ones - 1) * NEIGHBOURS + turn
    return kinds


KIND_OF_PATTERN = _kind_of_pattern()


def _counts(slices: NDArray[Any]) -> NDArray[np.intp]:
    """Return how many inner pixels of each slice are of each kind, (slices, 59)."""
    found = np.empty((len(slices), KINDS), np.intp)
    step = max(1, PIXELS // slices[0].size)
    for first in range(0, len(slices), step):
        kinds = KIND_OF_PATTERN[_patterns(slices[first : first + step])]
        kinds += KINDS * np.arange(len(kinds))[:, None, None]
        counts = np.bincount(kinds.ravel(), minlength=KINDS * len(kinds))
        found[first : first + step] = counts.reshape(-1, KINDS)
    return found


def _patterns(slices: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the pattern of each inner pixel of some slices."""
    if slices.dtype == np.uint8:
        pixels: NDArray[Any] = np.ascontiguousarray(slices, dtype=np.float32)  # tells sums of bytes apart as well
    else:
        pixels = np.ascontiguousarray(slices, dtype=np.float64) * 0.125  # no difference overflows
    rows, columns = pixels.shape[1:]
    middle = pixels[:, 1:-1, 1:-1]
    away = {
        (down, right): pixels[:, 1 + down : rows - 1 + down, 1 + right : columns - 1 + right] - middle
        for down, right in CIRCLE
    }
    patterns = np.zeros(middle.shape, np.uint8)
    for bit, (down, right) in enumerate(CIRCLE):
        found = away[down, right]
        if down and right:  # of the square that it lies in, the fourth pixel is the one in the middle
            found = CORNER * found + (1.0 - CORNER) * (away[down, 0] + away[0, right])
        patterns |= (found >= 0.0).view(np.uint8) << np.uint8(bit)
    return patterns


def _check(video: NDArray[Any]) -> None:
    if video.ndim != 3 or min(video.shape) < 3:
        raise InputError(f"a video of shape {video.shape}; it must be (time, height, width), each at least 3")
    if video.dtype.kind not in "uifb":
        raise InputError(f"a video of type {video.dtype}; its grey levels must be real numbers")
    if not np.isfinite(video).all():
        raise InputError("a video with a NaN or infinite grey level; fill it, or leave the video out")


def frame_histograms(video: NDArray[Any]) -> Float:
    """Return the histogram of each frame, (time, 59).

    Examples
    --------
    >>> frame_histograms(np.zeros((4, 5, 6), np.uint8)).sum(axis=1).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    return describe_video(video)[0]


def lbp_top(video: NDArray[Any]) -> Float:
    """Return the histograms of the three planes, one after the other, (177,).

    Examples
    --------
    >>> lbp_top(np.zeros((4, 5, 6), np.uint8)).shape
    (177,)
    """
    return describe_video(video)[1]


def describe_video(video: NDArray[Any]) -> tuple[Float, Float]:
    """Return both at once: the patterns of frames serve twice."""
    _check(video)
    planes = [_counts(plane) for plane in (video, video.transpose(1, 0, 2), video.transpose(2, 0, 1))]  # XY, XT, YT
    frames = planes[0] / planes[0].sum(axis=1, keepdims=True)
    sums = [plane.sum(axis=0) for plane in planes]
    return frames, np.concatenate([counts / counts.sum() for counts in sums])
