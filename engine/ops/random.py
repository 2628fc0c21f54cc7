"""rng-bit-generator, a function of its state, and rng, whose state is the runtime's."""

from __future__ import annotations

import numpy as np

from engine.errors import UnsupportedOperation
from engine.ir import Instruction, Shape
from engine.ops.apply import apply
from engine.ops.distributions import bits_of, distribution
from engine.ops.generators import RNG_STATE
from engine.ops.registry import Value, definition

WORD = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
PHILOX_KEY_STEPS = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
PHILOX_ROUNDS = 10
THREE_FRY_PARITY = np.uint64(0x1BD11BDA)
THREE_FRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
THREE_FRY_STEPS = 5
PHILOX = frozenset({"RNG_PHILOX", "RNG_DEFAULT"})


@definition("rng")
def _rng(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Draws uniform numbers in [first, second), or one of the two for pred, or normal ones of a mean and a deviation.

    Raises UnsupportedOperation for types without such a distribution.
    """
    computation, bits = distribution(instruction), bits_of(instruction)
    next_state, drawn = philox_bits(RNG_STATE.read(), bits)
    RNG_STATE.write(next_state)
    return apply(computation, [drawn, *operands])


@definition("rng-bit-generator")
def _rng_bit_generator(instruction: Instruction, operands: list[np.ndarray]) -> Value:
    """Returns (next state, bits). The state is a key and a counter: u64[2], or u64[3] with the low word first.

    Raises UnsupportedOperation for any other algorithm.
    """
    check_algorithm(instruction)
    generator = philox_bits if instruction["rng_algorithm"] in PHILOX else three_fry_bits
    return generator(operands[0], instruction.tuple_shapes[1])


def check_algorithm(instruction: Instruction) -> None:
    """Raises UnsupportedOperation for an unknown algorithm, or a state of another shape than the algorithm's."""
    algorithm, state = instruction["rng_algorithm"], instruction.operands[0].array_shape
    lengths = {"RNG_PHILOX": (2, 3), "RNG_DEFAULT": (2, 3), "RNG_THREE_FRY": (2,)}.get(algorithm, ())
    if state.element_type != "u64" or state.rank != 1 or state.dimensions[0] not in lengths:
        raise UnsupportedOperation(
            f"Expected the algorithm RNG_PHILOX with a state u64[2] or u64[3], or RNG_THREE_FRY with u64[2]. "
            f"Received: {algorithm} with {state} in {instruction!r} (from {instruction.op_name}). "
            "Ask TensorFlow for alg='philox'."
        )


def philox_bits(state: np.ndarray, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """The next state, and the bits: elements of `shape` from the words of successive counters, in order."""
    blocks = -(-shape.elements * max(1, shape.dtype.itemsize // 4) // 4)
    elements = _as_elements(philox(state, blocks).reshape(-1), shape.dtype)[: shape.elements]
    return _advanced(state, blocks), elements.reshape(shape.dimensions)


def philox(state: np.ndarray, blocks: int) -> np.ndarray:
    """Philox4x32-10: u32 [blocks, 4], block k from the state's counter plus k."""
    # In a state of two words the key is also the counter's high word.
    start = state[[1, 2]] if state.size > 2 else state[[1, 0]]
    low = start[0] + np.arange(blocks, dtype=np.uint64)
    high = start[1] + (low < start[0]).astype(np.uint64)
    x0, x1, x2, x3 = low & WORD, low >> HALF, high & WORD, high >> HALF
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


def three_fry_bits(state: np.ndarray, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """The next state, and the bits: elements of `shape`.

    The two words of a counter are one 64-bit element, or neighbours along the first even dimension (the longest
    if all are odd, where the last word of the last index is dropped).
    """
    if shape.dtype.itemsize == 8 or not shape.rank:
        pairs = three_fry(state, shape.elements)
        words = pairs if shape.dtype.itemsize == 8 else pairs[:, :1]
        return _advanced(state, shape.elements), _as_elements(words.reshape(-1), shape.dtype).reshape(shape.dimensions)
    even = [d for d, size in enumerate(shape.dimensions) if size % 2 == 0]
    split = even[0] if even else int(np.argmax(shape.dimensions))
    half = [-(-size // 2) if d == split else size for d, size in enumerate(shape.dimensions)]
    pairs = three_fry(state, int(np.prod(half))).reshape(*half, 2)
    words = np.moveaxis(pairs, -1, split + 1)
    words = words.reshape([2 * size if d == split else size for d, size in enumerate(half)])
    words = words[tuple(slice(size) for size in shape.dimensions)]
    elements = _as_elements(np.ascontiguousarray(words).reshape(-1), shape.dtype)
    return _advanced(state, len(pairs.reshape(-1, 2))), elements.reshape(shape.dimensions)


def three_fry(state: np.ndarray, counters: int) -> np.ndarray:
    """Threefry2x32-20: u32 [counters, 2], row k from the state's counter plus k."""
    counter = state[1] + np.arange(counters, dtype=np.uint64)
    keys = [state[0] & WORD, state[0] >> HALF]
    keys.append(THREE_FRY_PARITY ^ keys[0] ^ keys[1])
    x0, x1 = ((counter & WORD) + keys[0]) & WORD, ((counter >> HALF) + keys[1]) & WORD
    for step in range(THREE_FRY_STEPS):
        for rotation in THREE_FRY_ROTATIONS[step % 2]:
            x0 = (x0 + x1) & WORD
            x1 = x0 ^ (((x1 << np.uint64(rotation)) | (x1 >> np.uint64(32 - rotation))) & WORD)
        x0 = (x0 + keys[(step + 1) % 3]) & WORD
        x1 = (x1 + keys[(step + 2) % 3] + np.uint64(step + 1)) & WORD
    return np.stack([x0, x1], -1).astype(np.uint32)


def _advanced(state: np.ndarray, distance: int) -> np.ndarray:
    """The state with its counter advanced by `distance`."""
    following = state.copy()
    # Arrays of one element wrap around without a warning.
    following[1:2] += np.uint64(distance)
    following[2:] += (following[1:2] < state[1:2]).astype(np.uint64)
    return following


def _as_elements(words: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Elements of two words each, least significant first, if 64-bit; narrower ones are the low part of a word."""
    narrow = words.view(np.uint64) if dtype.itemsize == 8 else words.astype(np.dtype(f"u{dtype.itemsize}"))
    return narrow.view(dtype)
