"""K V for a tall, narrow V, in vector registers, with every sum in ascending order.

    out[i, v] = sum_j K[i, j] V[j, v]

Four rows of K and eight columns of V at a time (sixteen where registers are wide) are summed in registers; j goes in
blocks, so that the part of V in use stays in the first cache. A sum is carried from block to block: its bits depend on
neither the blocks nor what is computed side by side. K may be float32; sums are float64, each product and sum rounded
once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from cksc_dist.errors import InputError
from cksc_dist.maths.simd import Vectors, array_data, counted_loop, index
from cksc_dist.maths.sparse import jit
from cksc_dist.maths.threads import run_blocks

__all__ = ["Columns", "kernel_product", "multiply"]

Float = NDArray[np.float64]

LANES = 8
ROWS = 4
STEP = 2 * LANES if binding.get_host_cpu_features().get("avx512f") else LANES
"""Columns at a time: eight sums of eight lanes keep both adders of such a core busy; smaller registers would not do."""
BLOCK = 64
"""Rows of V in use at a time: 16 kB with 32 columns, which stay in the first cache."""
ROWS_A_CALL = 64


def _multiply_add(rows: int, columns: int) -> Any:
    """Make the function that adds the products of some rows of K with a block of V to some columns of ``out``."""
    parts = range(0, columns, LANES)

    @intrinsic
    def multiply_add(
        typing: Any, K: Any, k_at: Any, k_stride: Any, V: Any, v_at: Any, v_stride: Any, out: Any, o_at: Any, count: Any
    ) -> Any:
        def emit(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
            v = Vectors(builder, LANES, 64)
            k_data, v_data, o_data = (array_data(context, builder, signature.args[k], arguments[k]) for k in (0, 3, 6))
            k_first, k_step, v_first, v_step, o_first, stop = (arguments[k] for k in (1, 2, 4, 5, 7, 8))
            k_rows = [builder.add(k_first, builder.mul(k_step, index(r))) for r in range(rows)]
            o_places = [
                builder.add(builder.add(o_first, builder.mul(v_step, index(r))), index(part))
                for r in range(rows)
                for part in parts
            ]

            def add_row(j: Any, totals: list[Any]) -> list[Any]:
                at = builder.add(v_first, builder.mul(j, v_step))
                there = [v.load(v_data, builder.add(at, index(part))) for part in parts]
                out: list[Any] = []
                for r in range(rows):
                    weight = builder.load(builder.gep(k_data, [builder.add(k_rows[r], j)]))
                    wide = v.splat(weight if weight.type == v.element else builder.fpext(weight, v.element))
                    out += [v.multiply_add(wide, vector, totals[len(out) + k]) for k, vector in enumerate(there)]
                return out

            totals = [v.load(o_data, at) for at in o_places]
            totals = counted_loop(builder, index(0), stop, totals, add_row)
            for total, at in zip(totals, o_places, strict=True):
                v.store(total, o_data, at)
            return context.get_dummy_value()

        i64 = types.int64
        return types.void(K, i64, i64, V, i64, i64, out, i64, i64), emit

    return multiply_add


_several_rows = _multiply_add(ROWS, STEP)
_one_row = _multiply_add(1, STEP)


@jit
def _product(K, n, V, width, first, last, out):
    """Fill rows first .. last of ``out``; all arrays as vectors, ``width`` a multiple of ``STEP``."""
    for at in range(first * width, last * width):
        out[at] = 0.0
    for begin in range(0, n, BLOCK):
        count = min(BLOCK, n - begin)
        i = first
        while i < last:
            rows = ROWS if i + ROWS <= last else 1
            for column in range(0, width, STEP):
                k_at, v_at, o_at = i * n + begin, begin * width + column, i * width + column
                if rows == ROWS:
                    _several_rows(K, k_at, n, V, v_at, width, out, o_at, count)
                else:
                    _one_row(K, k_at, n, V, v_at, width, out, o_at, count)
            i += rows


class Columns(NamedTuple):
    """V, ready to be multiplied with: padded to whole vectors, as one array, with its width and columns."""

    values: Float
    width: int
    columns: int

    @classmethod
    def of(cls, V: Float) -> Columns:
        """Return V with columns of zeros added."""
        columns = V.shape[1]
        width = -(-max(columns, 1) // STEP) * STEP
        padded = np.zeros((len(V), width))
        padded[:, :columns] = V
        return cls(padded.reshape(-1), width, columns)


def multiply(K: NDArray[Any], V: Columns, n_jobs: int | None = None) -> Float:
    """Return K V for C-contiguous rows of K."""
    flat, (rows, n) = K.reshape(-1), K.shape
    if len(V.values) != n * V.width:
        # compiled code would read beyond its end
        raise InputError(f"V has {len(V.values) // V.width} rows, but K {n} columns")
    out = np.empty((rows, V.width))
    run_blocks(lambda i, j: _product(flat, n, *V[:2], i, j, out.reshape(-1)), rows, ROWS_A_CALL, n_jobs)
    return np.ascontiguousarray(out[:, : V.columns])


def kernel_product(K: NDArray[Any], n_jobs: int | None = None) -> Callable[[Float], Float]:
    """Return the function V -> K V for C-contiguous rows of K, with sums in a fixed order.

    Examples
    --------
    >>> import numpy as np
    >>> kernel_product(np.eye(3, dtype=np.float32))(np.arange(6.0).reshape(3, 2)).tolist()
    [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    """
    return lambda V: multiply(K, Columns.of(V), n_jobs)
