"""What a method of kernel dictionary learning gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Learnt"]

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Learnt:
    """A dictionary on training samples.

    Parameters
    ----------
    dictionary
        U, (n, k): atom j is Phi(X) u_j.
    codes
        Codes of the training samples, (n, k), sparse.
    history
        The objective after every step that the method calls one.
    n_iter
        Alternations.
    converged
        Whether the objective settled before they ran out.
    model
        NamedTuple of the arrays that recall needs.
    """

    dictionary: Float
    codes: Any
    history: Float
    n_iter: int
    converged: bool
    model: Any
