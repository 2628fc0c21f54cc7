"""Work of which only the encoded form is known: a codelet and its parameter words."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from engine.codelets.record import Block
from engine.program.work.base import Encoded, Relocation, Work


@dataclass(frozen=True, slots=True)
class Words(Work):
    """A codelet and its parameters; the fields are those of Encoded."""

    codelet: Any
    words: tuple[int, ...]
    relocations: tuple[Relocation, ...]
    scratch_bytes: int = 0
    keep: tuple[np.ndarray, ...] = field(default=(), compare=False)
    calls: tuple[tuple[int, Any], ...] = ()

    @classmethod
    def of(cls, codelet: Any, parameters: np.ndarray, relocations: Sequence[Relocation], **rest: Any) -> Self:
        """The work of a parameter block, int64 [words], which is copied."""
        return cls(codelet, tuple(parameters.tolist()), tuple(relocations), **rest)

    @classmethod
    def of_block(cls, codelet: Any, block: Block, **rest: Any) -> Self:
        """The work of a block of records, whose relocations are addresses."""
        relocations = tuple(Relocation(word, address) for word, address in block.relocations)
        return cls(codelet, tuple(block.words.tolist()), relocations, keep=block.keep, **rest)

    @property
    def vertex(self) -> Hashable:
        """The codelet."""
        return self.codelet

    def encode(self) -> Encoded:
        """The fields as they are."""
        words = np.array(self.words, np.int64)
        return Encoded(self.codelet, words, self.relocations, self.scratch_bytes, self.keep, self.calls)


def has_codelet(work: Work, *codelets: Any) -> bool:
    """Whether work is that of one of these codelets."""
    return isinstance(work, Words) and work.codelet in codelets
