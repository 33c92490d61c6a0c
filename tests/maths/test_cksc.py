"""CKSC training against its naive twin; J never rises; constraints; schedules; bits; interpretability."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cksc_dist.maths.atoms import atom_step
from cksc_dist.maths.cksc import TERMS, Fit, alternate, class_interpretability, start_atoms
from cksc_dist.maths.codes import Objective, code_step, dictionary_products
from cksc_dist.maths.dtw import pairwise_dtw
from cksc_dist.maths.gram import MemoryGram
from cksc_dist.maths.sparse import SparseRows, weighted_rows
from cksc_dist.series import SeriesSet
from cksc_dist.spec import ModelSpec
from tests import naive_cksc as naive

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Maker = Callable[[Index, np.random.Generator], Float]


def noisy_signed_kernel(y: Index, rng: np.random.Generator) -> Float:
    return naive.signed_kernel(y, rng, noise=0.3)


MAKERS: dict[str, Maker] = {
    "semi-definite": naive.class_kernel,
    "indefinite": naive.indefinite_kernel,
    "negative entries": naive.signed_kernel,
    "negative entries, indefinite": noisy_signed_kernel,
    "duplicates": naive.duplicated_kernel,
    "uneven diagonal": naive.uneven_kernel,
}


class Problem(NamedTuple):
    K: Float
    y: Index
    n_classes: int


def problem(kind: str, sizes: list[int], seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    y = naive.labels(sizes, rng)
    return Problem(MAKERS[kind](y, rng), y, len(sizes))


def dense(fit: Fit) -> tuple[Float, Float]:
    """U (n, k) and G (k, n)."""
    n, k = len(fit.codes.counts), len(fit.atoms.counts)
    return fit.atoms.csr(n).toarray().T, fit.codes.csr(k).toarray().T


def exact_ridge(case: Problem, alpha: float) -> float:
    K = case.K.astype(np.float64)
    return naive.least_ridge(K, naive.other_class(case.y, case.n_classes), alpha)


def same_rows(a: SparseRows, b: SparseRows) -> bool:
    return all(x.tobytes() == y.tobytes() and x.shape == y.shape for x, y in zip(a, b, strict=True))


class Twin(NamedTuple):
    kind: str
    sizes: list[int]
    spec: ModelSpec


def twin(kind: str, sizes: list[int], sparsity: int, alpha: float, **options: Any) -> Twin:
    # no more alternations: once an atom has settled to half of all digits its gain is rounding, and so is the
    # decision to keep the old one; J agrees beyond that, U and G to 1e-7 only
    return Twin(kind, sizes, ModelSpec(sparsity=sparsity, alpha=alpha, max_iter=3, **options))


TWINS = [
    twin("semi-definite", [20, 20, 20], 3, 0.0),
    twin("semi-definite", [30, 12, 25], 4, 0.1, selection="plain"),
    twin("semi-definite", [20] * 5, 5, 0.3, prune=0.05),
    twin("semi-definite", [40, 30, 50], 2, 0.1),
    twin("indefinite", [35, 35], 3, 0.1, selection="plain"),
    twin("indefinite", [9, 40, 3, 10], 6, 0.1),
    twin("indefinite", [24] * 5, 2, 0.3, selection="plain"),
    twin("indefinite", [20, 20, 20], 4, 0.0, selection="plain"),
    twin("negative entries", [30, 30, 20], 4, 0.1),
    twin("negative entries", [15] * 4, 3, 0.0, selection="plain"),
    twin("negative entries, indefinite", [30, 25, 10, 2], 3, 0.3),
    twin("uneven diagonal", [25, 25, 25], 2, 0.1, atoms_per_class=12, selection="scaled"),
    twin("uneven diagonal", [40, 8, 20], 2, 0.3, atoms_per_class=12, selection="scaled"),
]


def describe(case: Twin) -> str:
    spec = case.spec
    return f"{case.kind}-{sum(case.sizes)}-T{spec.sparsity}-a{spec.alpha}-{spec.selection}"


@pytest.mark.parametrize("schedule", ["sequential", "interleaved"])
@pytest.mark.parametrize("case", TWINS, ids=describe)
def test_training_equals_the_written_out_equations(case: Twin, schedule: Any) -> None:
    seed = sum(case.sizes) + case.spec.sparsity
    K, y, n_classes = given_problem = problem(case.kind, case.sizes, seed)
    spec = replace(case.spec, schedule=schedule)
    beta = exact_ridge(given_problem, spec.alpha)
    per_class = spec.atoms_per_class or spec.sparsity
    start, home = start_atoms(np.diag(K), y, n_classes, per_class, spec.sparsity, np.random.default_rng(seed))
    expected = naive.train(
        K,
        y,
        n_classes,
        start.csr(len(y)).toarray().T,
        home,
        T=spec.sparsity,
        alpha=spec.alpha,
        beta=beta,
        schedule=spec.schedule,
        selection=spec.selection,
        prune=spec.prune,
        max_iter=spec.max_iter,
        tol=spec.tol,
    )
    fit = alternate(K, y, n_classes, spec, np.random.default_rng(seed), beta=beta)
    assert fit.n_iter == expected.n_iter == 3
    assert fit.converged == expected.converged
    np.testing.assert_array_equal(fit.home, home)
    np.testing.assert_allclose(fit.history.sum(axis=1), expected.history.sum(axis=1), rtol=1e-10)
    np.testing.assert_allclose(fit.history, expected.history, rtol=0, atol=1e-8 * float(np.trace(K)))
    U, G = dense(fit)
    np.testing.assert_allclose(U, expected.U, rtol=0, atol=1e-8)
    np.testing.assert_allclose(G, expected.G, rtol=0, atol=1e-8)
    if spec.atoms_per_class == 12:
        assert expected.replaced > 0, "the case is meant to have unused atoms"


def half_steps(case: Problem, spec: ModelSpec, seed: int, alternations: int) -> Iterator[tuple[float, int]]:
    """J by the dense formula, at the start and after each half step, and how many atoms were unused then."""
    K, y, n_classes = case
    exact = K.astype(np.float64)
    M = naive.other_class(y, n_classes)
    beta = naive.least_ridge(exact, M, spec.alpha)
    diagonal = np.diag(exact).copy()
    per_class = spec.atoms_per_class or spec.sparsity
    rng = np.random.default_rng(seed)
    atoms, home = start_atoms(diagonal, y, n_classes, per_class, spec.sparsity, rng)
    KU = weighted_rows(K, atoms.csr(len(y)))
    codes = SparseRows.empty(len(y), spec.sparsity)

    def state() -> tuple[Float, Float]:
        return atoms.csr(len(y)).toarray().T, codes.csr(len(home)).toarray().T

    def report() -> tuple[float, int]:
        U, G = state()
        return sum(naive.objective(exact, M, U, G, spec.alpha, beta)), int(np.sum(~G.any(axis=1)))

    yield report()
    for _ in range(alternations):
        dictionary = dictionary_products(atoms, KU, y, n_classes)
        codes = code_step(codes, diagonal, KU, dictionary, y, beta, spec)
        yield report()
        errors = naive.sample_errors(exact, *state())
        atoms, KU, codes, *_ = atom_step(MemoryGram(K), atoms, KU, codes, home, errors, y, n_classes, beta, spec)
        yield report()


def assert_never_rises(
    case: Problem, spec: ModelSpec, seed: int, alternations: int = 5, tolerance: float = 1e-12
) -> int:
    """Return how often an atom was unused."""
    objectives, unused = zip(*half_steps(case, spec, seed, alternations), strict=True)
    # the start is J of codes that are 0, tr K, on whose scale all sums are rounded
    assert np.diff(objectives).max() <= tolerance * objectives[0]
    assert objectives[-1] < objectives[0]
    return sum(unused[1:])


SCHEDULES = ["sequential", "interleaved"]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("prune", [0.0, 0.1])
@pytest.mark.parametrize("kind", MAKERS)
def test_objective_never_rises(kind: str, prune: float, schedule: Any) -> None:
    for seed, alpha in enumerate((0.0, 0.1, 0.5)):
        spec = ModelSpec(sparsity=5, alpha=alpha, schedule=schedule, prune=prune)
        assert_never_rises(problem(kind, [30, 4, 22, 14], seed), spec, seed)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", ["semi-definite", "indefinite"])
def test_objective_never_rises_on_a_float32_kernel(kind: str, schedule: Any) -> None:
    case = problem(kind, [30, 30, 20], 3)
    narrow = case._replace(K=case.K.astype(np.float32))
    spec = ModelSpec(sparsity=4, alpha=0.1, schedule=schedule)
    assert_never_rises(narrow, spec, seed=0, tolerance=1e-7)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("alpha", "sparsity"), [(0.05, 1), (0.5, 2), (5.0, 3)])
def test_objective_never_rises_with_atoms_that_nobody_uses(alpha: float, sparsity: int, schedule: Any) -> None:
    spec = ModelSpec(sparsity=sparsity, alpha=alpha, atoms_per_class=20, schedule=schedule)
    assert assert_never_rises(problem("uneven diagonal", [25, 25, 25], 0), spec, seed=0) > 0


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(sorted(MAKERS)),
    sizes=st.lists(st.integers(1, 12), min_size=2, max_size=5).filter(lambda sizes: sum(sizes) >= 6),
    sparsity=st.integers(1, 7),
    per_class=st.none() | st.integers(1, 12),
    alpha=st.sampled_from([0.0, 1e-3, 0.1, 0.3, 2.0]),
    schedule=st.sampled_from(SCHEDULES),
    selection=st.sampled_from(["scaled", "plain"]),
    prune=st.sampled_from([0.0, 0.01, 0.4]),
    seed=st.integers(0, 2**16),
)
def test_objective_never_rises_on_small_problems(
    kind: str,
    sizes: list[int],
    sparsity: int,
    per_class: int | None,
    alpha: float,
    schedule: Any,
    selection: Any,
    prune: float,
    seed: int,
) -> None:
    spec = ModelSpec(
        sparsity=sparsity,
        alpha=alpha,
        atoms_per_class=per_class,
        schedule=schedule,
        selection=selection,
        prune=prune,
    )
    assert_never_rises(problem(kind, sizes, seed), spec, seed, alternations=4)


def assert_feasible(fit: Fit, K: NDArray[Any], sparsity: int, norm_tolerance: float = 1e-10) -> None:
    n, k = len(K), len(fit.home)
    for rows, columns in ((fit.atoms, n), (fit.codes, k)):
        assert rows.indices.shape == rows.values.shape == (len(rows.counts), sparsity)
        for indices, values, count in zip(*rows, strict=True):
            assert 0 <= count <= sparsity
            assert (values[:count] > 0).all()
            assert (np.diff(indices[:count]) > 0).all()
            assert (indices[:count] >= 0).all()
            assert (indices[:count] < columns).all()
            assert (indices[count:] == -1).all()
            assert (values[count:] == 0).all()
    U, _ = dense(fit)
    np.testing.assert_allclose(np.diag(U.T @ K.astype(np.float64) @ U), 1.0, rtol=0, atol=norm_tolerance)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kind", MAKERS)
def test_constraints_hold_at_the_end(kind: str, schedule: Any) -> None:
    K, y, n_classes = problem(kind, [30, 3, 22, 14], 5)
    for alpha, per_class in ((0.0, None), (0.1, 8), (0.5, 2)):
        spec = ModelSpec(sparsity=5, alpha=alpha, schedule=schedule, atoms_per_class=per_class)
        fit = alternate(K, y, n_classes, spec, np.random.default_rng(0))
        assert_feasible(fit, K, 5)
        assert len(fit.home) == sum(min(per_class or 5, size) for size in (30, 3, 22, 14))


def test_an_atom_whose_norm_is_rounding_is_not_accepted() -> None:
    # samples 0 and 1 cancel each other but for 1e-15, and the four below want both of them at once
    K = np.eye(8)
    K[0, 1] = K[1, 0] = -(1 - 1e-15)
    K[:2, 2:6] = K[2:6, :2] = 0.9
    y = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    spec = ModelSpec(sparsity=2, alpha=0.0, atoms_per_class=3, max_iter=5, tol=0.0)
    fit = alternate(K, y, 2, spec, np.random.default_rng(0))
    assert_feasible(fit, K, 2, norm_tolerance=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_history_is_what_was_reported_and_ends_at_the_dense_objective(schedule: Any) -> None:
    case = problem("indefinite", [25, 25, 25], 2)
    K, y, n_classes = case
    reported: list[tuple[str, Objective]] = []
    spec = ModelSpec(sparsity=4, alpha=0.2, schedule=schedule, max_iter=5, tol=0.0)
    fit = alternate(
        K,
        y,
        n_classes,
        spec,
        np.random.default_rng(0),
        on_half_step=lambda step, now: reported.append((step, now)),
    )
    assert fit.n_iter == 5
    assert not fit.converged
    assert [step for step, _ in reported] == [*["codes", "atoms"] * 5, "codes"]
    assert fit.history.shape == (11, len(TERMS))
    np.testing.assert_array_equal(fit.history, [[getattr(now, term) for term in TERMS] for _, now in reported])
    assert fit.beta == pytest.approx(exact_ridge(case, 0.2), rel=1e-4)
    U, G = dense(fit)
    expected = naive.objective(K, naive.other_class(y, n_classes), U, G, 0.2, fit.beta)
    np.testing.assert_allclose(fit.history[-1], expected, rtol=1e-12)


@pytest.mark.parametrize("tol", [0.05, 0.02, 1e-3])
def test_training_stops_at_the_first_relative_change_below_the_tolerance(tol: float) -> None:
    K, y, n_classes = problem("semi-definite", [25, 25, 25], 2)
    fit = alternate(K, y, n_classes, ModelSpec(sparsity=4, alpha=0.02, tol=tol), np.random.default_rng(0))
    assert fit.converged
    after_atoms = np.concatenate([[np.trace(K)], fit.history.sum(axis=1)[1::2]])
    change = np.abs(np.diff(after_atoms)) / np.abs(after_atoms[:-1])
    assert len(change) == fit.n_iter > 2
    assert (change[:-1] > tol).all()
    assert change[-1] <= tol


def final_objective(case: Problem, spec: ModelSpec) -> float:
    fit = alternate(*case, spec, np.random.default_rng(0))
    return float(fit.history[-1].sum())


def schedule_gap(case: Problem, sparsity: int, alpha: float) -> float:
    """How much higher, relatively, J of `interleaved` ends than that of `sequential`."""
    sequential, interleaved = (
        final_objective(case, ModelSpec(sparsity=sparsity, alpha=alpha, schedule=schedule))
        for schedule in ("sequential", "interleaved")
    )
    return (interleaved - sequential) / sequential


@pytest.mark.parametrize("alpha", [0.1, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_schedules_end_within_half_a_percent_with_many_classes(seed: int, alpha: float) -> None:
    rng = np.random.default_rng(seed)
    y = naive.labels([15] * 24, rng)
    K = naive.gaussian(naive.class_distances(y, rng, spread=0.3))
    assert abs(schedule_gap(Problem(K, y, 24), 5, alpha)) < 0.005


@pytest.mark.parametrize("kind", MAKERS)
def test_schedules_end_alike_on_average_with_few_classes(kind: str) -> None:
    # few classes that overlap have many local minima: a pair may differ by a percent or two, either way
    gaps = [schedule_gap(problem(kind, [20] * 5, seed), 4, 0.2) for seed in range(8)]
    assert np.mean(gaps) < 0.005
    assert np.max(np.abs(gaps)) < 0.05


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bits_depend_neither_on_threads_nor_on_the_copy_of_the_kernel(schedule: Any) -> None:
    # more samples and atoms than one block of any step holds
    K, y, n_classes = problem("indefinite", [40] * 5, 1)
    spec = ModelSpec(sparsity=5, alpha=0.1, schedule=schedule, max_iter=4)
    one, two, again = (
        alternate(np.array(K, order="C"), y, n_classes, spec, np.random.default_rng(3), n_jobs=n_jobs)
        for n_jobs in (1, 2, None)
    )
    for other in (two, again):
        assert same_rows(one.atoms, other.atoms)
        assert same_rows(one.codes, other.codes)
        assert one.history.tobytes() == other.history.tobytes()
        assert one.beta == other.beta


def test_start_atoms_are_different_samples_of_every_class() -> None:
    rng = np.random.default_rng(0)
    y = naive.labels([10, 3, 6], rng)
    diagonal = rng.uniform(0.5, 2.0, size=len(y))
    atoms, home = start_atoms(diagonal, y, 3, 5, 4, np.random.default_rng(1))
    np.testing.assert_array_equal(home, [0] * 5 + [1] * 3 + [2] * 5)
    np.testing.assert_array_equal(atoms.counts, 1)
    assert atoms.indices.shape == (13, 4)
    samples = atoms.indices[:, 0]
    assert len(set(samples.tolist())) == 13
    np.testing.assert_array_equal(y[samples], home)
    np.testing.assert_allclose(atoms.values[:, 0] ** 2 * diagonal[samples], 1.0, rtol=1e-15)
    same, _ = start_atoms(diagonal, y, 3, 5, 4, np.random.default_rng(1))
    other, _ = start_atoms(diagonal, y, 3, 5, 4, np.random.default_rng(2))
    assert same_rows(atoms, same)
    assert not same_rows(atoms, other)


@pytest.mark.parametrize("kind", MAKERS)
def test_interpretability_is_the_share_of_the_strongest_class(kind: str) -> None:
    K, y, n_classes = problem(kind, [20, 20, 20], 4)
    fit = alternate(K, y, n_classes, ModelSpec(sparsity=5, alpha=0.05, max_iter=5), np.random.default_rng(0))
    weight = naive.one_hot(y, n_classes) @ np.abs(dense(fit)[0])
    expected = [max(weight[:, j]) / sum(weight[:, j]) for j in range(weight.shape[1])]
    found = class_interpretability(weight.T)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert ((found > 0) & (found <= 1)).all()
    assert found.min() < 1, "some atom is meant to draw from two classes"


def test_discrimination_makes_atoms_readable() -> None:
    K, y, n_classes = problem("semi-definite", [25, 25, 25], 6)

    def mean_share(alpha: float) -> float:
        fit = alternate(K, y, n_classes, ModelSpec(sparsity=5, alpha=alpha), np.random.default_rng(0))
        return float(class_interpretability((naive.one_hot(y, n_classes) @ dense(fit)[0]).T).mean())

    assert mean_share(0.0) < 0.99 < mean_share(0.5)


@pytest.fixture(scope="module")
def real_kernels(real_data: Path) -> dict[str, Problem]:
    words = SeriesSet.read(real_data / "ArticularyWordRecognition")
    some_words = words.select(np.flatnonzero(np.isin(words.labels, words.classes[:10]))[::2])
    problems = {}
    for name, data in (("utkinect", SeriesSet.read(real_data / "UTKinect")), ("words", some_words)):
        K = naive.gaussian(pairwise_dtw(data))
        problems[name] = Problem(K, np.searchsorted(data.classes, data.labels), len(data.classes))
    return problems


REAL = [("utkinect", 7, 0.1), ("utkinect", 4, 0.3), ("words", 8, 0.2), ("words", 5, 0.1)]


@pytest.mark.realdata
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("name", "sparsity", "alpha"), REAL)
def test_real_kernels_never_rise_and_stay_feasible(
    real_kernels: dict[str, Problem], name: str, sparsity: int, alpha: float, schedule: Any
) -> None:
    case = real_kernels[name]
    spec = ModelSpec(sparsity=sparsity, alpha=alpha, schedule=schedule, max_iter=10)
    assert_never_rises(case, spec, seed=0, alternations=4)
    assert_feasible(alternate(*case, spec, np.random.default_rng(0)), case.K, sparsity)


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "sparsity", "alpha"), REAL)
def test_real_kernels_end_alike_under_both_schedules(
    real_kernels: dict[str, Problem], name: str, sparsity: int, alpha: float
) -> None:
    assert abs(schedule_gap(real_kernels[name], sparsity, alpha)) < 0.005


def test_atoms_that_stay_unused_do_not_keep_training_from_ending() -> None:
    K, y, n_classes = problem("semi-definite", [50, 50, 50, 50], 0)
    spec = ModelSpec(sparsity=2, alpha=0.1, atoms_per_class=40)
    fit = alternate(K, y, n_classes, spec, np.random.default_rng(0))
    assert fit.converged
    assert fit.n_iter < 30


def test_a_perfect_reconstruction_ends_training() -> None:
    fit = alternate(np.ones((6, 6)), np.array([0, 0, 0, 1, 1, 1]), 2, ModelSpec(alpha=0.0), np.random.default_rng(0))
    assert fit.converged
    assert fit.n_iter <= 3
