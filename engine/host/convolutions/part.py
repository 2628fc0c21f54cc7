"""A part of a convolution, the outputs of one combination of phases, as evenly spaced axes of its arrays."""

from __future__ import annotations

from dataclasses import replace

from engine.frozen import frozen
from engine.host.convolutions.draft import ConvolutionDraft
from engine.program.buffer import Address
from engine.program.convolution_size import ConvolutionSize, Phase
from engine.program.program import WorkEstimate
from engine.program.views import View

Pair = tuple[int, int]
"""A number along rows, and one along columns."""


@frozen
class Axis:
    """A spatial dimension: `count` outputs read `taps` inputs each, of the `source` inputs that exist.

    Output o and tap t read input `start` + o * `step` + t * `apart`; other inputs are zero. Strides are bytes between
    inputs of A, taps of B and outputs of C.
    """

    count: int = 1
    taps: int = 1
    step: int = 1
    apart: int = 1
    start: int = 0
    source: int = 1
    stride_a: int = 0
    stride_b: int = 0
    stride_c: int = 0

    @property
    def low(self) -> int:
        """Zeros before the first input."""
        return max(0, -self.start)

    @property
    def first(self) -> int:
        """The first input that is read."""
        return max(0, self.start)

    @property
    def reach(self) -> int:
        """Inputs from the first to the last that one output reads."""
        return (self.taps - 1) * self.apart + 1

    @property
    def size(self) -> int:
        """Inputs that exist, from the first one that is read to the last."""
        read = (self.count - 1) * self.step + self.reach
        return max(0, min(self.source - self.first, read - self.low))

    @property
    def is_inside(self) -> bool:
        """Whether all inputs that are read exist."""
        return self.start >= 0 and self.start + (self.count - 1) * self.step + self.reach <= self.source


@frozen
class Features:
    """A dimension without taps, with the bytes between its elements in the two arrays that have it."""

    count: int
    one: int
    other: int


@frozen
class ConvolutionPart:
    """Sums over taps and `inputs` (in A and B) for each of `batch` (in A and C), `outputs` (in B and C) and positions.

    Addresses are those of the first element of A, tap of B and element of C. There is one group.
    """

    name: str
    op_name: str
    element_type: str
    item: int
    size: ConvolutionSize
    a: Address
    b: Address
    c: Address
    batch: Features
    inputs: Features
    outputs: Features
    axes: tuple[Axis, ...]

    @property
    def begin(self) -> Address:
        """The first input that is read along all axes."""
        return moved(self.a, sum(axis.first * axis.stride_a for axis in self.axes))


def part_of(
    draft: ConvolutionDraft, name: str, phases: tuple[Phase, ...], arrays: tuple[View, View, View], lows: list[int]
) -> ConvolutionPart:
    """The part of a combination of phases.

    `arrays` are the input, with `lows` zeros before the draft's input along each spatial dimension, the kernel and the
    result.
    """
    left, right, target = arrays
    numbers = draft.numbers
    kernel, output = numbers.kernel_spatial_dimensions, numbers.output_spatial_dimensions
    axes, begin_b, begin_c = [], right.offset, target.offset
    for phase, low, a, b, c in zip(phases, lows, numbers.input_spatial_dimensions, kernel, output, strict=True):
        several = len(phase.taps) > 1
        axes.append(
            Axis(
                phase.count,
                len(phase.taps),
                phase.step,
                phase.starts[1] - phase.starts[0] if several else 1,
                phase.starts[0] + low,
                left.shape.dimensions[a],
                left.strides[a],
                (phase.taps[1] - phase.taps[0]) * right.strides[b] if several else 0,
                phase.period * target.strides[c],
            )
        )
        begin_b += phase.taps[0] * right.strides[b]
        begin_c += phase.first * target.strides[c]
    size = draft.size_of(phases)

    def features(count: int, one: tuple[View, int], other: tuple[View, int]) -> Features:
        return Features(count, *(view.strides[dimension] for view, dimension in (one, other)))

    return ConvolutionPart(
        name,
        draft.op_name,
        draft.shape.element_type,
        left.item_bytes,
        size,
        Address(left.buffer, left.offset),
        Address(right.buffer, begin_b),
        Address(target.buffer, begin_c),
        features(size.batch, (left, numbers.input_batch_dimension), (target, numbers.output_batch_dimension)),
        features(size.inputs, (left, numbers.input_feature_dimension), (right, numbers.kernel_input_feature_dimension)),
        features(
            size.outputs, (right, numbers.kernel_output_feature_dimension), (target, numbers.output_feature_dimension)
        ),
        tuple(axes),
    )


def estimate_of(part: ConvolutionPart) -> WorkEstimate:
    """The multiply-adds of the convolution itself."""
    return WorkEstimate(multiply_adds=part.size.multiply_adds, element_type=part.element_type)


def moved(address: Address, offset: int) -> Address:
    """The address, `offset` bytes further on."""
    return replace(address, offset=address.offset + int(offset))
