"""The planner of matrix products, compared with an exhaustive plan in plain Python, and at its limits."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.compile import build_program
from engine.ir import DotDimensionNumbers, GatherDimensionNumbers, Shape
from engine.ir.builder import Builder
from engine.profile.exchange import Layouts
from engine.profile.matmul import Product, plan_product
from engine.profile.matrix_engine import amp_cycles, vector_cycles
from engine.profile.options import ProductOptions
from engine.profile.program_estimate import estimate
from engine.profile.superstep import product_of
from engine.target import target
from tests.exploring import examples

MK2 = target("ipu2")
SYNC = MK2.superstep_sync
UNBOUNDED = ProductOptions(memory_proportion=1e9)


def plain(rows: int, k: int, columns: int, element_type: str = "f32", batches: int = 1) -> Product:
    return Product(batches, rows, columns, k, element_type, batches * rows * k, batches * k * columns)


def cheapest(product: Product, tiles: int) -> int:
    """The cycles of the best plan with one pass, found by trying all plans."""
    best = None
    unit = replace(MK2, tiles=tiles)
    kind = product.element_type
    item = 4 if kind == "f32" else 2
    for g in range(1, min(product.batches, tiles) + 1):
        for a in range(1, product.rows + 1):
            for b in range(1, product.columns + 1):
                for c in range(1, product.k + 1):
                    if g * a * b * c > tiles:
                        break
                    extents = ((product.batches, g), (product.rows, a), (product.columns, b), (product.k, c))
                    groups, rows, columns, k = (math.ceil(n / cut) for n, cut in extents)
                    cycles = min(
                        int(amp_cycles(rows, columns, k, kind, unit, groups=groups)),
                        int(amp_cycles(columns, rows, k, kind, unit, groups=groups))
                        + _rearranged(product, g * a * b * c, item),
                    )
                    if min(product.rows, product.columns) == 1:
                        cycles = min(cycles, int(vector_cycles(rows, columns, k, kind, unit, groups)))
                    if product.batches > 1:
                        # The groups may also be in the lanes.
                        lanes = 2 if kind == "f32" else 4
                        cycles = min(cycles, 11 + 6 * 29 + rows * columns * k * math.ceil(groups / lanes))
                    moved = _moved(groups * rows * k * item, groups * columns * k * item, a, b) + SYNC
                    cycles += moved
                    outputs = groups * rows * columns
                    if c > 1:
                        share = math.ceil(outputs / c)
                        cycles += 11 + 6 * 29 + math.ceil(share * c / 2)
                        cycles += math.ceil(outputs * (c - 1) // c * 4 / 4) + 100 + SYNC
                    elif kind == "f16":
                        cycles += outputs * 4 // 8
                    if product.k == 1:
                        # A vector times a scalar for each row, at 3 cycles for 8 bytes.
                        vectors = groups * rows * math.ceil(columns * item / 8)
                        cycles = min(cycles, 11 + 6 * 29 + 3 * vectors + moved)
                    best = cycles if best is None else min(best, cycles)
    assert best is not None
    return best


def _rearranged(product: Product, tiles: int, item: int) -> int:
    """Cycles to reorder both operands and the result: 5/4 of a byte's move, an exchange and a superstep."""
    rows, columns, k = product.rows, product.columns, product.k
    each = sum(math.ceil(product.batches * n / tiles) for n in (rows * k, columns * k, rows * columns)) * item
    return math.ceil(each * 1.25 / item) + 100 + math.ceil(each / 4) + SYNC


def _moved(bytes_a: int, bytes_b: int, a: int, b: int) -> int:
    """The cycles to receive operands: pairs of tiles that share one of them receive that one twice as fast."""
    share_a = math.ceil(bytes_a / 2) + bytes_b if b % 2 == 0 else bytes_a + bytes_b
    share_b = bytes_a + math.ceil(bytes_b / 2) if a % 2 == 0 else bytes_a + bytes_b
    return 100 + math.ceil(min(share_a, share_b) / 4)


@settings(max_examples=examples(40))
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.sampled_from(["f32", "f16"]), st.integers(1, 5))
def test_the_plan_is_the_cheapest(rows: int, k: int, columns: int, element_type: str, batches: int) -> None:
    product = plain(rows, k, columns, element_type, batches)
    assert plan_product(product, replace(MK2, tiles=8), UNBOUNDED).cycles == cheapest(product, 8)


def test_sums_of_one_term_have_no_partial_sums() -> None:
    plan = plan_product(plain(50_000, 1, 32, "f16"), MK2)
    assert plan.method == "outer product"
    assert plan.temporary_bytes == plan.received_bytes < 50_000 * 32 * 2 / MK2.tiles


