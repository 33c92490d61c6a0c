"""The steps of non-negative quadratic pursuit, compiled; `cksc_dist.maths.nqp` says what they solve.

With S the support, x its entries, c_S the linear term on it and H_SS the quadratic one:

    H_ij   = scale * rows[i, j] + ridge * (i == j)
    g      = c + sum_{s in S} x_s H[s, :]            gradient; the ridge only touches entries of S
    H_SS   = L D L'                                  L unit lower triangular, D diagonal
    L y    = -c_S,   D L' z = y                      z minimises on S, whatever its signs
    f      = 1/2 x' H_SS x + c_S' x                  objective

L D L' instead of Cholesky's L L': no root is taken, so that scaling H or c by a power of two scales every
number in between exactly. Every sum runs in an order that follows from the problem alone, without fused or
re-associated arithmetic: the bits depend neither on the block nor on the thread.

A problem is solved by `begin`, then `pick`, `read_row`, `admit` and `refresh_gradient` until `pick` finds
nothing or `admit` says STOP, then `cut_back`, `prune_entries` and `write_entries`. Of H they see single rows, those of
candidates that were picked: `solve_block` has all rows at hand, another caller may fetch them one by one.

The state is four plain arrays, allocated once for many problems. (A tuple of many small arrays reads better,
but counting references to them took longer than the arithmetic.)

    marks    (3, width)         SUPPORT  candidates with an entry, in the order in which they came
                                SLOT     where their rows are kept, then the free places
                                KEPT     positions in the support that are still in the running
    vectors  (9, width)         VALUES   x, all > 0
                                LINEAR   c_S
                                POINT    a feasible point on KEPT
                                TARGET   z on KEPT
                                PIVOTS   D, and D of a trial factor, on KEPT
                                FORWARD  y, and y of a trial factor
                                LANE     running minima of a scan
    squares  (3, width, width)  QUADRATIC  H_SS, lower triangle
                                LOWER    L, and L of a trial factor
    wide     (2, n)             GRADIENT g of all candidates outside S
                                WEIGHT   selection weight; 0: in S, banned, or never to be picked
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

__all__ = [
    "ACCEPTED",
    "SLOT",
    "STOP",
    "admit",
    "begin",
    "cut_back",
    "largest_magnitude",
    "new_pursuit",
    "pick",
    "prune_entries",
    "read_row",
    "refresh_gradient",
    "solve_block",
    "start",
    "take_row",
    "write_entries",
]

ACCEPTED, BANNED, STOP = 0, 1, 2  # what became of a candidate

DEPENDENT = 1e-10  # a pivot below this share of the diagonal: the column lies in the span of the support
LANES = 32  # running minima side by side: a loop over them becomes SIMD code, a single one does not

SUPPORT, SLOT, KEPT = 0, 1, 2
VALUES, LINEAR, POINT, TARGET, PIVOTS, FORWARD, LANE = 0, 1, 2, 3, 4, 6, 8
QUADRATIC, LOWER = 0, 1
GRADIENT, WEIGHT = 0, 1
CURRENT, TRIAL = 0, 1  # added to PIVOTS, FORWARD and LOWER: which factor

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Rows = NDArray[np.float64] | NDArray[np.float32]
Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile with the settings that all steps share."""
    return cast(Function, njit(nogil=True, cache=True, error_model="numpy")(function))


def new_pursuit(n: int, width: int) -> tuple[Int, Float, Float, Float]:
    """Allocate marks, vectors, squares and wide for `n` candidates and at most `width` entries."""
    marks = np.zeros((3, width), dtype=np.int64)
    marks[SLOT] = np.arange(width)
    vectors = np.zeros((LANE + 1, max(width, LANES)))
    return marks, vectors, np.zeros((3, width, width)), np.zeros((2, n))


@compiled
def begin(wide: Float, c: Float, base_weights: Float) -> None:
    """Start a problem: S empty, g = c."""
    for j in range(c.shape[0]):
        wide[GRADIENT, j] = c[j]
        wide[WEIGHT, j] = base_weights[j]


