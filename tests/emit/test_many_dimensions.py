"""Arrays of many dimensions that no loops merge: right values, and no deeper loops than of few dimensions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.compile import build_program
from engine.emit.codelet import emit_codelet
from engine.emit.loops import MOST_NESTED
from engine.ir import Instruction, Module, WindowDimension
from engine.ir.builder import Builder
from engine.program.work.fused_loop import FusedLoop
from tests.engine.running import arguments_for, check

Operation = Callable[[Builder, Instruction, int], Instruction]
OPERATIONS: dict[str, Operation] = {
    "transpose": lambda b, x, rank: b.transpose(x, tuple(reversed(range(rank)))),
    "sums": lambda b, x, rank: b.reduce(x, b.constant(1.0), tuple(range(0, rank, 2))),
    "sums of columns": lambda b, x, rank: b.reduce(x, b.constant(1.0), tuple(range(1, rank, 2))),
    "product of transposed ones": lambda b, x, rank: b.multiply(x, b.transpose(x, tuple(reversed(range(rank))))),
    "broadcast": lambda b, x, rank: b.add(
        b.broadcast(x, (2,) * 2 * rank, tuple(range(0, 2 * rank, 2))), b.iota("f32", (2,) * 2 * rank, rank)
    ),
    "pad": lambda b, x, rank: b.pad(x, b.constant(2.0), *[(1, 0)] * rank),
    "pools": lambda b, x, rank: b.reduce_window(x, b.constant(0.0), (WindowDimension(2, 1),) * rank, "maximum"),
}


def module(name: str, rank: int) -> Module:
    b = Builder()
    OPERATIONS[name](b, b.parameter("f32", (2,) * rank), rank)
    return b.module()


@pytest.mark.parametrize("name", OPERATIONS)
def test_values_of_many_dimensions(name: str) -> None:
    many = module(name, MOST_NESTED if name == "broadcast" else 2 * MOST_NESTED - 1)
    check(many, [np.round(each, 2) for each in arguments_for(many)])


def test_units_of_a_dimension_among_the_joint_ones() -> None:
    b = Builder()
    x = b.parameter("f32", (3, 37, *(2,) * (MOST_NESTED + 1)))
    b.transpose(x, (1, 0, *reversed(range(2, MOST_NESTED + 3))))
    check(b.module())


@pytest.mark.parametrize("name", OPERATIONS)
def test_depth_of_loops_does_not_grow(name: str) -> None:
    def loops(rank: int) -> int:
        program = build_program(module(name, rank), ["feed"], {})
        nests = [each.work.nest for each in program.compute_sets if isinstance(each.work, FusedLoop)]
        return max((emit_codelet(nest, "f", 4).count("= phi  i64") for nest in nests), default=0)

    assert loops(12 if name == "broadcast" else 24) <= max(1, loops(8)) * 2