@settings(max_examples=examples(25))
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300), st.sampled_from(["f32", "f16"]))
def test_on_many_tiles_a_few_thousand_ways_are_enough(rows: int, k: int, columns: int, element_type: str) -> None:
    """The worst of 1,400 random products took 1.21 times the cycles of the cheapest way."""
    product = plain(rows, k, columns, element_type)
    assert plan_product(product, replace(MK2, tiles=36), UNBOUNDED).cycles <= 1.3 * cheapest(product, 36)


@pytest.mark.parametrize(
    ("rows", "columns", "k", "element_type", "public"),
    [
        (6, 64, 64, "f16", 4_335),
        (96, 64, 128, "f16", 19_555),
        (8, 16, 4096, "f16", 85_069),
        (6, 64, 64, "f32", 12_739),
        (96, 64, 128, "f32", 67_611),
    ],
)
def test_vertices_of_one_tap_take_what_poplibs_estimates(
    rows: int, columns: int, k: int, element_type: str, public: int
) -> None:
    assert int(amp_cycles(rows, columns, k, element_type, MK2, partials_type=element_type)) == pytest.approx(
        public, rel=0.03
    )


@pytest.mark.parametrize(
    ("field", "columns", "k", "public"),
    [
        ((4, 14), 16, 64, 24_114),
        ((2, 7), 32, 64, 37_137),
        ((7, 7), 16, 128, 54_018),
        ((14, 14), 16, 32, 25_470),
        ((28, 28), 16, 16, 35_760),
    ],
)
def test_vertices_of_nine_taps_take_what_poplibs_estimates(
    field: tuple[int, int], columns: int, k: int, public: int
) -> None:
    found = amp_cycles(math.prod(field), columns, k, "f16", MK2, partials_type="f16", taps=9, run=field[1])
    assert int(found) == pytest.approx(public, rel=0.06)


def test_exchanged_operands_are_rearranged_before() -> None:
    """The engine takes few columns by a wide matrix: exchanged operands would move all its weights (measured)."""
    found = plan_product(Product(1, 4, 4096, 4096, "f16", 4 * 4096, 4096**2, "b"), target("bow"), ProductOptions("f16"))
    assert found.method == "matrix engine"


def test_cycles_broadcast_over_arrays() -> None:
    rows = np.array([16, 64, 2048])
    together = amp_cycles(rows, 16, 16, "f16", MK2)
    assert [int(amp_cycles(int(n), 16, 16, "f16", MK2)) for n in rows] == together.tolist()


@pytest.mark.parametrize("size", [256, 1024, 2048])
@pytest.mark.parametrize("element_type", ["f32", "f16"])
def test_no_product_beats_the_matrix_engine(size: int, element_type: str) -> None:
    cost = plan_product(plain(size, size, size, element_type), MK2)
    rate = 2 * size**3 / (cost.compute * MK2.tiles)
    assert rate <= MK2.amp_flops_per_cycle(element_type)


def test_half_partials_are_faster_on_mk2_and_not_on_mk1() -> None:
    product = plain(2048, 2048, 2048, "f16")
    for chip, gain in (("ipu2", 1.5), ("ipu1", 1.0)):
        wide, half = (plan_product(product, target(chip), ProductOptions(kind, 10.0)) for kind in ("f32", "f16"))
        # On Mk1 half partials only save memory traffic.
        assert gain <= wide.compute / half.compute < 2, chip


def test_half_partials_take_less_memory() -> None:
    product = plain(2048, 2048, 2048, "f16")
    wide, half = (plan_product(product, MK2, ProductOptions(kind, 0.2)) for kind in ("f32", "f16"))
    assert half.cycles < wide.cycles and half.passes < wide.passes


def test_a_resident_operand_saves_exchange() -> None:
    product = plain(1, 1000, 10_000)
    home = plan_product(replace(product, resident="b"), MK2)
    away = plan_product(product, MK2)
    assert home.exchange < away.exchange / 5


def test_operands_that_have_to_be_transposed_cost_more() -> None:
    product = plain(512, 512, 512, "f16")
    straight, turned = (plan_product(replace(product, transposed=name), MK2).cycles for name in ("", "ab"))
    assert straight < turned < 2 * straight


