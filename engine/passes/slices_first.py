"""Slices are taken before elementwise operations rather than after: an LSTM's gates, from the sum of its products.

Readers of the slices then need neither the whole array nor a codelet that computes it.
"""

from __future__ import annotations

from engine.ir import Computation, Instruction
from engine.passes.construct import slice_of
from engine.passes.fusible import is_elementwise, is_unit_reshape
from engine.passes.rewriting import Visit, changed, for_each


@for_each
def slices_first(computation: Computation) -> Visit:
    """Slices the operands of operations that are read through slices alone, with no element in two of them."""
    users = computation.users()
    sliced: dict[Instruction, tuple[Instruction, ...]] = {}
    for instruction in reversed(computation.instructions):
        slices = _slices_of(instruction, users[instruction], sliced)
        if slices and instruction is not computation.root:
            sliced[instruction] = slices
    made: dict[tuple[Instruction, Instruction], Instruction] = {}

    def part(whole: Instruction, by: Instruction) -> Instruction:
        """The part of an instruction that a slice reads."""
        if whole not in sliced:
            return slice_of(by, whole, by["slice_dimensions"])
        if (whole, by) not in made:
            shape = whole.array_shape.with_dimensions(by.array_shape.dimensions)
            made[whole, by] = changed(whole, shape=shape, operands=[part(o, by) for o in whole.operands])
        return made[whole, by]

    def visit(before: Instruction, instruction: Instruction) -> Instruction | None:
        found = before.opcode == "slice" and before.operands[0] in sliced
        return part(before.operands[0], before) if found else None

    return visit


def _slices_of(
    instruction: Instruction, users: list[Instruction], sliced: dict[Instruction, tuple[Instruction, ...]]
) -> tuple[Instruction, ...]:
    """The slices through which an elementwise operation is read, if there are several and no other readers."""
    if not is_elementwise(instruction) or is_unit_reshape(instruction):
        return ()
    if any(o.array_shape.dimensions != instruction.array_shape.dimensions for o in instruction.operands):
        return ()
    if len(users) == 1 and users[0] in sliced and users[0].operands.count(instruction) == 1:
        return sliced[users[0]]
    if len(users) < 2 or any(u.opcode != "slice" for u in users):
        return ()
    return tuple(users) if sum(u.array_shape.elements for u in users) <= instruction.array_shape.elements else ()
