"""Cuts a computation of a function and its gradient into two, at the values that the gradient reads."""

from __future__ import annotations

from collections.abc import Sequence

from engine.ir import Computation, Instruction, TupleShape
from engine.ir.builder import Builder
from engine.ir.device_operations import target_of
from engine.ir.module import topological
from engine.ir.opcodes import AFFINE
from engine.passes.rewriting import with_parts

REPEATED = AFFINE | {"constant", "iota"}
"""Opcodes that are repeated in the gradient instead of being stored: they take no work, or no memory."""
UPSTREAM = "ipu.outlined_upstream"
"""The target of custom calls (gradient, results...) -> gradient: an upstream gradient depends on the results."""


def upstream(builder: Builder, parameter: Instruction, results: Sequence[Instruction]) -> Instruction:
    """An upstream gradient, a parameter, as a value that no pass computes before the results."""
    return builder.instruction("custom-call", parameter.shape, (parameter, *results), custom_call_target=UPSTREAM)


def split(
    joint: Computation, parameters: int, results: int, is_tuple: bool
) -> tuple[Computation, Computation, list[Instruction]]:
    """The computation of the first `results` results, another of the others, and the values that the second reads.

    The first computation returns these values as further elements of its tuple, and has only the first `parameters`
    parameters of `joint`. The second has all of these, then the values. `is_tuple` says whether its result is a tuple.
    """
    ours = joint.root.operands[:results]
    function = set(topological(ours))
    function |= {i for i in joint.instructions if i.opcode == "get-tuple-element" and i.operands[0] in function}
    gradient = [i for i in joint.instructions if i in set(topological(joint.root.operands[results:]))]
    stored = _stored(joint, gradient, function)
    root = _tuple("results", [*ours, *stored])
    kept = [i for i in joint.instructions if i in function or _is_among(i, parameters)]
    return Computation(joint.name, [*kept, root], root), _rest(joint, results, stored, function, is_tuple), stored


def _stored(joint: Computation, gradient: Sequence[Instruction], function: set[Instruction]) -> list[Instruction]:
    """The function's values that instructions of the gradient read, directly or through those that are repeated."""
    ours = [each for each in gradient if each not in function and target_of(each) != UPSTREAM]
    read = {operand for each in ours for operand in each.operands if operand in function}
    read |= {each for each in joint.root.operands if each in function and each in gradient}
    found: dict[Instruction, None] = {}
    pending, seen = list(read), set(read)
    while pending:
        each = pending.pop()
        if each.opcode in REPEATED:
            pending += [operand for operand in each.operands if operand not in seen]
            seen.update(each.operands)
        elif each.opcode != "parameter":
            found[each] = None
    return [each for each in joint.instructions if each in found]


def _rest(
    joint: Computation, results: int, stored: Sequence[Instruction], function: set[Instruction], is_tuple: bool
) -> Computation:
    """The computation of the results from `results` on."""
    given = [*joint.parameters, *stored]
    new: dict[Instruction, Instruction] = {}
    for number, each in enumerate(given):
        new[each] = Instruction(each.name, "parameter", each.shape, (), {"parameter_number": number}, (), each.op_name)
    instructions = list(new.values())
    new |= {each: new[each.operands[0]] for each in joint.instructions if target_of(each) == UPSTREAM}
    wanted = joint.root.operands[results:]
    needed = _needed(wanted, new)
    for each in joint.instructions:
        if each in needed and each not in new:
            copy = with_parts(each, [new[operand] for operand in each.operands])
            new[each] = copy
            instructions.append(copy)
    root = new[wanted[0]]
    if is_tuple:
        root = _tuple("gradients", [new[each] for each in wanted])
        instructions.append(root)
    return Computation(f"{joint.name}_gradient", instructions, root)


def _needed(wanted: Sequence[Instruction], given: dict[Instruction, Instruction]) -> set[Instruction]:
    """All values on which the wanted ones depend, up to the given ones."""
    found: set[Instruction] = set()
    pending = list(wanted)
    while pending:
        each = pending.pop()
        if each not in found:
            found.add(each)
            pending += () if each in given else each.operands
    return found


def _is_among(instruction: Instruction, parameters: int) -> bool:
    return instruction.opcode == "parameter" and instruction["parameter_number"] < parameters


def _tuple(name: str, operands: Sequence[Instruction]) -> Instruction:
    return Instruction(name, "tuple", TupleShape(tuple(each.shape for each in operands)), tuple(operands))
