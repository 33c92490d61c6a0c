"""CKSC: Confident Kernel Sparse Coding as a scikit-learn classifier.

A thin shell: the mathematics is in `cksc_dist.maths.cksc`, the kernel comes through
`cksc_dist.models.kernel_input`.
Method of B. Hosseini and B. Hammer, Confident Kernel Sparse Coding and Dictionary Learning, ICDM 2018.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from cksc_dist.dist.progress import Progress
from cksc_dist.errors import InputError, ModelFileError, SmallClassWarning
from cksc_dist.maths.cksc import TERMS, Fit, alternate, class_interpretability
from cksc_dist.maths.codes import Dictionary, dictionary_products, recall, recall_quadratic
from cksc_dist.maths.gram import Gram
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.maths.threads import resolve_n_jobs
from cksc_dist.models.explanation import AtomPart, Explanation, SamplePart
from cksc_dist.models.kernel_input import DtwInput, KernelInput, PrecomputedInput, RbfInput
from cksc_dist.series import SeriesSet, label_array
from cksc_dist.spec import (
    KERNELS,
    DistanceSpec,
    KernelSpec,
    ModelSpec,
    RunSpec,
    check_choice,
    check_count,
    check_number,
)
from cksc_dist.store.kernel_view import KernelView
from cksc_dist.store.matrix import DistanceMatrix
from cksc_dist.store.model_files import read_model, write_model

__all__ = ["CKSC", "check_classes"]

Index = NDArray[np.int64]
Weights = NDArray[np.float64]

_INPUTS: dict[str, type[KernelInput]] = {kind.__name__: kind for kind in (PrecomputedInput, RbfInput, DtwInput)}


class CKSC(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
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
        labels = None if y is None else label_array(y)
        X, feature_names = _sized(X), None
        if self.kernel == "rbf":
            # the check sets attributes of what it is given, and this fit may still fail
            checked = clone(self)
            X, labels = validate_data(checked, X, labels, dtype=np.float64)
            feature_names = getattr(checked, "feature_names_in_", None)
        labels = column_or_1d(labels, warn=True)
        check_classification_targets(labels)
        _check_count(X, len(labels))
        classes, class_index = check_classes(labels, spec)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        with self._kernel_of(X, source, client) as K:
            fit = alternate(K, class_index, len(classes), spec, np.random.default_rng(seed), self.n_jobs)
        if not fit.converged:
            warnings.warn(
                f"J still changed by more than tol={self.tol} after max_iter={self.max_iter} alternations",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._set_fit(spec, classes, class_index, source, fit, self.n_jobs)
        self._name_features(feature_names)
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
        classes: NDArray[Any],
        class_index: Index,
        source: KernelInput,
        fit: Fit,
        n_jobs: int | None,
        origin: dict[str, Any] | None = None,
    ) -> None:
        """Set all that a finished training has learnt."""
        U = fit.atoms.csr(len(class_index))
        dictionary = dictionary_products(fit.atoms, fit.KU, class_index, len(classes), n_jobs)
        # nothing is set before this line: a fit that fails leaves an earlier one whole
        self._spec, self.classes_, self._train_labels, self._source = spec, classes, class_index, source
        self.origin_ = origin
        self._take(fit, U, dictionary)

    def _specs(self) -> tuple[ModelSpec, KernelInput]:
        """Return the checked settings of model and kernel."""
        check_choice("kernel", self.kernel, KERNELS)
        names = (
            "sparsity",
            "alpha",
            "atoms_per_class",
            "recall",
            "schedule",
            "selection",
            "prune",
            "max_iter",
            "tol",
        )
        spec = ModelSpec(**{name: getattr(self, name) for name in names})
        if self.kernel == "precomputed":
            return spec, PrecomputedInput()
        if self.kernel == "rbf":
            if self.gamma is not None:
                check_number("gamma", self.gamma, 0.0, 1e300, open_low=True)
            return spec, RbfInput(self.gamma)
        distance = DistanceSpec(self.mode, self.window, self.cost, self.normalise, self.per_length)  # type: ignore[arg-type]
        return spec, DtwInput(distance, KernelSpec(self.bandwidth, self.factor, self.repair))  # type: ignore[arg-type]

    def _take(self, fit: Fit, U: Any, dictionary: Dictionary) -> None:
        """Set what was learnt; atoms are the rows of U."""
        self.n_train_ = len(self._train_labels)
        self.beta_ = fit.beta
        self.n_iter_ = fit.n_iter
        self.codes_ = fit.codes.csr(len(fit.home))
        self.dictionary_ = U.T.tocsc()
        self.objective_terms_ = dict(zip(TERMS, fit.history.T.copy(), strict=True))
        self.objective_history_ = fit.history.sum(axis=1)
        self.support_ = np.unique(U.indices).astype(np.int64)
        self._source.keep(self.support_)
        self.n_features_in_ = self._source.n_features
        self._set_recall(dictionary)

    def _name_features(self, names: NDArray[Any] | None) -> None:
        """Set the names of the features, or forget those of an earlier fit."""
        if names is not None:
            self.feature_names_in_ = names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _set_recall(self, dictionary: Dictionary) -> None:
        """Prepare recall from the products of the dictionary with itself."""
        confident = self._spec.recall == "confident"
        self._dictionary = dictionary
        self._quadratic = recall_quadratic(
            dictionary, self._spec.alpha if confident else 0.0, self.beta_ if confident else 0.0
        )
        self.interpretability_ = class_interpretability(dictionary.class_weight)
        atoms = self.dictionary_.T.tocsr()[:, self.support_]
        atoms.sort_indices()
        # positions among the samples that carry weight, which is what kernel rows refer to
        self._atoms = SparseRows.from_csr(atoms, int(np.diff(atoms.indptr).max()))
        self._largest_class = int(np.argmax(np.bincount(self._train_labels)))

    # -- prediction

    def _recall(self, X: Any) -> tuple[NDArray[Any], SparseRows]:
        """Return kernel rows on the support, and the codes, of new samples."""
        check_is_fitted(self)
        if isinstance(self._source, RbfInput):
            X = validate_data(self, X, reset=False, dtype=np.float64)
        return self._recall_checked(X)

    def _recall_checked(self, X: Any) -> tuple[NDArray[Any], SparseRows]:
        rows = self._source.rows(X, self.n_jobs)
        return rows, self._codes_of(rows)

    def _codes_of(self, rows: NDArray[Any]) -> SparseRows:
        # as they were at fit: parameters may have been set since
        spec = self._spec
        return recall(rows, self._atoms, self._quadratic, spec.sparsity, spec.selection, spec.prune, self.n_jobs)

    def _scores(self, codes: SparseRows) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return class shares of codes, and which samples are like no training sample."""
        # h = L U g, normalised
        h = codes.csr(len(self.interpretability_)) @ self._dictionary.class_weight
        total = h.sum(axis=1)
        far = total <= 0.0
        h[far], total[far] = 1.0, h.shape[1]
        return h / total[:, None], far

    def class_shares(self, X: Any) -> NDArray[np.float64]:
        """Return the share of each class in the reconstruction of each sample, (n, C); rows sum to 1."""
        return self._scores(self._recall(X)[1])[0]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the class shares, as scikit-learn names them."""
        return self.class_shares(X)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the class shares, (n, C); for two classes their difference, (n,)."""
        shares, far = self._scores(self._recall(X)[1])
        shares[far, self._largest_class] += 1e-9  # a guess, but one that `predict` agrees with
        return shares[:, 1] - shares[:, 0] if len(self.classes_) == 2 else shares

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each sample: the class with the largest share."""
        return self._decide(self._recall(X)[1])

    def _decide(self, codes: SparseRows) -> NDArray[Any]:
        shares, far = self._scores(codes)
        label: NDArray[Any] = self.classes_[np.where(far, self._largest_class, shares.argmax(axis=1))]
        return label

    def _labels_of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the labels of samples given by their kernel rows with the training samples that carry weight."""
        return self._decide(self._codes_of(rows))

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the codes of new samples, (n, k), dense."""
        out: NDArray[np.float64] = self._recall(X)[1].csr(len(self.interpretability_)).toarray()
        return out

    def saved_distances(self, n_test: int) -> tuple[int, int]:
        """Return how many distances ``n_test`` predictions need with ``kernel="dtw"``, and how many not.

        Only series that carry weight are compared with; a repaired kernel needs all of them.
        """
        check_is_fitted(self)
        repaired = isinstance(self._source, DtwInput) and self._source.kernel.repair is not None
        needed = self.n_train_ if repaired else len(self.support_)
        return n_test * needed, n_test * (self.n_train_ - needed)

    def explain(self, z: Any, top: int = 5) -> Explanation:
        """Return why one sample gets its label.

        Parameters
        ----------
        z
            One kernel row (n,), one series (time, dims), or one vector.
        top
            How many training samples and atoms to name.
        """
        check_count("top", top)
        check_is_fitted(self)
        _check_one_sample(z, 2 if isinstance(self._source, DtwInput) else 1)
        # a vector alone never has the names that vectors in a table have: they are not asked for here
        one = check_array([z], dtype=np.float64) if isinstance(self._source, RbfInput) else [z]
        return self._explanations(*self._recall_checked(one), top)[0]

    def explain_many(self, X: Any, top: int = 5) -> list[Explanation]:
        """Return why each of many samples gets its label; much quicker than one after the other.

        Parameters
        ----------
        X
            New samples, as `predict` takes them.
        top
            How many training samples and atoms to name for each.

        Examples
        --------
        >>> import numpy as np
        >>> from cksc_dist import CKSC
        >>> X = np.array([[0.0], [0.1], [5.0], [5.1]])
        >>> model = CKSC(sparsity=2, kernel="rbf", random_state=0).fit(X, ["low", "low", "high", "high"])
        >>> [explanation.label for explanation in model.explain_many([[0.05], [4.9]])]
        ['low', 'high']
        """
        check_count("top", top)
        return self._explanations(*self._recall(X), top)

    def _explanations(self, rows: NDArray[Any], codes: SparseRows, top: int) -> list[Explanation]:
        """Return what kernel rows and codes mean."""
        shares, far = self._scores(codes)
        decided = np.where(far, self._largest_class, shares.argmax(axis=1))
        g = codes.csr(len(self.interpretability_))
        weights = g @ self._atoms.csr(len(self.support_))  # U g, one sample a row
        weights.sort_indices()  # of equal weights the earlier row is named first
        return [
            Explanation(
                label=self.classes_[decided[i]].item(),
                confidence=float(shares[i, decided[i]]),
                shares={name.item(): float(share) for name, share in zip(self.classes_, shares[i], strict=True)},
                samples=self._sample_parts(*_row(weights, i), top),
                atoms=self._atom_parts(*_row(g, i), top),
                n_samples=len(_row(weights, i)[0]),
                n_atoms=len(_row(g, i)[0]),
                similarity=self._similarity(rows[i], _row(weights, i), _row(g, i)),
                far_away=bool(far[i]),
            )
            for i in range(len(rows))
        ]

    def _sample_parts(self, positions: Index, weight: Weights, top: int) -> tuple[SamplePart, ...]:
        """Return the training samples of largest weight, given their positions in the support."""
        chosen = np.argsort(-weight, kind="stable")[:top]
        samples, shares = self.support_[positions[chosen]], weight[chosen] / weight.sum()
        labels = self.classes_[self._train_labels[samples]]
        names: list[str | None] = [None] * len(samples)
        if self.origin_ is not None:
            samples = np.array([self.origin_["rows"][place] for place in positions[chosen]])
            names = [self.origin_["ids"][place] for place in positions[chosen]]
        return tuple(
            SamplePart(int(row), label.item(), float(share), name)
            for row, label, share, name in zip(samples, labels, shares, names, strict=True)
        )

    def _atom_parts(self, atoms: Index, weight: Weights, top: int) -> tuple[AtomPart, ...]:
        """Return the atoms of largest weight."""
        chosen = np.argsort(-weight, kind="stable")[:top]
        labels = self.classes_[self._dictionary.class_weight[atoms[chosen]].argmax(axis=1)]
        return tuple(
            AtomPart(int(atom), label.item(), float(self.interpretability_[atom]), float(value))
            for atom, label, value in zip(atoms[chosen], labels, weight[chosen], strict=True)
        )

    def _similarity(self, k_z: NDArray[Any], sample: tuple[Index, Weights], code: tuple[Index, Weights]) -> float:
        """Return the cosine k_z'U g / sqrt(g'U'K U g)."""
        (positions, weight), (atoms, g) = sample, code
        norm = float(g @ self._dictionary.gram[np.ix_(atoms, atoms)] @ g)
        return float(k_z[positions] @ weight) / float(np.sqrt(norm)) if norm > 0 else 0.0

    # -- files

    def save(self, path: str | Path) -> None:
        """Write the model as a Zarr group with JSON settings; nothing is pickled.

        A model with ``kernel="dtw"`` or ``"rbf"`` carries the training samples that it needs.
        """
        check_is_fitted(self)
        parameters = self.get_params()
        if not isinstance(self.random_state, int | np.integer | None):
            parameters["random_state"] = None  # a generator has moved on; its seed is not known
        source = self._source
        settings = {
            "parameters": {name: _plain(value) for name, value in parameters.items()},
            "spec": asdict(self._spec),
            "input": type(source).__name__,
            "classes": self.classes_.tolist(),
            "class_type": self.classes_.dtype.str,
            "beta": self.beta_,
            "n_iter": self.n_iter_,
        }
        if isinstance(source, DtwInput):
            settings |= {"distance": asdict(source.distance), "kernel": asdict(source.kernel)}
        if self.origin_ is not None:
            settings["origin"] = self.origin_
        if hasattr(self, "feature_names_in_"):
            settings["feature_names"] = self.feature_names_in_.tolist()
        U, G = self.dictionary_, self.codes_
        arrays = {
            "dictionary_edges": U.indptr,
            "dictionary_indices": U.indices,
            "dictionary_values": U.data,
            "codes_edges": G.indptr,
            "codes_indices": G.indices,
            "codes_values": G.data,
            "gram": self._dictionary.gram,
            "overlap": self._dictionary.overlap,
            "class_weight": self._dictionary.class_weight,
            "history": np.column_stack([self.objective_terms_[name] for name in TERMS]),
            "support": self.support_,
            "train_labels": self._train_labels,
        }
        source_arrays = {f"input_{name}": array for name, array in source.arrays().items()}
        write_model(path, type(self).__name__, arrays | source_arrays, settings)

    @classmethod
    def load(cls, path: str | Path) -> CKSC:
        """Return a saved model; its predictions have the same bits."""
        name, arrays, settings = read_model(path)
        if name != cls.__name__:
            raise ModelFileError(f"{path} holds a model of class {name}, not {cls.__name__}")
        self = cls(**settings["parameters"])
        self._spec = ModelSpec(**settings["spec"])
        self.classes_ = np.array(settings["classes"], dtype=settings["class_type"])
        self.beta_, self.n_iter_, self.origin_ = settings["beta"], settings["n_iter"], settings.get("origin")
        n, k = len(arrays["train_labels"]), len(arrays["gram"])
        self.n_train_ = n
        for attribute, key, kind, shape in (
            ("dictionary_", "dictionary", sparse.csc_array, (n, k)),
            ("codes_", "codes", sparse.csr_array, (n, k)),
        ):
            parts = (arrays[f"{key}_values"], arrays[f"{key}_indices"], arrays[f"{key}_edges"])
            setattr(self, attribute, kind(parts, shape=shape))
        self.objective_terms_ = dict(zip(TERMS, arrays["history"].T.copy(), strict=True))
        self.objective_history_ = arrays["history"].sum(axis=1)
        self.support_, self._train_labels = arrays["support"], arrays["train_labels"]
        inputs = {name.removeprefix("input_"): a for name, a in arrays.items() if name.startswith("input_")}
        self._source = _INPUTS[settings["input"]].from_arrays(inputs, **settings)
        self.n_features_in_ = self._source.n_features
        if "feature_names" in settings:
            self.feature_names_in_ = np.array(settings["feature_names"], dtype=object)
        self._set_recall(Dictionary(arrays["gram"], arrays["overlap"], arrays["class_weight"]))
        return self

    def __sklearn_is_fitted__(self) -> bool:
        # checking its input alone already sets n_features_in_
        return hasattr(self, "_source")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as the Python number that JSON can hold."""
    return value.item() if isinstance(value, np.generic) else value


def check_classes(labels: NDArray[Any], spec: ModelSpec) -> tuple[NDArray[Any], Index]:
    """Return the classes and the class of each sample, or say that there are too few; warn of small ones."""
    classes, class_index = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        have = f"have one class, {classes[0].item()!r}" if len(classes) else "have no class"
        raise InputError(f"all {len(labels)} samples {have}; training needs at least two classes")
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


def _row(matrix: Any, i: int) -> tuple[Index, Weights]:
    """Return where row i of a CSR matrix has entries, and these."""
    entries = slice(matrix.indptr[i], matrix.indptr[i + 1])
    return matrix.indices[entries], matrix.data[entries]


def _check_one_sample(z: Any, most: int) -> None:
    """Raise an InputError where z is several samples: a set, a list of unequal ones, or too many dimensions."""
    try:
        what = f"is {z!r}" if isinstance(z, SeriesSet) else f"has shape {np.shape(z)}" if np.ndim(z) > most else None
    except ValueError:
        what = "is a list of parts of unequal length"
    if what is not None:
        raise InputError(f"explain takes one sample, but z {what}; pass one of them, z[0], or call explain_many")


def _sized(X: Any) -> Any:
    """Return samples that can be counted: an iterator is gone through here, once."""
    if isinstance(X, Iterator):
        return list(X)
    if sparse.issparse(X) or (hasattr(X, "__len__") and getattr(X, "ndim", 1) > 0):
        return X
    samples = np.asarray(X)
    if samples.ndim == 0:
        raise InputError(f"X is of type {type(X).__name__}; pass a matrix with a row, or a list with an item, a sample")
    return samples


def _check_count(X: Any, n_labels: int) -> None:
    if sparse.issparse(X):
        raise InputError("X is a sparse matrix, and must be dense; pass X.toarray()")
    n = len(X)
    if n != n_labels:
        raise InputError(f"{n} samples but {n_labels} labels; give one label for each sample")
