"""Grouped convolutions with few output features in a group: windows of images of float32 fill the lanes."""

from __future__ import annotations

from math import prod

from engine.codelets.convolutions.window_filling import STEPS, FeatureGroup
from engine.codelets.language.lanes import HALF_TYPES
from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.pixel_groups import LEAST_MULTIPLY_ADDS
from engine.machine_code.processor import lanes

LEAST_TAPS = 2.0
"""Estimated fewest reads of each position of an image for which copies of windows are worth it."""


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


def is_widened(draft: ConvolutionDraft) -> bool:
    """Whether a convolution of 16-bit floats is one of float32, which is rounded: its groups leave most lanes idle."""
    outputs = draft.right.shape.dimensions[draft.numbers.kernel_output_feature_dimension]
    few = draft.groups > 1 and 2 * (outputs // draft.groups) <= lanes() and not draft.is_depthwise
    return few and draft.shape.element_type in HALF_TYPES and draft.multiply_adds >= LEAST_MULTIPLY_ADDS
