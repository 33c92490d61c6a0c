"""JKSRC as a scikit-learn classifier: samples rebuilt from few training samples, the same ones in several kernels.

A thin shell: the mathematics is in `cksc_dist.maths.jksrc`.
After H. Liu, D. Guo, F. Sun, Object recognition using tactile measurements: kernel sparse coding methods, IEEE TIM
2016; a reconstruction on Gram matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from cksc_dist.maths.jksrc import class_residuals, convex_codes, greedy_codes
from cksc_dist.models.dictionary_classifier import shares_of_residuals
from cksc_dist.models.kernel_classifier import Arrays, KernelClassifier
from cksc_dist.models.kernel_input import DtwInput, KernelInput, RbfInput
from cksc_dist.models.kernel_stack import DtwStack, PrecomputedStack, RbfStack
from cksc_dist.spec import DistanceSpec, KernelSpec, check_choice, check_count, check_number

__all__ = ["JKSRC", "JKSRCSpec"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]

FORMS = ("greedy", "convex")


@dataclass(frozen=True)
class JKSRCSpec:
    """Parameters of JKSRC (`cksc_dist.maths.jksrc`); `JKSRC` says what they mean."""

    sparsity: int = 6
    form: Literal["greedy", "convex"] = "greedy"
    shrinkage: float = 0.1

    def __post_init__(self) -> None:
        check_count("sparsity", self.sparsity)
        check_choice("form", self.form, FORMS)
        check_number("shrinkage", self.shrinkage, 0.0, 1.0, open_low=True)
        # plain numbers, so that NumPy's are saved alike
        object.__setattr__(self, "sparsity", int(self.sparsity))
        object.__setattr__(self, "shrinkage", float(self.shrinkage))


class JKSRC(KernelClassifier):
    """Joint kernel sparse representation: few training samples, the same ones in every kernel, rebuild a sample.

    A reconstruction: the paper does not settle how the method runs on Gram matrices. The training set is the
    dictionary, nothing is learnt but the kernels. With one kernel this is kernel SRC.

    Parameters
    ----------
    sparsity
        T0: at most this many training samples rebuild a sample (``form="greedy"``).
    form
        ``"greedy"``: joint orthogonal matching pursuit. ``"convex"``: group lasso.
    shrinkage
        lambda / lambda_max of the convex form, in (0, 1].
    kernel
        ``"precomputed"``: fit takes M kernels (n, n, M), predict takes (n_test, n, M); one kernel may go without the
        last axis. ``"dtw"``: both take raw series (a list of (time, dims) arrays, an array (n, time, dims), a
        `SeriesSet`), of which each group of dimensions makes a kernel. ``"rbf"``: vectors, one kernel.
    groups
        For ``kernel="dtw"``: dimensions of each kernel, such as those of one sensor; None: one each.
    random_state
        Not used: nothing is drawn.
    n_jobs
        Threads; None is 1, -1 all cores. The result does not depend on it.
    mode, window, cost, normalise, per_length
        For ``kernel="dtw"``: the distance, as in `pairwise_dtw`.
    bandwidth, factor
        For ``kernel="dtw"``: the kernels, as in `DistanceKernel`; each has a bandwidth of its own.
    repair
        What is done about negative eigenvalues of each kernel; this method needs them to have none.
    gamma
        For ``kernel="rbf"``: ``exp(-gamma |x - z|^2)``; None: 1 / (2 mean(|x - z|)^2) over training pairs.

    Attributes
    ----------
    classes_, support_, n_train_
        As `CKSC` has them; every training sample is looked at.
    dictionary_ : csc_array of shape (n, M n)
        The training samples, once for each kernel: atom ``m n + i`` is sample i in kernel m.
    codes_ : csr_array of shape (n, M n)
        Of a training sample: itself in every kernel.
    n_iter_ : int
        0: nothing is learnt in steps.
    objective_history_ : ndarray
        Empty.
    interpretability_ : ndarray
        1 for every atom: each is a sample.

    Notes
    -----
    Class shares are in proportion to the inverse squared residuals.

    Examples
    --------
    >>> from cksc_dist.io import make_gestures
    >>> from cksc_dist.models.jksrc import JKSRC
    >>> data = make_gestures(n_per_class=10, random_state=1)
    >>> model = JKSRC(sparsity=3, kernel="dtw").fit(data.series[::2], data.labels[::2])
    >>> bool(model.score(data.series[1::2], data.labels[1::2]) > 0.8)
    True
    """

    spec_type = JKSRCSpec

    def __init__(
        self,
        sparsity: int = JKSRCSpec.sparsity,
        form: str = JKSRCSpec.form,
        shrinkage: float = JKSRCSpec.shrinkage,
        kernel: str = "precomputed",
        groups: Sequence[Sequence[int]] | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        *,
        mode: str = DistanceSpec.mode,
        window: int | float | None = DistanceSpec.window,
        cost: str = DistanceSpec.cost,
        normalise: str | None = DistanceSpec.normalise,
        per_length: bool = DistanceSpec.per_length,
        bandwidth: str | float = KernelSpec.bandwidth,
        factor: float = KernelSpec.factor,
        repair: str | None = "clip",
        gamma: float | None = None,
    ) -> None:
        self.sparsity = sparsity
        self.form = form
        self.shrinkage = shrinkage
        self.kernel = kernel
        self.groups = groups
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.mode = mode
        self.window = window
        self.cost = cost
        self.normalise = normalise
        self.per_length = per_length
        self.bandwidth = bandwidth
        self.factor = factor
        self.repair = repair
        self.gamma = gamma

    # -- training

    def _precomputed(self) -> KernelInput:
        return PrecomputedStack(self.repair)

    def _specs(self) -> tuple[Any, KernelInput]:
        spec, source = super()._specs()
        if isinstance(source, DtwInput):
            return spec, DtwStack(source.distance, source.kernel, self.groups)
        return spec, RbfStack(source.gamma) if isinstance(source, RbfInput) else source

    def fit(self, X: Any, y: Any) -> JKSRC:
        """Take the training samples for the dictionary.

        Parameters
        ----------
        X
            Kernels (n, n, M) or (n, n), series or vectors, as ``kernel`` says.
        y
            One label for each sample: str, int or bool; at least two classes.
        """
        spec, source = self._specs()
        checked = self._check(X, y)
        K = np.asarray(source.learn(checked.X, self.n_jobs))
        samples = sparse.hstack([sparse.identity(len(checked.y), format="csr")] * len(K))
        # nothing is set before this line: a fit that fails leaves an earlier one whole
        self._take(spec, checked, source, samples, samples)
        self.origin_, self.n_iter_, self.objective_history_ = None, 0, np.zeros(0)
        self._set_kernels(K)
        return self

    def _set_kernels(self, K: Float) -> None:
        self._kernels = K
        self.interpretability_ = np.ones(len(K) * self.n_train_)

    # -- prediction

    def _codes_of(self, rows: NDArray[Any]) -> Any:
        spec: JKSRCSpec = self._spec  # as they were at fit: parameters may have been set since
        if spec.form == "greedy":
            return greedy_codes(self._kernels, rows, spec.sparsity, self.n_jobs)
        return convex_codes(self._kernels, rows, spec.shrinkage, self.n_jobs)

    def _scores(self, rows: NDArray[Any], codes: Any) -> tuple[Float, NDArray[np.bool_]]:
        far = np.diff(codes.indptr) == 0
        shares = shares_of_residuals(
            class_residuals(self._kernels, rows, codes, self._train_labels, len(self.classes_))
        )
        shares[far] = 1.0 / shares.shape[1]
        return shares, far

    def _atoms_used(self, codes: Any) -> Index:
        """Return how many training samples each decision is made of, whatever the kernel."""
        samples = codes.indices % self.n_train_
        return np.array([len(np.unique(samples[a:b])) for a, b in pairwise(codes.indptr)], np.int64)

    def _similarities(self, rows: NDArray[Any], codes: Any, weights: Any) -> Float:
        """Return the cosine in the space of all kernels together."""
        own = np.sqrt(np.einsum("mii->mi", self._kernels).mean(axis=1).sum())
        found = np.zeros(len(rows))
        for i, code in enumerate(codes):
            X = np.asarray(code.toarray()).reshape(len(self._kernels), self.n_train_)
            norm = float(np.einsum("mi,mij,mj->", X, self._kernels, X, optimize=True))
            found[i] = (rows[i] * X).sum() / (np.sqrt(norm) * own) if norm > 0 else 0.0
        return found

    def _class_weight(self) -> Float:
        members = np.eye(len(self.classes_))[self._train_labels]
        return np.tile(members, (len(self._kernels), 1))

    def _gram(self) -> Float:
        gram: Float = sparse.block_diag(list(self._kernels)).toarray()
        return gram

    # -- files

    def _arrays(self) -> Arrays:
        return {"kernels": self._kernels}

    def _set_arrays(self, arrays: Arrays, settings: dict[str, Any]) -> None:
        self.objective_history_ = np.zeros(0)
        self._set_kernels(arrays["kernels"])
