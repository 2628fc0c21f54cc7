"""Moves of elements: pad, slice, concatenate, reverse, transpose, broadcast, reshape, iota; in every type."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from engine.ir import Instruction
from engine.ir.builder import Builder
from engine.ir.shape import NUMPY_TYPES
from tests.engine.running import check

KINDS = [k for k in NUMPY_TYPES if k not in ("c64", "c128")]
SHAPES = [(), (1,), (7,), (3, 5), (1, 4, 6), (2, 3, 4, 5), (0, 3)]


@pytest.mark.sample(6)
@pytest.mark.parametrize("kind", KINDS)
def test_every_type_is_moved(kind: str) -> None:
    builder = Builder()
    x, value = builder.parameter(kind, (3, 4, 5)), builder.parameter(kind)
    results = [
        builder.transpose(x, (2, 0, 1)),
        builder.slice(x, (1, 3), (0, 4, 2), (1, 5, 3)),
        builder.reverse(x, (0, 2)),
        builder.pad(x, value, (1, 0), (-1, 2, 1), (0, 3)),
        builder.concatenate([x, builder.reverse(x, (1,))], 1),
        builder.broadcast(x, (3, 2, 4, 5), (0, 2, 3)),
        builder.reshape(x, (12, 5)),
    ]
    check(builder.module(builder.tuple(*results)))


@pytest.mark.parametrize("seed", range(25))
def test_pad(seed: int) -> None:
    """Negative edges cut through interior padding, or leave nothing of the operand."""
    rng = np.random.default_rng(seed)
    shape = [int(n) for n in rng.integers(0 if seed % 5 == 0 else 1, 7, rng.integers(1, 5))]
    dimensions = []
    for size in shape:
        interior = int(rng.choice([0, 0, 1, 2, 3]))
        spread = max(0, (size - 1) * (interior + 1) + 1) if size else 0
        low = int(rng.integers(-min(spread, 4), 4))
        high = int(rng.integers(-min(max(spread + low, 0), 4), 4))
        dimensions.append((low, high if spread + low + high >= 0 else -low - spread, interior))
    builder = Builder()
    x = builder.parameter(str(rng.choice(["f32", "s8", "f64", "pred"])), shape)
    builder.pad(x, builder.parameter(x.array_shape.element_type), *dimensions)
    check(builder.module())


@pytest.mark.sample(10)
@pytest.mark.parametrize("permutation", list(permutations(range(4))), ids=str)
def test_transpose(permutation: tuple[int, ...]) -> None:
    for shape in ((2, 3, 4, 5), (3, 1, 17, 2), (1, 33, 1, 18)):
        builder = Builder()
        builder.transpose(builder.parameter("f32", shape), permutation)
        check(builder.module())


def test_transpose_large_enough_for_many_units() -> None:
    for shape, permutation in (((300, 170), (1, 0)), ((9, 40, 70), (2, 0, 1)), ((64, 3, 3, 64), (3, 1, 2, 0))):
        builder = Builder()
        builder.transpose(builder.parameter("f32", shape), permutation)
        check(builder.module())


@pytest.mark.parametrize("seed", range(30))
def test_chains_of_moves(seed: int) -> None:
    """Several moves in a row become one view, until a reshape splits dimensions."""
    rng = np.random.default_rng(seed)
    builder = Builder()
    x = builder.parameter("s32", SHAPES[seed % len(SHAPES)])
    for _ in range(5):
        x = moved(builder, x, rng)
    builder.add(x, x) if seed % 2 else builder.elementwise("copy", x)
    check(builder.module())


def moved(builder: Builder, x: Instruction, rng: np.random.Generator) -> Instruction:
    dimensions = x.array_shape.dimensions
    choice = rng.integers(5)
    if choice == 0 and x.array_shape.elements < 500 and len(dimensions) < 5:
        size, at = int(rng.integers(1, 4)), int(rng.integers(len(dimensions) + 1))
        new = [*dimensions[:at], size, *dimensions[at:]]
        return builder.broadcast(x, new, [d for d in range(len(new)) if d != at])
    if choice == 1:
        return builder.transpose(x, [int(d) for d in rng.permutation(len(dimensions))])
    if choice == 2 and dimensions:
        limits = [(int(rng.integers(0, n // 2 + 1)), n, int(rng.integers(1, 3))) for n in dimensions]
        return builder.slice(x, *limits)
    if choice == 3 and dimensions:
        return builder.reverse(x, [d for d in range(len(dimensions)) if rng.random() < 0.5])
    flat = [n for n in dimensions if n != 1]
    if len(flat) > 1 and rng.random() < 0.5:
        flat[:2] = [flat[0] * flat[1]]
    elif flat and flat[-1] % 2 == 0 and len(flat) < 5:
        flat[-1:] = [2, flat[-1] // 2]
    return builder.reshape(x, flat)


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_concatenate(dimension: int) -> None:
    builder = Builder()
    pieces = []
    for size in (3, 1, 0, 20):
        shape = [4, 5, 6]
        shape[dimension] = size
        pieces.append(builder.parameter("f32", shape))
    turned = builder.transpose(builder.parameter("f32", (6, 5, 4)), (2, 1, 0))
    builder.concatenate([*pieces, turned, turned, builder.splat(2.5, (4, 5, 6))], dimension)
    check(builder.module())


@pytest.mark.parametrize("opcode", ["transpose", "reverse", "slice", "broadcast", "pad", "concatenate", "reshape"])
def test_nothing_is_moved(opcode: str) -> None:
    builder = Builder()
    x = builder.parameter("f32", (3, 0, 2))
    made = {
        "transpose": lambda: builder.transpose(x, (2, 1, 0)),
        "reverse": lambda: builder.reverse(x, (0, 1)),
        "slice": lambda: builder.slice(x, (1, 2), (0, 0), (0, 2)),
        "broadcast": lambda: builder.broadcast(x, (3, 0, 2, 4), (0, 1, 2)),
        "pad": lambda: builder.pad(x, builder.constant(1.0), (0, 0), (2, 1), (0, 0)),
        "concatenate": lambda: builder.concatenate([x, builder.parameter("f32", (3, 2, 2)), x], 1),
        "reshape": lambda: builder.reshape(x, (0, 7)),
    }
    check(builder.module(made[opcode]()))


def test_results_that_no_instruction_computes() -> None:
    """A parameter, a constant, a splat and a count as results, each twice."""
    builder = Builder()
    x = builder.parameter("f32", (2, 3))
    constant = builder.constant([[1.0, 2.0]])
    splat, count = builder.splat(7, (3, 2), "s32"), builder.iota("u8", (4, 3), 0)
    reshaped = builder.reshape(x, (3, 2))
    check(builder.module(builder.tuple(x, constant, splat, count, reshaped, x, constant, splat, count, reshaped)))
