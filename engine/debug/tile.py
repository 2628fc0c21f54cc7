"""A tile's memory while it runs its units of one compute set: a copy of each buffer between guards, and scratch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal

import numpy as np

from engine.codelets.language.build import codelet
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import call_code, floating_point_state, flush_to_zero, set_floating_point_state
from engine.codelets.language.record import word
from engine.debug.aside import Aside
from engine.debug.cells import cell_type
from engine.debug.poison import Poison, poison_bytes
from engine.ir.shape import Shape
from engine.machine_code.abi import Scratch
from engine.program.program import Buffer, ComputeSet
from engine.runtime.buffers import aligned_zeros


@codelet
def call_as_worker(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Parameters: the addresses of a codelet and of its parameters."""
    floating_point = floating_point_state()
    set_floating_point_state(flush_to_zero(floating_point))
    call_code(word(parameters, 0), word(parameters, 1), lo, hi, scratch)
    set_floating_point_state(floating_point)


GUARD = 1024
"""Bytes on either side of each buffer that no codelet may change."""
LINE = 128


@cache
def guard(kind: Poison) -> np.ndarray:
    """Contents of a guard, uint8 [GUARD]."""
    return poison_bytes(kind, GUARD)


class GuardedBlock:
    """Memory for one array between guards. `cells` may be written by the code that prepares or inspects it."""

    def __init__(self, shape: Shape) -> None:
        body = max(LINE, -(-shape.bytes // LINE) * LINE)
        self._bytes = aligned_zeros(body + 2 * GUARD)
        self._front, self._back = self._bytes[:GUARD], self._bytes[GUARD + shape.bytes :]
        self.cells = self._bytes[GUARD : GUARD + shape.bytes].view(cell_type(shape))
        self.address = self._bytes.ctypes.data + GUARD
        self.size = shape.bytes

    def arm(self, kind: Poison) -> None:
        """Poisons the guards."""
        self._front[:] = guard(kind)
        self._back[:] = poison_bytes(kind, self._back.size)

    def breach(self, kind: Poison) -> int | None:
        """Offset of the first changed byte outside, from the array's start; None if there is none."""
        after = np.flatnonzero(self._back != poison_bytes(kind, self._back.size))
        if after.size:
            return self.size + int(after[0])
        before = np.flatnonzero(self._front != guard(kind))
        return int(before[0]) - GUARD if before.size else None


def touched(compute_set: ComputeSet) -> list[Buffer]:
    """The buffers in a compute set's spans or addresses."""
    spans = [span.buffer for span in (*compute_set.reads, *compute_set.writes)]
    return list(dict.fromkeys([*spans, *(address.buffer for address in compute_set.work.addresses)]))


class Tile:
    """The memory of one tile at a time; its blocks are refilled for the next tile."""

    def __init__(self, compute_set: ComputeSet, block: Encoded, codelet: int, aside: Aside) -> None:
        self._block, self._codelet, self._aside = block, codelet, aside
        self._hidden = [(state, state.copy()) for state in aside.hidden(compute_set)]
        self.blocks = {buffer: GuardedBlock(buffer.shape) for buffer in touched(compute_set) if not aside.has(buffer)}
        self.scratch_bytes = block.scratch_bytes
        size = -(-(Scratch.BYTES + block.scratch_bytes + GUARD) // LINE) * LINE
        self._scratch = aligned_zeros(size)
        self._inside = Scratch.BYTES + block.scratch_bytes
        self._gaps = [(Scratch.BYTES + begin, Scratch.BYTES + end) for begin, end in block.scratch_gaps]

    def run(
        self, lo: int, hi: int, words: Sequence[int], scratch: Poison, counting: bool = False
    ) -> int | Literal["scratch", "parameters"] | None:
        """Runs the units lo <= unit < hi; returns the memory other than buffers that they have wrongly written, if any.

        A number is the first byte of scratch, after the executor's words, that is changed in a gap between its areas.
        `words` are the executor's words of scratch, the rest of which is poisoned. Floating-point exceptions are
        counted in the run that is `counting`; hidden states start each run as before the first.
        """
        for state, before in self._hidden:
            state[:] = before
        blank = poison_bytes(scratch, self._scratch.size - Scratch.BYTES)
        self._scratch[Scratch.BYTES :] = blank
        head = np.zeros(Scratch.BYTES // 8, np.int64)
        head[: len(words)] = words
        self._scratch[: Scratch.BYTES] = head.view(np.uint8)
        parameters = self._parameters(counting)
        given = parameters.copy()
        call = np.array([self._codelet, parameters.ctypes.data], np.int64)
        call_as_worker(call.ctypes.data, lo, hi, self._scratch.ctypes.data)
        if not np.array_equal(parameters, given):
            return "parameters"
        kept = np.array_equal(self._scratch[: Scratch.BYTES].view(np.int64), head)
        inside = np.array_equal(self._scratch[self._inside :], blank[self._inside - Scratch.BYTES :])
        return self._changed_gap(blank) if kept and inside else "scratch"

    def _changed_gap(self, blank: np.ndarray) -> int | None:
        """The first byte in gaps of scratch, after the executor's words, that differs from `blank`; else None."""
        for begin, end in self._gaps:
            changed = np.flatnonzero(self._scratch[begin:end] != blank[begin - Scratch.BYTES : end - Scratch.BYTES])
            if changed.size:
                return begin - Scratch.BYTES + int(changed[0])
        return None

    def _parameters(self, counting: bool) -> np.ndarray:
        """The parameter block of this tile, in which every address is in the tile's own memory."""
        parameters = self._block.words.copy()
        for relocation in self._block.relocations:
            block = self.blocks.get(relocation.address.buffer)
            address = self._aside.address(counting) if block is None else block.address
            parameters[relocation.word] = address + relocation.address.offset
        return parameters
