"""Lowers select-and-scatter: comparing floats and adding has a codelet of its own, anything else a general one."""

from __future__ import annotations

from engine.ir import Computation, Instruction
from engine.lower.context import Context, Value, lowering
from engine.lower.conversions import in_type, in_type_of
from engine.lower.general_scatter import combiner_for, scalar_body
from engine.ops.apply import single_operation
from engine.program.building.nests import accumulated_in
from engine.program.building.units import SMALL_BYTES
from engine.program.nest import Comparator
from engine.program.program import Address, Buffer, Partition, Span, WorkEstimate
from engine.program.work.base import Array
from engine.program.work.select_and_scatter import DIRECTIONS, Scattering, SelectAndScatterWork, scattering_of


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
    if direction is None or direction not in DIRECTIONS or not adds or wide not in ("f32", "f64") or dilated:
        _emit_general(context, instruction, result)
        return result
    target, window = result, instruction["window"]
    scattering = scattering_of(instruction.operands[1].array_shape.with_type(wide), window)
    if wide != instruction.array_shape.element_type and scattering is Scattering.SCATTERED:
        target = context.new_buffer(f"{instruction.name}.{wide}", instruction.array_shape.with_type(wide))
    pairs = zip(instruction.operands, (target.shape.element_type, wide, wide), strict=True)
    operand, source, initial = (
        Array(Address(in_type(context, o, each)), o.array_shape.with_type(each)) for o, each in pairs
    )
    work = SelectAndScatterWork(operand, source, initial.address, Address(target), window, direction)
    _emit(context, instruction, work)
    if target is not result:
        in_type_of(context, instruction, result, target)
    return result


def _emit_general(context: Context, instruction: Instruction, target: Buffer) -> None:
    select, scatter = instruction.called
    operand, source, initial = (Array(Address(context.buffer(o)), o.array_shape) for o in instruction.operands)
    choice = Comparator(scalar_body(instruction, select))
    combine = combiner_for(instruction, scatter, (operand.shape.element_type,))
    arrays = operand, source, initial.address, Address(target)
    _emit(context, instruction, SelectAndScatterWork(*arrays, instruction["window"], choice, combine))


def _emit(context: Context, instruction: Instruction, work: SelectAndScatterWork) -> None:
    shape, units, target = work.operand.shape, work.unit_count, work.target.buffer
    spans, written = [Span(a.buffer) for a in (work.operand.address, work.source.address, work.initial)], Span(target)
    if units > 1 and units == shape.dimensions[0] and work.scattering is not Scattering.GENERAL:
        whole_rows = Partition(shape.elements // units, units, 1)
        spans[0], written = Span(spans[0].buffer, whole_rows), Span(target, whole_rows)
        spans[1] = Span(spans[1].buffer, Partition(work.source.shape.elements // units, units, 1))
    estimate = WorkEstimate({"select-and-scatter": shape.elements}, 0, target.shape.element_type)
    small = shape.with_type(target.shape.element_type).bytes < SMALL_BYTES
    context.emit_for(instruction, work, units, spans, [written], estimate, one_worker=small)


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
