"""Flags of touched rows of large variables, from call to call: valid until others write the variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.codelets.language.encoded import Encoded
from engine.program.buffer import LARGE_BYTES
from engine.program.program import Buffer, ComputeSet
from engine.runtime.buffers import DeviceBuffer


class RowFlags:
    """The large variables that an executable writes, and its work that depends on whether others have written them."""

    def __init__(self, sets: Sequence[ComputeSet], blocks: Sequence[Encoded], variables: Mapping[int, Buffer]) -> None:
        numbers = {variables[k]: position for position, k in enumerate(sorted(variables))}
        large = [
            {numbers[b] for s in e.writes if (b := s.buffer) in numbers and b.shape.bytes >= LARGE_BYTES} for e in sets
        ]
        self._written = sorted(set().union(*large))
        pairs = zip(blocks, large, strict=True)
        self._flagged = sorted(set().union(*(each for block, each in pairs if block.generation is not None)))
        self._words = [(block.words, block.generation) for block in blocks if block.generation is not None]
        self._token = object()

    @property
    def are_any(self) -> bool:
        """Whether the executable writes large variables."""
        return bool(self._written)

    def begin(self, variables: list[DeviceBuffer]) -> None:
        """Begins a call, with a new generation of flags if others have written one of the flagged variables."""
        if any(variables[number].writer != (self._token, number) for number in self._flagged):
            self._token = object()  # marks of earlier calls belong to other flags
            for words, number in self._words:
                words[number] += 1
        for number in self._written:
            variables[number].writer = self._token, number
