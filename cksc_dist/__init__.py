"""Exact DTW distance matrices, and confident kernel sparse coding on top of them.

The public names are loaded when they are first used: distances alone need neither scikit-learn nor Zarr.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cksc_dist.maths.dtw import pairwise_dtw
    from cksc_dist.models import CKSC, EKDL, JKSRC, KGDL, KKSVD, LCNNKSC, LPKSVD, DistanceKernel, load_model
    from cksc_dist.series import SeriesSet
    from cksc_dist.store.matrix import open_matrix

    __version__: str

__all__ = [
    "CKSC",
    "EKDL",
    "JKSRC",
    "KGDL",
    "KKSVD",
    "LCNNKSC",
    "LPKSVD",
    "DistanceKernel",
    "SeriesSet",
    "load_model",
    "open_matrix",
    "pairwise_dtw",
]

_HOME = {
    **dict.fromkeys(("CKSC", "EKDL", "JKSRC", "KGDL", "KKSVD", "LCNNKSC", "LPKSVD"), "cksc_dist.models"),
    "DistanceKernel": "cksc_dist.models",
    "SeriesSet": "cksc_dist.series",
    "load_model": "cksc_dist.models",
    "open_matrix": "cksc_dist.store.matrix",
    "pairwise_dtw": "cksc_dist.maths.dtw",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # pyproject.toml is where it is written
        value = import_module("importlib.metadata").version("cksc_dist")
    elif name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module 'cksc_dist' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, "__version__"})
