"""Grouped convolutions with few output features in a group: several groups are computed as one, to fill the lanes.

Those of float32 images with contiguous features are left as they are, as windows of images fill the lanes there.

The kernel of merged groups has zeros between the input features of one group and the output features of another. Of a
gradient by the kernel, those between groups are not read. Lanes would be as idle without; short loops are saved.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from engine.codelets.window_sizes import STEPS, Group
from engine.ir import ConvolutionDimensionNumbers, Instruction, Shape, WindowDimension
from engine.lower.context import Context
from engine.lower.copies import copy
from engine.lower.pixel_groups import LEAST_MULTIPLY_ADDS, TYPES
from engine.lower.views import View, whole
from engine.machine_code.processor import lanes
from engine.passes.rewriting import changed
from engine.program.program import Buffer, WorkEstimate

LEAST_TAPS = 2.0
"""Fewest taps of an output for each position of its image from which on copies of windows are worth it. By estimate."""


def merged_count(context: Context, instruction: Instruction, numbers: ConvolutionDimensionNumbers) -> int:
    """The number of groups that are computed as one: 1 where lanes are full, run over groups, or would save little."""
    by_features, by_batch = instruction["feature_group_count"], instruction["batch_group_count"]
    groups, kernel = max(by_features, by_batch), instruction.operands[1].array_shape
    if groups == 1 or min(by_features, by_batch) > 1 or instruction.array_shape.element_type not in TYPES:
        return 1
    outputs = kernel.dimensions[numbers.kernel_output_feature_dimension]
    rows = instruction.array_shape.dimensions[numbers.output_batch_dimension]
    inputs = rows if by_batch > 1 else kernel.dimensions[numbers.kernel_input_feature_dimension]
    if inputs == 1 and outputs == groups:
        return 1
    if instruction.array_shape.elements // max(1, outputs) * kernel.elements < LEAST_MULTIPLY_ADDS:
        return 1
    width = outputs // groups
    if has_windows(context, instruction, numbers):
        return 1
    return max((count for count in range(2, groups + 1) if groups % count == 0 and count * width <= lanes()), default=1)


def has_windows(context: Context, instruction: Instruction, numbers: ConvolutionDimensionNumbers) -> bool:
    """Whether the host copies windows of images for the groups, whose lanes are then full."""
    window: tuple[WindowDimension, ...] = instruction["window"]
    x, kernel = instruction.operands
    groups = max(instruction["feature_group_count"], instruction["batch_group_count"])
    if groups == 1 or instruction.array_shape.element_type != "f32" or len(window) != 2:
        return False
    feature, taps = numbers.input_feature_dimension, [w.size for w in window]
    inputs = kernel.array_shape.dimensions[numbers.kernel_input_feature_dimension]
    positions = [instruction.array_shape.dimensions[d] for d in numbers.output_spatial_dimensions]
    steps = [max(w.stride // w.base_dilation, 1) for w in window]
    if instruction["batch_group_count"] > 1:  # by the kernel, whose positions are the window
        inputs, feature = (
            instruction.array_shape.dimensions[numbers.output_batch_dimension],
            numbers.input_batch_dimension,
        )
        taps, positions, steps = positions, taps, [w.window_dilation for w in window]
    outputs = kernel.array_shape.dimensions[numbers.kernel_output_feature_dimension] // groups
    if not Group(inputs, outputs).fills_few_lanes or context.view(x).strides[feature] != 4:
        return False
    read = prod(taps) / prod(w.base_dilation for w in window) / prod(steps)
    return steps[1] in STEPS and min(positions) > 1 and read >= LEAST_TAPS


def with_merged_kernel(
    context: Context, instruction: Instruction, numbers: ConvolutionDimensionNumbers, count: int
) -> Instruction:
    """The convolution with fewer groups of input features, whose kernel is a copy with zeros between merged ones."""
    x, kernel = instruction.operands
    feature, inputs = numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension
    groups, source = instruction["feature_group_count"], context.view(kernel)
    dimensions = list(source.shape.dimensions)
    dimensions[inputs] *= count
    shape = source.shape.with_dimensions(tuple(dimensions))
    merged = changed(kernel, name=f"{instruction.name}.merged_kernel", shape=shape, operands=())
    buffer = context.values[merged] = context.new_buffer(merged.name, shape, permanent=True)
    target = whole(buffer, shape)
    step = source.shape.dimensions[inputs] * target.strides[inputs]
    parts = _by_group(source, feature, groups, count), _by_group(_first(target, source), feature, groups, count, step)
    copy(context, merged.name, *parts, instruction.op_name)
    made = changed(instruction, operands=(x, merged), feature_group_count=groups // count)
    if instruction in context.targets:
        context.targets[made] = context.targets[instruction]
    return made


def with_merged_batch(instruction: Instruction, numbers: ConvolutionDimensionNumbers, count: int) -> Instruction:
    """The convolution with fewer groups of the batch: its result has products between merged groups, too."""
    dimensions = list(instruction.array_shape.dimensions)
    dimensions[numbers.output_batch_dimension] *= count
    shape = instruction.array_shape.with_dimensions(tuple(dimensions))
    groups = instruction["batch_group_count"] // count
    return changed(instruction, name=f"{instruction.name}.merged", shape=shape, batch_group_count=groups)


def store_groups(
    context: Context, instruction: Instruction, found: Buffer, numbers: ConvolutionDimensionNumbers, count: int
) -> Buffer:
    """The result of a convolution with groups of the batch, from that of `with_merged_batch`."""
    result, batch = context.result_buffer(instruction), numbers.output_batch_dimension
    target, source = whole(result, instruction.array_shape), whole(found, found.shape)
    step = target.shape.dimensions[batch] * source.strides[batch]
    feature, groups = numbers.output_feature_dimension, instruction["batch_group_count"]
    parts = _by_group(_first(source, target), feature, groups, count, step), _by_group(target, feature, groups, count)
    copy(context, f"{instruction.name}.groups", *parts, instruction.op_name)
    return result


def estimate_of_groups(estimate: WorkEstimate, by_batch: bool, count: int) -> WorkEstimate:
    """The estimate of a contraction of merged groups as it was asked for, without the products between groups."""
    size = estimate.convolution
    if size is not None:
        size = replace(size, groups=size.groups * count, outputs=size.outputs // count)
        size = replace(size, batch=size.batch // count) if by_batch else replace(size, inputs=size.inputs // count)
    return replace(estimate, multiply_adds=estimate.multiply_adds // count, convolution=size)


def _first(view: View, like: View) -> View:
    """The first elements of a view, as many as another has."""
    return View(view.buffer, view.shape.with_dimensions(like.shape.dimensions), view.offset, view.strides)


def _by_group(view: View, dimension: int, groups: int, count: int, step: int = 0) -> View:
    """Features along a dimension as [merged groups, groups of each, features]; a group is `step` bytes further on."""
    size, stride = view.shape.dimensions[dimension] // groups, view.strides[dimension]
    dimensions, strides = list(view.shape.dimensions), list(view.strides)
    dimensions[dimension : dimension + 1] = [groups // count, count, size]
    strides[dimension : dimension + 1] = [count * size * stride, size * stride + step, stride]
    return View(view.buffer, Shape(view.shape.element_type, tuple(dimensions)), view.offset, tuple(strides))
