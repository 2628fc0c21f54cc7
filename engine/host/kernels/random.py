"""Codelets and parameter blocks of random bits."""

from __future__ import annotations

from math import prod

from engine.codelets.language.record import block
from engine.codelets.random import (
    SCRATCH_BYTES,
    NextState,
    PhiloxBits,
    ThreeFryBits,
    draw_state,
    next_state,
    philox_bits,
    three_fry_bits,
)
from engine.host.encoded import Encoded
from engine.ops.generators import WORDS
from engine.program.work.random import DrawWork, NextStateWork, RandomBitsWork, three_fry_dimension


def encoded_bits(work: RandomBitsWork) -> Encoded:
    """The fields of `PhiloxBits` or `ThreeFryBits`."""
    bits, state, target = work.bits.shape, work.state.address, work.bits.address
    size, unit = bits.dtype.itemsize, work.unit_counters
    if work.is_philox:
        parts, words = (2 if size == 8 else 1), work.state.shape.elements
        values, value_bytes = bits.elements * parts, size // parts
        philox = PhiloxBits(
            state=state, target=target, state_words=words, values=values, value_bytes=value_bytes, unit=unit
        )
        return Encoded.of(philox_bits, block(philox), SCRATCH_BYTES)
    dimension = three_fry_dimension(bits)
    three_fry = ThreeFryBits(
        state=state,
        target=target,
        counters=work.counters,
        item_bytes=size,
        extent=bits.dimensions[dimension] if bits.rank else 1,
        inner=prod(bits.dimensions[dimension + 1 :]),
        unit=unit,
    )
    return Encoded.of(three_fry_bits, block(three_fry))


def encoded_next_state(work: NextStateWork) -> Encoded:
    """The fields of `NextState`."""
    words = work.source.shape.elements
    parameters = NextState(source=work.source.address, target=work.target, state_words=words, distance=work.distance)
    return Encoded.of(next_state, block(parameters))


def encoded_draw(work: DrawWork) -> Encoded:
    """The fields of `NextState`, with the address of a hidden state."""
    parameters = NextState(source=work.state.address, target=work.target, state_words=WORDS, distance=work.distance)
    return Encoded.of(draw_state, block(parameters))
