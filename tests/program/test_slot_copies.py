"""Rings whose slots are read and written in place, and parts of a loop that workers select by the count."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import build_program
from engine.host.passes.pass_list import HOST_PASSES
from engine.host.passes.slot_copies import elide_slot_copies
from engine.ir import Instruction, Module, Shape
from engine.ir.builder import Builder
from engine.program.program import Program
from engine.program.run_passes import run_passes
from engine.program.work.indexing import SliceWork
from engine.runtime.executable import Executable
from engine.runtime.executor import RowKind
from tests.engine.running import arguments_for, buffers, check
from tests.exploring import sample
from tests.program.loop_parts import below, loop, next_count, product
from tests.program.machine import Machine
from tests.program.rings import INDEX, ring_loop
from tests.program.test_loops import follow

SEEDS = range(24)


def program_of(module: Module) -> Program:
    return build_program(module, ["variable"] * len(module.entry.parameters), {})


def copies_of(program: Program) -> int:
    return sum(isinstance(each.work, SliceWork) for each in program.compute_sets)


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", SEEDS)
def test_as_the_definitions_say(seed: int) -> None:
    check(ring_loop(seed), tolerance=1e-4)


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", SEEDS)
def test_in_place_is_as_in_copies(seed: int) -> None:
    """Runs both unit by unit, with separate memory full of garbage for each buffer."""
    module = ring_loop(seed)
    arguments = dict(enumerate(arguments_for(module)))
    copied, in_place = (
        Machine(program_of(module), arguments),
        Machine(run_passes(program_of(module), HOST_PASSES), arguments),
    )
    for one, other in zip(copied.run(), in_place.run(lambda units: reversed(range(units))), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.sample(16)
@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_workers_conflict_on_any_path(seed: int, workers: int) -> None:
    module = ring_loop(seed)
    arguments = arguments_for(module)
    executable = Executable(program_of(module))
    executable._bind(buffers(arguments))
    table = executable._table(False, workers)
    follow(table, executable._running, run_passes(program_of(module), HOST_PASSES), arguments, workers)


def test_most_copies_go() -> None:
    programs = [program_of(ring_loop(seed)) for seed in sample(SEEDS, 8)]
    copied, left = sum(map(copies_of, programs)), sum(copies_of(elide_slot_copies(each)) for each in programs)
    assert copied > 3 * len(programs)
    assert left < copied / 3


def test_the_program_that_is_accounted_for_stays() -> None:
    program = program_of(ring_loop(1))
    before, works = copies_of(program), [each.work for each in program.compute_sets]
    run_passes(program, HOST_PASSES)
    assert copies_of(program) == before > 0
    assert [each.work for each in program.compute_sets] == works


def test_slots_of_a_slot() -> None:
    """Copies of parts of a copy: all their addresses move by the count."""
    b = Builder("slots_of_a_slot")
    data = b.parameter("f32", (4, 2, 16, 16))

    def iteration(s: Builder, elements: list[Instruction]) -> list[Instruction]:
        count, data, total = elements
        zero = s.constant(0, INDEX)
        outer, one = (1, 2, 16, 16), (1, 1, 16, 16)
        taken = s.instruction(
            "dynamic-slice", Shape("f32", outer), (data, count, zero, zero, zero), dynamic_slice_sizes=outer
        )
        odd = s.elementwise("and", count, s.constant(1, INDEX))
        for place in (odd, s.subtract(s.constant(1, INDEX), odd)):
            starts = (zero, place, zero, zero)
            part = s.instruction("dynamic-slice", Shape("f32", one), (taken, *starts), dynamic_slice_sizes=one)
            total = product(s, total, s.reshape(part, (16, 16)))
        return [next_count(s, count), data, total]

    state = [b.constant(0, INDEX), data, b.splat(0.5, (16, 16))]
    module = b.module(b.tuple(loop(b, state, below(4), iteration)[2]))
    assert copies_of(program_of(module)) > copies_of(elide_slot_copies(program_of(module))) == 0
    check(module, tolerance=1e-4)


def test_workers_decide_by_themselves() -> None:
    """The device computes no predicate and no count."""
    for seed in sample(SEEDS, 6):
        program = program_of(ring_loop(seed))
        assert all(mark.predicate is None for mark in program.marks)
        assert all(s.buffer.shape.element_type == "f32" for each in program.compute_sets for s in each.writes)
        executable = Executable(program)
        executable._bind(buffers(arguments_for(ring_loop(seed))))
        kinds = set(executable._table(False, 2)[:, 0].tolist())
        assert RowKind.ITERATION in kinds
        assert not {RowKind.BRANCH, RowKind.JUMP} & kinds
