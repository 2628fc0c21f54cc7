"""Convolutions as indexed contractions: implicit GEMM with strides, dilations, padding and groups.

Output position o and tap t read input position (o*stride + t*window_dilation - padding_low) / base_dilation where that
divides. Positions with the same remainder (a phase) read the same taps, so that no multiplication by an inserted
zero is made; positions outside the input are read from zero padding around a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from itertools import product

import numpy as np

from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.grouped import has_windows
from engine.host.convolutions.pixel_groups import (
    TYPES,
    PositionGroup,
    grouped_kernel,
    grouped_order,
    grouped_phase,
    ungrouped,
)
from engine.ir import ConvolutionDimensionNumbers, Shape
from engine.machine_code.processor import multiplies_bf16_pairs
from engine.program.builder import ProgramBuilder
from engine.program.contraction import ContractionDraft, emit_contraction, undivided
from engine.program.convolution_size import Phase, has_sums
from engine.program.copies import copy, fill
from engine.program.nest import Constant
from engine.program.program import Address, ComputeSet
from engine.program.views import View, reordered, stored_in
from engine.program.work.offsets import GROUP, run_of, table

Transform = Callable[["ConvolutionArrays", str, tuple[Phase, ...]], list[ComputeSet] | None]
"""A function of the arrays of a convolution, and the name and phases of a part: the compute sets of tiles, or None."""


class ConvolutionArrays:
    """The arrays of a convolution with contiguous output features; copies of operands are made when first needed."""

    def __init__(self, builder: ProgramBuilder, draft: ConvolutionDraft) -> None:
        self.builder, self.draft = builder, draft

    @cached_property
    def padded(self) -> tuple[View, list[int]]:
        """The input with zero padding wherever a tap reads outside, and the padding before each dimension."""
        return _with_padding(self.builder, self.draft, self.draft.phases)

    @cached_property
    def kernel(self) -> View:
        """The kernel as contractions read it."""
        return _kernel(self.builder, self.draft)

    @property
    def lefts(self) -> Iterator[tuple[View, list[int]]]:
        """The input as it is, for work that reads zeros outside of it itself, then with padding."""
        yield self.draft.left, [0] * len(self.draft.window)
        yield self.padded

    @cached_property
    def target(self) -> View:
        """The result, or a new buffer that has its features last."""
        return stored(self.draft, channels_last(self.draft.shape, self.draft.numbers), False)

    def contraction(self, phases: tuple[Phase, ...]) -> ContractionDraft:
        """The contraction of a combination of phases."""
        left, lows = self.padded
        return _contraction(self.draft, (left, self.kernel, self.target), phases, lows)


def emit_contractions(
    builder: ProgramBuilder,
    draft: ConvolutionDraft,
    group: PositionGroup | None = None,
    transform: Transform | None = None,
) -> None:
    """Emits a contraction for each combination of phases; positions that no tap reaches become zero.

    With a `group`, the features of neighbouring positions fill the lanes together; `transform` may compute parts.
    """
    shape, phases, plain = draft.shape, draft.phases, list(product(*draft.phases))
    arrays, windowed = ConvolutionArrays(builder, draft), has_windows(draft)
    names = [f"{draft.name}.{number}" if len(plain) > 1 else draft.name for number in range(len(plain))]
    parts = list(zip(names, plain, strict=True))
    made = [transform(arrays, *part) if transform and has_sums(part[1]) else None for part in parts]
    if group is not None:
        arrays.kernel = grouped_kernel(builder, draft, phases[group.axis][0], group)
        phases[group.axis] = [grouped_phase(phases[group.axis][0], group)]
        arrays.target = stored(draft, grouped_order(shape, draft.numbers, group), group.backward)
    if any(not p.taps for combination in plain for p in combination) or draft.left.shape.elements == 0:
        zero = Constant(shape.element_type, "0.0" if shape.element_type[0] in "fbc" else "0")
        fill(builder, f"{draft.name}.zero", arrays.target, zero, draft.op_name)
    for name, sets, combination in zip(names, made, product(*phases), strict=True):
        for each in sets or ():
            builder.emit(each)
        if not sets and has_sums(combination):
            emit_contraction(
                builder,
                replace(
                    arrays.contraction(combination),
                    name=name,
                    windowed=windowed,
                    useful_multiply_adds=None if group is None else draft.multiply_adds,
                ),
            )
    put(builder, draft, ungrouped(arrays.target, draft.numbers, group))


def put(builder: ProgramBuilder, draft: ConvolutionDraft, found: View) -> None:
    """Copies the result to its buffer, unless it is stored there."""
    if found.buffer is not draft.result.buffer:
        copy(builder, f"{draft.name}.layout", found, draft.result, draft.op_name)


def _with_padding(
    builder: ProgramBuilder, draft: ConvolutionDraft, phases: list[list[Phase]]
) -> tuple[View, list[int]]:
    """The input with zero padding wherever a tap reads outside, and the padding's width before each dimension."""
    left, numbers = draft.left, draft.numbers
    lows, highs = [], []
    for size, each in zip(draft.sources, phases, strict=True):
        reads = [s for p in each if p.count for s in p.starts]
        lasts = [s + (p.count - 1) * p.step for p in each if p.count for s in p.starts]
        lows.append(max(0, -min(reads, default=0)))
        highs.append(max(0, max(lasts, default=0) - (size - 1)))
    if not any(lows) and not any(highs):
        return left, lows
    # The copy keeps the input's order of dimensions in memory.
    order = sorted(range(left.shape.rank), key=lambda d: -abs(left.strides[d]))
    dimensions = list(left.shape.dimensions)
    before = [0] * left.shape.rank
    for d, low, high in zip(numbers.input_spatial_dimensions, lows, highs, strict=True):
        dimensions[d] += low + high
        before[d] = low
    shape = left.shape.with_dimensions(tuple(dimensions))
    padded = stored_in(f"{draft.name}.padding", shape, order, permanent=True)
    offset = sum(before[d] * padded.strides[d] for d in range(len(order)))
    inside = View(padded.buffer, left.shape, offset, padded.strides)
    copy(builder, padded.buffer.name, reordered(left, order), reordered(inside, order), draft.op_name)
    return padded, lows


