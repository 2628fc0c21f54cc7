"""A schedule's recomputation is a separate part, which runs before the backward part."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.ir import Computation
from engine.partition.pipeline import Pipelining, pipeline
from tests.partition.stage_steps import staged_step

STAGES = 3


def branches(schedule: str, mode: str | None) -> list[Computation]:
    """The parts that an iteration of the pipeline runs, in order."""
    step = staged_step(4, STAGES)
    pipelining = Pipelining(STAGES, 2 * STAGES, schedule, recomputation_mode=mode)
    made = pipeline(step.module, step.roles, pipelining, once=step.once, metrics=step.metrics)
    (loop,) = (i for i in made.module.entry.instructions if i.opcode == "while")
    return [i.called[0] for i in loop.called[0].instructions if i.opcode == "conditional"]


def dots(computation: Computation) -> int:
    return sum(i.opcode == "dot" for i in computation.instructions)


def of_kind(found: list[Computation], kind: str) -> dict[int, Computation]:
    return {int(each.name.split("_")[1]): each for each in found if each.name.startswith(kind)}


@pytest.mark.parametrize("schedule", ["Grouped", "Interleaved"])
def test_recomputation_is_a_part_of_its_own(schedule: str) -> None:
    found = branches(schedule, "RecomputeThenBackpropagate")
    kinds = Counter(each.name.split("_")[0] for each in found)
    assert kinds == {"forward": STAGES, "recompute": STAGES - 1, "backward": STAGES}
    plain = of_kind(branches(schedule, None), "backward")
    for stage, again in of_kind(found, "recompute").items():
        assert dots(again) == 1  # the layer's product
        assert dots(of_kind(found, "backward")[stage]) == dots(plain[stage])
        if schedule == "Grouped":
            names = [each.name for each in found]
            assert names.index(f"recompute_{stage}") < names.index(f"backward_{stage}")


def test_within_the_backward_part_where_the_schedule_says_so() -> None:
    found = branches("Grouped", "RecomputeAndBackpropagateInterleaved")
    assert not of_kind(found, "recompute")
    plain = of_kind(branches("Grouped", None), "backward")
    for stage, backward in of_kind(found, "backward").items():
        assert dots(backward) == dots(plain[stage]) + (stage + 1 < STAGES)
