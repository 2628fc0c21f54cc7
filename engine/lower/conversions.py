"""Lowers bitcast-convert to any width."""

from __future__ import annotations

from engine.ir import Instruction, Shape
from engine.lower.context import Context, Value, lowering
from engine.program.copies import copy
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
