"""Embedding tables updated row by row: only rows whose ids are in the batch are touched.

The gradient of an embedding is a scatter-add of rows into zeros. Where a variable's new value is its old one wherever
that gradient is zero (SGD without momentum, Adagrad), only the rows of the batch are gathered, updated and scattered
back. Gradients of equal ids are summed first, in the same order as before, so the result has the same bits. An update
may have several gradients of the same ids: Keras 3's Adagrad has one of the squares of rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.ir import Instruction, Module, ScatterDimensionNumbers, Shape
from engine.ir.builder import Builder
from engine.ops.apply import single_operation
from engine.passes.construct import broadcast, take
from engine.passes.equal_rows import EqualRows
from engine.passes.fusible import is_elementwise
from engine.passes.rewriting import changed, rewrite
from engine.passes.splats import is_splat_of, splat_value

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
                replacements |= update.replacements()
    return rewrite(module, lambda before, _: replacements.get(before)) if replacements else module


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
    return instruction["scatter_dimension_numbers"] == ROW_SCATTER and flat and counted and is_splat_of(table, 0)


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
    return RowUpdate(gradients, inside, results) if results else None


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
        bound = splat_value(instruction.operands[1 - seen.index("zero")])
        # Clipping by value has such operations.
        return "zero" if bound is not None and (bound >= 0 if opcode == "minimum" else bound <= 0) else None
    if opcode in ("add", "subtract") and seen[1] == "zero":
        return seen[0]
    if opcode == "add" and seen[0] == "zero":
        return seen[1]
    return None


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """An update of a whole table, which becomes an update of only the batch's rows.

    It has gradients by rows, the operations on them, and for each variable's new value the parameter with the old one.
    `small` has the rows of tables.
    """

    gradients: list[Instruction]
    inside: list[Instruction]
    results: dict[Instruction, Instruction]
    small: dict[Instruction, Instruction] = field(default_factory=dict)

    @property
    def like(self) -> Instruction:
        return self.gradients[0]

    def replacements(self) -> dict[Instruction, Instruction]:
        """Maps each new table to the scatter of its new rows into the old one."""
        equal = EqualRows(self.like)
        for gradient in self.gradients:
            self.small[gradient] = take(self.like, equal.sums(gradient.operands[2]), equal.first)
        for instruction in self.inside:
            operands = [self._row_values(o) for o in instruction.operands]
            self.small[instruction] = changed(instruction, shape=self.like.operands[2].shape, operands=operands)
        return {new: self._put(old, self.small[new]) for new, old in self.results.items()}

    def _row_values(self, operand: Instruction) -> Instruction:
        if operand not in self.small:
            if operand.opcode == "parameter":
                self.small[operand] = take(self.like, operand, self.like.operands[1])
            else:
                scalar, mapping = operand.operands[0], operand["dimensions"]
                self.small[operand] = broadcast(operand, scalar, self.like.operands[2].array_shape.dimensions, mapping)
        return self.small[operand]

    def _put(self, table: Instruction, rows: Instruction) -> Instruction:
        """The table with these rows in place of its own."""
        _, ids, replaced = self.like.operands
        assignment = Builder("assign")
        _, assigned = (assignment.parameter(replaced.array_shape.element_type) for _ in range(2))
        operands, body = (table, ids, rows), assignment.build(assigned)
        return changed(self.like, shape=table.shape, operands=operands, called=(body,))
