"""Lowers select-and-scatter: comparing floats and adding has a codelet of its own, anything else a general one."""

from __future__ import annotations

from collections.abc import Sequence

from engine.codelets.language.record import Part
from engine.codelets.language.scratch import ScratchSpace
from engine.codelets.pooling.general_select_and_scatter import (
    SCRATCH_BYTES as GENERAL_SCRATCH_BYTES,
)
from engine.codelets.pooling.general_select_and_scatter import (
    GeneralSelectAndScatter,
    encode_general_select_and_scatter,
    general_select_and_scatter,
)
from engine.codelets.pooling.overlapping_pool_gradient import (
    encode_overlapping_pools,
    gathers_pools,
    overlapping_pool_gradient,
)
from engine.codelets.pooling.pool_gradient import SCRATCH_BYTES as POOL_SCRATCH_BYTES
from engine.codelets.pooling.pool_gradient import encode_pool_gradient, is_pooling, pool_gradient
from engine.codelets.pooling.select_and_scatter import (
    DIRECTIONS,
    NUMBA_TYPES,
    SCRATCH,
    encode_select_and_scatter,
    select_and_scatter,
)
from engine.ir import Computation, Instruction
from engine.lower.context import Context, Value, lowering
from engine.lower.conversions import in_type, in_type_of
from engine.lower.general_scatter import combiner_for, scalar_body
from engine.ops.apply import single_operation
from engine.program.building.nests import accumulated_in
from engine.program.building.units import SMALL_BYTES
from engine.program.nest import Comparator
from engine.program.program import Address, Buffer, Partition, Span, WorkEstimate
from engine.program.work.codelet_work import CodeletWork


@lowering("select-and-scatter")
def lower_select_and_scatter(context: Context, instruction: Instruction) -> Value:
    """Lowers select-and-scatter; 16-bit floats that are added are summed in f32 and rounded once.

    Raises UnsupportedOperation for bodies that do more than compute on scalars.
    """
    direction = comparison_direction(instruction.called[0])
    adds = single_operation(instruction.called[1]) == "add"
    wide = accumulated_in(instruction.array_shape.element_type)
    dilated = any(w.base_dilation != 1 for w in instruction["window"])
    result = context.result_buffer(instruction)
    if direction is None or direction not in DIRECTIONS or not adds or wide not in NUMBA_TYPES or dilated:
        _emit_general(context, instruction, result)
        return result
    target = result
    if wide == "f32" and _is_written_once(instruction):
        _emit_comparing(context, instruction, result, direction)
        return result
    if wide != instruction.array_shape.element_type:
        target = context.new_buffer(f"{instruction.name}.{wide}", instruction.array_shape.with_type(wide))
    _emit_comparing(context, instruction, target, direction)
    in_type_of(context, instruction, result, target)
    return result


def _is_written_once(instruction: Instruction) -> bool:
    """Whether a codelet writes each element once, so that sums in f32 need no array of their own."""
    window = instruction["window"]
    return is_pooling(window) or gathers_pools(instruction.operands[1].array_shape, window)


def _emit_comparing(context: Context, instruction: Instruction, target: Buffer, direction: str) -> None:
    """Emits the case in which the select body compares its two parameters and the scatter body adds."""
    kind = target.shape.element_type
    wide = accumulated_in(kind)
    types = kind, wide, wide
    buffers = [in_type(context, o, each) for o, each in zip(instruction.operands, types, strict=True)]
    shape, source_shape = instruction.array_shape.with_type(kind), instruction.operands[1].array_shape.with_type(wide)
    operand, source, init = (Address(b) for b in buffers)
    arguments = (shape, operand), (source_shape, source), init, Address(target), instruction["window"]
    window = instruction["window"]
    parts: tuple[Part, ...]
    scratch: int | ScratchSpace
    if wide == "f32" and is_pooling(window):
        parts, units = encode_pool_gradient(*arguments)
        codelet, scratch = pool_gradient(direction, kind), POOL_SCRATCH_BYTES
    elif wide == "f32" and gathers_pools(source_shape, window):
        parameters, units, scratch = encode_overlapping_pools(*arguments)
        parts, columns = (parameters,), parameters.wide
        codelet = overlapping_pool_gradient(direction, kind, columns.positions, columns.stride)
    else:
        parts, units = encode_select_and_scatter(*arguments)
        codelet, scratch = select_and_scatter(direction, wide), SCRATCH
    spans, written = [Span(b) for b in buffers], Span(target)
    if units > 1 and units == shape.dimensions[0]:
        whole_rows = Partition(shape.elements // units, units, 1)
        spans[0], written = Span(buffers[0], whole_rows), Span(target, whole_rows)
        spans[1] = Span(buffers[1], Partition(source_shape.elements // units, units, 1))
    _emit(context, instruction, CodeletWork.of(codelet, parts, scratch=scratch), units, spans, written)


def _emit(
    context: Context,
    instruction: Instruction,
    work: CodeletWork,
    units: int,
    reads: Sequence[Span | Buffer],
    written: Span | Buffer,
) -> None:
    shape = instruction.operands[0].array_shape
    kind = (written.buffer if isinstance(written, Span) else written).shape.element_type
    estimate = WorkEstimate({"select-and-scatter": shape.elements}, 0, kind)
    small = shape.with_type(kind).bytes < SMALL_BYTES
    context.emit_for(instruction, work, units, reads, [written], estimate, one_worker=small)


def _emit_general(context: Context, instruction: Instruction, target: Buffer) -> None:
    select, scatter = instruction.called
    shape, source_shape, _ = (o.array_shape for o in instruction.operands)
    calls = (
        (GeneralSelectAndScatter.CHOICE, Comparator(scalar_body(instruction, select))),
        (GeneralSelectAndScatter.COMBINER, combiner_for(instruction, scatter, (shape.element_type,))),
    )
    buffers = [context.buffer(o) for o in instruction.operands]
    operand, source, init = (Address(b) for b in buffers)
    parts, units = encode_general_select_and_scatter(
        (shape, operand), (source_shape, source), init, Address(target), instruction["window"]
    )
    work = CodeletWork.of(general_select_and_scatter, parts, scratch=GENERAL_SCRATCH_BYTES, calls=calls)
    _emit(context, instruction, work, units, buffers, target)


def comparison_direction(body: Computation) -> str | None:
    """The direction of a body that compares parameter 0 with parameter 1; None for any other body.

    UGE, as LLVM names it, is "not LT" of floats.
    """
    root = body.root
    negated = root.opcode == "not"
    if negated:
        root = root.operands[0]
    if root.opcode != "compare" or [o.get("parameter_number") for o in root.operands] != [0, 1]:
        return None
    if root.get("comparison_type") == "TOTALORDER" or (negated and root["direction"] != "LT"):
        return None
    return "UGE" if negated else str(root["direction"])
