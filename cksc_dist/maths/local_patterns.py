"""Descriptors of videos by local binary patterns (LBP).

The pattern of a pixel tells which of its eight neighbours on a circle of radius 1 are at least as bright. Patterns with
at most two changes along the circle ("uniform") count one by one, all others together: 59 kinds.

    frame histograms   the histogram of kinds in each frame, (time, 59): a series
    LBP-TOP            three histograms, of the planes XY, XT and YT, over all slices of each: a vector of 3 x 59

Both sum to 1 (a plane, a frame). Pixels at the border of a slice lack neighbours and are left out.

T. Ojala, M. Pietikainen, T. Maenpaa, Multiresolution gray-scale and rotation invariant texture classification with
local binary patterns, IEEE TPAMI 2002; G. Zhao, M. Pietikainen, Dynamic texture recognition using local binary patterns
with an application to facial expressions, IEEE TPAMI 2007. The patterns are those of scikit-image.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError

__all__ = ["KINDS", "frame_histograms", "lbp_top"]

Float = NDArray[np.float64]

KINDS = 59
"""Uniform patterns of eight neighbours, and one for all others."""
NEIGHBOURS, RADIUS = 8, 1.0


def _kinds(image: NDArray[Any]) -> NDArray[np.int64]:
    """Return the kind of each inner pixel."""
    from skimage.feature import local_binary_pattern  # an extra, and slow to import

    with warnings.catch_warnings():
        # of images that are no whole numbers: two neighbours that differ by rounding may count as either
        warnings.filterwarnings("ignore", "Applying `local_binary_pattern` to floating-point")
        found = local_binary_pattern(image, NEIGHBOURS, RADIUS, method="nri_uniform")
    return np.asarray(found[1:-1, 1:-1], dtype=np.int64)


def _histogram(slices: Any) -> Float:
    """Return the share of each kind over some slices."""
    counts = np.zeros(KINDS, np.int64)
    for image in slices:
        counts += np.bincount(_kinds(np.ascontiguousarray(image)).ravel(), minlength=KINDS)
    return np.asarray(counts / counts.sum())


def _check(video: NDArray[Any]) -> None:
    if video.ndim != 3 or min(video.shape) < 3:
        raise InputError(f"a video of shape {video.shape}; it must be (time, height, width), each at least 3")


def frame_histograms(video: NDArray[Any]) -> Float:
    """Return the histogram of each frame, (time, 59).

    Examples
    --------
    >>> frame_histograms(np.zeros((4, 5, 6), np.uint8)).sum(axis=1).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    _check(video)
    return np.stack([_histogram([frame]) for frame in video])


def lbp_top(video: NDArray[Any]) -> Float:
    """Return the histograms of the three planes, one after the other, (177,).

    Examples
    --------
    >>> lbp_top(np.zeros((4, 5, 6), np.uint8)).shape
    (177,)
    """
    _check(video)
    planes = (video, video.transpose(1, 0, 2), video.transpose(2, 0, 1))  # XY, XT, YT
    return np.concatenate([_histogram(plane) for plane in planes])
