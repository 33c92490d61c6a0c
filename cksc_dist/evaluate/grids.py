"""What tuning chooses from: for every method as many points, each a choice of its parameters and of its kernel.

The first point of a grid is the plainest choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import product
from typing import Any

from cksc_dist.errors import InputError
from cksc_dist.evaluate.methods import METHODS
from cksc_dist.spec import DistanceSpec, ModelSpec

__all__ = ["FACTORS", "KernelChoices", "Point", "grid_points", "modalities"]

FACTORS = (1.0, 0.5, 0.25, 0.1)
"""Factors on the bandwidth that are tried."""

WINDOWS = (None, 0.05, 0.1, 0.2)
"""Bands that the nearest neighbour is tuned over, with both modes: it has no other parameters."""


@dataclass(frozen=True)
class KernelChoices:
    """Kernels that tuning may choose from, for every method alike.

    Parameters
    ----------
    distances
        What a distance is; several: tuning chooses. None: the ready matrix that the store holds.
    factors
        Factors on the bandwidth.
    bandwidths
        Rules for it.
    """

    distances: tuple[DistanceSpec, ...] | None = (DistanceSpec(),)
    factors: tuple[float, ...] = FACTORS
    bandwidths: tuple[str | float, ...] = ("mean",)

    def quick(self) -> KernelChoices:
        """Return fewer of them."""
        return replace(self, factors=self.factors[:2])


@dataclass(frozen=True)
class Point:
    """One choice of all that tuning chooses.

    Parameters
    ----------
    parameters
        Of the method.
    kernel
        Of the kernel.
    distances
        One for each kernel; none: the ready matrix of the store.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    kernel: Mapping[str, Any] = field(default_factory=dict)
    distances: tuple[DistanceSpec, ...] = ()

    def text(self) -> dict[str, Any]:
        """Return what is particular about it, for a table."""
        found = {**self.parameters, **self.kernel}
        plain = asdict(DistanceSpec())
        shown = {name: value for name, value in asdict(self.distances[0]).items()} if self.distances else {}
        found |= {
            name: value for name, value in shown.items() if value != plain[name] and name not in ("dims", "dtype")
        }
        return found | ({"kernels": len(self.distances)} if len(self.distances) > 1 else {})


def modalities(dim_names: Sequence[str], dims: int) -> tuple[tuple[int, ...], ...]:
    """Return the dimensions that belong together: one group a joint or sensor where their names tell, else one each.

    Names tell by what stands before the first underscore.

    Examples
    --------
    >>> modalities(["left_x", "left_y", "right_x"], 3), modalities([], 2)
    (((0, 1), (2,)), ((0,), (1,)))
    """
    if len(dim_names) != dims or not all("_" in name for name in dim_names):
        return tuple((dim,) for dim in range(dims))
    groups: dict[str, list[int]] = {}
    for dim, name in enumerate(dim_names):
        groups.setdefault(name.split("_", 1)[0], []).append(dim)
    return tuple(tuple(group) for group in groups.values())


OWN: dict[str, list[dict[str, Any]]] = {
    "cksc": [
        {"recall": "confident"},
        {"recall": "reconstruction"},
        {"recall": "reconstruction", "alpha": 0.05},
        {"recall": "confident", "alpha": 0.05},
    ],
    "kksvd": [
        {"classifier": "distributive"},
        {"classifier": "collective"},
        {"classifier": "distributive", "sparsity": 2},
        {"classifier": "collective", "sparsity": 2},
    ],
    "jksrc": [
        {"form": "greedy"},
        {"form": "convex", "shrinkage": 0.2},
        {"form": "convex", "shrinkage": 0.1},
        {"form": "convex", "shrinkage": 0.5},
    ],
    "lcnnksc": [
        {"label_weight": 0.1, "decision": "one"},
        {"label_weight": 0.1, "decision": "argmax"},
        {"label_weight": 1.0, "decision": "argmax"},
        {"label_weight": 0.01, "decision": "argmax"},
    ],
    "lpksvd": [
        {"locality": 0.1, "label_weight": 1.0},
        {"locality": 1.0, "label_weight": 1.0},
        {"locality": 0.01, "label_weight": 1.0},
        {"locality": 0.1, "label_weight": 0.1},
    ],
    "kgdl": [
        {"shrinkage": 0.1},
        {"shrinkage": 0.02},
        {"shrinkage": 0.2},
        {"coding": "omp"},
    ],
    "ekdl": [
        {"coherence": 0.1, "label_weight": 0.1},
        {"coherence": 0.1, "label_weight": 1.0},
        {"coherence": 0.0, "label_weight": 0.1},
        {"coherence": 0.2, "label_weight": 0.1},
    ],
    "svm": [{"C": 10.0}, {"C": 1.0}, {"C": 100.0}, {"C": 3.0}],
    "1nn": [{}],
}
"""Settings of each method's own parameters: four of them, of which a quick look takes two."""


def _own_settings(method: str, sparsity: int, alpha: float, quick: bool) -> list[dict[str, Any]]:
    """Return the settings of a method's own parameters; sparsity and alpha where it has them."""
    if method not in OWN:
        raise InputError(f"method={method!r} is unknown; choose of {', '.join(METHODS)}")
    names = {part.name for part in fields(METHODS[method].spec)}
    common = {name: value for name, value in (("sparsity", sparsity), ("alpha", alpha)) if name in names}
    return [common | own for own in OWN[method][: 2 if quick else 4]]


def grid_points(
    method: str,
    choices: KernelChoices,
    groups: Sequence[Sequence[int]],
    *,
    sparsity: int,
    alpha: float = ModelSpec.alpha,
    quick: bool = False,
) -> list[Point]:
    """Return the points that tuning chooses from.

    Parameters
    ----------
    method
        One of `METHODS`.
    choices
        Kernels to choose from.
    groups
        Dimensions of each kernel, for a method that takes several.
    sparsity
        T0.
    alpha
        Of CKSC, where the grid has no other.
    quick
        Fewer points.

    Examples
    --------
    >>> [len(grid_points(method, KernelChoices(), [], sparsity=6)) for method in ("cksc", "svm", "1nn")]
    [16, 16, 8]
    """
    chosen = choices.quick() if quick else choices
    own = _own_settings(method, sparsity, alpha, quick)
    if METHODS[method].takes == "distances":
        return [Point(distances=each) for each in _neighbour_distances(chosen, quick)]
    points = []
    for distance, parameters, bandwidth, factor in product(
        chosen.distances or [None], own, chosen.bandwidths, chosen.factors
    ):
        distances: tuple[DistanceSpec, ...] = ()
        if distance is not None:
            several = METHODS[method].takes == "kernels"
            distances = tuple(replace(distance, dims=tuple(group)) for group in groups) if several else (distance,)
        points.append(Point(parameters, {"bandwidth": bandwidth, "factor": factor}, distances))
    return points


def _neighbour_distances(choices: KernelChoices, quick: bool) -> list[tuple[DistanceSpec, ...]]:
    """Return what the nearest neighbour is tuned over: mode and band, where the distance is DTW."""
    if choices.distances is None:
        return [()]
    found = dict.fromkeys(choices.distances)
    for distance in choices.distances:
        if distance.metric == "dtw":
            windows, modes = (WINDOWS[::2], ("dependent",)) if quick else (WINDOWS, ("dependent", "independent"))
            found |= dict.fromkeys(
                replace(distance, mode=mode, window=window) for mode, window in product(modes, windows)
            )
    return [(distance,) for distance in found]
