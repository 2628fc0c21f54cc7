"""The gradient of float32 max pooling without overlapping windows: each window writes every element it covers.

The lanes of a vector run over windows and channels alike. A row of windows is a list of vectors, each with the mask
of the lanes that are at the first position of a window; the other positions are read and written at fixed offsets from
these. Where there are few channels a vector covers several windows; lanes between their first positions are idle.

Parameters (int64 words): the header `PoolGradient`; for depth, height and width a `WindowAxis` each; for each vector of
a row its byte offset in the operand, its byte offset in the source and its mask. Unit: one image. The selection is that
of `select_and_scatter`: the first position is kept as long as it compares true with the next.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod

from engine.codelets.host.rows import word
from engine.codelets.language import vector
from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.element import BYTES, load_element, store_element
from engine.codelets.language.intrinsic import Float32, intrinsic
from engine.codelets.language.loops import EmittedLoop
from engine.codelets.language.memory import I32, I64, POINTER, call, load_f32, load_i64, loaded_i64, store_i64
from engine.codelets.language.record import Address, Part, Record
from engine.codelets.pooling.pool_axis import WindowAxis
from engine.codelets.pooling.pool_kernels import keeps
from engine.ir.attributes import Window
from engine.ir.shape import Shape
from engine.machine_code import first_lanes
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.machine_code.llvm import ir
from engine.machine_code.processor import lanes
from engine.program.pooling import MOST_POSITIONS, spatial_dimensions

SCRATCH_BYTES = 16 * MOST_POSITIONS
LANES = lanes()


class PoolGradient(Record):
    """The header of the parameters."""

    operand: Address = 0
    source: Address = 0
    init: Address = 0
    target: Address = 0
    operand_pitch: int  # bytes of an image
    source_pitch: int
    elements: int  # of an image that are initialised first: all, or none if the windows cover them
    channels: int
    first: int  # the first window along the width that is completely inside the operand
    wholes: int  # number of whole windows
    vectors: int  # in a row


@intrinsic
def _keeps(builder: ir.IRBuilder, kept: Float32, candidate: Float32, direction: str) -> bool:
    """Whether `kept` stays selected."""
    return keeps(builder, direction, kept, candidate)


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
    """Computes the windows of one vector; `offsets` has pairs, of which the first words are the positions' offsets.

    Operand and target have elements of the type `kind`. The lanes of the mask `bits` take successive elements of the
    source.
    """
    end = builder.add(offsets, builder.mul(positions, I64(16)))

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


def _numbers(number: int) -> ir.Constant:
    return ir.Constant(vector.vector_type(I32), [number] * LANES)


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
    second, begin = builder.add(offsets, I64(16)), [_numbers(1), first, _numbers(0)]
    loop = EmittedLoop(builder, "choose", second, end, I64(16), begin, may_be_empty=True)
    number, best, chosen = loop.carried
    candidate = vector.load_vector(builder, builder.add(operand, loaded_i64(builder, loop.at)), mask, stored)
    keep = keeps(builder, direction, best, candidate)
    best, chosen = builder.select(keep, best, candidate), builder.select(keep, chosen, number)
    loop.close([builder.add(number, _numbers(1)), best, chosen])
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
    """Writes each position: the value where it is the selected one, else the initial value."""
    loop = EmittedLoop(builder, "spread", offsets, end, I64(16), [_numbers(0)])
    (number,) = loop.carried
    written = builder.select(builder.icmp_signed("==", chosen, number), value, initial)
    vector.store_vector(builder, written, builder.add(target, loaded_i64(builder, loop.at)), mask, stored)
    loop.close([builder.add(number, _numbers(1))])


@inner
def _list_positions(axes: int, depth: int, row: int, table: int) -> int:
    """Lists (byte offset in the image, position along the width) of elements of a row's windows; returns how many."""
    deep, high, wide = axes, axes + 8 * WindowAxis.WORDS, axes + 16 * WindowAxis.WORDS
    top = depth * word(deep, WindowAxis.STRIDE) - word(deep, WindowAxis.LOW)
    left = row * word(high, WindowAxis.STRIDE) - word(high, WindowAxis.LOW)
    count = 0
    for i in range(max(top, 0), min(top + word(deep, WindowAxis.POSITIONS), word(deep, WindowAxis.SIZE))):
        for j in range(max(left, 0), min(left + word(high, WindowAxis.POSITIONS), word(high, WindowAxis.SIZE))):
            for k in range(word(wide, WindowAxis.POSITIONS)):
                offset = (
                    i * word(deep, WindowAxis.PITCH)
                    + j * word(high, WindowAxis.PITCH)
                    + k * word(wide, WindowAxis.PITCH)
                )
                store_i64(table + 16 * count, offset)
                store_i64(table + 16 * count + 8, k)
                count += 1
    return count


