"""Kernels of triangular solves in float32 and float64: right-hand sides are the lanes, a few unknowns in registers."""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets.language import vector
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import F32, I64, POINTER, call
from engine.codelets.language.switched import internal_function, switched
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

VECTORS = {"f32": 2, "f64": 1}
"""Most vectors of right-hand sides, of lanes() elements each: vectors of doubles take two registers."""
FEW = 4
MANY = 8 if lanes() == 16 else FEW
"""Unknowns of a block: the sums of MANY by two registers leave some of the processor's registers free."""
BYTES = {"f32": 4, "f64": 8}


def case_of(rows: int, vectors: int) -> int:
    """Number of the kernel for blocks of `rows` unknowns and `vectors` vectors of right-hand sides."""
    return 4 * rows + vectors


@cache
def solving(element_type: str) -> Any:
    """`solve_rows(case, x, known, a, row, column, present, unit_diagonal)`, all in bytes but the three counts.

    Replaces the rows of x, [size, vectors * lanes()], from `known` on by the unknowns: a is the address of M[known, 0],
    and `present` the number of rows of M from there on. Rows of x beyond these get undefined numbers.
    """
    element = F32 if element_type == "f32" else ir.DoubleType()

    def make(module: ir.Module, case: int) -> ir.Function:
        rows, vectors = divmod(case, 4)
        name = f"solve_{rows}_{vectors}"
        if name in module.globals:
            return module.globals[name]
        function, builder = internal_function(module, name, 7)
        x, known, a, row, column, present, unit = function.args
        tile = _Tile(builder, element_type, vectors)
        target = builder.add(x, builder.mul(known, I64(tile.pitch)))
        last = builder.sub(present, I64(1))
        inside = [_least(builder, I64(r), last) for r in range(rows)]
        matrix = [builder.add(a, builder.mul(r, row)) for r in inside]
        sums = [tile.load(builder.add(target, I64(r * tile.pitch))) for r in range(rows)]
        sums = _without_known(tile, sums, x, known, matrix, column)
        pivots = builder.icmp_signed("==", unit, I64(0))
        for r in range(rows):
            at = [builder.add(matrix[r], builder.mul(builder.add(known, q), column)) for q in inside[: r + 1]]
            for q in range(r):
                sums[r] = tile.subtract(sums[r], tile.splat(at[q]), sums[q])
            pivot = builder.select(pivots, tile.scalar(at[r]), ir.Constant(element, 1.0))
            pivot = vector.splat(builder, pivot)
            sums[r] = [builder.fdiv(each, pivot) for each in sums[r]]
            tile.store(sums[r], builder.add(target, I64(r * tile.pitch)))
        builder.ret_void()
        return function

    widths = range(1, VECTORS[element_type] + 1)
    return switched(make, [case_of(rows, width) for rows in sorted({FEW, MANY}) for width in widths], 8)


def _least(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def _without_known(
    tile: _Tile, sums: list[list[ir.Value]], x: ir.Value, known: ir.Value, matrix: list[ir.Value], column: ir.Value
) -> list[list[ir.Value]]:
    """The sums minus M times the known unknowns, if there are any."""
    builder, vectors = tile.builder, len(sums[0])
    flat = [each for row in sums for each in row]
    before, body, after = builder.block, builder.append_basic_block("some"), builder.append_basic_block("solve")
    builder.cbranch(builder.icmp_signed(">", known, I64(0)), body, after)
    builder.position_at_end(body)
    loop = EmittedLoop(builder, "known", I64(0), known, I64(1), [*flat, x, I64(0)])
    *values, source, offset = loop.carried
    solved = tile.load(source)
    made = []
    for r, start in enumerate(matrix):
        factor = tile.splat(builder.add(start, offset))
        made += tile.subtract(values[r * vectors : (r + 1) * vectors], factor, solved)
    loop.close([*made, builder.add(source, I64(tile.pitch)), builder.add(offset, column)])
    end = builder.block
    builder.branch(after)
    builder.position_at_end(after)
    joined = []
    for first, then in zip(flat, made, strict=True):
        phi = builder.phi(first.type)
        phi.add_incoming(first, before)
        phi.add_incoming(then, end)
        joined.append(phi)
    return [joined[at : at + vectors] for at in range(0, len(joined), vectors)]


class _Tile:
    """Rows of `vectors` vectors of an element type."""

    def __init__(self, builder: ir.IRBuilder, element_type: str, vectors: int) -> None:
        self.builder, self.vectors, self.bytes = builder, vectors, BYTES[element_type]
        self.element = F32 if element_type == "f32" else ir.DoubleType()
        self.type = vector.vector_type(self.element)
        self.name = f"fmuladd.v{lanes()}{element_type}"
        self.pitch = vectors * lanes() * self.bytes

    def _pointers(self, address: ir.Value) -> list[ir.Value]:
        step = lanes() * self.bytes
        return [self.builder.inttoptr(self.builder.add(address, I64(v * step)), POINTER) for v in range(self.vectors)]

    def load(self, address: ir.Value) -> list[ir.Value]:
        return [self.builder.load(p, align=self.bytes, typ=self.type) for p in self._pointers(address)]

    def store(self, values: list[ir.Value], address: ir.Value) -> None:
        for value, p in zip(values, self._pointers(address), strict=True):
            self.builder.store(value, p, align=self.bytes)

    def scalar(self, address: ir.Value) -> ir.Value:
        return self.builder.load(self.builder.inttoptr(address, POINTER), align=self.bytes, typ=self.element)

    def splat(self, address: ir.Value) -> ir.Value:
        return vector.splat(self.builder, self.scalar(address))

    def subtract(self, sums: list[ir.Value], factor: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        """The sums minus a factor times the values."""
        negative = self.builder.fneg(factor)
        pairs = zip(sums, values, strict=True)
        return [call(self.builder, self.name, self.type, negative, value, total) for total, value in pairs]
