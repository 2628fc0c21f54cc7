"""The linear transforms of Winograd's convolutions, of runs of tiles.

With B, G and A as in Lavin and Gray (2015), the outputs are A'[(G g G') * (B' d B)]A for a kernel g and a tile d of
inputs; the gradient by the kernel is G'[(A y A') * (B' d B)]G, summed over tiles y of the outputs' gradients. Lanes run
over features. The tiles of a run are neighbours in a row of tiles, and their columns overlap.

A table has the address of column 0 and the bytes between columns, both int64, for each row of a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from engine.codelets.convolutions.cook_toom import ROW_WORDS, Transform
from engine.codelets.convolutions.linear_forms import applied, offset_in
from engine.codelets.language import vector
from engine.codelets.language.build import Inner, inner
from engine.codelets.language.intrinsic import intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I64, loaded_i64, prefetch_at
from engine.codelets.language.switched import outlined
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes, registers

LANES = lanes()
LINE = 64  # bytes of a cache line
Rows = list[tuple[ir.Value, ir.Value]]
"""The address and the stride of each row."""


def _groups(rows: int) -> list[tuple[int, ...]]:
    """Rows of results that are computed together.

    Two rows have common parts: with 16 registers, all six columns of a group fit.
    """
    if registers() > 16 or rows != 6:
        return [tuple(range(rows))]
    return [(0, 5), (1, 2), (3, 4)]


@cache
def reading_runs(transform: Transform, element_type: str) -> Inner:
    """Makes the function that transforms tiles of an image, inputs or gradients of outputs, to float32."""
    whole, rest = (_intrinsic(_reading, transform, element_type, masked) for masked in (False, True))

    @inner
    def transform_run(
        rows: int,
        column: int,
        columns: int,
        tiles: int,
        target: int,
        pitches: tuple[int, int, int],
        ahead: int,
        features: int,
    ) -> None:
        """Stores vector v of position p of tile i at target + i * tile + v * vector + p * position: the `pitches`.

        The first tile begins at `column`; columns outside 0 <= column < `columns` are zeros, and are not read. The
        memory `ahead` bytes after a tile's last rows is prefetched.
        """
        vectors, (tile, vector, position) = features // LANES, pitches
        if vectors > 0:
            whole(rows, column, columns, tiles, target, tile, vector, position, ahead, 0, vectors)
        if features % LANES != 0:
            done = target + vectors * vector
            rest(rows, column, columns, tiles, done, tile, vector, position, ahead, vectors, features % LANES)

    return transform_run


@cache
def writing_runs(transform: Transform, element_type: str) -> Inner:
    """Makes the function that transforms products to tiles of an image of this type."""
    whole, rest = (_intrinsic(_writing, transform, element_type, masked) for masked in (False, True))

    @inner
    def transform_run(
        rows: int,
        column: int,
        columns: int,
        tiles: int,
        source: int,
        tile: int,
        position: int,
        ahead: int,
        features: int,
    ) -> None:
        """Reads position p of tile i at source + i * tile + p * position; writes no columns from `columns` on.

        Results are stored from the last to the first, so where rows share an address, the first of them remains. The
        memory `ahead` bytes after a tile is prefetched for writing.
        """
        vectors = features // LANES
        if vectors > 0:
            whole(rows, column, columns, tiles, source, tile, 0, position, ahead, 0, vectors)
        if features % LANES != 0:
            rest(rows, column, columns, tiles, source, tile, 0, position, ahead, vectors, features % LANES)

    return transform_run


def _intrinsic(body: Callable[..., None], transform: Transform, element_type: str, masked: bool) -> Any:
    """Makes the intrinsic for whole vectors from `begin` on, or for some lanes of the vector there."""

    name = f"{transform.name}_run_{element_type}" + "_masked" * masked

    def write(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        *leading, begin, count = arguments
        mask = vector.lane_mask(builder, count) if masked else None
        begin = builder.mul(begin, I64(4 * LANES))
        end = builder.add(begin, I64(4 * LANES) if masked else builder.mul(count, I64(4 * LANES)))
        body(builder, (transform, element_type), mask, (begin, end), *leading)

    @intrinsic
    def transform_vectors(builder: ir.IRBuilder, *arguments: ir.Value) -> None:
        outlined(builder, name, write, arguments)

    return transform_vectors


def _reading(
    builder: ir.IRBuilder,
    transformed: tuple[Transform, str],
    mask: ir.Value | None,
    span: tuple[ir.Value, ir.Value],
    *arguments: ir.Value,
) -> None:
    """Transforms vector by vector, along the run, in each group of rows: columns that tiles share are loaded once."""
    transform, element_type = transformed
    table, column, _, _, target, _, vector_pitch, *_ = arguments
    rows = _rows(builder, table, column, len(transform.rows[0]))
    vectors = EmittedLoop(builder, "vectors", *span, I64(4 * LANES), [target])
    first_byte = offset_in(builder, vectors.at, element_type)
    begin = [(builder.add(address, first_byte), stride) for address, stride in rows]
    for group in _groups(len(transform.rows)):
        _read_run(builder, transformed, group, begin, vectors.carried[0], mask, *arguments)
    vectors.close([builder.add(vectors.carried[0], vector_pitch)])


def _read_run(
    builder: ir.IRBuilder,
    transformed: tuple[Transform, str],
    results: tuple[int, ...],
    rows: Rows,
    target: ir.Value,
    mask: ir.Value | None,
    *arguments: ir.Value,
) -> None:
    """Transforms one vector of features of all tiles of a run, to a group of rows of results."""
    transform, element_type = transformed
    _, column, columns, tiles, _, tile, _, position, ahead = arguments
    matrix, strides = tuple(transform.rows[row] for row in results), [stride for _, stride in rows]
    below, kept = (
        n - outputs for n, outputs in zip((len(rows), len(transform.columns[0])), transform.outputs, strict=True)
    )
    starts = [address for address, _ in rows]
    known: list[ir.Value] = []
    for number in range(kept):
        loaded = _column(builder, starts, builder.add(column, I64(number)), columns, mask, element_type)
        known += applied(builder, matrix, loaded)
        starts = [builder.add(start, stride) for start, stride in zip(starts, strides, strict=True)]
    first = [builder.add(column, I64(kept)), target, *starts, *known]
    run = EmittedLoop(builder, "tiles", I64(0), tiles, I64(1), first)
    at, written, *held = run.carried
    starts, block = held[: len(rows)], held[len(rows) :]
    for _ in range(transform.outputs[1]):
        for start in starts[below:] if results[0] == 0 else ():
            prefetch_at(builder, builder.add(start, ahead))
        block = [*block, *applied(builder, matrix, _column(builder, starts, at, columns, mask, element_type))]
        starts = [builder.add(start, stride) for start, stride in zip(starts, strides, strict=True)]
        at = builder.add(at, I64(1))
    for number, row in enumerate(results):
        line = builder.add(written, builder.mul(position, I64(row * len(transform.columns))))
        for place, value in enumerate(applied(builder, transform.columns, block[number :: len(results)])):
            address = builder.add(line, builder.mul(position, I64(place)))
            vector.store_vector(builder, value, address, mask)
    run.close([at, builder.add(written, tile), *starts, *block[len(results) * transform.outputs[1] :]])


def _writing(
    builder: ir.IRBuilder,
    transformed: tuple[Transform, str],
    mask: ir.Value | None,
    span: tuple[ir.Value, ir.Value],
    *arguments: ir.Value,
) -> None:
    """Transforms tile by tile: the products of a tile are contiguous."""
    transform, element_type = transformed
    table, first, columns, tiles, source, tile, _, position, ahead = arguments
    rows, width, outputs = (
        _rows(builder, table, first, transform.outputs[0]),
        len(transform.columns[0]),
        transform.outputs[1],
    )
    run = EmittedLoop(builder, "tiles", I64(0), tiles, I64(1), [first, source, *(address for address, _ in rows)])
    at, read, *starts = run.carried
    targets: list[ir.Value] = []
    for start, (_, stride) in zip(starts, rows, strict=True):
        targets.append(start)
        for number in range(1, outputs):
            exists = builder.icmp_signed("<", builder.add(at, I64(number)), columns)
            column = builder.add(start, builder.mul(stride, I64(number)))
            targets.append(builder.select(exists, column, start))
    # Without this, stores wait for memory: a third of a convolution of 16 features whose images are in no cache.
    lines = EmittedLoop(builder, "lines", *span, I64(LINE * 4 // vector.BYTES[element_type]))
    written = builder.add(ahead, offset_in(builder, lines.at, element_type))
    for target in targets:
        prefetch_at(builder, builder.add(target, written), writes=True)
    lines.close()
    vectors = EmittedLoop(builder, "vectors", *span, I64(4 * LANES))
    block = []
    for number in range(len(transform.rows[0]) * width):
        address = builder.add(builder.add(read, vectors.at), builder.mul(position, I64(number)))
        block.append(vector.load_vector(builder, address, mask))
    offset = offset_in(builder, vectors.at, element_type)
    across = [applied(builder, transform.rows, block[column::width]) for column in range(width)]
    made = [value for row in zip(*across, strict=True) for value in applied(builder, transform.columns, row)]
    for value, target in reversed(list(zip(made, targets, strict=True))):
        vector.store_vector(builder, value, builder.add(target, offset), mask, element_type)
    vectors.close()
    steps = [builder.mul(stride, I64(outputs)) for _, stride in rows]
    following = [builder.add(start, step) for start, step in zip(starts, steps, strict=True)]
    run.close([builder.add(at, I64(outputs)), builder.add(read, tile), *following])


def _rows(builder: ir.IRBuilder, table: ir.Value, column: ir.Value, count: int) -> Rows:
    """The rows of a table, from a column on."""
    words = [loaded_i64(builder, builder.add(table, I64(8 * i))) for i in range(ROW_WORDS * count)]
    pairs = zip(words[::ROW_WORDS], words[1::ROW_WORDS], strict=True)
    return [(builder.add(address, builder.mul(column, stride)), stride) for address, stride in pairs]


def _column(
    builder: ir.IRBuilder,
    addresses: list[ir.Value],
    column: ir.Value,
    columns: ir.Value,
    mask: ir.Value | None,
    element_type: str,
) -> list[ir.Value]:
    """The vectors of a column of a tile; a column outside of the image is zeros."""
    before, load = builder.block, builder.append_basic_block("column")
    following = builder.append_basic_block("following")
    builder.cbranch(builder.icmp_unsigned("<", column, columns), load, following)
    builder.position_at_end(load)
    loaded = [vector.load_vector(builder, each, mask, element_type) for each in addresses]
    builder.branch(following)
    builder.position_at_end(following)
    values = []
    for each in loaded:
        value = builder.phi(vector.vector_type())
        value.add_incoming(each, load)
        value.add_incoming(vector.zeros(), before)
        values.append(value)
    return values
