from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import loadmat
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC
from sklearn.utils import get_tags

from cksc_dist.errors import InputError
from cksc_dist.models.distance_kernel import DistanceKernel
from cksc_dist.spec import KernelSpec
from tests import naive_kernel

seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=20, deadline=None)


def random_distances(n, seed):
    D = np.triu(np.random.default_rng(seed).random((n, n)) + 0.01, 1)
    return D + D.T


@pytest.fixture
def blobs():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 14)
    X = rng.standard_normal((42, 3)) + 2.5 * y[:, None]
    return cdist(X, X), y, X


@pytest.mark.parametrize("rule", ["mean", "median", "paper", 1.7])
def test_equals_the_loop(rule):
    D = random_distances(17, 0)
    train, test = np.arange(12), np.arange(12, 17)
    kernel = DistanceKernel(bandwidth=rule, factor=0.25)
    K = kernel.fit_transform(D[np.ix_(train, train)])
    expected = naive_kernel.bandwidth(D[np.ix_(train, train)], rule)
    assert kernel.bandwidth_ == pytest.approx(expected, rel=1e-12)
    assert kernel.delta_ == pytest.approx(0.25 * expected, rel=1e-12)
    assert kernel.n_features_in_ == 12
    np.testing.assert_allclose(K, naive_kernel.gaussian_kernel(D[:12, :12], 0.25 * expected), rtol=1e-11)
    rows = D[np.ix_(test, train)]
    np.testing.assert_allclose(kernel.transform(rows), naive_kernel.gaussian_kernel(rows, 0.25 * expected), rtol=1e-11)


def test_equals_scikit_learn_on_euclidean_distances(blobs):
    D, _, X = blobs
    kernel = DistanceKernel(bandwidth="median", factor=2.0)
    K = kernel.fit_transform(D)
    np.testing.assert_allclose(K, rbf_kernel(X, gamma=1 / kernel.delta_), rtol=1e-9)


@quick
@given(n=st.integers(2, 30), seed=seeds, repair=st.sampled_from([None, "clip", "flip"]))
def test_training_rows_as_test_rows_give_the_training_kernel(n, seed, repair):
    D = random_distances(n, seed)
    kernel = DistanceKernel(repair=repair)
    K = kernel.fit_transform(D)
    assert np.array_equal(K, K.T)
    assert (K.diagonal() == 1).all()
    np.testing.assert_allclose(kernel.transform(D), K, atol=1e-9)
    np.testing.assert_allclose(kernel.transform(D[[0]]), K[[0]], atol=1e-9)
    if repair is not None:
        assert np.linalg.eigvalsh(K)[0] > -1e-10 * n


@pytest.mark.parametrize("how", ["clip", "flip"])
def test_repair_of_test_rows_equals_the_loop(how):
    D = random_distances(30, 1)
    kernel = DistanceKernel(repair=how).fit(D[:20, :20])
    K = naive_kernel.gaussian_kernel(D[:20, :20], kernel.delta_)
    rows = naive_kernel.gaussian_kernel(D[20:, :20], kernel.delta_)
    own = [naive_kernel.self_similarity(K, k_z, how) for k_z in rows]
    own_train = naive_kernel.repaired_kernel(K, how).diagonal()
    expected = naive_kernel.unit_diagonal_rows(rows @ naive_kernel.projector(K, how), own, own_train)
    np.testing.assert_allclose(kernel.transform(D[20:, :20]), expected, atol=1e-9)
    assert not np.allclose(expected, rows, atol=1e-3)


@pytest.mark.parametrize("how", ["clip", "flip"])
def test_repair_leaves_a_semi_definite_kernel_alone(how, blobs):
    D, _, _ = blobs
    plain, repaired = DistanceKernel(), DistanceKernel(repair=how)
    assert np.array_equal(plain.fit_transform(D[:30, :30]), repaired.fit_transform(D[:30, :30]))
    assert np.array_equal(plain.transform(D[30:, :30]), repaired.transform(D[30:, :30]))


def learnt(kernel):
    repair = kernel.spectral_repair_
    return [kernel.bandwidth_, kernel.delta_, repair.eigenvalues, repair.vectors, repair.own_train]


def test_nothing_is_learnt_from_test_distances():
    D = random_distances(20, 2)
    kernel = DistanceKernel(repair="clip").fit(D)
    before = [np.copy(value) for value in learnt(kernel)]
    rows = 5 * random_distances(20, 3)  # square, and on another scale
    K = kernel.transform(rows)
    for old, new in zip(before, learnt(kernel), strict=True):
        assert np.array_equal(old, new)
    changed = rows.copy()
    changed[1:] *= 3
    np.testing.assert_allclose(kernel.transform(changed)[0], K[0], atol=1e-12)


def test_fit_again_forgets(blobs):
    D, _, _ = blobs
    kernel = DistanceKernel(repair="clip").fit(random_distances(9, 0))
    kernel.set_params(repair=None).fit(D)
    assert kernel.n_features_in_ == len(D)
    assert np.array_equal(kernel.transform(D), DistanceKernel().fit_transform(D))


def test_float32_stays_float32():
    D = random_distances(10, 0).astype(np.float32)
    for repair in (None, "clip"):
        kernel = DistanceKernel(repair=repair)
        assert kernel.fit_transform(D).dtype == kernel.transform(D[:2]).dtype == np.float32


