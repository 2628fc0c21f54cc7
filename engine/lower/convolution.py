"""Lowers `convolution` to indexed contractions: implicit GEMM with strides, dilations, padding and groups.

Output position o and tap t read input position (o*stride + t*window_dilation - padding_low) / base_dilation where that
divides. Positions with the same remainder (a phase) read the same taps, so that no multiplication by an inserted
zero is made; positions outside the input are read from zero padding around a copy.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from engine.codelets.contract_fields import GROUP, run_of
from engine.emit.nest import Constant
from engine.ir import ConvolutionDimensionNumbers, Instruction, Shape
from engine.lower.context import Context, Value, lowering
from engine.lower.contraction import ContractionDraft, emit_contraction
from engine.lower.convolution_phases import Phase, convolution_size, phases_of
from engine.lower.copies import copy, fill
from engine.lower.dot import operand_in, operand_type
from engine.lower.exchanged_convolutions import exchanged_convolution, store_reversed
from engine.lower.few_features import has_few_features, lower_few_features
from engine.lower.merged_groups import (
    estimate_of_groups,
    has_windows,
    merged_count,
    store_groups,
    with_merged_batch,
    with_merged_kernel,
)
from engine.lower.overlapping import emit_overlapping, overlap_cycles
from engine.lower.pixel_groups import (
    TYPES,
    choose_group,
    contraction_cycles,
    grouped_kernel,
    grouped_order,
    grouped_phase,
    ungrouped,
)
from engine.lower.views import View, reordered, stored_in, whole
from engine.machine_code.processor import multiplies_bf16_pairs
from engine.program.program import Buffer
from engine.program.work.offsets import table

OVERLAP_WORTH = 0.8
"""Share of the estimated cycles below which overlapping products are worth it. Chosen by hand."""


@lowering("convolution")
def lower_convolution(context: Context, instruction: Instruction) -> Value:
    """One contraction for each combination of phases; positions that no tap reaches become zero.

    Raises UnsupportedOperation for operands of other element types than the result.
    """
    numbers: ConvolutionDimensionNumbers = instruction["convolution_dimension_numbers"]
    shape = instruction.array_shape
    if shape.elements == 0:
        return context.result_buffer(instruction)
    if operand_type(instruction) != shape.element_type:
        raise context.unsupported(instruction)
    count = merged_count(context, instruction, numbers)
    if count > 1:
        return _lower_merged(context, instruction, numbers, count)
    exchanged = exchanged_convolution(context, instruction, numbers)
    if exchanged is not None:
        found = lower_convolution(context, exchanged)
        assert isinstance(found, Buffer)
        return store_reversed(context, instruction, found, numbers)
    return _lower_in_order(context, instruction, numbers)


def _lower_in_order(context: Context, instruction: Instruction, numbers: ConvolutionDimensionNumbers) -> Buffer:
    """The result by windows over the first operand."""
    shape, window = instruction.array_shape, instruction["window"]
    result = context.result_buffer(instruction)
    left, right = (operand_in(context, o, instruction, shape.element_type) for o in instruction.operands)
    sizes = [left.shape.dimensions[d] for d in numbers.input_spatial_dimensions]
    outputs = [shape.dimensions[d] for d in numbers.output_spatial_dimensions]
    phases = [phases_of(w, outputs[d]) for d, w in enumerate(window)]
    if has_few_features(instruction, left, right, numbers, phases):
        return lower_few_features(context, instruction, (left, right), result, numbers, phases)
    if _overlaps(instruction, left, right, numbers):
        target = _stored(context, instruction, result, _channels_last(shape, numbers), False)
        emit_overlapping(context, instruction, left, right, target, numbers)
        _put(context, instruction, target, result)
        return result
    plain, kernel = phases.copy(), right.shape
    left, lows = _with_padding(context, instruction, left, numbers, sizes, phases)
    group = choose_group(instruction, numbers, right.shape)
    useful = right.shape.elements * shape.elements // max(1, shape.dimensions[numbers.output_feature_dimension])
    order = _channels_last(shape, numbers)
    if group is None:
        right = _kernel(context, instruction, right, numbers)
    else:
        right = grouped_kernel(context, instruction, right, numbers, phases[group.axis][0], group)
        phases[group.axis] = [grouped_phase(phases[group.axis][0], group)]
        order = grouped_order(shape, numbers, group)
    target = _stored(context, instruction, result, order, group is not None and group.backward)
    windowed = has_windows(context, instruction, numbers)
    combinations = list(product(*phases))
    if any(not p.taps for combination in combinations for p in combination) or left.shape.elements == 0:
        zero = Constant(shape.element_type, "0.0" if shape.element_type[0] in "fbc" else "0")
        fill(context, f"{instruction.name}.zero", target, zero, instruction.op_name)
    asked = list(product(*plain))
    for number, combination in enumerate(combinations):
        if all(p.taps and p.count for p in combination):
            made = _contraction(instruction, left, right, target, numbers, combination, lows)
            if group is not None:
                made = replace(made, useful_multiply_adds=useful)
            made = replace(
                made, windowed=windowed, convolution=convolution_size(instruction, asked[number], sizes, kernel)
            )
            name = f"{instruction.name}.{number}" if len(combinations) > 1 else instruction.name
            emit_contraction(context, replace(made, name=name, windowed=windowed))
    _put(context, instruction, ungrouped(target, numbers, group), result)
    return result


def _lower_merged(
    context: Context, instruction: Instruction, numbers: ConvolutionDimensionNumbers, count: int
) -> Buffer:
    """The result by fewer groups, `count` of which are one; their work is estimated as that of single ones."""
    by_batch = instruction["batch_group_count"] > 1
    if by_batch:
        merged = with_merged_batch(instruction, numbers, count)
    else:
        merged = with_merged_kernel(context, instruction, numbers, count)
    before = len(context.compute_sets)
    # The estimate divides sizes that exchanged operands would not have; those by the batch are divided alike.
    found = lower_convolution(context, merged) if by_batch else _lower_in_order(context, merged, numbers)
    assert isinstance(found, Buffer)
    for each in context.compute_sets[before:]:
        if each.work_estimate.multiply_adds:
            each.work_estimate = estimate_of_groups(each.work_estimate, by_batch, count)
    return store_groups(context, instruction, found, numbers, count) if by_batch else found


def _overlaps(instruction: Instruction, left: View, right: View, numbers: ConvolutionDimensionNumbers) -> bool:
    """Whether products that are added where they overlap take clearly fewer cycles than contractions."""
    cycles = overlap_cycles(instruction, left, right, numbers)
    return cycles is not None and cycles < OVERLAP_WORTH * contraction_cycles(instruction, numbers, right.shape)


def _put(context: Context, instruction: Instruction, stored: View, result: Buffer) -> None:
    """Copies the result to its buffer, unless it is stored there."""
    if stored.buffer is not result:
        target = whole(result, instruction.array_shape)
        copy(context, f"{instruction.name}.layout", stored, target, instruction.op_name)


def _with_padding(
    context: Context,
    instruction: Instruction,
    left: View,
    numbers: ConvolutionDimensionNumbers,
    sizes: list[int],
    phases: list[list[Phase]],
) -> tuple[View, list[int]]:
    """The input with zero padding wherever a tap reads outside, and the padding's width before each dimension."""
    lows, highs = [], []
    for size, each in zip(sizes, phases, strict=True):
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
    stored = Shape(left.shape.element_type, tuple(dimensions[d] for d in order))
    padding = context.new_buffer(f"{instruction.name}.border", stored, permanent=True)
    padded = stored_in(padding, Shape(stored.element_type, tuple(dimensions)), order)
    offset = sum(before[d] * padded.strides[d] for d in range(len(order)))
    inside = View(padding, left.shape, offset, padded.strides)
    copy(context, padding.name, reordered(left, order), reordered(inside, order), instruction.op_name)
    return padded, lows


