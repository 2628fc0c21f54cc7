"""The linear transforms of Winograd's convolutions, of runs of tiles.

With B, G and A as in Lavin and Gray (2015), the outputs are A'[(G g G') * (B' d B)]A for a kernel g and a tile d of
inputs; the gradient by the kernel is G'[(A y A') * (B' d B)]G, summed over tiles y of the outputs' gradients. Lanes run
over features. The tiles of a run are neighbours in a row of tiles, and their columns overlap.

A table has the address of column 0, int64, for each row of a tile. Columns are `stride` bytes apart.
"""

from __future__ import annotations

from functools import cache, partial

from engine.codelets.convolutions.cook_toom import Matrix, Transform
from engine.codelets.convolutions.linear_forms import applied, named, offset_in, paired_rows
from engine.codelets.convolutions.transform_code import LANES, VECTOR, Span, transform_code
from engine.codelets.language import vector
from engine.codelets.language.build import MachineCode
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I64, call, loaded_i64, prefetch_at
from engine.machine_code.llvm import ir
from engine.machine_code.processor import registers

LINE = 64  # bytes of a cache line


def _groups(transform: Transform) -> list[tuple[int, ...]]:
    """Rows of results that are computed together: two rows with common parts, of whose columns a tile's are kept."""
    rows = range(len(transform.rows))
    if len(rows) * len(transform.columns[0]) <= registers():
        return [tuple(rows)]
    pairs = paired_rows(transform.rows)
    alone = [row for row in rows if not any(row in pair for pair in pairs)]
    return [*(tuple(alone[at : at + 2]) for at in range(0, len(alone), 2)), *pairs]


@cache
def reading_runs(transform: Transform, element_type: str) -> MachineCode:
    """The code that transforms tiles of an image, inputs or gradients of outputs, to float32.

    `f(rows, stride, column, columns, tiles, target, tile, vector, position, ahead, features)` stores vector v of
    position p of tile i at target + i * tile + v * vector + p * position. The first tile begins at `column`; columns
    outside 0 <= column < `columns` are zeros, and are not read. The memory `ahead` bytes after a tile's last rows is
    prefetched.
    """
    return transform_code(named(transform.name, element_type), 10, partial(_reading, (transform, element_type)))


@cache
def writing_runs(transform: Transform, element_type: str) -> MachineCode:
    """The code that transforms products to tiles of an image of this type.

    `f(rows, stride, column, columns, tiles, source, tile, position, ahead, features)` reads position p of tile i at
    source + i * tile + p * position; it writes no columns from `columns` on. Results are stored from the last to the
    first, so where rows share an address, the first of them remains. The memory `ahead` bytes after a tile is
    prefetched for writing.
    """
    return transform_code(named(transform.name, element_type), 9, partial(_writing, (transform, element_type)))


def _reading(
    transformed: tuple[Transform, str],
    builder: ir.IRBuilder,
    mask: ir.Value | None,
    span: Span,
    *arguments: ir.Value,
) -> None:
    """Transforms vector by vector, along the run, in each group of rows: columns that tiles share are loaded once."""
    transform, element_type = transformed
    table, stride, _, _, _, target, _, vector_pitch, _, ahead = arguments
    target = builder.add(target, builder.mul(builder.udiv(span[0], I64(VECTOR)), vector_pitch))
    vectors = EmittedLoop(builder, "vectors", *span, I64(VECTOR), [target])
    first_byte, target = offset_in(builder, vectors.at, element_type), vectors.carried[0]
    rows = [builder.add(row, first_byte) for row in _rows(builder, table, len(transform.rows[0]))]
    # Each vector of a cache line prefetches other columns.
    share = builder.and_(builder.udiv(vectors.at, I64(VECTOR)), I64(_vectors_of_line(element_type) - 1))
    ahead = builder.add(ahead, builder.mul(share, stride))
    for group in _groups(transform):
        _read_run(builder, transformed, group, rows, mask, ahead, target, *arguments)
    vectors.close([builder.add(target, vector_pitch)])


def _read_run(
    builder: ir.IRBuilder,
    transformed: tuple[Transform, str],
    results: tuple[int, ...],
    rows: list[ir.Value],
    mask: ir.Value | None,
    ahead: ir.Value,
    target: ir.Value,
    *arguments: ir.Value,
) -> None:
    """Transforms one vector of features of all tiles of a run, to a group of rows of results."""
    transform, element_type = transformed
    _, stride, column, columns, tiles, _, tile, _, position, _ = arguments
    outputs = transform.outputs[1]
    shared = len(transform.columns[0]) - outputs

    def read(count: int, at: ir.Value, offset: ir.Value, checks: bool, ahead: ir.Value | None) -> list[ir.Value]:
        """The column after some columns from `at` on, its offset, and these columns' results."""
        made: list[ir.Value] = []
        for number in range(count):
            places = [builder.add(row, offset) for row in rows]
            if ahead is not None and number % _vectors_of_line(element_type) == 0:
                for place in places[len(rows) - transform.outputs[0] :]:
                    prefetch_at(builder, builder.add(place, ahead))
            exists = builder.icmp_unsigned("<", at, columns) if checks else None
            values = _column(builder, transform.rows, exists, places, mask, element_type)
            made += [values[row] for row in results]
            at, offset = builder.add(at, I64(1)), builder.add(offset, stride)
        return [at, offset, *made]

    at, offset, *known = read(shared, column, builder.mul(column, stride), True, None)
    inside = _tiles_inside(builder, at, columns, tiles, outputs)
    carried = [at, offset, target, *known]
    for begin, end, checks in ((I64(0), inside, False), (inside, tiles, True)):
        run = EmittedLoop(builder, "tiles", begin, end, I64(1), carried, may_be_empty=True)
        at, offset, written, *known = run.carried
        at, offset, *made = read(outputs, at, offset, checks, ahead if results[0] == 0 else None)
        known += made
        for number, row in enumerate(results):
            line = builder.add(written, builder.mul(position, I64(row * len(transform.columns))))
            for place, value in enumerate(applied(builder, transform.columns, known[number :: len(results)])):
                vector.store_vector(builder, value, builder.add(line, builder.mul(position, I64(place))), mask)
        run.close([at, offset, builder.add(written, tile), *known[outputs * len(results) :]])
        carried = run.carried


