"""The scheduling algorithms give legal orders of the same instructions, and each differs in its own way."""

from __future__ import annotations

from typing import get_args

import pytest

from engine.compiler_options import CompilerOptions, SchedulingAlgorithm
from engine.errors import InternalError
from engine.ir import Module, Shape
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes.liveness import peak_liveness
from engine.passes.order import schedule
from tests.passes.random_modules import RandomModule

ALGORITHMS: tuple[SchedulingAlgorithm, ...] = get_args(SchedulingAlgorithm)


def opcodes(module: Module, algorithm: SchedulingAlgorithm) -> list[str]:
    after = schedule(module, None, CompilerOptions(algorithm))
    return [i.opcode for i in after.entry.instructions if i.opcode not in ("parameter", "tuple", "constant")]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_orders_are_legal(algorithm: SchedulingAlgorithm) -> None:
    for seed in range(30):
        module = RandomModule(seed).module()
        after = schedule(module, None, CompilerOptions(algorithm, 2, 16))
        verify(after)
        assert set(after.entry.instructions) == set(module.entry.instructions)
        assert peak_liveness(schedule(module).entry) <= peak_liveness(module.entry)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_must_run_before_does_and_a_cycle_is_told(algorithm: SchedulingAlgorithm) -> None:
    b = Builder()
    x = b.parameter("f32", (4,))
    first, second = b.elementwise("tanh", x), b.elementwise("sqrt", x)
    module = b.module(b.tuple(first, second))
    after = schedule(module, {first: [second]}, CompilerOptions(algorithm))
    order = list(after.entry.instructions)
    assert order.index(second) < order.index(first)
    with pytest.raises(InternalError, match="cycle"):
        schedule(module, {first: [second], second: [first]}, CompilerOptions(algorithm))


def test_random_numbers_are_drawn_in_one_order() -> None:
    b = Builder()
    low, high = b.constant(0.0), b.constant(1.0)
    drawn = [
        b.instruction("rng", Shape("f32", (size,)), (low, high), distribution="RNG_UNIFORM") for size in (8, 64, 1)
    ]
    ends = [b.reduce(b.elementwise("tanh", each), low, (0,)) for each in drawn]
    module = b.module(b.tuple(drawn[1], b.add(ends[1], ends[0]), ends[2]))
    orders = [
        [i for i in schedule(module, None, CompilerOptions(algorithm)).entry.instructions if i in drawn]
        for algorithm in ALGORITHMS
    ]
    assert all(order == orders[0] for order in orders)


def branches() -> Module:
    """Builds a short way to the root and a long one of two steps, whose instructions alternate."""
    b = Builder()
    x, y = b.parameter("f32", (8,)), b.parameter("f32", (8,))
    long, short = b.elementwise("tanh", x), b.elementwise("sqrt", y)
    long = b.elementwise("sine", long)
    short_end = b.elementwise("abs", short)
    return b.module(b.tuple(b.add(b.elementwise("cosine", long), short_end)))


def test_post_order_follows_each_operand_to_its_end() -> None:
    assert opcodes(branches(), "POST_ORDER") == ["tanh", "sine", "cosine", "sqrt", "abs", "add"]


def test_clustering_does_not_interrupt_a_run() -> None:
    assert opcodes(branches(), "CLUSTERING") == ["tanh", "sine", "cosine", "sqrt", "abs", "add"]


def test_shortest_path_prefers_what_is_near_the_end() -> None:
    assert opcodes(branches(), "SHORTEST_PATH") == ["sqrt", "abs", "tanh", "sine", "cosine", "add"]


def test_look_ahead_finds_lower_peaks_with_more_depth() -> None:
    modules = [RandomModule(seed).module() for seed in range(40)]
    sums = [
        sum(peak_liveness(schedule(module, None, CompilerOptions("LOOK_AHEAD", *sizes)).entry) for module in modules)
        for sizes in ((0, 1), (1, 16), (5, 64))
    ]
    assert sums[0] > max(sums[1:])
