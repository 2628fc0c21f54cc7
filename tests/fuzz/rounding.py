"""Effects of rounding on a module's results: the definitions, run with every operation's floats off by a few epsilons.

The spread of several such runs is what rounding explains. Where a run gives something else entirely (another branch,
another order, an overflow) the element may be anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np

from engine.ir import Instruction, Module
from engine.ops import apply as applying
from engine.ops.registry import DEFINITIONS, Value
from tests.fuzz.distances import EPSILON, TINY, distance, is_float, widened

EXACT = frozenset(
    (
        "parameter constant tuple get-tuple-element copy reshape transpose broadcast slice reverse pad concatenate "
        "gather select iota dynamic-slice dynamic-update-slice negate abs maximum minimum sort while conditional call "
        "compare real imag complex clamp floor ceil round-nearest-even round-nearest-afz optimization-barrier "
        "bitcast-convert sign"
    ).split()
)
"""Operations that do not round."""
SUMS = frozenset(
    "dot convolution reduce reduce-window select-and-scatter scatter fft cholesky triangular-solve".split()
)
LARGEST = {
    "float16": 2.0**16,
    "float64": float(np.finfo(np.float64).max),
    "complex128": float(np.finfo(np.float64).max),
}
"""Smallest magnitudes that are infinite in a type; 2**128 for types not named."""
MOST_OPERATIONS = 20_000


class TooLong(Exception):
    """Raised when a module runs more operations than a test has time for, as in a loop that does not end."""


@contextmanager
def counted(rng: np.random.Generator | None = None) -> Iterator[None]:
    """Makes `evaluate` raise TooLong after many operations, while open; with `rng` results of operations are
    shifted.
    """
    left = MOST_OPERATIONS
    define = applying._define

    def counting(instruction: Instruction, operands: list[Value]) -> Value:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooLong
        value = define(instruction, operands)
        return value if rng is None else _shifted(instruction, operands, value, rng)

    with mock.patch.object(applying, "_define", counting):
        yield


def _shifted(instruction: Instruction, operands: list[Value], value: Value, rng: np.random.Generator) -> Value:
    if instruction.opcode in EXACT:
        return value
    if isinstance(value, tuple):
        return tuple(_shifted(instruction, operands, part, rng) for part in value)
    if not (is_float(value) or value.dtype.kind == "c"):
        return value
    epsilon = EPSILON.get({"complex64": "float32", "complex128": "float64"}.get(value.dtype.name, value.dtype.name), 0)
    wide = value if value.dtype.kind == "c" else widened(value)
    error, overflows = 2 * np.abs(wide), np.zeros(value.shape, np.bool_)
    if instruction.opcode in SUMS:
        magnitude = _magnitude(instruction, operands, value)
        largest = LARGEST.get(value.dtype.name, 2.0**128)
        error, overflows = error + 8 * magnitude, (magnitude >= largest) | _overflows(instruction, operands, largest)
    with np.errstate(all="ignore"):
        direction = rng.uniform(-1, 1, wide.shape)
        if value.dtype.kind == "c":
            direction = direction + 1j * rng.uniform(-1, 1, wide.shape)
        moved = (wide + error * epsilon * direction).astype(value.dtype)
        if rng.random() < 0.5:
            # Flushed denormals matter: zero times infinity is NaN.
            moved = np.where(np.abs(moved) < TINY.get(value.dtype.name, 2.0**-126), np.zeros_like(moved), moved)
    shifted = np.where(np.isfinite(wide) & np.isfinite(moved), moved, value)
    # Where partial sums may overflow, their order decides whether infinities of both signs meet, and where partial
    # products may, whether infinity meets a zero.
    return np.where(overflows, np.asarray(rng.choice([np.nan, np.inf, -np.inf]), value.dtype), shifted)


def _overflows(instruction: Instruction, operands: list[Value], largest: float) -> bool:
    """Whether a product of some of the elements that a reduction multiplies may be infinite."""
    if not instruction.called or "multiply" not in {each.opcode for each in instruction.called[-1].instructions}:
        return False
    x = operands[0]
    if not (isinstance(x, np.ndarray) and is_float(x) and x.size):
        return False
    sizes = np.abs(widened(x))
    logarithms = np.sort(np.log2(np.maximum(np.where(np.isnan(sizes), 1, sizes), 1)), axis=None)
    count = x.size
    if instruction.opcode == "reduce":
        count = int(np.prod([x.shape[axis] for axis in instruction["dimensions"]]))
    return bool(logarithms[-count:].sum() >= np.log2(largest)) if count else False


def _magnitude(instruction: Instruction, operands: list[Value], value: np.ndarray) -> np.ndarray:
    """The sum with all its terms made positive, for operations that sum; else the largest number around."""
    arrays = [o for o in operands if isinstance(o, np.ndarray)]
    if instruction.opcode in ("dot", "convolution") and value.dtype.kind != "c":
        return np.abs(widened(np.asarray(DEFINITIONS[instruction.opcode](instruction, [np.abs(a) for a in arrays]))))
    if instruction.opcode == "reduce" and len(instruction.operands) == 2 and value.dtype.kind != "c":
        wide = widened(arrays[0])
        terms = np.abs(np.where(np.isfinite(wide), wide, 0))
        # Where equal numbers are added, all roundings go the same way.
        count = terms.size / max(1, value.size)
        return np.asarray(terms.sum(axis=tuple(instruction["dimensions"]))) * max(1.0, np.sqrt(count) / 8)
    finite = [np.abs(widened(a)[np.isfinite(widened(a))]) for a in arrays if is_float(a) or a.dtype.kind == "c"]
    return np.full(value.shape, sum(float(f.sum()) for f in finite))


def spread_of(
    module: Module, arguments: list[np.ndarray], expected: tuple[np.ndarray, ...], runs: int
) -> list[np.ndarray]:
    """Greatest distance of shifted runs from the expected ones, for each result."""
    from engine.evaluate import evaluate

    spread = [np.zeros(e.shape) for e in expected]
    for seed in range(runs):
        with counted(np.random.default_rng(seed)):
            shifted = evaluate(module, arguments)
        spread = [np.maximum(s, apart(x, e)) for s, x, e in zip(spread, shifted, expected, strict=True)]
    return spread


def apart(result: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Element by element; infinite where integers differ, or one is finite and the other not."""
    if expected.dtype.kind == "c":
        return np.maximum(apart(result.real, expected.real), apart(result.imag, expected.imag))
    return distance(result, expected)