def channels_last(shape: Shape, numbers: ConvolutionDimensionNumbers) -> list[int]:
    """The result's dimensions with the features last: they are the lanes."""
    last = numbers.output_feature_dimension
    return [*(d for d in range(shape.rank) if d != last), last]


def stored(draft: ConvolutionDraft, order: list[int], backward: bool) -> View:
    """The result itself if its dimensions are stored in that order (and forward), else a new buffer."""
    shape = draft.shape
    long = [d for d in order if shape.dimensions[d] > 1]
    if long == sorted(long) and not backward:
        return draft.result
    return stored_in(f"{draft.name}.channels_last", shape, order)


def _kernel(builder: ProgramBuilder, draft: ConvolutionDraft) -> View:
    """The kernel with contiguous output features, or with many input features, which contractions transpose."""
    right, numbers = draft.right, draft.numbers
    feature, inputs = numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension
    if right.strides[feature] == right.item_bytes or right.shape.dimensions[feature] == 1:
        return right
    many = right.shape.element_type in TYPES and right.shape.dimensions[inputs] >= GROUP
    if many and right.strides[inputs] == right.item_bytes:
        return right
    order = [*numbers.kernel_spatial_dimensions, numbers.kernel_input_feature_dimension, feature]
    kernel = stored_in(f"{draft.name}.kernel", right.shape, order)
    copy(builder, kernel.buffer.name, reordered(right, order), reordered(kernel, order), draft.op_name)
    return kernel


