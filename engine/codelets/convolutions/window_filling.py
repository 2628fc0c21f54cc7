"""Windows of images in scratch, with zeros around the image: a vector of channels for each column and plane."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from engine.codelets.language import vector
from engine.codelets.language.build import inner
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I32, I64, prefetch_at
from engine.codelets.language.record import Address, Record, Table, word
from engine.codelets.language.switched import switched
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes, registers

LANES = lanes()
VECTOR = 4 * LANES
"""Bytes of an element of a window: a vector of channels."""
STEPS = (1, 2)
"""Columns between the inputs of neighbouring outputs."""
RUNS = (7, 5, 3, 2)
"""Columns of runs of taps that have kernels; other taps are runs of one."""
MOST_TAPS = 9
"""Most taps of runs of one, whose sums of a gradient are in registers together."""


MOST_PLANES = 16
"""Most inputs of a group."""


class ColumnRun(NamedTuple):
    """Taps of neighbouring columns, of outputs `step` columns apart; sums begin at the last one if `backward`."""

    step: int
    columns: int
    backward: bool = False


class FeatureGroup(NamedTuple):
    """Features of a group of a grouped convolution; a depthwise group has one input and one output.

    A window has a plane for each of the inputs: lane l of a plane has the input in the group of output l.
    """

    inputs: int = 1
    outputs: int = 1

    def before(self, outputs: int) -> int:
        """The inputs of all groups before an output that is the first of its group."""
        return outputs // self.outputs * self.inputs

    @property
    def fills_few_lanes(self) -> bool:
        """Whether one group leaves lanes idle, whole groups fill them, and its planes fit in a near cache."""
        few = 1 <= self.outputs < LANES and LANES % self.outputs == 0
        return few and self != DEPTHWISE and self.inputs <= MOST_PLANES


DEPTHWISE = FeatureGroup()


def most_columns(run: ColumnRun) -> int:
    """Most outputs of a row whose sums are in registers, with the sums of another row and a run's factors."""
    return 8 if registers() == 32 else 4 if run.columns <= 5 else 3


