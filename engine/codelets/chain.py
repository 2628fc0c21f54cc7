"""Several codelets fused: each unit goes through all of them, one after the other, before the next unit of the first.

A unit's intermediate values are still in cache when they are read. Arrays with no other readers are never
materialised: all of a worker's units use the same slice of its scratch for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.codelets.host.rows import copy_memory
from engine.codelets.language.build import codelet
from engine.codelets.language.memory import call_code, store_i64
from engine.codelets.language.record import Address, Record
from engine.codelets.language.scratch import ScratchLayout, ScratchSpace, after
from engine.machine_code.abi import RESERVED_SCRATCH


class Chain(Record):
    """Parameters of `chain`, before a Link for each codelet, a Block for each address, and the codelets' parameters.

    Unit: one unit of the codelet with the fewest units, and proportionally more units of the others.
    """

    links: int  # number of codelets
    relocated: int  # number of parameters that are addresses of arrays replaced by slices of scratch
    parameter_words: int  # of all codelets
    block_bytes: int  # of the slices of all arrays, and the gaps after them
    parts: int  # units that run together: they share a slice of each array


class ChainedCodelet(Record):
    """A codelet."""

    codelet: Address = 0
    parameters: int  # offset of its parameters among the parameters of all, in words
    ratio: int  # its units in one of the chain
    units: int  # its number of units


class ForwardedAddress(Record):
    """An address of an array that is forwarded in scratch."""

    word: int  # among the parameters of all codelets
    offset: int  # byte offset of this array's slice among the slices of all arrays
    bytes: int  # of the array in the units that run together


@codelet
def chain(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Runs units lo <= unit < hi. Scratch: the executor's words, all parameters, the slices, the codelets' scratch."""
    given, links = Chain.read(parameters), parameters + 8 * Chain.WORDS
    blocks, words = links + 8 * ChainedCodelet.WORDS * given.links, given.parameter_words
    own = scratch + RESERVED_SCRATCH
    offset = after(own, 8 * words)
    inside = offset + given.block_bytes
    copy_memory(own, blocks + 8 * ForwardedAddress.WORDS * given.relocated, 8 * words)
    copy_memory(inside, scratch, RESERVED_SCRATCH)
    unit = lo
    while unit < hi:
        whole = unit // given.parts
        end = min(hi, (whole + 1) * given.parts)
        for number in range(given.relocated):
            block = ForwardedAddress.read(blocks, number)
            # The codelets address the slice as if the whole array were stored there.
            store_i64(own + 8 * block.word, offset + block.offset - whole * block.bytes)
        for number in range(given.links):
            link = ChainedCodelet.read(links, number)
            first, last = unit * link.ratio, min(end * link.ratio, link.units)
            if first < last:
                call_code(link.codelet, own + 8 * link.parameters, first, last, inside)
        unit = end


def chain_scratch(words: int, slices: Sequence[int], inside: Sequence[ScratchSpace]) -> tuple[ScratchSpace, list[int]]:
    """Makes the scratch for codelets with `words` words of parameters, slices of these bytes, and scratch `inside`.

    Also returns the offset of each slice, and of the codelets' scratch, from the first slice.
    """
    layout = ScratchLayout()
    layout.area(8 * words)
    found = [*(layout.area(size) for size in slices), layout.nested(RESERVED_SCRATCH, *inside)]
    return layout.space(), [each - found[0] for each in found]
