"""Convolutions whose operands are exchanged, as the other one has more features to fill the lanes.

The gradient by a kernel with few output features is of this kind: the window is the array of a whole batch's gradients.
Its input features become the columns, and the result is reversed along its spatial dimensions.
"""

from __future__ import annotations

from engine.ir import ConvolutionDimensionNumbers, Instruction, WindowDimension
from engine.lower.context import Context
from engine.lower.copies import copy
from engine.lower.overlapping import overlap_cycles
from engine.lower.pixel_groups import LEAST_MULTIPLY_ADDS, TYPES, choose_group, contraction_cycles
from engine.lower.views import View, reversed_along, whole
from engine.passes.rewriting import changed
from engine.program.program import Buffer

WORTH = 0.6
"""Share of the estimated cycles below which the exchange is worth a copy and a reversal."""


def exchanged_convolution(
    context: Context, instruction: Instruction, numbers: ConvolutionDimensionNumbers
) -> Instruction | None:
    """The convolution with exchanged operands, if that takes clearly fewer cycles; else None.

    Its result has the elements of the instruction's, reversed along the spatial dimensions.
    """
    groups = instruction["feature_group_count"], instruction["batch_group_count"]
    x, kernel = instruction.operands
    shape, left, right = instruction.array_shape, x.array_shape, kernel.array_shape
    if shape.element_type not in TYPES or groups != (1, 1) or not all(map(_is_dense, instruction["window"])):
        return None
    outputs = [shape.dimensions[d] for d in numbers.output_spatial_dimensions]
    if max(outputs, default=1) == 1 or not right.elements or _multiply_adds(instruction, numbers) < LEAST_MULTIPLY_ADDS:
        return None
    made = _exchanged(instruction, numbers, outputs)
    group = choose_group(instruction, numbers, right)
    cycles = contraction_cycles(instruction, numbers, right, group.positions if group else 1)
    overlapping = overlap_cycles(instruction, context.view(x), context.view(kernel), numbers)
    best = cycles if overlapping is None else min(cycles, overlapping)
    return made if contraction_cycles(made, made["convolution_dimension_numbers"], left) < WORTH * best else None


def _is_dense(window: WindowDimension) -> bool:
    return window.stride == window.base_dilation == window.window_dilation == 1 and not window.window_reversal


def _multiply_adds(instruction: Instruction, numbers: ConvolutionDimensionNumbers) -> int:
    features = instruction.array_shape.dimensions[numbers.output_feature_dimension]
    return instruction.array_shape.elements // max(1, features) * instruction.operands[1].array_shape.elements


def _exchanged(instruction: Instruction, numbers: ConvolutionDimensionNumbers, outputs: list[int]) -> Instruction:
    """Output o and tap t read input o + t - low: input u meets tap u - o + low, which is one of output O - 1 - o."""
    left, right = instruction.operands
    sizes = [left.array_shape.dimensions[d] for d in numbers.input_spatial_dimensions]
    window = []
    for size, output, old in zip(sizes, outputs, instruction["window"], strict=True):
        low = output - 1 - old.padding_low
        window.append(WindowDimension(size, 1, low, output + size - 1 - old.size - low))
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
