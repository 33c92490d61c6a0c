"""DistanceKernel: the Gaussian kernel of a distance matrix as a scikit-learn transformer.

What it learns (bandwidth, repair, scaling) comes from the training rows alone; the equations are in
`cksc_dist.maths.kernel` and `cksc_dist.maths.spectrum`.
"""

from __future__ import annotations

from typing import Any, Literal

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from cksc_dist.maths.kernel import bandwidth, gaussian_kernel
from cksc_dist.maths.matrix_checks import Matrix, check_distance_rows, check_distances
from cksc_dist.maths.spectrum import (
    KernelHealth,
    SpectralRepair,
    kernel_health,
    spectral_repair,
    unit_diagonal,
    unit_diagonal_rows,
)
from cksc_dist.spec import KernelSpec

__all__ = ["DistanceKernel"]


class DistanceKernel(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Turn distances into the kernel ``exp(-D^2 / (factor * bandwidth))``, with a diagonal of 1.

    Parameters
    ----------
    bandwidth
        ``"mean"``: 2 mean(D)^2; ``"median"``: 2 median(D)^2; ``"paper"``: mean(D), which depends on the unit
        of D; ``"squares"``: mean(D^2); or a number. Over all ordered pairs of training rows, diagonal included.
    factor
        Multiplies the bandwidth; worth tuning over .1, .25, .5, 1, 2.
    repair
        None: the kernel as it is. ``"clip"``: negative eigenvalues of the training kernel become 0;
        ``"flip"``: they change sign. Test rows go through the same projector, and both are scaled back to
        a diagonal of 1.

    Attributes
    ----------
    bandwidth_ : float
        What the rule gave on the training distances, without the factor.
    delta_ : float
        ``factor * bandwidth_``: the kernel is ``exp(-D^2 / delta_)``.
    n_features_in_ : int
        Number of training samples, which is the number of columns that `transform` needs.
    spectral_repair_ : SpectralRepair or None
        The repair learnt on the training kernel; None without repair.

    Examples
    --------
    >>> import numpy as np
    >>> from cksc_dist.models.distance_kernel import DistanceKernel
    >>> x = np.array([0.0, 1.0, 3.0])
    >>> D_train, D_test = abs(x[:, None] - x), abs(np.array([[2.0]]) - x)
    >>> kernel = DistanceKernel(bandwidth="mean", factor=0.5)
    >>> K_train = kernel.fit_transform(D_train)
    >>> kernel.transform(D_test).shape, K_train.diagonal().tolist()
    ((1, 3), [1.0, 1.0, 1.0])
    """

    bandwidth_: float
    delta_: float
    n_features_in_: int
    spectral_repair_: SpectralRepair | None

    def __init__(
        self,
        bandwidth: str | float = KernelSpec.bandwidth,
        factor: float = KernelSpec.factor,
        repair: Literal["clip", "flip"] | None = KernelSpec.repair,
    ) -> None:
        self.bandwidth = bandwidth
        self.factor = factor
        self.repair = repair

    def fit(self, D: Any, y: Any = None) -> DistanceKernel:
        """Learn bandwidth and repair from the square distances of the training samples; y is not used."""
        self._learn(D)
        return self

    def fit_transform(self, D: Any, y: Any = None) -> Matrix:
        """Learn from the square distances of the training samples and return their kernel, (n, n)."""
        distances, repaired = self._learn(D)
        return gaussian_kernel(distances, self.delta_) if repaired is None else unit_diagonal(repaired)

    def transform(self, D: Any) -> Matrix:
        """Return the kernel of new samples with the training samples.

        Parameters
        ----------
        D
            Distances of the new samples to all training samples, (n_test, n_train). A square D is nothing
            special: nothing is learnt here.
        """
        check_is_fitted(self)
        K = gaussian_kernel(check_distance_rows(D, self.n_features_in_), self.delta_)
        repair = self.spectral_repair_
        if repair is None:
            return K
        return unit_diagonal_rows(repair.rows(K), repair.self_similarity(K), repair.own_train)

    def health(self, D: Any) -> KernelHealth:
        """Return the health of the kernel of the training distances D, as it is before any repair.

        D is asked for again because the transformer keeps no n x n matrix; the cost is O(n^3).
        """
        check_is_fitted(self)
        return kernel_health(gaussian_kernel(check_distances(D), self.delta_))

    def _learn(self, D: Any) -> tuple[Matrix, Matrix | None]:
        """Set what is learnt; return the checked distances and, where there is one, the repaired kernel."""
        spec = KernelSpec(self.bandwidth, self.factor, self.repair)
        distances = check_distances(D)
        self.bandwidth_ = bandwidth(distances, spec.bandwidth)
        self.delta_ = spec.factor * self.bandwidth_
        self.n_features_in_ = len(distances)
        if spec.repair is None:
            self.spectral_repair_ = None
            return distances, None
        repaired, self.spectral_repair_ = spectral_repair(gaussian_kernel(distances, self.delta_), spec.repair)
        return distances, repaired

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # cross-validation then cuts rows and columns alike
        tags.input_tags.pairwise = True
        tags.input_tags.positive_only = True
        return tags
