"""CKSC: Confident Kernel Sparse Coding as a scikit-learn classifier.

A thin shell: the mathematics is in `cksc_dist.maths.cksc`, the kernel comes through
`cksc_dist.models.kernel_input`.
Method of B. Hosseini and B. Hammer, Confident Kernel Sparse Coding and Dictionary Learning, ICDM 2018.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from cksc_dist.dist.progress import Progress
from cksc_dist.errors import InputError, SmallClassWarning
from cksc_dist.maths.cksc import TERMS, Fit, alternate, class_interpretability
from cksc_dist.maths.codes import Dictionary, dictionary_products, recall, recall_quadratic
from cksc_dist.maths.gram import Gram
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.models.kernel_classifier import Arrays, Checked, KernelClassifier, class_numbers
from cksc_dist.models.kernel_input import DtwInput, KernelInput, PrecomputedInput
from cksc_dist.spec import DistanceSpec, KernelSpec, ModelSpec, RunSpec
from cksc_dist.store.kernel_view import KernelView
from cksc_dist.store.matrix import DistanceMatrix

__all__ = ["CKSC", "check_classes"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]


class CKSC(KernelClassifier):
    """Confident Kernel Sparse Coding: a sparse, non-negative, discriminative dictionary on a kernel.

    Every decision can be read: a sample is rebuilt from a few training samples, and its label is the class
    that most of them belong to (`explain`).

    Parameters
    ----------
    sparsity
        T0: at most this many non-zeros in each code and each atom.
    alpha
        Weight of the discriminative term, >= 0.
    kernel
        ``"precomputed"``: fit takes the kernel (n, n), predict takes (n_test, n). ``"dtw"``: both take raw
        series (a list of (time, dims) arrays, an array (n, time, dims), a `SeriesSet`). ``"rbf"``: vectors.
    atoms_per_class
        Atoms that each class starts with; None: ``sparsity``. A smaller class takes all it has.
    recall
        ``"confident"``: as in the paper. ``"reconstruction"``: without the alpha and beta terms at recall,
        which often is better with a large alpha.
    schedule
        ``"interleaved"`` (atoms of different classes side by side, on threads) or ``"sequential"``.
    prune
        Drop entries of codes and atoms below this share of the largest, then refit; 0: off.
    max_iter, tol
        At most so many alternations; stop once J changes by less than ``tol``, relatively.
    random_state
        Draws the samples that the atoms start from.
    n_jobs
        Threads; None is 1, -1 all cores. The result does not depend on it.
    selection
        How NQP picks the next entry: ``"scaled"`` or ``"plain"``.
    mode, window, cost, normalise, per_length
        For ``kernel="dtw"``: the distance, as in `pairwise_dtw`.
    bandwidth, factor, repair
        For ``kernel="dtw"``: the kernel, as in `DistanceKernel`.
    gamma
        For ``kernel="rbf"``: ``exp(-gamma |x - z|^2)``; None: 1 / (2 mean(|x - z|)^2) over training pairs.

    Attributes
    ----------
    classes_ : ndarray
        The labels, sorted.
    dictionary_ : csc_array of shape (n, k)
        U; atom j is the combination of training samples in column j.
    codes_ : csr_array of shape (n, k)
        Codes of the training samples.
    beta_ : float
        The ridge that makes recall convex.
    n_iter_ : int
        Alternations.
    objective_history_ : ndarray
        J after every half step; it never rises.
    objective_terms_ : dict
        Its terms: reconstruction, ridge, discrimination.
    interpretability_ : ndarray of shape (k,)
        IP of each atom: the share of its weight in its strongest class.
    support_ : ndarray
        The training samples that carry weight; no others are looked at in prediction.
    n_train_ : int
        Number of training samples.
    origin_ : dict or None
        Where a model comes from that was trained from a store: the store, the matrix, and the ``rows`` and ``ids`` of
        the samples that carry weight, in the order of ``support_``.

    Examples
    --------
    >>> from cksc_dist import CKSC
    >>> from cksc_dist.io import make_gestures
    >>> data = make_gestures(n_per_class=10, random_state=1)
    >>> model = CKSC(sparsity=3, kernel="dtw", random_state=0).fit(data.series[::2], data.labels[::2])
    >>> bool(model.score(data.series[1::2], data.labels[1::2]) > 0.8)
    True
    """

    spec_type = ModelSpec

    def __init__(
        self,
        sparsity: int = ModelSpec.sparsity,
        alpha: float = ModelSpec.alpha,
        kernel: str = "precomputed",
        atoms_per_class: int | None = ModelSpec.atoms_per_class,
        recall: str = ModelSpec.recall,
        schedule: str = ModelSpec.schedule,
        prune: float = ModelSpec.prune,
        max_iter: int = ModelSpec.max_iter,
        tol: float = ModelSpec.tol,
        random_state: Any = None,
        n_jobs: int | None = None,
        *,
        selection: str = ModelSpec.selection,
        mode: str = DistanceSpec.mode,
        window: int | float | None = DistanceSpec.window,
        cost: str = DistanceSpec.cost,
        normalise: str | None = DistanceSpec.normalise,
        per_length: bool = DistanceSpec.per_length,
        bandwidth: str | float = KernelSpec.bandwidth,
        factor: float = KernelSpec.factor,
        repair: str | None = KernelSpec.repair,
        gamma: float | None = None,
    ) -> None:
        self.sparsity = sparsity
        self.alpha = alpha
        self.kernel = kernel
        self.atoms_per_class = atoms_per_class
        self.recall = recall
        self.schedule = schedule
        self.prune = prune
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.selection = selection
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

    def fit(self, X: Any, y: Any, *, client: Any = None) -> CKSC:
        """Learn dictionary and codes.

        Parameters
        ----------
        X
            Kernel (n, n), series or vectors, as ``kernel`` says. A kernel may also be a Dask array, or a view of a
            stored matrix (``open_matrix(store).kernel(rows)``), which need not fit in memory.
        y
            One label for each sample: str, int or bool; at least two classes.
        client
            A connected Dask client. A Dask array is computed by its workers, and must fit in memory here. For a view,
            its workers go through the kernel. Where a view is not loaded into
            memory, a copy of the kernel is left in its store for the next fit on these rows (see `cksc status`).
        """
        spec, source = self._specs()
        checked = self._check(X, y)
        _warn_of_small_classes(spec, checked.classes, checked.y)
        rng = self._generator()
        with self._kernel_of(checked.X, source, client) as K:
            fit = alternate(K, checked.y, len(checked.classes), spec, rng, self.n_jobs)
        self._warn_unless(fit.converged)
        self._set_fit(spec, checked, source, fit, self.n_jobs)
        return self

    @contextmanager
    def _kernel_of(self, X: Any, source: KernelInput, client: Any) -> Iterator[NDArray[Any] | Gram]:
        """Give the kernel of the training samples, or where it lives."""
        if isinstance(X, DistanceMatrix):
            raise InputError(
                "X is a matrix of distances; take the kernel of its training rows: "
                "open_matrix(store).kernel(rows), then kernel.against(other_rows) to predict"
            )
        view = X if isinstance(X, KernelView) and isinstance(X.matrix, DistanceMatrix) else None
        if client is not None and isinstance(source, PrecomputedInput) and hasattr(X, "__dask_graph__"):
            # computed by the workers, trained on here
            yield source.learn(client.compute(X).result(), self.n_jobs)
            return
        if view is None or not isinstance(source, PrecomputedInput):
            if client is not None:
                raise InputError(
                    "client is for a Dask array or a view of a stored matrix: open_matrix(store).kernel(rows)"
                )
            yield source.learn(X, self.n_jobs)
            return
        from cksc_dist.models.stored_kernel import stored_kernel  # Dask takes long to import

        source.n_train = len(view)
        place: Any = "auto" if client is None else "cluster"
        run, quiet = RunSpec(workers=resolve_n_jobs(self.n_jobs)), Progress()
        matrix: Any = view.matrix
        with stored_kernel(matrix, view.rows, view.spec, place, run, quiet, client, delta=view.delta) as ready:
            yield ready.gram

    def _set_fit(
        self,
        spec: ModelSpec,
        checked: Checked,
        source: KernelInput,
        fit: Fit,
        n_jobs: int | None,
        origin: dict[str, Any] | None = None,
    ) -> None:
        """Set all that a finished training has learnt."""
        U = fit.atoms.csr(len(checked.y))
        dictionary = dictionary_products(fit.atoms, fit.KU, checked.y, len(checked.classes), n_jobs)
        # nothing is set before this line: a fit that fails leaves an earlier one whole
        self._take(spec, checked, source, U.T, fit.codes.csr(len(fit.home)))
        self.origin_, self.beta_, self.n_iter_ = origin, fit.beta, fit.n_iter
        self._set_history(fit.history)
        self._set_recall(dictionary)

    def _set_history(self, history: Float) -> None:
        self.objective_terms_ = dict(zip(TERMS, history.T.copy(), strict=True))
        self.objective_history_ = history.sum(axis=1)

    def _set_recall(self, dictionary: Dictionary) -> None:
        """Prepare recall from the products of the dictionary with itself."""
        confident = self._spec.recall == "confident"
        self._dictionary = dictionary
        self._quadratic = recall_quadratic(
            dictionary, self._spec.alpha if confident else 0.0, self.beta_ if confident else 0.0
        )
        self.interpretability_ = class_interpretability(dictionary.class_weight)
        atoms = self._support_atoms
        # positions among the samples that carry weight, which is what kernel rows refer to
        self._atoms = SparseRows.from_csr(atoms, int(np.diff(atoms.indptr).max()))

    # -- prediction

    def _codes_of(self, rows: NDArray[Any]) -> Any:
        # as they were at fit: parameters may have been set since
        spec = self._spec
        codes = recall(rows, self._atoms, self._quadratic, spec.sparsity, spec.selection, spec.prune, self.n_jobs)
        return codes.csr(len(self.interpretability_))

    def _scores(self, rows: NDArray[Any], codes: Any) -> tuple[Float, NDArray[np.bool_]]:
        # h = L U g, normalised
        h = codes @ self._dictionary.class_weight
        total = h.sum(axis=1)
        far = total <= 0.0
        h[far], total[far] = 1.0, h.shape[1]
        return h / total[:, None], far

    def _class_weight(self) -> Float:
        return self._dictionary.class_weight

    def _gram(self) -> Float:
        return self._dictionary.gram

    def saved_distances(self, n_test: int) -> tuple[int, int]:
        """Return how many distances ``n_test`` predictions need with ``kernel="dtw"``, and how many not.

        Only series that carry weight are compared with; a repaired kernel needs all of them.
        """
        check_is_fitted(self)
        repaired = isinstance(self._source, DtwInput) and self._source.kernel.repair is not None
        needed = self.n_train_ if repaired else len(self.support_)
        return n_test * needed, n_test * (self.n_train_ - needed)

    # -- files

    def _more_settings(self) -> dict[str, Any]:
        return {"beta": self.beta_}

    def _arrays(self) -> Arrays:
        return {
            **self._dictionary._asdict(),
            "history": np.column_stack([self.objective_terms_[name] for name in TERMS]),
        }

    def _set_arrays(self, arrays: Arrays, settings: dict[str, Any]) -> None:
        self.beta_ = settings["beta"]
        self._set_history(arrays["history"])
        self._set_recall(Dictionary(*(arrays[name] for name in Dictionary._fields)))


def check_classes(labels: NDArray[Any], spec: ModelSpec) -> tuple[NDArray[Any], Index]:
    """Return the classes and the class of each sample, or say that there are too few; warn of small ones."""
    classes, class_index = class_numbers(labels)
    _warn_of_small_classes(spec, classes, class_index)
    return classes, class_index


def _warn_of_small_classes(spec: ModelSpec, classes: NDArray[Any], class_index: NDArray[np.int64]) -> None:
    wanted = spec.sparsity if spec.atoms_per_class is None else spec.atoms_per_class
    sizes = np.bincount(class_index)
    small = np.flatnonzero(sizes < wanted)
    if len(small):
        first = small[0]
        warnings.warn(
            f"class {classes[first].item()!r} has {sizes[first]} samples, fewer than the {wanted} atoms a "
            f"class starts with ({len(small)} such classes): it starts with all it has",
            SmallClassWarning,
            stacklevel=4,
        )
