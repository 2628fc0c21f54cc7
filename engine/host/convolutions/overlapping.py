"""Convolutions of stride 1 with few output features as products of input positions that are added where they overlap.

Gradients with respect to the input and transposed convolutions are of this kind. Taps and features fill the lanes.
"""

from __future__ import annotations

from math import prod

from engine.codelets.convolutions.overlap_add import OverlapAdd, whole_vectors
from engine.host.convolutions.direct import channels_last, put, stored
from engine.host.convolutions.draft import ConvolutionDraft
from engine.host.convolutions.pixel_groups import TYPES, panel_cycles
from engine.ir.affine import row_major_strides
from engine.machine_code.processor import lanes
from engine.program.builder import ProgramBuilder
from engine.program.copies import copy
from engine.program.program import Address, Buffer, ComputeSet, Partition, Span, WorkEstimate
from engine.program.views import View, reordered, whole
from engine.program.work.offsets import Offsets, table

MOST_PRODUCT_BYTES = 1 << 20
"""Capacity for an image's products: they have to stay in the second-level cache."""
SHORT_K = 1.3
"""Factor on the time of a contraction with a small k, which stores more for each multiply-add."""
ADD_CYCLES = 9
"""Cycles per vector of sums: measured with 16 lanes on a Xeon."""
FEW_IMAGES = 8
"""Fewest images that keep all workers busy if each image is one long unit."""
LONG_IMAGE = 50_000
"""Cycles from which an image is long: few such images, one unit each, would leave workers idle."""


def overlap_cycles(draft: ConvolutionDraft) -> float | None:
    """Estimated cycles; None if the convolution is not of this kind."""
    window, left, numbers = draft.window, draft.left, draft.numbers
    if draft.shape.element_type not in TYPES or draft.groups != 1 or not 1 <= len(window) <= 2:
        return None
    if any(w.stride != 1 for w in window) or left.shape.elements == 0:
        return None
    images, positions, columns, features = _sizes(draft)
    if 4 * positions * whole_vectors(columns) > MOST_PRODUCT_BYTES:
        return None
    k = left.shape.dimensions[numbers.input_feature_dimension]
    sums = whole_vectors(window[-1].size * features) // lanes()
    adds = prod(draft.outputs[:-1]) * (
        draft.sources[-1] * sums + draft.outputs[-1] * whole_vectors(features) // lanes()
    )
    cycles = panel_cycles(positions, columns) * k * SHORT_K + adds * ADD_CYCLES
    return None if images < FEW_IMAGES and cycles > LONG_IMAGE else images * cycles


def _sizes(draft: ConvolutionDraft) -> tuple[int, int, int, int]:
    """Numbers of images, of positions of an image, of taps x features, and of features."""
    right, numbers = draft.right.shape, draft.numbers
    images = draft.left.shape.dimensions[numbers.input_batch_dimension]
    features = right.dimensions[numbers.kernel_output_feature_dimension]
    taps = prod(right.dimensions[d] for d in numbers.kernel_spatial_dimensions)
    return images, prod(draft.sources), taps * features, features


def emit_overlapping(builder: ProgramBuilder, draft: ConvolutionDraft) -> None:
    """Emits the compute set, and a copy of its result if features are not contiguous there."""
    target = stored(draft, channels_last(draft.shape, draft.numbers), False)
    images, _, _, features = _sizes(draft)
    left, right, numbers = draft.left, draft.right, draft.numbers
    kernel = _kernel(builder, draft)
    shape = target.buffer.shape
    dense = target.strides[numbers.output_batch_dimension] * images == shape.bytes
    share = Partition(shape.elements // images, images, 1) if dense else None
    outputs = draft.shape.elements // features
    asked = outputs * right.shape.elements // draft.dilation
    features_in = numbers.input_feature_dimension
    spatial, rest = numbers.input_spatial_dimensions, numbers.output_spatial_dimensions
    work = OverlapAdd(
        Address(left.buffer, left.offset),
        Address(kernel.buffer),
        Address(target.buffer, target.offset),
        positions=Offsets(table(*((left.shape.dimensions[d], left.strides[d]) for d in spatial))),
        inputs=Offsets(table((left.shape.dimensions[features_in], left.strides[features_in]))),
        window=draft.window,
        sources=tuple(draft.sources),
        field=tuple(target.shape.dimensions[d] for d in rest),
        features=features,
        input_image=left.strides[numbers.input_batch_dimension],
        output_image=target.strides[numbers.output_batch_dimension],
        output_row=target.strides[rest[0]] if len(rest) == 2 else 0,
        output_position=target.strides[rest[-1]],
        element_type=shape.element_type,
    )
    compute_set = ComputeSet(
        draft.name,
        work,
        images,
        [Span(left.buffer), Span(kernel.buffer)],
        [Span(target.buffer, share)],
        WorkEstimate(
            multiply_adds=asked,
            element_type=shape.element_type,
            product=(1, outputs, features, asked // (outputs * features)),
        ),
        draft.op_name,
    )
    builder.emit(compute_set)
    put(builder, draft, target)


def _kernel(builder: ProgramBuilder, draft: ConvolutionDraft) -> View:
    """The kernel as [input feature, taps, output feature]."""
    numbers = draft.numbers
    order = [
        numbers.kernel_input_feature_dimension,
        *numbers.kernel_spatial_dimensions,
        numbers.kernel_output_feature_dimension,
    ]
    source = reordered(draft.right, order)
    packed = tuple(source.item_bytes * s for s in row_major_strides(source.shape))
    if source.offset == 0 and source.strides == packed:
        return source
    buffer = Buffer(f"{draft.name}.kernel", source.shape)
    copy(builder, buffer.name, source, whole(buffer, source.shape), draft.op_name)
    return whole(buffer, source.shape)
