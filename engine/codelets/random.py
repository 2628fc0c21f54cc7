"""Random bits from counters: Philox 4x32-10 and ThreeFry 2x32-20, and the states that hold the next counter.

Both map a key and a counter to words that depend on nothing else, so any unit can begin anywhere. A state is
u64[3] (key, counter low, counter high) or u64[2] (key, counter low).
"""

from __future__ import annotations

from math import prod
from typing import Any

from engine.codelets.host.rows import copy_memory
from engine.codelets.language.build import codelet, inner
from engine.codelets.language.encoded import Encoded
from engine.codelets.language.memory import fetch_and_add, load_i64, pointer, store_i64
from engine.codelets.language.record import Address, Record, block, word
from engine.machine_code.abi import RESERVED_SCRATCH
from engine.ops.generators import WORDS
from engine.program.work.random import DrawWork, NextStateWork, RandomBitsWork, three_fry_dimension

WORD = 0xFFFFFFFF
SIGN = -(1 << 63)
PHILOX_MULTIPLIER_0, PHILOX_MULTIPLIER_1 = 0xD2511F53, 0xCD9E8D57
PHILOX_KEY_STEP_0, PHILOX_KEY_STEP_1 = 0x9E3779B9, 0xBB67AE85
THREE_FRY_PARITY = 0x1BD11BDA
SCRATCH_BYTES = 16


class PhiloxBits(Record):
    """Parameters of `philox_bits`. Unit: UNIT counters, four words each."""

    state: Address = 0
    target: Address = 0
    state_words: int
    values: int  # in the result: elements of up to 32 bits, or 32-bit halves of 64-bit elements
    value_bytes: int
    unit: int  # counters of one unit


class ThreeFryBits(Record):
    """Parameters of `three_fry_bits`. Unit: UNIT counters, two words each.

    The two words of a counter become one 64-bit element, or two elements adjacent along a dimension.
    """

    state: Address = 0
    target: Address = 0
    counters: int
    item_bytes: int
    extent: int  # size of the dimension along which elements from one counter are adjacent
    inner: int  # elements of one index of that dimension
    unit: int  # counters of one unit


class NextState(Record):
    """Parameters of `next_state` and `draw_state`. One unit."""

    source: Address = 0
    target: Address = 0
    state_words: int
    distance: int  # counters used


@inner
def philox_fill(target: Any, first: int, count: int, key: int, low: int, high: int) -> None:
    """Writes the words of `count` counters from number `first` on, four each, truncated to the target's elements."""
    for i in range(count):
        x01 = low + (first + i)
        x23 = high + ((x01 ^ SIGN) < (low ^ SIGN))
        x0, x1, x2, x3 = x01 & WORD, (x01 >> 32) & WORD, x23 & WORD, (x23 >> 32) & WORD
        key0, key1 = key & WORD, (key >> 32) & WORD
        for _ in range(10):
            product0, product1 = PHILOX_MULTIPLIER_0 * x0, PHILOX_MULTIPLIER_1 * x2
            x0 = ((product1 >> 32) & WORD) ^ x1 ^ key0
            x1 = product1 & WORD
            x2 = ((product0 >> 32) & WORD) ^ x3 ^ key1
            x3 = product0 & WORD
            key0, key1 = (key0 + PHILOX_KEY_STEP_0) & WORD, (key1 + PHILOX_KEY_STEP_1) & WORD
        target[4 * i] = x0
        target[4 * i + 1] = x1
        target[4 * i + 2] = x2
        target[4 * i + 3] = x3


@inner
def philox_fill_typed(target: int, value_bytes: int, first: int, count: int, key: int, low: int, high: int) -> None:
    """Calls `philox_fill` with memory at an address."""
    if value_bytes == 4:
        philox_fill(pointer(target, "uint32"), first, count, key, low, high)
    elif value_bytes == 2:
        philox_fill(pointer(target, "uint16"), first, count, key, low, high)
    else:
        philox_fill(pointer(target, "uint8"), first, count, key, low, high)


