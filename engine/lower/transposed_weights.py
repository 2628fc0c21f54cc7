"""Weights by whose transpose a loop multiplies: they are transposed once before the loop, not in each iteration."""

from __future__ import annotations

from collections.abc import Iterator

from engine.ir import Computation, DotDimensionNumbers, Instruction
from engine.ir.opcodes import AFFINE
from engine.lower.context import Context, Value
from engine.passes.loops.view import element_read
from engine.program.copies import copy
from engine.program.views import View, reordered, stored_in


def iteration_weights(context: Context, loop: Instruction, state: Value) -> dict[Instruction, dict[Instruction, View]]:
    """Copies of weights for dots of the body whose second operand never changes and has its contracted dimension last.

    The copy has its dimensions transposed: the codelet reads it in memory order. Dots are grouped by the loop and by
    each conditional of its body: two conditionals may share a branch, with a weight for each.
    """
    body = loop.called[0]
    assert isinstance(state, tuple)
    transposed: dict[Instruction, dict[Instruction, View]] = {}
    found = {loop: list(_dots(body, body))}
    for each in body.instructions:
        if each.opcode == "conditional":
            branches = zip(each.called, each.operands[1:], strict=True)
            found[each] = [dot for branch, argument in branches for dot in _dots(body, branch, argument)]
    for control_flow, dots in found.items():
        for dot, element, number in dots:
            weight = dot.operands[1]
            numbers: DotDimensionNumbers = dot["dot_dimension_numbers"]
            contracting = numbers.rhs_contracting_dimensions
            if numbers.rhs_batch_dimensions or weight.array_shape.element_type != dot.array_shape.element_type:
                continue
            view = _view(context, weight, element, state[number])
            if _is_summed_innermost(view, contracting):
                name = f"{loop.name}.{weight.name}.transposed"
                transposed.setdefault(control_flow, {})[dot] = _transposed(
                    context, name, view, contracting, dot.op_name
                )
    return transposed


Found = tuple[Instruction, Instruction, int]
"""A loop-invariant dot's weight: the dot, the element it is read from in its computation's argument, its index."""


def _dots(body: Computation, computation: Computation, argument: Instruction | None = None) -> Iterator[Found]:
    """The dots of the body, or of a branch with this argument, by weights that the body never changes."""
    for dot in computation.instructions if argument is None or argument.opcode == "tuple" else ():
        read = _read(dot.operands[1]) if dot.opcode == "dot" else None
        if read is not None:
            element = read if argument is None else argument.operands[read["tuple_index"]]
            if _is_unchanged(body, element):
                yield dot, read, element["tuple_index"]


def _read(weight: Instruction) -> Instruction | None:
    """The element of a computation's argument from which moves make a weight; None for any other weight."""
    while weight.opcode in AFFINE:
        weight = weight.operands[0]
    return weight if element_read(weight) is not None else None


def _is_unchanged(body: Computation, element: Instruction) -> bool:
    """Whether an instruction reads an element of the state that the body passes on."""
    number = element_read(element)
    if number is None or body.root.opcode != "tuple":
        return False
    return element_read(body.root.operands[number]) == number


def _view(context: Context, weight: Instruction, element: Instruction, value: Value) -> View:
    """A view of the weight before the loop, when the body's instructions have no values yet."""
    passed = [weight]
    while passed[-1] is not element:
        passed.append(passed[-1].operands[0])
    held = {instruction: context.values.pop(instruction, None) for instruction in passed}
    context.values[element] = value
    view = context.view(weight)
    for instruction, before in held.items():
        context.values.pop(instruction, None)
        if before is not None:
            context.values[instruction] = before
    return view


def _is_summed_innermost(view: View, contracting: tuple[int, ...]) -> bool:
    """Whether neighbours in memory are summed over, rather than columns of the result."""
    long = [d for d, size in enumerate(view.shape.dimensions) if size != 1]
    if not long or all(d in contracting for d in long):
        return False
    return min(long, key=lambda d: abs(view.strides[d])) in contracting


def _transposed(context: Context, name: str, view: View, contracting: tuple[int, ...], op_name: str) -> View:
    """A copy that ends in the dimensions that are not summed over, viewed in the order of the original."""
    order = [*contracting, *(d for d in range(view.shape.rank) if d not in contracting)]
    made = stored_in(name, view.shape, order)
    copy(context, name, reordered(view, order), reordered(made, order), op_name)
    return made
