"""Structured attributes of instructions: windows and dimension numbers, with HLO's field names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace

from engine.frozen import frozen

HOLDS_ANYTHING = "holds_anything"
"""The attribute of a loop's initial values that no iteration reads: they need not be written."""
ROWS_OF_AN_ITERATION = "rows_of_a_turn"
"""The attribute of loops over micro-batches: the number of rows of a micro-batch. An iteration is partitioned along
these rows, whatever other arrays there are: a step does the same arithmetic whether or not it is split into parts."""


@frozen
class WindowDimension:
    """One dimension of a window; padding may be negative."""

    size: int
    stride: int = 1
    padding_low: int = 0
    padding_high: int = 0
    window_dilation: int = 1
    base_dilation: int = 1
    window_reversal: bool = False

    @property
    def is_trivial(self) -> bool:
        """Whether each element is a window of its own, without padding."""
        return self.size == self.stride == self.base_dilation == 1 and not self.padding_low and not self.padding_high


Window = tuple[WindowDimension, ...]


@frozen
class SliceDimension:
    """The elements start, start + stride, ... below limit."""

    start: int
    limit: int
    stride: int = 1


@frozen
class PaddingDimension:
    """Padding of one dimension. Edge padding may be negative; interior padding is the gap between neighbours."""

    edge_padding_low: int
    edge_padding_high: int
    interior_padding: int = 0


@frozen
class DotDimensionNumbers:
    """Dimensions of the operands that are contracted, and those of the batch."""

    lhs_contracting_dimensions: tuple[int, ...] = ()
    rhs_contracting_dimensions: tuple[int, ...] = ()
    lhs_batch_dimensions: tuple[int, ...] = ()
    rhs_batch_dimensions: tuple[int, ...] = ()

    @property
    def contracting(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The contracted dimensions of both operands."""
        return self.lhs_contracting_dimensions, self.rhs_contracting_dimensions

    @property
    def batch(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The batch's dimensions of both operands."""
        return self.lhs_batch_dimensions, self.rhs_batch_dimensions

    def renumbered(self, side: int, new: Callable[[int], int]) -> DotDimensionNumbers:
        """The numbers once the dimensions of operand 0 or 1 have other numbers."""
        names = [f"{'lr'[side]}hs_{kind}_dimensions" for kind in ("contracting", "batch")]
        return replace(self, **{name: tuple(new(d) for d in getattr(self, name)) for name in names})

    def free(self, side: int, rank: int) -> list[int]:
        """The dimensions of operand 0 or 1 that are neither contracted nor of the batch."""
        return [d for d in range(rank) if d not in self.contracting[side] and d not in self.batch[side]]


@frozen
class ConvolutionDimensionNumbers:
    """The meaning of each dimension of input, kernel and output."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: tuple[int, ...]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: tuple[int, ...]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: tuple[int, ...]


@frozen
class GatherDimensionNumbers:
    """Mapping of index vectors to slices of the operand, and of these to dimensions of the result."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    index_vector_dim: int
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


@frozen
class ScatterDimensionNumbers:
    """Mapping of index vectors to positions of update windows in the operand."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    index_vector_dim: int
    input_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()

    @property
    def of_gather(self) -> GatherDimensionNumbers:
        """The numbers of the gather that takes the windows from their positions: the same fields, by other names."""
        return GatherDimensionNumbers(*(getattr(self, each.name) for each in fields(self)))


PARTIALS_SCOPE = "PARTIALS_TYPE"
"""The frontend attribute for the type of a product's or a convolution's partial sums, one of PARTIALS_TYPES."""
PARTIALS_TYPES = {"half": "f16", "float": "f32"}
"""Element types by Poplar's names."""
