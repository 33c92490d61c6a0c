"""Decisions on rows of a store, from the distances that are there already."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.kernel import gaussian_kernel
from cksc_dist.models.explanation import Explanation
from cksc_dist.models.kernel_classifier import KernelClassifier
from cksc_dist.models.kernel_input import DtwInput
from cksc_dist.store.matrix import DistanceMatrix

__all__ = ["Decided", "decide_rows"]


class Decided(NamedTuple):
    """Decisions on rows of a store.

    Parameters
    ----------
    rows
        Positions in the store.
    codes
        Sparse (rows, atoms).
    explanations
        Why each row gets its label.
    """

    rows: NDArray[np.int64]
    codes: Any
    explanations: list[Explanation]


def decide_rows(model: KernelClassifier, matrix: DistanceMatrix, rows: NDArray[np.int64], top: int = 5) -> Decided:
    """Return codes and explanations of rows of the matrix that a model was trained from.

    Parameters
    ----------
    model
        Of `cksc_dist.models.training.train`.
    matrix
        The distances that it was trained on.
    rows
        Which rows to decide.
    top
        How many training samples and atoms to name for each.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from cksc_dist import open_matrix
    >>> from cksc_dist.dist.distances import compute_distances
    >>> from cksc_dist.dist.ingest import ingest
    >>> from cksc_dist.io import make_gestures
    >>> from cksc_dist.models.training import train
    >>> from cksc_dist.spec import ModelSpec
    >>> with TemporaryDirectory() as folder:
    ...     _ = ingest(make_gestures(n_per_class=10), folder)
    ...     _ = compute_distances(folder)
    ...     half = train(folder, folder + "/models/half", rows=range(0, 40, 2), spec=ModelSpec(sparsity=3))
    ...     decided = decide_rows(half.model, open_matrix(folder), np.array([1, 39]))
    >>> [why.label for why in decided.explanations], decided.codes.shape
    (['gesture0', 'gesture3'], (2, 12))
    """
    origin = model.origin_
    if origin is None or not _is_of(model, origin, matrix):
        raise InputError(f"the model was not trained on {matrix!r}; open the matrix that model.origin_ names")
    source = model._source
    if isinstance(source, DtwInput) and source.kernel.repair is not None:
        # a repaired row needs the distances to all training series; the model carries these
        series = matrix.series
        kernel = source.rows([_one(series.read(int(row), int(row) + 1)) for row in rows], model.n_jobs)
    else:
        delta = source.transform.delta_ if isinstance(source, DtwInput) else origin["delta"]
        kernel = gaussian_kernel(matrix[rows, np.array(origin["rows"])], float(delta))
    codes = model._codes_of(kernel)
    return Decided(np.asarray(rows), codes, model._explanations(kernel, codes, top))


def _is_of(model: KernelClassifier, origin: dict[str, Any], matrix: DistanceMatrix) -> bool:
    """Tell whether a matrix has the settings and, where the model has its training samples, series of their names."""
    rows = np.array(origin.get("rows", ()), np.int64)
    if origin.get("matrix") != matrix.fingerprint or not len(rows) or rows.max() >= len(matrix):
        return False
    # settings alone have the same fingerprint in every store
    labels = model.classes_[model._train_labels[model.support_]]
    return bool((matrix.ids[rows] == np.array(origin["ids"])).all() and (matrix.labels[rows] == labels).all())


def _one(series: tuple[NDArray[np.float64], NDArray[np.int64]]) -> NDArray[np.float64]:
    return series[0]
