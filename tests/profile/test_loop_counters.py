"""Loops that slice arrays by their counters: one superstep for the counter in each iteration, rows that move alone."""

from __future__ import annotations

import pytest

from engine.compile import build_program
from engine.ir import Instruction, Module
from engine.ir.builder import Builder
from engine.profile.exchange import exchange_cycles, slices_by_counter
from engine.profile.loops import runs_of
from engine.profile.program_estimate import COUNTER_BYTES, estimate, with_counters
from engine.profile.superstep_cost import SuperstepCost
from engine.profile.vertices import vertex_cycles
from engine.program.program import Program
from engine.program.work.indexing import SliceWork
from engine.target import target
from tests.program.loop_parts import below, loop, next_count

MK2 = target("ipu2")
ROWS, WIDTH = 6, 1000
INCREMENT, SENT = vertex_cycles((("add", "integer"),), 1, MK2), exchange_cycles(COUNTER_BYTES, MK2)
COUNTER = SuperstepCost(INCREMENT, SENT, MK2.superstep_sync, 0, COUNTER_BYTES, COUNTER_BYTES)


def row_of(s: Builder, array: Instruction, at: Instruction) -> Instruction:
    return s.inferred("dynamic-slice", (array, at, s.constant(0, "s32")), dynamic_slice_sizes=(1, WIDTH))


def scanned(reads: int, by_counter: bool = True, rows: int = ROWS) -> Module:
    """A loop that reads a row of each of `reads` arrays and writes one, at its counter or at a number that is fed."""
    b = Builder("scanned")
    arrays = [b.elementwise("tanh", b.parameter("f32", (rows, WIDTH))) for _ in range(reads)]
    written, state, at = b.splat(0.0, (rows, WIDTH)), b.splat(0.0, (1, WIDTH)), b.parameter("s32", ())

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        count, out, h, fed, *read = e
        index = count if by_counter else fed
        for each in read:
            h = s.elementwise("tanh", s.add(h, row_of(s, each, index)))
        made = s.inferred("dynamic-update-slice", (out, h, index, s.constant(0, "s32")))
        return [next_count(s, count), made, h, fed, *read]

    _, out, h, *_ = loop(b, [b.constant(0, "s32"), written, state, at, *arrays], below(rows), body)
    return b.module(b.tuple(out, h))


def built(module: Module) -> Program:
    return build_program(module, ["feed"] * len(module.entry.parameters), {})


def slices_in(program: Program) -> list[int]:
    """The positions of the slices by a counter."""
    return [at for at, each in enumerate(program.compute_sets) if slices_by_counter(each)]


def charged_in(program: Program) -> dict[int, SuperstepCost]:
    """The costs of counters alone, by position."""
    free = SuperstepCost(0, 0, 0, 0, 0)
    found = with_counters(program, [free] * len(program.compute_sets), MK2)
    return {at: cost for at, cost in enumerate(found) if cost != free}


@pytest.mark.parametrize("reads", [1, 3])
def test_slices_of_an_iteration_share_the_superstep_of_the_counter(reads: int) -> None:
    program = built(scanned(reads))
    first, *others = slices_in(program)
    assert len(others) == reads  # the update follows
    assert charged_in(program) == {first: COUNTER}
    cost = estimate(program, MK2).costs[first]
    assert cost.runs == ROWS and cost.cycles > ROWS * COUNTER.cycles


def test_a_slice_at_a_number_that_is_fed_has_no_counter() -> None:
    assert charged_in(built(scanned(2, by_counter=False))) == {}


def test_a_loop_without_slices_has_no_counter() -> None:
    b = Builder("counting")
    _, x = loop(
        *(b, [b.constant(0, "s32"), b.parameter("f32", (WIDTH,))], below(ROWS)),
        lambda s, e: [next_count(s, e[0]), s.elementwise("tanh", e[1])],
    )
    program = built(b.module(b.tuple(x)))
    assert charged_in(program) == {}
    assert sum(cost.exchange + cost.sync for cost in estimate(program, MK2).costs if cost.runs > 1) == 0


def test_loops_in_loops_have_counters_of_their_own() -> None:
    b = Builder("nested")
    array = b.elementwise("tanh", b.parameter("f32", (ROWS, WIDTH)))

    def body(s: Builder, e: list[Instruction]) -> list[Instruction]:
        _, h, _ = loop(
            *(s, [s.constant(0, "s32"), s.add(e[1], row_of(s, e[2], e[0])), e[2]], below(ROWS)),
            lambda t, i: [next_count(t, i[0]), t.elementwise("tanh", t.add(i[1], row_of(t, i[2], i[0]))), i[2]],
        )
        return [next_count(s, e[0]), h, e[2]]

    _, h, _ = loop(b, [b.constant(0, "s32"), b.splat(0.0, (1, WIDTH)), array], below(ROWS), body)
    program = built(b.module(b.tuple(h)))
    runs = runs_of(program)
    assert {runs[at]: cost for at, cost in charged_in(program).items()} == {ROWS: COUNTER, ROWS**2: COUNTER}


@pytest.mark.parametrize("width", [40, 1000, 20_000])
def test_rows_are_received_where_they_are_read(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether this processor's units divide a row, as they do a long one, does not matter; updates are in place."""
    monkeypatch.setattr("tests.profile.test_loop_counters.WIDTH", width)
    program = built(scanned(2))
    for at in slices_in(program):
        work, cost = program.compute_sets[at].work, estimate(program, MK2).costs[at]
        assert isinstance(work, SliceWork)
        counter = COUNTER.exchange if at == slices_in(program)[0] else 0
        assert bool(cost.exchange - ROWS * counter) == (not work.into_array)


def test_a_slice_receives_its_row_alone() -> None:
    """The columns of a list have all their rows on their tiles: more rows move nothing more."""
    few, many = (built(scanned(1, rows=rows)) for rows in (ROWS, 100 * ROWS))
    of_few, of_many = (estimate(each, MK2).costs[slices_in(each)[0]] for each in (few, many))
    assert of_many.exchange * of_few.runs == of_few.exchange * of_many.runs
