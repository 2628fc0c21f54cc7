"""Lowers gather and scatter onto their codelets."""

from __future__ import annotations

from engine.errors import UnsupportedOperation
from engine.ir import Computation, Instruction, Shape
from engine.ir.device_operations import FIRST_OF_EQUAL
from engine.lower.context import Context, Value, custom_call, lowering
from engine.ops.apply import single_operation
from engine.passes.fusible import is_scalar_body
from engine.program.copies import copy_buffer
from engine.program.nest import Combiner
from engine.program.nests import body_of
from engine.program.program import Address, ComputeSet, Span, WorkEstimate
from engine.program.units import SMALL_BYTES
from engine.program.work.base import Array
from engine.program.work.indexing import FirstOfEqualWork, GatherWork, ScatterWork

MOST_COMPARED = 1 << 11
"""Ids up to which a chip compares all pairs, in 38,063 cycles; sorting takes 65,526. Sorting 3,000 is faster."""


@lowering("gather")
def lower_gather(context: Context, instruction: Instruction) -> Value:
    """Gathers slices of any element type, at clamped start indices."""
    operand, indices = instruction.operands
    result = context.result_buffer(instruction)
    source, positions = context.buffer(operand), context.buffer(indices)
    shape = instruction.array_shape
    work = GatherWork(
        Array(Address(source), operand.array_shape),
        Array(Address(positions), indices.array_shape),
        Array(Address(result), shape),
        instruction["gather_dimension_numbers"],
        instruction["gather_slice_sizes"],
    )
    lookups = _lookups(indices.array_shape, instruction["gather_dimension_numbers"].index_vector_dim)
    estimate = WorkEstimate({"gather": shape.elements}, element_type=shape.element_type, lookups=lookups)
    small = result.shape.bytes < SMALL_BYTES
    context.emit_for(instruction, work, work.unit_count, [source, positions], [result], estimate, one_worker=small)
    return result


@lowering("scatter")
def lower_scatter(context: Context, instruction: Instruction) -> Value:
    """Scatters into any number of arrays, by any body on scalars; all arrays but the first are copied beforehand."""
    count = len(instruction.operands) // 2
    operands, indices, updates = _parts(instruction, count)
    results = [context.result_buffer(instruction, None if count == 1 else k) for k in range(count)]
    olds, index_buffers, news = ([context.buffer(o) for o in each] for each in (operands, [indices], updates))
    for old, result in list(zip(olds, results, strict=True))[1:]:
        copy_buffer(context, f"{result.name}.copy", old, result, instruction.op_name, elidable=True)
    first = operands[0].array_shape
    pairs = tuple(Address(b) for pair in zip(results, news, strict=True) for b in pair)
    work = ScatterWork(
        Array(Address(olds[0]), first),
        Array(Address(index_buffers[0]), indices.array_shape),
        Array(Address(news[0]), updates[0].array_shape),
        Address(results[0]),
        instruction["scatter_dimension_numbers"],
        combiner_for(instruction, instruction.called[0], tuple(o.array_shape.element_type for o in operands)),
        others=pairs if count > 1 else (),
    )
    if not first.elements:
        return results[0] if count == 1 else tuple(results)
    compute_set = ComputeSet(
        instruction.name,
        work,
        work.unit_count,
        [Span(b) for b in (olds[0], *results[1:], *index_buffers, *news)],
        [Span(b) for b in results],
        WorkEstimate(
            {"scatter": count * updates[0].array_shape.elements},
            element_type=first.element_type,
            lookups=_lookups(indices.array_shape, instruction["scatter_dimension_numbers"].index_vector_dim),
        ),
        op_name=instruction.op_name,
        one_worker=results[0].shape.bytes < SMALL_BYTES,
        overwrites=olds[0] if count == 1 else None,
    )
    context.emit(compute_set)
    return results[0] if count == 1 else tuple(results)


def _lookups(indices: Shape, index_vector_dim: int) -> int:
    """Number of index vectors."""
    length = indices.dimensions[index_vector_dim] if index_vector_dim < indices.rank else 1
    return indices.elements // max(1, length)


def _parts(instruction: Instruction, count: int) -> tuple[list[Instruction], Instruction, list[Instruction]]:
    """The arrays, the indices and the updates of a scatter of `count` arrays."""
    operands = list(instruction.operands)
    return operands[:count], operands[count], operands[count + 1 :]


@custom_call(FIRST_OF_EQUAL)
def lower_first_of_equal(context: Context, instruction: Instruction) -> Value:
    """Finds the first positions of equal ids."""
    (ids,) = instruction.operands
    source, result, named = context.buffer(ids), context.result_buffer(instruction), ids.array_shape.elements
    work = FirstOfEqualWork(Array(Address(source), ids.array_shape), Address(result))
    if named <= MOST_COMPARED:
        elements = dict.fromkeys(("compare", "select", "minimum"), named * named)
    else:
        elements = {"sort": named * named.bit_length()}
    estimate = WorkEstimate(elements, 0, "s32")
    context.emit_for(instruction, work, min(named, 1), [source], [result], estimate, one_worker=True)
    return result


def combiner_for(instruction: Instruction, body: Computation, element_types: tuple[str, ...]) -> Combiner:
    """The body that combines updates with elements of these types.

    Raises UnsupportedOperation for a body that does more than compute on scalars.
    """
    if not is_scalar_body(body):
        raise UnsupportedOperation(
            f"Expected a body that computes on scalars, elementwise. Received: %{body.name} of {instruction!r} "
            f"from {instruction.op_name or 'the program'}. Compute the updates beforehand, and combine them by add, "
            "maximum or the like."
        )
    return Combiner(body_of(body), element_types, combining(body) if len(element_types) == 1 else None)


def combining(body: Computation) -> str | None:
    """The name that codelets of scatters have for a body of one operation, or one choice by comparison; else None."""
    root = body.root
    if root.opcode == "select" and root.operands[0].opcode == "compare":
        compare = root.operands[0]
        direction, chosen = compare["direction"], [*compare.operands, *root.operands[1:]]
        numbers = [each.get("parameter_number") for each in chosen]
        is_total = compare.get("comparison_type") == "TOTALORDER"
        return str(direction) if direction in ("GT", "LT") and numbers == [0, 1, 0, 1] and not is_total else None
    return single_operation(body)
