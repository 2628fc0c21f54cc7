"""Convolutions whose operands are exchanged, where the other operand has more features to fill the lanes.

One example is the gradient by a kernel with few output features, whose window is the array of a whole batch's
gradients. Its input features become the columns, and the result is reversed along its spatial dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.pixel_groups import LEAST_MULTIPLY_ADDS, TYPES, contraction_cycles
from engine.ir import ConvolutionDimensionNumbers, WindowDimension
from engine.program.buffer import Buffer
from engine.program.builder import ProgramBuilder
from engine.program.copies import copy
from engine.program.views import View, reversed_along, whole

COPY = 1.25
"""Factor on the time of exchanged operands, for a copy and a reversal."""


def exchanged_cycles(draft: ConvolutionDraft) -> float | None:
    """Estimated cycles with exchanged operands; None where they cannot be exchanged."""
    if draft.shape.element_type not in TYPES or draft.groups != 1 or not all(map(_is_exchangeable, draft.window)):
        return None
    if not draft.right.shape.elements or draft.multiply_adds < LEAST_MULTIPLY_ADDS:
        return None
    return COPY * contraction_cycles(with_exchanged_operands(draft, draft.result))


def _is_exchangeable(window: WindowDimension) -> bool:
    return window.stride == window.base_dilation == 1 and not window.window_reversal


def emit_exchanged(
    builder: ProgramBuilder, draft: ConvolutionDraft, emit: Callable[[ProgramBuilder, ConvolutionDraft], None]
) -> None:
    """Emits the convolution with exchanged operands by `emit`, then the copy of the reversed result to its buffer."""
    made = with_exchanged_operands(draft, draft.result)
    buffer = Buffer(made.name, draft.shape)
    source = whole(buffer, draft.shape)
    emit(builder, replace(made, result=source))
    for dimension in draft.numbers.output_spatial_dimensions:
        source = reversed_along(source, dimension)
    copy(builder, f"{draft.name}.reversed", source, draft.result, draft.op_name)


def with_exchanged_operands(draft: ConvolutionDraft, result: View) -> ConvolutionDraft:
    """Exchanges the operands: output o and tap t read input o + t * d - low, so input u meets tap (u - o + low) / d.

    The result has the draft's elements, reversed along the spatial dimensions.
    """
    numbers, window = draft.numbers, []
    for size, output, old in zip(draft.sources, draft.outputs, draft.window, strict=True):
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
    name = f"{draft.name}.exchanged"
    left, right = draft.right, draft.left
    return replace(draft, name=name, left=left, right=right, result=result, window=tuple(window), numbers=new)
