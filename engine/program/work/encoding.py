"""The encoding of work as it is run: wrapped in a codelet that updates the addresses which move per iteration."""

from __future__ import annotations

import numpy as np

from engine.codelets.language.record import block
from engine.codelets.per_iteration import Move, PerIteration, per_iteration, per_iteration_scratch
from engine.machine_code.abi import Scratch
from engine.program.work.base import Encoded, Work


def encoded(work: Work) -> Encoded:
    """The codelet and parameter block of work, which updates by itself the addresses that move."""
    inner = work.encode()
    moved = [(r.word, r.address.moved) for r in inner.relocations if r.address.moved is not None]
    if not moved:
        return inner
    moves = [
        Move(word=word, counter=Scratch.ITERATION + each.counter, values=np.array(each.values, np.int64))
        for word, each in moved
    ]
    head = PerIteration(parameter_words=len(inner.words), moved=len(moved))
    first = PerIteration.WORDS + Move.WORDS * len(moved)
    return Encoded.of(
        per_iteration,
        block(head, moves, inner.parts()),
        per_iteration_scratch(len(inner.words), inner.scratch),
        ((PerIteration.CODELET, inner.codelet), *((first + word, codelet) for word, codelet in inner.calls)),
    )