@settings(max_examples=examples(30))
@given(
    st.tuples(*[st.sampled_from([1, 5, 64, 300, 1024])] * 3),
    st.sampled_from(["f32", "f16"]),
    st.sampled_from(["", "b"]),
    st.lists(st.floats(1e-4, 2.0), min_size=2, max_size=4, unique=True),
    st.sampled_from([16, 120, 1472]),
)
def test_less_memory_takes_more_cycles(
    sizes: tuple[int, int, int], element_type: str, resident: str, proportions: list[float], tiles: int
) -> None:
    product = replace(plain(*sizes, element_type), resident=resident)
    unit = replace(MK2, tiles=tiles)
    plans = [plan_product(product, unit, ProductOptions(memory_proportion=p)) for p in sorted(proportions)]
    for less, more in pairwise(plans):
        assert less.temporary_bytes <= more.temporary_bytes
        assert less.cycles >= more.cycles


def test_a_tight_proportion_really_trades() -> None:
    product = plain(2048, 2048, 2048, "f16")
    found = [plan_product(product, MK2, ProductOptions(memory_proportion=p)) for p in (1.0, 0.3, 0.1, 0.03)]
    held, cycles = [p.temporary_bytes for p in found], [p.cycles for p in found]
    assert held == sorted(held, reverse=True) and cycles == sorted(cycles)
    assert held[-1] < held[0] / 5 and cycles[-1] > 1.5 * cycles[0]
    assert all(
        p.temporary_bytes <= share * MK2.bytes_per_tile for p, share in zip(found, (1.0, 0.3, 0.1, 0.03), strict=True)
    )
    assert found[-1].passes > 1


def test_where_nothing_fits_the_plan_of_least_memory_is_taken() -> None:
    product = plain(256, 256, 256)
    cramped = plan_product(product, replace(MK2, bytes_per_tile=1, tiles=4))
    roomy = plan_product(product, replace(MK2, tiles=4))
    assert 0.6 < cramped.temporary_bytes < roomy.temporary_bytes
    assert cramped.cycles > roomy.cycles


def test_rearranged_operands_stay_while_tiles_receive_theirs() -> None:
    """The exchange is part of the superstep, so a rearranged copy is there beside what is received and partial sums."""
    product = Product(1, 2048, 4096, 64, "f32", 2048 * 64, 4096 * 64, transposed="b")
    plan = plan_product(product, MK2)
    assert plan.cuts[-1] == 1 and plan.temporary_bytes - plan.received_bytes == -(-4096 * 64 // plan.tiles) * 4


def test_an_operand_is_rearranged_once_for_all_passes() -> None:
    """20,000 x 128 halves on 8 tiles: 640,000 bytes for each, which no plan of less can avoid."""
    small = target("ipu2", tiles=8)
    product = Product(1, 50, 20_000, 128, "f16", 50 * 128, 20_000 * 128, transposed="b")
    plan = plan_product(product, small)
    assert plan.passes > 1 and plan.temporary_bytes >= 20_000 * 128 * 2 // 8


def test_a_table_of_rows_looked_up_is_not_stored_as_a_product_reads_it() -> None:
    b = Builder("tied")
    table, ids = b.parameter("f16", (2000, 128)), b.parameter("s32", (50, 1))
    numbers = GatherDimensionNumbers((1,), (0,), (0,), 1)
    rows = b.instruction(
        "gather", Shape("f16", (50, 128)), (table, ids), gather_dimension_numbers=numbers, gather_slice_sizes=(1, 128)
    )
    tied = b.dot(rows, table, DotDimensionNumbers((1,), (1,)))
    program = build_program(b.module(b.tuple(tied)), ["variable", "feed"], {})
    layouts = Layouts(program.compute_sets)
    product = next(each for each in program.compute_sets if each.work_estimate.multiply_adds)
    assert product_of(product, layouts).transposed == "b" and not product_of(product, layouts).resident


def test_partial_sums_of_a_split_product_are_those_of_the_plan() -> None:
    """A program splits long sums into parts for its workers; a chip's plan splits them in its own way."""
    b = Builder("long")
    x, w = b.parameter("f32", (64, 20_000)), b.parameter("f32", (20_000, 64))
    program = build_program(b.module(b.tuple(b.dot(x, w))), ["feed", "variable"], {})
    parts = Layouts(program.compute_sets).parts
    assert parts and all(buffer.shape.elements == count * 64 * 64 for buffer, count in parts.items())
    found = estimate(program, MK2)
    assert len(found.costs) > 1 and not any(cost.cycles for cost in found.costs[1:])
    held = {tensor.shape: tensor.bytes for tensor in found.liveness}
    assert all(held[str(buffer.shape)] == 64 * 64 * 4 for buffer in parts)
