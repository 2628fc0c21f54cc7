"""Sums over several tiles: stages are chosen by their cycles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
