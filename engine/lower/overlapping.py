"""Convolutions of stride 1 with few output features as products of input positions that are added where they overlap.

Gradients by the input and transposed convolutions are of this kind. Their taps and features together fill the lanes.
"""

from __future__ import annotations

from math import prod

import numpy as np

from engine.codelets.contract_fields import Field, contract_record
from engine.codelets.contract_plain import contract_scratch_bytes_for
from engine.codelets.overlap_add import Overlap, overlap_add_f32, overlap_add_half
from engine.codelets.record import Block, block
from engine.ir import ConvolutionDimensionNumbers, Instruction, WindowDimension
from engine.ir.affine import row_major_strides
from engine.lower.context import Context
from engine.lower.contraction import table
from engine.lower.copies import copy
from engine.lower.pixel_groups import TYPES, panel_cycles
from engine.lower.views import View, reordered, whole
from engine.machine_code.processor import lanes
from engine.program.convolution_size import ConvolutionSize
from engine.program.program import Address, ComputeSet, Effort, Partition, Span
from engine.program.work.words import Words

MOST_PRODUCT_BYTES = 1 << 20
"""An image's products have to stay in the second-level cache."""
SHORT_K = 1.3
"""How much longer a contraction with few k takes: it stores more."""
ADD_CYCLES = 9
"""For a vector of sums."""
FEW_IMAGES = 8
LONG_IMAGE = 50_000
"""Cycles from which few images, each of them one unit, would leave workers idle."""


