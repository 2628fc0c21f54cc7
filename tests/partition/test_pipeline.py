"""A pipeline gives the same bits in every schedule as the unsplit step with the same accumulation."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import compile_module
from engine.evaluated_executable import EvaluatedExecutable
from engine.ir.verifier import verify
from engine.partition.accumulation import Accumulation
from engine.partition.pipeline import Pipelining, pipeline
from engine.partition.repeat import repeat
from engine.partition.replicas import Replicated
from engine.runtime import executable as executables
from engine.runtime.feeds import RowFeed
from tests.partition.stage_steps import StagedStep, staged_step, values_of
from tests.partition.test_repeat import buffers

MODES = {
    "Grouped": (None, "RecomputeThenBackpropagate", "RecomputeAndBackpropagateInterleaved"),
    "Interleaved": (None, "RecomputeThenBackpropagate"),
    "Sequential": (None, "Auto"),
}
CASES = [(schedule, stages, mode) for schedule, modes in MODES.items() for stages in (2, 3, 4) for mode in modes]


def trained(executable, step: StagedStep, made: Replicated, accumulation: Accumulation, updates: int = 2):
    """Results and variables after some updates on random data."""
    verify(made.module)
    rng = np.random.default_rng(accumulation.micro_batches)
    batch, width = step.module.entry.parameters[0].array_shape.dimensions
    rows = updates * accumulation.micro_batches * batch
    feeds = [RowFeed(rng.normal(size=(rows, width)).astype(np.float32)) for _ in range(2)]
    values = values_of(step)
    numbers = {p["parameter_number"]: value for p, value in zip(step.of_role("variable"), values, strict=True)}
    held = buffers([*values, *(np.stack([numbers[n]] * accumulation.replicas) for n in made.rows)])
    results = executable(made.module, made.roles, step.constants).run(updates, feeds, held)
    return [*results, *(buffer.read() for buffer in held)]


def both(executable, step: StagedStep, pipelining: Pipelining):
    accumulation = Accumulation(pipelining.steps, pipelining.replicas, pipelining.reduction)
    numbers = {"once": step.once, "metrics": step.metrics, "random": step.random}
    unsplit = repeat(step.module, step.roles, accumulation, **numbers)
    split = pipeline(step.module, step.roles, pipelining, **numbers)
    return [trained(executable, step, made, accumulation) for made in (unsplit, split)]


@pytest.mark.sample(8)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("schedule", "stages", "mode"), CASES)
def test_same_bits_by_definition(schedule, stages, mode, tied) -> None:
    for rounds in (1, 2):
        pipelining = Pipelining(stages, rounds * 2 * stages, schedule, recomputation_mode=mode)
        unsplit, split = both(EvaluatedExecutable, staged_step(3, stages, tied=tied), pipelining)
        for old, new in zip(unsplit, split, strict=True):
            np.testing.assert_array_equal(new, old)


@pytest.mark.sample(6)
@pytest.mark.parametrize(("schedule", "stages", "mode"), CASES)
def test_same_bits_on_tiles(schedule, stages, mode) -> None:
    pipelining = Pipelining(stages, 2 * stages, schedule, recomputation_mode=mode)
    unsplit, split = both(compile_module, staged_step(3, stages, tied=stages == 3), pipelining)
    for old, new in zip(unsplit, split, strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("batch", "width"), [(48, 200), (32, 64), (7, 130)])
@pytest.mark.parametrize(("schedule", "stages", "mode"), [case for case in CASES if case[1] == 4])
def test_same_bits_of_large_layers_on_tiles(schedule, stages, mode, batch, width, monkeypatch) -> None:
    """Parts are divided along the rows of the whole iteration, as the unsplit step is, so sums have the same order."""
    monkeypatch.setattr(executables, "worker_count", lambda: 2)
    pipelining = Pipelining(stages, 2 * stages, schedule, recomputation_mode=mode)
    unsplit, split = both(compile_module, staged_step(batch, stages, width=width), pipelining)
    for old, new in zip(unsplit, split, strict=True):
        np.testing.assert_array_equal(new, old)


@pytest.mark.sample(6)
@pytest.mark.parametrize("executable", [EvaluatedExecutable, compile_module])
@pytest.mark.parametrize("reduction", ["sum", "mean", "running_mean"])
@pytest.mark.parametrize("schedule", ["Grouped", "Interleaved", "Sequential"])
def test_replicas(executable, schedule, reduction) -> None:
    pipelining = Pipelining(2, 4, schedule, replicas=2, reduction=reduction)
    unsplit, split = both(executable, staged_step(3, 2), pipelining)
    for old, new in zip(unsplit, split, strict=True):
        np.testing.assert_array_equal(new, old)
