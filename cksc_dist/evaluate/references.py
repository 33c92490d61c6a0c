"""The two lines that every table of methods has beside it: the nearest neighbour, and a support vector machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.svm import SVC

from cksc_dist.spec import check_number

__all__ = ["KernelSVM", "KernelSVMSpec", "NearestNeighbour", "NearestNeighbourSpec"]


@dataclass(frozen=True)
class NearestNeighbourSpec:
    """The nearest neighbour has no parameters but the distance."""


class NearestNeighbour(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The label of the nearest training sample; of several, of the one that comes first.

    Examples
    --------
    >>> import numpy as np
    >>> model = NearestNeighbour().fit(np.array([[0.0, 2.0], [2.0, 0.0]]), ["a", "b"])
    >>> model.predict(np.array([[0.5, 1.5], [3.0, 1.0]])).tolist()
    ['a', 'b']
    """

    def fit(self, D: NDArray[Any], y: Any) -> NearestNeighbour:
        """Remember the labels; D are the distances of the training samples to each other, which are not looked at."""
        self.labels_ = np.asarray(y)
        self.classes_ = np.unique(self.labels_)
        return self

    def predict(self, D: NDArray[Any]) -> NDArray[Any]:
        """Return labels, given the distances of new samples (rows) to the training samples (columns)."""
        found: NDArray[Any] = self.labels_[np.asarray(D).argmin(axis=1)]
        return found


@dataclass(frozen=True)
class KernelSVMSpec:
    """How much an error of the training part costs.

    Parameters
    ----------
    C
        As scikit-learn's SVC has it.
    """

    C: float = 10.0

    def __post_init__(self) -> None:
        check_number("C", self.C, 0.0, 1e9, open_low=True)
        object.__setattr__(self, "C", float(self.C))


class KernelSVM(SVC):  # type: ignore[misc]
    """A support vector machine on a ready kernel.

    Parameters
    ----------
    C
        Cost of an error of the training part.
    """

    def __init__(self, C: float = KernelSVMSpec.C) -> None:
        super().__init__(C=C, kernel="precomputed")
