"""Convolutions as products of input positions with all taps, which are summed where they overlap in the output."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchLayout
from engine.codelets.products.contract_fields import contract_record
from engine.host.encoded import Encoded, HostWork
from engine.ir.attributes import WindowDimension
from engine.ir.shape import Shape
from engine.machine_code.processor import lanes, multiplies_bf16_pairs
from engine.program.buffer import Address
from engine.program.work.offsets import Offsets, run_of

SPARSE = 2
"""An image is widened if the elements from its first to its last are at most this multiple of its own elements."""
MOST_WIDENED = 1 << 18
"""Elements of an image that a worker's cache holds in float32."""


@dataclass(frozen=True, slots=True)
class OverlapAdd(HostWork):
    """One image per unit. `positions` are the byte offsets of its input positions, `inputs` those of input features.

    The kernel is packed as [input feature, taps, output feature]. `window`, `sources` (input positions) and `field`
    (output positions) are by the one or two spatial dimensions. Strides are in bytes: from image to image of the
    input and of the output, and between rows and positions of the output, whose features are contiguous.
    """

    input: Address
    kernel: Address
    output: Address
    positions: Offsets
    inputs: Offsets
    window: tuple[WindowDimension, ...]
    sources: tuple[int, ...]
    field: tuple[int, ...]
    features: int
    input_image: int
    output_image: int
    output_row: int
    output_position: int
    element_type: str

    def encode(self) -> Encoded:
        """The block of a contraction of one image, then the words of `Overlap`."""
        from engine.codelets.convolutions.overlap_add import Overlap, overlap_add
        from engine.codelets.products.contract_plain import contract_scratch_for

        positions = len(self.positions)
        columns = int(np.prod([w.size for w in self.window])) * self.features
        wide = self.window[-1].size * self.features
        pitch, pitch_sums = 4 * whole_vectors(columns), 4 * whole_vectors(wide)
        span = self._widened_elements
        multiplied = "f32" if span else self.element_type
        item = Shape(multiplied).dtype.itemsize
        larger = item // Shape(self.element_type).dtype.itemsize
        contraction = contract_record(
            a=self.input,
            b=self.kernel,
            c=0,
            row_a=self.positions.table * larger,
            row_c=np.arange(positions, dtype=np.int64) * pitch,
            offset_a=self.inputs.table * larger,
            offset_b=np.arange(len(self.inputs), dtype=np.int64) * (item * columns),
            columns=columns,
            stride_b=item,
            rows_per_unit=positions,
            columns_per_unit=columns,
            element_bytes=item,
        )
        flat = len(self.window) == 1
        high, height, rows = (WindowDimension(1), 1, 1) if flat else (self.window[0], self.sources[0], self.field[0])
        row_starts, row_offsets = _reaching(high, height, rows, self.sources[-1] * pitch, 4 * wide)
        last = self.window[-1], self.sources[-1], self.field[-1]
        column_starts, column_offsets = _reaching(*last, pitch_sums, 4 * self.features)
        layout = ScratchLayout()
        layout.nested(0, contract_scratch_for(multiplied))
        products = layout.area(positions * pitch)
        row_sums = layout.area(self.sources[-1] * pitch_sums)
        kernel = layout.area(4 * whole_vectors(len(self.inputs) * columns) if span else 0)
        image = layout.area(4 * whole_vectors(span))
        overlap = Overlap(
            **vars(contraction),
            output=self.output,
            image_a=self.input_image,
            image_output=self.output_image,
            row_output=self.output_row,
            position_output=self.output_position,
            output_rows=rows,
            output_columns=self.field[-1],
            features=self.features,
            input_columns=self.sources[-1],
            sums=wide,
            pitch_products=pitch,
            pitch_sums=pitch_sums,
            row_starts=row_starts,
            row_offsets=row_offsets,
            column_starts=column_starts,
            column_offsets=column_offsets,
            products=products,
            row_sums=row_sums,
            wide_kernel=kernel,
            wide_image=image,
            image_elements=span,
        )
        codelet = overlap_add(self.element_type, self._has_pairs, bool(span))
        return Encoded.of(codelet, block(overlap), layout.space())

    @property
    def _has_pairs(self) -> bool:
        """Whether bf16 values of the input are stored as pairs of features, and multiplied as pairs."""
        run = run_of(self.inputs.table, Shape(self.element_type).dtype.itemsize)
        return self.element_type == "bf16" and run % 2 == len(self.inputs) % 2 == 0 and multiplies_bf16_pairs()

    @property
    def _widened_elements(self) -> int:
        """Number of elements from the first to the last of an image of 16-bit floats, if these are widened; else 0."""
        if self.element_type == "f32" or self._has_pairs:
            return 0
        tables = self.positions.table, self.inputs.table
        span = sum(int(each.max(initial=0)) for each in tables) // 2 + 1
        dense = min(int(each.min(initial=0)) for each in tables) == 0 and span <= SPARSE * prod(map(len, tables))
        return span if dense and span <= MOST_WIDENED else 0


def whole_vectors(elements: int) -> int:
    """Elements rounded up to whole vectors of this processor."""
    return -(-elements // lanes()) * lanes()


def _reaching(window: WindowDimension, size: int, outputs: int, position: int, tap: int) -> tuple[np.ndarray, ...]:
    """Starts of each output's list, and the lists: byte offsets of the products of inputs and taps that it sums."""
    starts, offsets = [0], []
    for output in range(outputs):
        for number in range(window.size):
            at = output + number * window.window_dilation - window.padding_low
            if at % window.base_dilation == 0 and 0 <= at < size * window.base_dilation:
                offset = window.size - 1 - number if window.window_reversal else number
                offsets.append(at // window.base_dilation * position + offset * tap)
        starts.append(len(offsets))
    return np.array(starts, np.int64), np.array(offsets, np.int64)
