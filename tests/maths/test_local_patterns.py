"""Local binary patterns: against a twin in fractions, against scikit-image, and by what must hold of any video."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths import local_patterns
from cksc_dist.maths.local_patterns import KINDS, describe_video, frame_histograms, lbp_top
from tests import naive_patterns

FLAT, MIXED = 57, 58
"""Kinds: all neighbours at least as bright, and patterns that are not uniform."""


def random_video(shape: tuple[int, ...], dtype: Any, seed: int, levels: int = 256) -> NDArray[Any]:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, levels, shape).astype(dtype)


def still(image: Any) -> NDArray[Any]:
    """A video that shows one image."""
    return np.stack([np.asarray(image)] * 3)


def by_kind(histogram: NDArray[Any]) -> dict[int, float]:
    return {int(kind): float(histogram[kind]) for kind in np.flatnonzero(histogram)}


def with_neighbours(*bright: int, middle: float = 5.0) -> NDArray[Any]:
    """A 3 x 3 image whose given neighbours, from the right against the clock, are brighter than the one in the middle.

    Corners count through interpolation, so they stand out more than the sides between them.
    """
    places = [(1, 2), (0, 2), (0, 1), (0, 0), (1, 0), (2, 0), (2, 1), (2, 2)]
    image = np.full((3, 3), middle)
    for p, place in enumerate(places):
        step = 10.0 if p % 2 else 1.0
        image[place] += step if p in bright else -step
    return image


@pytest.mark.parametrize("levels", [2, 4, 256], ids="{} levels".format)
@pytest.mark.parametrize("shape", [(3, 3, 3), (3, 4, 5), (5, 3, 7), (4, 6, 3)], ids=str)
def test_agrees_with_the_twin_to_the_bit(shape: tuple[int, ...], levels: int) -> None:
    video = random_video(shape, np.uint8, 0, levels)
    np.testing.assert_array_equal(frame_histograms(video), naive_patterns.frame_histograms(video))
    np.testing.assert_array_equal(lbp_top(video), naive_patterns.lbp_top(video))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", ">f4"])
def test_types_of_numbers_agree_with_the_twin(dtype: str) -> None:
    video = random_video((4, 5, 4), dtype, 1, 2 if dtype == "bool" else 100)
    np.testing.assert_array_equal(frame_histograms(video), naive_patterns.frame_histograms(video))
    np.testing.assert_array_equal(lbp_top(video), naive_patterns.lbp_top(video))


@settings(max_examples=60, deadline=None)
@given(image=arrays.arrays(np.uint8, arrays.array_shapes(min_dims=2, max_dims=2, min_side=3, max_side=5)))
def test_images_that_hypothesis_thinks_of_agree_with_the_twin(image: NDArray[Any]) -> None:
    np.testing.assert_array_equal(frame_histograms(still(image))[0], naive_patterns.shares([image]))


@settings(max_examples=60, deadline=None)
@given(corner=st.integers(-2, 2), sides=st.tuples(st.integers(-3, 3), st.integers(-3, 3)), level=st.integers(3, 250))
def test_a_corner_between_uneven_sides_agrees_with_the_twin(corner: int, sides: tuple[int, int], level: int) -> None:
    image = np.full((3, 3), level, np.int64)
    image[0, 2] += corner
    image[0, 1] += sides[0]
    image[1, 2] += sides[1]
    np.testing.assert_array_equal(frame_histograms(still(image))[0], naive_patterns.shares([image]))


def closest_calls(count: int) -> NDArray[np.uint8]:
    """Images of bytes whose upper right corner is nearly as bright as the middle, once it is interpolated."""
    middle, beside = 100, np.arange(256)
    corner, sides = np.meshgrid(beside, np.arange(511), indexing="ij")
    # weights of 100000: how far the corner is from being even
    apart = np.abs(70711 * (corner - middle) + 29289 * (sides - 2 * middle)).ravel()
    chosen = np.argsort(apart, kind="stable")[:count]
    images = np.full((count, 3, 3), middle, np.uint8)
    images[:, 0, 2] = corner.ravel()[chosen]
    images[:, 0, 1] = (sides.ravel()[chosen] + 1) // 2
    images[:, 1, 2] = sides.ravel()[chosen] // 2
    return images


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_no_call_is_too_close(dtype: Any) -> None:
    images = closest_calls(500)
    found = frame_histograms(images.astype(dtype))
    np.testing.assert_array_equal(found, [naive_patterns.shares([image]) for image in images])


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
@pytest.mark.parametrize("seed", range(3))
def test_agrees_with_scikit_image_where_no_rounding_decides(dtype: Any, seed: int) -> None:
    from skimage.feature import local_binary_pattern

    video = random_video((4, 30, 40), dtype, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of floats
        expected = [local_binary_pattern(frame, 8, 1.0, method="nri_uniform")[1:-1, 1:-1] for frame in video]
    counts = [np.bincount(kinds.astype(int).ravel(), minlength=KINDS) for kinds in expected]
    # a corner that is even in exact numbers is uneven there: here and there one of 1064 pixels
    np.testing.assert_allclose(frame_histograms(video), np.array(counts) / (28 * 38), atol=1.5 / (28 * 38))
    assert KINDS == 59


def test_all_patterns_have_the_kinds_of_scikit_image() -> None:
    from skimage.feature import local_binary_pattern

    for pattern in range(256):
        image = with_neighbours(*(p for p in range(8) if pattern >> p & 1))
        kind = local_binary_pattern(image.astype(np.int64), 8, 1.0, method="nri_uniform")[1, 1]
        assert by_kind(frame_histograms(still(image))[0]) == {int(kind): 1.0}, f"{pattern:08b}"


@pytest.mark.parametrize(
    ("bright", "kind"),
    [
        ((), 0),
        ((0,), 1),
        ((7,), 2),
        ((1,), 8),
        ((0, 1), 9),
        ((0, 7), 10),
        ((0, 1, 2, 3), 25),
        ((2, 3, 4, 5, 6, 7, 0), 55),
        (tuple(range(8)), FLAT),
        ((0, 4), MIXED),
        ((0, 2, 4, 6), MIXED),
    ],
    ids=str,
)
def test_known_patterns(bright: tuple[int, ...], kind: int) -> None:
    assert by_kind(frame_histograms(still(with_neighbours(*bright)))[0]) == {kind: 1.0}


@pytest.mark.parametrize("level", [0, 1, 77, 255])
@pytest.mark.parametrize("shape", [(3, 3, 3), (4, 9, 7)], ids=str)
def test_a_flat_video_has_one_kind(level: int, shape: tuple[int, ...]) -> None:
    video = np.full(shape, level, np.uint8)
    assert [by_kind(frame) for frame in frame_histograms(video)] == [{FLAT: 1.0}] * len(video)
    assert by_kind(lbp_top(video)) == {FLAT: 1.0, KINDS + FLAT: 1.0, 2 * KINDS + FLAT: 1.0}


def test_a_flat_video_of_any_float_has_one_kind() -> None:
    """In scikit-image rounding makes other patterns of one level in ten."""
    levels = np.random.default_rng(0).random(200) * 255
    for level in (*levels, 1e-300, 1e300, -1e-310, np.finfo(float).max):
        assert by_kind(frame_histograms(np.full((3, 6, 20), level))[1]) == {FLAT: 1.0}


def test_a_spot_and_its_neighbours() -> None:
    video = np.zeros((3, 5, 5), np.uint8)
    video[1, 2, 2] = 9
    found = frame_histograms(video)
    assert by_kind(found[0]) == {FLAT: 1.0}
    # the spot is brighter than all around it; seen from there nothing is darker
    assert by_kind(found[1]) == {0: 1 / 9, FLAT: 8 / 9}
    assert by_kind(lbp_top(video)[KINDS : 2 * KINDS]) == {0: 1 / 15, FLAT: 14 / 15}


TIES = {
    52: [[1, 2, 1], [0, 1, 1], [3, 2, 3]],
    54: [[1, 0, 2], [2, 1, 1], [1, 1, 1]],
    50: [[3, 2, 1], [2, 1, 3], [1, 0, 2]],
}
"""A corner as bright as the middle between a side that is brighter and one that is as much darker: just even."""


@pytest.mark.parametrize("kind", TIES)
def test_where_a_tie_stands_does_not_matter(kind: int) -> None:
    """In scikit-image it is a different pattern in the first row or column."""
    patch = np.array(TIES[kind], np.uint8)
    assert by_kind(frame_histograms(still(patch))[0]) == {kind: 1.0}
    for at in (0, 16, 25, 47):
        image = np.zeros((3, 60), np.uint8)
        image[:, at : at + 3] = patch
        for each in (image, image.T):
            np.testing.assert_array_equal(frame_histograms(still(each))[0], naive_patterns.shares([each]))


def test_where_a_patch_stands_does_not_matter() -> None:
    patch = random_video((6, 6), np.uint8, 0, 4)
    found = []
    for at in (2, 17, 33, 50):
        image = np.full((60, 60), 2, np.uint8)
        image[at : at + 6, at + 2 : at + 8] = patch
        found.append(frame_histograms(still(image))[0])
    np.testing.assert_array_equal(found, [found[0]] * 4)


def test_a_slope_has_one_pattern() -> None:
    row = np.arange(60)
    slope = (100 + row[None, :] - row[:, None]).astype(np.uint8)
    for image in (slope, slope.astype(np.float64) / 4, slope[::-1]):
        assert len(by_kind(frame_histograms(still(image))[0])) == 1


def test_borders_are_left_out() -> None:
    video = random_video((3, 6, 6), np.uint8, 2)
    inner = frame_histograms(video)
    assert np.array_equal(np.round(inner * 16), inner * 16), "16 pixels have all neighbours"
    # a video of one inner pixel sees all of its border, which counts as a neighbour only
    np.testing.assert_array_equal(frame_histograms(video[:, :3, :3]).max(axis=1), 1.0)


@pytest.mark.parametrize("shape", [(3, 4, 5), (6, 5, 4)], ids=str)
def test_shares_sum_to_one(shape: tuple[int, ...]) -> None:
    video = random_video(shape, np.uint8, 3)
    frames, planes = frame_histograms(video), lbp_top(video)
    assert frames.shape == (shape[0], KINDS)
    assert planes.shape == (3 * KINDS,)
    assert frames.dtype == planes.dtype == np.float64
    assert frames.min() >= 0.0
    np.testing.assert_allclose(frames.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_allclose(planes.reshape(3, KINDS).sum(axis=1), 1.0, rtol=1e-15)


def test_both_at_once_are_the_two() -> None:
    video = random_video((5, 6, 7), np.uint8, 4)
    frames, planes = describe_video(video)
    np.testing.assert_array_equal(frames, frame_histograms(video))
    np.testing.assert_array_equal(planes, lbp_top(video))


@pytest.mark.parametrize("pixels", [1, 60, 100, 10**6])
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_how_many_are_looked_at_together_does_not_matter(
    pixels: int, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    video = random_video((7, 5, 6), dtype, 8, 4)
    expected = naive_patterns.frame_histograms(video), naive_patterns.lbp_top(video)
    monkeypatch.setattr(local_patterns, "PIXELS", pixels)
    for found, exact in zip(describe_video(video), expected, strict=True):
        np.testing.assert_array_equal(found, exact)


def test_the_first_plane_is_the_mean_of_the_frames() -> None:
    video = random_video((5, 6, 7), np.uint8, 4)
    np.testing.assert_allclose(lbp_top(video)[:KINDS], frame_histograms(video).mean(axis=0), rtol=1e-13)


def mirrored() -> NDArray[np.intp]:
    """Kind of an image's transpose, for the kind of each pattern: neighbour p becomes neighbour 6 - p."""
    kinds = np.full(KINDS, -1)
    for pattern in range(256):
        bits = [bool(pattern >> p & 1) for p in range(8)]
        kinds[naive_patterns.kind(bits)] = naive_patterns.kind([bits[(6 - p) % 8] for p in range(8)])
    return kinds


