"""The ridge against dense eigenvalues: an upper bound, tight, within Weyl's, the same each time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from threadpoolctl import threadpool_info, threadpool_limits

from cksc_dist.maths.kernel_product import kernel_product
from cksc_dist.maths.ridge import ROUNDING, Ridge, other_class_sums, ridge
from tests import naive_cksc as naive

Float = NDArray[np.float64]
Index = NDArray[np.int64]

ALPHAS = (0.0, 1e-3, 0.1, 0.3, 1.0)


def noisy_signed_kernel(y: Index, rng: np.random.Generator) -> Float:
    return naive.signed_kernel(y, rng, noise=0.2)


MAKERS: dict[str, Callable[[Index, np.random.Generator], Float]] = {
    "semi-definite": naive.class_kernel,
    "indefinite": naive.indefinite_kernel,
    "negative entries": naive.signed_kernel,
    "negative entries, indefinite": noisy_signed_kernel,
    "duplicates": naive.duplicated_kernel,
    "uneven diagonal": naive.uneven_kernel,
}


class Case(NamedTuple):
    K: Float
    y: Index
    n_classes: int

    @property
    def M(self) -> Float:
        return naive.other_class(self.y, self.n_classes)

    def ridge(self, alpha: float, max_passes: int = 40) -> Ridge:
        return ridge(kernel_product(self.K), self.y, self.n_classes, alpha, max_passes=max_passes)

    def exact(self, alpha: float) -> float:
        return naive.least_ridge(self.K, self.M, alpha)

    def weyl(self, alpha: float) -> float:
        least = float(np.linalg.eigvalsh(self.K)[0])
        return alpha * int(np.bincount(self.y).max()) + max(0.0, -least)


def make(kind: str, sizes: list[int], seed: int) -> Case:
    rng = np.random.default_rng(seed)
    y = naive.labels(sizes, rng)
    return Case(MAKERS[kind](y, rng), y, len(sizes))


def assert_tight_upper_bound(found: float, exact: float) -> None:
    # a K that is semi-definite but for ROUNDING gets no ridge of its own
    assert found >= exact - (ROUNDING if exact <= ROUNDING else 1e-12 * exact)
    assert found <= exact * (1 + 1e-4) + 1e-3


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", MAKERS)
def test_ridge_is_a_tight_upper_bound(kind: str, alpha: float) -> None:
    for seed, sizes in enumerate(([60, 50, 40, 30], [25] * 8, [100, 3, 7])):
        case = make(kind, sizes, seed)
        found = case.ridge(alpha)
        assert_tight_upper_bound(found.beta, case.exact(alpha))
        assert found.beta <= case.weyl(alpha) * (1 + 1e-4) + 1e-3
        for matrix in (case.K, case.K + alpha * case.M):
            least = np.linalg.eigvalsh(matrix + found.beta * np.eye(len(case.y)))[0]
            assert least >= -ROUNDING
        assert 1 <= found.passes <= 40


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(sorted(MAKERS)),
    sizes=st.lists(st.integers(2, 9), min_size=2, max_size=5),
    alpha=st.sampled_from(ALPHAS),
    seed=st.integers(0, 2**16),
)
def test_ridge_of_small_kernels(kind: str, sizes: list[int], alpha: float, seed: int) -> None:
    case = make(kind, sizes, seed)
    assert_tight_upper_bound(case.ridge(alpha).beta, case.exact(alpha))


@pytest.mark.parametrize("kind", ["semi-definite", "negative entries", "duplicates", "uneven diagonal"])
def test_semi_definite_kernel_without_discrimination_needs_no_ridge(kind: str) -> None:
    assert 0.0 <= make(kind, [60, 50, 40], 3).ridge(0.0).beta <= 1e-3


def test_kernel_alone_decides_where_it_is_the_more_negative() -> None:
    case = make("indefinite", [60, 60], 0)
    K_alone = -float(np.linalg.eigvalsh(case.K)[0])
    found = case.ridge(1e-3)
    assert found.beta >= K_alone * (1 - 1e-12)
    assert -found.least_kernel == pytest.approx(K_alone, rel=1e-4)


@pytest.mark.parametrize("n_per_class", [20, 50, 100])
def test_a_negative_direction_that_the_classes_hide_is_found(n_per_class: int) -> None:
    # the class indicators span an invariant space, whose eigenvalue settles at once; the least is elsewhere
    y = np.repeat(np.array([0, 1]), n_per_class)
    n = len(y)
    hidden = np.tile([1.0, -1.0], n_per_class) / np.sqrt(n)
    K = np.eye(n) - 7.0 * np.outer(hidden, hidden)
    K /= K[0, 0]
    case = Case(K, y, 2)
    alpha = 5.0 / n_per_class
    assert case.exact(alpha) == pytest.approx(6.0 / (1 - 7.0 / n))
    assert_tight_upper_bound(case.ridge(alpha).beta, case.exact(alpha))


@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0])
@pytest.mark.parametrize("kind", ["semi-definite", "indefinite", "duplicates"])
def test_three_passes_already_give_an_upper_bound_within_weyls(kind: str, alpha: float) -> None:
    for seed in range(3):
        case = make(kind, [60, 50, 40, 30], seed)
        found = case.ridge(alpha, max_passes=3)
        assert found.passes <= 3
        assert case.exact(alpha) <= found.beta <= case.weyl(alpha)


@pytest.mark.parametrize("max_passes", [1, 2, 3, 40])
@pytest.mark.parametrize("kind", MAKERS)
def test_never_above_weyls_bound_of_its_own_estimate(kind: str, max_passes: int) -> None:
    case = make(kind, [30, 20, 10], 1)
    for alpha in ALPHAS:
        found = case.ridge(alpha, max_passes=max_passes)
        assert 0.0 <= found.beta <= (alpha * 30 + max(0.0, -found.least_kernel)) * (1 + 1e-8)


def test_passes_are_the_products_that_were_asked_for() -> None:
    case = make("indefinite", [40, 40, 20], 0)
    product = kernel_product(case.K)
    calls = 0

    def counted(V: Float) -> Float:
        nonlocal calls
        calls += 1
        return product(V)

    for alpha, max_passes in ((0.0, 40), (0.1, 40), (0.1, 2), (1.0, 40)):
        calls = 0
        assert ridge(counted, case.y, 3, alpha, max_passes=max_passes).passes == calls <= max_passes


def test_same_value_each_time_and_for_any_number_of_threads() -> None:
    case = make("indefinite", [60, 50, 40], 2)
    values = [ridge(kernel_product(case.K.copy(), n_jobs), case.y, 3, 0.1) for n_jobs in (None, 1, 2, 2)]
    assert len(set(values)) == 1


def test_float32_kernel_has_the_ridge_of_its_values() -> None:
    case = make("indefinite", [40, 40], 1)
    narrow = case.K.astype(np.float32)
    found = ridge(kernel_product(narrow), case.y, 2, 0.1)
    assert_tight_upper_bound(found.beta, case._replace(K=narrow.astype(np.float64)).exact(0.1))


@pytest.mark.parametrize("width", [1, 5])
def test_products_are_dense_products(width: int) -> None:
    case = make("indefinite", [70, 50, 30], 1)
    V = np.random.default_rng(0).normal(size=(150, width))
    np.testing.assert_allclose(kernel_product(case.K)(V), case.K @ V, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(other_class_sums(V, case.y, 3), case.M @ V, rtol=1e-12, atol=1e-12)
    bits = {kernel_product(case.K, n_jobs)(V).tobytes() for n_jobs in (None, 1, 2, 3)}
    assert len(bits) == 1


@pytest.mark.parametrize("scale", [1e-4, 1e3])
@pytest.mark.parametrize("alpha", [0.0, 0.2])
def test_the_ridge_scales_with_the_kernel(scale: float, alpha: float) -> None:
    case = make("indefinite", [40, 40, 40], 1)
    one = ridge(kernel_product(case.K), case.y, 3, alpha, diagonal=1.0).beta
    other = ridge(kernel_product(scale * case.K), case.y, 3, scale * alpha, diagonal=scale).beta
    assert one > 0
    assert other == pytest.approx(scale * one, rel=1e-6)


def test_blas_threads_are_restored_when_several_search_at_once() -> None:
    def limits() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    case = make("indefinite", [60, 60], 0)
    with threadpool_limits(limits=2, user_api="blas"):
        before = limits()
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: case.ridge(0.2).beta, range(12)))
        assert limits() == before
    assert len(set(found)) == 1
