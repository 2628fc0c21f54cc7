"""Fused loops over the elements of windows, with the windows as the operation states them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.ir.attributes import Window
from engine.program.work.fused_loop import FusedLoop


@dataclass(frozen=True, slots=True)
class WindowLoop(FusedLoop):
    """A fused loop that combines the elements of each window of operand 0, beginning with operand 1, an initial value.

    Operand 0 has all elements of all windows, also those that padding has added. `windows` counts the windows along
    each of its dimensions, `strides` are its byte strides. With `is_neutral`, combining with the initial value changes
    nothing, and padding may be left out.
    """

    window: Window = ()
    windows: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    is_neutral: bool = False