@compiled
def largest_magnitude(vectors: Float, c: Float) -> float:
    """Return max|c|."""
    n = c.shape[0]
    lanes = vectors[LANE]
    for lane in range(LANES):
        lanes[lane] = 0.0
    for start in range(0, n, LANES):
        part = c[start:]
        for lane in range(min(LANES, part.shape[0])):
            magnitude = abs(part[lane])
            lanes[lane] = magnitude if magnitude > lanes[lane] else lanes[lane]
    largest = 0.0
    for lane in range(LANES):
        largest = max(largest, lanes[lane])
    return largest


@compiled
def pick(vectors: Float, wide: Float, floor: float) -> int:
    """Return the candidate of least weighted gradient among those with g < floor, or -1.

    ``floor = -tol * max|c| <= 0``. Of equals the one of lowest index is picked.
    """
    gradient, weight, lanes = wide[GRADIENT], wide[WEIGHT], vectors[LANE]
    n = gradient.shape[0]
    for lane in range(LANES):
        lanes[lane] = 0.0
    for start in range(0, n, LANES):
        g = gradient[start : start + LANES]
        w = weight[start : start + LANES]
        for lane in range(g.shape[0]):
            score = g[lane] * w[lane] if g[lane] < floor else 0.0
            lanes[lane] = score if score < lanes[lane] else lanes[lane]
    best = 0.0
    for lane in range(LANES):
        best = min(best, lanes[lane])
    if best == 0.0:
        return -1
    found = int(n)
    for lane in range(LANES):
        if lanes[lane] == best:
            for j in range(lane, found, LANES):
                if gradient[j] < floor and gradient[j] * weight[j] == best:
                    found = j
                    break
    return found


@compiled
def read_row(
    marks: Int,
    vectors: Float,
    squares: Float,
    size: int,
    j: int,
    c: Float,
    row: Rows,
    scale: float,
    ridge: float,
) -> None:
    """Enter candidate `j` behind the support: its row of H_SS from `row`, which is before scale and ridge."""
    for s in range(size):
        squares[QUADRATIC, size, s] = scale * row[marks[SUPPORT, s]]
    squares[QUADRATIC, size, size] = scale * row[j] + ridge
    vectors[LINEAR, size] = c[j]
    marks[SUPPORT, size] = j


@compiled
def _grow_factor(marks: Int, vectors: Float, squares: Float, which: int, size: int) -> None:
    """Add position ``KEPT[size]`` to the factor of positions ``KEPT[:size]``."""
    pivots, forward, lower = PIVOTS + which, FORWARD + which, LOWER + which
    position = marks[KEPT, size]
    # L w = H_Sj, column by column: the updates of one column do not wait for each other
    for i in range(size):
        squares[lower, size, i] = squares[QUADRATIC, position, marks[KEPT, i]]
    for i in range(size):
        w = squares[lower, size, i]
        for later in range(i + 1, size):
            squares[lower, size, later] -= squares[lower, later, i] * w
    # l = D^-1 w,  d = H_jj - l' w,  y_j = -c_j - l' y
    pivot = squares[QUADRATIC, position, position]
    y = -vectors[LINEAR, position]
    for i in range(size):
        w = squares[lower, size, i]
        entry = w / vectors[pivots, i]
        squares[lower, size, i] = entry
        pivot -= entry * w
        y -= entry * vectors[forward, i]
    vectors[pivots, size] = pivot
    vectors[forward, size] = y


@compiled
def _solve(vectors: Float, squares: Float, which: int, size: int) -> None:
    """D L' z = y."""
    for i in range(size):
        vectors[TARGET, i] = vectors[FORWARD + which, i] / vectors[PIVOTS + which, i]
    for i in range(size - 1, 0, -1):
        z = vectors[TARGET, i]
        for earlier in range(i):
            vectors[TARGET, earlier] -= squares[LOWER + which, i, earlier] * z


