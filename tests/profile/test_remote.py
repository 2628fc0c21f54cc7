"""Streaming memory: its arrays and transfers, and the relief of the tiles."""

from __future__ import annotations

import pytest

from engine.profile.options import GRADIENT_ACCUMULATORS, OPTIMIZER_STATE_VARIABLES, Assumptions, EstimatedOptimizations
from engine.profile.program_estimate import estimate
from engine.profile.remote import stretches
from engine.target import target
from tests.profile.training_steps import deep_step

MK2 = target("ipu2")
SLOTS = 6 * 64 * 64 * 4


def test_nothing_is_remote_by_default() -> None:
    found = estimate(deep_step(), MK2)
    assert found.remote.bytes == {} and found.remote.cycles(MK2) == 0


def test_slots_in_streaming_memory() -> None:
    here, there = (
        estimate(deep_step(), MK2, assumptions=Assumptions(offloaded=offloaded))
        for offloaded in (frozenset[str](), frozenset({OPTIMIZER_STATE_VARIABLES}))
    )
    assert there.remote.bytes == {OPTIMIZER_STATE_VARIABLES: SLOTS}
    assert there.remote.moved_bytes == 2 * SLOTS  # there and back
    cycles = 2 * SLOTS / MK2.streaming_memory_bytes_per_second * MK2.clock_hz
    assert there.exchange - here.exchange == pytest.approx(cycles, abs=1)
    assert (there.compute, there.host) == (here.compute, here.host)
    assert there.cycles == there.compute + there.exchange + there.sync
    saved = here.tiles.always_live_bytes.sum() - there.tiles.always_live_bytes.sum()
    assert saved == SLOTS
    held = [t for t in there.liveness if t.category == "optimizer state"]
    assert all(t.last - t.first <= 1 and not t.always_live for t in held)


@pytest.mark.parametrize(("least", "remote"), [(128, SLOTS), (64 * 64 * 4, SLOTS), (64 * 64 * 4 + 1, 0)])
def test_what_is_smaller_than_the_minimum_stays(least: int, remote: int) -> None:
    offloaded = frozenset({OPTIMIZER_STATE_VARIABLES})
    options = EstimatedOptimizations(minimum_remote_bytes=least)
    found = estimate(deep_step(), MK2, assumptions=Assumptions(offloaded=offloaded, optimizations=options))
    assert sum(found.remote.bytes.values()) == remote


def test_replicas_share_the_state_out() -> None:
    offloaded = frozenset({OPTIMIZER_STATE_VARIABLES})
    found = estimate(deep_step(), MK2, assumptions=Assumptions(offloaded=offloaded, state_shards=4))
    assert found.remote.bytes == {OPTIMIZER_STATE_VARIABLES: SLOTS // 4}
    assert found.remote.moved_bytes == 2 * SLOTS // 4
    assert found.remote.gathered_bytes == 2 * SLOTS * 3 // 4


def test_sums_of_gradients_stay_unless_they_are_meant() -> None:
    offloaded = frozenset({GRADIENT_ACCUMULATORS})
    assert estimate(deep_step(), MK2, assumptions=Assumptions(offloaded=offloaded)).remote.bytes == {}


def test_neighbouring_uses_are_one_stay() -> None:
    assert stretches([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]
    assert stretches([]) == []