def overlap_cycles(
    instruction: Instruction, left: View, right: View, numbers: ConvolutionDimensionNumbers
) -> float | None:
    """About how long it would take; None if the convolution is not of this kind."""
    window = instruction["window"]
    groups = instruction["feature_group_count"], instruction["batch_group_count"]
    if instruction.array_shape.element_type not in TYPES or groups != (1, 1) or not 1 <= len(window) <= 2:
        return None
    if any(w.stride != 1 for w in window) or left.shape.elements == 0:
        return None
    images, positions, columns, features = _sizes(left, right, numbers)
    if 4 * positions * _whole_vectors(columns) > MOST_PRODUCT_BYTES:
        return None
    k = left.shape.dimensions[numbers.input_feature_dimension]
    outputs = [instruction.array_shape.dimensions[d] for d in numbers.output_spatial_dimensions]
    width = left.shape.dimensions[numbers.input_spatial_dimensions[-1]]
    sums = _whole_vectors(window[-1].size * features) // lanes()
    adds = prod(outputs[:-1]) * (width * sums + outputs[-1] * _whole_vectors(features) // lanes())
    cycles = panel_cycles(positions, columns) * k * SHORT_K + adds * ADD_CYCLES
    return None if images < FEW_IMAGES and cycles > LONG_IMAGE else images * cycles


def _sizes(left: View, right: View, numbers: ConvolutionDimensionNumbers) -> tuple[int, int, int, int]:
    """Images, positions of one, taps x features, features."""
    images = left.shape.dimensions[numbers.input_batch_dimension]
    positions = prod(left.shape.dimensions[d] for d in numbers.input_spatial_dimensions)
    features = right.shape.dimensions[numbers.kernel_output_feature_dimension]
    taps = prod(right.shape.dimensions[d] for d in numbers.kernel_spatial_dimensions)
    return images, positions, taps * features, features


def _whole_vectors(elements: int) -> int:
    return -(-elements // lanes()) * lanes()


def _reaching(window: WindowDimension, size: int, outputs: int, position: int, tap: int) -> tuple[np.ndarray, ...]:
    """Where each output's list begins, and the lists: bytes to the products of the inputs and taps that reach it."""
    starts, offsets = [0], []
    for output in range(outputs):
        for number in range(window.size):
            at = output + number * window.window_dilation - window.padding_low
            if at % window.base_dilation == 0 and 0 <= at < size * window.base_dilation:
                place = window.size - 1 - number if window.window_reversal else number
                offsets.append(at // window.base_dilation * position + place * tap)
        starts.append(len(offsets))
    return np.array(starts, np.int64), np.array(offsets, np.int64)


def emit_overlapping(
    context: Context,
    instruction: Instruction,
    left: View,
    right: View,
    target: View,
    numbers: ConvolutionDimensionNumbers,
) -> None:
    """The compute set; the target's features lie next to each other."""
    images, positions, columns, features = _sizes(left, right, numbers)
    kernel = _kernel(context, instruction, right, numbers)
    pitch = 4 * _whole_vectors(columns)
    spatial = [(left.shape.dimensions[d], left.strides[d]) for d in numbers.input_spatial_dimensions]
    k = left.shape.dimensions[numbers.input_feature_dimension]
    row_a, row_c = table(*spatial), table((positions, pitch))
    offset_a = table((k, left.strides[numbers.input_feature_dimension]))
    item = left.item_bytes
    offset_b = table((k, item * columns))
    contraction = contract_record(
        a=Address(left.buffer, left.offset),
        b=Address(kernel.buffer),
        c=0,
        row_a=row_a,
        row_c=row_c,
        offset_a=offset_a,
        offset_b=offset_b,
        columns=columns,
        stride_b=item,
        rows_per_unit=positions,
        columns_per_unit=columns,
        element_bytes=item,
    )
    parameters, scratch = _overlap(contraction, instruction, left, target, numbers, pitch, features)
    shape = target.buffer.shape
    dense = target.strides[numbers.output_batch_dimension] * images == shape.bytes
    share = Partition(shape.elements // images, images, 1) if dense else None
    dilation = prod(w.base_dilation for w in instruction["window"])
    outputs = instruction.array_shape.elements // features
    asked = outputs * right.shape.elements // dilation
    codelet = overlap_add_f32 if shape.element_type == "f32" else overlap_add_half(shape.element_type)
    compute_set = ComputeSet(
        instruction.name,
        Words.of_block(codelet, parameters, scratch_bytes=scratch),
        images,
        [Span(left.buffer), Span(kernel.buffer)],
        [Span(target.buffer, share)],
        Effort(
            multiply_adds=asked,
            element_type=shape.element_type,
            product=(1, outputs, features, asked // (outputs * features)),
            convolution=_size(instruction, left, right, numbers),
        ),
        instruction.op_name,
    )
    context.emit(compute_set)


def _size(instruction: Instruction, left: View, right: View, numbers: ConvolutionDimensionNumbers) -> ConvolutionSize:
    """Of one group and stride 1; only every base_dilation-th tap meets an input position."""
    window: tuple[WindowDimension, ...] = instruction["window"]
    images, _, _, features = _sizes(left, right, numbers)
    return ConvolutionSize(
        groups=1,
        batch=images,
        inputs=left.shape.dimensions[numbers.input_feature_dimension],
        outputs=features,
        field=tuple(instruction.array_shape.dimensions[d] for d in numbers.output_spatial_dimensions),
        taps=tuple(-(-w.size // w.base_dilation) for w in window),
        steps=tuple(1 / w.base_dilation for w in window),
        dilations=tuple(float(w.window_dilation) for w in window),
        sources=tuple(left.shape.dimensions[d] for d in numbers.input_spatial_dimensions),
    )


def _overlap(
    contraction: Field,
    instruction: Instruction,
    left: View,
    target: View,
    numbers: ConvolutionDimensionNumbers,
    pitch: int,
    features: int,
) -> tuple[Block, int]:
    """The parameter block, and the bytes of scratch; the products of positions lie `pitch` bytes apart."""
    window = instruction["window"]
    inputs = [left.shape.dimensions[d] for d in numbers.input_spatial_dimensions]
    outputs = [target.shape.dimensions[d] for d in numbers.output_spatial_dimensions]
    wide = window[-1].size * features
    pitch_sums = 4 * _whole_vectors(wide)
    one = WindowDimension(1)
    high, height, rows = (window[0], inputs[0], outputs[0]) if len(window) == 2 else (one, 1, 1)
    row_starts, row_offsets = _reaching(high, height, rows, inputs[-1] * pitch, 4 * wide)
    column_starts, column_offsets = _reaching(window[-1], inputs[-1], outputs[-1], pitch_sums, 4 * features)
    products = contract_scratch_bytes_for(target.shape.element_type)
    row_sums = products + contraction.rows * pitch
    row_stride = target.strides[numbers.output_spatial_dimensions[0]] if len(window) == 2 else 0
    overlap = Overlap(
        **vars(contraction),
        output=Address(target.buffer, target.offset),
        image_a=left.strides[numbers.input_batch_dimension],
        image_output=target.strides[numbers.output_batch_dimension],
        row_output=row_stride,
        position_output=target.strides[numbers.output_spatial_dimensions[-1]],
        output_rows=rows,
        output_columns=outputs[-1],
        features=features,
        input_columns=inputs[-1],
        sums=wide,
        pitch_products=pitch,
        pitch_sums=pitch_sums,
        row_starts=row_starts,
        row_offsets=row_offsets,
        column_starts=column_starts,
        column_offsets=column_offsets,
        products=products,
        row_sums=row_sums,
    )
    return block(overlap), row_sums + inputs[-1] * pitch_sums


def _kernel(context: Context, instruction: Instruction, right: View, numbers: ConvolutionDimensionNumbers) -> View:
    """The kernel as [input feature, taps, output feature]."""
    order = [
        numbers.kernel_input_feature_dimension,
        *numbers.kernel_spatial_dimensions,
        numbers.kernel_output_feature_dimension,
    ]
    source = reordered(right, order)
    packed = tuple(source.item_bytes * s for s in row_major_strides(source.shape))
    if source.offset == 0 and source.strides == packed:
        return source
    buffer = context.new_buffer(f"{instruction.name}.kernel", source.shape)
    copy(context, buffer.name, source, whole(buffer, source.shape), instruction.op_name)
    return whole(buffer, source.shape)
