"""The gradient of max pooling where windows overlap: each element gathers from the windows that contain it.

The selected positions of each row of windows are kept in scratch, until no later row of the operand is in these
windows. So no element is scattered, and each sum has its terms in the windows' order. Positions are selected as by
`pool_gradient`.

Parameters: `OverlappingPools`. Unit: one image.
"""

from __future__ import annotations

from functools import cache
from math import prod

from engine.codelets.language.build import Codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.record import Address, Record, block
from engine.codelets.pooling.pool_axis import PoolAxis, along_row, axes_of
from engine.codelets.pooling.pool_gradient import encoded_pool_gradient
from engine.codelets.pooling.pool_kernels import LANES, choosing, gathering, gathering_groups
from engine.ir.pooling import is_apart, positions_bytes, spatial_dimensions
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.work.select_and_scatter import SelectAndScatterWork


class OverlappingPools(Record):
    """The parameters."""

    operand: Address = 0
    source: Address = 0
    initial: Address = 0
    target: Address = 0
    operand_pitch: int  # bytes of an image
    source_pitch: int
    channels: int
    slots: int  # rows of windows that an element is in, at most
    first_group: int  # the first element of groups of as many elements as columns are between windows
    groups: int
    high: PoolAxis
    wide: PoolAxis


@inner
def _last_window(axis: PoolAxis, at: int) -> int:
    """The last window with element `at` of an axis, if any has it; -1 if all windows begin after it."""
    place = at + axis.low
    return -1 if place < 0 else min(place // axis.stride, axis.windows - 1)


@inner
def _first_window(axis: PoolAxis, at: int) -> int:
    """The first window with element `at` of an axis, if any has it."""
    return max(0, at + axis.low - axis.positions + axis.stride) // axis.stride


@cache
def overlapping_pool_gradient(direction: str, kind: str, columns: int, step: int) -> Codelet:
    """Makes the codelet for one direction of comparison, and windows of `columns` columns, `step` apart.

    Operand and target are of the element type `kind`, f32, f16 or bf16; the source and the initial value are f32.
    """
    most = -(-columns // step)
    choose_row = along_row(choosing(direction, kind, columns, step), columns, step)
    gather, gather_groups = gathering(kind, most, step), gathering_groups(kind, columns, step)

    @inner
    def gather_row(given: OverlappingPools, source: int, target: int, row: int, chosen: int) -> None:
        """Computes the sums of a row of elements."""
        high, wide, channels, slots = given.high, given.wide, given.channels, given.slots
        first, last = _first_window(high, row), _last_window(high, row)
        row_bytes, slot = 4 * wide.windows * channels, first % slots
        source, chosen = source + first * row_bytes, chosen + slot * row_bytes
        down = high.stride * columns
        number = (row + high.low) * columns - first * down
        at, rows = 0, max(last - first + 1, 0)
        while at < wide.size:
            window = _first_window(wide, at)
            to, here = target + at * wide.pitch, number + at + wide.low
            if at == given.first_group and given.groups > 0:
                move = 4 * ((at + wide.low) // step) * channels
                ring_of_groups = source + move, chosen + move, row_bytes, slot, slots, rows
                gather_groups(1, *ring_of_groups, number, down, given.initial, to, wide.pitch, channels, given.groups)
                at += step * given.groups
            else:
                count = max(_last_window(wide, at) - window + 1, 0) if rows > 0 else 0
                together = wide.inners if at == wide.first_inner else 1
                move = 4 * window * channels
                ring = source + move, chosen + move, row_bytes, 4 * channels, slot, slots, rows
                gather(count, *ring, here - window * step, down, given.initial, to, together * channels)
                at += together

    def gradient(parameters: int, lo: int, hi: int, scratch: int) -> None:
        given, chosen = OverlappingPools.read(parameters), scratch + RESERVED_SCRATCH
        row_bytes = 4 * given.wide.windows * given.channels
        for unit in range(lo, hi):
            operand, target = given.operand + unit * given.operand_pitch, given.target + unit * given.operand_pitch
            source, made = given.source + unit * given.source_pitch, 0
            for row in range(given.high.size):
                while made <= _last_window(given.high, row):
                    to = chosen + made % given.slots * row_bytes
                    choose_row(given.high, given.wide, operand, made, given.channels, 0, to, 4)
                    made += 1
                gather_row(given, source, target + row * given.high.pitch, row, chosen)

    suffix = "" if kind == "f32" else f"_{kind}"
    return Codelet(gradient, f"overlapping_pool_gradient_{direction}_{columns}_{step}{suffix}", in_vectors=True)


def _groups(wide: PoolAxis, channels: int) -> tuple[int, int]:
    """The first element of groups, and how many there are: all windows with them exist, and vectors end in the row."""
    reached = -(-LANES // max(channels, 1))  # elements, or windows, of a vector
    first = max((wide.positions - 1) // wide.stride, -(-wide.low // wide.stride))
    last = min(wide.windows - reached, (wide.size + wide.low - reached + 1) // wide.stride - 1)
    return first * wide.stride - wide.low, max(0, last - first + 1) if 1 < wide.stride <= wide.positions else 0


def encoded_overlapping_pools(work: SelectAndScatterWork) -> Encoded:
    """The fields of `OverlappingPools`."""
    operand, source, spatial = work.operand.shape, work.source.shape, spatial_dimensions(work.window)
    high, wide = axes_of(operand, source, work.window, 2)
    channels = prod(operand.dimensions[spatial.stop :])
    first, groups = _groups(wide, channels)
    parameters = OverlappingPools.of(
        work,
        operand_pitch=operand.dtype.itemsize * prod(operand.dimensions[spatial.start :]),
        source_pitch=4 * prod(source.dimensions[spatial.start :]),
        channels=channels,
        slots=-(-high.positions // high.stride),
        first_group=first,
        groups=groups,
        high=high,
        wide=wide,
    )
    codelet = overlapping_pool_gradient(work.select, operand.element_type, wide.positions, wide.stride)
    return Encoded.of(codelet, block(parameters), positions_bytes(source, work.window))


def encoded_select_and_scatter(work: SelectAndScatterWork) -> Encoded:
    """The codelet for windows that are apart, or that overlap, with its parameters and scratch."""
    return (encoded_pool_gradient if is_apart(work.source.shape, work.window) else encoded_overlapping_pools)(work)
