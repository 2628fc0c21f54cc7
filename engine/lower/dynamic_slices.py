"""Lowers dynamic-slice and dynamic-update-slice."""

from __future__ import annotations

from engine.codelets.dynamic_slice import DynamicSlice, dynamic_slice, encode_dynamic_slice
from engine.ir import Instruction
from engine.lower.context import Context, Value, lowering
from engine.lower.copies import copy
from engine.lower.views import whole
from engine.program.program import Buffer, ComputeSet, Effort, Relocation, Span

SMALL_BYTES = 1 << 15


@lowering("dynamic-slice")
def lower_dynamic_slice(context: Context, instruction: Instruction) -> Value:
    operand, *starts = instruction.operands
    array = context.buffer(operand)
    box = context.result_buffer(instruction)
    _emit(context, instruction, (operand, array), (instruction, box), starts, into_array=False)
    return box


@lowering("dynamic-update-slice")
def lower_dynamic_update_slice(context: Context, instruction: Instruction) -> Value:
    """Copies the operand and writes the update into the copy; in place where the result is the operand's memory."""
    operand, update, *starts = instruction.operands
    source, box = context.buffer(operand), context.buffer(update)
    result = context.result_buffer(instruction)
    if result is not source:
        shape = operand.array_shape
        copy(context, f"{instruction.name}.copy", whole(source, shape), whole(result, shape), instruction.op_name)
    _emit(context, instruction, (operand, result), (update, box), starts, into_array=True)
    return result


def _emit(
    context: Context,
    instruction: Instruction,
    array: tuple[Instruction, Buffer],
    box: tuple[Instruction, Buffer],
    starts: list[Instruction],
    into_array: bool,
) -> None:
    shape, box_shape = array[0].array_shape, box[0].array_shape
    parameters, units, words = encode_dynamic_slice(shape, box_shape, [s.array_shape for s in starts], into_array)
    if not units:
        return
    scalars = [context.buffer(s) for s in starts]
    relocations = [Relocation(int(DynamicSlice.ARRAY), array[1]), Relocation(int(DynamicSlice.BOX), box[1])]
    relocations += [Relocation(word, scalar) for word, scalar in zip(words, scalars, strict=True)]
    inside = [Span(s) for s in scalars]
    reads, writes = ([Span(box[1])], [Span(array[1])]) if into_array else ([Span(array[1])], [Span(box[1])])
    context.emit(
        ComputeSet(
            instruction.name,
            dynamic_slice,
            parameters,
            relocations,
            units,
            [*reads, *inside],
            writes,
            Effort({instruction.opcode: box_shape.elements}, 0, box_shape.element_type),
            op_name=instruction.op_name,
            one_worker=box_shape.bytes < SMALL_BYTES,
        )
    )
