"""Work of convolutions with few output features, whose lanes are columns of outputs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from engine.codelets.convolutions.few_features import (
    LANES,
    MOST_FACTORS,
    RUNS,
    VECTOR,
    RowRun,
    most_sums,
    whole_vectors,
)
from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchLayout
from engine.host.encoded import Encoded, HostWork
from engine.program.buffer import Address

Three = tuple[int, int, int]
"""Sizes by slices, rows and columns."""


@dataclass(frozen=True, slots=True)
class Reads:
    """Taps along one dimension: output o reads input o * step + start for each of the `starts`, times kernel `taps`."""

    step: int
    starts: tuple[int, ...]
    taps: tuple[int, ...]

    @property
    def reach(self) -> int:
        """Inputs from the first to the last that one output reads."""
        return max(self.starts) - min(self.starts) + 1


@dataclass(frozen=True, slots=True)
class FewFeatures(HostWork):
    """Outputs of `images` with `features` each, from images of `inputs` contiguous features. Strides are bytes.

    `sources` and `field` count slices, rows and columns of inputs and outputs; the step along columns is 1. A unit has
    `unit_rows` rows of one slice.
    """

    a: Address
    b: Address
    c: Address
    images: int
    inputs: int
    features: int
    sources: Three
    field: Three
    reads: tuple[Reads, Reads, Reads]
    image_a: int
    strides_a: Three
    strides_b: Three
    input_b: int
    feature_b: int
    image_c: int
    strides_c: Three
    feature_c: int
    unit_rows: int

    @property
    def unit_count(self) -> int:
        return self.images * self.field[0] * -(-self.field[1] // self.unit_rows)

    @property
    def run(self) -> RowRun:
        """The longest runs of neighbouring rows that have a kernel and into which the taps of a column divide."""
        starts = sorted(self.reads[1].starts)
        for rows in RUNS if self.reads[1].step == 1 else ():
            parts = [starts[at : at + rows] for at in range(0, len(starts), rows)]
            if rows * self.features <= MOST_FACTORS and all(p == list(range(p[0], p[0] + rows)) for p in parts):
                return RowRun(rows, self.features)
        return RowRun(1, self.features)

    def encode(self) -> Encoded:
        """The words of `Few`; scratch has the planes of the rows that a unit reads, and sums."""
        from engine.codelets.convolutions.few_features import Few, few_features

        slices, rows, columns = self.reads
        low = -min(columns.starts)
        begin, before = max(-low, 0), max(low, 0)
        inside = max(0, min(self.sources[2] - begin, self.field[2] - 1 + columns.reach - before))
        plane = plane_bytes(self.field[2], columns.reach, before + whole_vectors(inside))
        window = window_bytes(self.inputs * plane, len(slices.starts), rows, self.unit_rows)
        layout = ScratchLayout()
        layout.area(window)
        parameters = Few(
            a=self.a,
            b=self.b,
            c=self.c,
            inputs=self.inputs,
            **dict(zip(("slices", "rows", "columns"), self.field, strict=True)),
            **dict(zip(("image_a", "slice_a", "row_a"), (self.image_a, *self.strides_a[:2]), strict=True)),
            **dict(zip(("image_c", "slice_c", "row_c", "column_c"), (self.image_c, *self.strides_c), strict=True)),
            feature_c=self.feature_c,
            feature_b=self.feature_b,
            slices_a=self.sources[0],
            rows_a=self.sources[1],
            step_slices=slices.step,
            step_rows=rows.step,
            window_slices=len(slices.starts),
            slice_starts=np.array(slices.starts, np.int64),
            first_row=min(rows.starts),
            reach_rows=rows.reach,
            begin=begin * self.strides_a[2],
            before=before,
            inside=inside,
            plane=plane,
            slice_bytes=window // len(slices.starts),
            column_offsets=np.arange(LANES, dtype=np.int64) * self.strides_a[2],
            block_rows=self.unit_rows,
            **self._runs(plane, window // len(slices.starts)),
            sums=layout.after_words(VECTOR * most_sums(self.features) * self.features),
        )
        return Encoded.of(few_features(self.run), block(parameters), layout.space())

    def _runs(self, plane: int, slice_bytes: int) -> dict[str, Any]:
        """The fields of `Few` for the runs, with columns innermost: they read the same cache lines."""
        slices, rows, columns = self.reads
        order = sorted(range(len(rows.starts)), key=lambda tap: rows.starts[tap])
        firsts = [order[at] for at in range(0, len(order), self.run.rows)]
        second = order[1] if self.run.rows > 1 else order[0]
        offsets_a, offsets_b = [], []
        for number, feature, row, column in product(
            range(len(slices.starts)), range(self.inputs), firsts, range(len(columns.starts))
        ):
            at = ((rows.starts[row] - min(rows.starts)) * self.inputs + feature) * plane
            offsets_a.append(number * slice_bytes + at + 4 * (columns.starts[column] - min(columns.starts)))
            taps = slices.taps[number], rows.taps[row], columns.taps[column]
            offsets_b.append(sum(t * s for t, s in zip(taps, self.strides_b, strict=True)) + feature * self.input_b)
        return {
            "runs": len(offsets_a),
            "tap_b": (rows.taps[second] - rows.taps[order[0]]) * self.strides_b[1],
            "offset_a": np.array(offsets_a, np.int64),
            "offset_b": np.array(offsets_b, np.int64),
        }


def plane_bytes(columns: int, reach: int, filled: int = 0) -> int:
    """Bytes of a row of one feature, rounded up to whole vectors."""
    return 4 * whole_vectors(max(whole_vectors(columns) + reach - 1, filled))


def window_bytes(row: int, slices: int, rows: Reads, unit_rows: int) -> int:
    """Bytes of a unit's window, whose rows have `row` bytes each."""
    return slices * ((unit_rows - 1) * rows.step + rows.reach) * row
