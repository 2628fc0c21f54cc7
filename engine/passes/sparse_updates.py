"""Embedding tables updated row by row: only rows whose ids are in the batch are touched.

The gradient of an embedding is a scatter-add of rows into zeros. Where a variable's new value is its old one wherever
that gradient is zero (SGD without momentum, Adagrad), only the rows of the batch are gathered, updated and scattered
back. Gradients of equal ids are summed first, in the same order as before, so the result has the same bits. An update
may have several gradients of the same ids: Keras 3's Adagrad has one of the squares of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.ir import Computation, Instruction, Module, ScatterDimensionNumbers, Shape
from engine.ops.apply import single_operation
from engine.passes.construct import broadcast
from engine.passes.equal_rows import EqualRows, pair, take_rows
from engine.passes.fusible import is_elementwise
from engine.passes.rewriting import make, rewrite_each

WORTH_ELEMENTS = 1 << 18
"""Least elements of a table; a smaller one is updated whole."""
SPARSENESS = 16
"""The least ratio of the table's rows to the batch's ids. Below it, an update of the whole table, which sums rows where
it reads them, costs less."""
ROW_SCATTER = ScatterDimensionNumbers((1,), (0,), (0,), 1)


def sparse_updates(module: Module) -> Module:
    """Rewrites every update in the entry that leaves the rows outside the batch unchanged."""
    replacements: dict[Instruction, Instruction] = {}
    by_ids: dict[tuple[Instruction, Shape], list[Instruction]] = {}
    for instruction in module.entry.instructions:
        if is_row_sum(instruction):
            by_ids.setdefault((instruction.operands[1], instruction.array_shape), []).append(instruction)
    for gradients in by_ids.values():
        updates = [_find_update(module, [each]) for each in gradients]
        others = [each for each, update in zip(gradients, updates, strict=True) if update is None]
        updates += [_find_update(module, others)] if len(others) > 1 else []
        for update in updates:
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
    """Gradients by rows, the operations on them, and for each variable's new value the parameter with the old one."""

    gradients: list[Instruction]
    inside: tuple[Instruction, ...]
    results: dict[Instruction, Instruction]


def is_row_sum(instruction: Instruction, batches: int = 1) -> bool:
    """Whether an instruction adds rows by ids to zeros [rows, width], a table much larger than `batches` batches."""
    if instruction.opcode != "scatter" or len(instruction.operands) != 3:
        return False
    table, ids, rows = instruction.operands
    shape = instruction.array_shape
    if shape.rank != 2 or rows.array_shape.rank != 2 or single_operation(instruction.called[0]) != "add":
        return False
    named = rows.array_shape.dimensions[0]
    if shape.elements < WORTH_ELEMENTS or not 0 < named or shape.dimensions[0] < SPARSENESS * batches * named:
        return False
    flat = ids.array_shape.dimensions in ((named,), (named, 1))
    # Ids are compared with the number of rows, in their own type.
    counted = shape.dimensions[0] <= np.iinfo(ids.array_shape.dtype).max
    return instruction["scatter_dimension_numbers"] == ROW_SCATTER and flat and counted and _is_zero(table)


def _is_zero(instruction: Instruction) -> bool:
    while instruction.opcode in ("broadcast", "reshape"):
        instruction = instruction.operands[0]
    return instruction.opcode == "constant" and not np.any(instruction["literal"])


def _find_update(module: Module, gradients: list[Instruction]) -> RowUpdate | None:
    """The instructions that depend on gradients, if they only update variables, and only in their rows; else None."""
    olds = {module.results[r]: module.entry.parameters[p] for p, r in module.aliases.items()}
    others = {r for k, r in enumerate(module.results) if k not in module.aliases.values()}
    value: dict[Instruction, object] = dict.fromkeys(gradients, "zero")
    inside: list[Instruction] = []
    results: dict[Instruction, Instruction] = {}
    for instruction in module.entry.instructions:
        if instruction is module.entry.root or not any(o in value for o in instruction.operands):
            continue
        if not is_elementwise(instruction) or instruction.shape != gradients[0].shape or instruction in others:
            return None
        if not all(o in value or _is_by_row(o, gradients[0]) for o in instruction.operands):
            return None
        value[instruction] = _without_gradient(instruction, value)
        inside.append(instruction)
        if instruction in olds:
            if value[instruction] is not olds[instruction]:
                return None
            results[instruction] = olds[instruction]
    return RowUpdate(gradients, tuple(inside), results) if results else None


def _is_by_row(operand: Instruction, gradient: Instruction) -> bool:
    """Whether an operand is a table of the gradient's shape, or has only equal rows."""
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
        # Clipping by value has such operations.
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
    """Rewrites an update of a whole table to an update of only the batch's rows."""

    def __init__(self, update: RowUpdate) -> None:
        self.update = update
        self.like = update.gradients[0]
        _, ids, rows = self.like.operands
        self.shape = rows.array_shape
        self.ids = ids
        self.small: dict[Instruction, Instruction] = {}

    def replacements(self) -> dict[Instruction, Instruction]:
        """Maps each new table to the scatter of its new rows into the old one."""
        equal = EqualRows(self.like)
        for gradient in self.update.gradients:
            self.small[gradient] = take_rows(self.like, equal.sums(gradient.operands[2]), equal.first)
        for instruction in self.update.inside:
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
                self.small[operand] = take_rows(self.like, operand, self.ids)
            else:
                scalar, mapping = operand.operands[0], operand["dimensions"]
                self.small[operand] = broadcast(operand, scalar, self.shape.dimensions, mapping)
        return self.small[operand]

    def _put(self, table: Instruction, rows: Instruction, body: Computation) -> Instruction:
        return make(
            *(self.like, "scatter", table.array_shape, (table, self.ids, rows), (body,)), **self.like.attributes
        )


def _assignment(element_type: str) -> Computation:
    """The scatter body that returns the update."""
    both = pair(element_type)
    return Computation("assign", both, both[1])