@compiled
def _settle(marks: Int, vectors: Float, squares: Float, count: int) -> int:
    """Lawson and Hanson's inner loop: minimise on ``KEPT[:count]`` with x >= 0; return how many stay.

    Walk from the feasible point towards the target up to the first zero crossing, drop what hits zero, and
    again on the rest. What stays is ``KEPT[:count]``, in the same order, with entries ``TARGET[:count]``.
    """
    while True:
        for size in range(count):
            _grow_factor(marks, vectors, squares, TRIAL, size)
        _solve(vectors, squares, TRIAL, count)
        first = -1
        step = 1.0
        for s in range(count):
            point, target = vectors[POINT, s], vectors[TARGET, s]
            if target <= 0.0:
                crossing = point / (point - target) if point > 0.0 else 0.0
                if first < 0 or crossing < step:
                    first = s
                    step = crossing
        if first < 0:
            return count
        stay = 0
        for s in range(count):
            point = vectors[POINT, s]
            moved = point + step * (vectors[TARGET, s] - point)
            if s != first and moved > 0.0:
                vectors[POINT, stay] = moved
                marks[KEPT, stay] = marks[KEPT, s]
                stay += 1
        count = stay


@compiled
def _objective(marks: Int, vectors: Float, squares: Float, count: int) -> float:
    """f of the target on ``KEPT[:count]``: from H_SS itself, so that an inexact solve cannot flatter it."""
    total = 0.0
    for s in range(count):
        position = marks[KEPT, s]
        z = vectors[TARGET, s]
        slope = vectors[LINEAR, position] + 0.5 * squares[QUADRATIC, position, position] * z
        for t in range(s):
            slope += squares[QUADRATIC, position, marks[KEPT, t]] * vectors[TARGET, t]
        total += slope * z
    return total


@compiled
def _compact(
    marks: Int, vectors: Float, squares: Float, wide: Float, total: int, count: int, base_weights: Float
) -> None:
    """Move ``KEPT[:count]``, of `total` positions, to the front; the others become candidates again."""
    for s in range(total):
        wide[WEIGHT, marks[SUPPORT, s]] = base_weights[marks[SUPPORT, s]]
    for s in range(count):
        position = marks[KEPT, s]
        marks[SUPPORT, s] = marks[SUPPORT, position]
        # exchanged, not moved: a slot that falls free stays in the list for rows to come
        marks[SLOT, s], marks[SLOT, position] = marks[SLOT, position], marks[SLOT, s]
        vectors[LINEAR, s] = vectors[LINEAR, position]
        vectors[PIVOTS, s] = vectors[PIVOTS + TRIAL, s]
        vectors[FORWARD, s] = vectors[FORWARD + TRIAL, s]
        for t in range(s + 1):
            squares[QUADRATIC, s, t] = squares[QUADRATIC, position, marks[KEPT, t]]
            squares[LOWER, s, t] = squares[LOWER + TRIAL, s, t]


@compiled
def _accept_target(marks: Int, vectors: Float, wide: Float, count: int) -> None:
    """x = z, on the first `count` positions."""
    for s in range(count):
        vectors[VALUES, s] = vectors[TARGET, s]
        wide[WEIGHT, marks[SUPPORT, s]] = 0.0


@compiled
def _try_newcomer(marks: Int, vectors: Float, squares: Float, size: int) -> int:
    """Minimise with position `size` beside the support; return how many entries there are then, 0: ban it."""
    total = size + 1
    for s in range(total):
        marks[KEPT, s] = s
        vectors[POINT, s] = vectors[VALUES, s]
    vectors[POINT, size] = 0.0
    _grow_factor(marks, vectors, squares, CURRENT, size)
    if not vectors[PIVOTS, size] >= DEPENDENT * squares[QUADRATIC, size, size]:
        return 0
    _solve(vectors, squares, CURRENT, total)
    lowest = vectors[TARGET, 0]
    for s in range(1, total):
        lowest = min(lowest, vectors[TARGET, s])
    if lowest > 0.0:
        return total
    count = _settle(marks, vectors, squares, total)
    return count if count > 0 and marks[KEPT, count - 1] == size else 0


