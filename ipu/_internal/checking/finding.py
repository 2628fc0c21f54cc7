"""A finding about a line of a program, and its three levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["note", "change", "refused"]
LEVELS: tuple[Level, ...] = ("note", "change", "refused")
"""Levels of a finding: it runs as it is; it runs with the change that the text names; it does not run here."""


@dataclass(frozen=True)
class Finding:
    """A finding: `what` is the name or argument in the program, `advice` what to know or to do; equal advice is printed
    once.
    """

    line: int
    level: Level
    what: str
    advice: str
