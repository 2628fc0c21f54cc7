"""The gradient of float32 max pooling without overlapping windows: each window writes every element it covers.

A row of windows is a list of vectors, each with the mask of the lanes that are at the first position of a window; the
other positions are read and written at fixed offsets from these. A vector is of one window; lanes after the last
channel are written too, where the next windows write later. If that takes more vectors, one covers several windows;
lanes between their first positions are idle.

Parameters: `PoolGradient`. Unit: one image. The first position of a window is kept as long as it compares true with the
next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import groupby, product
from math import prod

import numpy as np

from engine.codelets.language import vector
from engine.codelets.language.build import Codelet
from engine.codelets.language.element import store_element
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.intrinsic import Float32, intrinsic
from engine.codelets.language.lanes import ITEM_BYTES, Lanes
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I64, POINTER, call, load_f32, loaded_i64
from engine.codelets.language.record import Address, Record, Table, block
from engine.codelets.pooling.pool_axis import PoolAxis, axes_of
from engine.codelets.pooling.pool_kernels import keeps
from engine.ir.pooling import spatial_dimensions
from engine.machine_code import first_lanes
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes
from engine.program.work.select_and_scatter import SelectAndScatterWork

LANES = lanes()
EXPANDED = 1 if LANES > first_lanes.LANES else 1.5
"""Vectors of one window that take the time of one whose lanes are at several; processors with AVX-512 load them."""


class PoolGradient(Record):
    """The parameters. A run of windows is in one row, and of each the same positions are in the operand."""

    operand: Address = 0
    source: Address = 0
    initial: Address = 0
    target: Address = 0
    operand_pitch: int  # bytes of an image
    source_pitch: int
    elements: int  # of an image that are initialised first: all, or none if the windows cover them
    count: int  # of runs
    runs: Table
    offsets: Table  # of positions from a window's first one
    vectors: Table  # of RunVector


class WindowRun(Record):
    """Offsets are bytes."""

    row: int  # offset of the row of windows in the operand and in the source
    row_source: int
    offsets: int  # offset in the table of the positions' offsets, and their number
    positions: int
    vector: int  # numbers of the first vector, and after the last one
    end: int


class RunVector(Record):
    """A vector of windows of a row: the offset in the row of the operand and in that of the source, and the mask."""

    at: int
    start: int
    mask: int


@intrinsic
def _window_lanes(
    builder: ir.IRBuilder,
    operand: ir.Value,
    source: ir.Value,
    target: ir.Value,
    offsets: ir.Value,
    positions: ir.Value,
    bits: ir.Value,
    init: Float32,
    direction: str,
    kind: str,
) -> None:
    """Computes the windows of one vector; `offsets` has the offset of each position.

    Operand and target have elements of the type `kind`. The lanes of the mask `bits` take successive elements of the
    source.
    """
    end = builder.add(offsets, builder.mul(positions, I64(8)))

    def window(mask: ir.Value | None, taken: ir.Value) -> None:
        chosen, initial = _choose(builder, operand, offsets, end, mask, direction, kind), vector.splat(builder, init)
        _spread(builder, target, offsets, end, mask, chosen, builder.fadd(initial, taken), initial, kind)

    with builder.if_else(builder.icmp_signed("==", bits, I64((1 << LANES) - 1))) as (whole, some):
        with whole:
            window(None, vector.load_vector(builder, source))
        with some:
            _window_of_some(builder, source, bits, window)


def _window_of_some(
    builder: ir.IRBuilder, source: ir.Value, bits: ir.Value, window: Callable[[ir.Value, ir.Value], None]
) -> None:
    """Computes the windows of the lanes of a mask; the first lanes of a vector have masks of their own with AVX2."""
    mask = builder.bitcast(builder.trunc(bits, ir.IntType(LANES)), vector.vector_type(vector.BIT))
    if LANES != first_lanes.LANES:
        window(mask, _expand(builder, source, mask))
        return
    others = builder.and_(bits, builder.add(bits, I64(1)))
    with builder.if_else(builder.icmp_signed("==", others, I64(0))) as (first, any_lanes):
        with first:
            lanes_mask = vector.lane_mask(builder, call(builder, "ctpop.i64", I64, bits))
            window(lanes_mask, vector.load_vector(builder, source, lanes_mask))
        with any_lanes:
            window(mask, _expand(builder, source, mask))


def _choose(
    builder: ir.IRBuilder,
    operand: ir.Value,
    offsets: ir.Value,
    end: ir.Value,
    mask: ir.Value | None,
    direction: str,
    stored: str,
) -> ir.Value:
    """Selects a position in each lane, and returns its number."""
    first = vector.load_vector(builder, builder.add(operand, loaded_i64(builder, offsets)), mask, stored)
    second, begin = builder.add(offsets, I64(8)), [vector.all_lanes(1), first, vector.all_lanes(0)]
    loop = EmittedLoop(builder, "choose", second, end, I64(8), begin, may_be_empty=True)
    number, best, chosen = loop.carried
    candidate = vector.load_vector(builder, builder.add(operand, loaded_i64(builder, loop.at)), mask, stored)
    keep = keeps(builder, direction, best, candidate)
    best, chosen = builder.select(keep, best, candidate), builder.select(keep, chosen, number)
    loop.close([builder.add(number, vector.all_lanes(1)), best, chosen])
    return loop.carried[2]


def _expand(builder: ir.IRBuilder, source: ir.Value, mask: ir.Value) -> ir.Value:
    """Loads successive elements of memory into the lanes of the mask."""
    pointer = builder.inttoptr(source, POINTER)
    return call(builder, f"masked.expandload.v{LANES}f32", vector.vector_type(), pointer, mask, vector.zeros())


def _spread(
    builder: ir.IRBuilder,
    target: ir.Value,
    offsets: ir.Value,
    end: ir.Value,
    mask: ir.Value | None,
    chosen: ir.Value,
    value: ir.Value,
    initial: ir.Value,
    stored: str,
) -> None:
    """Writes each position: the value where it is the selected one, else the initial value; both are rounded once."""
    vectors = Lanes(builder, LANES)
    value, initial = (vectors.rounded(each, stored, is_normal=True) for each in (value, initial))
    loop = EmittedLoop(builder, "spread", offsets, end, I64(8), [vector.all_lanes(0)])
    (number,) = loop.carried
    written = builder.select(builder.icmp_signed("==", chosen, number), value, initial)
    vectors.store(written, builder.add(target, loaded_i64(builder, loop.at)), stored, mask, is_first=False)
    loop.close([builder.add(number, vector.all_lanes(1))])


@cache
def pool_gradient(direction: str, kind: str) -> Codelet:
    """The codelet for select = compare of that direction (PREDICATES).

    Operand and target are of the element type `kind`, f32, f16 or bf16; the source and the initial value are f32.
    """
    size = ITEM_BYTES[kind]

    def pool_gradient(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given = PoolGradient.read(parameters)
        initial = load_f32(given.initial)
        for unit in range(lo, hi):
            operand, target = given.operand + unit * given.operand_pitch, given.target + unit * given.operand_pitch
            source = given.source + unit * given.source_pitch
            for i in range(given.elements):
                store_element(target + size * i, kind, initial)
            for number in range(given.count):
                run = WindowRun.read(given.runs, number)
                offsets = given.offsets + run.offsets
                for i in range(run.vector, run.end):
                    vector = RunVector.read(given.vectors, i)
                    at, start = run.row + vector.at, source + run.row_source + vector.start
                    places = operand + at, start, target + at, offsets, run.positions
                    _window_lanes(*places, vector.mask, initial, direction, kind)

    suffix = "" if kind == "f32" else f"_{kind}"
    return Codelet(pool_gradient, f"pool_gradient_{direction}{suffix}")


def encoded_pool_gradient(work: SelectAndScatterWork) -> Encoded:
    """The fields of `PoolGradient`; the source is f32."""
    operand, source, spatial = work.operand.shape, work.source.shape, spatial_dimensions(work.window)
    channels, image = prod(operand.dimensions[spatial.stop :]), prod(operand.dimensions[spatial.start :])
    axes = axes_of(operand, source, work.window, 3)
    covered = all(
        (each.stride == each.positions or each.windows == 1)
        and each.low >= 0
        and (each.windows - 1) * each.stride + each.positions - each.low >= each.size
        for each in axes
    )
    runs, offsets, vectors = _runs(channels, axes, operand.dtype.itemsize)
    parameters = PoolGradient.of(
        work,
        operand_pitch=operand.dtype.itemsize * image,
        source_pitch=4 * prod(source.dimensions[spatial.start :]),
        elements=0 if covered else image,
        count=len(runs),
        runs=np.array(runs, np.int64),
        offsets=np.array(offsets, np.int64),
        vectors=np.array(vectors, np.int64),
    )
    return Encoded.of(pool_gradient(work.select, operand.element_type), block(parameters))


Vector = tuple[int, int, int]
"""Offset in a row of the operand, in a row of the source, and mask."""


def _runs(channels: int, axes: list[PoolAxis], item: int) -> tuple[list[tuple[int, ...]], list[int], list[Vector]]:
    """The rows of the tables of `PoolGradient`."""
    deep, high, wide = axes
    runs: list[tuple[int, ...]] = []
    offsets: list[int] = []
    vectors: list[Vector] = []
    columns: list[tuple[range, int, int]] = []
    for inside, group in groupby(range(wide.windows), lambda window: _inside(wide, window)):
        windows = list(group)
        made = _vectors(channels, windows[0], len(windows), wide, item)
        columns.append((inside, len(vectors), len(vectors) + len(made)))
        vectors += made
    known: dict[tuple[range, ...], int] = {}
    for number, (depth, row) in enumerate(product(range(deep.windows), range(high.windows))):
        at = (depth * deep.stride - deep.low) * deep.pitch + (row * high.stride - high.low) * high.pitch
        for inside, *span in columns:
            places = _inside(deep, depth), _inside(high, row), inside
            if all(places):
                found = [sum(k * axis.pitch for k, axis in zip(each, axes, strict=True)) for each in product(*places)]
                first = known.setdefault(places, len(offsets))
                offsets += found if first == len(offsets) else []
                runs.append((at, 4 * number * wide.windows * channels, 8 * first, len(found), *span))
    return runs, offsets, vectors


def _inside(axis: PoolAxis, window: int) -> range:
    """The positions of a window that are in the operand."""
    at = window * axis.stride - axis.low
    return range(max(0, -at), min(axis.positions, axis.size - at))


def _vectors(channels: int, first: int, windows: int, wide: PoolAxis, item: int) -> list[Vector]:
    """Vectors that span windows, or channels of one window: the variant with fewer vectors."""
    step = wide.stride * channels
    start = first * step - wide.low * channels
    elements = (windows - 1) * step + channels
    flat, apart = -(-elements // LANES) if channels else 0, windows * -(-channels // LANES)
    made = []
    taken = first * channels
    if flat * EXPANDED < apart:
        for at in range(0, elements, LANES):
            lanes = [lane for lane in range(LANES) if at + lane < elements and (at + lane) % step < channels]
            if lanes:
                made.append((item * (start + at), 4 * taken, sum(1 << lane for lane in lanes)))
            taken += len(lanes)
        return made
    is_covered = wide.stride == wide.positions
    for window in range(windows):
        is_whole = channels >= LANES or (is_covered and (windows - window) * channels >= LANES)
        mask = (1 << (LANES if is_whole else channels)) - 1
        for at in range(0, channels, LANES):
            at = max(0, min(at, channels - LANES))
            made.append((item * (start + window * step + at), 4 * (taken + at), mask))
        taken += channels
    return made
