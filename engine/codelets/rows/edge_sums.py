"""Sums over edges: scatter-adds of gathered rows, each times a number of its edge, without an array of edges.

target[to[e]] += source[from[e]] * scale[e], in the order of edges, product and sum rounded once. Row numbers outside
of the source are clamped as in HLO's gather; row numbers outside of the target are skipped as in HLO's scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from engine.codelets.host.rows import word
from engine.codelets.language import vector
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.intrinsic import Float32, intrinsic
from engine.codelets.language.memory import load_f32
from engine.codelets.language.record import Address, Part, Record
from engine.codelets.rows.gather import AHEAD, Gather, IndexComponent, fetch_lines
from engine.codelets.rows.gather_rows import load_row_number
from engine.codelets.rows.scatter import PositionDimension, Scatter, ScatterComponent, copy_operand
from engine.codelets.rows.scatter_rows import bounds
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes

LANES = lanes()
FAR_BYTES = 1 << 22
"""Bytes of a table from which on its rows are prefetched. On a Zen 5 prefetching took 1.4 times as long for 640 KB, in
the second-level cache, and as long as without for 1.3 MB."""


class EdgeSums(Scatter):
    """A Scatter without updates, before the source of the updates; its tables follow. Unit: as in the scatter."""

    source: Address = 0
    source_ids: Address = 0
    source_id_bytes: int
    source_id_step: int  # bytes from edge to edge
    source_pitch: int  # bytes from row to row
    last_source: int  # the last row's number
    scales: Address = 0
    scale_step: int


def _added(is_scaled: bool, is_whole: bool) -> Any:
    """An intrinsic that adds a vector times the scale, or only its first `count` lanes, to the one at `target`."""

    @intrinsic
    def add(builder: ir.IRBuilder, target: ir.Value, source: ir.Value, scale: Float32, count: ir.Value) -> None:
        mask = None if is_whole else vector.lane_mask(builder, count)
        old, new = (vector.load_vector(builder, each, mask) for each in (target, source))
        if is_scaled:
            new = vector.multiply_add(builder, new, vector.splat(builder, scale), old)
        else:
            new = builder.fadd(old, new)
        vector.store_vector(builder, new, target, mask)

    return add


@cache
def edge_sums(is_scaled: bool) -> Codelet:
    """The codelet for rows times the numbers of their edges, or for rows as they are."""
    whole, part = _added(is_scaled, True), _added(is_scaled, False)

    @inner
    def add_row(target: int, source: int, scale: float, count: int) -> None:
        at = 0
        while at + LANES <= count:
            whole(target + 4 * at, source + 4 * at, scale, LANES)
            at += LANES
        if at < count:
            part(target + 4 * at, source + 4 * at, scale, count - at)

    def sum_edges(parameters: int, lo: int, hi: int, scratch: int) -> None:
        chunk, stride = word(parameters, Scatter.CUT_CHUNK), word(parameters, Scatter.CUT_STRIDE)
        first, last = lo * chunk, min(hi * chunk, word(parameters, Scatter.CUT_SIZE))
        copy_operand(parameters, first, last)
        positions = parameters + 8 * EdgeSums.WORDS
        component = positions + 8 * PositionDimension.WORDS
        is_wide, is_source_wide = (
            word(parameters, Scatter.INDEX_BYTES) == 8,
            word(parameters, EdgeSums.SOURCE_ID_BYTES) == 8,
        )
        index = word(parameters, Scatter.INDICES) + word(component, ScatterComponent.INDEX_OFFSET)
        step, source_step = word(positions, PositionDimension.INDEX_STRIDE), word(parameters, EdgeSums.SOURCE_ID_STEP)
        source_index = word(parameters, EdgeSums.SOURCE_IDS)
        target, source = word(parameters, Scatter.TARGET), word(parameters, EdgeSums.SOURCE)
        source_pitch, last_source = word(parameters, EdgeSums.SOURCE_PITCH), word(parameters, EdgeSums.LAST_SOURCE)
        scales, scale_step = word(parameters, EdgeSums.SCALES), word(parameters, EdgeSums.SCALE_STEP)
        length = word(parameters, Scatter.RUN_LENGTH)
        low, high, pitch = bounds(component, first, last, stride)
        if word(component, ScatterComponent.ALONG_CUT) == 0:
            target += first * stride
            source += first * word(parameters, Scatter.CUT_UPDATE_STRIDE)
            length *= max(min(word(parameters, Scatter.CUT_WINDOW), last) - first, 0)
        count = word(parameters, Scatter.POSITIONS)
        far = AHEAD if max(last_source * source_pitch, high * pitch) > FAR_BYTES else count
        for edge in range(count):
            row = load_row_number(index, is_wide)
            if edge + far < count:
                later = min(max(load_row_number(index + far * step, is_wide), low), high - 1)
                fetch_lines(target + later * pitch, 4 * length)
                later = load_row_number(source_index + far * source_step, is_source_wide)
                fetch_lines(source + min(max(later, 0), last_source) * source_pitch, 4 * length)
            if low <= row < high:
                read = min(max(load_row_number(source_index, is_source_wide), 0), last_source)
                scale = load_f32(scales) if is_scaled else 1.0
                add_row(target + row * pitch, source + read * source_pitch, scale, length)
            index += step
            source_index += source_step
            scales += scale_step

    return Codelet(sum_edges, f"edge_sums_{'scaled' if is_scaled else 'plain'}", in_vectors=True)


SCALED_EDGES, PLAIN_EDGES = edge_sums(True), edge_sums(False)
"""Codelets of the module under names, so that they compile ahead."""


def edge_parts(
    scatter: Record, entries: Sequence[Any], gather: Gather, component: IndexComponent, id_step: int, **scales: Any
) -> tuple[Part, ...]:
    """The parts of the parameters, from a scatter of rows and the gather of its updates."""
    assert isinstance(scatter, Scatter)
    named = {name: getattr(scatter, name) for name in Scatter._names}
    head = EdgeSums(
        **named | {"updates": 0},
        source=gather.operand,
        source_ids=gather.indices,
        source_id_bytes=gather.index_bytes,
        source_id_step=id_step,
        source_pitch=component.operand_stride,
        last_source=component.largest_start,
        **scales,
    )
    return head, entries
