"""Several kernels of the same samples, one for each modality: each has a source of its own (`kernel_input`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.models.kernel_input import Arrays, DtwInput, Index, KernelInput, PrecomputedInput, RbfInput
from cksc_dist.series import ragged
from cksc_dist.spec import DistanceSpec, KernelSpec

__all__ = ["DtwStack", "KernelStack", "PrecomputedStack", "RbfStack"]

Float = NDArray[np.float64]


class KernelStack:
    """Sources of several kernels.

    Parameters
    ----------
    make
        Gives a new source of kernel ``m``.
    """

    takes_vectors = False
    sample_ndim = 1

    def __init__(self, make: Callable[[int], KernelInput]) -> None:
        self._make = make
        self.parts: list[KernelInput] = []

    def _shares(self, X: Any) -> list[Any]:
        """Return what each source is given."""
        raise NotImplementedError

    def learn(self, X: Any, n_jobs: int | None) -> Float:
        """Return the kernels of the training samples, (M, n, n)."""
        shares = self._shares(X)
        self.parts = [self._make(m) for m in range(len(shares))]
        kernels = [part.learn(share, n_jobs) for part, share in zip(self.parts, shares, strict=True)]
        return np.stack(kernels).astype(np.float64, copy=False)

    def keep(self, support: Index) -> None:
        """Drop training samples that carry no weight, where that saves anything."""
        for part in self.parts:
            part.keep(support)

    def rows(self, X: Any, n_jobs: int | None) -> Float:
        """Return the kernels of new samples with the kept ones, (new, M, kept)."""
        shares = self._shares(X)
        if len(shares) != len(self.parts):
            raise InputError(
                f"{len(shares)} kernels are given, but the model was trained on {len(self.parts)}; give a test kernel "
                f"of shape (n_test, n_train, {len(self.parts)})"
            )
        rows = [part.rows(share, n_jobs) for part, share in zip(self.parts, shares, strict=True)]
        return np.ascontiguousarray(np.stack(rows, axis=1), dtype=np.float64)

    @property
    def n_features(self) -> int:
        """Width of the input."""
        return self.parts[0].n_features

    def settings(self) -> dict[str, Any]:
        """Return what has to be saved besides arrays."""
        return {"kernels": len(self.parts)}

    def arrays(self) -> Arrays:
        """Return what has to be saved of every source."""
        return {f"{m}_{name}": array for m, part in enumerate(self.parts) for name, array in part.arrays().items()}

    def _take_parts(self, kind: type[KernelInput], arrays: Arrays, count: int, **settings: Any) -> None:
        for m in range(count):
            start = f"{m}_"
            own = {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
            self.parts.append(kind.from_arrays(own, **settings))


class PrecomputedStack(KernelStack):
    """Kernels that are given: (n, n, M) in training, (new, n, M) later; without the last axis there is one.

    Parameters
    ----------
    repair
        What is done about negative eigenvalues of each.
    """

    def __init__(self, repair: Any = None) -> None:
        PrecomputedInput(repair)  # which checks it
        super().__init__(lambda _: PrecomputedInput(repair))

    @property
    def sample_ndim(self) -> int:  # type: ignore[override]
        """Dimensions of one sample: (n,), or (n, M)."""
        return 1 if len(self.parts) == 1 else 2

    def _shares(self, X: Any) -> list[Any]:
        kernels = np.asarray(X)
        if kernels.ndim == 2:
            return [kernels]
        if kernels.ndim != 3 or not kernels.shape[2]:
            raise InputError(f"K has shape {kernels.shape}; give one kernel (n, n), or several as (n, n, M)")
        return [np.ascontiguousarray(kernels[:, :, m]) for m in range(kernels.shape[2])]

    @classmethod
    def from_arrays(cls, arrays: Arrays, **settings: Any) -> PrecomputedStack:
        """Return what was saved."""
        self = cls()
        self._take_parts(PrecomputedInput, arrays, settings["kernels"])
        return self


class RbfStack(KernelStack):
    """Vectors, with one kernel of all their entries.

    Parameters
    ----------
    gamma
        As for `RbfInput`.
    """

    takes_vectors = True

    def __init__(self, gamma: float | None = None) -> None:
        super().__init__(lambda _: RbfInput(gamma))

    def _shares(self, X: Any) -> list[Any]:
        return [X]

    @classmethod
    def from_arrays(cls, arrays: Arrays, **settings: Any) -> RbfStack:
        """Return what was saved."""
        self = cls()
        self._take_parts(RbfInput, arrays, 1)
        return self


class DtwStack(KernelStack):
    """Raw series, with one kernel for each group of dimensions.

    Parameters
    ----------
    distance, kernel
        As for `DtwInput`.
    groups
        Dimensions of each kernel; None: one each.
    """

    sample_ndim = 2

    def __init__(self, distance: DistanceSpec, kernel: KernelSpec, groups: Sequence[Sequence[int]] | None) -> None:
        self.distance, self.kernel = distance, kernel
        self.groups = None if groups is None else tuple(tuple(int(dim) for dim in group) for group in groups)
        super().__init__(lambda m: DtwInput(replace(distance, dims=self._groups[m]), kernel))

    def _shares(self, X: Any) -> list[Any]:
        series = ragged(X, name="X")
        dims = int(series[0].shape[1])
        self._groups = self.groups or tuple((dim,) for dim in range(dims))
        outside = [dim for group in self._groups for dim in group if not 0 <= dim < dims]
        if outside or not all(self._groups):
            what = f"names dimension {outside[0]}" if outside else "has a group of no dimensions"
            raise InputError(f"groups={self._groups} {what}, but the series have dimensions 0 to {dims - 1}")
        return [X] * len(self._groups)

    def settings(self) -> dict[str, Any]:
        """Return what has to be saved besides arrays."""
        own = {"distance": asdict(self.distance), "kernel": asdict(self.kernel), "groups": self._groups}
        return super().settings() | own

    def arrays(self) -> Arrays:
        """Return what has to be saved; the series, which all sources share, once."""
        found = super().arrays()
        shared = {f"{m}_series_{name}" for m in range(1, len(self.parts)) for name in ("values", "offsets")}
        return {name: array for name, array in found.items() if name not in shared}

    @classmethod
    def from_arrays(cls, arrays: Arrays, **settings: Any) -> DtwStack:
        """Return what was saved."""
        distance, groups = DistanceSpec(**settings["distance"]), settings["groups"]
        self = cls(distance, KernelSpec(**settings["kernel"]), groups)
        series = {name: arrays[f"0_{name}"] for name in ("series_values", "series_offsets")}
        for m, group in enumerate(groups):
            own = {name.removeprefix(f"{m}_"): array for name, array in arrays.items() if name.startswith(f"{m}_")}
            spec = asdict(replace(distance, dims=tuple(group)))
            self.parts.append(DtwInput.from_arrays(series | own, distance=spec, kernel=settings["kernel"]))
        return self
