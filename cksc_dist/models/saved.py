"""Checks of a saved model before it is believed: a digest tells of damage, but whoever makes a model makes its digest.

Compiled code does not look whether a position is inside of an array. So every array must have the type and the shape
that its name stands for, every number must be finite, and every position must be one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import ModelFileError, NoThreadError, StoreAwayError, brief, want_of_threads
from cksc_dist.maths.sparse import SparseRows
from cksc_dist.series import is_text

__all__ = ["check_array", "check_saved", "check_sparse_rows", "holding_together", "saved_classes"]

Arrays = dict[str, NDArray[Any]]

SHAPES = {
    **{"gram": "kk", "overlap": "kk", "class_weight": "kC", "train_labels": "n", "support": "s", "kernels": "Mnn"},
    **{"model_gram": "kk", "model_home": "k", "model_self_similarity": "1", "model_class_weight": "kC"},
    **{"model_images": "nk", "model_weights": "Ck", "dictionary_edges": "e", "codes_edges": "f"},
}
"""Axes of arrays by name: n samples, k atoms, s samples with weight, C classes, M kernels; e = k + 1, f = n + 1."""
OTHERWISE = {"LPKSVD": {"model_weights": "kC"}}

WHOLE = ("_edges", "_indices", "support", "labels", "columns", "offsets", "home", "passes", "_n_train")
"""How names of arrays of whole numbers end."""

MOST_CLASS_BYTES = 2**26
MOST_WEIGHT = 1e75
"""Four of them multiplied are a number still."""


@contextmanager
def holding_together(path: str | Path) -> Iterator[None]:
    """Say in this package's words that what a model holds makes no model."""
    try:
        with np.errstate(over="raise", invalid="raise"):
            yield
    except (ModelFileError, StoreAwayError, NoThreadError):
        raise
    except Exception as error:  # of whatever was not looked at below
        want_of_threads(error)
        raise ModelFileError(
            f"{path} does not hold together ({type(error).__name__}: {brief(error)}); save the model again"
        ) from error


def saved_classes(settings: dict[str, Any]) -> NDArray[Any]:
    """Return the classes of a model; how wide text is said to be is not believed."""
    listed, kind = settings["classes"], np.dtype(settings["class_type"])
    _require(isinstance(listed, list) and len(listed) > 1, "there are fewer than two classes")
    _require(kind.kind in "Uiub" and kind.itemsize * len(listed) <= MOST_CLASS_BYTES, "the type of the classes")
    types = {type(each) for each in listed}
    _require(types == {{"U": str, "b": bool}.get(kind.kind, int)}, "classes of several kinds")
    classes = np.array(listed, dtype=kind)
    _require(classes.tolist() == listed and len(np.unique(classes)) == len(listed), "the classes")
    _require(is_text(classes), "classes that are no text")
    return classes


def check_saved(model: str, arrays: Arrays, n_classes: int) -> None:
    """Raise a ValueError for arrays that are none of a model of some class."""
    for name, array in arrays.items():
        whole = name.endswith(WHOLE)
        kinds = ("i4", "i8") if whole else ("b1",) if name.endswith("_unit") else ("f4", "f8")
        _require(array.dtype.str[1:] in kinds, f"{name} is of type {array.dtype}")
        _require(whole or bool(np.isfinite(array).all()), f"{name} has a value that is not finite")
        if kinds[0] == "f4" and not name.startswith("input_"):  # series may hold anything, weights may not
            small = not array.size or float(np.abs(array).max()) <= MOST_WEIGHT
            _require(small, f"{name} has a value that no training gives")
    n, k, s = len(arrays["train_labels"]), len(arrays["dictionary_edges"]) - 1, len(arrays["support"])
    sizes = {"n": n, "k": k, "s": s, "C": n_classes, "e": k + 1, "f": n + 1, "1": 1}
    if "kernels" in arrays:
        sizes["M"] = len(arrays["kernels"])
    for name, axes in (SHAPES | OTHERWISE.get(model, {})).items():
        if name in arrays:
            expected = tuple(sizes[axis] for axis in axes)
            _require(arrays[name].shape == expected, f"{name} has shape {arrays[name].shape}, not {expected}")
    _require(min(n, k, s) > 0, "it has no samples or no atoms")
    for name, most in (("dictionary", n), ("codes", k)):
        _check_sparse(arrays, name, most)
    _check_positions(arrays, "train_labels", n_classes)
    _check_positions(arrays, "model_home", n_classes)
    _check_positions(arrays, "support", n)
    _require(bool((np.diff(arrays["support"]) > 0).all()), "support is not in order")
    _check_input(arrays, n, s)


