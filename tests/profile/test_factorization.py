"""Triangular solves and Cholesky factors in blocks: the published point, and the effect of more work."""

from __future__ import annotations

import pytest

from engine.compile import build_program
from engine.ir.builder import Builder
from engine.profile.factorization import cholesky, triangular_solve
from engine.profile.options import Assumptions, ProductOptions
from engine.profile.program_estimate import estimate
from engine.target import target

MK2, FOUR = target("ipu2"), target("ipu2", tiles=4)
OPTIONS = ProductOptions()


def test_the_published_solve() -> None:
    found = triangular_solve(1, 64, 64, FOUR, OPTIONS, 16)
    assert found.cycles == pytest.approx(607_984, rel=0.02)
    assert found.compute > 6 * 24 * 16**3


def test_small_blocks_are_quicker_but_where_they_do_not_get_tiles_of_their_own() -> None:
    sizes = [triangular_solve(1, 512, 8, MK2, OPTIONS, block).cycles for block in (16, 64, 256)]
    assert sizes == sorted(sizes)
    assert triangular_solve(1, 512, 8, MK2, OPTIONS).cycles == sizes[0]
    assert (
        triangular_solve(5000, 32, 8, MK2, OPTIONS, 32).cycles > 3 * triangular_solve(1, 32, 8, MK2, OPTIONS, 32).cycles
    )


def test_a_factor_goes_block_by_block() -> None:
    one, two = (cholesky(1, size, MK2, OPTIONS, 32) for size in (32, 64))
    assert 2 * one.compute <= two.compute
    assert two.sync > 2 * one.sync


def test_programs_take_the_options_block() -> None:
    b = Builder("solve")
    a, right = b.parameter("f32", (64, 64)), b.parameter("f32", (64, 64))
    attributes = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"}
    made = b.inferred("triangular-solve", (a, right), **attributes)
    program = build_program(b.module(b.tuple(made)), ["feed", "feed"], {})
    small, large = (
        estimate(program, FOUR, assumptions=Assumptions(triangular_solve_block=block)) for block in (16, 64)
    )
    (cost,) = [each for each in small.costs if each.method == "blocks"]
    assert cost.cycles == triangular_solve(1, 64, 64, FOUR, OPTIONS, 16).cycles
    assert large.cycles > small.cycles
    assert small.assumed == ()


def test_costs_do_not_depend_on_the_shape_of_a_producers_buffer() -> None:
    """A product writes [5, 10]; both operands of the solve are two matrices of [5, 5]."""
    b = Builder("reshaped")
    a, square = b.parameter("f32", (5, 5)), b.parameter("f32", (5, 10))
    made = b.reshape(b.dot(a, square), (2, 5, 5))
    attributes = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"}
    results = b.elementwise("cholesky", made, lower=True), b.inferred("triangular-solve", (made, made), **attributes)
    program = build_program(b.module(b.tuple(*results)), ["feed", "feed"], {})
    costs = [each.cycles for each in estimate(program, MK2).costs if each.method == "blocks"]
    solved, factored = triangular_solve(2, 5, 5, MK2, OPTIONS), cholesky(2, 5, MK2, OPTIONS)
    assert sorted(costs) == sorted([solved.cycles, factored.cycles])
