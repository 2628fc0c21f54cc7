"""Lowers `dot` in every dimension order to indexed contractions."""

from __future__ import annotations

from engine.ir import DotDimensionNumbers, Instruction
from engine.ir.affine import row_major_strides
from engine.lower.context import Context, Value, lowering
from engine.lower.contraction import Contraction, emit_contraction, table
from engine.lower.copies import copy
from engine.lower.views import View, whole

Axis = tuple[int, int, int]
"""An output dimension: its extent, its stride in the operand, its stride in the result (bytes)."""


@lowering("dot")
def lower_dot(context: Context, instruction: Instruction) -> Value:
    """lhs gives the rows and rhs the columns, or the other way round where the result's last dimension is lhs's."""
    numbers: DotDimensionNumbers = instruction["dot_dimension_numbers"]
    shape = instruction.array_shape
    result = context.result_buffer(instruction)
    left, right = (_operand(context, o, instruction) for o in instruction.operands)
    item = shape.dtype.itemsize
    strides = [s * item for s in row_major_strides(shape)]
    batch = len(numbers.lhs_batch_dimensions)
    left_free = _free(left, numbers.lhs_contracting_dimensions, numbers.lhs_batch_dimensions)
    right_free = _free(right, numbers.rhs_contracting_dimensions, numbers.rhs_batch_dimensions)
    middle = batch + len(left_free)
    rows = _axes(left, left_free, strides[batch:middle])
    columns = _axes(right, right_free, strides[middle:])
    contracted = list(zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True))
    batches = [
        (left.shape.dimensions[a], left.strides[a], right.strides[b], strides[k])
        for k, (a, b) in enumerate(zip(numbers.lhs_batch_dimensions, numbers.rhs_batch_dimensions, strict=True))
    ]
    if all(extent == 1 for extent, _, _ in columns):
        left, right, rows, columns = right, left, columns, rows
        contracted = [(b, a) for a, b in contracted]
        batches = [(extent, b, a, c) for extent, a, b, c in batches]
    width, stride_b, rest = _columns(columns, item)
    k_axes = [(left.shape.dimensions[a], left.strides[a], right.strides[b]) for a, b in contracted]
    # In the order in which B lies in memory, its rows are evenly spaced more often.
    k_axes.sort(key=lambda axis: -abs(axis[2]))
    emit_contraction(
        context,
        Contraction(
            name=instruction.name,
            a=left.buffer,
            b=right.buffer,
            c=result,
            offset_a=left.offset,
            offset_b=right.offset,
            row_a=table(*((extent, a) for extent, a, _ in rows)),
            row_c=table(*((extent, c) for extent, _, c in rows)),
            k_a=table(*((extent, a) for extent, a, _ in k_axes)),
            k_b=table(*((extent, b) for extent, _, b in k_axes)),
            columns=width,
            stride_b=stride_b,
            batch_a=table(*((e, a) for e, a, _, _ in batches), *((e, 0) for e, _, _ in rest)),
            batch_b=table(*((e, b) for e, _, b, _ in batches), *((e, b) for e, b, _ in rest)),
            batch_c=table(*((e, c) for e, _, _, c in batches), *((e, c) for e, _, c in rest)),
            op_name=instruction.op_name,
        ),
    )
    return result


def _operand(context: Context, operand: Instruction, dot: Instruction) -> View:
    """The operand as a view, in the result's element type."""
    turned = context.turned.get(dot) if operand is dot.operands[1] else None
    view = turned or context.view(operand)
    shape = view.shape.with_type(dot.array_shape.element_type)
    if shape == view.shape:
        return view
    converted = context.new_buffer(f"{operand.name}.converted", shape)
    copy(context, converted.name, view, whole(converted, shape), dot.op_name)
    return whole(converted, shape)


def _free(view: View, contracting: tuple[int, ...], batch: tuple[int, ...]) -> list[int]:
    return [d for d in range(view.shape.rank) if d not in contracting and d not in batch]


def _axes(view: View, dimensions: list[int], strides: list[int]) -> list[Axis]:
    pairs = zip(dimensions, strides, strict=True)
    return [(view.shape.dimensions[d], view.strides[d], stride) for d, stride in pairs]


def _columns(axes: list[Axis], item: int) -> tuple[int, int, list[Axis]]:
    """The innermost dimensions that can be walked as one, and those left over as batches."""
    axes = [axis for axis in axes if axis[0] != 1]
    if not axes:
        return 1, item, []
    extent, stride, _ = axes[-1]
    kept = len(axes) - 1
    while kept and axes[kept - 1][1] == extent * stride:
        extent *= axes[kept - 1][0]
        kept -= 1
    return extent, stride, axes[:kept]
