"""Grouped convolutions with few output features in a group: several groups are computed as one, to fill the lanes.

Convolutions of float32 images with contiguous features are not merged, as windows of images fill the lanes there.

The kernel of merged groups has zeros between the input features of one group and the output features of another. In a
gradient by the kernel, products between groups are not read. Lanes would be as idle without; short loops are saved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from engine.codelets.convolutions.window_filling import STEPS, FeatureGroup
from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.pixel_groups import LEAST_MULTIPLY_ADDS, TYPES
from engine.ir import Shape
from engine.machine_code.processor import lanes
from engine.program.building.builder import ProgramBuilder
from engine.program.building.copies import copy
from engine.program.building.views import View, whole

LEAST_TAPS = 2.0
"""Estimated fewest reads of each position of an image for which copies of windows are worth it."""


def merged_count(draft: ConvolutionDraft) -> int:
    """The number of groups to compute as one; 1 where lanes are full or run over groups, or the gain is small."""
    groups, numbers, kernel = draft.groups, draft.numbers, draft.right.shape
    if groups == 1 or min(draft.feature_groups, draft.batch_groups) > 1 or draft.shape.element_type not in TYPES:
        return 1
    outputs = kernel.dimensions[numbers.kernel_output_feature_dimension]
    rows = draft.shape.dimensions[numbers.output_batch_dimension]
    inputs = rows if draft.batch_groups > 1 else kernel.dimensions[numbers.kernel_input_feature_dimension]
    if inputs == 1 and outputs == groups:
        return 1
    if draft.multiply_adds < LEAST_MULTIPLY_ADDS:
        return 1
    width = outputs // groups
    if has_windows(draft):
        return 1
    return max((count for count in range(2, groups + 1) if groups % count == 0 and count * width <= lanes()), default=1)


def has_windows(draft: ConvolutionDraft) -> bool:
    """Whether the host copies windows of images for the groups, whose lanes are then full."""
    window, numbers, groups = draft.window, draft.numbers, draft.groups
    if groups == 1 or draft.shape.element_type != "f32" or len(window) != 2:
        return False
    feature, taps = numbers.input_feature_dimension, [w.size for w in window]
    inputs = draft.right.shape.dimensions[numbers.kernel_input_feature_dimension]
    positions = draft.outputs
    steps = [max(w.stride // w.base_dilation, 1) for w in window]
    if draft.batch_groups > 1:  # by the kernel, whose positions are the window
        inputs, feature = draft.shape.dimensions[numbers.output_batch_dimension], numbers.input_batch_dimension
        taps, positions, steps = positions, taps, [w.window_dilation for w in window]
    outputs = draft.right.shape.dimensions[numbers.kernel_output_feature_dimension] // groups
    if not FeatureGroup(inputs, outputs).fills_few_lanes or draft.left.strides[feature] != 4:
        return False
    read = prod(taps) / draft.dilation / prod(steps)
    return steps[1] in STEPS and min(positions) > 1 and read >= LEAST_TAPS


def emit_merged(
    builder: ProgramBuilder,
    draft: ConvolutionDraft,
    count: int,
    emit: Callable[[ProgramBuilder, ConvolutionDraft], None],
) -> None:
    """Emits by `emit` a convolution of which `count` groups each are one; estimates omit products between groups."""
    by_batch, before = draft.batch_groups > 1, len(builder.compute_sets)
    merged = _with_merged_batch(builder, draft, count) if by_batch else _with_merged_kernel(builder, draft, count)
    emit(builder, merged)
    for each in builder.compute_sets[before:]:
        multiply_adds = each.work_estimate.multiply_adds // count
        each.work_estimate = replace(each.work_estimate, multiply_adds=multiply_adds)
    if by_batch:
        _store_groups(builder, draft, merged.result, count)


def _with_merged_kernel(builder: ProgramBuilder, draft: ConvolutionDraft, count: int) -> ConvolutionDraft:
    """The convolution with fewer groups of input features, whose kernel is a copy with zeros between merged ones."""
    numbers, source, groups = draft.numbers, draft.right, draft.feature_groups
    feature, inputs = numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension
    dimensions = list(source.shape.dimensions)
    dimensions[inputs] *= count
    shape = source.shape.with_dimensions(tuple(dimensions))
    buffer = builder.new_buffer(f"{draft.name}.merged_kernel", shape, permanent=True)
    target = whole(buffer, shape)
    step = source.shape.dimensions[inputs] * target.strides[inputs]
    parts = _by_group(source, feature, groups, count), _by_group(_first(target, source), feature, groups, count, step)
    copy(builder, buffer.name, *parts, draft.op_name)
    return replace(draft, right=target, feature_groups=groups // count, may_transform=False)


def _with_merged_batch(builder: ProgramBuilder, draft: ConvolutionDraft, count: int) -> ConvolutionDraft:
    """The convolution with fewer groups of the batch: its result has products between merged groups, too."""
    dimensions = list(draft.shape.dimensions)
    dimensions[draft.numbers.output_batch_dimension] *= count
    shape = draft.shape.with_dimensions(tuple(dimensions))
    name = f"{draft.name}.merged"
    result = whole(builder.new_buffer(name, shape), shape)
    groups = draft.batch_groups // count
    return replace(draft, name=name, result=result, batch_groups=groups, may_transform=False)


def _store_groups(builder: ProgramBuilder, draft: ConvolutionDraft, source: View, count: int) -> None:
    """Copies the result of a convolution with groups of the batch from the result of `_with_merged_batch`."""
    target, numbers, groups = draft.result, draft.numbers, draft.batch_groups
    batch, feature = numbers.output_batch_dimension, numbers.output_feature_dimension
    step = target.shape.dimensions[batch] * source.strides[batch]
    parts = _by_group(_first(source, target), feature, groups, count, step), _by_group(target, feature, groups, count)
    copy(builder, f"{draft.name}.groups", *parts, draft.op_name)


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
