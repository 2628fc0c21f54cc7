"""A codelet with addresses that depend on a loop's iteration, such as the addresses of a ring's slots.

Each worker has its own copy of the parameters and its own iteration count, so no worker waits for an address.
"""

from __future__ import annotations

from engine.codelets.host.rows import copy_memory
from engine.codelets.language.build import codelet
from engine.codelets.language.memory import call_code, load_i64, store_i64
from engine.codelets.language.record import Address, Record, word
from engine.codelets.language.scratch import ScratchLayout, ScratchSpace, after
from engine.machine_code.abi import RESERVED_SCRATCH


class PerIteration(Record):
    """Parameters of `per_iteration`, before a Move for each address that changes and the codelet's parameters."""

    codelet: Address = 0
    parameter_words: int  # of the codelet
    moved: int  # number of addresses that change


class Move(Record):
    """An address that changes."""

    word: int  # of the codelet's parameters
    counter: int  # the word of scratch that holds the iteration
    values: Address = 0  # int64: the bytes added in each iteration


@codelet
def per_iteration(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Runs units lo <= unit < hi of the codelet. Scratch: the executor's words, its parameters, its scratch."""
    given, moves = PerIteration.read(parameters), parameters + 8 * PerIteration.WORDS
    own, words = scratch + RESERVED_SCRATCH, given.parameter_words
    inside = after(own, 8 * words)
    copy_memory(own, moves + 8 * Move.WORDS * given.moved, 8 * words)
    copy_memory(inside, scratch, RESERVED_SCRATCH)
    for number in range(given.moved):
        move = Move.read(moves, number)
        address = own + 8 * move.word
        store_i64(address, load_i64(address) + load_i64(move.values + 8 * word(scratch, move.counter)))
    call_code(given.codelet, own, lo, hi, inside)


def per_iteration_scratch(words: int, inside: ScratchSpace) -> ScratchSpace:
    """The scratch for a codelet with `words` words of parameters that itself needs `inside`."""
    layout = ScratchLayout()
    layout.area(8 * words)
    layout.nested(RESERVED_SCRATCH, inside)
    return layout.space()
