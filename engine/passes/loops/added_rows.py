"""Sums into one row of a list: x + (zeros, but for row i) becomes x with a sum in row i.

The gradient of reading one row in each iteration adds a whole list in each: work for all rows, times iterations.
"""

from __future__ import annotations

from engine.ir import Computation, Instruction, Module
from engine.passes import construct
from engine.passes.loops.view import LoopView, element_read
from engine.passes.rewriting import Visit, make, rewrite_each
from engine.passes.splats import is_positive_zero


def add_rows_in_place(module: Module) -> Module:
    """Makes loops read and write one row of a sum of lists, which is initially +0, so that no sum is -0."""
    sums: dict[Computation, dict[Instruction, int]] = {}
    for computation in module.computations():
        for instruction in computation.instructions:
            view = LoopView.of(instruction) if instruction.opcode == "while" else None
            if view is not None:
                found = _sums_of(view)
                shared = sums.get(view.body, found)
                sums[view.body] = {add: number for add, number in found.items() if add in shared}

    def visit_for(computation: Computation) -> Visit:
        here = sums.get(computation, {})

        def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
            return _in_place(instruction, here[before]) if before in here else None

        return visit

    return rewrite_each(module, visit_for) if any(sums.values()) else module


def _sums_of(view: LoopView) -> dict[Instruction, int]:
    """Sums in the body of a list and a row, with the number of the operand that is the row."""
    found = {}
    for k, total in enumerate(view.following):
        if total.opcode != "add" or not is_positive_zero(view.initial[k]):
            continue
        for number, other in enumerate(total.operands):
            is_row = other.opcode == "dynamic-update-slice" and is_positive_zero(other.operands[0])
            if is_row and element_read(total.operands[1 - number]) == k:
                found[total] = number
    return found


def _in_place(total: Instruction, number: int) -> Instruction:
    rows, update = total.operands[1 - number], total.operands[number]
    _, row, *starts = update.operands
    sizes = row.array_shape.dimensions
    before = make(update, "dynamic-slice", row.array_shape, (rows, *starts), dynamic_slice_sizes=sizes)
    operands = (row, before) if number == 0 else (before, row)
    after = construct.elementwise(total, "add", *operands)
    return make(update, "dynamic-update-slice", total.array_shape, (rows, after, *starts))
