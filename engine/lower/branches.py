"""Memory of a `conditional`'s results: state that a branch passes on stays where it is."""

from __future__ import annotations

from engine.ir import Computation, Instruction
from engine.ir.opcodes import AFFINE, CONTROL_FLOW, TUPLES
from engine.lower.context import Context, Value
from engine.lower.state import like
from engine.passes.loops.view import element_read

PASSES_ON = AFFINE | TUPLES | CONTROL_FLOW
"""Opcodes that may pass on an operand's memory, or read it only on demand."""


def branch_results(context: Context, instruction: Instruction, argument: Value) -> Value:
    """The buffers of a conditional's result, given the value of the first branch's argument.

    An element that one branch passes on shares the argument element's memory, if that is state of the loop around it
    and no instruction reads it after the conditional.
    """
    results = like(context, instruction.name, instruction.shape)
    body = context.loop_body
    operand = instruction.operands[1]
    if body is None or operand is not instruction.operands[2] or operand.opcode != "tuple":
        return results
    users = body.users()
    if instruction not in users or users[operand] != [instruction]:
        return results
    assert isinstance(results, tuple) and isinstance(argument, tuple)
    positions, taken = list(results), set[int]()
    for branch in instruction.called:
        for number, forwarded in _forwarded(branch):
            element = operand.operands[forwarded]
            if (
                forwarded not in taken
                and positions[number] is results[number]
                and _is_free(element, instruction, body, users)
            ):
                taken.add(forwarded)
                positions[number] = argument[forwarded]
    return tuple(positions)


def _forwarded(branch: Computation) -> list[tuple[int, int]]:
    """Indices, in result and in argument, of the result's elements that are elements of the argument."""
    results = branch.root.operands if branch.root.opcode == "tuple" else ()
    found = enumerate(map(element_read, results))
    return [(number, element) for number, element in found if element is not None]


def _is_free(
    element: Instruction, conditional: Instruction, body: Computation, users: dict[Instruction, list[Instruction]]
) -> bool:
    """Whether a value is the loop's own memory, from its state or a conditional, and not read after the conditional."""
    if element.opcode != "get-tuple-element" or element.operands[0].opcode not in ("parameter", "conditional"):
        return False
    source, number, reader = element.operands[0], element["tuple_index"], conditional.operands[1]
    others = [u for u in users[source] if u is not element and u.get("tuple_index", number) == number]
    if others or reader not in users[element] or reader.operands.count(element) != 1:
        return False
    order = {each: position for position, each in enumerate(body.instructions)}
    pending = [user for user in users[element] if user is not reader]
    while pending:
        user = pending.pop()
        if order[user] > order[conditional] or user is body.root:
            return False
        if user.opcode in PASSES_ON and user is not conditional:
            pending += users[user]
    return True