def _channels_last(shape: Shape, numbers: ConvolutionDimensionNumbers) -> list[int]:
    """The result's dimensions with the features last: they are the lanes."""
    last = numbers.output_feature_dimension
    return [*(d for d in range(shape.rank) if d != last), last]


def _stored(context: Context, instruction: Instruction, result: Buffer, order: list[int], backward: bool) -> View:
    """The result itself if its dimensions are stored in that order (and forward), else a new buffer."""
    shape = instruction.array_shape
    long = [d for d in order if shape.dimensions[d] > 1]
    if long == sorted(long) and not backward:
        return whole(result, shape)
    stored = shape.with_dimensions(tuple(shape.dimensions[d] for d in order))
    return stored_in(context.new_buffer(f"{instruction.name}.channels_last", stored), shape, order)


def _kernel(context: Context, instruction: Instruction, right: View, numbers: ConvolutionDimensionNumbers) -> View:
    """The kernel with contiguous output features, or with many input features, which contractions transpose."""
    feature, inputs = numbers.kernel_output_feature_dimension, numbers.kernel_input_feature_dimension
    if right.strides[feature] == right.item_bytes or right.shape.dimensions[feature] == 1:
        return right
    many = right.shape.element_type in TYPES and right.shape.dimensions[inputs] >= GROUP
    if many and right.strides[inputs] == right.item_bytes:
        return right
    order = [*numbers.kernel_spatial_dimensions, numbers.kernel_input_feature_dimension, feature]
    stored = right.shape.with_dimensions(tuple(right.shape.dimensions[d] for d in order))
    buffer = context.new_buffer(f"{instruction.name}.kernel", stored)
    copy(context, buffer.name, reordered(right, order), whole(buffer, stored), instruction.op_name)
    return stored_in(buffer, right.shape, order)


def _contraction(
    instruction: Instruction,
    left: View,
    right: View,
    target: View,
    numbers: ConvolutionDimensionNumbers,
    phases: tuple[Phase, ...],
    lows: list[int],
) -> ContractionDraft:
    groups, batch_groups = instruction["feature_group_count"], instruction["batch_group_count"]
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
    return ContractionDraft(
        name=instruction.name,
        a=left.buffer,
        b=right.buffer,
        c=target.buffer,
        offset_a=left.offset,
        offset_b=right.offset,
        row_a=table(*((extent, a) for extent, a, _ in axes)),
        row_c=table(*((extent, c) for extent, _, c in axes)) + (target.offset + offset_c),
        k_a=k_a[order],
        k_b=k_b[order],
        columns=columns,
        stride_b=stride_b if columns > 1 else right.item_bytes,
        batch_a=table((parts, step_a)),
        batch_b=table((parts, columns * stride_b)),
        batch_c=table((parts, columns * target.strides[numbers.output_feature_dimension])),
        op_name=instruction.op_name,
    )


def _has_runs_backward(left: View, k_a: np.ndarray) -> bool:
    """Whether bf16 that the processor multiplies in pairs are contiguous pairs in the opposite order alone."""
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