@pytest.mark.parametrize("levels", [3, 256])
def test_planes_are_swapped_with_the_axes(levels: int) -> None:
    video = random_video((5, 6, 7), np.uint8, 5, levels)
    turned = mirrored()
    xy, xt, yt = lbp_top(video).reshape(3, KINDS)

    def transposed(plane: NDArray[Any]) -> NDArray[Any]:
        return plane[np.argsort(turned)]

    for axes, expected in {
        (1, 0, 2): (xt, xy, transposed(yt)),
        (2, 1, 0): (transposed(yt), transposed(xt), transposed(xy)),
        (0, 2, 1): (transposed(xy), yt, xt),
        (1, 2, 0): (transposed(xt), transposed(yt), xy),
    }.items():
        np.testing.assert_array_equal(lbp_top(video.transpose(axes)).reshape(3, KINDS), expected, str(axes))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), power=st.integers(-8, 8), shift=st.integers(-1000, 1000))
def test_brighter_and_of_more_contrast_is_the_same(seed: int, power: int, shift: int) -> None:
    video = random_video((3, 5, 6), np.uint8, seed, 5)
    other = video.astype(np.float64) * 2.0**power + shift
    np.testing.assert_array_equal(lbp_top(other), lbp_top(video))
    np.testing.assert_array_equal(frame_histograms(other), frame_histograms(video))