def most_runs(run: ColumnRun) -> int:
    """Runs whose sums of a gradient are in registers at a time, besides columns that the next output reads again."""
    kept = max(0, run.columns - run.step)
    return MOST_TAPS if run.columns == 1 else max(1, (registers() - 3) // (run.columns + kept))


AHEAD = 2
"""The number of vectors by which the channels that are prefetched are ahead of those that are read."""


class Windows(Record):
    """Images A and C, or gradients of outputs, with contiguous channels; strides are bytes."""

    a: Address
    c: Address
    channels: int  # of outputs
    images: int
    rows: int  # of an image's outputs
    columns: int
    image_a: int
    row_a: int
    column_a: int
    image_c: int
    row_c: int
    column_c: int
    rows_a: int  # of an image: taps read zeros outside of it
    columns_a: int
    first_row: int  # that the first output reads, and its first column
    first_column: int
    step_rows: int  # between outputs
    reach_rows: int  # that the taps of an output span
    width: int  # columns of a window
    row_bytes: int  # of a window: all planes
    block_rows: int  # of outputs of a window
    runs: int  # of taps in neighbouring columns of a plane
    offset_a: Table  # [runs], in a window


@inner
def ahead_of(channels: int, at: int, step: int, row: int, rows: int) -> int:
    """Distance in bytes from channel `at` to the next element to prefetch, AHEAD vectors of `step` channels later.

    After the last channel it is `rows` rows further on.
    """
    later = at + AHEAD * step
    return 4 * AHEAD * step if later < channels else rows * row + 4 * (later - channels) // VECTOR * VECTOR - 4 * at


def spreading(group: FeatureGroup) -> Any:
    """`move(1, source, pitch, ahead, target, plane, count, lanes)` fills `count` columns of planes `plane` bytes apart.

    Columns of the image are `pitch` bytes apart. Only `lanes` outputs exist. Memory `ahead` bytes later is prefetched.
    `move(0, ...)` stores zeros to `count` columns of the first plane.
    """

    def write(builder: ir.IRBuilder, case: int, arguments: tuple[ir.Value, ...]) -> None:
        source, pitch, ahead, target, plane, count, lanes = arguments
        masks = _masks(builder, group, lanes) if case else []
        loop = EmittedLoop(builder, "vectors", I64(0), count, I64(1), [source, target])
        source, target = loop.carried
        values = [vector.zeros()]
        if case:
            prefetch_at(builder, builder.add(source, ahead))
            found = [
                vector.load_vector(builder, builder.add(source, I64(VECTOR * number)), mask)
                for number, mask in enumerate(masks)
            ]
            values = [spread(builder, found, group, number) for number in range(group.inputs)]
        for number, value in enumerate(values):
            vector.store_vector(builder, value, builder.add(target, builder.mul(plane, I64(number))))
        loop.close([builder.add(source, pitch), builder.add(target, I64(VECTOR))])

    return switched(f"spread_of_{group.inputs}_to_{group.outputs}", range(2), write)


def _masks(builder: ir.IRBuilder, group: FeatureGroup, lanes: ir.Value) -> list[ir.Value]:
    """Masks of the vectors that hold the inputs of `lanes` outputs."""
    vectors = -(-group.before(LANES) // LANES)
    inputs = builder.mul(builder.udiv(lanes, I64(group.outputs)), I64(group.inputs))
    return [vector.lane_mask(builder, builder.sub(inputs, I64(LANES * number))) for number in range(vectors)]


def spread(builder: ir.IRBuilder, vectors: list[ir.Value], group: FeatureGroup, number: int) -> ir.Value:
    """Makes a plane: its lane l holds input `number` of the group to which output l belongs."""
    wanted = [group.before(lane - lane % group.outputs) + number for lane in range(LANES)]
    if wanted == list(range(LANES)):
        return vectors[0]
    if len(vectors) == 1:
        return _shuffled(builder, vectors[0], vectors[0], wanted)
    value = _shuffled(builder, vectors[0], vectors[1], [min(wish, 2 * LANES - 1) for wish in wanted])
    for at, other in enumerate(vectors[2:], 2):
        lanes = [LANES + wish % LANES if wish // LANES == at else lane for lane, wish in enumerate(wanted)]
        value = _shuffled(builder, value, other, lanes)
    return value


def _shuffled(builder: ir.IRBuilder, one: ir.Value, other: ir.Value, lanes: list[int]) -> ir.Value:
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(I32, LANES), lanes))


def copying() -> Any:
    """`copy_columns(g, row_g, pitch_g, ahead, target, rows, columns, lanes)` copies a vector of channels of some rows.

    The copy is contiguous: columns are neighbours, and rows follow one another.
    """
    move = spreading(DEPTHWISE)

    @inner
    def copy_columns(
        g: int, row_g: int, pitch_g: int, ahead: int, target: int, rows: int, columns: int, lanes: int
    ) -> None:
        for row in range(rows):
            move(1, g + row * row_g, pitch_g, ahead, target + row * columns * VECTOR, 0, columns, lanes)

    return copy_columns


@cache
def filling(group: FeatureGroup) -> Any:
    """`fill_window(parameters, image, row, rows, ahead, lanes, window)` copies a vector of channels of some rows.

    The rows begin with `row`, and are zero outside of the image.
    """
    move = spreading(group)

    @inner
    def fill_window(parameters: int, image: int, row: int, rows: int, ahead: int, lanes: int, window: int) -> None:
        width, column = word(parameters, Windows.WIDTH), word(parameters, Windows.FIRST_COLUMN)
        columns, pitch = word(parameters, Windows.COLUMNS_A), word(parameters, Windows.COLUMN_A)
        row_bytes = word(parameters, Windows.ROW_BYTES)
        before = min(max(-column, 0), width)
        begin = max(column, 0)
        inside = max(min(columns - begin, width - before), 0)
        after = width - before - inside
        plane = width * VECTOR
        for i in range(row, row + rows):
            if 0 <= i and i < word(parameters, Windows.ROWS_A):
                source = image + i * word(parameters, Windows.ROW_A) + begin * pitch
                for at in range(window, window + row_bytes, plane):
                    if before > 0:
                        move(0, 0, 0, 0, at, 0, before, lanes)
                    if after > 0:
                        move(0, 0, 0, 0, at + (before + inside) * VECTOR, 0, after, lanes)
                if inside > 0:
                    move(1, source, pitch, ahead, window + before * VECTOR, plane, inside, lanes)
            else:
                move(0, 0, 0, 0, window, 0, row_bytes // VECTOR, lanes)
            window += row_bytes

    return fill_window
