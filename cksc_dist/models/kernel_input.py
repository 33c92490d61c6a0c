"""Where a model's kernel comes from: given ready, made from raw series by DTW, or from vectors.

Each of the three learns what it needs on the training samples, is then cut down to the training samples
that carry weight (`keep`), and gives kernel rows of new samples with those alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.dtw import pairwise_distances, prepare
from cksc_dist.maths.kernel import bandwidth, gaussian_kernel
from cksc_dist.maths.matrix_checks import STRIP_ENTRIES, as_matrix, check_kernel
from cksc_dist.maths.metrics import check_metric, pairwise_metric, pick_dims
from cksc_dist.maths.spectrum import SpectralRepair, spectral_repair, unit_diagonal, unit_diagonal_rows
from cksc_dist.models.distance_kernel import DistanceKernel
from cksc_dist.series import Ragged, ragged
from cksc_dist.spec import REPAIRS, DistanceSpec, KernelSpec, check_choice

__all__ = ["DtwInput", "KernelInput", "PrecomputedInput", "RbfInput"]

# The kernel squares distances; beyond this a square is no number any more.
LARGEST_DISTANCE = 1e150

Index = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]


class KernelInput(Protocol):
    """What a model asks of the source of its kernel."""

    takes_vectors: bool
    """Whether samples are vectors, which scikit-learn can check."""

    @property
    def sample_ndim(self) -> int:
        """Dimensions of one sample."""

    def learn(self, X: Any, n_jobs: int | None) -> NDArray[Any]:
        """Return the kernel of the training samples, and remember what new ones will need."""

    def keep(self, support: Index) -> None:
        """Drop training samples that carry no weight, where that saves anything."""

    def rows(self, X: Any, n_jobs: int | None) -> NDArray[Any]:
        """Return the kernel of new samples with the kept ones, (new, kept)."""

    @property
    def n_features(self) -> int:
        """Width of the input."""

    def settings(self) -> dict[str, Any]:
        """Return what has to be saved besides arrays."""

    def arrays(self) -> Arrays:
        """Return what has to be saved."""

    @classmethod
    def from_arrays(cls, arrays: Arrays, **settings: Any) -> Self:
        """Return what was saved."""


def _strips(n: int) -> list[slice]:
    """Return the rows of an n x n matrix in strips: work on one needs no second such matrix."""
    height = max(1, STRIP_ENTRIES // n)
    return [slice(start, min(start + height, n)) for start in range(0, n, height)]


class PrecomputedInput:
    """The kernel is given: (n, n) in training, (new, n) later.

    Parameters
    ----------
    repair
        What is done about negative eigenvalues; a kernel without any stays as it is.
    """

    takes_vectors = False
    sample_ndim = 1

    def __init__(self, repair: Literal["clip", "flip"] | None = None) -> None:
        check_choice("repair", repair, REPAIRS)
        self._how = repair
        self._repair: SpectralRepair | None = None
        self._unit = False

    @classmethod
    def of(cls, n_train: int) -> PrecomputedInput:
        """Return the input of a model whose kernel was seen elsewhere."""
        self = cls()
        self.n_train = n_train
        return self

    def learn(self, X: Any, n_jobs: int | None) -> NDArray[Any]:
        """Return the checked kernel, symmetric to the bit."""
        K = check_kernel(X)
        bad = np.flatnonzero(np.diagonal(K) <= 0)
        if len(bad):
            i = int(bad[0])
            raise InputError(
                f"K[{i}, {i}] is {K[i, i]:g}; every sample needs a positive self-similarity: leave out that "
                "sample, or compute the kernel again"
            )
        self.n_train = len(K)
        symmetric = self._symmetric(K)
        if self._how is None:
            return symmetric
        self._unit = bool((symmetric.diagonal() == 1.0).all())
        repaired, found = spectral_repair(symmetric, self._how)
        if not len(found.eigenvalues):
            return symmetric
        self._repair = found
        return unit_diagonal(repaired) if self._unit else repaired

    def _symmetric(self, K: NDArray[Any]) -> NDArray[Any]:
        if all(np.array_equal(K[strip], K[:, strip].T) for strip in _strips(len(K))):
            # its own mirror: one of the two lies in memory row by row, and is no copy
            return np.ascontiguousarray(K.T if K.flags.f_contiguous else K)
        symmetric = np.empty(K.shape, dtype=K.dtype)
        for strip in _strips(len(K)):
            # equal up to rounding: rows and columns must be the same to the bit
            np.add(K[strip], K[:, strip].T, out=symmetric[strip])
            symmetric[strip] /= 2
        return symmetric

    def keep(self, support: Index) -> None:
        """Remember which columns carry weight."""
        self.support = support

    def rows(self, X: Any, n_jobs: int | None) -> NDArray[Any]:
        """Return those columns of the checked test kernel."""
        K = as_matrix(X, "K")
        if K.shape[1] != self.n_train:
            raise InputError(
                f"K has {K.shape[1]} columns, but the model was trained on {self.n_train} samples; "
                f"a test kernel must have shape (n_test, {self.n_train})"
            )
        bad = np.argwhere(~np.isfinite(K))
        if len(bad):
            i, j = bad[0]
            raise InputError(
                f"K[{i}, {j}] is {K[i, j]}; every entry must be finite: compute it again, or leave out that sample"
            )
        repair = self._repair
        if repair is not None:
            repaired = repair.rows(K)
            K = unit_diagonal_rows(repaired, repair.self_similarity(K), repair.own_train) if self._unit else repaired
        return np.ascontiguousarray(K[:, self.support])

    @property
    def n_features(self) -> int:
        """Number of training samples."""
        return self.n_train

    def settings(self) -> dict[str, Any]:
        """Return what has to be saved besides arrays."""
        return {}

    def arrays(self) -> Arrays:
        """Return the columns that carry weight, the width, and the repair."""
        out = {"support": self.support, "n_train": np.array([self.n_train])}
        return out if self._repair is None else out | {"unit": np.array([self._unit])} | _repair_arrays(self._repair)

    @classmethod
    def from_arrays(cls, arrays: Arrays, **settings: Any) -> PrecomputedInput:
        """Return what was saved."""
        self = cls()
        self.support, self.n_train = arrays["support"], int(arrays["n_train"][0])
        self._repair = _saved_repair(arrays)
        self._unit = bool(arrays["unit"][0]) if "unit" in arrays else False
        return self


def _repair_arrays(repair: SpectralRepair) -> Arrays:
    return {f"repair_{field.name}": np.asarray(getattr(repair, field.name)) for field in fields(repair)}


def _saved_repair(arrays: Arrays) -> SpectralRepair | None:
    saved: dict[str, Any] = {
        name.removeprefix("repair_"): array for name, array in arrays.items() if name.startswith("repair_")
    }
    return SpectralRepair(**(saved | {"weight": float(saved["weight"])})) if saved else None


class RbfInput:
    """Vectors and ``exp(-gamma |x - z|^2)``; gamma None: 1 / (2 mean(|x - z|)^2) over the training pairs."""

    takes_vectors = True
    sample_ndim = 1

    def __init__(self, gamma: float | None = None) -> None:
        self.gamma = gamma

    def learn(self, X: Any, n_jobs: int | None) -> NDArray[Any]:
        """Return the kernel of the vectors, with gamma from them where it is not given."""
        self.vectors = np.ascontiguousarray(X, dtype=np.float64)
        D = self._distances(self.vectors, n_jobs)
        if self.gamma is None:
            # vectors that are all equal have no scale of their own
            self.gamma = 1.0 / bandwidth(D, "mean") if D.any() else 1.0
        return gaussian_kernel(D, 1.0 / self.gamma)

    def _distances(self, X: NDArray[Any], n_jobs: int | None) -> NDArray[Any]:
        # a vector is a series of one frame, and its DTW distance the Euclidean one
        one = (X, np.arange(len(X) + 1))
        if X is self.vectors:
            return pairwise_distances(one, None, DistanceSpec(), n_jobs)
        return pairwise_distances(one, (self.vectors, np.arange(len(self.vectors) + 1)), DistanceSpec(), n_jobs)

    def keep(self, support: Index) -> None:
        """Keep the vectors that carry weight."""
        self.vectors = np.ascontiguousarray(self.vectors[support])

    def rows(self, X: Any, n_jobs: int | None) -> NDArray[Any]:
        """Return the kernel of new vectors with the kept ones."""
        assert self.gamma is not None
        new = np.ascontiguousarray(X, dtype=np.float64)
        if new.shape[1] != self.n_features:
            raise InputError(
                f"X has {new.shape[1]} features, but the model was trained on vectors with {self.n_features}; give "
                "vectors of the same length"
            )
        return gaussian_kernel(self._distances(new, n_jobs), 1.0 / self.gamma)

    @property
    def n_features(self) -> int:
        """Length of a vector."""
        return int(self.vectors.shape[1])

    def settings(self) -> dict[str, Any]:
        """Return what has to be saved besides arrays."""
        return {}

    def arrays(self) -> Arrays:
        """Return the kept vectors and gamma."""
        return {"vectors": self.vectors, "gamma": np.array([self.gamma], dtype=np.float64)}

    @classmethod
    def from_arrays(cls, arrays: Arrays, **settings: Any) -> RbfInput:
        """Return what was saved."""
        self = cls(float(arrays["gamma"][0]))
        self.vectors = arrays["vectors"]
        return self


def _largest(series: Ragged, i: int) -> float:
    """Return the largest absolute value of series i."""
    values, offsets = series
    return float(np.abs(values[offsets[i] : offsets[i + 1]]).max())


class DtwInput:
    """Raw series, their distances, and the Gaussian kernel of these.

    The distance is DTW unless the settings name another metric. Series keep all their dimensions, also where the
    settings compare only some.
    """

    takes_vectors = False
    sample_ndim = 2

    def __init__(self, distance: DistanceSpec, kernel: KernelSpec) -> None:
        self.distance, self.kernel = distance, kernel
        self._read: Callable[[Index | None], Ragged] | None = None

    def learn(self, X: Any, n_jobs: int | None) -> NDArray[Any]:
        """Return the kernel of the series, with bandwidth and repair from them."""
        self.series = ragged(X, name="X")
        if self.distance.metric != "dtw":
            check_metric(self.series, self.distance, 0, int(self.series[1][1]))
        D = self._distances(self.series, None, n_jobs)
        self._check_sizes(D, self.series)
        self.transform = DistanceKernel(self.kernel.bandwidth, self.kernel.factor, self.kernel.repair)
        K: NDArray[Any] = self.transform.fit_transform(D)
        return K

    @classmethod
    def of_rows(
        cls, distance: DistanceSpec, transform: DistanceKernel, read: Callable[[Index | None], Ragged]
    ) -> DtwInput:
        """Return the input of a model whose kernel was made elsewhere.

        Parameters
        ----------
        transform
            What the kernel was made by, fitted.
        read
            Gives the training series at some positions; None: all of them.
        """
        self = cls(distance, KernelSpec(transform.bandwidth, transform.factor, transform.repair))
        self.transform, self._read = transform, read
        return self

    def keep(self, support: Index) -> None:
        """Keep the series that carry weight; all of them where the kernel is repaired."""
        if self._read is not None:
            whole = self.kernel.repair is not None
            self.series = self._read(None if whole else support)
            self.columns = support if whole else np.arange(len(support))
            self.transform.n_features_in_, self._read = len(self.series[1]) - 1, None
            return
        values, offsets = self.series
        if self.kernel.repair is not None:
            # a repaired row needs the distances to all training series; the caller's own may change later
            self.columns, self.series = support, (values.copy(), offsets.copy())
        else:
            self.columns = np.arange(len(support))
            lengths = np.diff(offsets)[support]
            frames = np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in support])
            self.series = (values[frames], np.concatenate([[0], np.cumsum(lengths)]))
            self.transform.n_features_in_ = len(support)

    def rows(self, X: Any, n_jobs: int | None) -> NDArray[Any]:
        """Return the kernel of new series with those that carry weight."""
        new = ragged(X, name="X")
        self.check(new)
        D = self._distances(new, self.series, n_jobs)
        self._check_sizes(D, new)
        return np.ascontiguousarray(self.transform.transform(D)[:, self.columns])

    def check(self, new: Ragged, first: int = 0) -> None:
        """Raise an InputError for a series that cannot be compared with; ``first`` is the number of the first one."""
        (values, offsets), spec = new, self.distance
        if values.shape[1] != self.n_features:
            raise InputError(
                f"X has {values.shape[1]} dims, but the model was trained on series with {self.n_features}; give "
                "series of the same dims, and even a single one in a list"
            )
        if spec.metric == "dtw":
            prepare(pick_dims(new, spec), spec, "X", first)
            return
        lengths, length = np.diff(offsets), int(self.series[1][1])
        odd = np.flatnonzero(lengths != length)
        if len(odd):
            raise InputError(
                f"X[{first + odd[0]}] has {lengths[odd[0]]} frames, but the model was trained with metric="
                f"{spec.metric!r} on series of {length}; give series of that length"
            )
        check_metric(new, spec, first, length)

    @property
    def checks_values(self) -> bool:
        """Whether the values of a series may be wrong, and not only their number."""
        spec = self.distance
        return spec.normalise is not None or spec.dtype != "float64" or spec.metric != "dtw"

    def _distances(self, new: Ragged, kept: Ragged | None, n_jobs: int | None) -> NDArray[Any]:
        """Return the distances of new series to those that are kept; None: to themselves."""
        spec = self.distance
        if spec.metric != "dtw":
            return pairwise_metric(new, kept, spec, n_jobs)
        there = None if kept is None else pick_dims(kept, spec)
        return pairwise_distances(pick_dims(new, spec), there, spec, n_jobs, names=("X", "the training series"))

    def _check_sizes(self, D: NDArray[Any], new: Ragged) -> None:
        """Raise an InputError where distances are so large that numbers end; ``new`` are the series of the rows."""
        i, j = np.unravel_index(int(D.argmax()), D.shape)  # NaN counts as largest
        if float(D[i, j]) <= LARGEST_DISTANCE:  # which is no number of float32
            return
        if new is self.series:
            # both are training series: the one with the larger values is to blame
            i = max(i, j, key=lambda row: _largest(new, int(row)))
        raise InputError(
            f"X[{i}] has values of up to {_largest(new, int(i)):.3g}, and its largest "
            f"{'DTW ' if self.distance.metric == 'dtw' else ''}distance is {D[i].max():g}: too large to "
            "be squared; rescale all series, in training and later, by one factor"
        )

    @property
    def n_features(self) -> int:
        """Number of dimensions of the series, whether they are compared or not."""
        return int(self.series[0].shape[1])

    def settings(self) -> dict[str, Any]:
        """Return what has to be saved besides arrays."""
        return {"distance": asdict(self.distance), "kernel": asdict(self.kernel)}

    def arrays(self) -> Arrays:
        """Return the kept series, the bandwidth and the repair."""
        out = {
            "series_values": self.series[0],
            "series_offsets": self.series[1],
            "columns": self.columns,
            "bandwidth": np.array([self.transform.bandwidth_, self.transform.delta_]),
        }
        repair = self.transform.spectral_repair_
        return out if repair is None else out | _repair_arrays(repair)

    @classmethod
    def from_arrays(cls, arrays: Arrays, **settings: Any) -> DtwInput:
        """Return what was saved."""
        self = cls(DistanceSpec(**settings["distance"]), KernelSpec(**settings["kernel"]))
        self.series = (arrays["series_values"], arrays["series_offsets"])
        self.columns = arrays["columns"]
        self.transform = DistanceKernel(self.kernel.bandwidth, self.kernel.factor, self.kernel.repair)
        self.transform.bandwidth_, self.transform.delta_ = (float(v) for v in arrays["bandwidth"])
        self.transform.n_features_in_ = len(self.series[1]) - 1
        self.transform.spectral_repair_ = _saved_repair(arrays)
        return self
