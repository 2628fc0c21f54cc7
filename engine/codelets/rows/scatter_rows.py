"""HLO scatter of contiguous float32 rows by one or two index components: the same parameters as `scatter`.

The combiner is compiled into the loop over index vectors, which reads no tables and calls nothing. Units and the order
of updates are as in `scatter`, so the bits are equal.

Sums over edges of a graph are such scatters without an array of updates, which are gathered rows, or products of such a
row and a number of its edge: target[to[e]] += source[from[e]] * scale[e], in the order of edges.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets.language import vector
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.intrinsic import Float32, intrinsic
from engine.codelets.language.lanes import Lanes
from engine.codelets.language.loops import for_vectors
from engine.codelets.language.memory import I64, load_f32, store_f32
from engine.codelets.language.record import Address, Record, block
from engine.codelets.rows.gather_rows import FAR_BYTES, load_row_number
from engine.codelets.rows.index_walk import AHEAD, Dimension, IndexComponent, fetch_lines
from engine.codelets.rows.scatter import Scatter, ScatterParts, copied_range, scatter, scatter_parts
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes
from engine.program.work.indexing import ScatterWork

EDGES_FAR_BYTES = 1 << 22
"""Bytes of a table from which on rows of edges are prefetched. On a Zen 5 prefetching took 1.4 times as long for 640
KB, in the second-level cache, and as long as without for 1.3 MB."""
COMBINED = ("assign", "add", "multiply", "minimum", "maximum", "GT", "LT")


def _row_update(opcode: str, is_scaled: bool) -> Any:
    """An intrinsic that combines `count` elements at `source` into those at `target`.

    With `is_scaled` these times the float32 at `scale` are added, and rounded once.
    """

    @intrinsic
    def update(builder: ir.IRBuilder, target: ir.Value, source: ir.Value, scale: ir.Value, count: ir.Value) -> None:
        factor = Lanes(builder, lanes()).load_splat(scale, "f32") if is_scaled else None

        def combine(first: ir.Value, _: int, mask: ir.Value | None) -> None:
            places = [builder.add(each, builder.shl(first, I64(2))) for each in (target, source)]
            old, new = (vector.load_vector(builder, each, mask) for each in places)
            if factor is not None:
                made = vector.multiply_add(builder, new, factor, old)
            else:
                made = vector.combined(builder, opcode, old, new)
            vector.store_vector(builder, made, places[0], mask)

        for_vectors(builder, count, combine)

    return update


def _scalar_update(opcode: str) -> Any:
    """An intrinsic of an old and a new element."""

    @intrinsic
    def update(builder: ir.IRBuilder, old: Float32, new: Float32) -> Float32:
        return vector.combined(builder, opcode, old, new)

    return update


class GatheredRows(Record):
    """Layout of the rows of an operand, and of the row number of each edge of a graph."""

    rows: Address = 0
    ids: Address = 0
    id_bytes: int
    id_step: int  # bytes from edge to edge
    pitch: int  # bytes from row to row
    last: int  # the last row's number


@inner
def row_at(given: GatheredRows, id_address: int) -> int:
    """The address of the row whose number is at an address; numbers outside of the operand are clamped."""
    row = load_row_number(id_address, given.id_bytes == 8)
    return given.rows + min(max(row, 0), given.last) * given.pitch


class EdgeSums(Scatter):
    """A Scatter without updates, before the rows of its updates and their scales; its tables follow."""

    source: GatheredRows
    scales: Address = 0
    scale_step: int


@inner
def bounds(component: IndexComponent, first: int, last: int, cut_stride: int) -> tuple[int, int, int]:
    """The indices of a component that units with these coordinates of the cut dimension update, and their pitch."""
    if component.along_cut:
        return first, last, cut_stride
    return 0, component.largest_start + 1, component.operand_stride


@cache
def scatter_rows(opcode: str, gathers: bool = False, scales: bool = False) -> Codelet:
    """The codelet that combines rows by one of COMBINED.

    With `gathers` updates are rows that EdgeSums describe, in place; with `scales` times a number each.
    """
    update_row, scalar = _row_update(opcode, scales), _scalar_update(opcode)
    far_bytes = EDGES_FAR_BYTES if gathers else FAR_BYTES
    record: Any = EdgeSums if gathers else Scatter

    def scatter(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given, tables = record.read(parameters), parameters + 8 * record.WORDS
        positions, components = Dimension.read(tables), tables + 8 * Dimension.WORDS
        component = IndexComponent.read(components)
        other = IndexComponent.read(components, given.index_components - 1)
        first, last = copied_range(given, lo, hi)
        is_wide, has_second = given.index_bytes == 8, not gathers and given.index_components == 2
        index, target, source = given.indices + component.index_offset, given.target, given.updates
        low, high, pitch = bounds(component, first, last, given.cut_stride)
        between, other_low, other_high, other_pitch = 0, 0, 1, 0
        if has_second:
            between = other.index_offset - component.index_offset
            other_low, other_high, other_pitch = bounds(other, first, last, given.cut_stride)
        length, offset = given.run_length, 0
        if component.along_cut == 0 and other.along_cut == 0:
            offset = first * given.cut_update_stride
            target += first * given.cut_stride
            source += offset
            length *= max(min(given.cut_window, last) - first, 0)
        count, table_bytes = given.positions, given.cut_outer * given.cut_size * given.cut_stride
        ids, scale = 0, 0
        if gathers:
            ids, scale = given.source.ids, given.scales
            table_bytes = max(table_bytes, given.source.last * given.source.pitch)
        near = AHEAD if table_bytes > far_bytes and not has_second else count
        for position in range(count):
            row, column = load_row_number(index, is_wide), 0
            if position + near < count:
                later = min(max(load_row_number(index + near * positions.index, is_wide), low), high - 1)
                fetch_lines(target + later * pitch, 4 * length)
                if gathers:
                    fetch_lines(row_at(given.source, ids + near * given.source.id_step) + offset, 4 * length)
            if has_second:
                column = load_row_number(index + between, is_wide)
            if low <= row < high and other_low <= column < other_high:
                at = target + row * pitch + column * other_pitch
                update = row_at(given.source, ids) + offset if gathers else source
                if length == 1 and not gathers:
                    store_f32(at, scalar(load_f32(at), load_f32(update)))
                else:
                    update_row(at, update, scale, length)
            index += positions.index
            source += positions.other
            if gathers:
                ids += given.source.id_step
                scale += given.scale_step

    name = f"edge_sums_{'scaled' if scales else 'plain'}" if gathers else f"scatter_rows_{opcode}"
    return Codelet(scatter, name, in_vectors=True)


ADDED_ROWS, PLAIN_EDGES, SCALED_EDGES = scatter_rows("add"), scatter_rows("add", True), scatter_rows("add", True, True)
"""Codelets of the module under names, so that they compile ahead."""


def scatters_rows(parts: ScatterParts, element_type: str, opcode: str | None) -> bool:
    """Whether these parameters of `scatter` describe contiguous rows at evenly spaced signed indices."""
    header, positions, components, _, _ = parts
    if element_type != "f32" or opcode not in COMBINED or header.index_bytes not in (4, 8) or not header.index_signed:
        return False
    if header.position_rank != 1 or positions[0].operand or positions[0].along_cut:
        return False
    if header.index_components not in (1, 2) or header.window_runs != 1:
        return False
    is_cut_by_index = any(each.along_cut for each in components)
    return bool(header.cut_window == 1 or (header.cut_in_run and not is_cut_by_index))


def encoded_scatter(work: ScatterWork) -> Encoded:
    """The codelet for rows where the body is one of its opcodes, else the general one, which calls the body."""
    parts, combine = scatter_parts(work), work.combine
    if scatters_rows(parts, work.operand.shape.element_type, combine.opcode):
        assert combine.opcode is not None
        return Encoded.of(scatter_rows(combine.opcode), block(*parts))
    calls = () if combine.opcode == "assign" else ((Scatter.COMBINER, combine),)
    return Encoded.of(scatter, block(*parts), calls=calls)
