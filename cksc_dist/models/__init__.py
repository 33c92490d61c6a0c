"""Layer 3: estimators with scikit-learn's protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cksc_dist.errors import ModelFileError
from cksc_dist.models.cksc import CKSC
from cksc_dist.models.distance_kernel import DistanceKernel
from cksc_dist.models.kernel_classifier import KernelClassifier
from cksc_dist.store.model_files import read_model

__all__ = ["CKSC", "DistanceKernel", "load_model"]


_METHODS: tuple[type[KernelClassifier], ...] = (CKSC,)


def load_model(path: str | Path) -> Any:
    """Return the model that was saved under a path, or at a URL such as ``s3://bucket/model``."""
    name, arrays, settings = read_model(path)
    known = {method.__name__: method for method in _METHODS}
    if name not in known:
        raise ModelFileError(f"{path} holds a model of class {name}; this version knows {', '.join(known)}")
    return known[name]._from(arrays, settings)
