"""Products of constant matrices with vectors in registers, by few additions and multiply-adds.

Transforms of blocks of vectors by such matrices, along columns and along rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cache, partial
from itertools import chain

import numpy as np

from engine.codelets.convolutions.cook_toom import Matrix, Transform
from engine.codelets.convolutions.transform_code import VECTOR, Span, transform_code
from engine.codelets.language import vector
from engine.codelets.language.build import MachineCode
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import F32, I64, loaded_i64
from engine.machine_code.llvm import ir

Row = tuple[Fraction, ...]


def applied(builder: ir.IRBuilder, matrix: Matrix, values: Sequence[ir.Value]) -> list[ir.Value]:
    """The matrix times the column of vectors `values`; neighbouring rows or columns share their common parts."""
    matrix, values = _paired_columns(builder, matrix, list(values))
    made: list[ir.Value] = []
    while len(made) < len(matrix):
        row, *following = matrix[len(made) : len(made) + 2]
        halves = _halves(row, following[0]) if following else None
        if halves is None:
            made.append(_combined(builder, row, values))
        else:
            scale = _scale(halves[1])
            odd = tuple(each / scale for each in halves[1])
            terms = [_combined(builder, each, values) for each in (halves[0], odd)]
            made += [_combined(builder, (Fraction(1), each), terms) for each in (scale, -scale)]
    return made


def paired_rows(matrix: Matrix) -> list[tuple[int, int]]:
    """Numbers of the rows that `applied` computes in pairs."""
    found: list[tuple[int, int]] = []
    for at in range(len(matrix) - 1):
        if (not found or found[-1][1] < at) and _halves(matrix[at], matrix[at + 1]) is not None:
            found.append((at, at + 1))
    return found


def _scale(row: Row) -> Fraction:
    """The divisor of a row that makes one of its coefficients 1 or -1, which needs no product."""
    sizes = [abs(each) for each in row if each]
    return Fraction(1) if 1 in sizes else sizes[-1]


def _halves(first: Row, second: Row) -> tuple[Row, Row] | None:
    """Half of the sum and half of the difference of two rows, if these have fewer terms together."""
    even = tuple((a + b) / 2 for a, b in zip(first, second, strict=True))
    odd = tuple((a - b) / 2 for a, b in zip(first, second, strict=True))
    fewer = _terms(even) + _terms(odd) + 2 < _terms(first) + _terms(second)
    return (even, odd) if fewer and any(even) and any(odd) else None


def _terms(row: Row) -> int:
    return sum(1 for each in row if each)


def _paired_columns(builder: ir.IRBuilder, matrix: Matrix, values: list[ir.Value]) -> tuple[Matrix, list[ir.Value]]:
    """Rewrites a product with sums and differences of two neighbouring values whose coefficients have equal size."""
    columns = [list(each) for each in zip(*matrix, strict=True)]
    at = 0
    while at + 1 < len(columns):
        pairs = list(zip(columns[at], columns[at + 1], strict=True))
        same, opposite = ([a if a and a == sign * b else Fraction(0) for a, b in pairs] for sign in (1, -1))
        # With two rows, pairs save no products.
        worth = len(pairs) > 2 or all(abs(a) == 1 for a, _ in pairs)
        if worth and any(same) and any(opposite) and all(abs(a) == abs(b) for a, b in pairs):
            a, b = values[at : at + 2]
            values[at : at + 2] = builder.fadd(a, b), builder.fsub(a, b)
            columns[at : at + 2] = same, opposite
            at += 1
        at += 1
    return tuple(zip(*columns, strict=True)), values


def _combined(builder: ir.IRBuilder, row: Row, values: Sequence[ir.Value]) -> ir.Value:
    """The sum of the values times the coefficients of a row, terms of coefficients 1 and -1 first."""
    total = None
    terms = [(c, value) for c, value in zip(row, values, strict=True) if c]
    for c, value in sorted(terms, key=lambda term: (abs(term[0]) != 1, term[0] != 1)):
        if total is None:
            total = value if c == 1 else builder.fmul(_constant(builder, c), value)
        elif c == 1:
            total = builder.fadd(total, value)
        elif c == -1:
            total = builder.fsub(total, value)
        else:
            total = vector.multiply_add(builder, value, _constant(builder, c), total)
    return vector.zeros() if total is None else total


def _constant(builder: ir.IRBuilder, number: Fraction) -> ir.Value:
    return vector.splat(builder, F32(float(np.float32(float(number)))))


@cache
def transforming(transform: Transform, store: str = "f32") -> MachineCode:
    """The code `f(sources, targets, read, written, features)` that transforms float32 blocks of some features.

    The results have the element type `store`. Vectors are at `read` and `written`, with an offset for each element of a
    block, row by row, from two tables. Of results with the same offset, the first remains.
    """
    return transform_code(named(transform.name, store), 4, partial(_write, transform.rows, transform.columns, store))


def named(name: str, element_type: str) -> str:
    """The name of a codelet or transform for elements of a type, which is that of float32 unless it ends otherwise."""
    return name if element_type == "f32" else f"{name}_{element_type}"


def _write(
    rows: Matrix,
    columns: Matrix,
    store: str,
    builder: ir.IRBuilder,
    mask: ir.Value | None,
    span: Span,
    *arguments: ir.Value,
) -> None:
    """Writes the function of a transform."""
    sources, targets, read, written = arguments
    loop = EmittedLoop(builder, "vectors", *span, I64(VECTOR))
    read, written = builder.add(read, loop.at), builder.add(written, offset_in(builder, loop.at, store))
    height, width = len(rows[0]), len(columns[0])
    across = []
    for column in range(width):
        places = [_address(builder, sources, width * row + column) for row in range(height)]
        loaded = [vector.load_vector(builder, builder.add(each, read), mask) for each in places]
        across.append(applied(builder, rows, loaded))
    made = [applied(builder, columns, [each[row] for each in across]) for row in range(len(rows))]
    for number, value in reversed(list(enumerate(chain.from_iterable(made)))):
        address = builder.add(_address(builder, targets, number), written)
        vector.store_vector(builder, value, address, mask, store)
    loop.close()


def _address(builder: ir.IRBuilder, table: ir.Value, number: int) -> ir.Value:
    return loaded_i64(builder, builder.add(table, I64(8 * number)))


def offset_in(builder: ir.IRBuilder, offset: ir.Value, element_type: str) -> ir.Value:
    """The offset in an array of this type, from the offset of the same element among float32 numbers."""
    return offset if vector.BYTES[element_type] == 4 else builder.lshr(offset, I64(1))
