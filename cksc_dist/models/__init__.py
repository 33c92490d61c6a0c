"""Layer 3: estimators with scikit-learn's protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cksc_dist.errors import ModelFileError
from cksc_dist.models.cksc import CKSC
from cksc_dist.models.distance_kernel import DistanceKernel
from cksc_dist.models.ekdl import EKDL
from cksc_dist.models.jksrc import JKSRC
from cksc_dist.models.kernel_classifier import KernelClassifier
from cksc_dist.models.kgdl import KGDL
from cksc_dist.models.kksvd import KKSVD
from cksc_dist.models.lcnnksc import LCNNKSC
from cksc_dist.models.lpksvd import LPKSVD
from cksc_dist.store.model_files import read_model

__all__ = ["CKSC", "EKDL", "JKSRC", "KGDL", "KKSVD", "LCNNKSC", "LPKSVD", "DistanceKernel", "load_model"]


_METHODS: tuple[type[KernelClassifier], ...] = (CKSC, KKSVD, JKSRC, LCNNKSC, LPKSVD, KGDL, EKDL)


def load_model(path: str | Path) -> Any:
    """Return the model that was saved under a path, or at a URL such as ``s3://bucket/model``."""
    name, arrays, settings = read_model(path)
    known = {method.__name__: method for method in _METHODS}
    if name not in known:
        raise ModelFileError(f"{path} holds a model of class {name}; this version knows {', '.join(known)}")
    return known[name]._from(path, arrays, settings)
