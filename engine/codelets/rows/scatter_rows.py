"""HLO scatter of contiguous float32 rows by one or two index components: the same parameters as `scatter`.

The combiner is compiled into the loop over index vectors, which reads no tables and calls nothing. Units and the order
of updates are as in `scatter`, so the bits are equal.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from engine.codelets.host.rows import word
from engine.codelets.language import vector
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.intrinsic import Float32, intrinsic
from engine.codelets.language.memory import load_f32, store_f32
from engine.codelets.language.record import Part, Record, block
from engine.codelets.rows.gather import AHEAD, fetch_lines
from engine.codelets.rows.gather_rows import FAR_BYTES, load_row_number
from engine.codelets.rows.scatter import (
    PositionDimension,
    Scatter,
    ScatterComponent,
    combiner,
    copy_operand,
    scatter,
    scatter_parts,
)
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes
from engine.program.work.indexing import ScatterWork

LANES = lanes()
COMBINED = ("assign", "add", "multiply", "minimum", "maximum", "GT", "LT")


def _combined(builder: ir.IRBuilder, opcode: str, old: ir.Value, new: ir.Value) -> ir.Value:
    """Combines two float32, scalars or vectors; the minimum or maximum with a NaN is NaN."""
    if opcode == "assign":
        return new
    if opcode in ("add", "multiply"):
        return builder.fadd(old, new) if opcode == "add" else builder.fmul(old, new)
    if opcode in ("GT", "LT"):
        return builder.select(builder.fcmp_ordered(">" if opcode == "GT" else "<", old, new), old, new)
    sign = "<" if opcode == "minimum" else ">"
    is_kept = builder.or_(builder.fcmp_ordered(sign, old, new), builder.fcmp_unordered("uno", old, old))
    return builder.select(is_kept, old, new)


def _vector_update(opcode: str, is_whole: bool) -> Any:
    """An intrinsic that combines the vector at `source`, or only its first `count` lanes, into the one at `target`."""

    @intrinsic
    def update(builder: ir.IRBuilder, target: ir.Value, source: ir.Value, count: ir.Value) -> None:
        mask = None if is_whole else vector.lane_mask(builder, count)
        old, new = (vector.load_vector(builder, each, mask) for each in (target, source))
        vector.store_vector(builder, _combined(builder, opcode, old, new), target, mask)

    return update


def _scalar_update(opcode: str) -> Any:
    """An intrinsic of an old and a new element."""

    @intrinsic
    def update(builder: ir.IRBuilder, old: Float32, new: Float32) -> Float32:
        return _combined(builder, opcode, old, new)

    return update


@inner
def bounds(component: int, first: int, last: int, cut_stride: int) -> tuple[int, int, int]:
    """The indices of a component that units with these coordinates of the cut dimension update, and their pitch."""
    if word(component, ScatterComponent.ALONG_CUT):
        return first, last, cut_stride
    return 0, word(component, ScatterComponent.LARGEST_START) + 1, word(component, ScatterComponent.OPERAND_STRIDE)


@cache
def scatter_rows(opcode: str) -> Codelet:
    """The codelet that combines rows by one of COMBINED."""
    whole, part, scalar = _vector_update(opcode, True), _vector_update(opcode, False), _scalar_update(opcode)

    @inner
    def update_row(target: int, source: int, count: int) -> None:
        at = 0
        while at + LANES <= count:
            whole(target + 4 * at, source + 4 * at, LANES)
            at += LANES
        if at < count:
            part(target + 4 * at, source + 4 * at, count - at)

    def scatter(parameters: int, lo: int, hi: int, scratch: int) -> None:
        chunk, stride = word(parameters, Scatter.CUT_CHUNK), word(parameters, Scatter.CUT_STRIDE)
        first, last = lo * chunk, min(hi * chunk, word(parameters, Scatter.CUT_SIZE))
        copy_operand(parameters, first, last)
        positions = parameters + 8 * Scatter.WORDS
        component = positions + 8 * PositionDimension.WORDS
        other = component + 8 * ScatterComponent.WORDS
        is_wide = word(parameters, Scatter.INDEX_BYTES) == 8
        has_second = word(parameters, Scatter.INDEX_COMPONENTS) == 2
        index = word(parameters, Scatter.INDICES) + word(component, ScatterComponent.INDEX_OFFSET)
        step = word(positions, PositionDimension.INDEX_STRIDE)
        target, source = word(parameters, Scatter.TARGET), word(parameters, Scatter.UPDATES)
        update_step, length = word(positions, PositionDimension.UPDATE_STRIDE), word(parameters, Scatter.RUN_LENGTH)
        low, high, pitch = bounds(component, first, last, stride)
        between, other_low, other_high, other_pitch = 0, 0, 1, 0
        if has_second:
            between = word(other, ScatterComponent.INDEX_OFFSET) - word(component, ScatterComponent.INDEX_OFFSET)
            other_low, other_high, other_pitch = bounds(other, first, last, stride)
        is_cut_by_other = has_second and word(other, ScatterComponent.ALONG_CUT) == 1
        if word(component, ScatterComponent.ALONG_CUT) == 0 and not is_cut_by_other:
            target += first * stride
            source += first * word(parameters, Scatter.CUT_UPDATE_STRIDE)
            length *= max(min(word(parameters, Scatter.CUT_WINDOW), last) - first, 0)
        count = word(parameters, Scatter.POSITIONS)
        is_far = word(parameters, Scatter.CUT_OUTER) * word(parameters, Scatter.CUT_SIZE) * stride > FAR_BYTES
        near = count if has_second or not is_far else AHEAD
        for position in range(count):
            row, column = load_row_number(index, is_wide), 0
            if position + near < count:
                later = min(max(load_row_number(index + near * step, is_wide), low), high - 1)
                fetch_lines(target + later * pitch, 4 * length)
            if has_second:
                column = load_row_number(index + between, is_wide)
            if low <= row < high and other_low <= column < other_high:
                at = target + row * pitch + column * other_pitch
                if length == 1:
                    store_f32(at, scalar(load_f32(at), load_f32(source)))
                else:
                    update_row(at, source, length)
            index += step
            source += update_step

    return Codelet(scatter, f"scatter_rows_{opcode}", in_vectors=True)


ADDED_ROWS = scatter_rows("add")
"""The codelet for the gradient of rows read by index, named so that it compiles ahead."""


def scatters_rows(parts: tuple[Part, ...], element_type: str, opcode: str | None) -> bool:
    """Whether these parameters of `scatter` describe contiguous rows at evenly spaced signed indices."""
    header, tables = parts[0], parts[1]
    assert isinstance(header, Scatter) and not isinstance(tables, Record)
    if element_type != "f32" or opcode not in COMBINED or header.index_bytes not in (4, 8) or not header.index_signed:
        return False
    if header.position_rank != 1:
        return False
    position = tables[0]
    assert isinstance(position, PositionDimension)
    if position.operand_stride or position.along_cut:
        return False
    if header.index_components not in (1, 2) or header.window_runs != 1:
        return False
    components = tables[1 : 1 + header.index_components]
    is_cut_by_index = any(isinstance(each, ScatterComponent) and each.along_cut for each in components)
    return bool(header.cut_window == 1 or (header.cut_in_run and not is_cut_by_index))


Address = Any


def encoded_scatter(work: ScatterWork) -> Encoded:
    """The codelet for rows where the body is one of its opcodes, else the general one, which calls a combiner."""
    parts, kind, combine = scatter_parts(work), work.operand.shape.element_type, work.combine
    if isinstance(combine, str) and scatters_rows(parts, kind, combine):
        return Encoded.of(scatter_rows(combine), block(*parts))
    called = combiner(combine, kind) if isinstance(combine, str) else combine
    return Encoded.of(scatter, block(*parts), calls=((Scatter.COMBINER, called),))