@inner
def _edge_window(
    operand: int,
    source: int,
    target: int,
    table: int,
    positions: int,
    left: int,
    width: int,
    init: float,
    direction: str,
    kind: str,
) -> None:
    """Computes one channel of a window that begins at column `left` and extends beyond the operand."""
    chosen, kept = -1, init
    for position in range(positions):
        column = left + load_i64(table + 16 * position + 8)
        if 0 <= column < width:
            offset = load_i64(table + 16 * position)
            candidate = load_element(operand + offset, kind, "f32")
            store_element(target + offset, kind, init)
            if chosen < 0 or not _keeps(kept, candidate, direction):
                chosen, kept = offset, candidate
    if chosen >= 0:
        store_element(target + chosen, kind, init + load_f32(source))


@inner
def _row(
    parameters: int,
    operand: int,
    source: int,
    target: int,
    table: int,
    positions: int,
    init: float,
    direction: str,
    kind: str,
    size: int,
) -> None:
    """Computes a row of windows, whose first element of the source is at `source`."""
    wide = parameters + 8 * (PoolGradient.WORDS + 2 * WindowAxis.WORDS)
    vectors = wide + 8 * WindowAxis.WORDS
    for i in range(word(parameters, PoolGradient.VECTORS)):
        entry = vectors + 24 * i
        offset, mask = load_i64(entry), load_i64(entry + 16)
        start = source + load_i64(entry + 8)
        _window_lanes(operand + offset, start, target + offset, table, positions, mask, init, direction, kind)
    channels, first = word(parameters, PoolGradient.CHANNELS), word(parameters, PoolGradient.FIRST)
    wholes, windows = word(parameters, PoolGradient.WHOLES), word(wide, WindowAxis.WINDOWS)
    for i in range(windows - wholes):
        window = i if i < first else i + wholes
        left = window * word(wide, WindowAxis.STRIDE) - word(wide, WindowAxis.LOW)
        for c in range(channels):
            at = left * word(wide, WindowAxis.PITCH) + size * c
            element = source + 4 * (window * channels + c)
            width = word(wide, WindowAxis.SIZE)
            _edge_window(operand + at, element, target + at, table, positions, left, width, init, direction, kind)


