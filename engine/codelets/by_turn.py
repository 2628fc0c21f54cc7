"""A codelet some of whose addresses depend on the turn of a loop, as those of a ring's slots do.

Each worker has its own copy of the parameters and its own count of the turns, so nobody waits for an address.
"""

from __future__ import annotations

from engine.codelets.build import codelet
from engine.codelets.memory import call4, load_i64, store_i64
from engine.codelets.record import Address, Record
from engine.codelets.rows import copy_memory, word
from engine.machine_code.abi import RESERVED_SCRATCH


class ByTurn(Record):
    """Parameters of `by_turn`: these, MOVES words for each address that moves, then those of the codelet."""

    codelet: Address = 0
    parameter_words: int  # of the codelet
    moved: int  # how many addresses


class Move(Record):
    """An address that moves."""

    word: int  # of the codelet's parameters
    counter: int  # the word of scratch that has the turn
    values: Address = 0  # int64: what is added in each turn


@codelet
def by_turn(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Units lo <= unit < hi of the codelet. Scratch: the executor's words, its parameters, its scratch."""
    words, moved = word(parameters, ByTurn.PARAMETER_WORDS), word(parameters, ByTurn.MOVED)
    moves = parameters + 8 * ByTurn.WORDS
    own = scratch + RESERVED_SCRATCH
    inside = (own + 8 * words + 63) >> 6 << 6
    copy_memory(own, moves + 8 * Move.WORDS * moved, 8 * words)
    copy_memory(inside, scratch, RESERVED_SCRATCH)
    for _ in range(moved):
        turn = word(scratch, word(moves, Move.COUNTER))
        address = own + 8 * word(moves, Move.WORD)
        store_i64(address, load_i64(address) + load_i64(word(moves, Move.VALUES) + 8 * turn))
        moves += 8 * Move.WORDS
    call4(word(parameters, ByTurn.CODELET), own, lo, hi, inside)


def by_turn_scratch_bytes(words: int, inside: int) -> int:
    """The scratch of a codelet with so many words of parameters, which itself needs `inside` bytes."""
    return RESERVED_SCRATCH + 8 * words + 64 + RESERVED_SCRATCH + inside
