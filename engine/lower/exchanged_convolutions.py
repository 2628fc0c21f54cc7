"""Convolutions whose operands are exchanged, as the other one has more features to fill the lanes.

The gradient by a kernel with few output features is of this kind: the window is the array of a whole batch's gradients.
Its input features become the columns, and the result is reversed along its spatial dimensions.
"""

from __future__ import annotations

from engine.ir import ConvolutionDimensionNumbers, Instruction, WindowDimension
from engine.lower.context import Context
from engine.lower.copies import copy
from engine.lower.overlapping import overlap_cycles
from engine.lower.pixel_groups import LEAST_MULTIPLY_ADDS, TYPES, choose_group, contraction_cycles, panel_cycles
from engine.lower.views import View, reversed_along, whole
from engine.machine_code.processor import lanes
from engine.passes.rewriting import changed
from engine.program.program import Buffer

WORTH = 0.6
"""Share of the estimated cycles below which the exchange is worth a copy and a reversal."""

WORTH_OF_PRODUCTS = 0.8
"""The same where there is one output position: the gradient by a kernel of 1 x 1, which is transposed."""
LONG_SINGLE_VECTOR = 2.0
"""Factor on the time of kernels of one vector in products with a long k: both operands come from the second-level
cache (timed on an EPYC)."""


def exchanged_convolution(
    context: Context, instruction: Instruction, numbers: ConvolutionDimensionNumbers
) -> Instruction | None:
    """The convolution with exchanged operands, if that takes clearly fewer cycles; else None.

    Its result has the elements of the instruction's, reversed along the spatial dimensions.
    """
    groups = instruction["feature_group_count"], instruction["batch_group_count"]
    x, kernel = instruction.operands
    shape, left, right = instruction.array_shape, x.array_shape, kernel.array_shape
    if shape.element_type not in TYPES or groups != (1, 1) or not all(map(_is_exchangeable, instruction["window"])):
        return None
    outputs = [shape.dimensions[d] for d in numbers.output_spatial_dimensions]
    if not right.elements or _multiply_adds(instruction, numbers) < LEAST_MULTIPLY_ADDS:
        return None
    made = _exchanged(instruction, numbers, outputs)
    if max(outputs, default=1) == 1:
        rows, columns = (
            shape.dimensions[d] for d in (numbers.output_batch_dimension, numbers.output_feature_dimension)
        )
        return made if product_cycles(columns, rows) < WORTH_OF_PRODUCTS * product_cycles(rows, columns) else None
    group = choose_group(instruction, numbers, right)
    cycles = contraction_cycles(instruction, numbers, right, group.positions if group else 1)
    overlapping = overlap_cycles(instruction, context.view(x), context.view(kernel), numbers)
    best = cycles if overlapping is None else min(cycles, overlapping)
    return made if contraction_cycles(made, made["convolution_dimension_numbers"], left) < WORTH * best else None


def product_cycles(rows: int, columns: int) -> float:
    """Estimated cycles of one k of a product with a long k."""
    return panel_cycles(rows, columns) * (LONG_SINGLE_VECTOR if columns <= lanes() else 1.0)


def _is_exchangeable(window: WindowDimension) -> bool:
    return window.stride == window.base_dilation == 1 and not window.window_reversal


def _multiply_adds(instruction: Instruction, numbers: ConvolutionDimensionNumbers) -> int:
    features = instruction.array_shape.dimensions[numbers.output_feature_dimension]
    return instruction.array_shape.elements // max(1, features) * instruction.operands[1].array_shape.elements


def _exchanged(instruction: Instruction, numbers: ConvolutionDimensionNumbers, outputs: list[int]) -> Instruction:
    """Output o and tap t read input o + t * d - low: input u meets tap (u - o + low) / d, one of output O - 1 - o."""
    left, right = instruction.operands
    sizes = [left.array_shape.dimensions[d] for d in numbers.input_spatial_dimensions]
    window = []
    for size, output, old in zip(sizes, outputs, instruction["window"], strict=True):
        low = output - 1 - old.padding_low
        reach = (old.size - 1) * old.window_dilation + 1
        high = output + size - 1 - reach - low
        window.append(WindowDimension(size, 1, low, high, base_dilation=old.window_dilation))
    new = ConvolutionDimensionNumbers(
        input_batch_dimension=numbers.kernel_output_feature_dimension,
        input_feature_dimension=numbers.kernel_input_feature_dimension,
        input_spatial_dimensions=numbers.kernel_spatial_dimensions,
        kernel_input_feature_dimension=numbers.input_feature_dimension,
        kernel_output_feature_dimension=numbers.input_batch_dimension,
        kernel_spatial_dimensions=numbers.input_spatial_dimensions,
        output_batch_dimension=numbers.output_feature_dimension,
        output_feature_dimension=numbers.output_batch_dimension,
        output_spatial_dimensions=numbers.output_spatial_dimensions,
    )
    return changed(
        instruction,
        name=f"{instruction.name}.exchanged",
        operands=(right, left),
        window=tuple(window),
        convolution_dimension_numbers=new,
    )


def store_reversed(
    context: Context, instruction: Instruction, found: Buffer, numbers: ConvolutionDimensionNumbers
) -> Buffer:
    """The instruction's result, from that of the convolution with exchanged operands."""
    result = context.result_buffer(instruction)
    source: View = whole(found, instruction.array_shape)
    for dimension in numbers.output_spatial_dimensions:
        source = reversed_along(source, dimension)
    copy(context, f"{instruction.name}.reversed", source, whole(result, instruction.array_shape), instruction.op_name)
    return result
