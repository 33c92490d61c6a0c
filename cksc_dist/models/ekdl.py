"""EKDL as a scikit-learn classifier; the mathematics is in `cksc_dist.maths.ekdl`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.ekdl import EkdlModel, learn_ekdl
from cksc_dist.maths.learnt import Learnt
from cksc_dist.maths.omp import omp_codes
from cksc_dist.models.dictionary_classifier import DictionaryClassifier, shares_of_regression
from cksc_dist.spec import DistanceSpec, KernelSpec, check_count, check_number

__all__ = ["EKDL", "EKDLSpec"]

Float = NDArray[np.float64]


@dataclass(frozen=True)
class EKDLSpec:
    """Parameters of `EKDL`, which says what they mean."""

    sparsity: int = 6
    coherence: float = 0.1
    label_weight: float = 0.1
    atoms_per_class: int | None = None
    ridge: float = 0.1
    max_iter: int = 30
    tol: float = 5e-3

    def __post_init__(self) -> None:
        check_count("sparsity", self.sparsity)
        check_number("coherence", self.coherence, 0.0, 0.95)
        check_number("label_weight", self.label_weight, 0.0, 1e6)
        if self.atoms_per_class is not None:
            check_count("atoms_per_class", self.atoms_per_class)
            object.__setattr__(self, "atoms_per_class", int(self.atoms_per_class))
        check_number("ridge", self.ridge, 0.0, 1e6, open_low=True)
        check_count("max_iter", self.max_iter)
        check_number("tol", self.tol, 0.0, 1.0)
        for name in ("sparsity", "max_iter"):
            object.__setattr__(self, name, int(getattr(self, name)))
        for name in ("coherence", "label_weight", "ridge", "tol"):
            object.__setattr__(self, name, float(getattr(self, name)))


class EKDL(DictionaryClassifier):
    """Equiangular kernel dictionary learning: every two atoms have the same cosine.

    A reconstruction: Y. Quan, C. Bao and H. Ji (CVPR 2016) do not settle how their dictionary is kept on a Gram matrix;
    here it has a closed form in the eigenbasis of the kernel (`cksc_dist.maths.ekdl`).

    Parameters
    ----------
    sparsity
        T0: at most this many non-zeros in each code.
    coherence
        mu, the cosine of any two atoms, in [0, 0.95].
    label_weight
        a, the weight of rebuilding the labels while training, at least 0.
    atoms_per_class
        Samples of each class that the atoms start near; None: ``sparsity``. A smaller class takes all it has, and the
        atoms are at most as many as the kernel has eigenvalues above 1e-10 of the largest.
    ridge
        Of the regression of labels on codes.
    max_iter, tol
        At most so many alternations; stop once J changes by less than ``tol``, relatively.
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
        What is done about negative eigenvalues of the kernel: ``"clip"``, ``"flip"`` or None.
    gamma
        For ``kernel="rbf"``: ``exp(-gamma |x - z|^2)``; None: 1 / (2 mean(|x - z|)^2) over training pairs.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    dictionary_ : csc_array of shape (n, k)
        U; atom j is the combination of training samples in column j, of either sign.
    codes_ : csr_array of shape (n, k)
        Codes of the training samples.
    n_iter_ : int
        Alternations.
    objective_history_ : ndarray
        J after every half step; it never rises.
    interpretability_ : ndarray of shape (k,)
        IP of each atom: the share of its weight in its strongest class.
    support_ : ndarray
        The training samples that carry weight.
    n_train_ : int
        Number of training samples.

    Examples
    --------
    >>> from cksc_dist.io import make_gestures
    >>> from cksc_dist.models.ekdl import EKDL
    >>> data = make_gestures(n_per_class=10, random_state=1)
    >>> model = EKDL(sparsity=3, kernel="dtw", random_state=0).fit(data.series[::2], data.labels[::2])
    >>> bool(model.score(data.series[1::2], data.labels[1::2]) > 0.8)
    True
    """

    spec_type = EKDLSpec
    model_type = EkdlModel

    def __init__(
        self,
        sparsity: int = EKDLSpec.sparsity,
        coherence: float = EKDLSpec.coherence,
        label_weight: float = EKDLSpec.label_weight,
        atoms_per_class: int | None = EKDLSpec.atoms_per_class,
        ridge: float = EKDLSpec.ridge,
        max_iter: int = EKDLSpec.max_iter,
        tol: float = EKDLSpec.tol,
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
        self.coherence = coherence
        self.label_weight = label_weight
        self.atoms_per_class = atoms_per_class
        self.ridge = ridge
        self.max_iter = max_iter
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

    def _learn(
        self, K: Float, y: NDArray[np.int64], n_classes: int, spec: EKDLSpec, rng: np.random.Generator
    ) -> Learnt:
        settings = asdict(spec) | {"atoms_per_class": spec.atoms_per_class or spec.sparsity}
        return learn_ekdl(K, y, n_classes, rng, **settings, n_jobs=self.n_jobs)

    def _codes(self, linear: Float) -> Any:
        # as it was at fit: parameters may have been set since
        model: EkdlModel = self._model
        return omp_codes(model.gram, linear, self._spec.sparsity, n_jobs=self.n_jobs).csr(len(model.gram))

    def _shares(self, linear: Float, codes: Any) -> Float:
        return shares_of_regression(codes @ self._model.weights.T)
