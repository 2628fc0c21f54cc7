"""Convolutions whose operands are exchanged, where the other operand has more features to fill the lanes.

One example is the gradient by a kernel with few output features, whose window is the array of a whole batch's
gradients. Its input features become the columns, and the result is reversed along its spatial dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.overlapping import overlap_cycles
from engine.host.convolutions.pixel_groups import (
    LEAST_MULTIPLY_ADDS,
    TYPES,
    choose_group,
    contraction_cycles,
    panel_cycles,
)
from engine.ir import ConvolutionDimensionNumbers, WindowDimension
from engine.machine_code.processor import lanes
from engine.program.building.builder import ProgramBuilder
from engine.program.building.copies import copy
from engine.program.building.views import View, reversed_along, whole

WORTH = 0.6
"""Share of the estimated cycles below which the exchange is worth a copy and a reversal."""

WORTH_OF_PRODUCTS = 0.8
"""Share of the cycles below which a convolution with one output position, the gradient by a kernel of 1 x 1, is
exchanged.
"""
LONG_SINGLE_VECTOR = 2.0
"""Factor on the time of kernels of one vector in products with a long k: both operands come from the second-level
cache (timed on an EPYC)."""


def exchanged_cycles(draft: ConvolutionDraft) -> tuple[float, float, float] | None:
    """Estimates cycles with exchanged operands and without, and returns the share at which the exchange is worth it.

    None where operands cannot be exchanged. A gradient with one output position is a product, either way.
    """
    if draft.shape.element_type not in TYPES or draft.groups != 1 or not all(map(_is_exchangeable, draft.window)):
        return None
    if not draft.right.shape.elements or draft.multiply_adds < LEAST_MULTIPLY_ADDS:
        return None
    if max(draft.outputs, default=1) == 1:
        numbers, sizes = draft.numbers, draft.shape.dimensions
        rows, columns = sizes[numbers.output_batch_dimension], sizes[numbers.output_feature_dimension]
        return product_cycles(columns, rows), product_cycles(rows, columns), WORTH_OF_PRODUCTS
    group = choose_group(draft)
    cycles = contraction_cycles(draft, group.positions if group else 1)
    overlapping = overlap_cycles(draft)
    best = cycles if overlapping is None else min(cycles, overlapping)
    return contraction_cycles(with_exchanged_operands(draft, draft.result)), best, WORTH


def product_cycles(rows: int, columns: int) -> float:
    """Estimated cycles per element of k of a product with a long k."""
    return panel_cycles(rows, columns) * (LONG_SINGLE_VECTOR if columns <= lanes() else 1.0)


def _is_exchangeable(window: WindowDimension) -> bool:
    return window.stride == window.base_dilation == 1 and not window.window_reversal


def emit_exchanged(
    builder: ProgramBuilder, draft: ConvolutionDraft, emit: Callable[[ProgramBuilder, ConvolutionDraft], None]
) -> None:
    """Emits the convolution with exchanged operands by `emit`, then the copy of the reversed result to its buffer."""
    made = with_exchanged_operands(draft, draft.result)
    buffer = builder.new_buffer(made.name, draft.shape)
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
