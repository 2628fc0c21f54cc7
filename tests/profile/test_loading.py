"""Buffers through which variables come from the host."""

from __future__ import annotations

from engine.profile.categories import EXCHANGE_BUFFERS
from engine.profile.options import Assumptions
from engine.profile.program_estimate import estimate
from engine.profile.vertices import tables
from engine.target import target
from tests.profile.programs import elementwise, product

MK2 = target("ipu2")
COPIES = tables()["rearrangement"]["copies"]
ON_HOST = Assumptions(rearranged_on_host=True)


def test_weights_of_a_product_are_rearranged_on_the_tiles() -> None:
    program = product(2, 8192, 512, role="variable")
    found, on_host = estimate(program, MK2), estimate(program, MK2, assumptions=ON_HOST)
    size, peak, always = 8192 * 512 * 4, found.tiles.peak_bytes.sum(), found.tiles.always_live_bytes.sum()
    assert abs(int(peak - always) - COPIES * size) <= 0.01 * size
    assert on_host.tiles.peak_bytes.sum() < peak
    (buffers,) = (each for each in found.liveness if each.name.endswith("as it comes from the host"))
    assert (buffers.first, buffers.last, buffers.category) == (0, 0, EXCHANGE_BUFFERS)


def test_feeds_and_arrays_in_linear_order_are_not_rearranged() -> None:
    for program in (product(2, 8192, 512), elementwise("tanh", 1_000_000)):
        assert not [each for each in estimate(program, MK2).liveness if "comes from the host" in each.name]


def test_loading_never_decides_whether_a_program_fits() -> None:
    half = MK2.bytes_per_tile * MK2.tiles // 2 // 4
    found = estimate(product(2, half // 1024, 1024, role="variable"), MK2)
    assert [each for each in found.liveness if "comes from the host" in each.name]
    assert found.tiles.peak_bytes.max() <= MK2.bytes_per_tile
