"""Predictions of scaling: the cost of all-reduces, compared with messages counted one by one."""

from __future__ import annotations

import pytest

from benchmarks.process_scaling import LARGE, Link, Model, efficiency, link_of


def ring(size: float, processes: int, link: Link) -> float:
    """Seconds of a ring: in each step all processes send a slice to the next one, which adds it in the first half."""
    seconds = 0.0
    for step in range(2 * (processes - 1)):
        seconds += link.latency + size / processes / link.rate
        if step < processes - 1:
            seconds += size / processes / link.sum_rate
    return seconds


def halving(size: float, processes: int, link: Link) -> float:
    """Seconds of recursive halving with sums, then doubling, for a number of processes that is a power of two."""
    seconds, part = 0.0, size
    while part > size / processes:
        part /= 2
        seconds += 2 * (link.latency + part / link.rate) + part / link.sum_rate
    return seconds


@pytest.mark.parametrize("processes", [2, 4, 16, 1024])
@pytest.mark.parametrize("size", [4, 4_000_000])
def test_an_all_reduce_takes_its_messages(size: int, processes: int) -> None:
    link = Link("any", 1e-5, 1e9, 2e9)
    only_ring = Link("ring", 1e-5, 1e9, 2e9, only_ring=True)
    seconds, algorithm = only_ring.all_reduce(size, processes)
    assert algorithm == "ring" and seconds == pytest.approx(ring(size, processes, link))
    seconds, algorithm = link.all_reduce(size, processes)
    doubling = (processes.bit_length() - 1) * (1e-5 + size / 1e9 + size / 2e9)
    assert seconds == pytest.approx(min(ring(size, processes, link), halving(size, processes, link), doubling))
    assert size > 4 or algorithm == "recursive doubling"


def test_a_measured_link_predicts_what_was_measured() -> None:
    link = link_of("measured", 2e-3, 0.1, only_ring=True)
    assert link.all_reduce(4, 2)[0] == pytest.approx(2e-3, rel=1e-3)
    assert link.all_reduce(4 * LARGE, 2)[0] == pytest.approx(0.1, rel=1e-3)
    model = Model(0.1, 4 * LARGE)
    assert efficiency(model, link, 1) == 1 and efficiency(model, link, 2) == pytest.approx(0.5, rel=1e-2)
    assert efficiency(model, link, 2, micro_batches=9) == pytest.approx(0.9, rel=1e-2)