@compiled
def admit(
    marks: Int,
    vectors: Float,
    squares: Float,
    wide: Float,
    size: int,
    objective: float,
    base_weights: Float,
) -> tuple[int, int, float]:
    """Try the candidate that `read_row` entered behind a support of `size`, at which f = `objective`.

    Returns
    -------
    outcome, size, objective
        ACCEPTED: the objective fell; size, entries and support are new. BANNED: the candidate depends on the
        support or was dropped at once, and will not be picked again. STOP: the objective did not fall.
        Unless ACCEPTED, the support and its entries are as before.
    """
    count = _try_newcomer(marks, vectors, squares, size)
    if count == 0:
        wide[WEIGHT, marks[SUPPORT, size]] = 0.0
        return BANNED, size, objective
    lowered = _objective(marks, vectors, squares, count)
    if not lowered < objective:
        return STOP, size, objective
    if count <= size:
        _compact(marks, vectors, squares, wide, size + 1, count, base_weights)
    _accept_target(marks, vectors, wide, count)
    return ACCEPTED, count, lowered


@compiled
def refresh_gradient(vectors: Float, wide: Float, size: int, places: Int, c: Float, rows: Rows, scale: float) -> None:
    """g = c + sum_s x_s H[s, :] outside S, where row s of H is ``rows[places[s]]``."""
    n = c.shape[0]
    g = wide[GRADIENT]
    x = vectors[VALUES]
    for i in range(n):
        g[i] = c[i]
    # several rows to a pass spare g its way to memory; the order of the sum is that of one row to a pass
    s = 0
    while s + 4 <= size:
        x0, x1, x2, x3 = scale * x[s], scale * x[s + 1], scale * x[s + 2], scale * x[s + 3]
        r0, r1, r2, r3 = places[s], places[s + 1], places[s + 2], places[s + 3]
        for i in range(n):
            g[i] = g[i] + x0 * rows[r0, i] + x1 * rows[r1, i] + x2 * rows[r2, i] + x3 * rows[r3, i]
        s += 4
    if s + 2 <= size:
        x0, x1 = scale * x[s], scale * x[s + 1]
        r0, r1 = places[s], places[s + 1]
        for i in range(n):
            g[i] = g[i] + x0 * rows[r0, i] + x1 * rows[r1, i]
        s += 2
    if s < size:
        x0 = scale * x[s]
        r0 = places[s]
        for i in range(n):
            g[i] = g[i] + x0 * rows[r0, i]


@compiled
def prune_entries(
    marks: Int,
    vectors: Float,
    squares: Float,
    wide: Float,
    size: int,
    objective: float,
    base_weights: Float,
    share: float,
) -> tuple[int, float]:
    """Drop the entries below `share` of the largest, once, and solve again on the rest; return size and f."""
    largest = 0.0
    for s in range(size):
        largest = max(largest, vectors[VALUES, s])
    count = 0
    for s in range(size):
        if vectors[VALUES, s] >= share * largest:
            marks[KEPT, count] = s
            vectors[POINT, count] = vectors[VALUES, s]
            count += 1
    if count == size:
        return size, objective
    count = _settle(marks, vectors, squares, count)
    objective = _objective(marks, vectors, squares, count)
    _compact(marks, vectors, squares, wide, size, count, base_weights)
    _accept_target(marks, vectors, wide, count)
    return count, objective


@compiled
def _cheapest(vectors: Float, squares: Float, size: int) -> int:
    """Return the position whose loss raises f least: ``x_s^2 / (2 (H_SS^-1)_ss)``, if the others stay positive."""
    cheapest, least = 0, np.inf
    work = vectors[TARGET]
    for s in range(size):
        # (H_SS^-1)_ss = w' D^-1 w with L w = e_s
        inverse = 0.0
        work[s] = 1.0
        for i in range(s, size):
            if i > s:
                work[i] = 0.0
                for earlier in range(s, i):
                    work[i] -= squares[LOWER, i, earlier] * work[earlier]
            inverse += work[i] * work[i] / vectors[PIVOTS, i]
        loss = vectors[VALUES, s] * vectors[VALUES, s] / inverse
        if loss < least:
            cheapest, least = s, loss
    return cheapest


