"""K in memory and K in strips: the same bits for everything that training asks of it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from cksc_dist.maths.cksc import State, alternate
from cksc_dist.maths.gram import MemoryGram, StripGram
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.spec import ModelSpec


class ArrayStrips:
    """Strips of an array, and a count of what is read."""

    def __init__(self, K: NDArray[Any], height: int) -> None:
        self.K, self.height, self.strips_read, self.rows_read = K, height, 0, 0
        self.diagonal = np.diagonal(K).astype(np.float64)

    @property
    def edges(self) -> list[tuple[int, int]]:
        return [(a, min(a + self.height, len(self.K))) for a in range(0, len(self.K), self.height)]

    def strip(self, begin: int, end: int) -> NDArray[Any]:
        self.strips_read += 1
        return self.K[begin:end].copy()

    def row(self, i: int) -> NDArray[Any]:
        self.rows_read += 1
        return self.K[i].copy()


def made(n: int = 150, classes: int = 4, seed: int = 0, dtype: Any = np.float32) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, classes, n))
    y[:classes] = np.arange(classes)
    points = rng.standard_normal((n, 3)) + 2.0 * rng.standard_normal((classes, 3))[y]
    D = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    D = np.triu(D, 1) + np.triu(D, 1).T
    return np.exp(-(D**2) / 4.0).astype(dtype), y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("height", [1, 7, 64, 100, 1000])
@pytest.mark.parametrize("n_jobs", [None, 2])
def test_passes_over_strips_have_the_bits_of_memory(height: int, dtype: Any, n_jobs: int | None) -> None:
    K, _ = made(dtype=dtype)
    memory, strips = MemoryGram(K, n_jobs), StripGram(ArrayStrips(K, height), n_jobs)
    rng = np.random.default_rng(1)
    V = rng.standard_normal((len(K), 5))
    W = sparse.csr_array(sparse.random(9, len(K), density=0.2, random_state=2))
    W.sort_indices()
    assert np.array_equal(memory.product(V), strips.product(V))
    assert np.allclose(strips.product(V), K.astype(np.float64) @ V, rtol=1e-12)
    assert np.array_equal(memory.weighted_rows(W), strips.weighted_rows(W))
    assert np.allclose(strips.weighted_rows(W), W @ K.astype(np.float64), rtol=1e-12)
    atoms = SparseRows.from_csr(W[:, :], int(np.diff(W.indptr).max()))
    assert np.array_equal(memory.combine(atoms), strips.combine(atoms))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("selection", ["plain", "scaled"])
def test_atoms_from_single_rows_have_the_bits_of_memory(seed: int, selection: Any) -> None:
    K, _ = made(seed=seed)
    reader = ArrayStrips(K, 50)
    spec = ModelSpec(sparsity=5, selection=selection)
    linear = np.random.default_rng(seed).standard_normal((6, len(K)))
    expected, images = MemoryGram(K).solve_atoms(linear, 0.3, spec)
    found, found_images = StripGram(reader, 2).solve_atoms(linear, 0.3, spec)
    for name in expected._fields:
        assert np.array_equal(getattr(expected, name), getattr(found, name)), name
    assert np.array_equal(images, found_images)
    assert reader.strips_read == 0
    assert reader.rows_read <= 6 * 8  # one fetch a pick, and few picks are refused


def arrays_of(result: Any) -> list[NDArray[Any]]:
    return [*result.atoms, *result.codes, result.history, result.KU, np.array([result.beta, result.n_iter])]


@pytest.mark.parametrize("schedule", ["interleaved", "sequential"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_on_strips_has_the_bits_of_one_in_memory(schedule: Any, dtype: Any) -> None:
    K, y = made(dtype=dtype)
    spec = ModelSpec(sparsity=4, schedule=schedule, max_iter=6)
    fits = [
        alternate(gram, y, 4, spec, np.random.default_rng(3), n_jobs)
        for gram, n_jobs in (
            (K, 1),
            (K, 2),
            (StripGram(ArrayStrips(K, 64)), 1),
            (StripGram(ArrayStrips(K, 33), 2), 2),
        )
    ]
    for fit in fits[1:]:
        for one, other in zip(arrays_of(fits[0]), arrays_of(fit), strict=True):
            assert np.array_equal(one, other)


def test_an_alternation_reads_k_once_and_a_code_pass_not_at_all() -> None:
    K, y = made()
    reader = ArrayStrips(K, 64)
    spec = ModelSpec(sparsity=4, max_iter=3, tol=0.0)
    seen: list[tuple[str, int, int]] = []
    alternate(
        StripGram(reader),
        y,
        4,
        spec,
        np.random.default_rng(0),
        beta=0.5,
        on_half_step=lambda step, now: seen.append((step, reader.strips_read, reader.rows_read)),
    )
    strips = len(reader.edges)
    for (_, before, rows), (step, after, rows_after) in itertools.pairwise(seen):
        assert after - before == (strips if step == "atoms" else 0)
        assert rows_after - rows <= (16 * 4 * 1.5 if step == "atoms" else 0)


@pytest.mark.parametrize("stop", [1, 2, 4])
def test_training_goes_on_from_any_alternation_with_the_same_bits(stop: int) -> None:
    K, y = made(seed=5)
    spec = ModelSpec(sparsity=4, max_iter=6, tol=0.0)
    states: list[State] = []
    whole = alternate(K, y, 4, spec, np.random.default_rng(0), on_alternation=states.append)
    rest: list[State] = []
    resumed = alternate(K, y, 4, spec, np.random.default_rng(99), state=states[stop - 1], on_alternation=rest.append)
    assert len(states) == 6
    assert [state.n_iter for state in rest] == list(range(stop + 1, 7))
    for one, other in zip(arrays_of(whole), arrays_of(resumed), strict=True):
        assert np.array_equal(one, other)


def test_a_converged_state_is_not_trained_further() -> None:
    K, y = made()
    states: list[State] = []
    fit = alternate(K, y, 4, ModelSpec(sparsity=4), np.random.default_rng(0), on_alternation=states.append)
    again = alternate(K, y, 4, ModelSpec(sparsity=4), np.random.default_rng(0), state=states[-1])
    assert states[-1].converged
    assert fit.converged
    for one, other in zip(arrays_of(fit), arrays_of(again), strict=True):
        assert np.array_equal(one, other)
