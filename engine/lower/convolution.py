"""Lowers `convolution` to one compute set that keeps its sizes: the host chooses the algorithm later."""

from __future__ import annotations

from math import prod

import numpy as np

from engine.ir import Instruction
from engine.lower.context import Context, Value, lowering
from engine.lower.dot import operand_in, operand_type
from engine.program.contraction import DEPTHWISE_TYPES, share_of
from engine.program.copies import fill
from engine.program.nest import Constant
from engine.program.product_units import ProductSize, check_multiplied
from engine.program.program import Address, ComputeSet, Span, WorkEstimate
from engine.program.views import whole
from engine.program.work.convolution import Convolution
from engine.program.work.offsets import GROUP, rows_together, table


@lowering("convolution")
def lower_convolution(context: Context, instruction: Instruction) -> Value:
    """Emits one compute set, or zeros if no tap reaches any position.

    Raises UnsupportedOperation for operands of other element types than the result, or that cannot be multiplied.
    """
    shape = instruction.array_shape
    result = context.result_buffer(instruction)
    if shape.elements == 0:
        return result
    if operand_type(instruction) != shape.element_type:
        raise context.unsupported(instruction)
    left, right = (operand_in(context, o, instruction, shape.element_type) for o in instruction.operands)
    work = Convolution(
        Address(left.buffer, left.offset),
        Address(right.buffer, right.offset),
        Address(result),
        *(left.shape, right.shape, shape, left.strides, right.strides),
        *(instruction["window"], instruction["convolution_dimension_numbers"]),
        *(instruction["feature_group_count"], instruction["batch_group_count"]),
        context.rows,
    )
    parts = work.parts
    if not left.shape.elements or not any(part.multiply_adds for part in parts):
        zero = Constant(shape.element_type, "0.0" if shape.element_type[0] in "fbc" else "0")
        fill(context, f"{instruction.name}.zero", whole(result, shape), zero, instruction.op_name)
        return result
    size = _product(work)
    check_multiplied(shape.element_type, shape.element_type)
    partition, units = (None, 1) if size is None else share_of(size, result, context.rows)
    context.emit(
        ComputeSet(
            instruction.name,
            work,
            units,
            [Span(left.buffer), Span(right.buffer)],
            [Span(result, partition)],
            WorkEstimate(multiply_adds=sum(part.multiply_adds for part in parts), element_type=shape.element_type),
            instruction.op_name,
        )
    )
    return result


def _product(work: Convolution) -> ProductSize | None:
    """The product whose columns are output features; None if there are several phases or the result is not filled.

    Each unit of the product owns positions of the result, as units of the operations that follow do.
    """
    numbers, groups, item = work.numbers, max(work.feature_groups, work.batch_groups), work.shape_c.dtype.itemsize
    phases, last = work.phases, numbers.output_feature_dimension
    if any(len(each) > 1 for each in phases) or any(n > 1 for n in work.shape_c.dimensions[last + 1 :]):
        return None
    columns = work.shape_b.dimensions[numbers.kernel_output_feature_dimension] // groups
    inputs = work.shape_b.dimensions[numbers.kernel_input_feature_dimension]
    stride_b = work.strides_b[numbers.kernel_output_feature_dimension]
    dense = stride_b == item or columns == groups == 1
    transposed = work.strides_b[numbers.kernel_input_feature_dimension] == item and inputs >= GROUP
    batch = numbers.input_batch_dimension
    images = work.shape_a.dimensions[batch] // work.batch_groups
    steps = [inputs * work.strides_a[numbers.input_feature_dimension], images * work.strides_a[batch]]
    neighbours = columns == 1 < groups and steps[work.batch_groups > 1] == stride_b == item
    return ProductSize(
        groups,
        work.shape_c.elements // (columns * groups),
        columns,
        inputs * prod(len(p.taps) for (p,) in phases),
        of_state=work.b.buffer.is_state and (dense or transposed),
        dense_columns=dense or not transposed,
        grouped=rows_together(_rows(work), item) == GROUP,
        depthwise=neighbours and work.shape_c.element_type in DEPTHWISE_TYPES,
    )


def _rows(work: Convolution) -> np.ndarray:
    """Offsets in the input, int64, of the product's rows; empty where neighbouring rows are not adjacent in memory."""
    numbers, phases = work.numbers, work.phases
    images = work.shape_c.dimensions[numbers.output_batch_dimension]
    axes = {numbers.output_batch_dimension: (images, work.strides_a[numbers.input_batch_dimension])}
    for (phase,), source, out in zip(
        phases, numbers.input_spatial_dimensions, numbers.output_spatial_dimensions, strict=True
    ):
        axes[out] = phase.count, work.strides_a[source] * phase.step
    ordered = [axis for _, axis in sorted(axes.items()) if axis[0] > 1]
    nearest = ordered[-1][1] if ordered else 0
    return table(*ordered) if nearest == work.shape_c.dtype.itemsize else table()
