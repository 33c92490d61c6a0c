"""LP-KSVD: against its slow twin on stacked data, nearness, the descent of J, and the classifier on gestures."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from cksc_dist.errors import InputError
from cksc_dist.io import make_gestures
from cksc_dist.maths.ksvd import start_samples
from cksc_dist.maths.learnt import Learnt
from cksc_dist.maths.lpksvd import nearest_atoms, recall, stacked_gram, train
from cksc_dist.models.lpksvd import LPKSVD
from tests import naive_ksvd
from tests.maths.test_kgdl import make_kernel

Float = NDArray[np.float64]
Index = NDArray[np.int64]


def learn(K: Float, y: Index, seed: int = 0, **settings: Any) -> Learnt:
    defaults: dict[str, Any] = {
        "sparsity": 2,
        "neighbours": 3,
        "locality": 0.1,
        "label_weight": 1.0,
        "per_class": 3,
        "max_iter": 3,
        "outer": 3,
        "tol": 0.0,
    }
    return train(K, y, int(y.max()) + 1, rng=np.random.default_rng(seed), **defaults | settings)


def start(y: Index, per_class: int = 3, seed: int = 0) -> Float:
    return np.eye(len(y))[:, start_samples(y, int(y.max()) + 1, per_class, np.random.default_rng(seed))]


def signs_of(ours: Float, twin: Float) -> Float:
    return np.sign((ours * twin).sum(axis=0))


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(2, 15),
    k=st.integers(1, 6),
    a=st.floats(0.0, 10.0),
    b=st.floats(0.0, 10.0),
)
def test_the_stacked_gram_is_that_of_stacked_data(seed: int, n: int, k: int, a: float, b: float) -> None:
    rng = np.random.default_rng(seed)
    K, Q, y = rng.standard_normal((n, n)), rng.integers(0, 2, (k, n)).astype(float), rng.integers(0, 3, n)
    K = K + K.T
    data = naive_ksvd.stack(K, Q, np.eye(3)[:, y], a, b)
    squared = K @ K
    squared[0, 1] += 1e-12  # a product need not be symmetric to the bit
    ours = stacked_gram(squared, Q.T, y, a, b)
    np.testing.assert_allclose(ours, data.T @ data, atol=1e-10)
    assert np.array_equal(ours, ours.T)
    assert ours.flags.c_contiguous


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("p", [1, 3, 6])
def test_near_are_atoms_at_a_small_angle_whatever_their_sign_and_length(seed: int, p: int) -> None:
    K, _ = make_kernel(seed)
    rng = np.random.default_rng(seed)
    D = K @ rng.standard_normal((24, 6)) * 10.0 ** rng.uniform(-2.0, 2.0, 6)
    Q = nearest_atoms(K, D, p)
    assert np.array_equal(Q, naive_ksvd.nearest(K, D, p).T)
    assert (Q.sum(axis=1) == p).all()


def test_of_atoms_that_are_equally_near_the_first_ones_count_and_no_more_than_there_are() -> None:
    D = np.array([[1.0, -1.0, 1.0], [0.0, 0.0, 1.0]])
    assert nearest_atoms(np.eye(2), D, 1).tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert nearest_atoms(np.eye(2), D, 2).tolist() == [[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    assert nearest_atoms(np.eye(2), D, 5).tolist() == np.ones((2, 3)).tolist()


@pytest.mark.parametrize("seed", range(3))
def test_without_locality_and_labels_it_is_k_svd_on_the_columns_of_the_kernel(seed: int) -> None:
    K, y = make_kernel(seed)
    learnt = learn(K, y, locality=0.0, label_weight=0.0, outer=1)
    twin = naive_ksvd.ksvd(K, start(y), 2, 3)
    np.testing.assert_allclose(learnt.history, twin.history, rtol=1e-7)
    signs = signs_of(learnt.model.images, twin.D)
    np.testing.assert_allclose(learnt.model.images * signs, twin.D, atol=1e-6)
    np.testing.assert_allclose(learnt.codes.toarray() * signs, twin.G.T, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("a", "b"), [(0.1, 1.0), (2.0, 0.0), (0.0, 5.0)])
@pytest.mark.parametrize("outer", [1, 3])
def test_training_is_that_of_the_twin(seed: int, a: float, b: float, outer: int) -> None:
    K, y = make_kernel(seed)
    learnt = learn(K, y, locality=a, label_weight=b, outer=outer)
    twin = naive_ksvd.lpksvd(K, np.eye(3)[:, y], start(y), 2, 3, a, b, 3, outer)
    np.testing.assert_allclose(learnt.history, twin.history, rtol=1e-6)
    assert learnt.model.passes.tolist() == twin.passes
    signs = signs_of(learnt.model.images, twin.D)
    np.testing.assert_allclose(learnt.model.images * signs, twin.D, atol=1e-5)
    np.testing.assert_allclose(learnt.model.weights.T * signs, twin.W, atol=1e-5)
    np.testing.assert_allclose(learnt.codes.toarray() * signs, twin.G.T, atol=1e-4)


@pytest.mark.parametrize(("a", "b"), [(0.1, 1.0), (3.0, 0.2)])
def test_j_is_the_sum_of_its_three_parts(a: float, b: float) -> None:
    K, y = make_kernel(1, n=40)
    learnt = learn(K, y, locality=a, label_weight=b, outer=1)
    L, U, G = np.eye(3)[:, y], learnt.dictionary, learnt.codes.toarray().T
    Q = naive_ksvd.nearest(K, K @ start(y), 3)
    parts = [((part - part @ U @ G) ** 2).sum() for part in (K, Q, L)]
    assert learnt.history[-1] == pytest.approx(parts[0] + a * parts[1] + b * parts[2], rel=1e-9)
    assert min(parts) > 0.01


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("p", [3, 6])
def test_j_never_rises_within_a_pass(seed: int, p: int) -> None:
    K, y = make_kernel(seed, n=60)
    learnt = learn(K, y, neighbours=p, locality=1.0, per_class=6, outer=4)
    edges = [*learnt.model.passes.tolist(), len(learnt.history)]
    assert edges == [0, 7, 14, 21, 28]
    assert learnt.n_iter == 12
    for first, last in pairwise(edges):
        inside = learnt.history[first:last]
        assert (np.diff(inside) <= 1e-9 * inside[0]).all()
    assert learnt.history[6] < 0.9 * learnt.history[0]
    # a new pass has another aim: here its J is above that of the last one
    assert any(learnt.history[edge] > learnt.history[edge - 1] for edge in edges[1:-1])


def test_passes_end_when_the_same_atoms_are_near() -> None:
    K, y = make_kernel(0)
    # all nine are near, whatever they are
    assert learn(K, y, neighbours=9, outer=5).model.passes.tolist() == [0]
    assert len(learn(K, y, neighbours=2, outer=2).model.passes) == 2


def test_passes_begin_where_the_one_before_has_ended() -> None:
    """With a tolerance they take different numbers of alternations."""
    K, y = make_kernel(2, n=60)
    one, two = (learn(K, y, tol=0.01, max_iter=30, outer=outer) for outer in (1, 2))
    assert len(two.history) != 2 * len(one.history)
    assert two.model.passes.tolist() == [0, len(one.history)]
    assert np.array_equal(two.history[: len(one.history)], one.history)


def test_whether_it_has_converged_is_that_of_the_last_pass() -> None:
    K, y = make_kernel(2, n=40)
    assert learn(K, y, neighbours=9, tol=0.05, max_iter=30).converged
    assert not learn(K, y, neighbours=9, tol=1e-9, max_iter=2).converged


@pytest.mark.parametrize("a", [0.0, 1.0])
def test_atoms_on_the_columns_have_norm_1_and_weights_are_theirs(a: float) -> None:
    K, y = make_kernel(3, n=40)
    learnt = learn(K, y, locality=a)
    D = K @ learnt.dictionary
    np.testing.assert_allclose(np.linalg.norm(D, axis=0), 1.0, rtol=1e-9)
    np.testing.assert_allclose(learnt.model.images, D, atol=1e-10)
    np.testing.assert_allclose(learnt.model.gram, D.T @ D, atol=1e-10)
    np.testing.assert_allclose(learnt.model.weights.T, np.eye(3)[:, y] @ learnt.dictionary, atol=1e-10)
    assert np.diff(learnt.codes.indptr).max() == 2


def test_the_weights_say_what_codes_have_to_fit() -> None:
    """Q and the labels are rebuilt by the same codes as the kernel, each the better the more it weighs."""
    K, y = make_kernel(4, n=60)
    Q, L = nearest_atoms(K, K @ start(y), 3), np.eye(3)[y]

    def misfits(a: float, b: float) -> tuple[float, float, float]:
        learnt = learn(K, y, locality=a, label_weight=b, outer=1)
        rebuilt = learnt.codes.toarray() @ learnt.dictionary.T
        kernel, near, labels = (float(((part - rebuilt @ part) ** 2).sum()) for part in (K, Q, L))
        return kernel, near, labels

    plain, near, labelled = misfits(0.0, 0.0), misfits(20.0, 0.0), misfits(0.0, 20.0)
    assert plain[0] < 0.8 * min(near[0], labelled[0])
    assert near[1] < 0.8 * min(plain[1], labelled[1])
    assert labelled[2] < 0.8 * min(plain[2], near[2])


@pytest.mark.parametrize("seed", range(3))
def test_recall_is_pursuit_on_the_columns(seed: int) -> None:
    K, y = make_kernel(seed, n=40)
    learnt = learn(K[:30, :30], y[:30])
    D = learnt.model.images
    codes = recall(learnt.model, K[30:, :30] @ D, 3).toarray()
    for row, code in zip(K[30:, :30], codes, strict=True):
        np.testing.assert_allclose(code, naive_ksvd.omp(D, row, 3), atol=1e-7)
    assert (np.count_nonzero(codes, axis=1) == 3).all()


def test_threads_do_not_change_a_bit() -> None:
    K, y = make_kernel(3, n=150)
    one, two = (learn(K, y, per_class=8, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert np.array_equal(one.dictionary, two.dictionary)
    assert np.array_equal(one.history, two.history)
    assert np.array_equal(one.codes.toarray(), two.codes.toarray())
    first, second = (recall(one.model, K @ one.model.images, 4, n_jobs).toarray() for n_jobs in (1, 2))
    assert np.array_equal(first, second)


def test_the_estimator_trains_with_its_parameters() -> None:
    K, y = make_kernel(0, n=40)
    K = 0.8 * K + 0.2 * np.eye(40)  # no eigenvalue next to zero, so that nothing is clipped
    parameters: dict[str, Any] = {"sparsity": 3, "neighbours": 2, "locality": 0.7, "label_weight": 0.3}
    rest: dict[str, Any] = {"max_iter": 7, "outer": 2, "tol": 0.05}
    model = LPKSVD(**parameters, **rest, atoms_per_class=4, random_state=5).fit(K, y)
    learnt = learn(K, y, check_random_state(5).randint(2**31 - 1), **parameters, **rest, per_class=4)
    assert np.array_equal(model.dictionary_.toarray(), learnt.dictionary)
    assert np.array_equal(model.codes_.toarray(), learnt.codes.toarray())
    assert np.array_equal(model.objective_history_, learnt.history)
    assert np.array_equal(model.passes_, learnt.model.passes)
    assert model.n_iter_ == learnt.n_iter


def test_the_label_is_the_class_of_largest_regressed_indicator() -> None:
    K, y = make_kernel(5, n=90)
    names = np.array(["up", "down", "aside"])
    model = LPKSVD(2, tol=0.05, random_state=0).fit(K[:60, :60], names[y[:60]])
    D = K[:60, :60] @ model.dictionary_.toarray()
    np.testing.assert_allclose(np.linalg.norm(D, axis=0), 1.0, rtol=1e-9)
    W = np.array([model.dictionary_.toarray()[names[y[:60]] == name].sum(axis=0) for name in model.classes_])
    scores = np.array([W @ naive_ksvd.omp(D, row, 2) for row in K[60:, :60]])
    predicted = model.predict(K[60:, :60])
    assert predicted.tolist() == model.classes_[scores.argmax(axis=1)].tolist()
    assert (predicted == names[y[60:]]).mean() > 0.6
    assert model.passes_[0] == 0
    assert (np.diff([*model.passes_, len(model.objective_history_)]) >= 3).all()


def test_every_training_sample_is_looked_at_also_where_no_atom_has_weight() -> None:
    """Rows of the kernel are coded, so their entries count even if no atom is made of that sample."""
    K, y = np.eye(6), np.array([0, 0, 0, 1, 1, 1])
    model = LPKSVD(1, neighbours=1, locality=0.0, label_weight=0.0, tol=0.5, random_state=0).fit(K, y)
    assert model.support_.tolist() == list(range(6))
    assert (abs(model.dictionary_.toarray()).sum(axis=1) == 0).any()
    rows = np.random.default_rng(0).uniform(size=(5, 6))
    expected = [naive_ksvd.omp(K @ model.dictionary_.toarray(), row, 1) for row in rows]
    np.testing.assert_allclose(model.transform(rows), expected, atol=1e-12)


def test_gestures_are_recognised() -> None:
    data = make_gestures(n_per_class=12, random_state=1)
    labels = np.asarray(data.labels)
    model = LPKSVD(3, kernel="dtw", tol=0.01, random_state=0).fit(data.series[::2], labels[::2])
    assert model.score(data.series[1::2], labels[1::2]) >= 0.85


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"neighbours": 0}, "neighbours=0: must be a whole number of at least 1"),
        ({"outer": 0}, "outer=0: must be a whole number of at least 1"),
        ({"sparsity": 2.5}, "sparsity=2.5"),
        ({"max_iter": True}, "max_iter=True"),
        ({"locality": -0.1}, r"locality=-0.1: must be a number in \[0, 1e\+06\]"),
        ({"label_weight": np.nan}, "label_weight=nan"),
        ({"atoms_per_class": 0}, "atoms_per_class=0"),
        ({"tol": 2.0}, "tol=2.0"),
    ],
)
def test_wrong_parameters_are_named(changes: dict[str, Any], words: str) -> None:
    K, y = make_kernel(0)
    with pytest.raises(InputError, match=words):
        LPKSVD(**changes).fit(K, y)
