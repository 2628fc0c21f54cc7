"""The roofline of a step: where operands come from, and what bounds a compute set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.roofline import Roofs, bounds_of, measured_roofs
from engine.ir import Shape
from engine.program.buffer import Buffer
from engine.program.program import ComputeSet, Partition, Span, WorkEstimate

MIB = 1 << 20
ROOFS = Roofs(1, multiply_adds=100.0, levels=((MIB, 64.0), (8 * MIB, 16.0), (float("inf"), 4.0)), barrier=50.0)


def variable(size: int) -> Buffer:
    return Buffer("variable", Shape("u8", (size,)), "variable")


def one(read: list[Buffer], written: Buffer, **named: object) -> ComputeSet:
    return ComputeSet("set", None, 1, [Span(each) for each in read], [Span(written)], **named)  # type: ignore[arg-type]


def test_operands_come_from_the_level_that_holds_what_was_touched_since() -> None:
    near, far, result = variable(MIB // 4), variable(4 * MIB), Buffer("result", Shape("u8", (MIB // 2,)))
    bounds = bounds_of([one([near], result), one([far], result), one([near], result)], ROOFS, MIB, lambda _: 0)
    written = MIB / 2 / 64
    # Of 4.75 MiB a step touches all but the result between both reads of `near`, once beside `far` and once not.
    assert [each.memory for each in bounds] == [
        MIB / 4 / 64 + written,
        4 * MIB / 16 + written,
        MIB / 4 / 16 + written,
    ]
    assert {each.cause for each in bounds} == {"memory"}


def test_first_level_is_free_and_memory_is_not() -> None:
    small, huge = variable(1000), variable(16 * MIB)
    (bound,) = bounds_of([one([small], variable(2000))], ROOFS, 0, lambda _: 0)
    assert bound.nanoseconds == ROOFS.barrier
    (bound,) = bounds_of([one([huge], small)], ROOFS, 0, lambda _: 0)
    assert bound.memory == 16 * MIB / 4


def test_rows_of_a_look_up_are_not_the_table() -> None:
    looked_up = one([variable(16 * MIB)], variable(1000), work_estimate=WorkEstimate(lookups=5))
    (bound,) = bounds_of([looked_up], ROOFS, 0, lambda _: 0)
    assert bound.memory == 0


def test_an_update_of_some_rows_does_not_move_the_table() -> None:
    table, ids = Span(variable(16 * MIB), Partition(1, 4 * MIB, 4096)), Span(variable(4))
    updated = replace(one([], variable(4)), reads=[table, ids], writes=[table], work_estimate=WorkEstimate(lookups=5))
    (bound,) = bounds_of([updated], ROOFS, 0, lambda _: 0)
    assert bound.memory == 0


def test_the_longer_of_both_and_a_barrier() -> None:
    (bound,) = bounds_of([one([variable(MIB)], variable(MIB))], ROOFS, 0, lambda _: 10_000_000)
    assert bound.arithmetic == pytest.approx(100_000.0)
    assert bound.cause == "operations"
    assert bound.nanoseconds == pytest.approx(100_050.0)


def test_nearer_levels_of_this_machine_are_not_slower() -> None:
    roofs = measured_roofs(1, 2, 0.4)
    rates = [rate for _, rate in roofs.levels]
    assert roofs.barrier == 0
    assert roofs.multiply_adds > 0
    assert rates[0] > 0.5 * rates[-1] > 0
