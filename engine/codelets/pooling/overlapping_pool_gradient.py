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
from engine.codelets.language.record import Address, Record, word
from engine.codelets.pooling.pool_axis import PoolAxis, along_row, axes_of
from engine.codelets.pooling.pool_kernels import choosing, gathering
from engine.ir.attributes import Window
from engine.ir.pooling import positions_bytes, spatial_dimensions
from engine.ir.shape import Shape
from engine.machine_code.abi import RESERVED_SCRATCH


class OverlappingPools(Record):
    """The parameters."""

    operand: Address = 0
    source: Address = 0
    init: Address = 0
    target: Address = 0
    operand_pitch: int  # bytes of an image
    source_pitch: int
    channels: int
    slots: int  # rows of windows that an element is in, at most
    high: PoolAxis
    wide: PoolAxis


HIGH, WIDE = 8 * OverlappingPools.HIGH, 8 * OverlappingPools.WIDE


@inner
def _last_window(axis: int, at: int) -> int:
    """The last window with element `at` of an axis, if any has it; -1 if all windows begin after it."""
    place = at + word(axis, PoolAxis.LOW)
    return -1 if place < 0 else min(place // word(axis, PoolAxis.STRIDE), word(axis, PoolAxis.WINDOWS) - 1)


@inner
def _first_window(axis: int, at: int) -> int:
    """The first window with element `at` of an axis, if any has it."""
    stride = word(axis, PoolAxis.STRIDE)
    return max(0, at + word(axis, PoolAxis.LOW) - word(axis, PoolAxis.POSITIONS) + stride) // stride


@cache
def overlapping_pool_gradient(direction: str, kind: str, columns: int, step: int) -> Codelet:
    """Makes the codelet for one direction of comparison, and windows of `columns` columns, `step` apart.

    Operand and target are of the element type `kind`, f32, f16 or bf16; the source and the initial value are f32.
    """
    most = -(-columns // step)
    choose_row = along_row(choosing(direction, kind, columns), columns, step)
    gather = gathering(kind, most, step)

    @inner
    def gather_row(parameters: int, source: int, target: int, row: int, chosen: int) -> None:
        """Computes the sums of a row of elements."""
        high, wide, channels = parameters + HIGH, parameters + WIDE, word(parameters, OverlappingPools.CHANNELS)
        first, last, slots = _first_window(high, row), _last_window(high, row), word(parameters, OverlappingPools.SLOTS)
        row_bytes, slot = 4 * word(wide, PoolAxis.WINDOWS) * channels, first % slots
        source, chosen = source + first * row_bytes, chosen + slot * row_bytes
        down = word(high, PoolAxis.STRIDE) * columns
        number = (row + word(high, PoolAxis.LOW)) * columns - first * down
        initial = word(parameters, OverlappingPools.INIT)
        at = 0
        while at < word(wide, PoolAxis.SIZE):
            window = _first_window(wide, at)
            count = max(_last_window(wide, at) - window + 1, 0) if last >= first else 0
            together = word(wide, PoolAxis.INNERS) if at == word(wide, PoolAxis.FIRST_INNER) else 1
            move, here = 4 * window * channels, number + at + word(wide, PoolAxis.LOW) - window * step
            ring = source + move, chosen + move, row_bytes, 4 * channels, slot, slots, last - first + 1
            to = target + at * word(wide, PoolAxis.PITCH)
            gather(count, *ring, here, down, initial, to, together * channels)
            at += together

    def gradient(parameters: int, lo: int, hi: int, scratch: int) -> None:
        high, wide, chosen = parameters + HIGH, parameters + WIDE, scratch + RESERVED_SCRATCH
        channels = word(parameters, OverlappingPools.CHANNELS)
        row_bytes = 4 * word(wide, PoolAxis.WINDOWS) * channels
        slots = word(parameters, OverlappingPools.SLOTS)
        for unit in range(lo, hi):
            move = unit * word(parameters, OverlappingPools.OPERAND_PITCH)
            operand = word(parameters, OverlappingPools.OPERAND) + move
            target = word(parameters, OverlappingPools.TARGET) + move
            source = word(parameters, OverlappingPools.SOURCE) + unit * word(parameters, OverlappingPools.SOURCE_PITCH)
            made = 0
            for row in range(word(high, PoolAxis.SIZE)):
                while made <= _last_window(high, row):
                    choose_row(high, wide, operand, made, channels, 0, chosen + made % slots * row_bytes, 4)
                    made += 1
                gather_row(parameters, source, target + row * word(high, PoolAxis.PITCH), row, chosen)

    suffix = "" if kind == "f32" else f"_{kind}"
    return Codelet(gradient, f"overlapping_pool_gradient_{direction}_{columns}_{step}{suffix}", in_vectors=True)


def encode_overlapping_pools(
    operand_at: tuple[Shape, Address], source_at: tuple[Shape, Address], init: Address, target: Address, window: Window
) -> tuple[OverlappingPools, int, int]:
    """Parameters, number of units and bytes of scratch; operand and source, which is f32, are (shape, address).

    The target has the operand's shape and type.
    """
    (operand, operand_address), (source, source_address) = operand_at, source_at
    spatial = spatial_dimensions(window)
    item = operand.dtype.itemsize
    high, wide = axes_of(operand, source, window, 2)
    images, image = prod(operand.dimensions[: spatial.start]), prod(operand.dimensions[spatial.start :])
    parameters = OverlappingPools(
        operand=operand_address,
        source=source_address,
        init=init,
        target=target,
        operand_pitch=item * image,
        source_pitch=4 * prod(source.dimensions[spatial.start :]),
        channels=prod(operand.dimensions[spatial.stop :]),
        slots=-(-high.positions // high.stride),
        high=high,
        wide=wide,
    )
    return parameters, images if image else 0, positions_bytes(source, window)
