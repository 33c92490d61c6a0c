"""The two half steps of CKSC by themselves: objective, codes, recall; rounds, acceptance, unused atoms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cksc_dist.maths.atoms import AtomStep, atom_step, replace_unused, rounds
from cksc_dist.maths.codes import (
    REACH,
    Dictionary,
    code_step,
    dictionary_products,
    objective,
    recall,
    recall_quadratic,
)
from cksc_dist.maths.gram import MemoryGram
from cksc_dist.maths.sparse import SparseRows, weighted_rows
from cksc_dist.spec import ModelSpec
from tests import naive_cksc as naive
from tests import naive_nqp

Float = NDArray[np.float64]
Index = NDArray[np.int64]


class State(NamedTuple):
    """A dictionary and codes that no training has touched, with their dense forms."""

    K: Float
    y: Index
    n_classes: int
    atoms: SparseRows
    codes: SparseRows
    home: Index

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def U(self) -> Float:
        return np.asarray(self.atoms.csr(self.n).toarray().T)

    @property
    def G(self) -> Float:
        return np.asarray(self.codes.csr(len(self.home)).toarray().T)

    @property
    def M(self) -> Float:
        return naive.other_class(self.y, self.n_classes)

    @property
    def diagonal(self) -> Float:
        return np.diag(self.K).copy()

    @property
    def KU(self) -> Float:
        return weighted_rows(self.K, self.atoms.csr(self.n))

    @property
    def dictionary(self) -> Dictionary:
        return dictionary_products(self.atoms, self.KU, self.y, self.n_classes)

    def dense_objective(self, alpha: float, beta: float) -> float:
        return sum(naive.objective(self.K, self.M, self.U, self.G, alpha, beta))


def sparse_rows(dense: Float, width: int) -> SparseRows:
    out = SparseRows.empty(len(dense), width)
    for row, values in enumerate(dense):
        at = np.flatnonzero(values)
        out.indices[row, : len(at)], out.values[row, : len(at)], out.counts[row] = at, values[at], len(at)
    return out


def random_rows(rng: np.random.Generator, rows: int, columns: int, width: int) -> SparseRows:
    dense = np.zeros((rows, columns))
    for row in range(rows):
        at = rng.choice(columns, size=int(rng.integers(1, min(width, columns) + 1)), replace=False)
        dense[row, at] = rng.uniform(0.1, 1.0, size=len(at))
    return sparse_rows(dense, width)


def random_state(seed: int, sizes: tuple[int, ...] = (22, 9, 30), width: int = 4, per_class: int = 5) -> State:
    """Random atoms of norm 1 and random codes, on an indefinite kernel whose diagonal is not 1."""
    rng = np.random.default_rng(seed)
    y = naive.labels(list(sizes), rng)
    lengths = rng.uniform(0.5, 1.5, size=len(y))
    K = naive.indefinite_kernel(y, rng) * np.outer(lengths, lengths)
    K = np.ascontiguousarray((K + K.T) / 2)
    home = np.repeat(np.arange(len(sizes)), per_class)
    atoms = random_rows(rng, len(home), len(y), width)
    U = atoms.csr(len(y)).toarray().T
    norms = np.sqrt(np.diag(U.T @ K @ U))
    atoms = atoms._replace(values=atoms.values / norms[:, None])
    return State(K, y, len(sizes), atoms, random_rows(rng, len(y), len(home), width), home)


def with_codes(state: State, codes: SparseRows) -> State:
    return state._replace(codes=codes)


def take_atoms(
    state: State, alpha: float, beta: float, schedule: Any, sparsity: int = 4, n_jobs: int | None = None
) -> tuple[State, AtomStep]:
    spec = ModelSpec(sparsity=sparsity, alpha=alpha, schedule=schedule, selection="scaled")
    errors = naive.sample_errors(state.K, state.U, state.G)
    step = atom_step(
        MemoryGram(state.K, n_jobs),
        state.atoms,
        state.KU,
        state.codes,
        state.home,
        errors,
        state.y,
        state.n_classes,
        beta,
        spec,
        n_jobs,
    )
    return state._replace(atoms=step.atoms, codes=step.codes), step


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (0.1, 0.0), (0.0, 2.0), (0.3, 1.5)])
def test_objective_is_the_dense_formula_term_by_term(alpha: float, beta: float) -> None:
    for seed in range(3):
        state = random_state(seed)
        found = objective(state.codes, state.diagonal, state.KU, state.dictionary, state.y, alpha, beta)
        expected = naive.objective(state.K, state.M, state.U, state.G, alpha, beta)
        assert found.reconstruction == pytest.approx(expected.reconstruction, rel=1e-12)
        assert found.ridge == pytest.approx(expected.ridge, rel=1e-12)
        assert found.discrimination == pytest.approx(expected.discrimination, rel=1e-12)
        assert found.total == pytest.approx(sum(expected), rel=1e-12)
        errors = naive.sample_errors(state.K, state.U, state.G)
        np.testing.assert_allclose(found.sample_error, errors, rtol=1e-12, atol=1e-12)


def test_dictionary_products_are_dense_products() -> None:
    state = random_state(1)
    found = state.dictionary
    np.testing.assert_allclose(found.gram, state.U.T @ state.K @ state.U, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.overlap, state.U.T @ state.U, rtol=1e-12, atol=1e-12)
    L = naive.one_hot(state.y, state.n_classes)
    np.testing.assert_allclose(found.class_weight, (L @ state.U).T, rtol=1e-12, atol=1e-12)
    assert (found.gram == found.gram.T).all()
    assert (found.overlap == found.overlap.T).all()


@pytest.mark.parametrize("selection", ["scaled", "plain"])
@pytest.mark.parametrize("prune", [0.0, 0.2])
def test_code_step_solves_each_sample_or_keeps_its_code(selection: Any, prune: float) -> None:
    alpha, state = 0.2, random_state(2, width=5)
    beta = naive.least_ridge(state.K, state.M, alpha)
    spec = ModelSpec(sparsity=5, alpha=alpha, selection=selection, prune=prune)
    # some old codes are good ones, as they are late in training
    best = naive.code_pass(state.K, state.M, state.U, state.G, 5, alpha, beta, "scaled", 0.0)
    good = np.arange(state.n) % 2 == 0
    codes = sparse_rows(np.where(good, best, state.G).T, 5)
    state = with_codes(state, codes)
    new = code_step(state.codes, state.diagonal, state.KU, state.dictionary, state.y, beta, spec)
    before, after = state.G, with_codes(state, new).G
    expected = naive.code_pass(state.K, state.M, state.U, before, 5, alpha, beta, selection, prune)
    np.testing.assert_allclose(after, expected, rtol=0, atol=1e-9)
    for i in range(state.n):
        H, c = naive.code_problem(state.K, state.M, state.U, i, alpha, beta)
        change = naive_nqp.objective(H, c, after[:, i]) - naive_nqp.objective(H, c, before[:, i])
        assert change <= 1e-12
    assert (after != before).any(axis=0)[~good].mean() > 0.9
    assert (after == before).all(axis=0)[good].mean() > 0.3


def test_a_better_code_is_kept_bit_for_bit() -> None:
    state = random_state(3)
    beta = naive.least_ridge(state.K, state.M, 0.1)

    def step(codes: SparseRows, spec: ModelSpec) -> SparseRows:
        return code_step(codes, state.diagonal, state.KU, state.dictionary, state.y, beta, spec)

    wide = step(state.codes, ModelSpec(sparsity=4, alpha=0.1))
    pruned = step(wide, ModelSpec(sparsity=4, alpha=0.1, prune=0.5))
    assert (wide.counts > 1).any()
    for part, expected in zip(pruned, wide, strict=True):
        np.testing.assert_array_equal(part, expected)
    # from nothing the same settings do prune, so that it was the rule that kept them
    fresh = step(SparseRows.empty(state.n, 4), ModelSpec(sparsity=4, alpha=0.1, prune=0.5))
    assert fresh.counts.sum() < wide.counts.sum()


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (0.2, 0.0), (0.2, 3.0)])
def test_recall_quadratic_is_the_dense_formula(alpha: float, beta: float) -> None:
    state = random_state(4)
    expected, _ = naive.recall_problem(state.K, state.M, state.U, state.K[0], alpha, beta)
    found = recall_quadratic(state.dictionary, alpha, beta)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("selection", ["scaled", "plain"])
@pytest.mark.parametrize("prune", [0.0, 0.2])
def test_recall_solves_the_dense_problem_of_each_new_sample(selection: Any, prune: float) -> None:
    state = random_state(5)
    alpha = 0.1
    beta = naive.least_ridge(state.K, state.M, alpha)
    new_rows = np.random.default_rng(0).uniform(0, 1, size=(30, state.n))
    new_rows[7] = 0.0
    quadratic = recall_quadratic(state.dictionary, alpha, beta)
    found = recall(new_rows, state.atoms, quadratic, 3, selection, prune)
    codes = found.csr(len(state.home)).toarray()
    gains = []
    for row, code in zip(new_rows, codes, strict=True):
        H, c = naive.recall_problem(state.K, state.M, state.U, row, alpha, beta)
        expected = naive.recall_code(H, c, 3, 3 * REACH, selection, prune)
        np.testing.assert_allclose(code, expected, rtol=0, atol=1e-9)
        greedy = naive_nqp.nqp(H, c, 3, selection=selection, prune=prune)
        gains.append(naive_nqp.objective(H, c, greedy) - naive_nqp.objective(H, c, code))
    assert min(gains) >= -1e-12
    assert max(gains) > 1e-4, "some search is meant to be misled by its first pick"
    assert found.counts[7] == 0, "a sample that is like nothing has the code 0"
    assert (np.delete(found.counts, 7) > 0).all()


def test_rounds_take_one_atom_of_each_class() -> None:
    home = np.array([0, 0, 0, 1, 2, 2])
    found = [members.tolist() for members in rounds(home, "interleaved")]
    assert found == [[0, 3, 4], [1, 5], [2]]
    assert [members.tolist() for members in rounds(home, "sequential")] == [[j] for j in range(6)]


@settings(max_examples=50, deadline=None, derandomize=True)
@given(home=st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_rounds_hold_every_atom_once_and_no_class_twice(home: list[int]) -> None:
    classes = np.array(home)
    for schedule in ("interleaved", "sequential"):
        found = rounds(classes, schedule)
        assert sorted(j for members in found for j in members.tolist()) == list(range(len(home)))
        for members in found:
            assert len(set(classes[members].tolist())) == len(members) > 0
    assert len(rounds(classes, "interleaved")) == np.bincount(classes).max()
    assert [m.tolist() for m in rounds(classes, "interleaved")] == naive.schedule_rounds(classes, "interleaved")


@pytest.mark.parametrize("schedule", ["sequential", "interleaved"])
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.5])
def test_atom_step_is_the_dense_one(alpha: float, schedule: Any) -> None:
    for seed in range(3):
        state = random_state(seed)
        beta = naive.least_ridge(state.K, state.M, alpha)
        after, step = take_atoms(state, alpha, beta, schedule)
        U, G = naive.atom_pass(
            state.K,
            state.M,
            state.U,
            state.G,
            naive.schedule_rounds(state.home, schedule),
            4,
            alpha,
            beta,
            "scaled",
            0.0,
        )
        np.testing.assert_allclose(after.U, U, rtol=0, atol=1e-9)
        np.testing.assert_allclose(after.G, G, rtol=0, atol=1e-9)
        np.testing.assert_allclose(step.KU, (state.K @ U).T, rtol=0, atol=1e-9)
        assert step.accepted + step.rejected == len(state.home)
        changed = int(np.any(np.abs(after.U - state.U) > 1e-12, axis=0).sum())
        assert step.accepted == changed
        assert after.dense_objective(alpha, beta) < state.dense_objective(alpha, beta)


def test_atom_step_leaves_its_arguments_alone() -> None:
    state = random_state(0)
    before = [part.copy() for part in (*state.atoms, *state.codes, state.K)]
    take_atoms(state, 0.1, 3.0, "interleaved")
    for part, expected in zip((*state.atoms, *state.codes, state.K), before, strict=True):
        np.testing.assert_array_equal(part, expected)


def test_normalising_leaves_the_product_as_it_is() -> None:
    # one atom alone: whatever it becomes, J of the step must be J of the unnormalised solution
    state = random_state(6, sizes=(20,), per_class=1, width=3)
    beta = naive.least_ridge(state.K, state.M, 0.0)
    H, c = naive.atom_problem(state.K, state.M, state.U, state.G, 0, 0.0, beta)
    new = naive_nqp.nqp(H, c, 3)
    after, _ = take_atoms(state, 0.0, beta, "sequential", sparsity=3)
    np.testing.assert_allclose(after.U @ after.G, np.outer(new, state.G[0]), rtol=0, atol=1e-12)
    assert after.U[:, 0] @ state.K @ after.U[:, 0] == pytest.approx(1.0, rel=1e-12)
    assert new @ state.K @ new != pytest.approx(1.0, rel=1e-2), "the case is meant to need a factor"


def crowded_state() -> State:
    """Two atoms of different classes, both used by all: each alone would make up for all that is missing."""
    n = 6
    y = np.array([0, 0, 0, 1, 1, 1])
    K = np.full((n, n), 0.9)
    np.fill_diagonal(K, 1.0)
    atoms = SparseRows(np.array([[0], [3]]), np.ones((2, 1)), np.ones(2, dtype=np.int64))
    codes = SparseRows(np.tile([0, 1], (n, 1)), np.full((n, 2), 0.2), np.full(n, 2))
    return State(K, y, 2, atoms, codes, np.array([0, 1]))


def test_of_two_proposals_that_would_overshoot_together_one_is_accepted() -> None:
    state = crowded_state()
    U, G = state.U, state.G
    one, both = U.copy(), U.copy()
    for j in (0, 1):
        H, c = naive.atom_problem(state.K, state.M, U, G, j, 0.0, 0.0)
        both[:, j] = naive_nqp.nqp(H, c, 1)
    one[:, 0] = both[:, 0]
    alone, together = (sum(naive.objective(state.K, state.M, new, G, 0.0, 0.0)) for new in (one, both))
    assert alone < together, "the case is meant to overshoot"
    after, step = take_atoms(state, 0.0, 0.0, "interleaved", sparsity=1)
    assert (step.accepted, step.rejected) == (1, 1)
    assert after.dense_objective(0.0, 0.0) == pytest.approx(alone, rel=1e-12)
    _, one_after_the_other = take_atoms(state, 0.0, 0.0, "sequential", sparsity=1)
    assert one_after_the_other.accepted == 2


def test_an_update_without_a_norm_is_rejected() -> None:
    # the four last samples want 0 and 1 at once, whose sum has u'K u < 0
    K = np.eye(6)
    K[0, 1] = K[1, 0] = -1.2
    K[:2, 2:] = K[2:, :2] = 0.9
    y = np.zeros(6, dtype=np.int64)
    atoms = SparseRows(np.array([[0, -1]]), np.array([[1.0, 0.0]]), np.array([1]))
    codes = SparseRows(np.tile([0, -1], (6, 1)), np.tile([0.5, 0.0], (6, 1)), np.ones(6, dtype=np.int64))
    state = State(K, y, 1, atoms, codes, np.array([0]))
    beta = naive.least_ridge(K, state.M, 0.0)
    H, c = naive.atom_problem(K, state.M, state.U, state.G, 0, 0.0, beta)
    new = naive_nqp.nqp(H, c, 2)
    assert new @ K @ new < 0, "the case is meant to have a negative norm"
    after, step = take_atoms(state, 0.0, beta, "sequential", sparsity=2)
    assert (step.accepted, step.rejected) == (0, 1)
    np.testing.assert_array_equal(after.U, state.U)
    np.testing.assert_array_equal(after.G, state.G)


def single_atoms(samples: list[int], K: Float, width: int = 2) -> SparseRows:
    atoms = SparseRows.empty(len(samples), width)
    atoms.indices[:, 0] = samples
    atoms.values[:, 0] = 1.0 / np.sqrt(np.diag(K)[samples])
    atoms.counts[:] = 1
    return atoms


def test_unused_atoms_become_the_worst_reconstructed_samples_of_their_class() -> None:
    rng = np.random.default_rng(0)
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    K = naive.uneven_kernel(y, rng)
    # atom 0 is sample 0 alone; atom 3 is a mixture, so that its samples are still free
    atoms = single_atoms([0, 1, 4, 5], K)
    atoms.indices[3], atoms.values[3], atoms.counts[3] = [6, 7], [0.5, 0.7], 2
    KU = weighted_rows(K, atoms.csr(8))
    error = np.array([9.0, 8.0, 1.0, 2.0, 9.5, 0.5, 7.0, 6.0])
    replace_unused(atoms, KU, MemoryGram(K), np.array([1, 2, 3]), np.array([0, 0, 1, 1]), error, y)
    # of class 0, samples 0 and 1 are atoms already and 3 is the worst; of class 1, 4 is one, then 6 and 7
    np.testing.assert_array_equal(atoms.indices, [[0, -1], [3, -1], [6, -1], [7, -1]])
    np.testing.assert_array_equal(atoms.counts, 1)
    np.testing.assert_array_equal(atoms.values[:, 1], 0.0)
    U = atoms.csr(8).toarray().T
    np.testing.assert_allclose(np.diag(U.T @ K @ U), 1.0, rtol=1e-12)
    np.testing.assert_allclose(KU, (K @ U).T, rtol=1e-12)


def test_an_unused_atom_stays_where_its_class_has_no_sample_left() -> None:
    K = naive.class_kernel(np.array([0, 0, 1, 1]), np.random.default_rng(0))
    atoms = single_atoms([0, 1, 2], K)
    KU = weighted_rows(K, atoms.csr(4))
    before = [part.copy() for part in (*atoms, KU)]
    replace_unused(atoms, KU, MemoryGram(K), np.array([0, 1]), np.array([0, 0, 1]), np.ones(4), np.array([0, 0, 1, 1]))
    for part, expected in zip((*atoms, KU), before, strict=True):
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("schedule", ["sequential", "interleaved"])
def test_unused_atoms_are_replaced_in_a_step_without_a_change_of_the_objective(schedule: Any) -> None:
    state = random_state(7)
    dense = state.G
    dense[[1, 6, 7]] = 0.0
    state = with_codes(state, sparse_rows(dense.T, 4))
    expected, count = naive.replace_unused(state.K, state.U, state.G, state.home, state.y)
    assert count == 3
    beta = naive.least_ridge(state.K, state.M, 0.1)
    swapped = sum(naive.objective(state.K, state.M, expected, state.G, 0.1, beta))
    assert swapped == pytest.approx(state.dense_objective(0.1, beta), rel=1e-14)
    after, step = take_atoms(state, 0.1, beta, schedule)
    np.testing.assert_allclose(after.U[:, [1, 6, 7]], expected[:, [1, 6, 7]], rtol=1e-14)
    assert step.accepted + step.rejected == len(state.home) - 3
    np.testing.assert_array_equal(after.G[[1, 6, 7]], 0.0)


def test_half_steps_have_the_same_bits_for_any_number_of_threads() -> None:
    # more atoms and samples than one block of any step holds
    state = random_state(8, sizes=(60, 50, 60, 40, 30), per_class=8)
    spec = ModelSpec(sparsity=4, alpha=0.1)
    results = []
    for n_jobs in (None, 1, 2):
        _, step = take_atoms(state, 0.1, 6.0, "interleaved", n_jobs=n_jobs)
        codes = code_step(state.codes, state.diagonal, state.KU, state.dictionary, state.y, 6.0, spec, n_jobs)
        recalled = recall(state.K, state.atoms, recall_quadratic(state.dictionary, 0.1, 6.0), 4, "scaled", 0.0, n_jobs)
        parts = (*step.atoms, *step.codes, step.KU, *codes, *recalled)
        results.append(b"".join(np.ascontiguousarray(part).tobytes() for part in parts))
    assert results[0] == results[1] == results[2]


def test_recall_takes_no_memory_for_more_atoms_than_there_are() -> None:
    """The number may come from the settings of a model in a file."""
    state = random_state(5)
    atoms, quadratic = len(state.home), recall_quadratic(state.dictionary, 0.1, 6.0)
    vast, all_of_them = (recall(state.K, state.atoms, quadratic, most, "scaled", 0.0) for most in (10**12, atoms))
    np.testing.assert_array_equal(vast.csr(atoms).toarray(), all_of_them.csr(atoms).toarray())
