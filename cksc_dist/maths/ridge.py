"""The ridge beta that makes the recall problem of CKSC convex.

    beta = max(0, -lambda_min(K + alpha M), -lambda_min(K)),      M v = 1 sum(v) - L'(L v)

Least eigenvalues by a block Krylov method with full re-orthogonalisation: with Q an orthonormal basis of
span(V, A V, A^2 V, ...), the least eigenpair (theta, Q s) of Q'A Q has a residual r = |A Q s - theta Q s|, and
theta - r <= lambda_min up to what the start has missed. V holds the class indicators and seeded random vectors for
K + alpha M, random vectors alone for K; both spaces grow in the same passes over K.

By Weyl, alpha * (largest class) + max(0, -lambda_min(K)) always suffices; but for rounding in the ninth digit, beta
is never above that bound with the lambda_min(K) that was found.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from cksc_dist.maths.kernel_product import LANES
from cksc_dist.maths.threads import one_blas_thread

__all__ = ["Ridge", "other_class_sums", "ridge"]

Float = NDArray[np.float64]
Product = Callable[[Float], Float]

TOLERANCE = 1e-5
"""A residual below this share of the eigenvalue (of the diagonal, if that is larger) will do: beta grows by it."""

ROUNDING = 1e-3
"""A least eigenvalue of K no further below 0 than this share of the diagonal is taken for 0: K is semi-definite."""

DOMINATED = 0.8
"""K alone does not decide once its estimate lies above this share of the eigenvalue with the class term."""

LEAST_PASSES = 3
"""So many passes are always made: an eigenvalue may settle at once that is not the least one."""

MOST_PASSES = 6
"""A pass over a K that lives on disk takes its time; where six do not settle it, beta errs on the safe side."""

RANDOM_VECTORS = 16
"""At most so many start the space of K alone, and more than half of them: as many as fill up vector registers."""


class Ridge(NamedTuple):
    """The ridge, what it comes from, how many passes over K it took, and what these show of K besides.

    Parameters
    ----------
    beta
        Ridge.
    least_joint, least_kernel
        Bounds from below on the least eigenvalues of K + alpha M and of K.
    passes
        How often K was gone through.
    largest_kernel
        Largest eigenvalue of K, from below.
    effective_rank
        (tr K)^2 / |K|^2, |K|^2 estimated from random vectors: 1 where all samples are alike, n where all are strangers.
    """

    beta: float
    least_joint: float
    least_kernel: float
    passes: int
    largest_kernel: float = 0.0
    effective_rank: float = 0.0

    def health(self) -> str:
        """Return in words what the same passes have shown of the kernel."""
        return (
            f"kernel: eigenvalues about {self.least_kernel:.3g} to {self.largest_kernel:.3g}, effective rank about "
            f"{self.effective_rank:.3g}"
        )


def other_class_sums(V: Float, y: NDArray[np.int64], n_classes: int) -> Float:
    """Return M V: for each row, the sum of V over the rows of all other classes."""
    sums = sparse.csr_array((np.ones(len(y)), y, np.arange(len(y) + 1)), shape=(len(y), n_classes)).T @ V
    return sums.sum(axis=0) - sums[y]  # type: ignore[no-any-return]


class _Space:
    """A growing Krylov space of one operator A = K + alpha M."""

    def __init__(self, start: Float, alpha: float, y: NDArray[np.int64], n_classes: int, diagonal: float) -> None:
        self.alpha, self.y, self.n_classes, self.diagonal = alpha, y, n_classes, diagonal
        self.basis = np.empty((len(start), 0))
        self.image = np.empty((len(start), 0))
        self._last = start
        self.theta, self.residual, self.largest, self.square = 0.0, np.inf, 0.0, 0.0

    def _new_directions(self, block: Float) -> Float:
        """Return an orthonormal basis of what the block adds to the space."""
        norms = np.linalg.norm(block, axis=0)
        for _ in range(2):
            block = block - self.basis @ (self.basis.T @ block)
        Q, R, _ = linalg.qr(block, mode="economic", pivoting=True)
        rank = int(np.sum(np.abs(np.diag(R)) > 1e-10 * max(float(norms.max(initial=0.0)), 1e-300)))
        Q = Q[:, : min(rank, len(Q) - self.basis.shape[1])]
        # once more against the basis: pivoting may have amplified what was left of it
        Q = Q - self.basis @ (self.basis.T @ Q)
        return np.ascontiguousarray(linalg.qr(Q, mode="economic")[0]) if Q.shape[1] else Q

    @cached_property
    def block(self) -> Float:
        """The directions whose product with K is wanted next."""
        return self._new_directions(self._last)

    @property
    def full(self) -> bool:
        """Whether nothing is left to add: the space is invariant, or everything."""
        return not self.block.size

    @property
    def done(self) -> bool:
        """Whether the least eigenvalue has settled."""
        return self.residual <= TOLERANCE * max(self.diagonal, abs(self.theta)) or self.full

    def take(self, kernel_image: Float) -> None:
        """Extend the space by the current block, whose product with K is given."""
        image = kernel_image + self.alpha * other_class_sums(self.block, self.y, self.n_classes)
        self.basis = np.hstack([self.basis, self.block])
        self.image = np.hstack([self.image, image])
        projected = self.basis.T @ self.image
        values, vectors = linalg.eigh((projected + projected.T) / 2)
        s, self.theta, self.largest = vectors[:, 0], float(values[0]), float(values[-1])
        self.square = float(values @ values)
        self.residual = float(np.linalg.norm(self.image @ s - self.theta * (self.basis @ s)))
        self._last = image
        del self.block  # the next one is made when it is asked for: after the last pass it is not

    @property
    def least(self) -> float:
        """A bound from below on the least eigenvalue."""
        return self.theta - self.residual


def _grow(spaces: list[_Space], product: Product, max_passes: int) -> int:
    """Extend the spaces, all in the same passes, until they suffice; return the number of passes."""
    passes = 0
    while passes < max_passes:
        open_spaces = [space for space in spaces if not (space.done if passes >= LEAST_PASSES else space.full)]
        settled = passes >= LEAST_PASSES and len(spaces) == 2 and spaces[1].done
        if not open_spaces or (settled and spaces[0].least > DOMINATED * spaces[1].theta):
            break  # in the second case, K alone does not decide
        image = product(np.hstack([space.block for space in open_spaces]))
        passes += 1
        at = 0
        for space in open_spaces:
            width = space.block.shape[1]
            space.take(image[:, at : at + width])
            at += width
    return passes


def ridge(
    product: Product,
    y: NDArray[np.int64],
    n_classes: int,
    alpha: float,
    *,
    diagonal: float = 1.0,
    max_passes: int = MOST_PASSES,
) -> Ridge:
    """Return beta for a kernel given as the function V -> K V.

    Parameters
    ----------
    product
        K V of a block of vectors; one call is one pass over K.
    y
        Class index of each sample.
    alpha
        Weight of the discriminative term.
    diagonal
        Largest diagonal entry of K: the unit in which rounding is measured.
    max_passes
        Stop there, erring on the safe side (a larger beta).

    Examples
    --------
    >>> import numpy as np
    >>> from cksc_dist.maths.kernel_product import kernel_product
    >>> y = np.array([0, 0, 1, 1])
    >>> round(ridge(kernel_product(np.eye(4)), y, 2, alpha=1.0).beta, 6)
    1.0
    """
    n = len(y)
    rng = np.random.default_rng(0)
    classes = np.zeros((n, n_classes))
    classes[np.arange(n), y] = 1.0
    beside = 0 if alpha == 0 else max(n_classes + 1, RANDOM_VECTORS)  # columns of the other space
    random_vectors = min(n, RANDOM_VECTORS - (RANDOM_VECTORS + beside) % LANES)
    spaces = [_Space(rng.standard_normal((n, random_vectors)), 0.0, y, n_classes, diagonal)]
    if alpha > 0:
        # a narrow space grows too slowly for the few passes there are
        filled = np.hstack([classes, rng.standard_normal((n, max(1, min(n, RANDOM_VECTORS) - n_classes)))])
        spaces.append(_Space(filled, alpha, y, n_classes, diagonal))
    # one BLAS thread: its rounding, and so beta, must not depend on how many there are
    with one_blas_thread():
        passes = _grow(spaces, product, max_passes)
    least_kernel = spaces[0].least
    if least_kernel > -ROUNDING * diagonal:
        least_kernel = max(least_kernel, 0.0)
    least_joint = spaces[-1].least if alpha > 0 else least_kernel
    bound = alpha * int(np.bincount(y).max()) + max(0.0, -least_kernel)
    beta = min(bound, max(0.0, -least_joint, -least_kernel))
    # |K q|^2 of the first random directions, which are orthonormal: n times their mean is |K|^2 in expectation, but
    # may miss by far where few eigenvalues are most of it; of these the space of K knows
    first = spaces[0].image[:, :random_vectors]
    square = max(n * float((first**2).sum()) / first.shape[1], spaces[0].square)
    rank = min(float(n), (n * diagonal) ** 2 / square) if square > 0 else 0.0
    largest = max(spaces[0].largest, 0.0)
    return Ridge(_rounded_up(beta), least_joint, least_kernel, passes, largest, rank)


def _rounded_up(beta: float) -> float:
    """Return beta rounded up to nine digits: the last bits of LAPACK's answer depend on its threads."""
    if beta == 0.0:
        return 0.0
    unit = 10.0 ** (np.floor(np.log10(beta)) - 8)
    return float(np.ceil(beta / unit) * unit)
