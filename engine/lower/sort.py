"""Lowers sort: by keys where the comparator compares elements of one operand, else by the comparator as code."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from engine.ir import Computation, Instruction, Shape
from engine.ir.module import topological
from engine.lower.context import Context, Value, lowering
from engine.passes.fusible import is_scalar_body
from engine.program.nest import Apply, Body, Comparator
from engine.program.nests import body_of
from engine.program.program import Address, Buffer, Partition, Span, WorkEstimate
from engine.program.work.base import Array
from engine.program.work.sorting import SortKey, SortWork

SMALL_ELEMENTS = 1 << 11
"""Elements of an operand below which one worker sorts all rows."""
ASCENDING, DESCENDING = ("LT", "LE"), ("GT", "GE")


@lowering("sort")
def lower_sort(context: Context, instruction: Instruction) -> Value:
    """Sorts any number of operands of any types along any dimension, always stably.

    Raises UnsupportedOperation for a comparator that does more than compute on scalars.
    """
    (dimension,) = instruction["dimensions"]
    shapes = [o.array_shape for o in instruction.operands]
    length = shapes[0].dimensions[dimension]
    order = key_of(instruction.called[0]) or _comparator(context, instruction)
    sources = [context.buffer(o) for o in instruction.operands]
    single = len(sources) == 1
    results = [context.result_buffer(instruction, None if single else k) for k in range(len(sources))]
    arrays = tuple(Array(Address(b), s) for b, s in zip(sources, shapes, strict=True))
    work = SortWork(arrays, tuple(map(Address, results)), dimension, instruction.get("limit", length), order)
    if units := work.unit_count:
        reads = [_span(b, s, dimension) for b, s in zip(sources, shapes, strict=True)]
        writes = [_span(b, s, dimension) for b, s in zip(results, instruction.tuple_shapes, strict=True)]
        elements, kind = shapes[0].elements, shapes[0].element_type
        estimate = WorkEstimate({"sort": elements * max(1, length.bit_length())}, 0, kind)
        context.emit_for(instruction, work, units, reads, writes, estimate, one_worker=elements < SMALL_ELEMENTS)
    return results[0] if single else tuple(results)


def _span(buffer: Buffer, shape: Shape, dimension: int) -> Span:
    """The row of each unit, where a partition can express it: contiguous rows, or neighbours in a single block."""
    length, inner = shape.dimensions[dimension], prod(shape.dimensions[dimension + 1 :])
    rows = shape.elements // length
    if rows > 1 and inner == 1:
        return Span(buffer, Partition(length, rows, 1))
    return Span(buffer, Partition(1, rows, 1)) if rows > 1 and inner == rows else Span(buffer)


def key_of(comparator: Computation) -> SortKey | None:
    """The order of a comparator that only compares the two elements of one operand; None for any other."""
    root = comparator.root
    numbers = [o.get("parameter_number") for o in root.operands]
    if root.opcode != "compare" or None in numbers or root["direction"] not in ASCENDING + DESCENDING:
        return None
    operand = min(numbers) // 2
    if sorted(numbers) != [2 * operand, 2 * operand + 1]:
        return None
    descending = (root["direction"] in DESCENDING) == (numbers[0] < numbers[1])
    return SortKey(operand, descending, root.get("comparison_type") == "TOTALORDER")


def _comparator(context: Context, instruction: Instruction) -> Comparator:
    root = instruction.called[0].root
    needed = Computation(instruction.called[0].name, topological([root]), root)
    if not is_scalar_body(needed):
        raise context.unsupported(instruction)
    return Comparator(_with_wide_comparisons(body_of(needed)))


def _with_wide_comparisons(body: Body) -> Body:
    """Compares 16-bit floats as f32: they are f32 in registers, in the same order."""
    nodes = []
    for node in body.nodes:
        if isinstance(node, Apply) and node.operation.opcode == "compare":
            types = tuple("f32" if t in ("f16", "bf16") else t for t in node.operation.operand_types)
            node = replace(node, operation=replace(node.operation, operand_types=types))
        nodes.append(node)
    return Body(tuple(nodes), body.results)
