"""K-KSVD as a scikit-learn classifier: kernel K-SVD, and the class that rebuilds a sample best.

A thin shell: the mathematics is in `cksc_dist.maths.kksvd`.
Method of H. Van Nguyen, V. Patel, N. Nasrabadi, R. Chellappa, Design of non-linear kernel dictionaries for object
recognition, IEEE TIP 2013.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths.kksvd import CLASSIFIERS, KKSVDModel, class_residuals, recall, train
from cksc_dist.maths.learnt import Learnt
from cksc_dist.models.dictionary_classifier import DictionaryClassifier, shares_of_residuals
from cksc_dist.spec import DistanceSpec, KernelSpec, check_choice, check_count, check_number

__all__ = ["KKSVD", "KKSVDSpec"]

Float = NDArray[np.float64]


@dataclass(frozen=True)
class KKSVDSpec:
    """Parameters of K-KSVD (`cksc_dist.maths.kksvd`); `KKSVD` says what they mean."""

    sparsity: int = 6
    classifier: Literal["distributive", "collective"] = "distributive"
    atoms_per_class: int | None = None
    max_iter: int = 20
    tol: float = 1e-4

    def __post_init__(self) -> None:
        check_count("sparsity", self.sparsity)
        check_choice("classifier", self.classifier, CLASSIFIERS)
        if self.atoms_per_class is not None:
            check_count("atoms_per_class", self.atoms_per_class)
            object.__setattr__(self, "atoms_per_class", int(self.atoms_per_class))
        check_count("max_iter", self.max_iter)
        check_number("tol", self.tol, 0.0, 1.0)
        # plain numbers, so that NumPy's are saved alike
        object.__setattr__(self, "sparsity", int(self.sparsity))
        object.__setattr__(self, "max_iter", int(self.max_iter))
        object.__setattr__(self, "tol", float(self.tol))


class KKSVD(DictionaryClassifier):
    """Kernel K-SVD: signed, dense dictionaries on a kernel; the label is the class that rebuilds a sample best.

    Parameters
    ----------
    sparsity
        T0: at most this many non-zeros in each code.
    classifier
        ``"distributive"``: one dictionary for each class, a sample is coded on each. ``"collective"``: one dictionary
        for all classes, a sample is coded once, and rebuilt by the atoms of each class alone; an atom belongs to the
        class that has the largest share of its weights.
    atoms_per_class
        Atoms that each class starts with; None: ``sparsity``. A smaller class takes all it has.
    max_iter, tol
        At most so many alternations; stop once J changes by less than ``tol``, relatively. With one dictionary for
        each class, each stops by itself.
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
    classes_, dictionary_, codes_, n_iter_, interpretability_, support_, n_train_
        As `CKSC` has them; dictionary and codes are signed, atoms dense.
    objective_history_ : ndarray
        J after every half step, summed over the dictionaries; it never rises.

    Notes
    -----
    Class shares are in proportion to the inverse squared residuals. With ``"distributive"``, `transform` and `explain`
    show the code on the dictionary of the class that fits best. Kernel rows do not tell the self-similarity of a new
    sample; it is taken to be that of the training samples on average, which the label does not depend on.

    Examples
    --------
    >>> from cksc_dist.io import make_gestures
    >>> from cksc_dist.models.kksvd import KKSVD
    >>> data = make_gestures(n_per_class=10, random_state=1)
    >>> model = KKSVD(sparsity=3, kernel="dtw", random_state=0).fit(data.series[::2], data.labels[::2])
    >>> bool(model.score(data.series[1::2], data.labels[1::2]) > 0.8)
    True
    """

    spec_type = KKSVDSpec
    model_type = KKSVDModel

    def __init__(
        self,
        sparsity: int = KKSVDSpec.sparsity,
        classifier: str = KKSVDSpec.classifier,
        atoms_per_class: int | None = KKSVDSpec.atoms_per_class,
        max_iter: int = KKSVDSpec.max_iter,
        tol: float = KKSVDSpec.tol,
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
        self.classifier = classifier
        self.atoms_per_class = atoms_per_class
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
        self, K: Float, y: NDArray[np.int64], n_classes: int, spec: KKSVDSpec, rng: np.random.Generator
    ) -> Learnt:
        return train(
            K,
            y,
            n_classes,
            sparsity=spec.sparsity,
            classifier=spec.classifier,
            per_class=spec.sparsity if spec.atoms_per_class is None else spec.atoms_per_class,
            max_iter=spec.max_iter,
            tol=spec.tol,
            rng=rng,
            n_jobs=self.n_jobs,
        )

    def _codes(self, linear: Float) -> Any:
        spec = self._spec  # as they were at fit: parameters may have been set since
        return recall(self._model, linear, len(self.classes_), spec.sparsity, spec.classifier, self.n_jobs)

    def _shares(self, linear: Float, codes: Any) -> Float:
        spec = self._spec
        return shares_of_residuals(
            class_residuals(self._model, linear, len(self.classes_), spec.sparsity, spec.classifier, self.n_jobs)
        )
