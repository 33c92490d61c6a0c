"""Settings as frozen dataclasses: the one place for defaults, allowed values and fingerprints.

The functions and the estimators take their defaults from here. A fingerprint names
*resolved* settings: two specs with the same fingerprint give the same numbers.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal

from cksc_dist.errors import EngineError, InputError

__all__ = [
    "ENGINES",
    "EXECUTORS",
    "KERNELS",
    "METRICS",
    "DistanceSpec",
    "KernelSpec",
    "ModelSpec",
    "RunSpec",
    "check_choice",
    "check_count",
    "check_number",
    "fingerprint",
]

ENGINES = ("auto", "simd", "dtaidistance", "naive")
METRICS = ("dtw", "euclidean", "chi2", "chi", "external")
EXECUTORS = ("auto", "serial", "threads", "dask")
MODES = ("dependent", "independent")
COSTS = ("squared", "abs")
DTYPES = ("float64", "float32")
BANDWIDTHS = ("mean", "median", "paper", "squares")
REPAIRS = (None, "clip", "flip")
KERNELS = ("precomputed", "dtw", "rbf")
RECALLS = ("confident", "reconstruction")
SCHEDULES = ("interleaved", "sequential")
SELECTIONS = ("scaled", "plain")


def fingerprint(spec: Any) -> str:
    """Return 16 hexadecimal digits that name the settings of a spec."""
    text = json.dumps({type(spec).__name__: asdict(spec)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_choice(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    """Raise an InputError unless the value is one of those allowed."""
    # `in` alone would let 1 pass for True and choke on arrays
    if not any(isinstance(value, type(choice)) and value == choice for choice in allowed):
        raise InputError(f"{name}={value!r}: must be one of {', '.join(repr(a) for a in allowed)}")


def check_number(name: str, value: Any, low: float, high: float, *, open_low: bool = False) -> None:
    """Raise an InputError unless the value is a number in [low, high], or (low, high]."""
    ok = isinstance(value, Real) and not isinstance(value, bool)
    # NumPy would bring the limits to its own type, in which they may overflow
    number: Any = value.item() if ok and hasattr(value, "item") else value
    if not ok or not (low < number if open_low else low <= number) or not number <= high:
        left = "(" if open_low else "["
        raise InputError(f"{name}={value!r}: must be a number in {left}{low:g}, {high:g}]")


def check_count(name: str, value: Any, low: int = 1) -> None:
    """Raise an InputError unless the value is a whole number of at least ``low``, of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < low:
        raise InputError(f"{name}={value!r}: must be a whole number of at least {low}")
    if int(value) >= 2**63:
        raise InputError(f"{name}={str(value)[:30]}: must be below 2**63")


def _settle(spec: Any, kind: type[int] | type[float], *names: str) -> None:
    """Make fields plain numbers, so that 1, 1.0 and NumPy's 1 give the same fingerprint."""
    for name in names:
        object.__setattr__(spec, name, kind(getattr(spec, name)))


