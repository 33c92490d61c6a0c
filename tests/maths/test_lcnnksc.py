"""LC-NNKSC's mathematics: against its slow twin, its objective, its descent, its constraints, recall."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import nnls

from cksc_dist import LCNNKSC
from cksc_dist.maths.lcnnksc import class_scores, recall, train
from cksc_dist.maths.learnt import Learnt
from tests import naive_lcnnksc, naive_nqp
from tests.naive_cksc import class_kernel, duplicated_kernel, labels, uneven_kernel

Float = NDArray[np.float64]
Index = NDArray[np.int64]

KERNELS = {"even": class_kernel, "uneven": uneven_kernel, "copies": duplicated_kernel}


def make_problem(seed: int, kind: str = "even", n: int = 24, n_classes: int = 3) -> tuple[Float, Index]:
    rng = np.random.default_rng(seed)
    y = labels([n // n_classes] * n_classes, rng)
    return KERNELS[kind](y, rng), y


def learn(K: Float, y: Index, seed: int = 0, **parameters: Any) -> Learnt:
    defaults: dict[str, Any] = {
        "sparsity": 3,
        "label_weight": 0.1,
        "locality": 0.1,
        "atoms_per_class": None,
        "max_iter": 6,
        "tol": 0.0,
    }
    return train(K, y, int(y.max()) + 1, rng=np.random.default_rng(seed), **defaults | parameters)


def start_samples(y: Index, per_class: int, seed: int = 0) -> Index:
    rng = np.random.default_rng(seed)
    classes = range(int(y.max()) + 1)
    return np.concatenate([np.sort(rng.permutation(np.flatnonzero(y == c))[:per_class]) for c in classes])


@pytest.mark.parametrize("kind", ["even", "uneven"])
@pytest.mark.parametrize("label_weight", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("locality", [0.0, 0.02, 0.2])
def test_training_is_that_of_the_twin(kind: str, label_weight: float, locality: float) -> None:
    """With b = gamma = 0 this is plain non-negative kernel sparse coding."""
    for seed in range(2):
        K, y = make_problem(seed, kind)
        learnt = learn(K, y, label_weight=label_weight, locality=locality, max_iter=3)
        twin = naive_lcnnksc.train(K, y, start_samples(y, 3), 3, label_weight, locality, 3)
        np.testing.assert_allclose(learnt.history, twin.history, rtol=1e-9)
        np.testing.assert_allclose(learnt.dictionary, twin.U, atol=1e-7)
        np.testing.assert_allclose(learnt.codes.toarray().T, twin.G, atol=1e-7)
        assert learnt.history[1] < learnt.history[0]  # atoms were renewed


def test_atoms_without_users_are_replaced_as_the_twin_does_it() -> None:
    """Groups of copies: of atoms in the same group, all but one are of no use."""
    centres = np.repeat(np.arange(6.0), 4)
    K, y = np.exp(-((centres[:, None] - centres) ** 2)), (centres > 2).astype(np.int64)
    start = start_samples(y, 3)
    assert len(set(centres[start])) < 6  # some group has none
    twin = naive_lcnnksc.train(K, y, start, 1, 0.1, 0.1, 3)
    learnt = learn(K, y, sparsity=1, atoms_per_class=3, max_iter=3)
    assert twin.replaced > 0
    np.testing.assert_allclose(learnt.history, twin.history, rtol=1e-9)
    np.testing.assert_allclose(learnt.dictionary, twin.U, atol=1e-9)
    assert learnt.history[0] > 1
    assert learnt.history[-1] < 1e-9  # each group has one now


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(sorted(KERNELS)),
    sparsity=st.integers(1, 5),
    atoms_per_class=st.one_of(st.none(), st.integers(1, 9)),
    label_weight=st.sampled_from([0.0, 0.01, 1.0, 30.0]),
    locality=st.sampled_from([0.0, 0.1, 5.0]),
)
def test_descent_objective_and_constraints(
    seed: int, kind: str, sparsity: int, atoms_per_class: int | None, label_weight: float, locality: float
) -> None:
    K, y = make_problem(seed, kind)
    weights = {"label_weight": label_weight, "locality": locality}
    learnt = learn(K, y, seed, sparsity=sparsity, atoms_per_class=atoms_per_class, **weights)
    U, G, history = learnt.dictionary, learnt.codes.toarray().T, learnt.history
    # J never rises at any half step, and is what is written down
    assert history.shape == (2 * learnt.n_iter + 1,)
    scale = float(np.trace(K)) + label_weight * len(K)
    assert (np.diff(history) <= 1e-12 * scale).all()
    assert history[-1] == pytest.approx(naive_lcnnksc.objective(K, y, U, G, **weights), rel=1e-9, abs=1e-11 * scale)
    # constraints
    assert U.shape[1] == 3 * min(8, sparsity if atoms_per_class is None else atoms_per_class)
    assert (U >= 0).all()
    assert (G >= 0).all()
    assert 1 <= np.count_nonzero(U, axis=0).min() <= np.count_nonzero(U, axis=0).max() <= sparsity
    assert np.count_nonzero(G, axis=0).max() <= sparsity
    np.testing.assert_allclose(np.diag(U.T @ K @ U), 1.0, rtol=1e-9)
    assert ((naive_lcnnksc.one_hot(y) @ U > 0).sum(axis=0) == 1).all()  # each atom within one class
    # what recall is given
    np.testing.assert_allclose(learnt.model.gram, U.T @ K @ U, atol=1e-9)
    np.testing.assert_allclose(learnt.model.class_weight, (naive_lcnnksc.one_hot(y) @ U).T, atol=1e-12)


def test_every_half_step_has_its_j() -> None:
    """A training that is cut after t alternations, with the codes that end it, has the history of a longer one."""
    K, y = make_problem(3, "uneven")
    whole = learn(K, y, max_iter=4).history
    for t in (1, 2, 3):
        learnt = learn(K, y, max_iter=t)
        assert np.array_equal(learnt.history, whole[: 2 * t + 1])
        expected = naive_lcnnksc.objective(K, y, learnt.dictionary, learnt.codes.toarray().T, 0.1, 0.1)
        assert whole[2 * t] == pytest.approx(expected, rel=1e-10)


def test_locality_makes_atoms_of_samples_that_are_close() -> None:
    K, y = make_problem(4, n=45)
    Delta = naive_lcnnksc.spread(K)
    spreads = []
    for locality in (0.0, 0.3, 3.0):
        U = learn(K, y, sparsity=4, locality=locality).dictionary
        spreads.append(float(np.trace(U.T @ Delta @ U)))
    assert spreads[0] > 1.2 * spreads[1] > 1.2 * spreads[2]


def test_the_label_weight_draws_codes_to_the_labels() -> None:
    K, y = make_problem(5, n=45)
    L = naive_lcnnksc.one_hot(y)
    errors = []
    for label_weight in (0.0, 0.1, 3.0):
        learnt = learn(K, y, label_weight=label_weight)
        errors.append(float(((L - L @ learnt.dictionary @ learnt.codes.toarray().T) ** 2).sum()))
    assert errors[0] > 1.2 * errors[1] > 1.2 * errors[2]


def test_training_ends_when_j_settles() -> None:
    K, y = make_problem(6)
    learnt = learn(K, y, max_iter=50, tol=1e-3)
    assert learnt.converged
    assert learnt.n_iter < 50
    before, after = learnt.history[-4], learnt.history[-2]  # of atoms
    assert before - after <= 1e-3 * before
    assert not learn(K, y, max_iter=2, tol=0.0).converged


def test_the_number_of_threads_does_not_matter() -> None:
    K, y = make_problem(7, n=150)
    one, two = (learn(K, y, sparsity=5, max_iter=2, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert np.array_equal(one.dictionary, two.dictionary)
    assert np.array_equal(one.codes.toarray(), two.codes.toarray())
    assert np.array_equal(one.history, two.history)
    linear = K @ one.dictionary
    first, second = (recall(linear, one.model, 5, n_jobs).toarray() for n_jobs in (1, 2))
    assert np.array_equal(first, second)


# recall


def new_samples(seed: int) -> tuple[Float, Float, Index]:
    """A kernel of training samples, rows of new ones, and classes of the former."""
    K, y = make_problem(seed, n=60)
    return np.ascontiguousarray(K[:36, :36]), K[36:, :36], y[:36]


def test_recall_is_on_the_plain_kernel() -> None:
    """Labels of new samples are not known: a large b makes another dictionary, but no other problem of recall."""
    K, rows, y = new_samples(0)
    learnt = learn(K, y, label_weight=5.0)
    U = learnt.dictionary
    codes = recall(rows @ U, learnt.model, 3).toarray()
    labelled = K + 5.0 * (y[:, None] == y)
    for k_z, code in zip(rows, codes, strict=True):
        expected = naive_nqp.nqp(2.0 * U.T @ K @ U, -2.0 * U.T @ k_z, 3, selection="plain")
        np.testing.assert_allclose(code, expected, atol=1e-9)
        assert not np.allclose(code, naive_nqp.nqp(2.0 * U.T @ labelled @ U, -2.0 * U.T @ k_z, 3), atol=1e-3)
    np.testing.assert_allclose(class_scores(codes, learnt.model), codes @ (naive_lcnnksc.one_hot(y) @ U).T, atol=1e-12)


def test_recall_with_all_atoms_allowed_is_non_negative_least_squares() -> None:
    K, rows, y = new_samples(1)
    learnt = learn(K, y, sparsity=6, atoms_per_class=2)
    R = np.linalg.cholesky(K + 1e-12 * np.eye(len(K))).T
    codes = recall(rows @ learnt.dictionary, learnt.model, 6).toarray()
    for k_z, code in zip(rows, codes, strict=True):
        expected = nnls(R @ learnt.dictionary, np.linalg.solve(R.T, k_z))[0]
        np.testing.assert_allclose(code, expected, atol=1e-6)


@pytest.mark.parametrize("decision", ["one", "argmax"])
def test_decisions_are_made_by_the_class_scores(decision: str) -> None:
    """h = L U g, from what is public: "one" takes the score closest to 1, "argmax" the largest."""
    K, rows, y = new_samples(2)
    # short ones, which score below 1, and long ones, of which more than one class may score above it
    rows = np.vstack([rows, 2.5 * rows])
    model = LCNNKSC(sparsity=4, decision=decision, atoms_per_class=2, tol=0.1, random_state=0).fit(K, y)
    scores = model.transform(rows) @ model.dictionary_.toarray().T @ naive_lcnnksc.one_hot(y).T
    closest, largest = np.abs(scores - 1.0).argmin(axis=1), scores.argmax(axis=1)
    assert (closest != largest).any()
    assert np.array_equal(model.predict(rows), closest if decision == "one" else largest)
    shares = model.class_shares(rows)
    expected = scores if decision == "argmax" else 1.0 / (scores - 1.0) ** 2
    np.testing.assert_allclose(shares, expected / expected.sum(axis=1, keepdims=True), atol=1e-9)


def test_the_estimator_gives_out_what_is_learnt() -> None:
    K, y = make_problem(8)
    parameters: dict[str, Any] = {"sparsity": 3, "label_weight": 0.3, "locality": 0.2, "tol": 0.05}
    model = LCNNKSC(**parameters, random_state=4).fit(K, y)
    U, G = model.dictionary_.toarray(), model.codes_.toarray().T
    J = naive_lcnnksc.objective(K, y, U, G, 0.3, 0.2)
    assert model.objective_history_[-1] == pytest.approx(J, rel=1e-10)
    assert model.objective_history_.shape == (2 * model.n_iter_ + 1,)
    assert (model.interpretability_ == 1).all()
    assert np.array_equal(model.support_, np.flatnonzero(U.any(axis=1)))