@compiled
def cut_back(
    marks: Int,
    vectors: Float,
    squares: Float,
    wide: Float,
    size: int,
    objective: float,
    base_weights: Float,
    most: int,
) -> tuple[int, float]:
    """Drop entries one by one, the cheapest first, until `most` are left; return size and f."""
    while size > most:
        dropped = _cheapest(vectors, squares, size)
        count = 0
        for s in range(size):
            if s != dropped:
                marks[KEPT, count] = s
                vectors[POINT, count] = vectors[VALUES, s]
                count += 1
        count = _settle(marks, vectors, squares, count)
        objective = _objective(marks, vectors, squares, count)
        _compact(marks, vectors, squares, wide, size, count, base_weights)
        _accept_target(marks, vectors, wide, count)
        size = count
    return size, objective


@compiled
def write_entries(marks: Int, vectors: Float, size: int, indices: Int, values: Float) -> None:
    """Write the entries, sorted by index, to the front of one row of the result."""
    for s in range(size):
        j = marks[SUPPORT, s]
        place = s
        while place > 0 and indices[place - 1] > j:
            indices[place] = indices[place - 1]
            values[place] = values[place - 1]
            place -= 1
        indices[place] = j
        values[place] = vectors[VALUES, s]


@compiled
def start(vectors: Float, wide: Float, c: Float, base_weights: Float, tol: float) -> tuple[int, float]:
    """Start a problem whose rows are fetched; return the first candidate, -1 if there is none, and the floor."""
    begin(wide, c, base_weights)
    floor = -tol * largest_magnitude(vectors, c)
    return pick(vectors, wide, floor), floor


@compiled
def take_row(
    marks: Int,
    vectors: Float,
    squares: Float,
    wide: Float,
    size: int,
    objective: float,
    base_weights: Float,
    c: Float,
    fetched: Rows,
    j: int,
    scale: float,
    ridge: float,
    floor: float,
) -> tuple[int, int, float]:
    """Try candidate j, whose row is in the first free place of ``fetched``: one turn of the loop of `solve_block`.

    Returns
    -------
    next, size, objective
        The candidate whose row is wanted next, -1 where the search is over.
    """
    width = marks.shape[1]
    read_row(marks, vectors, squares, size, j, c, fetched[marks[SLOT, size]], scale, ridge)
    outcome, size, objective = admit(marks, vectors, squares, wide, size, objective, base_weights)
    if outcome == STOP or size >= width:
        return -1, size, objective
    if outcome == ACCEPTED:
        refresh_gradient(vectors, wide, size, marks[SLOT], c, fetched, scale)
    return pick(vectors, wide, floor), size, objective


@compiled
def solve_block(
    marks: Int,
    vectors: Float,
    squares: Float,
    wide: Float,
    rows: Rows,
    scale: float,
    ridge: float,
    base_weights: Float,
    C: Float,
    most: int,
    prune: float,
    tol: float,
    indices: Int,
    values: Float,
    counts: Int,
    objectives: Float,
) -> None:
    """Solve the problems whose linear terms are the rows of C; all rows of H are at hand.

    The support grows as far as the marks are wide, and is then cut back to `most`.
    """
    width = marks.shape[1]
    for problem in range(C.shape[0]):
        c = C[problem]
        begin(wide, c, base_weights)
        floor = -tol * largest_magnitude(vectors, c)
        size = 0
        objective = 0.0
        while size < width:
            j = pick(vectors, wide, floor)
            if j < 0:
                break
            read_row(marks, vectors, squares, size, j, c, rows[j], scale, ridge)
            outcome, size, objective = admit(marks, vectors, squares, wide, size, objective, base_weights)
            if outcome == STOP:
                break
            if outcome == ACCEPTED and size < width:
                refresh_gradient(vectors, wide, size, marks[SUPPORT], c, rows, scale)
        size, objective = cut_back(marks, vectors, squares, wide, size, objective, base_weights, most)
        size, objective = prune_entries(marks, vectors, squares, wide, size, objective, base_weights, prune)
        write_entries(marks, vectors, size, indices[problem], values[problem])
        counts[problem] = size
        objectives[problem] = objective
