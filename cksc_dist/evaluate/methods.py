"""The methods by the names that a user types, and what each is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cksc_dist.evaluate.references import KernelSVM, KernelSVMSpec, NearestNeighbour, NearestNeighbourSpec
from cksc_dist.models.cksc import CKSC
from cksc_dist.models.ekdl import EKDL, EKDLSpec
from cksc_dist.models.jksrc import JKSRC, JKSRCSpec
from cksc_dist.models.kgdl import KGDL, KGDLSpec
from cksc_dist.models.kksvd import KKSVD, KKSVDSpec
from cksc_dist.models.lcnnksc import LCNNKSC, LCNNKSCSpec
from cksc_dist.models.lpksvd import LPKSVD, LPKSVDSpec
from cksc_dist.spec import ModelSpec

__all__ = ["METHODS", "REFERENCES", "Method"]


@dataclass(frozen=True)
class Method:
    """A classifier by name.

    Parameters
    ----------
    title
        What a table calls it.
    spec
        Frozen dataclass of its parameters, which checks them and knows their defaults.
    estimator
        Takes these parameters.
    takes
        What it is fitted on: one ``"kernel"``, several ``"kernels"`` (one for each dimension or sensor), or the
        ``"distances"`` themselves.
    remark
        What a reader of its figures must know.
    """

    title: str
    spec: type
    estimator: Any
    takes: Literal["kernel", "kernels", "distances"] = "kernel"
    remark: str = ""

    def make(self, parameters: Mapping[str, Any], seed: int) -> Any:
        """Return an estimator, to be fitted in one thread."""
        if self.estimator in (NearestNeighbour, KernelSVM):
            return self.estimator(**parameters)
        return self.estimator(**parameters, kernel="precomputed", random_state=seed, n_jobs=1)


METHODS: dict[str, Method] = {
    "cksc": Method("CKSC", ModelSpec, CKSC),
    "kksvd": Method("K-KSVD", KKSVDSpec, KKSVD),
    "jksrc": Method(
        "JKSRC",
        JKSRCSpec,
        JKSRC,
        "kernels",
        "reconstructed on Gram matrices; one kernel a modality; its atoms are samples, so that IP is 1",
    ),
    "lcnnksc": Method("LC-NNKSC", LCNNKSCSpec, LCNNKSC),
    "lpksvd": Method("LP-KSVD", LPKSVDSpec, LPKSVD, remark="how near an atom is, is a reconstruction"),
    "kgdl": Method("KGDL", KGDLSpec, KGDL, remark="lines in feature space in the place of subspaces"),
    "ekdl": Method("EKDL", EKDLSpec, EKDL, remark="reconstructed on a Gram matrix"),
    "1nn": Method("1-NN on the distance", NearestNeighbourSpec, NearestNeighbour, "distances"),
    "svm": Method("SVM on the kernel", KernelSVMSpec, KernelSVM, remark="on the kernel as it is, like CKSC"),
}

REFERENCES = ("1nn", "svm")
"""What a table has beside the methods that it compares."""
