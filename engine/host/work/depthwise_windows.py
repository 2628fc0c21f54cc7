"""Work of depthwise and grouped convolutions, and of their gradients by the kernel, by windows of images in scratch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.codelets.convolutions.window_filling import RUNS, VECTOR, ColumnRun, FeatureGroup
from engine.codelets.language.record import block
from engine.codelets.language.scratch import ScratchLayout
from engine.host.encoded import Encoded, HostWork
from engine.host.work.winograd_tiles import Images, Strides, footprints
from engine.program.buffer import Address
from engine.program.work.base import Footprint
from engine.program.work.offsets import Offsets

Taps = tuple[tuple[int, int], ...]
WINDOW_BYTES = 24 << 10
"""Most bytes of a window in scratch: it stays in the first-level cache."""
GROUPED_BYTES = 192 << 10
"""Most bytes of a window with several planes, whose multiply-adds leave time to read it from the second-level cache."""


@dataclass(frozen=True, slots=True)
class DepthwiseWork(HostWork):
    """Output o of each image reads inputs o * step + tap - low along rows and columns; inputs outside are zeros.

    `taps` are rows and columns of the window, from 0 on, in the order of the sums; the window has one row for each row
    of an image and each input of a group. Strides are bytes between images, rows and columns; channels are contiguous.
    `channels` counts the outputs' channels.
    """

    a: Address
    c: Address
    images: int
    channels: int
    size: tuple[int, int]
    low: tuple[int, int]
    field: tuple[int, int]
    step: tuple[int, int]
    taps: Taps
    strides_a: Strides
    strides_c: Strides
    offsets_b: Offsets
    group: FeatureGroup


@dataclass(frozen=True, slots=True)
class DepthwiseWindows(DepthwiseWork):
    """The outputs C of images A by the kernel B. A unit has `unit_rows` rows of all images."""

    b: Address
    unit_rows: int

    @property
    def unit_count(self) -> int:
        return -(-self.images * self.field[0] // self.unit_rows)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of the images."""
        return footprints(self.images, *_arrays(self), self.c)

    def encode(self) -> Encoded:
        """The words of `Forward`; scratch has a window."""
        from engine.codelets.convolutions.depthwise_windows import Forward, depthwise_forward

        run = _run(self.taps, self.step[1])
        fields, scratch = _fields(self, _first_taps(self.taps, run))
        parameters = Forward(**fields, b=self.b, offset_b=self.offsets_b.table, unit_rows=self.unit_rows)
        return Encoded.of(depthwise_forward(run, self.group), block(parameters), scratch)


@dataclass(frozen=True, slots=True)
class DepthwiseGradient(DepthwiseWork):
    """The gradient of a depthwise or grouped convolution by its kernel; C has the gradients of its outputs.

    The rows of all outputs are divided into parts. The sums of part p begin p * `part_bytes` further on, the sums of
    each tap at an offset of `offsets_b`. A unit has `unit_channels` channels of a part.
    """

    sums: Address
    parts: int
    part_bytes: int
    unit_channels: int

    @property
    def unit_count(self) -> int:
        return self.parts * -(-self.channels // self.unit_channels)

    def footprints(self) -> Iterator[Footprint]:
        """Footprints from the first to the last element of the images."""
        return footprints(self.images, *_arrays(self), self.sums)

    def encode(self) -> Encoded:
        """The words of `Backward`; scratch has a window."""
        from engine.codelets.convolutions.depthwise_windows import Backward, depthwise_gradient

        planes = self.group.inputs
        order = sorted(range(len(self.taps)), key=lambda tap: (self.taps[tap][0] % planes, self.taps[tap]))
        taps = tuple(self.taps[tap] for tap in order)
        run = _run(taps, self.step[1])
        fields, window = _fields(self, _first_taps(taps, run))
        layout = ScratchLayout()
        layout.area(window)
        parameters = Backward(
            **fields,
            sums=self.sums,
            row_sums=self.offsets_b.table[order],
            parts=self.parts,
            part_bytes=self.part_bytes,
            unit_channels=self.unit_channels,
            copied=layout.area(VECTOR * fields["block_rows"] * self.field[1]),
        )
        return Encoded.of(depthwise_gradient(run, self.group), block(parameters), layout.space())


def _arrays(work: DepthwiseWork) -> tuple[Images, Images]:
    inputs = Images(work.a, work.group.before(work.channels), work.strides_a, work.size, work.low)
    return inputs, Images(work.c, work.channels, work.strides_c, work.field)


def _run(taps: Taps, step: int) -> ColumnRun:
    """The longest runs of neighbouring columns that have a kernel and into which all taps divide."""
    for columns in RUNS:
        for sign in (1, -1):
            if (
                all(
                    tap == (taps[first][0], taps[first][1] + sign * number)
                    for first in range(0, len(taps), columns)
                    for number, tap in enumerate(taps[first : first + columns])
                )
                and len(taps) % columns == 0
            ):
                return ColumnRun(step, columns, sign < 0)
    return ColumnRun(step, 1)


def _first_taps(taps: Taps, run: ColumnRun) -> list[tuple[int, int]]:
    """The tap of the first column of each run."""
    return [min(taps[at : at + run.columns]) for at in range(0, len(taps), run.columns)]


def _fields(work: DepthwiseWork, runs: list[tuple[int, int]]) -> tuple[dict[str, Any], int]:
    """The fields of `Windows`, and the bytes of a window in scratch."""
    planes = work.group.inputs
    reach = 1 + max(row for row, _ in work.taps) // planes
    width = (work.field[1] - 1) * work.step[1] + 1 + max(column for _, column in work.taps)
    plane = VECTOR * width
    row = plane * planes
    most = WINDOW_BYTES if planes == 1 else GROUPED_BYTES
    rows = max(1, min(work.field[0], (most // row - reach) // work.step[0] + 1))
    rows -= rows % 2 if 1 < planes and 1 < rows < work.field[0] else 0  # kernels take pairs of rows
    fields = {
        "a": work.a,
        "c": work.c,
        "channels": work.channels,
        "images": work.images,
        "rows": work.field[0],
        "columns": work.field[1],
        **dict(zip(("image_a", "row_a", "column_a"), work.strides_a, strict=True)),
        **dict(zip(("image_c", "row_c", "column_c"), work.strides_c, strict=True)),
        "rows_a": work.size[0],
        "columns_a": work.size[1],
        "first_row": -work.low[0],
        "first_column": -work.low[1],
        "step_rows": work.step[0],
        "reach_rows": reach,
        "width": width,
        "row_bytes": row,
        "block_rows": rows,
        "runs": len(runs),
        "offset_a": np.array([y * plane + VECTOR * x for y, x in runs], np.int64),
    }
    return fields, ((rows - 1) * work.step[0] + reach) * row
