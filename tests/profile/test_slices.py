"""Look-ups and updates of rows, compared with an exhaustive plan in plain Python, and in programs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.compile import build_program
from engine.ir import GatherDimensionNumbers, Instruction, Shape
from engine.ir.builder import Builder
from engine.profile.options import Assumptions, EstimatedOptimizations
from engine.profile.program_estimate import estimate
from engine.profile.slices import Lookup, plan_lookup
from engine.target import target
from tests.exploring import examples
from tests.program.loop_parts import below, loop, next_count
from tests.program.test_row_sums import adam_step, program_of

MK2 = target("ipu2")
SYNC = MK2.superstep_sync
BEGIN = 11 + 6 * 29


def cheapest(lookup: Lookup, tiles: int) -> int:
    """Cycles of the best of all divisions of rows, columns and look-ups, for a table that lies where it is needed."""
    found = []
    for r in range(1, min(tiles, lookup.rows) + 1):
        for c in range(1, min(tiles // r, lookup.width) + 1):
            for n in range(1, min(tiles // (r * c), lookup.lookups) + 1):
                height, width, count = (
                    math.ceil(extent / cut)
                    for extent, cut in ((lookup.rows, r), (lookup.width, c), (lookup.lookups, n))
                )
                row_bytes = width * lookup.item_bytes
                own = math.ceil(count / r)
                words = math.ceil(row_bytes / (4 if lookup.item_bytes == 2 else 8))
                received = count * 4
                word = 3 if lookup.updates else 2
                cycles = BEGIN + own * (19 + word * words) + (count - own) * 8 + SYNC
                if lookup.updates:
                    received += count * row_bytes
                    if n > 1:
                        cycles += math.ceil(height * row_bytes / 8) + BEGIN
                        cycles += 100 + math.ceil(height * row_bytes / 4) + SYNC
                else:
                    received += height * row_bytes * (n - 1) // n
                    if r > 1:
                        cycles += BEGIN + own * (19 + 2 * words) + own * (r - 1) * 8
                        cycles += 100 + math.ceil(count * row_bytes / 4) + SYNC
                found.append(cycles + 100 + math.ceil(received / 4))
    return min(found)


@settings(max_examples=examples(60))
@given(st.integers(1, 60), st.integers(1, 40), st.integers(1, 50), st.sampled_from([2, 4]), st.booleans())
def test_the_plan_is_the_cheapest(rows: int, width: int, lookups: int, item: int, updates: bool) -> None:
    lookup = Lookup(rows, width, lookups, item, updates)
    plan = plan_lookup(lookup, replace(MK2, tiles=12), 1e9)
    assert plan.compute + plan.exchange + plan.sync == cheapest(lookup, 12)


def test_less_memory_takes_more_cycles() -> None:
    plans = [plan_lookup(Lookup(30_000, 768, 4096, 2), MK2, p) for p in (0.6, 0.05, 0.01)]
    held, cycles = [p.temporary_bytes for p in plans], [p.compute + p.exchange + p.sync for p in plans]
    assert held == sorted(held, reverse=True) and cycles == sorted(cycles) and cycles[0] < cycles[2]


def test_a_table_elsewhere_is_exchanged() -> None:
    home, away = (plan_lookup(Lookup(30_000, 128, 64, 4, away=a), MK2) for a in (False, True))
    assert away.exchange > 2 * home.exchange


@pytest.mark.parametrize("lookups", [64, 4096])
def test_a_gather_of_rows_is_planned(lookups: int) -> None:
    b = Builder("embedding")
    table, ids = b.parameter("f32", (20_000, 64)), b.parameter("s32", (lookups, 1))
    numbers = GatherDimensionNumbers((1,), (0,), (0,), 1)
    rows = b.inferred("gather", (table, ids), gather_dimension_numbers=numbers, gather_slice_sizes=(1, 64))
    program = build_program(b.module(b.tuple(rows)), ["variable", "feed"], {})
    (made,) = [each for each in program.compute_sets if each.work_estimate.lookups]
    assert made.work_estimate.lookups == lookups
    plan = plan_lookup(Lookup(20_000, 64, lookups, 4), MK2)
    cost = next(each for each in estimate(program, MK2).costs if each.method == "slices")
    assert (cost.compute, cost.exchange, cost.sync) == (plan.compute, plan.exchange, plan.sync)
    assert np.isfinite(cost.cycles)


@pytest.mark.parametrize("updates", [False, True])
def test_a_dynamic_slice_is_a_look_up_of_its_rows(updates: bool) -> None:
    b = Builder("slice")
    table, rows = b.parameter("f32", (20_000, 64)), b.parameter("f32", (3, 64))
    starts = (b.parameter("s32", ()), b.constant(0, "s32"))
    if updates:
        made = b.instruction("dynamic-update-slice", Shape("f32", (20_000, 64)), (table, rows, *starts))
        module = b.module(b.tuple(made), aliases={0: 0})
    else:
        shape = Shape("f32", (3, 64))
        made = b.instruction("dynamic-slice", shape, (table, *starts), dynamic_slice_sizes=shape.dimensions)
        module = b.module(b.tuple(made))
    program = build_program(module, ["variable", "feed", "feed"], {})
    plan = plan_lookup(Lookup(20_000, 64, 3, 4, updates), MK2)
    found = estimate(program, MK2)
    assert found.cycles == plan.compute + plan.exchange + plan.sync
    options = Assumptions(optimizations=EstimatedOptimizations(replace_dynamic_slices=False))
    assert estimate(program, MK2, assumptions=options).exchange > (0 if updates else 100 * found.exchange)


def test_a_dynamic_slice_along_two_dimensions_is_none() -> None:
    b = Builder("slice")
    table, starts = b.parameter("f32", (200, 64)), [b.parameter("s32", ()) for _ in range(2)]
    made = b.instruction("dynamic-slice", Shape("f32", (3, 8)), (table, *starts), dynamic_slice_sizes=(3, 8))
    program = build_program(b.module(b.tuple(made)), ["variable", "feed", "feed"], {})
    options = Assumptions(optimizations=EstimatedOptimizations(replace_dynamic_slices=False))
    assert estimate(program, MK2).cycles == estimate(program, MK2, assumptions=options).cycles


def test_a_table_that_a_loop_trains_is_on_the_tiles_of_its_look_ups() -> None:
    def looked_up(s: Builder, table: Instruction, ids: Instruction) -> Instruction:
        numbers = GatherDimensionNumbers((1,), (0,), (0,), 1)
        return s.inferred("gather", (table, ids), gather_dimension_numbers=numbers, gather_slice_sizes=(1, 64))

    b = Builder("training")
    table, ids = b.parameter("f32", (20_000, 64)), b.parameter("s32", (50, 1))
    zeros = b.splat(0.0, (50, 64))
    _, _, trained, rows = loop(
        *(b, [b.constant(0, "s32"), ids, table, zeros], below(3)),
        lambda s, e: [next_count(s, e[0]), e[1], s.multiply(e[2], e[2]), looked_up(s, e[2], e[1])],
    )
    program = build_program(b.module(b.tuple(trained, rows), aliases={0: 0}), ["variable", "feed"], {})
    (found,) = [each for each in estimate(program, MK2).costs if each.method == "slices"]
    plan = plan_lookup(Lookup(20_000, 64, 50, 4), MK2)
    assert found.cycles == 3 * (plan.compute + plan.exchange + plan.sync)


def test_a_chip_stores_the_gradient_of_a_table_that_the_host_sums_where_it_is_read() -> None:
    module = adam_step((1024, 64), (50,))
    program = build_program(module, ["variable"] * len(module.entry.parameters), {})
    report = estimate(program, MK2)
    rows, width, named = 1024, 64, 50
    update = plan_lookup(Lookup(rows, width, named, 4, True, False), MK2, Assumptions().slice_proportion())
    kinds = [set(each.work_estimate.elements) for each in program.compute_sets]
    assert report.costs[kinds.index({"scatter"})].compute == update.compute
    assert [shape for shape in (each.shape for each in report.memory.largest) if shape.startswith("s64")] == []
    assert report.memory.live_bytes[kinds.index({"scatter"})] >= 4 * rows * width
    assert len(program_of(module).compute_sets) < len(program.compute_sets)
