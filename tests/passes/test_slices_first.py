"""Slices move before elementwise operations that have no other readers; bits stay."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from engine.evaluate import evaluate
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes.dead_code import dead_code
from engine.passes.slices_first import slices_first
from tests.engine.running import check
from tests.passes.checking import assert_same_bits


def columns(b: Builder, operand: Instruction, start: int, limit: int) -> Instruction:
    rows = operand.array_shape.dimensions[0]
    return b.slice(operand, (0, rows), (start, limit))


def gates(cuts: tuple[int, ...], *, also_whole: bool = False, rows: int = 6) -> Module:
    """Builds tanh of slices of x w + y + bias, times the elements of another array."""
    b = Builder("gates")
    x, w = b.parameter("f32", (rows, 5)), b.parameter("f32", (5, 12))
    y, bias = b.parameter("f32", (rows, 12)), b.parameter("f32", (12,))
    total = b.add(b.add(b.dot(x, w), y), b.broadcast(bias, (rows, 12), (1,)))
    pairs = zip(cuts, cuts[1:], strict=False)
    pieces = [b.elementwise("tanh", columns(b, total, start, limit)) for start, limit in pairs]
    return b.module(b.tuple(*pieces, total) if also_whole else b.tuple(*pieces))


def same_results(module: Module) -> Module:
    after = dead_code(slices_first(module))
    verify(after)
    generator = np.random.default_rng(3)
    arguments = [generator.standard_normal(p.array_shape.dimensions, np.float32) for p in module.entry.parameters]
    for one, other in zip(evaluate(module, arguments), evaluate(after, arguments), strict=True):
        assert_same_bits(one, other)
    return after


def opcodes(module: Module) -> Counter[str]:
    return Counter(each.opcode for each in module.entry.instructions)


@pytest.mark.parametrize("cuts", [(0, 3, 6, 9, 12), (0, 5, 12), (1, 2, 7)])
def test_each_slice_is_summed_by_itself(cuts: tuple[int, ...]) -> None:
    after = same_results(gates(cuts))
    pieces = len(cuts) - 1
    assert opcodes(after)["add"] == 2 * pieces
    assert all(each.array_shape.dimensions[1] < 12 for each in after.entry.instructions if each.opcode == "add")
    check(gates(cuts))


@pytest.mark.parametrize("module", [gates((0, 3, 12), also_whole=True), gates((1, 12))])
def test_what_is_read_whole_or_once_stays(module: Module) -> None:
    assert slices_first(module) is module


def test_overlapping_slices_would_do_work_twice() -> None:
    b = Builder()
    total = b.add(b.parameter("f32", (4, 8)), b.parameter("f32", (4, 8)))
    half = [b.elementwise("negate", columns(b, total, *each)) for each in ((0, 6), (2, 8))]
    module = b.module(b.tuple(*half))
    assert slices_first(module) is module


def test_a_whole_that_is_the_root_stays() -> None:
    b = Builder()
    x = b.parameter("f32", (4, 8))
    total = b.add(x, x)
    b.elementwise("negate", columns(b, total, 0, 4))
    b.elementwise("negate", columns(b, total, 4, 8))
    module = b.module(total)
    assert slices_first(module) is module