@cache
def pool_gradient(direction: str, kind: str = "f32") -> Codelet:
    """The codelet for select = compare of that direction (PREDICATES); scratch: SCRATCH_BYTES.

    Operand and target are of the element type `kind`, f32, f16 or bf16; the source and the initial value are f32.
    """
    size = BYTES[kind]

    def pool_gradient(parameters: int, lo: int, hi: int, scratch: int) -> None:
        table = scratch + RESERVED_SCRATCH
        axes = parameters + 8 * PoolGradient.WORDS
        high, wide = axes + 8 * WindowAxis.WORDS, axes + 16 * WindowAxis.WORDS
        init = load_f32(word(parameters, PoolGradient.INIT))
        row_bytes = 4 * word(wide, WindowAxis.WINDOWS) * word(parameters, PoolGradient.CHANNELS)
        for unit in range(lo, hi):
            operand = word(parameters, PoolGradient.OPERAND) + unit * word(parameters, PoolGradient.OPERAND_PITCH)
            target = word(parameters, PoolGradient.TARGET) + unit * word(parameters, PoolGradient.OPERAND_PITCH)
            source = word(parameters, PoolGradient.SOURCE) + unit * word(parameters, PoolGradient.SOURCE_PITCH)
            for i in range(word(parameters, PoolGradient.ELEMENTS)):
                store_element(target + size * i, kind, init)
            for depth in range(word(axes, WindowAxis.WINDOWS)):
                for row in range(word(high, WindowAxis.WINDOWS)):
                    positions = _list_positions(axes, depth, row, table)
                    if positions > 0:
                        _row(parameters, operand, source, target, table, positions, init, direction, kind, size)
                    source += row_bytes

    suffix = "" if kind == "f32" else f"_{kind}"
    return Codelet(pool_gradient, f"pool_gradient_{direction}{suffix}")


def encode_pool_gradient(
    operand_at: tuple[Shape, Address],
    source_at: tuple[Shape, Address],
    init: Address,
    target: Address,
    window: Window,
) -> tuple[tuple[Part, ...], int]:
    """The parts of `pool_gradient`'s block and its number of units; operand and source, f32, are (shape, address)."""
    (operand, operand_address), (source, source_address) = operand_at, source_at
    item = operand.dtype.itemsize
    spatial = spatial_dimensions(window)
    channels = prod(operand.dimensions[spatial.stop :])
    images = prod(operand.dimensions[: spatial.start])
    axes = [WindowAxis(windows=1, stride=1, low=0, size=1, positions=1, pitch=0)] * (3 - len(spatial))
    covered = True
    for d in spatial:
        w, size, count = window[d], operand.dimensions[d], source.dimensions[d]
        pitch = item * prod(operand.dimensions[d + 1 :])
        axes.append(
            WindowAxis(windows=count, stride=w.stride, low=w.padding_low, size=size, positions=w.size, pitch=pitch)
        )
        covered &= w.stride == w.size and w.padding_low >= 0 and count * w.stride - w.padding_low >= size
    wide = axes[-1]
    starts = range(-wide.low, wide.windows * wide.stride - wide.low, wide.stride)
    wholes = [i for i, at in enumerate(starts) if at >= 0 and at + wide.positions <= wide.size]
    first = wholes[0] if wholes else 0
    vectors = _vectors(channels, first, len(wholes), wide, item)
    image = prod(operand.dimensions[spatial.start :])
    header = PoolGradient(
        operand=operand_address,
        source=source_address,
        init=init,
        target=target,
        operand_pitch=item * image,
        source_pitch=4 * prod(source.dimensions[spatial.start :]),
        elements=0 if covered else image,
        channels=channels,
        first=first,
        wholes=len(wholes),
        vectors=len(vectors),
    )
    return (header, axes, *vectors), images if image else 0


def _vectors(channels: int, first: int, wholes: int, wide: WindowAxis, item: int) -> list[tuple[int, int, int]]:
    """(byte offset in a row of the operand, of the source, mask) of vectors that span windows or channels of one.

    The variant with fewer vectors is taken.
    """
    step = wide.stride * channels
    start = first * step - wide.low * channels
    elements = max(0, (wholes - 1) * step + channels)
    flat = -(-elements // LANES) if wholes and channels else 0
    apart = wholes * -(-channels // LANES)
    made = []
    taken = first * channels
    if flat < apart:
        for at in range(0, elements, LANES):
            lanes = [lane for lane in range(LANES) if at + lane < elements and (at + lane) % step < channels]
            if lanes:
                made.append((item * (start + at), 4 * taken, sum(1 << lane for lane in lanes)))
            taken += len(lanes)
        return made
    for window in range(wholes):
        for at in range(0, channels, LANES):
            count = min(LANES, channels - at)
            made.append((item * (start + window * step + at), 4 * (taken + at), (1 << count) - 1))
        taken += channels
    return made
