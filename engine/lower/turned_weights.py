"""Weights that a loop multiplies by transposed, turned once before the loop instead of in every turn."""

from __future__ import annotations

from engine.ir import Computation, DotDimensionNumbers, Instruction, Shape
from engine.ir.affine import MOVING, row_major_strides
from engine.lower.context import Context, Value
from engine.lower.copies import copy
from engine.lower.views import View, whole


def turn_weights(context: Context, loop: Instruction, state: Value) -> None:
    """Notes for each dot of the body whose second operand never changes, and ends in what is summed over, a copy.

    The copy has its dimensions the other way round: the codelet reads it as it lies.
    """
    body = loop.called[0]
    assert isinstance(state, tuple)
    for dot in body.instructions:
        if dot.opcode != "dot":
            continue
        weight = dot.operands[1]
        numbers: DotDimensionNumbers = dot["dot_dimension_numbers"]
        contracting = numbers.rhs_contracting_dimensions
        element = _unchanging(body, weight)
        if element is None or numbers.rhs_batch_dimensions or weight.array_shape != _typed(weight, dot):
            continue
        value = state[element["tuple_index"]]
        view = _view(context, weight, element, value)
        if _is_summed_innermost(view, contracting):
            name = f"{loop.name}.{weight.name}.turned"
            context.turned[dot] = _turned(context, name, view, contracting, dot.op_name)


def _typed(weight: Instruction, dot: Instruction) -> Shape:
    return weight.array_shape.with_type(dot.array_shape.element_type)


def _unchanging(body: Computation, weight: Instruction) -> Instruction | None:
    """The element of the state that a weight is, seen through moves, if the body hands that element on."""
    while weight.opcode in MOVING:
        weight = weight.operands[0]
    if weight.opcode != "get-tuple-element" or weight.operands[0].opcode != "parameter" or body.root.opcode != "tuple":
        return None
    number = weight["tuple_index"]
    new = body.root.operands[number]
    same = new.opcode == "get-tuple-element" and new.operands[0] is weight.operands[0] and new["tuple_index"] == number
    return weight if same else None


def _view(context: Context, weight: Instruction, element: Instruction, value: Value) -> View:
    """The weight before the loop, when the body's instructions have no values yet."""
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
    """Whether neighbours in memory are summed over, and no result's columns."""
    long = [d for d, size in enumerate(view.shape.dimensions) if size != 1]
    if not long or all(d in contracting for d in long):
        return False
    return min(long, key=lambda d: abs(view.strides[d])) in contracting


def _turned(context: Context, name: str, view: View, contracting: tuple[int, ...], op_name: str) -> View:
    """A copy that ends in the dimensions that are not summed over, seen in the order of the original."""
    shape = view.shape
    order = [*contracting, *(d for d in range(shape.rank) if d not in contracting)]
    moved = shape.with_dimensions(tuple(shape.dimensions[d] for d in order))
    buffer = context.new_buffer(name, moved)
    source = View(view.buffer, moved, view.offset, tuple(view.strides[d] for d in order))
    copy(context, name, source, whole(buffer, moved), op_name)
    strides = [0] * shape.rank
    for stride, dimension in zip(row_major_strides(moved), order, strict=True):
        strides[dimension] = stride * shape.dtype.itemsize
    return View(buffer, shape, 0, tuple(strides))