@dataclass(frozen=True)
class DistanceSpec:
    """What a distance is (methods: `cksc_dist.maths.dtw`, `cksc_dist.maths.metrics`).

    Parameters
    ----------
    mode
        ``"dependent"``: one warping for all dimensions; ``"independent"``: one for each.
    window
        Sakoe-Chiba band. None: no band. A whole number: frames, counted as dtaidistance does (1 = only the
        diagonal, widened by the difference of lengths). A float in (0, 1]: that fraction of the longer
        series, rounded up to whole frames.
    cost
        Local cost of two frames: ``"squared"`` (squared Euclidean, and the value is the root of the path
        sum) or ``"abs"`` (sum of absolute differences, no root).
    normalise
        ``"z"``: every dimension of every series is brought to mean 0 and deviation 1 first.
    per_length
        Divide the path sum by the sum of the two lengths before the root.
    engine
        ``"auto"``, ``"simd"``, ``"dtaidistance"`` or ``"naive"``.
    dtype
        Arithmetic and result: ``"float64"`` or ``"float32"``.
    dims
        Which dimensions of the series are compared, ascending; None: all.
    metric
        ``"dtw"``; ``"euclidean"``, ``"chi2"`` or its root ``"chi"`` for series of one length, taken as vectors
        (chi-square: as histograms); ``"external"``: a matrix that came ready. For these, only `dtype` and `dims` apply.
    """

    mode: Literal["dependent", "independent"] = "dependent"
    window: int | float | None = None
    cost: Literal["squared", "abs"] = "squared"
    normalise: Literal["z"] | None = None
    per_length: bool = False
    engine: str = "auto"
    dtype: str = "float64"
    dims: tuple[int, ...] | None = None
    metric: Literal["dtw", "euclidean", "chi2", "chi", "external"] = "dtw"

    def __post_init__(self) -> None:
        check_choice("metric", self.metric, METRICS)
        check_choice("mode", self.mode, MODES)
        check_choice("cost", self.cost, COSTS)
        check_choice("normalise", self.normalise, (None, "z"))
        check_choice("per_length", self.per_length, (False, True))
        check_choice("dtype", self.dtype, DTYPES)
        if not isinstance(self.engine, str) or self.engine not in ENGINES:
            raise EngineError(f"engine={self.engine!r} is unknown; choose one of {', '.join(ENGINES)}")
        window: Any = self.window
        if window is not None:
            if not isinstance(window, bool) and isinstance(window, Integral):
                check_count("window", window)
                _settle(self, int, "window")
            else:
                check_number("window (as a fraction of the longer series)", window, 0.0, 1.0, open_low=True)
                _settle(self, float, "window")
        if self.dims is not None:
            self._settle_dims(self.dims)
        if self.metric != "dtw":
            self._check_no_warping()

    def _settle_dims(self, dims: Any) -> None:
        chosen = tuple(dims) if hasattr(dims, "__iter__") and not isinstance(dims, str) else (dims,)
        for dim in chosen:
            check_count("dims", dim, low=0)
        if not chosen or list(chosen) != sorted(set(chosen)):
            raise InputError(f"dims={dims!r}: give at least one dimension, ascending, each once")
        object.__setattr__(self, "dims", tuple(int(dim) for dim in chosen))

    def _check_no_warping(self) -> None:
        plain = DistanceSpec(dtype=self.dtype, dims=self.dims)
        for name in ("mode", "window", "cost", "normalise", "per_length", "engine"):
            if getattr(self, name) != getattr(plain, name):
                raise InputError(f"{name}={getattr(self, name)!r} is for metric='dtw', not for {self.metric!r}")

    def resolved(self) -> DistanceSpec:
        """Return the settings with ``auto`` replaced by what it stands for, as they are stored and fingerprinted.

        The rule looks at settings only, never at the number or length of the series: a value keeps its bits in
        whatever set it is computed.
        """
        return replace(self, engine="simd") if self.metric == "dtw" and self.engine == "auto" else self


@dataclass(frozen=True)
class KernelSpec:
    """How distances become a kernel: ``K = exp(-D^2 / (factor * delta))`` (`cksc_dist.maths.kernel`).

    Parameters
    ----------
    bandwidth
        ``"mean"``: delta = 2 mean(D)^2; ``"median"``: 2 median(D)^2; ``"paper"``: mean(D); ``"squares"``: mean(D^2);
        a number: delta itself. Means run over all ordered pairs of training rows, diagonal included.
    factor
        Multiplies delta; worth tuning over .1, .25, .5, 1, 2.
    repair
        None, or ``"clip"`` / ``"flip"`` for negative eigenvalues.
    """

    bandwidth: str | float = "mean"
    factor: float = 1.0
    repair: Literal["clip", "flip"] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.bandwidth, str):
            check_choice("bandwidth", self.bandwidth, BANDWIDTHS)
        else:
            check_number("bandwidth", self.bandwidth, 0.0, 1e300, open_low=True)
            _settle(self, float, "bandwidth")
        check_number("factor", self.factor, 0.0, 1e300, open_low=True)
        _settle(self, float, "factor")
        check_choice("repair", self.repair, REPAIRS)


