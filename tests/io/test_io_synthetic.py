from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dtaidistance import dtw_ndim

from cksc_dist.errors import InputError
from cksc_dist.io import make_gestures
from cksc_dist.series import SeriesSet


def nearest_neighbour_hits(data: SeriesSet) -> int:
    distances = np.asarray(dtw_ndim.distance_matrix_fast(data.series, parallel=False))
    np.fill_diagonal(distances, np.inf)
    return int((data.labels[distances.argmin(axis=1)] == data.labels).sum())


def test_shape_labels_and_ids() -> None:
    data = make_gestures(n_per_class=30, n_classes=2, dims=5, length=(7, 9))
    assert (len(data), data.dims) == (60, 5)
    assert set(data.lengths.tolist()) == {7, 8, 9}
    assert data.labels.tolist() == ["gesture0"] * 30 + ["gesture1"] * 30
    assert data.ids[31] == "gesture1/1"


def test_a_seed_fixes_the_bits() -> None:
    one, again, other = (make_gestures(3, random_state=seed) for seed in (1, 1, 2))
    assert one.values.tobytes() == again.values.tobytes()
    assert one.values.tobytes() != other.values.tobytes()
    from_generator = make_gestures(3, random_state=np.random.default_rng(1))
    assert one.values.tobytes() == from_generator.values.tobytes()


def test_no_seed_differs_each_time() -> None:
    first, second = (make_gestures(1, 1, random_state=None) for _ in range(2))
    assert first.values.tobytes() != second.values.tobytes()


def test_as_hard_as_the_docstring_says() -> None:
    assert nearest_neighbour_hits(make_gestures()) == 77
    assert nearest_neighbour_hits(make_gestures(noise=0.0)) == 80
    assert nearest_neighbour_hits(make_gestures(noise=1.0)) < 70


def test_noise_is_white_and_of_the_deviation_asked_for() -> None:
    clean, noisy = (make_gestures(1, 1, length=(2000, 2000), noise=noise) for noise in (0.0, 0.5))
    np.testing.assert_allclose((noisy.values - clean.values).std(axis=0), 0.5, rtol=0.05)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_per_class": 0}, "n_per_class=0: must be a whole number of at least 1"),
        ({"n_classes": 1.5}, "n_classes=1.5: must be a whole number"),
        ({"dims": True}, "dims=True: must be a whole number"),
        ({"length": 40}, r"length=40: must be \(shortest, longest\)"),
        ({"length": (1, 5)}, "shortest length=1: must be a whole number of at least 2"),
        ({"length": (9, 5)}, "longest length=5: must be a whole number of at least 9"),
        ({"noise": -1.0}, "noise=-1.0: must be a finite number of at least 0"),
        ({"noise": float("nan")}, "noise=nan"),
        ({"noise": "much"}, "noise='much'"),
    ],
)
def test_parameters_that_cannot_be_used(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_gestures(**options)
