"""Merging in cost reports, compared with the plan of the whole; compute sets that depend on each other stay apart."""

from __future__ import annotations

import pytest

from engine.compile import build_program
from engine.ir import GatherDimensionNumbers
from engine.ir.builder import Builder
from engine.ir.module import Instruction
from engine.profile.matmul import Product, plan_product
from engine.profile.options import Assumptions, EstimatedOptimizations
from engine.profile.program_estimate import Estimate, estimate
from engine.profile.slices import Lookup, plan_lookup
from engine.program.program import Program
from engine.target import target

MK2 = target("ipu2")


def estimates(program: Program, **options: object) -> tuple[Estimate, Estimate]:
    """The estimates without and with an option."""
    merging = Assumptions(optimizations=EstimatedOptimizations(**options))  # type: ignore[arg-type]
    return estimate(program, MK2), estimate(program, MK2, assumptions=merging)


def gather(b: Builder, table: Instruction, ids: Instruction) -> Instruction:
    numbers = GatherDimensionNumbers((1,), (0,), (0,), 1)
    return b.inferred("gather", (table, ids), gather_dimension_numbers=numbers, gather_slice_sizes=(1, 64))


def test_look_ups_in_one_table_are_planned_as_one() -> None:
    b = Builder("embedding")
    table, other = b.parameter("f32", (20_000, 64)), b.parameter("f32", (20_000, 64))
    ids = [b.parameter("s32", (count, 1)) for count in (512, 1024, 256)]
    made = [gather(b, table, ids[0]), gather(b, table, ids[1]), gather(b, other, ids[2])]
    program = build_program(b.module(b.tuple(*made)), [*["variable"] * 2, *["feed"] * 3], {})
    apart, merged = estimates(program, combine_lookups=True)
    whole, alone = (plan_lookup(Lookup(20_000, 64, n, 4), MK2) for n in (1536, 256))
    costs = [cost.cycles for cost in merged.costs if cost.method == "slices"]
    assert sorted(costs) == sorted(p.compute + p.exchange + p.sync for p in (whole, alone))
    assert merged.cycles < apart.cycles and merged.memory.peak_fullest >= apart.memory.peak_fullest


def products(chained: bool) -> Program:
    """Three products of one operand; if `chained`, each is of the one before, with the same weights."""
    b = Builder("products")
    x, w = b.parameter("f32", (256, 128)), [b.parameter("f32", (128, 128)) for _ in range(1 if chained else 3)]
    made: list[Instruction] = []
    for number in range(3):
        made.append(b.dot(made[-1] if chained and made else x, w[0 if chained else number]))
    return build_program(b.module(b.tuple(*made)), ["feed", *["variable"] * len(w)], {})


def test_products_that_share_an_operand_are_planned_as_one() -> None:
    apart, merged = estimates(products(chained=False), combine_products=True)
    whole = plan_product(Product(1, 256, 384, 128, "f32", 256 * 128, 3 * 128 * 128, "b"), MK2)
    assert sorted(cost.cycles for cost in merged.costs) == [0, 0, whole.cycles]
    assert merged.cycles < apart.cycles


def test_products_of_which_one_needs_the_other_stay_apart() -> None:
    apart, merged = estimates(products(chained=True), combine_products=True)
    assert merged.cycles == apart.cycles and merged.memory == apart.memory


@pytest.mark.parametrize(("most", "syncs"), [(0, 4), (64 * 64 * 4, 4), (2 * 64 * 64 * 4, 2), (10**6, 1)])
def test_reductions_share_their_syncs_up_to_so_many_bytes(most: int, syncs: int) -> None:
    b = Builder("sums")
    arrays = [b.parameter("f32", (64, 64)) for _ in range(4)]
    made = [b.reduce(x, b.constant(0.0), (1,)) for x in arrays]
    program = build_program(b.module(b.tuple(*made)), ["feed"] * 4, {})
    apart, merged = estimates(program, reduce_many_bytes=most)
    assert len(apart.costs) == 4
    assert merged.sync * 4 == apart.sync * syncs and merged.compute == apart.compute
