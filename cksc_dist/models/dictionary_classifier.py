"""What the methods that CKSC is compared with have in common: a semi-definite kernel, and a dense, signed dictionary.

DTW kernels are indefinite, and these methods need roots and factors of K: all of them run on K without its negative
eigenvalues (``repair="clip"``), learnt on the training rows; rows of new samples go through the same projector.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cksc_dist.maths.kernel_product import Columns, multiply
from cksc_dist.maths.learnt import Learnt
from cksc_dist.maths.threads import one_blas_thread
from cksc_dist.models.kernel_classifier import Arrays, KernelClassifier
from cksc_dist.models.kernel_input import KernelInput, PrecomputedInput

__all__ = ["DictionaryClassifier", "shares_of_regression", "shares_of_residuals"]

Float = NDArray[np.float64]


def shares_of_residuals(residuals: Float) -> Float:
    """Return class shares from residuals (m, C), squared and at least 0: each in proportion to its inverse.

    Examples
    --------
    >>> shares_of_residuals(np.array([[0.1, 0.3, 0.6]])).round(3).tolist()
    [[0.667, 0.222, 0.111]]
    """
    floor = np.maximum(1e-12 * residuals.max(axis=1, keepdims=True), 1e-300)
    inverse = floor / np.maximum(residuals, floor)
    shares: Float = inverse / inverse.sum(axis=1, keepdims=True)
    return shares


def shares_of_regression(scores: Float) -> Float:
    """Return class shares from regressed indicators (m, C): what is below zero counts as none.

    Examples
    --------
    >>> shares_of_regression(np.array([[0.6, 0.2, -0.3], [-0.5, -0.1, -0.4]])).round(2).tolist()
    [[0.75, 0.25, 0.0], [0.0, 1.0, 0.0]]
    """
    least = np.minimum(scores.max(axis=1, keepdims=True), 0.0)  # where all are below zero, the largest is taken
    positive = np.maximum(scores - 2.0 * least, 0.0) * (scores >= least)
    total = positive.sum(axis=1, keepdims=True)
    even = np.full(scores.shape, 1.0 / scores.shape[1])
    shares: Float = np.divide(positive, total, out=even, where=total > 0)
    return shares


class DictionaryClassifier(KernelClassifier):
    """A method by what it learns (`_learn`), how it codes (`_codes`), and how a code tells the class (`_shares`)."""

    model_type: ClassVar[type]
    """NamedTuple of the arrays that recall needs."""

    @abstractmethod
    def _learn(self, K: Float, y: NDArray[np.int64], n_classes: int, spec: Any, rng: np.random.Generator) -> Learnt:
        """Return the dictionary of a semi-definite kernel."""

    @abstractmethod
    def _codes(self, linear: Float) -> Any:
        """Return the codes (m, k), sparse, of samples given by their products with the atoms, k_z'U (m, k)."""

    @abstractmethod
    def _shares(self, linear: Float, codes: Any) -> Float:
        """Return class shares (m, C)."""

    def _precomputed(self) -> KernelInput:
        return PrecomputedInput(self.repair)

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the dictionary.

        Parameters
        ----------
        X
            Kernel (n, n), series or vectors, as ``kernel`` says.
        y
            One label for each sample: str, int or bool; at least two classes.
        """
        spec, source = self._specs()
        checked = self._check(X, y)
        rng = self._generator()
        K = np.asarray(source.learn(checked.X, self.n_jobs), dtype=np.float64)
        with one_blas_thread():
            learnt = self._learn(K, checked.y, len(checked.classes), spec, rng)
            gram = learnt.dictionary.T @ (K @ learnt.dictionary)
        self._warn_unless(learnt.converged)
        # nothing is set before this line: a fit that fails leaves an earlier one whole
        self._take(spec, checked, source, learnt.dictionary, learnt.codes)
        self.origin_, self.n_iter_, self.objective_history_ = None, learnt.n_iter, learnt.history
        self._set_model(learnt.model, gram)
        return self

    def _set_model(self, model: Any, gram: Float) -> None:
        self._model, self._atom_gram = model, gram
        self._weights = Columns.of(self._support_atoms.toarray().T)  # U on the samples that carry weight
        members = sparse.csr_array(
            (np.ones(self.n_train_), (self._train_labels, np.arange(self.n_train_))),
            shape=(len(self.classes_), self.n_train_),
        )
        self._atom_classes: Float = np.asarray((members @ abs(self.dictionary_)).T.toarray())
        total = self._atom_classes.sum(axis=1)
        self.interpretability_ = np.divide(
            self._atom_classes.max(axis=1), total, out=np.zeros(len(total)), where=total > 0
        )

    def _codes_of(self, rows: NDArray[Any]) -> Any:
        return sparse.csr_array(self._codes(self._linear(rows)))

    def _linear(self, rows: NDArray[Any]) -> Float:
        """Return the products of samples with the atoms, k_z'U (m, k), to the same bits whatever the others are."""
        return multiply(np.ascontiguousarray(rows), self._weights, self.n_jobs)

    def _scores(self, rows: NDArray[Any], codes: Any) -> tuple[Float, NDArray[np.bool_]]:
        far = np.diff(codes.indptr) == 0
        shares = self._shares(self._linear(rows), codes)
        shares[far] = 1.0 / shares.shape[1]
        return shares, far

    def _class_weight(self) -> Float:
        return self._atom_classes

    def _gram(self) -> Float:
        return self._atom_gram

    def _arrays(self) -> Arrays:
        model = {f"model_{name}": array for name, array in self._model._asdict().items()}
        return {"history": self.objective_history_, "gram": self._atom_gram, **model}

    def _set_arrays(self, arrays: Arrays, settings: dict[str, Any]) -> None:
        self.objective_history_ = arrays["history"]
        model = {name: arrays[f"model_{name}"] for name in self.model_type._fields}  # type: ignore[attr-defined]
        self._set_model(self.model_type(**model), arrays["gram"])
