"""Layer 3: estimators with scikit-learn's protocol."""

from __future__ import annotations

from pathlib import Path

from cksc_dist.models.cksc import CKSC
from cksc_dist.models.distance_kernel import DistanceKernel

__all__ = ["CKSC", "DistanceKernel", "load_model"]


def load_model(path: str | Path) -> CKSC:
    """Return the model that was saved under a path, or at a URL such as ``s3://bucket/model``."""
    return CKSC.load(path)