def test_the_largest_floats_do_not_overflow() -> None:
    video = random_video((3, 6, 6), np.uint8, 6, 3)
    largest = np.finfo(np.float64).max
    np.testing.assert_array_equal(lbp_top((video.astype(np.float64) - 1.0) * largest), lbp_top(video))


def test_a_view_and_its_copy_are_the_same_and_stay_as_they_are() -> None:
    whole = random_video((8, 9, 10), np.uint8, 7)
    view = whole[::2, 1:8, ::-1]
    copy = view.copy()
    view.flags.writeable = False
    np.testing.assert_array_equal(lbp_top(view), lbp_top(copy))
    np.testing.assert_array_equal(frame_histograms(view), frame_histograms(copy))
    np.testing.assert_array_equal(view, copy)


@pytest.mark.parametrize("function", [frame_histograms, lbp_top])
@pytest.mark.parametrize(
    ("video", "words"),
    [
        (np.zeros((4, 5)), r"shape \(4, 5\); it must be \(time, height, width\), each at least 3"),
        (np.zeros((2, 5, 5)), r"shape \(2, 5, 5\)"),
        (np.zeros((5, 5, 2)), r"shape \(5, 5, 2\)"),
        (np.zeros((5, 0, 5)), r"shape \(5, 0, 5\)"),
        (np.zeros((3, 3, 3), complex), "type complex128; its grey levels must be real numbers"),
        (np.full((3, 3, 3), "a"), "type <U1"),
        (np.full((3, 3, 3), None), "type object"),
        (np.full((3, 3, 3), np.nan), "a NaN or infinite grey level"),
        (np.full((3, 3, 3), -np.inf), "a NaN or infinite grey level"),
    ],
)
def test_what_is_no_video_is_told(function: Any, video: NDArray[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        function(video)
