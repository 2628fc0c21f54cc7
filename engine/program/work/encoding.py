"""The encoded form of work as it is run: behind a codelet that moves the addresses which move per iteration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine.codelets.by_turn import ByTurn, Move, by_turn, by_turn_scratch_bytes
from engine.machine_code.abi import Scratch
from engine.program.work.base import Encoded, Work


def encoded(work: Work) -> Encoded:
    """The codelet and parameter block of work, which moves by itself the addresses that move."""
    block = work.encode()
    moved = [(r.word, r.address.moved) for r in block.relocations if r.address.moved is not None]
    if not moved:
        return block
    first = int(ByTurn.WORDS) + int(Move.WORDS) * len(moved)
    head = np.zeros(first, np.int64)
    head[ByTurn.PARAMETER_WORDS], head[ByTurn.MOVED] = len(block.words), len(moved)
    tables = [np.array(each.values, np.int64) for _, each in moved]
    for number, (word, each) in enumerate(moved):
        entry = head[int(ByTurn.WORDS) + int(Move.WORDS) * number :]
        entry[[Move.WORD, Move.COUNTER]] = word, Scratch.TURN + each.counter
        entry[Move.VALUES] = tables[number].ctypes.data
    inner = ((int(ByTurn.CODELET), block.codelet),)
    return Encoded(
        by_turn,
        np.concatenate([head, block.words]),
        tuple(replace(r, word=first + r.word) for r in block.relocations),
        by_turn_scratch_bytes(len(block.words), block.scratch_bytes),
        (*block.keep, *tables),
        (*inner, *((first + word, codelet) for word, codelet in block.calls)),
    )
