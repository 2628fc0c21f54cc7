"""Sums over several tiles choose their stages by cycles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.compile import build_program
from engine.ir import Shape
from engine.ir.builder import Builder
from engine.profile.program_estimate import estimate
from engine.profile.superstep import plan_reduction
from engine.profile.vertices import vertex_cycles
from engine.target import target

MK2 = target("ipu2")


def one_stage(parts: int, results: int) -> int:
    received = parts * -(-results // MK2.tiles)
    return vertex_cycles((("reduce", "f32"),), received, MK2) + 100 + received + MK2.superstep_sync


@given(st.integers(2, 1472), st.integers(1, 5000))
def test_never_worse_than_one_stage(parts: int, results: int) -> None:
    plan = plan_reduction(parts, results, MK2)
    assert plan.stages in (1, 2)
    assert plan.compute + plan.exchange + plan.stages * MK2.superstep_sync <= one_stage(parts, results)


def test_few_parts_take_one_stage_and_many_two() -> None:
    assert plan_reduction(16, 1, MK2).stages == 1
    assert plan_reduction(1472, 1, MK2).stages == 2


@pytest.mark.parametrize(("parts", "results"), [(1, 10), (5, 0)])
def test_nothing_to_add_up(parts: int, results: int) -> None:
    plan = plan_reduction(parts, results, MK2)
    assert (plan.compute, plan.exchange, plan.stages) == (0, 0, 0)


@pytest.mark.parametrize("rows", [1472, 4416, 17_664])
@pytest.mark.parametrize("columns", [64, 196, 1000])
@pytest.mark.parametrize("opcode", ["add", "maximum"])
@pytest.mark.parametrize(("kind", "lanes"), [("f32", 2), ("f16", 4)])
def test_a_grid_of_reductions_of_rows(rows: int, columns: int, kind: str, lanes: int, opcode: str) -> None:
    """poplibs' reductions take a vector of elements in each cycle, by six workers of a tile that has whole rows."""
    b = Builder("rows")
    x = b.parameter(kind, (rows, columns))
    if opcode == "add":
        x = b.instruction("convert", Shape("f32", (rows, columns)), (x,)) if kind == "f16" else x
        start = b.constant(0.0)  # sums are fp32, as Keras' means of half floats are
    else:
        start = b.constant(float("-inf"), kind)
    program = build_program(b.module(b.tuple(b.reduce(x, start, (1,), opcode))), ["feed"], {})
    found = estimate(program, MK2).costs[0]
    share = -(-rows // 1472) * columns / 6
    prologue = 26 if kind == "f16" else 29
    assert found.compute == pytest.approx(11 + 6 * (prologue + share / lanes), abs=6)
