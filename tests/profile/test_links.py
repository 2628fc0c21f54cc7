"""Transfers between IPUs by the arithmetic of links."""

from __future__ import annotations

import pytest

from engine.profile.links import (
    Selection,
    all_reduce,
    all_reduce_each,
    links_between,
    transfer_cycles,
    waiting_together,
)
from engine.profile.options import SelectionOrder
from engine.target import target

MK2 = target("ipu2")
LINK = 128e9 / 8 * 0.85
"""Bytes per second of one IPU-Link."""


def test_partners_have_four_links_and_neighbours_two() -> None:
    assert [links_between(k, k + 1) for k in range(4)] == [4, 2, 4, 2]
    assert links_between(3, 0) == links_between(0, 3) == 2


@pytest.mark.parametrize(("order", "links"), [("AUTO", [4, 2, 4]), ("ZIGZAG", [4, 2, 4]), ("HOOF", [2, 4, 2])])
def test_the_selection_order_says_who_is_a_partner(order: SelectionOrder, links: list[int]) -> None:
    selection = Selection(order, 4)
    assert [links_between(k, k + 1, selection) for k in range(3)] == links
    assert links_between(0, 3, selection) == (4 if order == "HOOF" else 2)
    assert transfer_cycles(10**6, 0, 1, MK2, selection) == transfer_cycles(4 * 10**6 // links[0], 0, 1, MK2)


@pytest.mark.parametrize(("source", "destination", "links"), [(0, 1, 4), (1, 2, 2), (2, 1, 2), (6, 7, 4)])
def test_transfer_takes_bytes_by_the_rate_of_its_links(source, destination, links) -> None:
    expected = 10_000_000 / (links * LINK) * MK2.clock_hz
    assert transfer_cycles(10_000_000, source, destination, MK2) == pytest.approx(expected, abs=1)
    assert transfer_cycles(0, source, destination, MK2) == 0


def test_a_large_sum_goes_round_a_ring() -> None:
    found = all_reduce(50_000_000, 16, MK2)
    assert found.algorithm == "ring"
    assert found.transfer == pytest.approx(2 * 15 / 16 * 50e6 / (4 * LINK))
    assert found.syncs == pytest.approx(30 * MK2.external_sync_cycles(16) / MK2.clock_hz)


def test_a_small_sum_goes_up_and_down_a_tree() -> None:
    found = all_reduce(64, 16, MK2)
    assert found.algorithm == "tree"
    assert found.transfer == pytest.approx(8 * 64 / (4 * LINK))


def test_racks_sum_shares_through_their_gateways() -> None:
    one, four = all_reduce(64_000_000, 64, MK2), all_reduce(64_000_000, 256, MK2)
    across = 2 * 3 / 4 * 1_000_000 / MK2.gateway_link_bytes_per_second
    assert four.transfer - one.transfer == pytest.approx(across)
    assert four.algorithm == "ring over IPU-Links, ring over GW-Links"


def test_stages_of_a_replica_leave_fewer_replicas_to_a_rack() -> None:
    assert "GW" not in all_reduce(10**7, 64, MK2).algorithm
    assert "GW" in all_reduce(10**7, 64, MK2, ipus_per_replica=4).algorithm
    assert "GW" not in all_reduce(10**7, 16, MK2, ipus_per_replica=4).algorithm


def test_a_syncless_sum_has_one_sync() -> None:
    found, plain = all_reduce(50_000_000, 16, MK2, syncless=True), all_reduce(50_000_000, 16, MK2)
    assert found.syncs == pytest.approx(plain.syncs / 30) and found.transfer == plain.transfer


def test_nothing_to_sum() -> None:
    assert all_reduce(10**6, 1, MK2).seconds == all_reduce(0, 8, MK2).seconds == 0


@pytest.mark.parametrize(
    ("most", "groups"), [(0, (3, 4, 5, 6)), (7, (7, 5, 6)), (12, (12, 6)), (100, (18,)), (4, (3, 4, 5, 6))]
)
def test_arrays_wait_for_others_up_to_so_many_bytes(most: int, groups: tuple[int, ...]) -> None:
    assert waiting_together([3, 4, 5, 6], most) == groups


def test_several_sums_follow_each_other() -> None:
    large, small, both = all_reduce(10**7, 16, MK2), all_reduce(64, 16, MK2), all_reduce_each([10**7, 64, 0], 16, MK2)
    assert both.seconds == pytest.approx(large.seconds + small.seconds) and both.algorithm == "ring; tree"
    assert all_reduce_each([], 16, MK2).algorithm == all_reduce(0, 16, MK2).algorithm
