"""The sizes of a convolution, and its phases: independent of the algorithm."""

from __future__ import annotations

from math import gcd, prod

from engine.frozen import frozen
from engine.ir import ConvolutionDimensionNumbers, Shape, WindowDimension


@frozen
class ConvolutionSize:
    """Output position o and tap t of a spatial dimension use input position o * step + t * dilation, for all groups.

    `inputs` and `outputs` are the features of one group; `field`, `taps`, `steps`, `dilations` and `sources` (the
    input's positions) are by spatial dimension. Transposed convolutions have steps below 1.
    """

    groups: int
    batch: int
    inputs: int
    outputs: int
    field: tuple[int, ...] = ()
    taps: tuple[int, ...] = ()
    steps: tuple[float, ...] = ()
    dilations: tuple[float, ...] = ()
    sources: tuple[int, ...] = ()

    @property
    def multiply_adds(self) -> int:
        """Products of all sums."""
        return self.groups * self.batch * prod(self.field) * self.outputs * self.inputs * prod(self.taps)


@frozen
class Phase:
    """Outputs first, first + period, ... along one dimension; for each tap the position where its reads start."""

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


def has_sums(phases: tuple[Phase, ...]) -> bool:
    """Whether a combination of phases has outputs that taps reach."""
    return all(p.taps and p.count for p in phases)


def size_of_phases(
    phases: tuple[Phase, ...],
    arrays: tuple[Shape, Shape, Shape],
    numbers: ConvolutionDimensionNumbers,
    groups: int,
) -> ConvolutionSize:
    """The sizes of the part of a convolution that a combination of phases computes; `arrays` are input, kernel, result.

    `groups` counts the groups of features, or else of the batch.
    """
    source, kernel, result = arrays
    return ConvolutionSize(
        groups=groups,
        batch=result.dimensions[numbers.output_batch_dimension],
        inputs=kernel.dimensions[numbers.kernel_input_feature_dimension],
        outputs=kernel.dimensions[numbers.kernel_output_feature_dimension] // groups,
        field=tuple(p.count for p in phases),
        taps=tuple(len(p.taps) for p in phases),
        steps=tuple(float(p.step) for p in phases),
        dilations=tuple(float(abs(p.starts[-1] - p.starts[0]) / max(1, len(p.starts) - 1)) for p in phases),
        sources=tuple(source.dimensions[d] for d in numbers.input_spatial_dimensions),
    )
