"""LCNNKSC: label-consistent non-negative kernel sparse coding as a scikit-learn classifier.

The mathematics is in `cksc_dist.maths.lcnnksc`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cksc_dist.maths import lcnnksc
from cksc_dist.maths.learnt import Learnt
from cksc_dist.models.dictionary_classifier import DictionaryClassifier, shares_of_residuals
from cksc_dist.spec import DistanceSpec, KernelSpec, check_choice, check_count, check_number

__all__ = ["LCNNKSC", "LCNNKSCSpec"]

Float = NDArray[np.float64]

DECISIONS = ("one", "argmax")


@dataclass(frozen=True)
class LCNNKSCSpec:
    """Parameters of LC-NNKSC (`cksc_dist.maths.lcnnksc`).

    Parameters
    ----------
    sparsity
        T0: at most this many non-zeros in each code and in each atom.
    label_weight
        b: weight of the label term.
    locality
        gamma: weight of the term that makes an atom of samples that are close to each other.
    decision
        ``"one"``: the class whose score is closest to 1, as the authors do; ``"argmax"``: of the largest score.
    atoms_per_class
        Atoms that each class starts with; None: T0.
    max_iter, tol
        At most so many alternations; stop once J changes by less than tol, relatively.
    """

    sparsity: int = 6
    label_weight: float = 0.1
    locality: float = 0.1
    decision: Literal["one", "argmax"] = "one"
    atoms_per_class: int | None = None
    max_iter: int = 20
    tol: float = 1e-4

    def __post_init__(self) -> None:
        check_count("sparsity", self.sparsity)
        check_number("label_weight", self.label_weight, 0.0, 1e6)
        check_number("locality", self.locality, 0.0, 1e6)
        check_choice("decision", self.decision, DECISIONS)
        if self.atoms_per_class is not None:
            check_count("atoms_per_class", self.atoms_per_class)
            object.__setattr__(self, "atoms_per_class", int(self.atoms_per_class))
        check_count("max_iter", self.max_iter)
        check_number("tol", self.tol, 0.0, 1.0)
        for name in ("sparsity", "max_iter"):
            object.__setattr__(self, name, int(getattr(self, name)))
        for name in ("label_weight", "locality", "tol"):
            object.__setattr__(self, name, float(getattr(self, name)))


class LCNNKSC(DictionaryClassifier):
    """Label-consistent non-negative kernel sparse coding: atoms of one class each, drawn to the labels.

    Of B. Hosseini, F. Huelsmann, M. Botsch and B. Hammer (ICANN 2016). A sample is rebuilt from a few atoms, none with
    a negative weight, and an atom from a few training samples of one class. With ``decision="argmax"`` a class share
    is the share of the weight that lies in the class; with ``"one"`` it is in inverse proportion to the squared
    distance of that weight to 1.

    Parameters
    ----------
    sparsity
        T0: at most this many non-zeros in each code and each atom.
    label_weight
        b: weight of the label term, >= 0.
    locality
        gamma: weight of the term that makes an atom of samples that are close to each other, >= 0.
    decision
        ``"one"``: the class whose score is closest to 1, as the authors do; ``"argmax"``: of the largest score.
    atoms_per_class
        Atoms that each class starts with; None: ``sparsity``. A smaller class takes all it has.
    max_iter, tol
        At most so many alternations; stop once J changes by less than ``tol``, relatively.
    kernel
        ``"precomputed"``: fit takes the kernel (n, n), predict takes (n_test, n). ``"dtw"``: both take raw
        series. ``"rbf"``: vectors.
    random_state
        Draws the samples that the atoms start from.
    n_jobs
        Threads; None is 1, -1 all cores. The result does not depend on it.
    mode, window, cost, normalise, per_length
        For ``kernel="dtw"``: the distance, as in `pairwise_dtw`.
    bandwidth, factor
        For ``kernel="dtw"``: the kernel, as in `DistanceKernel`.
    repair
        What is done about negative eigenvalues of the kernel; learnt on the training samples.
    gamma
        For ``kernel="rbf"``: ``exp(-gamma |x - z|^2)``; None: 1 / (2 mean(|x - z|)^2) over training pairs.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    dictionary_ : csc_array of shape (n, k)
        U, non-negative; atom j is the combination of training samples in column j.
    codes_ : csr_array of shape (n, k)
        Codes of the training samples, non-negative.
    n_iter_ : int
        Alternations.
    objective_history_ : ndarray
        J after every half step; it never rises.
    interpretability_ : ndarray of shape (k,)
        IP of each atom: 1, because an atom keeps to one class.
    support_ : ndarray
        The training samples that carry weight.

    Examples
    --------
    >>> from cksc_dist.io import make_gestures
    >>> from cksc_dist.models.lcnnksc import LCNNKSC
    >>> data = make_gestures(n_per_class=10, random_state=1)
    >>> model = LCNNKSC(sparsity=3, kernel="dtw", random_state=0).fit(data.series[::2], data.labels[::2])
    >>> bool(model.score(data.series[1::2], data.labels[1::2]) > 0.8)
    True
    """

    spec_type = LCNNKSCSpec
    model_type = lcnnksc.LcnnkscModel

    def __init__(
        self,
        sparsity: int = LCNNKSCSpec.sparsity,
        label_weight: float = LCNNKSCSpec.label_weight,
        locality: float = LCNNKSCSpec.locality,
        decision: str = LCNNKSCSpec.decision,
        atoms_per_class: int | None = LCNNKSCSpec.atoms_per_class,
        max_iter: int = LCNNKSCSpec.max_iter,
        tol: float = LCNNKSCSpec.tol,
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
        self.label_weight = label_weight
        self.locality = locality
        self.decision = decision
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
        self, K: Float, y: NDArray[np.int64], n_classes: int, spec: LCNNKSCSpec, rng: np.random.Generator
    ) -> Learnt:
        return lcnnksc.train(
            K,
            y,
            n_classes,
            sparsity=spec.sparsity,
            label_weight=spec.label_weight,
            locality=spec.locality,
            atoms_per_class=spec.atoms_per_class,
            max_iter=spec.max_iter,
            tol=spec.tol,
            rng=rng,
            n_jobs=self.n_jobs,
        )

    def _codes(self, linear: Float) -> Any:
        return lcnnksc.recall(linear, self._model, self._spec.sparsity, self.n_jobs)

    def _shares(self, linear: Float, codes: Any) -> Float:
        scores = lcnnksc.class_scores(codes, self._model)
        if self._spec.decision == "one":
            return shares_of_residuals((1.0 - scores) ** 2)
        total = scores.sum(axis=1, keepdims=True)
        return scores / np.where(total > 0, total, 1.0)
