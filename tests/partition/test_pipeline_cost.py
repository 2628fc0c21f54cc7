"""A pipeline costs the host hardly more than the unsplit step."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import compile_module
from engine.debug.control_flow import Walk
from engine.partition.accumulation import Accumulation
from engine.partition.pipeline import Pipelining, pipeline
from engine.partition.repeat import repeat
from engine.partition.replicas import Replicated
from engine.runtime.executable import Executable
from engine.runtime.executor import Column, RowKind
from tests.engine.running import buffers
from tests.partition.stage_steps import StagedStep, staged_step, values_of

STAGES, STEPS, WORKERS = 4, 16, 2


def executable_of(step: StagedStep, made: Replicated) -> Executable:
    executable = compile_module(made.module, made.roles, step.constants)
    executable._bind(buffers(values_of(step)))
    return executable


def walked(executable: Executable) -> dict[int, int]:
    """The number of rows of each kind that a step passes."""
    rows = Walk(executable._table(False, WORKERS))
    kinds, counts = np.unique([row[Column.KIND] for row in rows], return_counts=True)
    return dict(zip(kinds.tolist(), counts.tolist(), strict=True))


@pytest.mark.parametrize("schedule", ["Grouped", "Interleaved", "Sequential"])
@pytest.mark.parametrize(("batch", "width"), [(32, 64), (64, 128)])
def test_about_as_many_compute_sets_and_syncs_as_unsplit(schedule, batch, width) -> None:
    """Each part waits before its products of weights, while the unsplit step waits once for all of them."""
    step = staged_step(batch, STAGES, width=width)
    unsplit = repeat(step.module, step.roles, Accumulation(STEPS), once=step.once, metrics=step.metrics)
    split = pipeline(step.module, step.roles, Pipelining(STAGES, STEPS, schedule), once=step.once, metrics=step.metrics)
    alone, cut = walked(executable_of(step, unsplit)), walked(executable_of(step, split))
    assert cut[RowKind.COMPUTE] <= 1.25 * alone[RowKind.COMPUTE]
    assert cut[RowKind.SYNC] <= alone[RowKind.SYNC] + (STAGES + 1) * STEPS
    assert RowKind.BRANCH not in cut


@pytest.mark.parametrize("schedule", ["Grouped", "Interleaved"])
def test_activations_are_written_and_read_in_their_rings(schedule) -> None:
    step = staged_step(32, STAGES, width=64)
    split = pipeline(step.module, step.roles, Pipelining(STAGES, STEPS, schedule), once=step.once, metrics=step.metrics)
    running = executable_of(step, split)._running
    copied = [each for each in running.compute_sets if "dynamic" in each.name]
    assert all(span.buffer.shape.bytes < 1 << 10 for each in copied for span in each.reads)
