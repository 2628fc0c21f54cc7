"""Arrays in another element type: bitcast-convert to any width, and 16-bit floats widened for wide codelets."""

from __future__ import annotations

from engine.ir import Instruction, Shape
from engine.lower.context import Context, Value, lowering
from engine.program.copies import copy
from engine.program.program import Buffer
from engine.program.views import View, whole


@lowering("bitcast-convert")
def lower_bitcast_convert(context: Context, instruction: Instruction) -> Value:
    """Copies the bits: both sides are viewed as integers of the narrower width, one or several to an element."""
    result = context.result_buffer(instruction)
    source = context.view(instruction.operands[0])
    target = whole(result, instruction.array_shape)
    narrow = min(source.item_bytes, target.item_bytes)
    parted = [_parted(view, narrow) for view in (source, target)]
    copy(context, instruction.name, parted[0], parted[1], instruction.op_name)
    return result


def _parted(view: View, narrow: int) -> View:
    """Each element as `item_bytes / narrow` integers of `narrow` bytes, along one more dimension if that is several."""
    dimensions, strides = view.shape.dimensions, view.strides
    count = view.item_bytes // narrow
    if count > 1:
        dimensions, strides = (*dimensions, count), (*strides, narrow)
    return View(view.buffer, Shape(f"u{8 * narrow}", dimensions), view.offset, strides)


def in_type(context: Context, operand: Instruction, element_type: str) -> Buffer:
    """The operand's array in an element type, row-major."""
    shape = operand.array_shape
    if shape.element_type == element_type:
        return context.buffer(operand)
    made = Buffer(f"{operand.name}.{element_type}", shape.with_type(element_type))
    copy(context, made.name, context.view(operand), whole(made, made.shape))
    return made


def in_type_of(context: Context, instruction: Instruction, result: Buffer, wide: Buffer) -> None:
    """Copies a result that was computed in a wider type to its buffer."""
    if wide is not result:
        shape = instruction.array_shape
        views = whole(wide, shape.with_type(wide.shape.element_type)), whole(result, shape)
        copy(context, result.name, *views, instruction.op_name)


def targets(context: Context, instruction: Instruction, element_type: str) -> tuple[Buffer, Buffer]:
    """The result's buffer, and the one in which it is computed in an element type."""
    result, shape = context.result_buffer(instruction), instruction.array_shape
    if shape.element_type == element_type:
        return result, result
    return result, Buffer(f"{instruction.name}.{element_type}", shape.with_type(element_type))
