"""Fused loops over the elements of windows, with these as the operation has them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.ir.attributes import Window
from engine.program.work.fused_loop import FusedLoop


@dataclass(frozen=True, slots=True)
class WindowLoop(FusedLoop):
    """A fused loop that combines windows' elements of operand 0 from operand 1 on, an initial value.

    Operand 0 has all elements of all windows, also those that padding has added. `windows` are their numbers along each
    of its dimensions, `strides` its own, in bytes. `is_neutral` tells that combining with the initial value changes
    nothing, so that padding may be left out.
    """

    window: Window = ()
    windows: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    is_neutral: bool = False
