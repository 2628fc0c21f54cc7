"""The sizes of a convolution, independent of the codelet that computes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConvolutionSize:
    """Output position o and tap t of a spatial dimension use input position o * step + t * dilation, for all groups.

    `inputs` and `outputs` are the features of one group; `field`, `taps`, `steps`, `dilations` and `sources` (the
    input's positions) are by spatial dimension. Steps below 1 are those of transposed convolutions.
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
