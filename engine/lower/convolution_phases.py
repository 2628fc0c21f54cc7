"""Phases of a convolution: output positions along one dimension that read the same taps."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from engine.ir import ConvolutionDimensionNumbers, Instruction, Shape, WindowDimension
from engine.program.convolution_size import ConvolutionSize


@dataclass(frozen=True, slots=True)
class Phase:
    """Along one dimension: outputs first, first + period, ...; for each tap the position where its reads start."""

    first: int
    period: int
    count: int
    step: int
    taps: tuple[int, ...]
    starts: tuple[int, ...]


def phases_of(window: WindowDimension, outputs: int) -> list[Phase]:
    """The phases of `outputs` positions, which cover them all."""
    base, stride = window.base_dilation, window.stride
    period = base // gcd(stride, base)
    found = []
    for first in range(min(period, max(outputs, 1))):
        taps, starts = [], []
        for tap in range(window.size):
            at = first * stride + tap * window.window_dilation - window.padding_low
            if at % base == 0:
                taps.append(window.size - 1 - tap if window.window_reversal else tap)
                starts.append(at // base)
        count = -(-(outputs - first) // period)
        found.append(Phase(first, period, count, period * stride // base, tuple(taps), tuple(starts)))
    return found


def convolution_size(
    instruction: Instruction, phases: tuple[Phase, ...], sources: list[int], kernel: Shape
) -> ConvolutionSize:
    """The sizes of the part of a convolution that a combination of phases computes, from those of input and kernel."""
    numbers: ConvolutionDimensionNumbers = instruction["convolution_dimension_numbers"]
    groups = max(instruction["feature_group_count"], instruction["batch_group_count"])
    return ConvolutionSize(
        groups=groups,
        batch=instruction.array_shape.dimensions[numbers.output_batch_dimension],
        inputs=kernel.dimensions[numbers.kernel_input_feature_dimension],
        outputs=kernel.dimensions[numbers.kernel_output_feature_dimension] // groups,
        field=tuple(p.count for p in phases),
        taps=tuple(len(p.taps) for p in phases),
        steps=tuple(float(p.step) for p in phases),
        dilations=tuple(float(abs(p.starts[-1] - p.starts[0]) / max(1, len(p.starts) - 1)) for p in phases),
        sources=tuple(sources),
    )
