"""Two codelets as one: each unit of a writer, then at once the same unit of the one reader of what it wrote.

What is handed over never becomes memory: a worker's units all write the same piece of its scratch, which stays cached.
"""

from __future__ import annotations

from engine.codelets.build import codelet
from engine.codelets.memory import call4, store_i64
from engine.codelets.record import Address, Record
from engine.codelets.rows import copy_memory, word
from engine.machine_code.abi import RESERVED_SCRATCH


class HandOver(Record):
    """Parameters of `hand_over`, before those of the writer and then those of the reader. Unit: one of each."""

    writer: Address = 0  # the codelets
    reader: Address = 0
    writer_words: int  # of their parameters
    reader_words: int
    written: int  # the word of the writer's parameters with the address of what is handed over
    read: int  # the same of the reader's
    piece_bytes: int  # what a unit hands over


@codelet
def hand_over(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Units lo <= unit < hi. Scratch: the executor's words, both parameter blocks, the piece, the codelets' scratch."""
    writer, reader = word(parameters, HandOver.WRITER), word(parameters, HandOver.READER)
    writer_words, reader_words = word(parameters, HandOver.WRITER_WORDS), word(parameters, HandOver.READER_WORDS)
    piece_bytes = word(parameters, HandOver.PIECE_BYTES)
    written = scratch + RESERVED_SCRATCH
    read = written + 8 * writer_words
    piece = (read + 8 * reader_words + 63) >> 6 << 6
    inside = piece + ((piece_bytes + 63) >> 6 << 6)
    copy_memory(written, parameters + 8 * HandOver.WORDS, 8 * (writer_words + reader_words))
    copy_memory(inside, scratch, RESERVED_SCRATCH)
    for unit in range(lo, hi):
        # Both find the unit's piece as if the whole array lay there.
        store_i64(written + 8 * word(parameters, HandOver.WRITTEN), piece - unit * piece_bytes)
        store_i64(read + 8 * word(parameters, HandOver.READ), piece - unit * piece_bytes)
        call4(writer, written, unit, unit + 1, inside)
        call4(reader, read, unit, unit + 1, inside)


def hand_over_scratch_bytes(words: int, piece_bytes: int, inside: int) -> int:
    """The scratch of two codelets with so many words of parameters, of which the greedier needs `inside` bytes."""
    return RESERVED_SCRATCH + 8 * words + 64 + -(-piece_bytes // 64) * 64 + RESERVED_SCRATCH + inside