def _check_input(arrays: Arrays, n: int, s: int) -> None:
    """Check what a kernel of new samples is made from: kept series or vectors, and which of them carry weight."""
    kept = n
    for name in [name for name in arrays if name.endswith("series_offsets")]:
        values, offsets = arrays[name.replace("offsets", "values")], arrays[name]
        good = values.ndim == 2 and values.size and values.dtype == np.float64
        good = good and offsets.ndim == 1 and offsets.dtype == np.int64 and len(offsets) > 1
        good = good and offsets[0] == 0 and offsets[-1] == len(values) and bool((offsets[1:] > offsets[:-1]).all())
        _require(bool(good), f"{name} and the series do not belong together")
        kept = len(offsets) - 1
    for name in [name for name in arrays if name.startswith("input_")]:
        array, end = arrays[name], name.rsplit("_", 1)[-1]
        if end in ("columns", "support"):
            _require(array.shape == (s,), f"{name} has shape {array.shape}, not {(s,)}")
            _check_positions(arrays, name, kept)
        elif end == "bandwidth":
            _require(array.shape == (2,) and bool((array > 0).all()), f"{name} is no bandwidth")
        elif end == "gamma":
            _require(array.shape == (1,) and bool((array > 0).all()), f"{name} is no width")
        elif name.endswith("_n_train"):
            _require(array.tolist() == [n], f"{name} is {array.tolist()}, not {n}")
        elif end == "vectors" and "repair" not in name:
            _require(array.ndim == 2 and len(array) == s and array.dtype == np.float64, f"{name} has no row a sample")
        elif "repair" in name:
            found = name.rpartition("_")[0]
            count = len(arrays[f"{found}_eigenvalues"]) if end != "train" else 0
            shape = {"train": (kept,), "vectors": (kept, count), "eigenvalues": (count,), "weight": ()}[end]
            _require(array.shape == shape, f"{name} has shape {array.shape}, not {shape}")


def check_array(name: str, array: NDArray[Any], kind: str, shape: tuple[int, ...], most: int | None = None) -> None:
    """Raise a ValueError unless an array has a type and shape, and finite values or, below ``most``, positions."""
    _require(array.dtype.str[1:] == kind and array.shape == shape, f"{name}: {array.dtype} {array.shape}, not {shape}")
    _require(kind[0] == "i" or bool(np.isfinite(array).all()), f"{name} has a value that is not finite")
    if most is not None:
        _check_positions({name: array}, name, most)


def check_sparse_rows(name: str, rows: SparseRows, shape: tuple[int, int], most: int) -> None:
    """Raise a ValueError unless rows with few non-zeros have a shape, and positions below ``most`` that ascend."""
    check_array(f"{name}_values", rows.values, "f8", shape)
    check_array(f"{name}_counts", rows.counts, "i8", shape[:1], shape[1] + 1)
    used = np.arange(shape[1]) < rows.counts[:, None]
    check_array(f"{name}_indices", rows.indices, "i8", shape)
    _check_positions({name: rows.indices[used]}, name, most)
    ascending = np.diff(rows.indices, axis=1)[used[:, 1:]] > 0
    _require(bool(ascending.all()) and bool((rows.indices[~used] == -1).all()), f"the positions of {name}")


def _check_sparse(arrays: Arrays, name: str, most: int) -> None:
    """Check a sparse matrix; SciPy's own check believes the last edge, and looks at nothing where that is 0."""
    edges, indices, values = (arrays[f"{name}_{part}"] for part in ("edges", "indices", "values"))
    ascending = edges[0] == 0 and bool((edges[1:] >= edges[:-1]).all())
    whole = indices.ndim == 1 and indices.shape == values.shape and edges[-1] == len(indices)
    _require(ascending and whole, f"the edges of {name}")
    _check_positions(arrays, f"{name}_indices", most)


def _check_positions(arrays: Arrays, name: str, count: int) -> None:
    if name in arrays:
        found = arrays[name]
        _require(not found.size or (found.min() >= 0 and found.max() < count), f"{name} has a position beyond {count}")


def _require(good: bool, what: str) -> None:
    if not good:
        raise ValueError(what)
