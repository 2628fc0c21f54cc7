"""Differences from a mean are computed again for each user, and nothing else is."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from engine.compile import build_program
from engine.evaluate import evaluate
from engine.ir import Module
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes.recompute_differences import recompute_differences
from engine.program.memory import plan_memory


def normalized(rows: int, columns: int, *, own_mean: bool) -> Module:
    """The differences of x from a mean, squared and summed, and read again after the sum."""
    b = Builder("normalized")
    x, y = b.parameter("f32", (rows, columns)), b.parameter("f32", (rows, columns))
    zero = b.constant(0.0)
    total = b.reduce(x if own_mean else y, zero, (0,))
    mean = b.multiply(total, b.splat(1 / rows, (columns,)))
    difference = b.subtract(x, b.broadcast(mean, (rows, columns), (1,)))
    variance = b.reduce(b.multiply(difference, difference), zero, (0,))
    scaled = b.multiply(difference, b.broadcast(variance, (rows, columns), (1,)))
    return b.module(b.tuple(b.reduce(b.multiply(scaled, y), zero, (0,)), b.reduce(scaled, zero, (0,))))


def subtractions(module: Module) -> int:
    return Counter(each.opcode for each in module.entry.instructions)["subtract"]


@pytest.mark.parametrize(("own_mean", "expected"), [(True, 2), (False, 1)])
def test_only_differences_from_the_own_mean_are_copied(own_mean: bool, expected: int) -> None:
    module = normalized(6, 5, own_mean=own_mean)
    result = recompute_differences(module)
    verify(result)
    assert subtractions(module) == 1
    assert subtractions(result) == expected
    generator = np.random.default_rng(1)
    arguments = [generator.standard_normal((6, 5), dtype=np.float32) for _ in range(2)]
    for a, b in zip(evaluate(module, arguments), evaluate(result, arguments), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_difference_takes_no_memory() -> None:
    rows, columns = 512, 64
    program = build_program(normalized(rows, columns, own_mean=True), ["feed", "feed"], {})
    assert plan_memory(program).arena_bytes < 2.5 * rows * columns * 4
