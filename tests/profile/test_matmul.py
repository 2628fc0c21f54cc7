"""The planner of matrix products: against an exhaustive plan in plain Python, and at its limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.profile.matmul import Product, amp_cycles, plan_product, vector_cycles
from engine.target import target

MK2 = target("ipu2")


def plain(rows: int, k: int, columns: int, element_type: str = "f32", batches: int = 1) -> Product:
    return Product(batches, rows, columns, k, element_type, batches * rows * k, batches * k * columns)


def cheapest(product: Product, tiles: int) -> int:
    """The cycles of the best plan, by trying them all."""
    best = None
    unit = replace(MK2, tiles=tiles)
    item = 4 if product.element_type == "f32" else 2
    across = min(product.batches, tiles)
    repeats = math.ceil(product.batches / across)
    for a in range(1, product.rows + 1):
        for b in range(1, product.columns + 1):
            for c in range(1, product.k + 1):
                if a * b * c > tiles // across:
                    break
                rows, columns, k = (
                    math.ceil(n / cut) for n, cut in ((product.rows, a), (product.columns, b), (product.k, c))
                )
                options = (
                    int(amp_cycles(rows, columns, k, product.element_type, unit)),
                    int(amp_cycles(columns, rows, k, product.element_type, unit)),
                    int(vector_cycles(rows, columns, k, product.element_type, unit)),
                )
                cycles = min(options) * repeats
                received = (rows * k + columns * k) * item * repeats
                cycles += math.ceil(received / 4) + 100 + 90
                if c > 1:
                    outputs = rows * columns * repeats
                    share = math.ceil(outputs / c)
                    cycles += 11 + 6 * 29 + math.ceil(share * c / 2)
                    cycles += math.ceil(outputs * (c - 1) // c * 4 / 4) + 100 + 90
                best = cycles if best is None else min(best, cycles)
    assert best is not None
    return best


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.sampled_from(["f32", "f16"]), st.integers(1, 9))
def test_the_plan_is_the_cheapest(rows: int, k: int, columns: int, element_type: str, batches: int) -> None:
    product = plain(rows, k, columns, element_type, batches)
    cost = plan_product(product, replace(MK2, tiles=12))
    assert cost.compute + cost.exchange + cost.sync == cheapest(product, 12)


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
    for chip, faster in (("ipu2", True), ("ipu1", False)):
        wide, half = (plan_product(product, target(chip), partials) for partials in ("f32", "f16"))
        assert (half.compute < wide.compute) is faster, chip


def test_a_resident_operand_saves_exchange() -> None:
    product = plain(1, 1000, 10_000)
    home = plan_product(replace(product, resident="b"), MK2)
    away = plan_product(product, MK2)
    assert home.exchange < away.exchange / 5


def test_temporary_memory_stays_within_what_poplar_grants() -> None:
    product = plain(4096, 4096, 4096)
    cost = plan_product(product, MK2)
    assert cost.received_bytes + cost.partial_bytes <= 0.6 * MK2.bytes_per_tile
    cramped = plan_product(product, replace(MK2, bytes_per_tile=1))
    assert cramped.received_bytes + cramped.partial_bytes < cost.received_bytes + cost.partial_bytes
