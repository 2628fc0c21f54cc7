"""rng-bit-generator, a function of its state, and rng, whose hidden state this file owns."""

from __future__ import annotations

import numpy as np

from engine.errors import UnsupportedOperation
from engine.ir import Instruction, Shape
from engine.ops.registry import Value, definition

WORD = np.uint64(0xFFFFFFFF)
PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
PHILOX_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
PHILOX_ROUNDS = 10
HALF = np.uint64(32)

_hidden = np.random.default_rng(0)


def seed(value: int) -> None:
    """Starts the hidden generator of `rng` anew."""
    global _hidden
    _hidden = np.random.default_rng(value)


@definition("rng")
def _rng(instruction: Instruction, operands: list[np.ndarray]) -> np.ndarray:
    """RNG_UNIFORM: in [low, high); RNG_NORMAL: with mean and standard deviation."""
    shape, (first, second) = instruction.array_shape, operands
    if instruction["distribution"] == "RNG_NORMAL":
        return _hidden.normal(float(first), float(second), shape.dimensions).astype(shape.dtype)
    if shape.element_type == "pred" or shape.dtype.kind in "iu":
        return _hidden.integers(int(first), int(second), shape.dimensions).astype(shape.dtype)
    low, high = float(first), float(second)
    drawn = (low + (high - low) * _hidden.random(shape.dimensions)).astype(shape.dtype)
    return np.where(drawn >= second, np.nextafter(second, first), drawn)


@definition("rng-bit-generator")
def _rng_bit_generator(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """(next state, bits). The state is u64[3]: the Philox key, then a 128-bit counter, low word first.

    Raises UnsupportedOperation for any other algorithm.
    """
    if instruction["rng_algorithm"] not in ("RNG_PHILOX", "RNG_DEFAULT"):
        raise UnsupportedOperation(
            f"Expected the algorithm RNG_PHILOX. Received: {instruction['rng_algorithm']} in {instruction!r} "
            f"(from {instruction.op_name}). Ask TensorFlow for alg='philox'."
        )
    (state,) = operands
    shape = instruction.tuple_shapes[1]
    blocks = -(-shape.elements * max(1, shape.dtype.itemsize // 4) // 4)
    next_state = state.copy()
    next_state[1:3] = _advanced(state[1], state[2], np.asarray([blocks], np.uint64))[:, 0]
    return next_state, _as_elements(philox(state, blocks), shape)


def _advanced(low: np.uint64, high: np.uint64, distance: np.ndarray) -> np.ndarray:
    """[2, n]: the low and high words of the 128-bit counter plus each distance."""
    sums = low + distance
    return np.stack([sums, high + (sums < low).astype(np.uint64)])


def philox(state: np.ndarray, blocks: int) -> np.ndarray:
    """Philox4x32-10: u32[blocks, 4], block k from the state's counter plus k."""
    counter = _advanced(state[1], state[2], np.arange(blocks, dtype=np.uint64))
    x0, x1, x2, x3 = counter[0] & WORD, counter[0] >> HALF, counter[1] & WORD, counter[1] >> HALF
    key0, key1 = state[0] & WORD, state[0] >> HALF
    for _ in range(PHILOX_ROUNDS):
        product0, product1 = PHILOX_MULTIPLIERS[0] * x0, PHILOX_MULTIPLIERS[1] * x2
        x0, x1, x2, x3 = (
            (product1 >> HALF) ^ x1 ^ key0,
            product1 & WORD,
            (product0 >> HALF) ^ x3 ^ key1,
            product0 & WORD,
        )
        key0, key1 = (key0 + PHILOX_KEY_STEPS[0]) & WORD, (key1 + PHILOX_KEY_STEPS[1]) & WORD
    return np.stack([x0, x1, x2, x3], -1).astype(np.uint32)


def _as_elements(words: np.ndarray, shape: Shape) -> np.ndarray:
    """Two words, least significant first, make a 64-bit element; a narrower one is the low part of a word."""
    if shape.dtype.itemsize == 8:
        elements = words.reshape(-1).view(np.uint64)
    else:
        elements = words.reshape(-1).astype(np.dtype(f"u{shape.dtype.itemsize}"))
    return elements[: shape.elements].view(shape.dtype).reshape(shape.dimensions)
