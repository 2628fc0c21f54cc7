"""Weights by whose transpose a loop multiplies: they are transposed once before the loop, not in each iteration."""

from __future__ import annotations

from collections.abc import Iterator

from engine.ir import Computation, DotDimensionNumbers, Instruction, Shape
from engine.ir.opcodes import AFFINE
from engine.lower.context import Context, Value
from engine.passes.loops.view import element_read
from engine.program.copies import copy
from engine.program.views import View, reordered, stored_in, whole


def iteration_weights(context: Context, loop: Instruction, state: Value) -> dict[Instruction, dict[Instruction, View]]:
    """Copies of weights for dots of the body whose second operand never changes and has its contracted dimension last.

    The copy has its dimensions transposed: the codelet reads it in memory order. Dots are grouped by the loop and by
    each conditional of its body: two conditionals may share a branch, with a weight for each.
    """
    body = loop.called[0]
    assert isinstance(state, tuple)
    transposed: dict[Instruction, dict[Instruction, View]] = {}
    found = {loop: list(_dots_of(body))}
    for each in body.instructions:
        if each.opcode == "conditional":
            found[each] = list(_dots_in_branches(body, each))
    for control_flow, dots in found.items():
        for dot, element, number in dots:
            weight = dot.operands[1]
            numbers: DotDimensionNumbers = dot["dot_dimension_numbers"]
            contracting = numbers.rhs_contracting_dimensions
            if numbers.rhs_batch_dimensions or weight.array_shape != _typed(weight, dot):
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


def _dots_of(body: Computation) -> Iterator[Found]:
    for dot in body.instructions:
        element = _read(dot.operands[1]) if dot.opcode == "dot" else None
        if element is not None and _is_unchanged(body, element):
            yield dot, element, element["tuple_index"]


def _dots_in_branches(body: Computation, conditional: Instruction) -> Iterator[Found]:
    for branch, argument in zip(conditional.called, conditional.operands[1:], strict=True):
        for dot in branch.instructions if argument.opcode == "tuple" else ():
            read = _read(dot.operands[1]) if dot.opcode == "dot" else None
            if read is not None and _is_unchanged(body, given := argument.operands[read["tuple_index"]]):
                yield dot, read, given["tuple_index"]


def _typed(weight: Instruction, dot: Instruction) -> Shape:
    return weight.array_shape.with_type(dot.array_shape.element_type)


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
    shape = view.shape
    order = [*contracting, *(d for d in range(shape.rank) if d not in contracting)]
    moved = shape.with_dimensions(tuple(shape.dimensions[d] for d in order))
    buffer = context.new_buffer(name, moved)
    copy(context, name, reordered(view, order), whole(buffer, moved), op_name)
    return stored_in(buffer, shape, order)
