"""HLO of TensorFlow's factorizations, determinants, inverses and solutions, by the engine's factorizations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.ir import Computation, Instruction, Shape, SliceDimension, TupleShape
from engine.ir.factorizations import EIGH, LU, QR, SOLVE, SVD, factorization_shapes

Add = Any  # costly_expansions.py's `_Writer.add`


def factorized(add: Add, call: Instruction, operation: str, settings: Sequence[bool]) -> None:
    """Adds instructions in place of a custom call. The last one is the result, a tuple if there are several."""
    written, a = _Matrices(add, call), call.operands[0]
    if not all(each.array_shape.elements for each in call.operands):
        written.of_empty_matrices(operation)
    elif operation == "Svd":
        written.tuple(*written.singular_values(a, *settings))
    elif operation == "SelfAdjointEigV2":
        written.tuple(*written.factors(EIGH, a, vectors=settings[0]))
    elif operation == "Qr":
        written.tuple(*written.factors(QR, a, full=settings[0]))
    elif operation == "Lu":
        factors, order, _ = written.factors(LU, a)
        indices = call.tuple_shapes[1]
        written.tuple(factors, order if indices.element_type == "s32" else add("convert", indices, (order,)))
    elif operation in ("MatrixInverse", "MatrixSolve"):
        given = written.transposed(a) if settings[0] else a
        written.factors(SOLVE, given, call.operands[1] if operation == "MatrixSolve" else written.identity(a))
    else:
        written.determinant(a, operation == "LogMatrixDeterminant")


class _Matrices:
    """Adds instructions on matrices in place of a custom call."""

    def __init__(self, add: Add, call: Instruction) -> None:
        self.add, self.call = add, call

    def factors(self, target: str, *operands: Instruction, **config: bool) -> tuple[Instruction, ...]:
        """The results of a factorization of the engine."""
        named = {"custom_call_target": target, "backend_config": json.dumps(config) if config else ""}
        found = Instruction("shape", "custom-call", TupleShape(()), operands, named)
        shapes = factorization_shapes(found)
        made = self.add("custom-call", TupleShape(shapes), operands, custom_call_has_side_effect=False, **named)
        return tuple(self.add("get-tuple-element", each, (made,), tuple_index=k) for k, each in enumerate(shapes))

    def tuple(self, *results: Instruction) -> None:
        """The call's results; those that TensorFlow does not compute are empty."""
        missing = [
            self.add("constant", each, literal=np.zeros(each.dimensions, each.dtype))
            for each in self.call.tuple_shapes[len(results) :]
        ]
        self.add("tuple", self.call.shape, (*results, *missing))

    def singular_values(self, a: Instruction, vectors: bool, full: bool) -> list[Instruction]:
        """Singular values, and singular vectors if the call computes them; `full` ones include the null space."""
        found = list(self.factors(SVD, a, vectors=vectors))
        for k in range(1, len(found)):
            *_, size, count = found[k].array_shape.dimensions
            if full and size > count:
                found[k] = self._completed(found[k])
        return found

    def _completed(self, columns: Instruction) -> Instruction:
        """The orthonormal columns, and others that complete a basis."""
        shape, (q, _) = columns.array_shape, self.factors(QR, columns, full=True)
        *batch, size, count = shape.dimensions
        others = shape.with_dimensions((*batch, size, size - count))
        slices = [*(SliceDimension(0, each) for each in (*batch, size)), SliceDimension(count, size)]
        rest = self.add("slice", others, (q,), slice_dimensions=tuple(slices))
        return self.add("concatenate", q.array_shape, (columns, rest), dimensions=(shape.rank - 1,))

    def of_empty_matrices(self, operation: str) -> None:
        """Adds the results for empty matrices: no elements, determinants of 1, bases of the identity."""
        shapes = self.call.tuple_shapes if isinstance(self.call.shape, TupleShape) else (self.call.array_shape,)
        values = [np.zeros(each.dimensions, each.dtype) for each in shapes]
        if operation in ("MatrixDeterminant", "LogMatrixDeterminant"):
            values[0][...] = 1
        for value in values if operation in ("Qr", "Svd") else []:
            if value.size:
                value[...] = np.eye(value.shape[-1])
        constants = [self.add("constant", each, literal=value) for each, value in zip(shapes, values, strict=True)]
        if isinstance(self.call.shape, TupleShape):
            self.add("tuple", self.call.shape, tuple(constants))

    def transposed(self, a: Instruction) -> Instruction:
        """A batch of square matrices, each transposed."""
        rank = a.array_shape.rank
        return self.add("transpose", a.array_shape, (a,), dimensions=(*range(rank - 2), rank - 1, rank - 2))

    def _on_diagonal(self, shape: Shape) -> Instruction:
        """Whether an element of a matrix is on its diagonal, pred of a shape."""
        numbers = shape.with_type("s32")
        row, column = (self.add("iota", numbers, iota_dimension=shape.rank - k) for k in (2, 1))
        kind = shape.with_type("pred")
        return self.add("compare", kind, (row, column), direction="EQ", comparison_type="SIGNED")

    def _filled(self, shape: Shape, value: float) -> Instruction:
        scalar = self.scalar(shape, value)
        return self.add("broadcast", shape, (scalar,), dimensions=())

    def scalar(self, shape: Shape, value: float) -> Instruction:
        """A constant of a shape's element type."""
        return self.add("constant", Shape(shape.element_type), literal=np.full((), value, shape.dtype))

    def identity(self, a: Instruction) -> Instruction:
        """Identity matrices of the shape of `a`."""
        shape = a.array_shape
        return self.add("select", shape, (self._on_diagonal(shape), self._filled(shape, 1), self._filled(shape, 0)))

    def determinant(self, a: Instruction, is_logarithm: bool) -> None:
        """The determinant, or its sign and the logarithm of its size, from the diagonal of U."""
        factors, _, sign = self.factors(LU, a)
        shape, on_diagonal = a.array_shape, self._on_diagonal(a.array_shape)
        if not is_logarithm:
            self.add("multiply", sign.shape, (sign, self._reduced(factors, on_diagonal, "multiply", 1)))
            return
        signs, sizes = (self.add(each, shape, (factors,)) for each in ("sign", "abs"))
        of_sign = self.add("multiply", sign.shape, (sign, self._reduced(signs, on_diagonal, "multiply", 1)))
        logarithms = self.add("log", shape, (sizes,))
        self.add("tuple", self.call.shape, (of_sign, self._reduced(logarithms, on_diagonal, "add", 0)))

    def _reduced(self, values: Instruction, on_diagonal: Instruction, opcode: str, start: float) -> Instruction:
        """The values on the diagonal of each matrix, combined."""
        shape = values.array_shape
        kept = self.add("select", shape, (on_diagonal, values, self._filled(shape, start)))
        scalar, name = Shape(shape.element_type), f"{self.call.name}.{opcode}"
        a, b = (Instruction(f"{name}.{k}", "parameter", scalar, (), {"parameter_number": k}) for k in range(2))
        combined = Instruction(name, opcode, scalar, (a, b))
        body = Computation(f"{name}.region", [a, b, combined], combined)
        target = shape.with_dimensions(shape.dimensions[:-2])
        dimensions = (shape.rank - 2, shape.rank - 1)
        return self.add("reduce", target, (kept, self.scalar(shape, start)), body, dimensions=dimensions)
