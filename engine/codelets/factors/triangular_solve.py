"""HLO triangular-solve: X of op(A) X = B, or of X op(A) = B; one triangle of A is read.

Both are a system M x = b for each right-hand side, a column or a row of B: M is A, transposed or not. Unit: a block of
right-hand sides of one matrix, solved side by side in scratch, so that the inner loops run across them. An upper M is
read as a lower one, from its last row and column on.

Strides count elements.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets.factors.matrices import Pointer, matrix_type
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.element import NUMBA_NAMES, conjugate
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.lanes import I64, ITEM_BYTES, Lanes
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import pointer
from engine.codelets.language.record import Address, Record, block
from engine.codelets.language.switched import switched
from engine.errors import InternalError
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes
from engine.program.work.factors import SolveWork

VECTORS = {"f32": 2, "f64": 1}
"""Most vectors of right-hand sides, of lanes() elements each: vectors of doubles take two registers."""
LANES = lanes()
FEW = 4
MANY = 8 if LANES == 16 else FEW
"""Unknowns of a block: the sums of MANY by two registers leave some of the processor's registers free."""


def case_of(rows: int, vectors: int) -> int:
    """Number of the kernel for blocks of `rows` unknowns and `vectors` vectors of right-hand sides."""
    return 4 * rows + vectors


@cache
def solving(element_type: str) -> Any:
    """`solve_rows(case, x, known, a, row, column, present, unit_diagonal)`, all in bytes but the three counts.

    Replaces the rows of x, [size, vectors * lanes()], from `known` on by the unknowns: a is the address of M[known, 0],
    and `present` the number of rows of M from there on. Rows of x beyond these get undefined numbers.
    """

    def write(builder: ir.IRBuilder, case: int, arguments: tuple[ir.Value, ...]) -> None:
        rows, vectors = divmod(case, 4)
        x, known, a, row, column, present, unit = arguments
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
            pivot = Lanes(builder, 1).load(at[r], element_type)
            pivot = tile.lanes.splat(builder.select(pivots, pivot, pivot.type(1.0)))
            sums[r] = [builder.fdiv(each, pivot) for each in sums[r]]
            tile.store(sums[r], builder.add(target, I64(r * tile.pitch)))

    widths = range(1, VECTORS[element_type] + 1)
    return switched("solve", [case_of(rows, width) for rows in sorted({FEW, MANY}) for width in widths], write)


