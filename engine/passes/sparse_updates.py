"""Embedding tables updated row by row: only rows whose ids are in the batch are touched.

The gradient of an embedding is a scatter-add of rows into zeros. Where a variable's new value is its old one wherever
that gradient is zero (SGD without momentum, Adagrad), only the rows of the batch are gathered, updated and scattered
back. Gradients of equal ids are summed first, in the same order as before, so the result has the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.ir import Computation, GatherDimensionNumbers, Instruction, Module, ScatterDimensionNumbers, Shape
from engine.ops.apply import single_operation
from engine.passes.construct import broadcast, constant, splat_of
from engine.passes.fusible import is_elementwise
from engine.passes.rewriting import make, rewrite_each

WORTH_ELEMENTS = 1 << 18
"""Least elements of a table; a smaller one is updated whole. Chosen by hand."""
SPARSENESS = 16
"""The least ratio of the table's rows to the batch's ids. Below, it costs less to update the whole table and to sum
the rows when it reads them."""
ROW_SCATTER = ScatterDimensionNumbers((1,), (0,), (0,), 1)
ROW_GATHER = GatherDimensionNumbers((1,), (0,), (0,), 1)


def sparse_updates(module: Module) -> Module:
    """Rewrites every update in the entry that leaves the rows outside the batch unchanged."""
    replacements: dict[Instruction, Instruction] = {}
    for instruction in module.entry.instructions:
        if _is_row_sum(instruction):
            update = _find_update(module, instruction)
            if update is not None:
                replacements |= _UpdatedRows(update).replacements()
    if not replacements:
        return module

    def visit(before: Instruction, _: Instruction) -> Instruction | None:
        return replacements.get(before)

    def keep(before: Instruction, _: Instruction) -> Instruction | None:
        return None

    return rewrite_each(module, lambda computation: visit if computation is module.entry else keep)


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """A gradient by rows, the operations on it, and for each variable's new value the parameter with the old one."""

    gradient: Instruction
    inside: tuple[Instruction, ...]
    results: dict[Instruction, Instruction]


def _is_row_sum(instruction: Instruction) -> bool:
    """Whether it is scatter(zeros [rows, width], ids, rows, add) into a table much larger than the batch."""
    if instruction.opcode != "scatter" or len(instruction.operands) != 3:
        return False
    table, ids, rows = instruction.operands
    shape = instruction.array_shape
    if shape.rank != 2 or rows.array_shape.rank != 2 or single_operation(instruction.called[0]) != "add":
        return False
    named = rows.array_shape.dimensions[0]
    if shape.elements < WORTH_ELEMENTS or not 0 < named or shape.dimensions[0] < SPARSENESS * named:
        return False
    flat = ids.array_shape.dimensions in ((named,), (named, 1))
    return instruction["scatter_dimension_numbers"] == ROW_SCATTER and flat and _is_zero(table)


def _is_zero(instruction: Instruction) -> bool:
    while instruction.opcode in ("broadcast", "reshape"):
        instruction = instruction.operands[0]
    return instruction.opcode == "constant" and not np.any(instruction["literal"])


def _find_update(module: Module, gradient: Instruction) -> RowUpdate | None:
    """The instructions that depend on the gradient, if they only update variables, and only in its rows; else None."""
    olds = {module.results[r]: module.entry.parameters[p] for p, r in module.aliases.items()}
    others = {r for k, r in enumerate(module.results) if k not in module.aliases.values()}
    value: dict[Instruction, object] = {gradient: "zero"}
    inside: list[Instruction] = [gradient]
    results: dict[Instruction, Instruction] = {}
    for instruction in module.entry.instructions:
        if instruction is module.entry.root or not any(o in value for o in instruction.operands):
            continue
        if not is_elementwise(instruction) or instruction.shape != gradient.shape or instruction in others:
            return None
        if not all(o in value or _is_by_row(o, gradient) for o in instruction.operands):
            return None
        value[instruction] = _without_gradient(instruction, value)
        inside.append(instruction)
        if instruction in olds:
            if value[instruction] is not olds[instruction]:
                return None
            results[instruction] = olds[instruction]
    return RowUpdate(gradient, tuple(inside), results) if results else None


def _is_by_row(operand: Instruction, gradient: Instruction) -> bool:
    """Whether it is a table of the gradient's shape, or equal in all its rows."""
    if operand.opcode == "parameter":
        return operand.shape == gradient.shape
    return operand.opcode == "broadcast" and 0 not in operand["dimensions"]


def _without_gradient(instruction: Instruction, value: dict[Instruction, object]) -> object:
    """An operation's result where the gradient is zero: "zero", an unchanged parameter, or anything else (None)."""
    seen = [value.get(o, o if o.opcode == "parameter" else None) for o in instruction.operands]
    opcode = instruction.opcode
    if opcode == "multiply" and "zero" in seen:
        return "zero"
    if opcode in ("negate", "abs", "sqrt", "convert", "divide") and seen[0] == "zero":
        return "zero"
    if opcode in ("minimum", "maximum") and "zero" in seen:
        bound = _constant_of(instruction.operands[1 - seen.index("zero")])
        # As in clipping by value.
        return "zero" if bound is not None and (bound >= 0 if opcode == "minimum" else bound <= 0) else None
    if opcode in ("add", "subtract") and seen[1] == "zero":
        return seen[0]
    if opcode == "add" and seen[0] == "zero":
        return seen[1]
    return None