def _tiles_inside(
    builder: ir.IRBuilder, column: ir.Value, columns: ir.Value, tiles: ir.Value, outputs: int
) -> ir.Value:
    """The number of tiles, of `outputs` more columns each from `column` on, that read none outside of the image."""
    inside = builder.sdiv(builder.sub(columns, column), I64(outputs))
    inside = call(builder, "smax.i64", I64, I64(0), call(builder, "smin.i64", I64, inside, tiles))
    return builder.select(builder.icmp_signed("<", column, I64(0)), I64(0), inside)


def _writing(
    transformed: tuple[Transform, str],
    builder: ir.IRBuilder,
    mask: ir.Value | None,
    span: Span,
    *arguments: ir.Value,
) -> None:
    """Transforms tile by tile: the products of a tile are contiguous."""
    transform, element_type = transformed
    table, stride, first, columns, tiles, source, tile, position, ahead = arguments
    rows, outputs = _rows(builder, table, transform.outputs[0]), transform.outputs[1]
    run = EmittedLoop(builder, "tiles", I64(0), tiles, I64(1), [first, source, builder.mul(first, stride)])
    at, read, begin = run.carried
    offset, offsets = begin, [begin]
    for number in range(1, outputs):
        offset = builder.add(offset, stride)
        exists = builder.icmp_signed("<", builder.add(at, I64(number)), columns)
        offsets.append(builder.select(exists, offset, begin))
    # Without this, stores wait for memory: a third of a convolution of 16 features whose images are in no cache.
    lines = EmittedLoop(builder, "lines", *span, I64(LINE * 4 // vector.BYTES[element_type]))
    written = builder.add(ahead, offset_in(builder, lines.at, element_type))
    for row in rows:
        for each in offsets:
            prefetch_at(builder, builder.add(builder.add(row, written), each), writes=True)
    lines.close()
    vectors = EmittedLoop(builder, "vectors", *span, I64(VECTOR))
    first_byte = offset_in(builder, vectors.at, element_type)
    targets = [builder.add(row, first_byte) for row in rows]
    for group in _written_groups(transform):
        across = _transformed_columns(builder, transform, builder.add(read, vectors.at), position, mask)
        for row in reversed(group):
            made = applied(builder, transform.columns, [each[row] for each in across])
            for value, each in reversed(list(zip(made, offsets, strict=True))):
                vector.store_vector(builder, value, builder.add(targets[row], each), mask, element_type)
    vectors.close()
    following = builder.add(begin, builder.mul(stride, I64(outputs)))
    run.close([builder.add(at, I64(outputs)), builder.add(read, tile), following])


def _written_groups(transform: Transform) -> list[range]:
    """Rows of outputs that are computed together. Every second row has the same parts; the first row is in the last
    group.

    A group reads all products again, which takes less time than rows that do not fit in registers.
    """
    rows = range(len(transform.rows))
    return [rows] if len(rows) * len(transform.columns[0]) < registers() else [rows[1::2], rows[::2]]


def _transformed_columns(
    builder: ir.IRBuilder, transform: Transform, read: ir.Value, position: ir.Value, mask: ir.Value | None
) -> list[list[ir.Value]]:
    """The transforms by rows of a tile's columns of products. LLVM drops rows that are not used."""
    row, across = builder.mul(position, I64(len(transform.columns[0]))), []
    for _ in transform.columns[0]:
        places = [builder.add(read, builder.mul(row, I64(number))) for number in range(len(transform.rows[0]))]
        loaded = [vector.load_vector(builder, place, mask) for place in places]
        across.append(applied(builder, transform.rows, loaded))
        read = builder.add(read, position)
    return across


def _vectors_of_line(element_type: str) -> int:
    """The vectors of a cache line."""
    return max(1, LINE // (LANES * vector.BYTES[element_type]))


def _rows(builder: ir.IRBuilder, table: ir.Value, count: int) -> list[ir.Value]:
    """The addresses of column 0 of some rows, from a table."""
    return [loaded_i64(builder, builder.add(table, I64(8 * i))) for i in range(count)]


def _column(
    builder: ir.IRBuilder,
    matrix: Matrix,
    exists: ir.Value | None,
    addresses: list[ir.Value],
    mask: ir.Value | None,
    element_type: str,
) -> list[ir.Value]:
    """The transform of a column of a tile; a column outside of the image is zeros. LLVM drops what is not used."""
    if exists is None:
        return applied(builder, matrix, [vector.load_vector(builder, each, mask, element_type) for each in addresses])
    before, load = builder.block, builder.append_basic_block("column")
    following = builder.append_basic_block("following")
    builder.cbranch(exists, load, following)
    builder.position_at_end(load)
    inside = applied(builder, matrix, [vector.load_vector(builder, each, mask, element_type) for each in addresses])
    builder.branch(following)
    builder.position_at_end(following)
    values = []
    for each in inside:
        value = builder.phi(vector.vector_type())
        value.add_incoming(each, load)
        value.add_incoming(vector.zeros(), before)
        values.append(value)
    return values
