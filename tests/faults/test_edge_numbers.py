"""Numbers at the edge, all the way from a set of series to a decision.

What comes out is right, compared with the engine that is slow and obvious; or a named error says, before any distance
is computed, which series is at fault. Nothing that is not finite is ever in a store.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cksc_dist import CKSC, SeriesSet, load_model, open_matrix, pairwise_dtw
from cksc_dist.dist.distances import compute_distances
from cksc_dist.dist.ingest import ingest
from cksc_dist.errors import InputError, SmallClassWarning
from cksc_dist.io import read, write_npz
from cksc_dist.models.training import train
from cksc_dist.spec import DistanceSpec, ModelSpec, RunSpec
from cksc_dist.store.folder import Folder
from cksc_dist.store.series_files import open_series

SERIAL = RunSpec(executor="serial")
ENGINES = ("simd", "dtaidistance")


def walks(n: int = 8, length: int = 5, dims: int = 2, seed: int = 0) -> list[NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((length + i % 3, dims)) for i in range(n)]


def stored(tmp_path: Path, data: SeriesSet, spec: DistanceSpec | None = None) -> NDArray[Any]:
    """Return the distances of a new store, which are all finite."""
    ingest(data, tmp_path / "s.zarr")
    compute_distances(tmp_path / "s.zarr", spec or DistanceSpec(), SERIAL)
    D = open_matrix(tmp_path / "s.zarr")[:, :]
    assert np.isfinite(D).all()
    assert np.array_equal(D, D.T)
    assert not np.diagonal(D).any()
    return D


def whole_way(tmp_path: Path, data: SeriesSet, spec: DistanceSpec | None = None) -> NDArray[Any]:
    """Go from series to decisions, and return the distances; the model on disk decides as that in memory."""
    D = stored(tmp_path, data, spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallClassWarning)
        trained = train(tmp_path / "s.zarr", tmp_path / "m", spec=ModelSpec(sparsity=1, max_iter=3), run=SERIAL).model
    model = load_model(tmp_path / "m")
    shares = model.predict_proba(data)
    assert np.isfinite(shares).all()
    assert np.allclose(shares.sum(axis=1), 1.0)
    assert model.predict(data).tolist() == trained.predict(data).tolist()
    assert set(model.predict(data).tolist()) <= set(data.labels.tolist())
    return D


def naive(data: SeriesSet, **options: Any) -> NDArray[Any]:
    return pairwise_dtw(data, engine="naive", **options)


def labelled(series: Any, labels: Any = None, **options: Any) -> SeriesSet:
    series = list(series)
    return SeriesSet.from_list(series, ["a", "b"] * (len(series) // 2) if labels is None else labels, **options)


@pytest.mark.parametrize("scale", [1e-140, 1e-100, 1e100, 1e140])
def test_large_and_small_values_give_the_distances_of_values_about_1(tmp_path: Path, scale: float) -> None:
    D = whole_way(tmp_path, labelled(values * scale for values in walks()))
    assert np.allclose(D / scale, naive(labelled(walks())), rtol=1e-12)


@pytest.mark.parametrize("engine", [*ENGINES, "naive"])
@pytest.mark.parametrize("scale", [1e-100, 1e140])
def test_all_engines_agree_at_the_edge(engine: str, scale: float) -> None:
    data = labelled(values * scale for values in walks())
    for options in ({}, {"mode": "independent"}, {"window": 0.5}, {"per_length": True}):
        assert np.allclose(pairwise_dtw(data, engine=engine, **options), naive(data, **options), rtol=1e-12, atol=0.0)


TOO_LARGE = {
    "DTW": (DistanceSpec(), 1e300, r"series\[5\] has values of up to 1e\+300: too large to be squared; rescale"),
    "DTW, just": (DistanceSpec(), 1e151, r"series\[5\] has values of up to 1e\+151"),
    "independent": (DistanceSpec(mode="independent"), 1e300, r"series\[5\] has values of up to 1e\+300"),
    "absolute": (
        DistanceSpec(cost="abs"),
        1.5e308,
        r"series\[5\] has values of up to 1.5e\+308: too large to be added",
    ),
    "the peer": (DistanceSpec(engine="dtaidistance"), 1e300, r"series\[5\] has values of up to 1e\+300"),
    "the twin": (DistanceSpec(engine="naive"), 1e300, r"series\[5\] has values of up to 1e\+300"),
    "Euclidean": (DistanceSpec(metric="euclidean"), 1e300, r"series\[5\] has values of up to 1e\+300"),
    "float32": (DistanceSpec(dtype="float32"), 1e30, r"series\[5\] has values of up to 1e\+30.* dtype='float64'"),
}


@pytest.mark.parametrize("what", TOO_LARGE)
def test_what_is_too_large_is_named_before_anything_is_computed(tmp_path: Path, what: str) -> None:
    spec, value, words = TOO_LARGE[what]
    series = [values[:5] for values in walks()]
    series[5][2, 1] = value
    ingest(labelled(series), tmp_path / "s.zarr")
    with pytest.raises(InputError, match=words):
        compute_distances(tmp_path / "s.zarr", spec, SERIAL)
    assert not (tmp_path / "s.zarr" / "distances").exists()


def test_values_that_are_too_large_for_one_metric_are_fine_for_another(tmp_path: Path) -> None:
    data = labelled(np.abs(values[:5]) * 1e300 for values in walks())
    ingest(data, tmp_path / "s.zarr")
    for spec in (DistanceSpec(normalise="z"), DistanceSpec(metric="chi"), DistanceSpec(metric="chi2")):
        report = compute_distances(tmp_path / "s.zarr", spec, SERIAL)
        D = open_matrix(tmp_path / "s.zarr", report.fingerprint)[:, :]
        assert np.isfinite(D).all()
        assert (D[~np.eye(len(D), dtype=bool)] > 0).all()


@pytest.mark.parametrize(("scale", "dtype"), [(1e-300, "float64"), (5e-324, "float64"), (1e-30, "float32")])
def test_what_vanishes_when_it_is_squared_is_refused(tmp_path: Path, scale: float, dtype: str) -> None:
    ingest(labelled(np.ceil(np.abs(values)) * scale for values in walks()), tmp_path / "s.zarr")
    with pytest.raises(InputError, match=r"all series have values of at most .*: too small to be squared; rescale"):
        compute_distances(tmp_path / "s.zarr", DistanceSpec(dtype=dtype), SERIAL)  # type: ignore[arg-type]
    assert not (tmp_path / "s.zarr" / "distances").exists()


def test_denormals_can_be_normalised(tmp_path: Path) -> None:
    series = [np.round(values * 1e6) for values in walks()]
    D = stored(tmp_path, labelled(values * 5e-324 for values in series), DistanceSpec(normalise="z"))
    assert np.allclose(D, naive(labelled(series), normalise="z"))


def test_huge_beside_tiny(tmp_path: Path) -> None:
    data = labelled(values * (1e-300 if i % 2 else 1e100) for i, values in enumerate(walks()))
    D = whole_way(tmp_path, data)
    assert np.allclose(D, naive(data), rtol=1e-12)


def test_zero_has_one_sign(tmp_path: Path) -> None:
    series = [np.array([[-0.0], [1.0]]), np.array([[0.0], [1.0]]), np.array([[-0.0]]), np.array([[2.0]])]
    data = labelled(series)
    D = whole_way(tmp_path, data)
    assert D[0, 1] == 0.0
    assert np.array_equal(D, naive(data))
    assert not np.signbit(D).any()
    # as data it is kept as it is
    assert np.signbit(open_series(Folder(tmp_path / "s.zarr")).load().values[0, 0])


def test_two_series(tmp_path: Path) -> None:
    data = labelled(walks(2))
    assert np.allclose(whole_way(tmp_path, data), naive(data))


def test_one_sample_a_class(tmp_path: Path) -> None:
    data = labelled(walks(), list("hgfedcba"))
    assert np.allclose(whole_way(tmp_path, data), naive(data))
    assert load_model(tmp_path / "m").predict(data).tolist() == list("hgfedcba")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:The number of unique classes is greater than 50%")
def test_a_thousand_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    series = [rng.standard_normal((2, 1)) for _ in range(1000)]
    data = SeriesSet.from_list(series, [f"class {i}" for i in range(1000)])
    D = stored(tmp_path, data)
    assert np.allclose(D[:20, :20], naive(data.select(range(20))))
    matrix = open_matrix(tmp_path / "s.zarr")
    with pytest.warns(SmallClassWarning):
        model = CKSC(sparsity=1, max_iter=1, atoms_per_class=2, random_state=0).fit(
            matrix.kernel(range(1000)), data.labels
        )
    assert len(model.classes_) == 1000
    assert model.predict_proba(matrix.kernel(range(1000))[:3, :]).shape == (3, 1000)


def test_series_of_one_frame(tmp_path: Path) -> None:
    data = labelled(np.random.default_rng(0).standard_normal((8, 1, 3)))
    D = whole_way(tmp_path, data)
    assert np.allclose(D, np.linalg.norm(data.values[:, None] - data.values[None], axis=2))


def test_long_series(tmp_path: Path) -> None:
    one, two = np.ones((100_000, 1)), np.zeros((100_000, 1))
    one[-1] = two[-1] = 3.0
    D = stored(tmp_path, labelled([one, two]), DistanceSpec(window=2))  # without a band it takes long
    assert D[0, 1] == pytest.approx(np.sqrt(99_999), rel=1e-12)


def test_a_long_series_beside_a_short_one(tmp_path: Path) -> None:
    long, short = np.ones((5000, 1)), np.array([[0.0], [3.0]])
    long[-1] = 3.0
    D = stored(tmp_path, labelled([long, short]))
    assert D[0, 1] == pytest.approx(np.sqrt(4999), rel=1e-12)


def test_all_series_equal(tmp_path: Path) -> None:
    assert not stored(tmp_path, labelled([np.ones((4, 2))] * 6)).any()
    with pytest.raises(InputError, match="all samples are identical"):
        train(tmp_path / "s.zarr", tmp_path / "m", spec=ModelSpec(sparsity=1), run=SERIAL)
    assert not (tmp_path / "m").exists()


KINDS = {
    "int8": lambda x: x.astype(np.int8),
    "uint64": lambda x: np.abs(x).astype(np.uint64),
    "bool": lambda x: x > 0,
    "float16": lambda x: x.astype(np.float16),
    "float32": lambda x: x.astype(np.float32),
    "longdouble": lambda x: x.astype(np.longdouble),
    "big-endian": lambda x: x.astype(">f8"),
    "big-endian int": lambda x: x.astype(">i4"),
    "Fortran order": np.asfortranarray,
    "every other row and column": lambda x: np.repeat(np.repeat(x, 2, axis=0), 2, axis=1)[::2, ::2],
    "backwards": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": lambda x: np.frombuffer(x.tobytes()).reshape(x.shape),
    "a list": lambda x: x.tolist(),
    "whole numbers of Python": lambda x: [[int(value) for value in row] for row in x],
}


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_any_kind(tmp_path: Path, kind: str) -> None:
    given = [KINDS[kind](np.round(values * 20)) for values in walks()]
    data = labelled(given)
    assert data.values.dtype == np.float64
    assert data.values.flags.c_contiguous
    plain = labelled(np.asarray(values).astype(np.float64) for values in given)
    assert np.array_equal(data.values, plain.values)
    D = stored(tmp_path, data)
    assert np.allclose(D, naive(plain))
    for engine in ENGINES:
        assert np.allclose(pairwise_dtw(given, engine=engine), naive(plain))


@pytest.mark.parametrize("value", [2**53 + 1, 10**400])
def test_whole_numbers_that_no_float_holds(value: int) -> None:
    given = [[[value]], [[0]]]
    if value == 10**400:
        with pytest.raises(InputError, match=r"series\[0\] cannot be read as numbers"):
            labelled(given)
    else:
        assert labelled(given).values[0, 0] == 2.0**53


def test_no_dims_and_many_dims(tmp_path: Path) -> None:
    for empty in (np.empty((5, 0)), np.empty((0, 2))):
        with pytest.raises(InputError, match=r"series\[0\] is empty"):
            labelled([empty, np.ones((5, 1))])
    data = labelled(np.random.default_rng(0).standard_normal((6, 3, 10_000)))
    assert np.allclose(whole_way(tmp_path, data), naive(data))


LABELS: dict[str, list[Any]] = {
    "text": ["é 😀", "../../x"],
    "empty text": ["", " "],
    "lines": ["a\nb", "a\r\tb"],
    "NUL inside": ["a\0b", "ab"],
    "numbers": [-(2**63), 2**63 - 1],
    "large numbers": [2**63, 2**64 - 1],
    "truth": [True, False],
    "long": ["x" * 5000, "y"],
    "numbers as text": ["1", "01"],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_come_back_as_they_were(tmp_path: Path, kind: str) -> None:
    labels = LABELS[kind] * 4
    data = labelled(walks(), labels)
    write_npz(tmp_path / "d.npz", data)
    assert read(tmp_path / "d.npz").labels.tolist() == labels
    whole_way(tmp_path, data)
    assert open_matrix(tmp_path / "s.zarr").labels.tolist() == labels
    assert set(load_model(tmp_path / "m").classes_.tolist()) == set(labels)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a", 1], "mix int and str"),
        ([1.5, 2.5], "labels are of type float64"),
        ([None, None], "labels are of type object"),
        (["a\0", "b"], "ends with NUL, which cannot be kept"),
        (["\ud800", "b"], "labels hold letters that are no text"),
        ([["a"], ["b"]], "both must be 1-D"),
    ],
)
def test_labels_that_cannot_be_kept_are_refused(labels: list[Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        labelled(walks(2), labels)


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["a", "a"], r"id 'a' is used twice"),
        (["", ""], r"id '' is used twice"),
        (["a", "a\0"], "ends with NUL, which cannot be kept"),
        (["a", "\udcff"], "ids hold letters that are no text"),
        (["a"], "2 series, but 2 labels and 1 ids"),
    ],
)
def test_ids_that_cannot_be_kept_are_refused(ids: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        labelled(walks(2), ids=ids)


def test_names_of_dims_that_cannot_be_kept_are_refused() -> None:
    for name, words in (("x\0", "ends with NUL"), ("\ud800", "names hold letters that are no text")):
        with pytest.raises(InputError, match=words):
            labelled(walks(2), dim_names=["x", name])


def test_strange_ids_are_data_and_never_paths(tmp_path: Path) -> None:
    ids = ["", "../../x", "/etc/passwd", "C:\\x", "a\nb", "a\0b", "😀", "x" * 5000]
    whole_way(tmp_path, labelled(walks(), ids=ids))
    assert open_matrix(tmp_path / "s.zarr").ids.tolist() == ids
    assert open_matrix(tmp_path / "s.zarr").to_xarray()["row"].values.tolist() == ids
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "s.zarr"]


def test_offsets_whose_differences_overflow_are_refused() -> None:
    offsets = np.array([0, 2**63 - 1, -(2**63) + 5, -5, 5])  # each difference is above 0, modulo 2^64
    with pytest.raises(InputError, match="series 1 is empty"):
        SeriesSet(np.zeros((5, 1)), offsets, np.array(list("abcd")), np.array(list("abcd")))
