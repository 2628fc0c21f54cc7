"""Sums into one row of a list: x + (zeros, but for row i) becomes x with a sum in row i.

The gradient of reading one row in each iteration adds a whole list in each: work for all rows, times iterations.
"""

from __future__ import annotations

from engine.ir import Instruction
from engine.passes import construct
from engine.passes.loops.rebuilding import computation_of, substituted
from engine.passes.loops.view import LoopView, element_read
from engine.passes.rewriting import changed, make, on_each
from engine.passes.splats import is_positive_zero


@on_each("while")
def add_rows_in_place(loop: Instruction) -> Instruction | None:
    """Makes a loop read and write one row of a sum of lists, which is initially +0, so that no sum is -0."""
    view = LoopView.of(loop)
    found = {} if view is None else {total: _in_place(total, number) for total, number in _sums_of(view).items()}
    if view is None or not found:
        return None
    (parameter,), root = view.body.parameters, view.body.root
    body = computation_of(view.body.name, parameter, substituted([root], {parameter: parameter, **found})[root])
    return changed(loop, called=(body, view.condition))


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
