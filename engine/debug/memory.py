"""The homes of all buffers of a program: in the arena, at the memory plan's offsets, or in memory of their own."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.debug.homes import FIRST_NUMBER, INITIAL, MOST_NUMBERS, Home
from engine.debug.uses import Use
from engine.program.memory import MemoryPlan
from engine.program.program import Buffer
from engine.runtime.buffers import aligned_zeros

LEAST = 64


class TileHomes:
    """Homes by buffer. `arena` is memory as the plan divides it, with the initial contents of permanent buffers."""

    def __init__(self, buffers: Iterable[Buffer], plan: MemoryPlan, arena: np.ndarray, tiles: int) -> None:
        self._plan, self._arena, self._tiles = plan, arena, tiles
        self._shadow = np.zeros(arena.size, np.uint16)
        self._homes: dict[Buffer, Home] = {}
        self._names: list[str] = []
        for number, buffer in enumerate(dict.fromkeys(buffers), FIRST_NUMBER):
            self._names.append(buffer.name)
            self._homes[buffer] = self._home(buffer, FIRST_NUMBER + (number - FIRST_NUMBER) % MOST_NUMBERS)

    def _home(self, buffer: Buffer, number: int) -> Home:
        if buffer.kind in ("arena", "feed"):
            start = self._plan.offsets[buffer]
            if buffer.permanent:
                self._shadow[start : start + buffer.shape.bytes] = INITIAL
            return Home(buffer, self._arena[start:], self._shadow[start:], number, self._tiles)
        memory = aligned_zeros(max(buffer.shape.bytes, LEAST))
        if buffer.value is not None:
            raw = np.ascontiguousarray(buffer.value).reshape(-1).view(np.uint8)
            memory[: raw.size] = raw
        shadow = np.zeros(memory.size, np.uint16) if buffer.kind == "queue" else None
        return Home(buffer, memory, shadow, number, self._tiles)

    def __getitem__(self, buffer: Buffer) -> Home:
        return self._homes[buffer]

    def begin_step(self) -> None:
        """Marks contents of the arena from the last step as unwritten, except those of permanent buffers."""
        for buffer, home in self._homes.items():
            if buffer.kind in ("arena", "feed") and not buffer.permanent:
                home.forget()

    def holder(self, use: Use, cell: int) -> str | None:
        """The name of the buffer that has overwritten a cell since the cell was written; None for no buffer."""
        number = use.home.holder(cell)
        return self._names[number - FIRST_NUMBER] if number >= FIRST_NUMBER and number != use.home.number else None
