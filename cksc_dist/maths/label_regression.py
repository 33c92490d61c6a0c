"""A linear classifier on sparse codes, by ridge regression.

    W = argmin ||Lab - W A||^2 + ridge ||W||^2 = Lab A' (A A' + ridge I)^-1

Lab (C x N) has a 1 where sample i is of class q, A (k x N) the codes. The label of a code a is argmax W a.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

__all__ = ["label_regression", "one_hot"]

Float = NDArray[np.float64]


def one_hot(y: NDArray[np.int64], n_classes: int) -> Float:
    """Return Lab', (n, C): one row a sample, 1 at its class.

    Examples
    --------
    >>> one_hot(np.array([1, 0]), 2).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return np.asarray(np.eye(n_classes)[y])


def label_regression(codes: Float, labels: Float, ridge: float) -> Float:
    """Return W, (C, k).

    Parameters
    ----------
    codes
        A', (n, k): one code a row.
    labels
        Lab', (n, C), as `one_hot` gives it.
    ridge
        Above 0.

    Examples
    --------
    >>> codes = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> label_regression(codes, one_hot(np.array([0, 1]), 2), 1.0).round(12).tolist()
    [[0.5, 0.0], [0.0, 0.4]]
    """
    gram: Any = codes.T @ codes
    gram[np.diag_indices_from(gram)] += ridge
    return np.ascontiguousarray(cho_solve(cho_factor(gram), codes.T @ labels).T)
