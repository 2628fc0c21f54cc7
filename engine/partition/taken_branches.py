"""Updates as they are when their condition holds: conditionals are replaced by a branch, for cost reports."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from engine.ir import Instruction, topological
from engine.passes.rewriting import with_parts


def taken(values: Mapping[int, Instruction], ends: Collection[Instruction]) -> dict[int, Instruction]:
    """The values with the results of the longer branch in place of those of each `conditional`.

    An optimizer with loss scaling updates all variables in one branch, if all gradients are finite: without the
    condition each update depends on its own gradient alone. Instructions that depend on no conditional, and those of
    `ends`, the gradients, stay the same objects.
    """
    new: dict[Instruction, Instruction] = {}
    for each in topological(values.values(), lambda i: i not in ends):
        new[each] = each if each in ends else _copied(each, new)
    return {number: new[value] for number, value in values.items()}


def _copied(instruction: Instruction, new: Mapping[Instruction, Instruction]) -> Instruction:
    operands = tuple(new[operand] for operand in instruction.operands)
    if instruction.opcode == "conditional":
        return _branch(instruction, operands)
    if instruction.opcode == "get-tuple-element" and operands[0].opcode == "tuple":
        return operands[0].operands[instruction["tuple_index"]]
    return with_parts(instruction, operands)


def _branch(conditional: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
    branch = max(conditional.called, key=lambda computation: len(computation.instructions))
    argument = operands[1 + conditional.called.index(branch)]
    new: dict[Instruction, Instruction] = {}
    for each in branch.instructions:
        new[each] = argument if each.opcode == "parameter" else _copied(each, new)
    return new[branch.root]
