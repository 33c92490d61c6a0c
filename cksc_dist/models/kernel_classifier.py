"""What every method of this package has in common as a scikit-learn classifier: labels, kernels, decisions, files.

A method adds how it learns (`_learn`), how it codes a new sample (`_codes_of`), how a code tells the class
(`_scores`), and what has to be saved of it (`_arrays`, `_set_arrays`).
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from cksc_dist.errors import InputError, ModelFileError
from cksc_dist.maths.threads import one_blas_thread, resolve_n_jobs
from cksc_dist.models.explanation import AtomPart, Explanation, SamplePart
from cksc_dist.models.kernel_input import DtwInput, KernelInput, PrecomputedInput, RbfInput
from cksc_dist.models.kernel_stack import DtwStack, PrecomputedStack, RbfStack
from cksc_dist.models.saved import check_saved, holding_together, saved_classes
from cksc_dist.series import SeriesSet, label_array
from cksc_dist.spec import KERNELS, DistanceSpec, KernelSpec, check_choice, check_count, check_number
from cksc_dist.store.model_files import read_model, write_model

__all__ = ["INPUTS", "Checked", "KernelClassifier", "class_numbers"]

Float = NDArray[np.float64]
Index = NDArray[np.int64]
Arrays = dict[str, NDArray[Any]]

INPUTS: dict[str, type[KernelInput]] = {
    kind.__name__: kind for kind in (PrecomputedInput, RbfInput, DtwInput, PrecomputedStack, RbfStack, DtwStack)
}


@dataclass(frozen=True)
class Checked:
    """What `fit` was given, once it has been looked at.

    Parameters
    ----------
    X
        The samples.
    classes
        The labels, sorted.
    y
        Number of each sample's class.
    feature_names
        Of vectors in a table.
    """

    X: Any
    classes: NDArray[Any]
    y: Index
    feature_names: NDArray[Any] | None


class KernelClassifier(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]  # no types there
    """A classifier by sparse codes on a kernel; see the subclasses.

    Parameters that all have: ``kernel``, ``random_state``, ``n_jobs``, those of the distance (``mode``, ``window``,
    ``cost``, ``normalise``, ``per_length``), of the kernel (``bandwidth``, ``factor``, ``repair``), and ``gamma``.
    Once fitted, all have ``classes_``, ``dictionary_``, ``codes_``, ``n_iter_``, ``objective_history_``,
    ``interpretability_``, ``support_``, ``n_train_`` and ``origin_``.
    """

    spec_type: ClassVar[type]
    """Frozen dataclass of the method's own parameters, which checks them."""

    kernel: str
    random_state: Any
    n_jobs: int | None

    # -- what a method adds

    @abstractmethod
    def _codes_of(self, rows: NDArray[Any]) -> sparse.csr_array:
        """Return the codes (m, k) of samples given by their kernel rows with the samples of ``support_``."""

    @abstractmethod
    def _scores(self, rows: NDArray[Any], codes: sparse.csr_array) -> tuple[Float, NDArray[np.bool_]]:
        """Return class shares (m, C), whose rows sum to 1, and which samples are like no training sample."""

    @abstractmethod
    def _class_weight(self) -> Float:
        """Return the weight of each class in each atom, (k, C)."""

    @abstractmethod
    def _gram(self) -> Float:
        """Return U'K U, (k, k)."""

    @abstractmethod
    def _arrays(self) -> Arrays:
        """Return what has to be saved besides dictionary, codes, support and labels."""

    @abstractmethod
    def _set_arrays(self, arrays: Arrays, settings: dict[str, Any]) -> None:
        """Take up what was saved; dictionary, codes, support, labels and the kernel's source are there already."""

    def _more_settings(self) -> dict[str, Any]:
        """Return numbers to be saved beside the arrays."""
        return {}

    # -- training

    def _specs(self) -> tuple[Any, KernelInput]:
        """Return the checked settings of method and kernel."""
        check_choice("kernel", self.kernel, KERNELS)
        resolve_n_jobs(self.n_jobs)  # which checks it: not every fit uses it
        spec = self.spec_type(**{part.name: getattr(self, part.name) for part in fields(self.spec_type)})
        if self.kernel == "precomputed":
            return spec, self._precomputed()
        if self.kernel == "rbf":
            if self.gamma is not None:
                check_number("gamma", self.gamma, 0.0, 1e300, open_low=True)
            return spec, RbfInput(self.gamma)
        distance = DistanceSpec(self.mode, self.window, self.cost, self.normalise, self.per_length)
        return spec, DtwInput(distance, KernelSpec(self.bandwidth, self.factor, self.repair))

    def _precomputed(self) -> KernelInput:
        """Return what takes a kernel that is given."""
        return PrecomputedInput()

    def _check(self, X: Any, y: Any) -> Checked:
        """Look at what `fit` was given."""
        labels = None if y is None else label_array(y)
        X, names = _sized(X), None
        if self.kernel == "rbf":
            # the check sets attributes of what it is given, and this fit may still fail
            checked = clone(self)
            X, labels = validate_data(checked, X, labels, dtype=np.float64)
            names = getattr(checked, "feature_names_in_", None)
        labels = column_or_1d(labels, warn=True)
        check_classification_targets(labels)
        self._check_samples(X, len(labels))
        return Checked(X, *class_numbers(labels), names)

    def _check_samples(self, X: Any, n_labels: int) -> None:
        """Raise an InputError unless there is one sample for each label."""
        if sparse.issparse(X):
            raise InputError("X is a sparse matrix, and must be dense; pass X.toarray()")
        if len(X) != n_labels:
            raise InputError(f"{len(X)} samples but {n_labels} labels; give one label for each sample")

    def _generator(self) -> np.random.Generator:
        return np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))

    def _warn_unless(self, converged: bool) -> None:
        if not converged:
            warnings.warn(
                f"J still changed by more than tol={self.tol} after max_iter={self.max_iter} alternations",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _take(self, spec: Any, checked: Checked, source: KernelInput, U: Any, codes: Any) -> None:
        """Set what all methods have learnt: U (n, k) and codes (n, k), sparse."""
        self._spec, self.classes_, self._train_labels, self._source = spec, checked.classes, checked.y, source
        self.dictionary_, self.codes_ = sparse.csc_array(U), sparse.csr_array(codes)
        self.n_train_ = len(checked.y)
        self.support_ = self._carriers()
        self._source.keep(self.support_)
        self.n_features_in_ = self._source.n_features
        if checked.feature_names is not None:
            self.feature_names_in_ = checked.feature_names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _carriers(self) -> Index:
        """Return the training samples that a prediction looks at."""
        return np.unique(self.dictionary_.indices).astype(np.int64)

    @property
    def _largest_class(self) -> int:
        return int(np.argmax(np.bincount(self._train_labels)))

    @property
    def _support_atoms(self) -> sparse.csr_array:
        """Atoms as rows over the samples that carry weight, (k, support)."""
        atoms = self.dictionary_.T.tocsr()[:, self.support_]
        atoms.sort_indices()
        return atoms

    # -- prediction

    def _recall(self, X: Any) -> tuple[NDArray[Any], sparse.csr_array]:
        """Return kernel rows on the support, and the codes, of new samples."""
        check_is_fitted(self)
        if self._source.takes_vectors:
            X = validate_data(self, X, reset=False, dtype=np.float64)
        return self._recall_checked(X)

    def _recall_checked(self, X: Any) -> tuple[NDArray[Any], sparse.csr_array]:
        rows = self._source.rows(X, self.n_jobs)
        return rows, self._codes_of(rows)

    def class_shares(self, X: Any) -> Float:
        """Return the share of each class in the decision on each sample, (n, C); rows sum to 1."""
        return self._scores(*self._recall(X))[0]

    def predict_proba(self, X: Any) -> Float:
        """Return the class shares, as scikit-learn names them."""
        return self.class_shares(X)

    def decision_function(self, X: Any) -> Float:
        """Return the class shares, (n, C); for two classes their difference, (n,)."""
        shares, far = self._scores(*self._recall(X))
        shares[far, self._largest_class] += 1e-9  # a guess, but one that `predict` agrees with
        return shares[:, 1] - shares[:, 0] if len(self.classes_) == 2 else shares

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label of each sample: the class with the largest share."""
        return self._decide(*self._recall(X))

    def _decide(self, rows: NDArray[Any], codes: sparse.csr_array) -> NDArray[Any]:
        shares, far = self._scores(rows, codes)
        label: NDArray[Any] = self.classes_[np.where(far, self._largest_class, shares.argmax(axis=1))]
        return label

    def _labels_of(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return the labels of samples given by their kernel rows with the training samples that carry weight."""
        return self._decide(rows, self._codes_of(rows))

    def decisions(self, X: Any) -> tuple[NDArray[Any], Float, Index]:
        """Return label, confidence (share of that class) and number of atoms used, of each sample."""
        rows, codes = self._recall(X)
        shares, far = self._scores(rows, codes)
        decided = np.where(far, self._largest_class, shares.argmax(axis=1))
        return self.classes_[decided], shares[np.arange(len(shares)), decided], self._atoms_used(codes)

    def _atoms_used(self, codes: sparse.csr_array) -> Index:
        """Return how many atoms each decision is made of."""
        used: Index = np.diff(codes.indptr).astype(np.int64)
        return used

    def transform(self, X: Any) -> Float:
        """Return the codes of new samples, (n, k), dense."""
        out: Float = self._recall(X)[1].toarray()
        return out

    # -- explanation

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
        _check_one_sample(z, self._source.sample_ndim)
        # a vector alone never has the names that vectors in a table have: they are not asked for here
        one = check_array([z], dtype=np.float64) if self._source.takes_vectors else [z]
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

    @one_blas_thread()
    def _explanations(self, rows: NDArray[Any], codes: sparse.csr_array, top: int) -> list[Explanation]:
        """Return what kernel rows and codes mean."""
        shares, far = self._scores(rows, codes)
        decided = np.where(far, self._largest_class, shares.argmax(axis=1))
        weights = self._sample_weights(rows, codes)
        weights.sort_indices()  # of equal weights the earlier row is named first
        class_weight, used = self._class_weight(), self._atoms_used(codes)
        similarity = self._similarities(rows, codes, weights)
        return [
            Explanation(
                label=self.classes_[decided[i]].item(),
                confidence=float(shares[i, decided[i]]),
                shares={name.item(): float(share) for name, share in zip(self.classes_, shares[i], strict=True)},
                samples=self._sample_parts(*_row(weights, i), top),
                atoms=self._atom_parts(*_row(codes, i), class_weight, top),
                n_samples=len(_row(weights, i)[0]),
                n_atoms=int(used[i]),
                similarity=float(similarity[i]),
                far_away=bool(far[i]),
            )
            for i in range(len(rows))
        ]

    def _sample_weights(self, rows: NDArray[Any], codes: sparse.csr_array) -> sparse.csr_array:
        """Return U g over the training samples that carry weight, one sample a row."""
        return codes @ self._support_atoms

    def _similarities(self, rows: NDArray[Any], codes: sparse.csr_array, weights: sparse.csr_array) -> Float:
        """Return the cosine of each sample with what it is rebuilt as; ``weights`` is U g, one sample a row."""
        gram = self._gram()
        return np.array(
            [_similarity(rows[i], _row(weights, i), _row(codes, i), gram) for i in range(len(rows))], dtype=np.float64
        )

    def _sample_parts(self, positions: Index, weight: Float, top: int) -> tuple[SamplePart, ...]:
        """Return the training samples of largest weight, given their positions in the support."""
        chosen = np.argsort(-np.abs(weight), kind="stable")[:top]
        samples, shares = self.support_[positions[chosen]], weight[chosen] / np.abs(weight).sum()
        labels = self.classes_[self._train_labels[samples]]
        names: list[str | None] = [None] * len(samples)
        if self.origin_ is not None:
            samples = np.array([self.origin_["rows"][place] for place in positions[chosen]])
            names = [self.origin_["ids"][place] for place in positions[chosen]]
        return tuple(
            SamplePart(int(row), label.item(), float(share), name)
            for row, label, share, name in zip(samples, labels, shares, names, strict=True)
        )

    def _atom_parts(self, atoms: Index, weight: Float, class_weight: Float, top: int) -> tuple[AtomPart, ...]:
        """Return the atoms of largest weight."""
        chosen = np.argsort(-np.abs(weight), kind="stable")[:top]
        labels = self.classes_[class_weight[atoms[chosen]].argmax(axis=1)]
        return tuple(
            AtomPart(int(atom), label.item(), float(self.interpretability_[atom]), float(value))
            for atom, label, value in zip(atoms[chosen], labels, weight[chosen], strict=True)
        )

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
            "n_iter": self.n_iter_,
            **self._more_settings(),
            **source.settings(),
        }
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
            "support": self.support_,
            "train_labels": self._train_labels,
        }
        source_arrays = {f"input_{name}": array for name, array in source.arrays().items()}
        write_model(path, type(self).__name__, arrays | self._arrays() | source_arrays, settings)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return a saved model; its predictions have the same bits."""
        name, arrays, settings = read_model(path)
        if name != cls.__name__:
            raise ModelFileError(f"{path} holds a model of class {name}, not {cls.__name__}")
        return cls._from(path, arrays, settings)

    @classmethod
    def _from(cls, path: str | Path, arrays: Arrays, settings: dict[str, Any]) -> Self:
        """Return the model that was written as arrays and settings, or say that they make none."""
        with holding_together(path):
            return cls._restored(arrays, settings)

    @classmethod
    def _restored(cls, arrays: Arrays, settings: dict[str, Any]) -> Self:
        self = cls(**settings["parameters"])
        self._spec = cls.spec_type(**settings["spec"])
        self.classes_ = saved_classes(settings)
        check_saved(cls.__name__, arrays, len(self.classes_))
        self.n_iter_, self.origin_ = settings["n_iter"], settings.get("origin")
        self.support_, self._train_labels = arrays["support"], arrays["train_labels"]
        self.n_train_ = n = len(self._train_labels)
        k = len(arrays["dictionary_edges"]) - 1
        U, G = (
            (arrays[f"{name}_values"], arrays[f"{name}_indices"], arrays[f"{name}_edges"])
            for name in ("dictionary", "codes")
        )
        self.dictionary_, self.codes_ = sparse.csc_array(U, shape=(n, k)), sparse.csr_array(G, shape=(n, k))
        for matrix in (self.dictionary_, self.codes_):
            matrix.check_format(full_check=True)
        inputs = {name.removeprefix("input_"): a for name, a in arrays.items() if name.startswith("input_")}
        self._source = INPUTS[settings["input"]].from_arrays(inputs, **settings)
        self.n_features_in_ = self._source.n_features
        if "feature_names" in settings:
            self.feature_names_in_ = np.array(settings["feature_names"], dtype=object)
        self._set_arrays(arrays, settings)
        return self

    # -- scikit-learn

    def __sklearn_is_fitted__(self) -> bool:
        # checking its input alone already sets n_features_in_
        return hasattr(self, "_source")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def class_numbers(labels: NDArray[Any]) -> tuple[NDArray[Any], Index]:
    """Return the classes and the number of each sample's class, or say that there are too few."""
    classes, numbers = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        have = f"have one class, {classes[0].item()!r}" if len(classes) else "have no class"
        raise InputError(f"all {len(labels)} samples {have}; training needs at least two classes")
    return classes, numbers


def _plain(value: Any) -> Any:
    """Return a parameter as JSON can hold it: numbers of Python, and lists of them for arrays."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _row(matrix: Any, i: int) -> tuple[Index, Float]:
    """Return where row i of a CSR matrix has entries, and these."""
    entries = slice(matrix.indptr[i], matrix.indptr[i + 1])
    return matrix.indices[entries], matrix.data[entries]


def _similarity(k_z: NDArray[Any], sample: tuple[Index, Float], code: tuple[Index, Float], gram: Float) -> float:
    """Return the cosine k_z'U g / sqrt(g'U'K U g)."""
    (positions, weight), (atoms, g) = sample, code
    norm = float(g @ gram[np.ix_(atoms, atoms)] @ g)
    return float(k_z[positions] @ weight) / float(np.sqrt(norm)) if norm > 0 else 0.0


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