def _contraction(
    draft: ConvolutionDraft, arrays: tuple[View, View, View], phases: tuple[Phase, ...], lows: list[int]
) -> ContractionDraft:
    """Makes the contraction of a combination of phases; `arrays` are the padded input, the kernel and the result."""
    left, right, target = arrays
    numbers, groups, batch_groups = draft.numbers, draft.feature_groups, draft.batch_groups
    spatial = list(zip(phases, numbers.input_spatial_dimensions, numbers.output_spatial_dimensions, strict=True))
    row_axes = [(numbers.output_batch_dimension, _batch_axis(left, target, numbers, batch_groups))]
    for phase, source, out in spatial:
        axis = (phase.count, left.strides[source] * phase.step, target.strides[out] * phase.period)
        row_axes.append((out, axis))
    # Rows in the order of the result.
    axes = [axis for _, axis in sorted(row_axes)]
    tap_a, tap_b = np.zeros(1, np.int64), np.zeros(1, np.int64)
    kernel_dimensions = numbers.kernel_spatial_dimensions
    for (phase, source, _), low, kernel in zip(spatial, lows, kernel_dimensions, strict=True):
        starts = (np.array(phase.starts, np.int64) + low) * left.strides[source]
        taps = np.array(phase.taps, np.int64) * right.strides[kernel]
        tap_a = (tap_a[:, None] + starts).reshape(-1)
        tap_b = (tap_b[:, None] + taps).reshape(-1)
    features = right.shape.dimensions[numbers.kernel_input_feature_dimension]
    stride_a = left.strides[numbers.input_feature_dimension]
    k_a = (tap_a[:, None] + np.arange(features) * stride_a).reshape(-1)
    stride_k = right.strides[numbers.kernel_input_feature_dimension]
    k_b = (tap_b[:, None] + np.arange(features) * stride_k).reshape(-1)
    # In the kernel's order in memory, its rows are evenly spaced.
    order = np.argsort(k_b, kind="stable")
    if _has_runs_backward(left, k_a[order]):
        order = order[::-1]
    parts = max(groups, batch_groups)
    columns = right.shape.dimensions[numbers.kernel_output_feature_dimension] // parts
    stride_b = right.strides[numbers.kernel_output_feature_dimension]
    offset_c = sum(p.first * target.strides[out] for p, _, out in spatial)
    batch_step = left.shape.dimensions[numbers.input_batch_dimension] // batch_groups
    step_a = features * stride_a if groups > 1 else batch_step * left.strides[numbers.input_batch_dimension]
    work = undivided(
        Address(left.buffer, left.offset),
        Address(right.buffer, right.offset),
        Address(target.buffer),
        rows=(
            table(*((extent, a) for extent, a, _ in axes)),
            table(*((extent, c) for extent, _, c in axes)) + (target.offset + offset_c),
        ),
        terms=(k_a[order], k_b[order]),
        batches=(
            table((parts, step_a)),
            table((parts, columns * stride_b)),
            table((parts, columns * target.strides[numbers.output_feature_dimension])),
        ),
        columns=columns,
        stride_b=stride_b if columns > 1 else right.item_bytes,
        operand_type=target.shape.element_type,
    )
    return ContractionDraft(draft.name, work, draft.op_name)


def _has_runs_backward(left: View, k_a: np.ndarray) -> bool:
    """Whether bf16 values, which the processor multiplies in pairs, are contiguous pairs only in the opposite order."""
    if left.shape.element_type != "bf16" or not multiplies_bf16_pairs():
        return False
    forward, backward = (run_of(np.ascontiguousarray(each), left.item_bytes) for each in (k_a, k_a[::-1]))
    return forward == 1 and backward % 2 == 0


def _batch_axis(
    left: View, target: View, numbers: ConvolutionDimensionNumbers, batch_groups: int
) -> tuple[int, int, int]:
    batch = numbers.input_batch_dimension
    count = left.shape.dimensions[batch] // batch_groups
    return count, left.strides[batch], target.strides[numbers.output_batch_dimension]
