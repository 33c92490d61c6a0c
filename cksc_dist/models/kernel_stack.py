"""Several kernels of the same samples, one for each modality: each has a source of its own (`kernel_input`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.models.kernel_input import Arrays, DtwInput, Index, KernelInput, PrecomputedInput, RbfInput
from cksc_dist.series import SeriesSet
from cksc_dist.spec import DistanceSpec, KernelSpec

__all__ = ["DtwStack", "KernelStack", "PrecomputedStack", "RbfStack"]

Float = NDArray[np.float64]


class KernelStack:
    """Sources of several kernels."""

    takes_vectors = False
    sample_ndim = 1

    def __init__(self) -> None:
        self.parts: list[KernelInput] = []

    def _source(self, m: int) -> KernelInput:
        """Return a new source of kernel ``m``."""
        raise NotImplementedError

    def _shares(self, X: Any) -> list[Any]:
        """Return what each source is given."""
        raise NotImplementedError

    def _name(self, m: int) -> str:
        """Return what to call kernel ``m`` in an error."""
        return f"kernel {m}"

    def _from_each(self, shares: list[Any], ask: Callable[[KernelInput, Any], NDArray[Any]]) -> list[NDArray[Any]]:
        """Return what each source gives for its share; an error says of which of several."""
        found = []
        for m, (part, share) in enumerate(zip(self.parts, shares, strict=True)):
            try:
                found.append(ask(part, share))
            except InputError as error:
                if len(shares) == 1:
                    raise
                raise InputError(f"{self._name(m)}: {error}") from error
        return found

    def learn(self, X: Any, n_jobs: int | None) -> Float:
        """Return the kernels of the training samples, (M, n, n)."""
        shares = self._shares(X)
        self.parts = [self._source(m) for m in range(len(shares))]
        kernels = self._from_each(shares, lambda part, share: part.learn(share, n_jobs))
        return np.stack(kernels).astype(np.float64, copy=False)

    def keep(self, support: Index) -> None:
        """Drop training samples that carry no weight, where that saves anything."""
        for part in self.parts:
            part.keep(support)

    def rows(self, X: Any, n_jobs: int | None) -> Float:
        """Return the kernels of new samples with the kept ones, (new, M, kept)."""
        rows = self._from_each(self._shares(X), lambda part, share: part.rows(share, n_jobs))
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
        super().__init__()
        PrecomputedInput(repair)  # which checks it
        self._repair = repair
        self._stacked = False

    @property
    def sample_ndim(self) -> int:  # type: ignore[override]
        """Dimensions of one sample: (n,), or (n, M) where the training kernels had a last axis."""
        return 2 if self._stacked else 1

    def _source(self, m: int) -> KernelInput:
        return PrecomputedInput(self._repair)

    def learn(self, X: Any, n_jobs: int | None) -> Float:
        """Return the checked kernels, (M, n, n)."""
        self._stacked = np.ndim(X) == 3
        return super().learn(X, n_jobs)

    def rows(self, X: Any, n_jobs: int | None) -> Float:
        """Return the checked kernels of new samples, (new, M, n)."""
        count, most = len(self._shares(X)), len(self.parts)
        if count != most:
            raise InputError(
                f"K of shape {np.shape(X)} holds {count} kernel{'' if count == 1 else 's'}, but the model was trained "
                f"on {most}; give a test kernel of shape (n_test, n_train, {most})"
            )
        return super().rows(X, n_jobs)

    def _shares(self, X: Any) -> list[Any]:
        kernels = np.asarray(X)
        if kernels.ndim == 2:
            return [kernels]
        if kernels.ndim != 3 or not kernels.shape[2]:
            raise InputError(f"K has shape {kernels.shape}; give one kernel (n, n), or several as (n, n, M)")
        return [np.ascontiguousarray(kernels[:, :, m]) for m in range(kernels.shape[2])]

    def settings(self) -> dict[str, Any]:
        """Return what has to be saved besides arrays."""
        return super().settings() | {"stacked": self._stacked}

    @classmethod
    def from_arrays(cls, arrays: Arrays, **settings: Any) -> PrecomputedStack:
        """Return what was saved."""
        self = cls()
        self._stacked = settings["stacked"]
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
        super().__init__()
        self._gamma = gamma

    def _source(self, m: int) -> KernelInput:
        return RbfInput(self._gamma)

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
    parts: list[DtwInput]  # type: ignore[assignment]

    def __init__(self, distance: DistanceSpec, kernel: KernelSpec, groups: Sequence[Sequence[int]] | None) -> None:
        super().__init__()
        self.distance, self.kernel = distance, kernel
        self.groups = None if groups is None else _checked_groups(groups)

    def _source(self, m: int) -> KernelInput:
        assert self.groups is not None
        return DtwInput(replace(self.distance, dims=self.groups[m]), self.kernel)

    def _name(self, m: int) -> str:
        assert self.groups is not None
        return f"kernel {m}, of dims {self.groups[m]}"

    def learn(self, X: Any, n_jobs: int | None) -> Float:
        """Return the kernels of the series, (M, n, n), with bandwidth and repair of each from them."""
        series = _series_set(X)
        if self.groups is None:
            self.groups = tuple((dim,) for dim in range(series.dims))
        outside = [dim for group in self.groups for dim in group if dim >= series.dims]
        if outside:
            raise InputError(
                f"groups={self.groups} names dimension {outside[0]}, but the series have dimensions 0 to "
                f"{series.dims - 1}"
            )
        return super().learn(series, n_jobs)

    def keep(self, support: Index) -> None:
        """Keep the series that are needed, once for all kernels."""
        super().keep(support)
        for part in self.parts:
            part.series = self.parts[0].series

    def rows(self, X: Any, n_jobs: int | None) -> Float:
        """Return the kernels of new series, (new, M, kept)."""
        series = _series_set(X)
        self.parts[0].check((series.values, series.offsets))
        return super().rows(series, n_jobs)

    def _shares(self, X: Any) -> list[Any]:
        assert self.groups is not None
        return [X] * len(self.groups)

    def settings(self) -> dict[str, Any]:
        """Return what has to be saved besides arrays."""
        own = {"distance": asdict(self.distance), "kernel": asdict(self.kernel), "groups": self.groups}
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


def _series_set(X: Any) -> SeriesSet:
    """Return series that every source can take without another copy."""
    return X if isinstance(X, SeriesSet) else SeriesSet.from_list(X, name="X")


def _checked_groups(groups: Any) -> tuple[tuple[int, ...], ...]:
    """Return the dimensions of each kernel as plain numbers, or say what is wrong with them."""
    try:
        found = tuple(tuple(group) for group in groups)
    except TypeError:  # a number where there should be several
        found = ()
    numbers = all(isinstance(dim, Integral) and not isinstance(dim, bool) for group in found for dim in group)
    if not found or not numbers or any(not group or list(group) != sorted(set(group)) for group in found):
        raise InputError(
            f"groups={groups!r}: give the dimensions of each kernel, ascending, each once, such as [[0, 1], [2]]"
        )
    below = [dim for group in found for dim in group if dim < 0]
    if below:
        raise InputError(f"groups={groups!r} names dimension {below[0]}; dimensions count from 0")
    return tuple(tuple(int(dim) for dim in group) for group in found)
