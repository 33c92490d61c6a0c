"""Checks of kernel and distance matrices: a named error that says which entry is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cksc_dist.errors import InputError

__all__ = ["Matrix", "as_matrix", "check_distance_rows", "check_distances", "check_kernel", "check_square"]

Matrix = NDArray[np.floating[Any]]

# Relative to the largest entry. Wide enough for float32 distances computed once for each order of a pair.
SYMMETRY_TOLERANCE = 1e-5
# Entries of the strips in which whole-matrix checks run, so that they need no second n x n array.
STRIP_ENTRIES = 1 << 20


def as_matrix(values: Any, name: str) -> Matrix:
    """Return a non-empty 2-D array, float32 where it is so already and float64 otherwise."""
    matrix = np.asarray(values)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"{name} has shape {matrix.shape}; it must be a non-empty 2-D array of numbers")
    if matrix.dtype in (np.float32, np.float64):
        return matrix
    if matrix.dtype.kind not in "fiubO":
        raise InputError(f"{name} is of type {matrix.dtype}; it must hold real numbers")
    try:
        return matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} cannot be read as numbers: {error}") from error


def _strips(shape: tuple[int, ...]) -> Iterator[slice]:
    height = max(1, STRIP_ENTRIES // shape[1])
    return (slice(start, start + height) for start in range(0, shape[0], height))


def _check_finite(matrix: Matrix, name: str) -> None:
    for strip in _strips(matrix.shape):
        bad = ~np.isfinite(matrix[strip])
        if bad.any():
            i, j = np.argwhere(bad)[0]
            raise InputError(
                f"{name}[{strip.start + i}, {j}] is {matrix[strip][i, j]}; every entry must be finite: "
                "compute it again, or leave out that sample"
            )


def _check_non_negative(matrix: Matrix, name: str) -> None:
    i, j = np.unravel_index(int(matrix.argmin()), matrix.shape)
    if matrix[i, j] < 0:
        raise InputError(
            f"{name}[{i}, {j}] is {matrix[i, j]:g}; distances cannot be negative: if these are similarities, "
            "turn them into distances first"
        )


def check_square(matrix: Matrix, name: str, what: str) -> None:
    """Raise an InputError unless the matrix is square; `what` names what it should be."""
    if matrix.shape[0] != matrix.shape[1]:
        raise InputError(
            f"{name} has shape {matrix.shape}; {what} of training samples is square, with one row and one "
            "column for each sample"
        )


def _check_symmetric(matrix: Matrix, name: str, scale: float) -> None:
    worst, where = 0.0, (0, 0)
    for strip in _strips(matrix.shape):
        difference = np.abs(matrix[strip] - matrix[:, strip].T)
        i, j = np.unravel_index(int(difference.argmax()), difference.shape)
        if difference[i, j] > worst:
            worst, where = float(difference[i, j]), (strip.start + int(i), int(j))
    if worst > SYMMETRY_TOLERANCE * scale:
        here, there = matrix[where], matrix[where[::-1]]
        raise InputError(
            f"{name} is not symmetric; worst at the pair {where}: {here:g} there but {there:g} at its mirror "
            f"{where[::-1]}. Rows and columns must be the same samples in the same order; if the measure "
            f"itself depends on the order, pass ({name} + {name}.T) / 2"
        )


def _scale(matrix: Matrix) -> float:
    """Return the largest absolute entry."""
    return float(max(matrix.max(), -matrix.min()))


def check_distances(D: Any, *, name: str = "D") -> Matrix:
    """Return the square distances of training samples as an array, or say what is wrong with them.

    They must be finite, not negative, symmetric (to rounding) and zero on the diagonal.

    Examples
    --------
    >>> check_distances([[0, 2], [2, 0]]).dtype.name
    'float64'
    """
    matrix = as_matrix(D, name)
    check_square(matrix, name, "a distance matrix")
    _check_finite(matrix, name)
    _check_non_negative(matrix, name)
    scale = _scale(matrix)
    diagonal = matrix.diagonal()
    i = int(diagonal.argmax())
    if diagonal[i] > SYMMETRY_TOLERANCE * scale:
        is_kernel = np.allclose(diagonal, diagonal[0]) and diagonal[0] >= scale
        hint = "; this looks like a kernel: pass the distances that it was made from" if is_kernel else ""
        raise InputError(f"{name}[{i}, {i}] is {diagonal[i]:g}; the distance of a sample to itself must be 0{hint}")
    _check_symmetric(matrix, name, scale)
    return matrix


def check_distance_rows(D: Any, n_train: int, *, name: str = "D") -> Matrix:
    """Return the distances of new samples to ``n_train`` training samples, or say what is wrong with them."""
    matrix = as_matrix(D, name)
    if matrix.shape[1] != n_train:
        raise InputError(
            f"{name} has {matrix.shape[1]} columns, but there were {n_train} training samples; pass the "
            "distances of the new samples (rows) to all training samples (columns), in the order used at fit"
        )
    _check_finite(matrix, name)
    _check_non_negative(matrix, name)
    return matrix


def check_kernel(K: Any, *, name: str = "K") -> Matrix:
    """Return the square kernel of training samples as an array, or say what is wrong with it.

    It must be finite and symmetric (to rounding), and it must not be a distance matrix.

    Examples
    --------
    >>> check_kernel([[0.0, 2.0], [2.0, 0.0]])
    Traceback (most recent call last):
    ...
    cksc_dist.errors.InputError: K: this looks like a distance matrix: its diagonal is zero. Turn it into a \
kernel first, K = DistanceKernel().fit_transform(D)
    """
    matrix = as_matrix(K, name)
    check_square(matrix, name, "a kernel")
    _check_finite(matrix, name)
    scale = _scale(matrix)
    if np.abs(matrix.diagonal()).max() <= SYMMETRY_TOLERANCE * scale:
        raise InputError(
            f"{name}: this looks like a distance matrix: its diagonal is zero. Turn it into a kernel first, "
            "K = DistanceKernel().fit_transform(D)"
        )
    _check_symmetric(matrix, name, scale)
    return matrix
