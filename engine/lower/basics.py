"""Lowers opcodes without arithmetic: parameters, constants, tuples, moves, pads, concatenations."""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction, PaddingDimension, Shape
from engine.lower.context import Context, Value, lowering
from engine.program.copies import copy, fill, part
from engine.program.loops import run_draft
from engine.program.nest import Index, Store
from engine.program.nests import Draft, Reached
from engine.program.program import Buffer
from engine.program.views import View, whole


@lowering("parameter")
def lower_parameter(context: Context, instruction: Instruction) -> Value:
    """A feed, a variable or a constant: the buffer for its role."""
    name, shape, number = instruction.name, instruction.array_shape, instruction["parameter_number"]
    match context.roles[number]:
        case "feed":
            return context.feeds.setdefault(number, Buffer(name, shape, "feed", number))
        case "variable":
            return context.variables.setdefault(number, Buffer(name, shape, "variable", number))
    return Buffer(name, shape, "constant", number, context.constants[number])


@lowering("constant")
def lower_constant(context: Context, instruction: Instruction) -> Value:
    """A buffer that is filled once."""
    literal = np.asarray(instruction["literal"], instruction.array_shape.dtype)
    return Buffer(instruction.name, instruction.array_shape, "constant", value=np.ascontiguousarray(literal))


@lowering("tuple")
def lower_tuple(context: Context, instruction: Instruction) -> Value:
    """The values of the tuple's elements."""
    return tuple(context.value(o) for o in instruction.operands)


@lowering("get-tuple-element")
def lower_get_tuple_element(context: Context, instruction: Instruction) -> Value:
    """One element of a tuple: no data moves."""
    value = context.value(instruction.operands[0])
    assert isinstance(value, tuple), instruction
    return value[instruction["tuple_index"]]


@lowering("reshape", "optimization-barrier")
def lower_reshape(context: Context, instruction: Instruction) -> Value:
    """The operand's buffer: row-major order is the same before and after, so no data moves."""
    return context.value(instruction.operands[0])


@lowering("broadcast", "transpose", "slice", "reverse", "copy", "convert")
def lower_move(context: Context, instruction: Instruction) -> Value:
    """A move or a conversion, usually read through a view, whose result a reader needs in memory."""
    result = context.result_buffer(instruction)
    converts = instruction.opcode == "convert"
    view = context.view(instruction.operands[0]) if converts else context.view_of_operand(instruction)
    copy(context, instruction.name, view, whole(result, instruction.array_shape), instruction.op_name)
    return result


@lowering("iota")
def lower_iota(context: Context, instruction: Instruction) -> Value:
    """An iota whose result a reader needs in memory."""
    result = context.result_buffer(instruction)
    shape = instruction.array_shape
    rank = max(shape.rank, 1)
    extents = shape.dimensions or (1,)
    counting = tuple(int(d == instruction["iota_dimension"]) for d in range(rank))
    target = whole(result, shape)
    reached = [
        Reached("s64", None, 0, counting),
        Reached(shape.element_type, 0, 0, target.strides or (0,), writes=True),
    ]
    draft = Draft(extents, (False,) * rank, [Index(0, shape.element_type)], reached, [Store(0, 1)])
    run_draft(context, instruction.name, draft, [], [result], instruction.op_name)
    return result


@lowering("pad")
def lower_pad(context: Context, instruction: Instruction) -> Value:
    """Fills the result with the padding value, then copies the operand's elements that stay to their positions."""
    result = context.result_buffer(instruction)
    shape = instruction.array_shape
    operand, value = instruction.operands
    source = context.view(operand)
    starts, steps, view = padded_index(source, shape, instruction["padding_config"])
    target = whole(result, shape)
    if view.shape.elements != shape.elements:
        fill(context, f"{instruction.name}.fill", target, context.buffer(value), instruction.op_name)
    copy(context, instruction.name, view, part(result, shape, starts, steps, view.shape), instruction.op_name)
    return result


def padded_index(
    source: View, shape: Shape, config: tuple[PaddingDimension, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], View]:
    """Positions of a padded operand's elements (starts, steps), and the view of the elements that stay inside."""
    starts, steps, firsts, counts = [], [], [], []
    for size, extent, padding in zip(source.shape.dimensions, shape.dimensions, config, strict=True):
        step, low = padding.interior_padding + 1, padding.edge_padding_low
        first = max(0, -(low // step)) if low < 0 else 0
        last = min(size - 1, (extent - 1 - low) // step)
        starts.append(low + first * step)
        steps.append(step)
        firsts.append(first)
        counts.append(max(0, last - first + 1))
    offset = source.offset + sum(f * s for f, s in zip(firsts, source.strides, strict=True))
    kept = View(source.buffer, source.shape.with_dimensions(tuple(counts)), offset, source.strides)
    return tuple(starts), tuple(steps), kept


@lowering("concatenate")
def lower_concatenate(context: Context, instruction: Instruction) -> Value:
    """Copies each operand to its position, unless its producer has written it there."""
    joined = context.joined.pop(instruction, None)
    result = joined.buffer if joined else context.result_buffer(instruction)
    shape = instruction.array_shape
    (dimension,) = instruction["dimensions"]
    at = 0
    for number, operand in enumerate(instruction.operands):
        if not joined or number not in joined.there:
            source = context.view(operand)
            starts = tuple(at if d == dimension else 0 for d in range(shape.rank))
            target = part(result, shape, starts, (1,) * shape.rank, source.shape)
            copy(context, f"{instruction.name}.{number}", source, target, instruction.op_name)
        at += operand.array_shape.dimensions[dimension]
    return result


@lowering("reduce")
def lower_empty_reduce(context: Context, instruction: Instruction) -> Value:
    """A reduce over no elements is its initial value; every other reduce is part of a fusion, or is refused."""
    if instruction.operands[0].array_shape.elements and any(shape.elements for shape in instruction.tuple_shapes):
        raise context.unsupported(instruction)
    count = len(instruction.operands) // 2
    results = []
    for number, shape in enumerate(instruction.tuple_shapes):
        buffer = context.result_buffer(instruction, None if count == 1 else number)
        initial = context.buffer(instruction.operands[count + number])
        fill(context, buffer.name, whole(buffer, shape), initial, instruction.op_name)
        results.append(buffer)
    return results[0] if count == 1 else tuple(results)
