"""Lowers gather, scatter and select-and-scatter onto their codelets."""

from __future__ import annotations

from engine.codelets.gather import Gather, encode_gather, gather
from engine.codelets.scatter import Scatter, combiner, encode_scatter, scatter
from engine.codelets.select_and_scatter import (
    SCRATCH_BYTES,
    SelectAndScatter,
    encode_select_and_scatter,
    select_and_scatter,
)
from engine.errors import UnsupportedOperation
from engine.ir import Computation, Instruction
from engine.lower.context import Context, Value, lowering
from engine.lower.copies import copy
from engine.lower.views import whole
from engine.ops.apply import single_operation
from engine.program.program import Buffer, ComputeSet, Effort, Partition, Relocation, Span

SMALL_BYTES = 1 << 15


@lowering("gather")
def lower_gather(context: Context, instruction: Instruction) -> Value:
    """Slices at start indices that are clamped; of any element type."""
    operand, indices = instruction.operands
    result = context.result_buffer(instruction)
    source, positions = context.buffer(operand), context.buffer(indices)
    parameters, units = encode_gather(
        (operand.array_shape, 0),
        (indices.array_shape, 0),
        (instruction.array_shape, 0),
        instruction["gather_dimension_numbers"],
        instruction["gather_slice_sizes"],
    )
    relocations = [
        Relocation(int(Gather.OPERAND), source),
        Relocation(int(Gather.INDICES), positions),
        Relocation(int(Gather.TARGET), result),
    ]
    compute_set = ComputeSet(
        instruction.name,
        gather,
        parameters,
        relocations,
        units,
        [Span(source), Span(positions)],
        [Span(result)],
        Effort({"gather": instruction.array_shape.elements}, 0, instruction.array_shape.element_type),
        op_name=instruction.op_name,
        one_worker=result.shape.bytes < SMALL_BYTES,
    )
    if units:
        context.emit(compute_set)
    return result


@lowering("scatter")
def lower_scatter(context: Context, instruction: Instruction) -> Value:
    """One operand, and a body that is one operation on it and the update."""
    opcode = single_operation(instruction.called[0])
    if len(instruction.operands) != 3 or opcode is None:
        raise UnsupportedOperation(
            f"Expected a scatter of one array whose body is one operation. Received: {instruction!r}"
            f" from {instruction.op_name or 'the program'}. Split it into several scatters."
        )
    operand, indices, updates = instruction.operands
    result = context.result_buffer(instruction)
    buffers = [context.buffer(o) for o in instruction.operands]
    combine = combiner(opcode, operand.array_shape.element_type)
    parameters, units = encode_scatter(
        (operand.array_shape, 1),
        (indices.array_shape, 2),
        (updates.array_shape, 3),
        4,
        instruction["scatter_dimension_numbers"],
        combine.address,
    )
    fields = (Scatter.OPERAND, Scatter.INDICES, Scatter.UPDATES)
    relocations = [Relocation(int(f), b) for f, b in zip(fields, buffers, strict=True)]
    relocations.append(Relocation(int(Scatter.TARGET), result))
    compute_set = ComputeSet(
        instruction.name,
        scatter,
        parameters,
        relocations,
        units,
        [Span(b) for b in buffers],
        [Span(result)],
        Effort({"scatter": updates.array_shape.elements}, 0, operand.array_shape.element_type),
        op_name=instruction.op_name,
        one_worker=result.shape.bytes < SMALL_BYTES,
    )
    if units:
        context.emit(compute_set)
    return result


@lowering("select-and-scatter")
def lower_select_and_scatter(context: Context, instruction: Instruction) -> Value:
    """The select body compares its two parameters; the scatter body adds."""
    direction = comparison_direction(instruction.called[0])
    adds = single_operation(instruction.called[1]) == "add"
    if direction is None or not adds:
        raise UnsupportedOperation(
            f"Expected a select-and-scatter that compares and adds. Received: {instruction!r} "
            f"from {instruction.op_name or 'the program'}."
        )
    operand, source, _ = instruction.operands
    # Halves are summed in f32 and rounded once.
    kind = operand.array_shape.element_type
    wide = "f32" if kind in ("f16", "bf16") else kind
    shape, source_shape = operand.array_shape.with_type(wide), source.array_shape.with_type(wide)
    buffers = [_converted(context, context.buffer(o), wide) for o in instruction.operands]
    final = context.result_buffer(instruction)
    result = final if wide == kind else context.new_buffer(f"{instruction.name}.{wide}", shape)
    codelet = select_and_scatter(direction, wide)
    parameters, units = encode_select_and_scatter((shape, 0), (source_shape, 0), 0, 0, instruction["window"])
    fields = (SelectAndScatter.OPERAND, SelectAndScatter.SOURCE, SelectAndScatter.INIT)
    relocations = [Relocation(int(f), b) for f, b in zip(fields, buffers, strict=True)]
    relocations.append(Relocation(int(SelectAndScatter.TARGET), result))
    spans = [Span(b) for b in buffers]
    written = Span(result)
    if units > 1 and units == shape.dimensions[0]:
        whole_rows = Partition(shape.elements // units, units, 1)
        spans[0], written = Span(buffers[0], whole_rows), Span(result, whole_rows)
        spans[1] = Span(buffers[1], Partition(source_shape.elements // units, units, 1))
    compute_set = ComputeSet(
        instruction.name,
        codelet,
        parameters,
        relocations,
        units,
        spans,
        [written],
        Effort({"select-and-scatter": shape.elements}, 0, shape.element_type),
        SCRATCH_BYTES,
        op_name=instruction.op_name,
        one_worker=shape.bytes < SMALL_BYTES,
    )
    if units:
        context.emit(compute_set)
    if result is not final:
        copy(context, final.name, whole(result, shape), whole(final, operand.array_shape), instruction.op_name)
    return final


def _converted(context: Context, buffer: Buffer, element_type: str) -> Buffer:
    """The array in another element type."""
    if buffer.shape.element_type == element_type:
        return buffer
    made = context.new_buffer(f"{buffer.name}.{element_type}", buffer.shape.with_type(element_type))
    copy(context, made.name, whole(buffer, buffer.shape), whole(made, made.shape))
    return made


def comparison_direction(body: Computation) -> str | None:
    """The direction of a body that compares parameter 0 with parameter 1."""
    root = body.root
    if root.opcode != "compare" or [o.get("parameter_number") for o in root.operands] != [0, 1]:
        return None
    return str(root["direction"])