def _constant_of(instruction: Instruction) -> float | None:
    """The number that a splat repeats; None if it is no splat of a constant."""
    while instruction.opcode in ("broadcast", "reshape"):
        instruction = instruction.operands[0]
    known = instruction.opcode == "constant" and instruction.array_shape.elements == 1
    return float(np.asarray(instruction["literal"]).reshape(())) if known else None


class _UpdatedRows:
    """The same update, of the batch's rows alone."""

    def __init__(self, update: RowUpdate) -> None:
        self.update = update
        self.like = update.gradient
        _, ids, rows = update.gradient.operands
        self.shape = rows.array_shape
        self.ids = ids
        self.small: dict[Instruction, Instruction] = {}

    def replacements(self) -> dict[Instruction, Instruction]:
        """For each new table, the scatter of its new rows into the old one."""
        self.small[self.update.gradient] = self._sums()
        for instruction in self.update.inside[1:]:
            operands = [self._row_values(o) for o in instruction.operands]
            self.small[instruction] = make(
                instruction, instruction.opcode, self.shape, operands, **instruction.attributes
            )
        return {
            new: self._put(old, self.small[new], _assignment(self.shape.element_type))
            for new, old in self.update.results.items()
        }

    def _row_values(self, operand: Instruction) -> Instruction:
        if operand not in self.small:
            if operand.opcode == "parameter":
                self.small[operand] = self._take(operand, self.ids)
            else:
                scalar, mapping = operand.operands[0], operand["dimensions"]
                self.small[operand] = broadcast(operand, scalar, self.shape.dimensions, mapping)
        return self.small[operand]

    def _sums(self) -> Instruction:
        """For each id the sum of the gradients of all equal ids, summed at the first of them."""
        first = self._first()
        zeros = splat_of(self.like, np.zeros((), self.shape.dtype), self.shape)
        summed = make(
            *(self.like, "scatter", self.shape, (zeros, first, self.like.operands[2]), self.like.called),
            **self.like.attributes,
        )
        return self._take(summed, first)

    def _first(self) -> Instruction:
        """s32 [named]: the first position with an equal id; for ids out of range, perhaps their own."""
        named, rows = self.shape.dimensions[0], self.like.array_shape.dimensions[0]
        # Few positions are compared with each other; many are scattered into a table of all rows.
        return self._first_by_comparing(named) if named * named <= rows else self._first_by_row(named, rows)

    def _first_by_comparing(self, named: int) -> Instruction:
        like = self.like
        square, counts = Shape("pred", (named, named)), Shape("s32", (named, named))
        both = [broadcast(like, self._flat_ids(), square.dimensions, (d,)) for d in (0, 1)]
        equal = make(like, "compare", square, both, direction="EQ")
        positions = make(like, "iota", counts, (), iota_dimension=1)
        last = np.asarray(named, np.int32)
        chosen = make(like, "select", counts, (equal, positions, splat_of(like, last, counts)))
        initial = constant(like, last, Shape("s32"))
        shape = Shape("s32", (named,))
        return make(like, "reduce", shape, (chosen, initial), (_body("minimum", "s32"),), dimensions=(1,))

    def _first_by_row(self, named: int, rows: int) -> Instruction:
        like = self.like
        column, flat, table = Shape("s32", (named, 1)), Shape("s32", (named,)), Shape("s32", (rows, 1))
        positions = make(like, "iota", column, (), iota_dimension=0)
        empty = splat_of(like, np.asarray(named, np.int32), table)
        body = _body("minimum", "s32")
        lowest = make(like, "scatter", table, (empty, self.ids, positions), (body,), **like.attributes)
        found = make(like, "reshape", flat, (self._take(lowest, self.ids),))
        # An id out of range finds the first position of another row, whose sum it must not join.
        ids = self._flat_ids()
        limits = [splat_of(like, np.asarray(limit, ids.array_shape.dtype), ids.array_shape) for limit in (0, rows)]
        pred = Shape("pred", (named,))
        inside = [
            make(like, "compare", pred, (ids, limit), direction=direction)
            for limit, direction in zip(limits, ("GE", "LT"), strict=True)
        ]
        own = make(like, "iota", flat, (), iota_dimension=0)
        return make(like, "select", flat, (make(like, "and", pred, inside), found, own))

    def _flat_ids(self) -> Instruction:
        kind = self.ids.array_shape.element_type
        return make(self.like, "reshape", Shape(kind, (self.shape.dimensions[0],)), (self.ids,))

    def _take(self, table: Instruction, ids: Instruction) -> Instruction:
        kind, (named, _), width = table.array_shape.element_type, self.shape.dimensions, table.array_shape.dimensions[1]
        return make(
            *(self.like, "gather", Shape(kind, (named, width)), (table, ids)),
            gather_dimension_numbers=ROW_GATHER,
            gather_slice_sizes=(1, width),
        )

    def _put(self, table: Instruction, rows: Instruction, body: Computation) -> Instruction:
        return make(
            *(self.like, "scatter", table.array_shape, (table, self.ids, rows), (body,)), **self.like.attributes
        )


def _parameters(element_type: str) -> list[Instruction]:
    shape = Shape(element_type)
    return [Instruction(f"p{k}", "parameter", shape, (), {"parameter_number": k}) for k in range(2)]


def _body(opcode: str, element_type: str) -> Computation:
    both = _parameters(element_type)
    root = Instruction(opcode, opcode, Shape(element_type), tuple(both))
    return Computation(opcode, [*both, root], root)


def _assignment(element_type: str) -> Computation:
    """The scatter body that returns the update."""
    both = _parameters(element_type)
    return Computation("assign", both, both[1])
