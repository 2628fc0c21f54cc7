"""Windows of pooling along an axis, and along a row of an image: which positions of a window are in the operand."""

from __future__ import annotations

from math import prod
from typing import Any

from engine.codelets.language.build import inner
from engine.codelets.language.record import Record
from engine.ir.attributes import Window, WindowDimension
from engine.ir.pooling import spatial_dimensions
from engine.ir.shape import Shape


class PoolAxis(Record):
    """Words for the height or the width, along which neighbouring windows or elements are computed together."""

    windows: int
    stride: int
    low: int  # padding
    size: int  # of the operand
    positions: int  # of a window
    pitch: int  # bytes in operand and target
    first_whole: int  # the first window that is completely inside the operand
    wholes: int  # such windows that are computed together
    first_inner: int  # the first element that is in as many windows as any
    inners: int  # such elements that are computed together


def along_row(kernel: Any, columns: int, step: int) -> Any:
    """Makes a function that calls a kernel of `pool_kernels` for a row of windows of `columns` columns, `step` apart.

    The kernel's arguments: the columns that are in the operand, 0 if no row is; the address of the first of them; the
    bytes between rows, and between columns; the rows; the number of the first position in its window; the address of
    the initial value; the result's address, whose elements have `item` bytes; the numbers of elements and of windows,
    as of one window if these are one column apart; the bytes between windows.
    """

    @inner
    def walk(
        high: PoolAxis, wide: PoolAxis, operand: int, row: int, channels: int, initial: int, result: int, item: int
    ) -> None:
        top = row * high.stride - high.low
        above = max(0, -top)
        rows = min(high.positions, high.size - top) - above
        window = 0
        while window < wide.windows:
            left = window * step - wide.low
            before = max(0, -left)
            inside = max(0, min(columns, wide.size - left) - before) if rows > 0 else 0
            at = operand + (top + above) * high.pitch + (left + before) * wide.pitch
            together = wide.wholes if window == wide.first_whole else 1
            to, number = result + item * window * channels, above * columns + before
            count, windows = (together * channels, 1) if step == 1 else (channels, together)
            places = to, count, windows, step * wide.pitch
            kernel(inside, at, high.pitch, wide.pitch, rows, number, initial, *places)
            window += together

    return walk


def pool_axis(w: WindowDimension, low: int, size: int, windows: int, pitch: int) -> PoolAxis:
    """Makes the words of an axis. Elements are computed together unless windows skip elements."""
    first_whole = max(0, -(-low // w.stride))
    wholes = min(windows, (size - w.size + low) // w.stride + 1) - first_whole
    first_inner = max(0, w.size - 1 - low)
    inners = min(size, windows - low) - first_inner
    return PoolAxis(
        windows=windows,
        stride=w.stride,
        low=low,
        size=size,
        positions=w.size,
        pitch=pitch,
        first_whole=first_whole,
        wholes=max(1, wholes),
        first_inner=first_inner,
        inners=max(1, inners) if w.stride == 1 else 1,
    )


def axes_of(operand: Shape, source: Shape, window: Window, count: int) -> list[PoolAxis]:
    """The last `count` axes up to the last dimension with windows; those that the operand lacks have one element."""
    axes = [pool_axis(WindowDimension(1), 0, 1, 1, 0)] * count
    for d in spatial_dimensions(window):
        pitch = operand.dtype.itemsize * prod(operand.dimensions[d + 1 :])
        axes.append(pool_axis(window[d], window[d].padding_low, operand.dimensions[d], source.dimensions[d], pitch))
    return axes[-count:]