@dataclass(frozen=True)
class ModelSpec:
    """Parameters of CKSC (`cksc_dist.maths.cksc`).

    Parameters
    ----------
    sparsity
        T0: at most this many non-zeros in each code and in each atom.
    alpha
        Weight of the discriminative term.
    atoms_per_class
        Atoms that each class starts with; None: T0.
    recall
        ``"confident"``: the recall of the paper; ``"reconstruction"``: without its alpha and beta terms.
    schedule
        ``"interleaved"``: rounds of atoms, one of each class, side by side; ``"sequential"``: one after the
        other.
    selection
        How NQP picks the next entry: ``"plain"`` by the gradient, which does a little better on the published sets;
        ``"scaled"`` by the gradient over the root of the diagonal, which does better where columns differ in scale.
    prune
        Drop entries of codes and atoms below this share of the largest, then refit; 0: off.
    max_iter, tol
        At most so many alternations; stop once J changes by less than tol, relatively.
    """

    sparsity: int = 6
    alpha: float = 0.2
    atoms_per_class: int | None = None
    recall: Literal["confident", "reconstruction"] = "confident"
    schedule: Literal["interleaved", "sequential"] = "interleaved"
    selection: Literal["scaled", "plain"] = "plain"
    prune: float = 0.0
    max_iter: int = 50
    tol: float = 1e-4

    def __post_init__(self) -> None:
        check_count("sparsity", self.sparsity)
        check_number("alpha", self.alpha, 0.0, 1e6)
        if self.atoms_per_class is not None:
            check_count("atoms_per_class", self.atoms_per_class)
            _settle(self, int, "atoms_per_class")
        check_choice("recall", self.recall, RECALLS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("selection", self.selection, SELECTIONS)
        check_number("prune", self.prune, 0.0, 0.5)
        check_count("max_iter", self.max_iter)
        check_number("tol", self.tol, 0.0, 1.0)
        _settle(self, int, "sparsity", "max_iter")
        _settle(self, float, "alpha", "prune", "tol")


@dataclass(frozen=True)
class RunSpec:
    """How work is run; nothing of it changes a value.

    Parameters
    ----------
    executor
        ``"serial"``, ``"threads"``, ``"dask"``, or ``"auto"``: threads where less than a minute is expected and no
        scheduler is given, Dask otherwise.
    scheduler
        Address of a running Dask scheduler; None: a cluster on this machine is started where Dask is used.
    workers
        Threads, or worker processes of the cluster on this machine; None: one for each core.
    memory
        Bytes that one worker may use; None: its share of the machine's.
    trust
        Take the ledger's word for tiles that are done, instead of reading them again.
    require_tls
        Refuse a scheduler that is reached over a network without encryption, instead of warning of it. The environment
        variable ``CKSC_REQUIRE_TLS=1`` does so for every command.
    """

    executor: Literal["auto", "serial", "threads", "dask"] = "auto"
    scheduler: str | None = None
    workers: int | None = None
    memory: int | None = None
    trust: bool = False
    require_tls: bool = False

    def __post_init__(self) -> None:
        check_choice("executor", self.executor, EXECUTORS)
        check_choice("trust", self.trust, (False, True))
        check_choice("require_tls", self.require_tls, (False, True))
        for name in ("workers", "memory"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        if "@" in (self.scheduler or ""):  # addresses are printed; Dask knows no passwords
            raise InputError("the address of the scheduler holds a name or password; give it as tcp://HOST:PORT")
        if self.scheduler is not None and self.executor not in ("auto", "dask"):
            raise InputError(f"executor={self.executor!r} uses no scheduler; leave one of the two out")
