"""The first position of each id among equal ones, by a hash table of positions in scratch."""

from __future__ import annotations

from engine.codelets.language.build import codelet
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import pointer
from engine.codelets.language.record import Address, Record, block
from engine.codelets.rows.index_walk import load_index
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.program.work.indexing import FirstOfEqualWork

MULTIPLIER = 0x9E3779B97F4A7C15 - 2**64
"""2**64 divided by the golden ratio: it spreads ids that follow each other, or are evenly spaced."""


class FirstOfEqual(Record):
    """The parameters. Unit: everything."""

    ids: Address = 0
    index_bytes: int
    named: int  # number of ids
    slot_bits: int  # of the table of 2**SLOT_BITS slots, more than there are positions
    target: Address = 0  # int32 [NAMED]


def slot_bits(named: int) -> int:
    """The logarithm of the table's slots: at most half of them are used."""
    return (2 * named - 1).bit_length()


@codelet
def first_of_equal(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Writes all positions. A slot holds 1 + a position, or 0."""
    if lo >= hi:
        return
    given = FirstOfEqual.read(parameters)
    ids, size, bits = given.ids, given.index_bytes, given.slot_bits
    first, slots = pointer(given.target, "int32"), pointer(scratch + RESERVED_SCRATCH, "int32")
    mask = (1 << bits) - 1
    for slot in range(1 << bits):
        slots[slot] = 0
    for position in range(given.named):
        # Extended by sign, ids of an unsigned type differ where they differed before.
        number = load_index(ids + size * position, size, 1)
        slot = ((number * MULTIPLIER) >> (64 - bits)) & mask
        while slots[slot] != 0 and load_index(ids + size * (slots[slot] - 1), size, 1) != number:
            slot = (slot + 1) & mask
        if slots[slot] == 0:
            slots[slot] = position + 1
        first[position] = slots[slot] - 1


def encoded_first_of_equal(work: FirstOfEqualWork) -> Encoded:
    """The fields of `FirstOfEqual`."""
    ids, bits = work.ids.shape, slot_bits(work.ids.shape.elements)
    fields = FirstOfEqual.of(work, index_bytes=ids.dtype.itemsize, named=ids.elements, slot_bits=bits)
    return Encoded.of(first_of_equal, block(fields), 4 << bits)
