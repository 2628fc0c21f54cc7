"""The estimate as a whole: sums, scaling and order of magnitude."""

from __future__ import annotations

import time

import pytest

from engine.profile.exchange import Layouts
from engine.profile.links import gradient_bytes
from engine.profile.program_estimate import estimate
from engine.target import target
from tests.profile.programs import dense_step, elementwise, product

MK2 = target("ipu2")


def test_totals_are_the_sums_of_the_compute_sets() -> None:
    found = estimate(dense_step(), MK2)
    assert found.cycles == sum(cost.cycles for cost in found.costs) == found.compute + found.exchange + found.sync
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.seconds_per_step == pytest.approx((found.cycles + found.host) / 1.33e9)
    assert found.samples_per_second == pytest.approx(64 / found.seconds_per_step)
    assert sum(cycles for _, _, cycles in found.top(1000)) == found.cycles


def test_supersteps_with_an_exchange_sync() -> None:
    program = dense_step()
    found, layouts = estimate(program, MK2), Layouts(program.compute_sets)
    # A plan adds its partial sums itself.
    of_plans = [layouts.adds_parts(each) for each in program.compute_sets]
    for cost, of_plan in zip(found.costs, of_plans, strict=True):
        assert cost.cycles == 0 if of_plan else cost.sync >= (cost.exchange > 0) * MK2.superstep_sync


@pytest.mark.parametrize("opcode", ["tanh", "exponential", "sqrt"])
def test_half_is_not_slower(opcode: str) -> None:
    single, half = (estimate(elementwise(opcode, 2_000_000, t), MK2).compute for t in ("f32", "f16"))
    assert half <= 1.2 * single


def test_elementwise_work_in_cycles() -> None:
    found = estimate(elementwise("exponential", 1472 * 600), MK2)
    assert found.compute == 20 + 6 * (33 + 6 * 50)
    assert found.exchange == 0


def test_more_tiles_are_faster() -> None:
    cycles = [estimate(product(512, 512, 512), target("ipu2", tiles)).cycles for tiles in (16, 184, 1472)]
    assert cycles == sorted(cycles, reverse=True)
    assert cycles[0] > 5 * cycles[2]


def test_host_transfer_by_the_published_rate() -> None:
    found = estimate(elementwise("tanh", 10_000_000), MK2)
    assert found.host_bytes == (40_000_000, 40_000_000)
    assert found.host == pytest.approx(40e6 / 20.1e9 * 1.33e9 + 40e6 / 5.5e9 * 1.33e9, abs=1)


def test_replicas_multiply_samples_and_exchange_gradients() -> None:
    program = dense_step()
    one, four = estimate(program, MK2), estimate(program, MK2, replicas=4)
    assert gradient_bytes(program) == (300 * 200 + 200) * 4
    assert four.exchange > one.exchange and four.sync > one.sync
    assert one.samples_per_second < four.samples_per_second < 4 * one.samples_per_second


def test_inference_exchanges_nothing_between_replicas() -> None:
    assert estimate(product(32, 64, 64, role="variable"), MK2, replicas=4).between_ipus == (0, 0)


def test_integer_products_do_not_use_the_matrix_engine() -> None:
    integers = estimate(product(256, 256, 256, "s32"), MK2)
    floats = estimate(product(256, 256, 256), MK2)
    assert integers.compute >= 256**3 / 1472 * 14 > 10 * floats.compute


def test_a_clock_that_is_faster_and_nothing_else() -> None:
    program = dense_step()
    assert estimate(program, target("bow")).cycles == estimate(program, MK2).cycles
    assert estimate(program, target("bow")).seconds_per_step < estimate(program, MK2).seconds_per_step


def test_it_is_quick() -> None:
    """An estimate costs about as much as making its program did."""
    times = []
    for _ in range(5):
        begin = time.process_time()
        program = dense_step()
        made = time.process_time()
        estimate(program, MK2)
        times.append((time.process_time() - made, made - begin))
    assert min(estimate for estimate, _ in times) < 10 * min(making for _, making in times), times
