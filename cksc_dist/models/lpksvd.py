"""LP-KSVD as a scikit-learn classifier: dictionary and linear classifier learnt together on kernel columns.

A thin shell: the mathematics is in `cksc_dist.maths.lpksvd`.
Method of W. Liu, Z. Yu, M. Yang, L. Lu, Y. Zou, Joint kernel dictionary and classifier learning for sparse coding via
locality preserving K-SVD, IEEE ICME 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.kernel_product import Columns
from cksc_dist.maths.learnt import Learnt
from cksc_dist.maths.lpksvd import LPKSVDModel, recall, train
from cksc_dist.models.dictionary_classifier import DictionaryClassifier, shares_of_regression
from cksc_dist.spec import DistanceSpec, KernelSpec, check_count, check_number

__all__ = ["LPKSVD", "LPKSVDSpec"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class LPKSVDSpec:
    """Parameters of LP-KSVD (`cksc_dist.maths.lpksvd`); `LPKSVD` says what they mean."""

    sparsity: int = 6
    neighbours: int = 5
    locality: float = 0.1
    label_weight: float = 1.0
    atoms_per_class: int | None = None
    max_iter: int = 10
    outer: int = 3
    tol: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("sparsity", "neighbours", "max_iter", "outer"):
            check_count(name, getattr(self, name))
        check_number("locality", self.locality, 0.0, 1e6)
        check_number("label_weight", self.label_weight, 0.0, 1e6)
        if self.atoms_per_class is not None:
            check_count("atoms_per_class", self.atoms_per_class)
            object.__setattr__(self, "atoms_per_class", int(self.atoms_per_class))
        check_number("tol", self.tol, 0.0, 1.0)
        # plain numbers, so that NumPy's are saved alike
        for name in ("sparsity", "neighbours", "max_iter", "outer"):
            object.__setattr__(self, name, int(getattr(self, name)))
        for name in ("locality", "label_weight", "tol"):
            object.__setattr__(self, name, float(getattr(self, name)))


class LPKSVD(DictionaryClassifier):
    """Locality-preserving K-SVD: one dictionary on the columns of the kernel, and a linear classifier of its codes.

    A reconstruction in one point: how near an atom is to a sample is measured by the angle between the two, whatever
    the sign of the atom.

    Parameters
    ----------
    sparsity
        T0: at most this many non-zeros in each code.
    neighbours
        p: how many atoms near it each sample is asked to use.
    locality
        a: weight of that, >= 0.
    label_weight
        b: weight of the labels, >= 0.
    atoms_per_class
        Atoms that each class starts with; None: ``sparsity``. A smaller class takes all it has.
    max_iter, tol
        At most so many alternations in a pass; a pass ends once J changes by less than ``tol``, relatively.
    outer
        At most so many passes, from one to the next of which it is looked up again which atoms are near; they end when
        that stays as it is.
    kernel
        ``"precomputed"``: fit takes the kernel (n, n), predict takes (n_test, n). ``"dtw"``: both take raw
        series (a list of (time, dims) arrays, an array (n, time, dims), a `SeriesSet`). ``"rbf"``: vectors.
    random_state
        Draws the samples that the atoms start from.
    n_jobs
        Threads; None is 1, -1 all cores. The result does not depend on it.
    mode, window, cost, normalise, per_length
        For ``kernel="dtw"``: the distance, as in `pairwise_dtw`.
    bandwidth, factor
        For ``kernel="dtw"``: the kernel, as in `DistanceKernel`.
    repair
        What is done about negative eigenvalues of the kernel; this method needs it to have none.
    gamma
        For ``kernel="rbf"``: ``exp(-gamma |x - z|^2)``; None: 1 / (2 mean(|x - z|)^2) over training pairs.

    Attributes
    ----------
    classes_, dictionary_, codes_, n_iter_, interpretability_, n_train_
        As `CKSC` has them; dictionary and codes are signed, atoms dense. ``n_iter_`` counts the alternations of all
        passes.
    objective_history_ : ndarray
        J after every half step; within a pass it never rises.
    passes_ : ndarray
        Where in the history each pass begins.
    support_ : ndarray
        All training samples: the whole kernel row of a sample is what is coded.

    Examples
    --------
    >>> from cksc_dist.io import make_gestures
    >>> from cksc_dist.models.lpksvd import LPKSVD
    >>> data = make_gestures(n_per_class=10, random_state=1)
    >>> model = LPKSVD(sparsity=3, kernel="dtw", tol=0.01, random_state=0).fit(data.series[::2], data.labels[::2])
    >>> bool(model.score(data.series[1::2], data.labels[1::2]) > 0.8)
    True
    """

    spec_type = LPKSVDSpec
    model_type = LPKSVDModel

    def __init__(
        self,
        sparsity: int = LPKSVDSpec.sparsity,
        neighbours: int = LPKSVDSpec.neighbours,
        locality: float = LPKSVDSpec.locality,
        label_weight: float = LPKSVDSpec.label_weight,
        atoms_per_class: int | None = LPKSVDSpec.atoms_per_class,
        max_iter: int = LPKSVDSpec.max_iter,
        outer: int = LPKSVDSpec.outer,
        tol: float = LPKSVDSpec.tol,
        kernel: str = "precomputed",
        random_state: Any = None,
        n_jobs: int | None = None,
        *,
        mode: str = DistanceSpec.mode,
        window: int | float | None = DistanceSpec.window,
        cost: str = DistanceSpec.cost,
        normalise: str | None = DistanceSpec.normalise,
        per_length: bool = DistanceSpec.per_length,
        bandwidth: str | float = KernelSpec.bandwidth,
        factor: float = KernelSpec.factor,
        repair: str | None = "clip",
        gamma: float | None = None,
    ) -> None:
        self.sparsity = sparsity
        self.neighbours = neighbours
        self.locality = locality
        self.label_weight = label_weight
        self.atoms_per_class = atoms_per_class
        self.max_iter = max_iter
        self.outer = outer
        self.tol = tol
        self.kernel = kernel
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.mode = mode
        self.window = window
        self.cost = cost
        self.normalise = normalise
        self.per_length = per_length
        self.bandwidth = bandwidth
        self.factor = factor
        self.repair = repair
        self.gamma = gamma

    @property
    def passes_(self) -> Index:
        """Where in the history each pass begins."""
        passes: Index = self._model.passes
        return passes

    def _learn(self, K: Float, y: Index, n_classes: int, spec: LPKSVDSpec, rng: np.random.Generator) -> Learnt:
        return train(
            K,
            y,
            n_classes,
            sparsity=spec.sparsity,
            neighbours=spec.neighbours,
            locality=spec.locality,
            label_weight=spec.label_weight,
            per_class=spec.sparsity if spec.atoms_per_class is None else spec.atoms_per_class,
            max_iter=spec.max_iter,
            outer=spec.outer,
            tol=spec.tol,
            rng=rng,
            n_jobs=self.n_jobs,
        )

    def _carriers(self) -> Index:
        # D'k_z looks at every entry of a kernel row, also where no atom has weight
        return np.arange(self.n_train_)

    def _set_model(self, model: LPKSVDModel, gram: Float) -> None:
        super()._set_model(model, gram)
        self._weights = Columns.of(model.images)  # samples are coded by k_z'D, not by k_z'U

    def _codes(self, linear: Float) -> Any:
        # as they were at fit: parameters may have been set since
        return recall(self._model, linear, self._spec.sparsity, self.n_jobs)

    def _shares(self, linear: Float, codes: Any) -> Float:
        return shares_of_regression(codes @ self._model.weights)
