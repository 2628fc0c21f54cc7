"""Copies of arrays, with their purpose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.program.work.fused_loop import FusedLoop


class Purpose(Enum):
    """The purpose of a copy."""

    LAYOUT = "layout"
    """Another layout, or a part of another array."""
    UPDATE = "update"
    """A new value over an old one, whole."""
    OPERAND = "operand"
    """A whole array, of which a part is written next."""
    INITIAL = "initial"
    """A whole initial value into a loop's state."""


@dataclass(frozen=True, slots=True)
class Copy(FusedLoop):
    """A fused loop that only stores the elements it loads."""

    purpose: Purpose = Purpose.LAYOUT