def _least(builder: ir.IRBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def _without_known(
    tile: _Tile, sums: list[list[ir.Value]], x: ir.Value, known: ir.Value, matrix: list[ir.Value], column: ir.Value
) -> list[list[ir.Value]]:
    """The sums minus M times the known unknowns, if there are any."""
    builder, vectors = tile.builder, len(sums[0])
    flat = [each for row in sums for each in row]
    loop = EmittedLoop(builder, "known", I64(0), known, I64(1), [*flat, x, I64(0)], may_be_empty=True)
    *values, source, offset = loop.carried
    solved = tile.load(source)
    made = []
    for r, start in enumerate(matrix):
        factor = tile.splat(builder.add(start, offset))
        made += tile.subtract(values[r * vectors : (r + 1) * vectors], factor, solved)
    loop.close([*made, builder.add(source, I64(tile.pitch)), builder.add(offset, column)])
    return [loop.carried[at : at + vectors] for at in range(0, len(flat), vectors)]


class _Tile:
    """Rows of `vectors` vectors of an element type."""

    def __init__(self, builder: ir.IRBuilder, element_type: str, vectors: int) -> None:
        self.builder, self.element_type, self.lanes = builder, element_type, Lanes(builder, LANES)
        step = LANES * ITEM_BYTES[element_type]
        self.offsets, self.pitch = range(0, vectors * step, step), vectors * step

    def load(self, address: ir.Value) -> list[ir.Value]:
        return [self.lanes.load(self.builder.add(address, I64(each)), self.element_type) for each in self.offsets]

    def store(self, values: list[ir.Value], address: ir.Value) -> None:
        for value, each in zip(values, self.offsets, strict=True):
            self.lanes.store(value, self.builder.add(address, I64(each)), self.element_type)

    def splat(self, address: ir.Value) -> ir.Value:
        return self.lanes.load_splat(address, self.element_type)

    def subtract(self, sums: list[ir.Value], factor: ir.Value, values: list[ir.Value]) -> list[ir.Value]:
        """The sums minus a factor times the values."""
        negative = self.builder.fneg(factor)
        return [self.lanes.intrinsic("fmuladd", negative, *each) for each in zip(values, sums, strict=True)]


COMPLEX_BLOCK = 32
"""Right-hand sides of one unit of complex numbers."""


class TriangularSolve(Record):
    """The parameters of a codelet of `triangular_solve`."""

    a: Address = 0
    b: Address = 0
    x: Address = 0
    size: int
    right_sides: int
    matrix_row: int  # stride in A along a row index of M
    matrix_column: int
    unknown: int  # stride in B and X from one unknown to the next
    right_side: int  # stride in B and X from one right-hand side to the next
    lower: int  # whether M is lower triangular
    unit_diagonal: int
    conjugate: int
    block: int  # right-hand sides of one unit
    blocks: int  # units of one matrix


@cache
def _solving_floats(element_type: str) -> Any:
    """`solve(x, a, size, row, column, block, unit, conjugates)` solves x [size, block] in place, by address."""
    solve_rows, item = solving(element_type), ITEM_BYTES[element_type]
    few_case, many_case = case_of(FEW, 0), case_of(MANY, 0)

    @inner
    def solve(x: int, a: int, size: int, row: int, column: int, block: int, unit: int, conjugates: int) -> None:
        vectors, known = block // LANES, 0
        while known < size:
            present = size - known
            rows, case = (FEW, few_case) if present <= FEW else (MANY, many_case)
            start = a + known * row * item
            solve_rows(case + vectors, x, known, start, row * item, column * item, present, unit)
            known += rows

    return solve


@cache
def _solving_complex(element_type: str) -> Any:
    """Makes the function that solves a block of COMPLEX_BLOCK columns, like `_solving_floats` for real ones."""
    type_name = NUMBA_NAMES[element_type]

    @inner
    def solve(y: int, m: int, size: int, row: int, column: int, block: int, unit: int, conjugates: int) -> None:
        x, a = pointer(y, type_name), pointer(m, type_name)
        for i in range(size):
            for k in range(i):
                factor = a[i * row + k * column]
                if conjugates:
                    factor = conjugate(factor)
                for c in range(COMPLEX_BLOCK):
                    x[i * COMPLEX_BLOCK + c] -= factor * x[k * COMPLEX_BLOCK + c]
            if not unit:
                pivot = a[i * row + i * column]
                if conjugates:
                    pivot = conjugate(pivot)
                if pivot == 0:  # Numba divides no complex number by zero
                    infinity = 1 / pivot.real
                    for c in range(COMPLEX_BLOCK):
                        x[i * COMPLEX_BLOCK + c] *= infinity
                else:
                    for c in range(COMPLEX_BLOCK):
                        x[i * COMPLEX_BLOCK + c] /= pivot

    return solve


@inner
def _copy(
    source: Pointer, row: int, step: int, target: Pointer, to_row: int, to_step: int, size: int, count: int, padded: int
) -> None:
    """Copies `count` elements of each of `size` rows, `step` apart, to elements `to_step` apart; zeros follow."""
    for i in range(size):
        if step == 1 and to_step == 1:
            for c in range(count):
                target[i * to_row + c] = source[i * row + c]
        else:
            for c in range(count):
                target[i * to_row + c * to_step] = source[i * row + c * step]
        for c in range(count, padded):
            target[i * to_row + c] = 0


@cache
def triangular_solve(element_type: str) -> Codelet:
    """The codelet for an element type. Raises UnsupportedOperation for one that is neither float nor complex."""
    type_name, item = matrix_type("triangular-solve", element_type)
    solve_block = (_solving_floats if element_type in VECTORS else _solving_complex)(element_type)

    def solve(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given = TriangularSolve.read(parameters)
        size, block, right_side = given.size, given.block, given.right_side
        row, column, unknown = given.matrix_row, given.matrix_column, given.unknown
        last_pivot, last_unknown = 0, 0
        if not given.lower:
            last_pivot, last_unknown = (size - 1) * (row + column), (size - 1) * unknown
            row, column, unknown = -row, -column, -unknown
        x = pointer(scratch + RESERVED_SCRATCH, type_name)
        for unit in range(lo, hi):
            matrix, first = unit // given.blocks, unit % given.blocks * block
            count = min(block, given.right_sides - first)
            offset = (matrix * size * given.right_sides + first * right_side + last_unknown) * item
            _copy(pointer(given.b + offset, type_name), unknown, right_side, x, block, 1, size, count, block)
            a = given.a + (matrix * size * size + last_pivot) * item
            to = scratch + RESERVED_SCRATCH
            solve_block(to, a, size, row, column, block, given.unit_diagonal, given.conjugate)
            _copy(x, block, 1, pointer(given.x + offset, type_name), unknown, right_side, size, count, count)

    return Codelet(solve, f"triangular_solve_{element_type}")


def triangular_solve_scratch_bytes(size: int, block: int, element_type: str) -> int:
    """The bytes of scratch for systems of `size` unknowns, whose last block of unknowns may not be full."""
    return -(-size // MANY) * MANY * block * ITEM_BYTES[element_type]


def fitted_block(work: SolveWork) -> int:
    """The right-hand sides of one unit on this processor."""
    vectors = VECTORS.get(work.element_type)
    return LANES * min(vectors, -(-work.right_sides // LANES)) if vectors else work.block


def encoded_solve(work: SolveWork) -> Encoded:
    """The fields of `TriangularSolve`; B is [size, right_sides], or its transpose.

    Raises InternalError for blocks that `fit_units` has not fitted to this processor.
    """
    if work.block != fitted_block(work):
        raise InternalError(f"Expected blocks of {fitted_block(work)} right-hand sides. Received: {work.block}.")
    size, left_side, kind = work.size, work.left_side, work.element_type
    transposed = (work.transpose_a != "NO_TRANSPOSE") == left_side
    parameters = TriangularSolve.of(
        work,
        matrix_row=1 if transposed else size,
        matrix_column=size if transposed else 1,
        unknown=work.right_sides if left_side else 1,
        right_side=1 if left_side else size,
        lower=work.lower != transposed,
        conjugate=work.transpose_a == "ADJOINT",
        blocks=work.unit_count // work.matrices,
    )
    return Encoded.of(triangular_solve(kind), block(parameters), triangular_solve_scratch_bytes(size, work.block, kind))
