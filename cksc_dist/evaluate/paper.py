"""What the paper prints: the parameters of its Table 1 and the accuracies of its Table 2.

B. Hosseini and B. Hammer, Confident Kernel Sparse Coding and Dictionary Learning, ICDM 2018.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TABLE1", "TABLE2", "Chosen"]


class Chosen(NamedTuple):
    """Parameters that the paper chose for a data set."""

    sparsity: int
    alpha: float


TABLE1 = {
    "Cricket": Chosen(6, 0.2),
    "Words": Chosen(8, 0.2),
    "Schunk": Chosen(5, 0.15),
    "UTKinect": Chosen(7, 0.1),
    "DynTex++": Chosen(15, 0.15),
}

_METHODS = ("kksvd", "jksrc", "lcnnksc", "lpksvd", "kgdl", "ekdl", "cksc")

TABLE2: dict[str, dict[str, float]] = {
    name: dict(zip(_METHODS, accuracies, strict=True))
    for name, accuracies in {
        "Schunk": (83.42, 87.49, 89.96, 89.62, 88.17, 88.39, 91.42),
        "DynTex++": (89.22, 89.95, 93.22, 93.12, 92.83, 93.51, 94.36),
        "Words": (93.35, 92.14, 97.33, 97.64, 95.82, 96.53, 98.82),
        "Cricket": (75.12, 78.14, 83.33, 83.33, 82.78, 84.25, 86.45),
        "UTKinect": (80.26, 81.47, 84.12, 84.93, 83.51, 84.18, 86.52),
    }.items()
}
"""Accuracy in percent, by data set and method."""
