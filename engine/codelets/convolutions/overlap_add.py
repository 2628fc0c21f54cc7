"""Convolutions of stride 1 with few output features: each input position adds to the outputs it contributes to.

First the products of an image's positions with the kernel, [input row, input column, taps x features], are computed in
scratch; the lanes run over taps and features together. Then, for each row of the output, the products of the input rows
that contribute to it are summed, and for each output position the sums of the input columns that contribute to it.

Parameters: `Overlap`. Unit: one image.

Convolutions as products of input positions with all taps, which are summed where they overlap in the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from engine.codelets.language import vector
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.encoded import Encoded, HostWork
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I64, load_i64, loaded_i64
from engine.codelets.language.record import Address, Table, block, word
from engine.codelets.language.scratch import ScratchLayout
from engine.codelets.products import contract_f32
from engine.codelets.products.contract import Block, Operands
from engine.codelets.products.contract_fields import Field, contract_record
from engine.codelets.products.contract_half import half_contraction
from engine.codelets.products.micro_kernel import library
from engine.codelets.products.pack import copied_run
from engine.ir.attributes import WindowDimension
from engine.ir.shape import Shape
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes, multiplies_bf16_pairs
from engine.program.work.contraction import Contraction, Grid
from engine.program.work.offsets import Offsets, run_of

LANES = lanes()


class Overlap(Field):
    """The contraction of an image, and the tables for summing its products."""

    output: Address
    image_a: int  # bytes between the images of A and of the output
    image_output: int
    row_output: int  # bytes between rows and between positions of the output
    position_output: int
    output_rows: int
    output_columns: int
    features: int
    input_columns: int
    sums: int  # elements of an input column that are summed: taps along a row x features
    pitch_products: int  # bytes between the products of two positions
    pitch_sums: int  # bytes between the sums of two input columns
    row_starts: Table  # for each output row the start of its entries in row_offsets, which has offsets of products
    row_offsets: Table
    column_starts: Table  # likewise for output columns and offsets of sums
    column_offsets: Table
    products: int  # offset in scratch, after the executor's words
    row_sums: int  # offset in scratch
    wide_kernel: int  # offset in scratch of the kernel in float32, where 16-bit floats are widened once
    wide_image: int  # offset in scratch of an image in float32
    image_elements: int  # number of elements from an image's first to its last


@cache
def _adding(store: str) -> Any:
    """The intrinsic that stores sums in the element type `store`."""

    @intrinsic
    def add_vectors(
        builder: ir.IRBuilder, base: ir.Value, offsets: ir.Value, count: ir.Value, target: ir.Value, columns: ir.Value
    ) -> None:
        """Stores the first `columns` lanes of the sum of `count` vectors at base + offsets[i] at `target`."""
        mask = vector.lane_mask(builder, columns)
        end = builder.add(offsets, builder.mul(count, I64(8)))
        loop = EmittedLoop(builder, "add", offsets, end, I64(8), [vector.zeros()], may_be_empty=True)
        offset = loaded_i64(builder, loop.at)
        loop.close([builder.fadd(loop.carried[0], vector.load_vector(builder, builder.add(base, offset), mask))])
        vector.store_vector(builder, loop.carried[0], target, mask, store)

    return add_vectors


add_floats = _adding("f32")


@inner
def _add_rows(parameters: int, row: int, products: int, sums: int) -> None:
    """Computes the sums of all input columns for one output row."""
    starts = word(parameters, Overlap.ROW_STARTS) + 8 * row
    begin = load_i64(starts)
    count = load_i64(starts + 8) - begin
    offsets = word(parameters, Overlap.ROW_OFFSETS) + 8 * begin
    elements = word(parameters, Overlap.SUMS)
    for column in range(word(parameters, Overlap.INPUT_COLUMNS)):
        source = products + column * word(parameters, Overlap.PITCH_PRODUCTS)
        target = sums + column * word(parameters, Overlap.PITCH_SUMS)
        for n in range(0, elements, LANES):
            add_floats(source + 4 * n, offsets, count, target + 4 * n, min(LANES, elements - n))


@cache
def overlap_add(element_type: str, pairs: bool = False, widened: bool = False) -> Codelet:
    """The codelet for f32, f16 or bf16; results are rounded once.

    With `pairs` bf16 values are multiplied in pairs, not widened. With `widened` the contraction is of float32: the
    kernel is widened for all units of a call, and each image as a whole.
    """
    size = vector.BYTES[element_type]
    add_vectors, widen_run = _adding(element_type), copied_run(element_type, "f32")
    multiplied = "f32" if widened else element_type
    contract = contract_f32.contract if multiplied == "f32" else half_contraction(element_type, "f32", pairs)

    @inner
    def add_columns(parameters: int, sums: int, output: int) -> None:
        """Computes one output row from its sums."""
        features = word(parameters, Overlap.FEATURES)
        for column in range(word(parameters, Overlap.OUTPUT_COLUMNS)):
            starts = word(parameters, Overlap.COLUMN_STARTS) + 8 * column
            begin = load_i64(starts)
            count = load_i64(starts + 8) - begin
            offsets = word(parameters, Overlap.COLUMN_OFFSETS) + 8 * begin
            target = output + column * word(parameters, Overlap.POSITION_OUTPUT)
            for n in range(0, features, LANES):
                add_vectors(sums + 4 * n, offsets, count, target + size * n, min(LANES, features - n))

    def overlap_add(parameters: int, lo: int, hi: int, scratch: int) -> None:
        own = scratch + RESERVED_SCRATCH
        products, sums = own + word(parameters, Overlap.PRODUCTS), own + word(parameters, Overlap.ROW_SUMS)
        rows, columns, k = word(parameters, Field.ROWS), word(parameters, Field.COLUMNS), word(parameters, Field.K)
        b, block = word(parameters, Field.B), Block(0, rows, 0, columns, 0, k)
        if widened:
            b = own + word(parameters, Overlap.WIDE_KERNEL)
            widen_run(word(parameters, Field.B), b, k * columns)
        for unit in range(lo, hi):
            a = word(parameters, Field.A) + unit * word(parameters, Overlap.IMAGE_A)
            if widened:
                image = own + word(parameters, Overlap.WIDE_IMAGE)
                widen_run(a, image, word(parameters, Overlap.IMAGE_ELEMENTS))
                a = image
            contract(Operands(parameters, a, b, products, own), block)
            output = word(parameters, Overlap.OUTPUT) + unit * word(parameters, Overlap.IMAGE_OUTPUT)
            for row in range(word(parameters, Overlap.OUTPUT_ROWS)):
                _add_rows(parameters, row, products, sums)
                add_columns(parameters, sums, output + row * word(parameters, Overlap.ROW_OUTPUT))

    name = f"overlap_add_{element_type}" + "_pairs" * pairs + "_widened" * widened
    return Codelet(overlap_add, name, (library("f32", pairs),), in_vectors=True)


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
        from engine.codelets.products.contract_plain import contract_for

        positions = len(self.positions)
        columns = int(np.prod([w.size for w in self.window])) * self.features
        wide = self.window[-1].size * self.features
        pitch, pitch_sums = 4 * whole_vectors(columns), 4 * whole_vectors(wide)
        span = self._widened_elements
        multiplied = "f32" if span else self.element_type
        item = Shape(multiplied).dtype.itemsize
        larger = item // Shape(self.element_type).dtype.itemsize
        inputs, once = len(self.inputs), Offsets(np.zeros(1, np.int64))
        contraction = Contraction(
            *(self.input, self.kernel, self.output),
            row_a=Offsets(self.positions.table * larger),
            row_c=Offsets(np.arange(positions) * pitch),
            k_a=Offsets(self.inputs.table * larger),
            k_b=Offsets(np.arange(inputs) * (item * columns)),
            batch_a=once,
            batch_b=once,
            batch_c=once,
            columns=columns,
            stride_b=item,
            grid=Grid(positions, columns, inputs),
            operand_type=multiplied,
            result_type="f32",
        )
        flat = len(self.window) == 1
        high, height, rows = (WindowDimension(1), 1, 1) if flat else (self.window[0], self.sources[0], self.field[0])
        row_starts, row_offsets = _reaching(high, height, rows, self.sources[-1] * pitch, 4 * wide)
        last = self.window[-1], self.sources[-1], self.field[-1]
        column_starts, column_offsets = _reaching(*last, pitch_sums, 4 * self.features)
        layout = ScratchLayout()
        layout.nested(0, contract_for(multiplied)[1])
        products = layout.area(positions * pitch)
        row_sums = layout.area(self.sources[-1] * pitch_sums)
        kernel = layout.area(4 * whole_vectors(len(self.inputs) * columns) if span else 0)
        image = layout.area(4 * whole_vectors(span))
        overlap = Overlap(
            **vars(contract_record(contraction)),
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
