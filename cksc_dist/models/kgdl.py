"""KGDL as a scikit-learn classifier; the mathematics is in `cksc_dist.maths.kgdl`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.kgdl import KgdlModel, learn_kgdl, line_codes
from cksc_dist.maths.learnt import Learnt
from cksc_dist.models.dictionary_classifier import DictionaryClassifier, shares_of_regression
from cksc_dist.spec import DistanceSpec, KernelSpec, check_choice, check_count, check_number

__all__ = ["KGDL", "KGDLSpec"]

Float = NDArray[np.float64]


@dataclass(frozen=True)
class KGDLSpec:
    """Parameters of `KGDL`, which says what they mean."""

    sparsity: int = 6
    coding: Literal["lasso", "omp"] = "lasso"
    shrinkage: float = 0.1
    atoms_per_class: int | None = None
    ridge: float = 0.1
    max_iter: int = 30
    tol: float = 5e-3

    def __post_init__(self) -> None:
        check_count("sparsity", self.sparsity)
        check_choice("coding", self.coding, ("lasso", "omp"))
        check_number("shrinkage", self.shrinkage, 0.0, 1.0, open_low=True)
        if self.atoms_per_class is not None:
            check_count("atoms_per_class", self.atoms_per_class)
            object.__setattr__(self, "atoms_per_class", int(self.atoms_per_class))
        check_number("ridge", self.ridge, 0.0, 1e6, open_low=True)
        check_count("max_iter", self.max_iter)
        check_number("tol", self.tol, 0.0, 1.0)
        for name in ("sparsity", "max_iter"):
            object.__setattr__(self, name, int(getattr(self, name)))
        for name in ("shrinkage", "ridge", "tol"):
            object.__setattr__(self, name, float(getattr(self, name)))


class KGDL(DictionaryClassifier):
    """Kernel dictionary learning on lines: samples and atoms are lines in feature space, compared by squared cosines.

    Method of M. Harandi and others, ICCV 2013, with subspaces of one dimension on a kernel. A line does not know its
    length: a kernel is brought to unit diagonal first. New samples are taken to have a self-similarity of 1, as
    Gaussian kernels have it.

    Parameters
    ----------
    sparsity
        T0: at most this many non-zeros in each code with ``coding="omp"``, and the atoms of a class unless
        ``atoms_per_class`` says otherwise.
    coding
        How samples are coded: ``"lasso"``, or ``"omp"``, orthogonal matching pursuit.
    shrinkage
        Weight of the 1-norm of codes in the lasso, in (0, 1]. A sample that it leaves without a code counts as far
        away.
    atoms_per_class
        Samples of each class that the atoms start from; None: ``sparsity``. A smaller class takes all it has.
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

    Notes
    -----
    In `explain` every atom is turned towards the sample, and the similarity is the cosine of two lines as projectors:
    the square of that of two vectors.

    Examples
    --------
    >>> from cksc_dist.io import make_gestures
    >>> from cksc_dist.models.kgdl import KGDL
    >>> data = make_gestures(n_per_class=10, random_state=1)
    >>> model = KGDL(sparsity=3, kernel="dtw", random_state=0).fit(data.series[::2], data.labels[::2])
    >>> bool(model.score(data.series[1::2], data.labels[1::2]) > 0.8)
    True
    """

    spec_type = KGDLSpec
    model_type = KgdlModel

    def __init__(
        self,
        sparsity: int = KGDLSpec.sparsity,
        coding: str = KGDLSpec.coding,
        shrinkage: float = KGDLSpec.shrinkage,
        atoms_per_class: int | None = KGDLSpec.atoms_per_class,
        ridge: float = KGDLSpec.ridge,
        max_iter: int = KGDLSpec.max_iter,
        tol: float = KGDLSpec.tol,
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
        self.coding = coding
        self.shrinkage = shrinkage
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
        self, K: Float, y: NDArray[np.int64], n_classes: int, spec: KGDLSpec, rng: np.random.Generator
    ) -> Learnt:
        settings = asdict(spec) | {"atoms_per_class": spec.atoms_per_class or spec.sparsity}
        return learn_kgdl(K, y, n_classes, rng, **settings, n_jobs=self.n_jobs)

    def _codes(self, linear: Float) -> Any:
        # as they were at fit: parameters may have been set since
        spec: KGDLSpec = self._spec
        return line_codes(self._model.gram, linear**2, spec.coding, spec.sparsity, spec.shrinkage, n_jobs=self.n_jobs)

    def _sample_weights(self, rows: NDArray[Any], codes: Any) -> Any:
        """Return U g with every atom turned towards the sample: a line has no sign."""
        signed = codes.copy()
        sample = np.repeat(np.arange(len(rows)), np.diff(codes.indptr))
        signed.data *= np.where(self._linear(rows)[sample, codes.indices] < 0, -1.0, 1.0)
        return super()._sample_weights(rows, signed)

    def _similarities(self, rows: NDArray[Any], codes: Any, weights: Any) -> Float:
        """Return the cosine of each line with what it is rebuilt as: b'a / sqrt(a'Gd a)."""
        norms = codes.multiply(codes @ self._model.gram).sum(axis=1)
        products = codes.multiply(self._linear(rows) ** 2).sum(axis=1)
        found: Float = np.divide(products, np.sqrt(norms), out=np.zeros(len(rows)), where=norms > 0)
        return found

    def _shares(self, linear: Float, codes: Any) -> Float:
        return shares_of_regression(codes @ self._model.weights.T)
