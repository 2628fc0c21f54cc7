"""A step on one chip that recomputes activations: fewer bytes at the peak, for cycles of the forward pass."""

from __future__ import annotations

import pytest

from engine.profile import Assumptions, estimate
from engine.target import target
from tests.profile.programs import product
from tests.profile.training_steps import deep_step

MK2 = target("ipu2")
BATCH, WIDTH, LAYERS = 4096, 128, 8


def test_recomputation_takes_cycles_and_spares_memory() -> None:
    program = deep_step(BATCH, WIDTH, LAYERS)
    kept, again = (estimate(program, MK2, assumptions=Assumptions(recomputes=each)) for each in (False, True))
    one = BATCH * WIDTH * 4
    assert 2 * one < max(kept.memory.live_bytes) - max(again.memory.live_bytes) < 7 * one
    assert again.memory.peak_fullest < kept.memory.peak_fullest
    twice = [(a, b) for a, b in zip(kept.costs, again.costs, strict=True) if b.runs != a.runs]
    assert twice and all(b.runs == 2 * a.runs and "(backward)" not in b.label for a, b in twice)
    assert again.cycles - kept.cycles == sum(a.cycles for a, _ in twice) > 0
    forward = sum(c.cycles for c in kept.costs if c.label.startswith("dense_") and "(backward)" not in c.label)
    assert again.cycles - kept.cycles <= forward
    # All arrays are still told of, those that are made again as often as they live.
    assert sum(t.bytes for t in again.liveness) > sum(t.bytes for t in kept.liveness)


def test_a_program_without_a_backward_pass_recomputes_nothing() -> None:
    program = product(64, 64, 64, "f32")
    found = estimate(program, MK2, assumptions=Assumptions(recomputes=True))
    assert found.cycles == estimate(program, MK2).cycles and found.costs[0].runs == pytest.approx(1)
