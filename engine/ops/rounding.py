"""Stochastic rounding: random bits for each element of an array, and the conversion to float16 that uses them.

The generator is a function, not a sequence: bits depend on a key and the number of the element alone. An array is
stored on tiles in blocks of a power of two, so the upper bits of that number are the tile's and the lower ones the
position on the tile: each tile has a generator of its own, and it does not matter which worker computes an element.
"""

from __future__ import annotations

import numpy as np

from engine.ir import Instruction
from engine.ir.floating_point import (
    EXPONENT,
    INDEX_MIXING,
    KEY_MIXING,
    LARGEST_HALF,
    LAST_FACTOR,
    LEAST_EXPONENT,
    RECIPROCAL,
    STEP,
    UNUSED_BITS,
)
from engine.ops.floats import computing
from engine.ops.generators import ROUNDING_STATE
from engine.ops.registry import definition


@definition("rng-get-and-update-state")
def _draw_state(instruction: Instruction, _: list[np.ndarray]) -> np.ndarray:
    """Returns the state, then advances it by `delta` counters."""
    state = ROUNDING_STATE.read()
    following = state.copy()
    following[1:2] += np.uint64(instruction["delta"])
    ROUNDING_STATE.write(following)
    return state


@definition("random-bits")
def _random_bits(_: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """A u32 for each element: its number and a key, both u32, hashed by multiplications and shifts."""
    index, key = operands
    return random_bits(index, key)


def random_bits(index: np.ndarray, key: np.ndarray | np.uint32) -> np.ndarray:
    """Uniform u32 bits for element numbers and a key, both u32."""
    bits = _mixed(np.asarray(index, np.uint32), INDEX_MIXING)
    bits = _mixed(bits ^ np.asarray(key, np.uint32), KEY_MIXING)
    return np.asarray(np.multiply(bits, np.uint32(LAST_FACTOR), dtype=np.uint32))


def _mixed(bits: np.ndarray, mixing: tuple[int, int]) -> np.ndarray:
    factor, shift = mixing
    bits = np.multiply(bits, np.uint32(factor), dtype=np.uint32)
    return bits ^ (bits >> np.uint32(shift))


@definition("stochastic-convert")
def _stochastic_convert(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """Rounds f32 to f16 with random bits, u32."""
    x, bits = operands
    return stochastic_half(x, bits, instruction["overflow"])


def stochastic_half(x: np.ndarray, bits: np.ndarray, overflow: str = "clip") -> np.ndarray:
    """One of the two float16 neighbours of each f32, the nearer with more probability; float16 values are unchanged.

    A finite x that would overflow gives what `overflow` names: "infinity", "nan", or "clip", the largest float16.
    """
    with np.errstate(all="ignore"):
        magnitude = np.abs(x)
        distance = np.maximum(magnitude.view(np.uint32) & np.uint32(EXPONENT), np.uint32(LEAST_EXPONENT))
        distance = distance - np.uint32(STEP)
        steps = magnitude * (np.uint32(RECIPROCAL) - distance).view(np.float32)
        below = np.floor(steps)
        # An odd multiple of 2**-24: never zero and never one, and exact.
        threshold = ((bits >> np.uint32(UNUSED_BITS)) * np.uint32(2) + np.uint32(1)).astype(np.float32)
        up = steps - below > threshold * np.float32(2.0**-24)
        rounded = (below + up.astype(np.float32)) * distance.view(np.float32)
        beyond = (rounded > np.float32(LARGEST_HALF)) & (magnitude < np.inf)
        return np.asarray(np.copysign(_overflowed(rounded, beyond, overflow), x)).astype(np.float16)


def nearest_half(x: np.ndarray, overflow: str) -> np.ndarray:
    """The float16 value nearest to each float or integer, ties to even; overflow is as in `stochastic_half`."""
    with np.errstate(all="ignore"):
        half = np.asarray(x).astype(np.float16)
        beyond = np.isinf(half) & np.isfinite(computing(np.asarray(x)).astype(np.float64))
        return np.asarray(np.copysign(_overflowed(half, beyond, overflow), half)).astype(np.float16)


def _overflowed(magnitude: np.ndarray, beyond: np.ndarray, overflow: str) -> np.ndarray:
    if overflow == "infinity":
        return magnitude
    return np.where(beyond, magnitude.dtype.type(np.nan if overflow == "nan" else LARGEST_HALF), magnitude)