def test_defaults_are_those_of_the_spec():
    spec = KernelSpec()
    assert DistanceKernel().get_params() == {
        "bandwidth": spec.bandwidth,
        "factor": spec.factor,
        "repair": spec.repair,
    }


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"bandwidth": "maen"}, "bandwidth='maen': must be one of 'mean', 'median', 'paper', 'squares'"),
        ({"factor": 0}, "factor=0: must be a number in"),
        ({"repair": "clop"}, "repair='clop': must be one of None, 'clip', 'flip'"),
    ],
)
def test_bad_parameters_are_named_at_fit(parameters, words):
    with pytest.raises(InputError, match=words):
        DistanceKernel(**parameters).fit(random_distances(4, 0))


@pytest.mark.parametrize("method", ["fit", "fit_transform"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda D: D[:3], "a distance matrix of training samples is square"),
        (lambda D: D - 1, "distances cannot be negative"),
        (lambda D: np.where(D > 0.9, np.nan, D), "is nan; every entry must be finite"),
        (lambda D: D + np.eye(len(D)), "the distance of a sample to itself must be 0"),
        (lambda D: np.exp(-D), "this looks like a kernel"),
        (lambda D: np.triu(D), "D is not symmetric; worst at the pair"),
        (lambda D: 0 * D, "all samples are identical"),
    ],
)
def test_what_is_no_distance_matrix(method, change, words):
    with pytest.raises(InputError, match=words):
        getattr(DistanceKernel(), method)(change(random_distances(12, 0)))


def test_what_cannot_be_transformed():
    D = random_distances(8, 0)
    kernel = DistanceKernel().fit(D)
    with pytest.raises(InputError, match="D has 7 columns, but there were 8 training samples"):
        kernel.transform(D[:, :7])
    with pytest.raises(InputError, match=r"D has shape \(8,\)"):
        kernel.transform(D[0])
    with pytest.raises(InputError, match="cannot be negative"):
        kernel.transform(-D)
    with pytest.raises(NotFittedError):
        DistanceKernel().transform(D)
    with pytest.raises(NotFittedError):
        DistanceKernel().health(D)


def test_health_is_that_of_the_kernel_before_repair():
    D = random_distances(40, 0)
    kernel = DistanceKernel(repair="clip", factor=0.5).fit(D)
    health = kernel.health(D)
    K = naive_kernel.gaussian_kernel(D, kernel.delta_)
    assert health.negative_mass == pytest.approx(naive_kernel.negative_mass(K), rel=1e-6)
    assert health.negative_mass > 0
    assert "indefinite" in str(health)


def test_keeps_no_training_matrix():
    D = random_distances(300, 0)
    assert len(pickle.dumps(DistanceKernel().fit(D))) < 5_000


def test_copies_give_the_same_kernel():
    D = random_distances(12, 0)
    kernel = DistanceKernel(bandwidth="median", factor=0.5, repair="flip")
    K = kernel.fit_transform(D)
    restored = pickle.loads(pickle.dumps(kernel))
    assert np.array_equal(restored.transform(D), kernel.transform(D))
    assert np.array_equal(clone(kernel).fit_transform(D), K)


def test_cross_validation_cuts_rows_and_columns(blobs):
    D, y, _ = blobs
    model = Pipeline([("kernel", DistanceKernel()), ("svc", SVC(kernel="precomputed"))])
    assert get_tags(DistanceKernel()).input_tags.pairwise
    assert get_tags(model).input_tags.pairwise
    scores = cross_val_score(model, D, y, cv=3, error_score="raise")
    assert scores.mean() > 0.9


def test_grid_search_over_the_factor(blobs):
    D, y, _ = blobs
    model = Pipeline([("kernel", DistanceKernel(repair="clip")), ("svc", SVC(kernel="precomputed"))])
    factors = [1e-6, 0.5, 1.0]
    search = GridSearchCV(model, {"kernel__factor": factors}, cv=3, error_score="raise").fit(D, y)
    assert search.best_params_["kernel__factor"] in (0.5, 1.0)  # 1e-6 leaves the identity: nothing to learn
    assert search.best_score_ > 0.9
    assert search.cv_results_["mean_test_score"][0] < 0.6
    assert search.predict(D[:4]).tolist() == y[:4].tolist()


@pytest.mark.realdata
def test_repair_keeps_what_a_classifier_needs_on_published_distances(real_data):
    content = loadmat(real_data / "Cricket" / "cricket_data.mat")
    D = content["alldistances"].astype(np.float64)
    y = content["list_labels"].ravel().astype(int)
    train, test = np.arange(0, 180, 2), np.arange(1, 180, 2)
    D_train, D_test = D[np.ix_(train, train)], D[np.ix_(test, train)]
    accuracy = {}
    for repair in (None, "clip", "flip"):
        kernel = DistanceKernel(repair=repair)
        model = SVC(kernel="precomputed", C=100.0).fit(kernel.fit_transform(D_train), y[train])
        accuracy[repair] = model.score(kernel.transform(D_test), y[test])
    assert kernel.health(D_train).negative_mass > 0.005
    assert min(accuracy.values()) > 0.8
    assert accuracy["clip"] > accuracy[None] - 0.1