@codelet
def philox_bits(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Writes the values of the counters of units lo <= unit < hi; of the last counter as many as the result has."""
    given, rest = PhiloxBits.read(parameters), scratch + RESERVED_SCRATCH
    key, low, size = word(given.state, 0), word(given.state, 1), given.value_bytes
    high = word(given.state, 2) if given.state_words > 2 else key
    first, last = lo * given.unit, min(hi * given.unit, (given.values + 3) // 4)
    target, full = given.target + first * 4 * size, min(last, given.values // 4) - first
    philox_fill_typed(target, size, first, full, key, low, high)
    if first + full < last:
        philox_fill_typed(rest, size, first + full, 1, key, low, high)
        copy_memory(target + full * 4 * size, rest, given.values % 4 * size)


@inner
def rotated(x: int, count: int) -> int:
    """A 32-bit word, rotated to the left."""
    return ((x << count) | (x >> (32 - count))) & WORD


@inner
def three_fry(key: int, counter: int) -> tuple[int, int]:
    """The two words that ThreeFry makes of a counter."""
    key0, key1 = key & WORD, (key >> 32) & WORD
    key2 = THREE_FRY_PARITY ^ key0 ^ key1
    x0, x1 = ((counter & WORD) + key0) & WORD, (((counter >> 32) & WORD) + key1) & WORD
    for step in range(1, 6):
        for half in range(4):
            if step % 2:
                rotation = 13 if half == 0 else 15 if half == 1 else 26 if half == 2 else 6
            else:
                rotation = 17 if half == 0 else 29 if half == 1 else 16 if half == 2 else 24
            x0 = (x0 + x1) & WORD
            x1 = rotated(x1, rotation) ^ x0
        key0, key1, key2 = key1, key2, key0
        x0, x1 = (x0 + key0) & WORD, (x1 + key1 + step) & WORD
    return x0, x1


@inner
def three_fry_fill(target: Any, given: ThreeFryBits, first: int, last: int) -> None:
    """Writes the values of the counters first <= counter < last, two for each."""
    key, start = word(given.state, 0), word(given.state, 1)
    extent, per_index, pairs = given.extent, given.inner, (given.extent + 1) // 2
    for counter in range(first, last):
        x0, x1 = three_fry(key, start + counter)
        row, column = counter // per_index, counter % per_index
        index = 2 * (row % pairs)
        offset = (row // pairs * extent + index) * per_index + column
        target[offset] = x0
        if index + 1 < extent:
            target[offset + per_index] = x1


@codelet
def three_fry_bits(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Writes the elements of the counters of units lo <= unit < hi."""
    given = ThreeFryBits.read(parameters)
    first, last = lo * given.unit, min(hi * given.unit, given.counters)
    if given.item_bytes == 8:
        key, start = word(given.state, 0), word(given.state, 1)
        for counter in range(first, last):
            x0, x1 = three_fry(key, start + counter)
            store_i64(given.target + 8 * counter, x0 | (x1 << 32))
    elif given.item_bytes == 4:
        three_fry_fill(pointer(given.target, "uint32"), given, first, last)
    elif given.item_bytes == 2:
        three_fry_fill(pointer(given.target, "uint16"), given, first, last)
    else:
        three_fry_fill(pointer(given.target, "uint8"), given, first, last)


@codelet
def next_state(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Writes the state with its counter advanced by DISTANCE."""
    given = NextState.read(parameters)
    low = word(given.source, 1)
    further = low + given.distance
    store_i64(given.target, load_i64(given.source))
    store_i64(given.target + 8, further)
    if given.state_words > 2:
        store_i64(given.target + 16, word(given.source, 2) + ((further ^ SIGN) < (low ^ SIGN)))


@codelet
def draw_state(parameters: int, lo: int, hi: int, scratch: int) -> None:
    """Copies a state of three words; advances the original atomically, so concurrent programs get different copies."""
    given = NextState.read(parameters)
    store_i64(given.target, load_i64(given.source))
    store_i64(given.target + 8, fetch_and_add(given.source + 8, given.distance))
    store_i64(given.target + 16, word(given.source, 2))


def encoded_bits(work: RandomBitsWork) -> Encoded:
    """The fields of `PhiloxBits` or `ThreeFryBits`."""
    bits, size = work.bits.shape, work.bits.shape.dtype.itemsize
    common = {"target": work.bits.address, "unit": work.unit_counters}
    if work.is_philox:
        parts, words = (2 if size == 8 else 1), work.state.shape.elements
        sizes = {"state_words": words, "values": bits.elements * parts, "value_bytes": size // parts}
        return Encoded.of(philox_bits, block(PhiloxBits.of(work, **common, **sizes)), SCRATCH_BYTES)
    dimension = three_fry_dimension(bits)
    three_fry = ThreeFryBits.of(
        work,
        **common,
        item_bytes=size,
        extent=bits.dimensions[dimension] if bits.rank else 1,
        inner=prod(bits.dimensions[dimension + 1 :]),
    )
    return Encoded.of(three_fry_bits, block(three_fry))


def encoded_next_state(work: NextStateWork) -> Encoded:
    """The fields of `NextState`."""
    return Encoded.of(next_state, block(NextState.of(work, state_words=work.source.shape.elements)))


def encoded_draw(work: DrawWork) -> Encoded:
    """The fields of `NextState`, with the address of a hidden state."""
    return Encoded.of(draw_state, block(NextState.of(work, source=work.state.address, state_words=WORDS)))
