"""Explicit SIMD vectors for Numba kernels, written as LLVM instructions.

Numba's auto-vectoriser reaches about a third of what the DTW recurrence allows. The functions here emit
vector instructions of a chosen width directly, so that a kernel decides what stays in registers. LLVM lowers
a vector that is wider than the machine's to several narrower ones: the same source runs everywhere, and
gives the same bits, because every operation here is exactly rounded (a fused multiply-add included).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

__all__ = ["Vectors", "array_data", "counted_loop", "get", "index", "larger", "put", "smaller"]

INDEX = ir.IntType(64)

CACHE_LINE = 64
"""Bytes."""


def array_data(context: Any, builder: ir.IRBuilder, array_type: Any, array: Any) -> Any:
    """Return the pointer to the first element of a contiguous array argument."""
    return context.make_array(array_type)(context, builder, array).data


def index(value: int) -> ir.Constant:
    """Return a constant index."""
    return ir.Constant(INDEX, value)


def smaller(builder: ir.IRBuilder, x: Any, y: Any) -> Any:
    """Return the lesser of two integers, or of each lane of two vectors of them."""
    return builder.select(builder.icmp_signed("<", x, y), x, y)


def larger(builder: ir.IRBuilder, x: Any, y: Any) -> Any:
    """Return the greater of two integers, or of each lane of two vectors of them."""
    return builder.select(builder.icmp_signed(">", x, y), x, y)


@intrinsic
def get(typing: Any, array: Any, position: Any) -> Any:
    """Return ``array[position]`` of a contiguous vector.

    Numba lets negative positions count from the end; a position that may be negative makes LLVM gather single
    numbers where it could copy neighbours. Here, and in `put`, it may not.
    """

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        data = array_data(context, builder, signature.args[0], arguments[0])
        return builder.load(builder.gep(data, [arguments[1]]))

    return array.dtype(array, types.int64), emit


@intrinsic
def put(typing: Any, array: Any, position: Any, value: Any) -> Any:
    """Set ``array[position] = value`` in a contiguous vector; see `get`."""

    def emit(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        data = array_data(context, builder, signature.args[0], arguments[0])
        builder.store(arguments[2], builder.gep(data, [arguments[1]]))
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype), emit


def counted_loop(
    builder: ir.IRBuilder,
    start: Any,
    stop: Any,
    carried: Sequence[Any],
    body: Callable[[Any, list[Any]], Sequence[Any]],
) -> list[Any]:
    """Emit ``for i in range(start, stop): carried = body(i, carried)`` and return the final values.

    The carried values are phi nodes, so they live in registers whatever the optimiser does.
    """
    before = builder.block
    head = builder.append_basic_block("loop.head")
    inside = builder.append_basic_block("loop.body")
    after = builder.append_basic_block("loop.end")
    builder.branch(head)
    builder.position_at_end(head)
    counter = builder.phi(INDEX)
    counter.add_incoming(start, before)
    phis = []
    for value in carried:
        phi = builder.phi(value.type)
        phi.add_incoming(value, before)
        phis.append(phi)
    builder.cbranch(builder.icmp_signed("<", counter, stop), inside, after)
    builder.position_at_end(inside)
    updated = body(counter, phis)
    following = builder.add(counter, index(1), flags=["nsw"])
    counter.add_incoming(following, builder.block)
    for phi, value in zip(phis, updated, strict=True):
        phi.add_incoming(value, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return phis


class Vectors(NamedTuple):
    """Emits operations on vectors of ``lanes`` floating-point numbers of ``bits`` bits.

    Parameters
    ----------
    builder
        Where the instructions go.
    lanes, bits
        Numbers in a vector, and bits of each: 64 or 32.
    """

    builder: ir.IRBuilder
    lanes: int
    bits: int

    @property
    def element(self) -> Any:
        """LLVM type of one number."""
        return ir.DoubleType() if self.bits == 64 else ir.FloatType()

    @property
    def type(self) -> Any:
        """LLVM type of a vector."""
        return ir.VectorType(self.element, self.lanes)

    def align_stack(self) -> None:
        """Let the function's stack begin with a line of the cache.

        Vectors that do not fit into registers wait on the stack, which a caller leaves on any multiple of 16 bytes;
        one that lies across two lines is moved twice. Where the stack lies depends on the thread: without this, the
        unlucky ones take half as long again. LLVM aligns the stack for a variable that asks for it and is in use, so
        here is one that nothing is done with.
        """
        with self.builder.goto_entry_block():
            unused = self.builder.alloca(self.type)
            unused.align = CACHE_LINE
            nothing = ir.FunctionType(ir.VoidType(), [unused.type])
            self.builder.asm(nothing, "", "r", [unused], side_effect=True)

    def constant(self, value: float) -> Any:
        """Return the vector with ``value`` in every lane."""
        return ir.Constant(self.type, [value] * self.lanes)

    def splat(self, scalar: Any) -> Any:
        """Return the vector with a scalar in every lane."""
        undefined = ir.Constant(ir.VectorType(scalar.type, self.lanes), ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), self.lanes), [0] * self.lanes)
        return self.builder.shuffle_vector(first, undefined, lanes)

    def _at(self, pointer: Any, position: Any, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(pointer, [position]), kind.as_pointer())

    def load(self, pointer: Any, position: Any) -> Any:
        """Load neighbouring numbers, from ``position`` on."""
        loaded = self.builder.load(self._at(pointer, position, self.type))
        loaded.align = self.bits // 8
        return loaded

    def load_integers(self, pointer: Any, position: Any) -> Any:
        """Load as many neighbouring 64-bit integers as there are lanes."""
        loaded = self.builder.load(self._at(pointer, position, ir.VectorType(INDEX, self.lanes)))
        loaded.align = 8
        return loaded

    def load_splat(self, pointer: Any, position: Any) -> Any:
        """Load one number into every lane."""
        return self.splat(self.builder.load(self._at(pointer, position, self.element)))

    def store(self, vector: Any, pointer: Any, position: Any) -> None:
        """Store a vector at ``position`` and after it."""
        stored = self.builder.store(vector, self._at(pointer, position, self.type))
        stored.align = self.bits // 8

    def minimum(self, x: Any, y: Any) -> Any:
        """Return the lesser of each lane (one machine instruction; no NaN comes here)."""
        return self.builder.select(self.builder.fcmp_ordered("<", x, y), x, y)

    def add(self, x: Any, y: Any) -> Any:
        """Return ``x + y``."""
        return self.builder.fadd(x, y)

    def _call(self, name: str, *arguments: Any) -> Any:
        signature = ir.FunctionType(self.type, [self.type] * len(arguments))
        full_name = f"llvm.{name}.v{self.lanes}f{self.bits}"
        function = cgutils.get_or_insert_function(self.builder.module, signature, full_name)
        return self.builder.call(function, list(arguments))

    def multiply_add(self, x: Any, y: Any, total: Any) -> Any:
        """Return ``x y + total``, rounded once."""
        return self._call("fma", x, y, total)

    def add_cost(self, cost: str, x: Any, y: Any, total: Any) -> Any:
        """Return ``total + (x - y)^2`` with one rounding of the product and sum, or ``total + |x - y|``."""
        difference = self.builder.fsub(x, y)
        if cost == "squared":
            return self.multiply_add(difference, difference, total)
        return self.builder.fadd(total, self._call("fabs", difference))

    def inside(self, offset: Any, low: Any, high: Any) -> Any:
        """Return the mask of lanes with ``low < offset < high``."""
        above = self.builder.fcmp_ordered(">", offset, low)
        return self.builder.and_(above, self.builder.fcmp_ordered("<", offset, high))

    def where(self, mask: Any, x: Any, y: Any) -> Any:
        """Return x where the mask holds, y elsewhere."""
        return self.builder.select(mask, x, y)
