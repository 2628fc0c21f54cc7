"""Several codelets as one: each unit of all of them, one after the other, before the next unit of the first.

What a unit hands on is still in the cache when it is read. Arrays that nobody else wants never become memory: all of
a worker's units have the same piece of its scratch for them.
"""

from __future__ import annotations

from engine.codelets.build import codelet
from engine.codelets.memory import call4, store_i64
from engine.codelets.record import Address, Record
from engine.codelets.rows import copy_memory, word
from engine.machine_code.abi import RESERVED_SCRATCH


class Chain(Record):
    """Parameters of `chain`: these, Link's words for each codelet, Piece's for each address, those of the codelets.

    Unit: one unit of the codelet that has fewest, and as many times more of each other one as that has more of them.
    """

    links: int  # how many codelets
    pieces: int  # how many of their parameters are addresses of arrays that pieces of scratch stand for
    parameter_words: int  # of all codelets
    piece_bytes: int  # of all arrays


class Link(Record):
    """A codelet."""

    codelet: Address = 0
    parameters: int  # where its parameters begin among those of all, in words
    ratio: int  # its units in one of the chain
    units: int  # all of them


class Piece(Record):
    """An address of an array that is handed on in scratch."""

    word: int  # among the parameters of all codelets
    place: int  # where the pieces of scratch for all arrays have that for this one, in bytes
    bytes: int  # what a unit has of it


@codelet
def chain(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Units lo <= unit < hi. Scratch: the executor's words, all parameters, the pieces, the codelets' scratch."""
    links, pieces = word(parameters, Chain.LINKS), word(parameters, Chain.PIECES)
    words = word(parameters, Chain.PARAMETER_WORDS)
    first_link = parameters + 8 * Chain.WORDS
    first_piece = first_link + 8 * Link.WORDS * links
    own = scratch + RESERVED_SCRATCH
    place = (own + 8 * words + 63) >> 6 << 6
    inside = place + word(parameters, Chain.PIECE_BYTES)
    copy_memory(own, first_piece + 8 * Piece.WORDS * pieces, 8 * words)
    copy_memory(inside, scratch, RESERVED_SCRATCH)
    for unit in range(lo, hi):
        for number in range(pieces):
            piece = first_piece + 8 * Piece.WORDS * number
            # The codelets find the unit's piece as if the whole array lay there.
            address = place + word(piece, Piece.PLACE) - unit * word(piece, Piece.BYTES)
            store_i64(own + 8 * word(piece, Piece.WORD), address)
        for number in range(links):
            link = first_link + 8 * Link.WORDS * number
            ratio = word(link, Link.RATIO)
            end = min((unit + 1) * ratio, word(link, Link.UNITS))
            call4(word(link, Link.CODELET), own + 8 * word(link, Link.PARAMETERS), unit * ratio, end, inside)


def chain_scratch_bytes(words: int, piece_bytes: int, inside: int) -> int:
    """The scratch of codelets with so many words of parameters, the greediest of which needs `inside` bytes."""
    return RESERVED_SCRATCH + 8 * words + 64 + piece_bytes + RESERVED_SCRATCH + inside
