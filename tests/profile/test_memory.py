"""Memory: what is always live, liveness compared with the memory plan, and programs that do not fit."""

from __future__ import annotations

import pytest

from engine.errors import OutOfTileMemory
from engine.profile.exchange import Layouts
from engine.profile.fit import check_fit
from engine.profile.options import Assumptions
from engine.profile.program_estimate import estimate
from engine.profile.superstep import superstep
from engine.program.memory import plan_memory
from engine.target import target
from tests.profile.programs import dense_step, elementwise, small_products

MK2 = target("ipu2")


def test_always_live_by_kind() -> None:
    found = estimate(dense_step(64, 300, 200), MK2).memory.always_live
    assert found["variables"] == (2 * 300 * 200 + 200) * 4
    assert found["feeds"] == 64 * 300 * 4
    assert found["code"] > 0 < found["vertex state"]


def test_live_bytes_are_those_of_the_memory_plan_and_the_supersteps_own() -> None:
    program = dense_step(16, 30, 20)  # whose products are not split
    planned = plan_memory(program).live_bytes
    fed = sum(b.shape.bytes for b in program.feeds.values())
    layouts = Layouts(program.compute_sets)
    for at, compute_set in enumerate(program.compute_sets):
        cost = superstep(compute_set, layouts, MK2)
        expected = planned[at] - fed + cost.temporary_bytes * cost.tiles
        assert estimate(program, MK2).memory.live_bytes[at] == expected


def test_the_fullest_tile_is_no_emptier_than_the_mean() -> None:
    for tiles in (1, 3, 1472):
        memory = estimate(dense_step(), target("ipu2", tiles)).memory
        assert memory.always_live_fullest >= memory.always_live_mean
        assert memory.peak_fullest >= memory.peak_mean >= memory.always_live_mean
        assert 0 <= memory.peak_tile < tiles


def test_one_tile_holds_everything() -> None:
    memory = estimate(dense_step(), target("ipu2", 1)).memory
    assert memory.always_live_fullest == sum(memory.always_live.values())
    assert memory.peak_fullest == sum(memory.always_live.values()) + max(memory.live_bytes)


def test_what_fits_passes() -> None:
    assert estimate(dense_step(), MK2).fits
    check_fit(dense_step(), MK2)


def test_what_does_not_fit_is_explained() -> None:
    program, small = dense_step(64, 2000, 1000), target("ipu2", tiles=16)
    found = estimate(program, small)
    assert not found.fits
    with pytest.raises(OutOfTileMemory) as raised:
        check_fit(program, small)
    message, memory = str(raised.value), found.memory
    assert "Expected at most 638,976 bytes on each tile" in message
    assert f"on tile {memory.peak_tile}, " in message
    assert f"{memory.peak_fullest - 638_976:,} bytes over" in message
    largest = message.split("The layers with most bytes")[1].splitlines()[1:4]
    assert "dense" in largest[0] and "f32[2000,1000]" in largest[0]
    assert "estimated" in message
    assert message.endswith("ipu.allow_out_of_memory()")
    assert raised.value.estimate.memory == memory


def test_half_precision_takes_half_the_memory() -> None:
    single, half = (estimate(dense_step(element_type=t), MK2).memory.always_live for t in ("f32", "f16"))
    assert 2 * half["variables"] == single["variables"]


def test_nothing_at_all() -> None:
    found = estimate(elementwise("tanh", 0), MK2)
    assert found.fits
    assert found.memory.always_live_mean == found.tiles.categories["code"][0] > 0
    assert estimate(elementwise("tanh", 0), MK2, assumptions=Assumptions(code_bytes=False)).memory.peak_fullest == 0


def test_exchanges_of_small_arrays_have_few_sources() -> None:
    """Each of 192 products of 4 by 4 is on one tile, so an exchange takes some words of code, not one per tile."""
    found = estimate(small_products(192), MK2)
    assert sum("dot" in cost.name for cost in found.costs) == 192
    assert (
        found.tiles.fixed["code"].max()
        < 100 * len(found.costs) + estimate(small_products(1), MK2).tiles.fixed["code"].max()
    )
