"""Inference pipelines, summed results, and the estimate of a pipeline's memory."""

from __future__ import annotations

import numpy as np
import pytest

from engine.compile import compile_module
from engine.errors import StepCountError
from engine.evaluated_executable import EvaluatedExecutable
from engine.ir.verifier import verify
from engine.partition.pipeline import Pipelining, pipeline
from engine.runtime.feeds import RowFeed
from tests.partition.stage_steps import WIDTH, staged_step, values_of
from tests.partition.test_repeat import buffers

BATCH = 3


def feeds_of(count: int) -> list[RowFeed]:
    rng = np.random.default_rng(count)
    return [RowFeed(rng.normal(size=(count * BATCH, WIDTH)).astype(np.float32)) for _ in range(2)]


@pytest.mark.parametrize("executable", [EvaluatedExecutable, compile_module])
@pytest.mark.parametrize("schedule", ["Grouped", "Interleaved", "Sequential"])
@pytest.mark.parametrize("mapping", [None, [0, 1, 0]])
def test_inference_gives_all_results_in_order(executable, schedule, mapping) -> None:
    step = staged_step(BATCH, 3, training=False)
    made = pipeline(step.module, step.roles, Pipelining(3, 6, schedule, mapping), metrics=step.metrics, training=False)
    verify(made.module)
    plain, piped = buffers(values_of(step)), buffers(values_of(step))
    (expected,) = EvaluatedExecutable(step.module, step.roles, step.constants).run(6, feeds_of(6), plain, "all")
    (received,) = executable(made.module, made.roles, step.constants).run(1, feeds_of(6), piped)
    np.testing.assert_allclose(received, expected, rtol=2e-5, atol=1e-5)
    for old, new in zip(plain, piped, strict=True):
        np.testing.assert_allclose(new.read(), old.read(), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("schedule", ["Grouped", "Interleaved", "Sequential"])
def test_accumulated_results_are_sums(schedule) -> None:
    step = staged_step(BATCH, 2)
    made = pipeline(
        step.module,
        step.roles,
        Pipelining(2, 4, schedule, accumulate_outputs=True),
        once=step.once,
        metrics=step.metrics,
    )
    held = buffers(values_of(step))
    before = held[4].read()
    assert before.dtype == np.int32
    totals = [buffer for buffer, p in zip(held, step.of_role("variable"), strict=True) if not p.array_shape.rank]
    total = next(buffer for buffer in totals if buffer.read().dtype == np.float32)
    old = total.read()
    (loss,) = EvaluatedExecutable(made.module, made.roles, step.constants).run(1, feeds_of(4), held)
    np.testing.assert_allclose(loss, total.read() - old, rtol=1e-5)


def reported(schedule: str, mode: str | None = None):
    step = staged_step(BATCH, 3, width=32)
    options = Pipelining(3, 6, schedule, recomputation_mode=mode)
    return pipeline(step.module, step.roles, options, once=step.once, metrics=step.metrics).report


def test_the_estimate_follows_the_schedule() -> None:
    grouped, interleaved, sequential = (reported(s) for s in ("Grouped", "Interleaved", "Sequential"))
    assert [stage.micro_batches for stage in grouped.stages] == [6, 4, 2]
    for stage in grouped.stages:
        assert stage.stashed_bytes == stage.micro_batches * stage.activation_bytes
        assert stage.activation_bytes >= BATCH * 32 * 4, "at least the activation that its gradient needs"
    for ipu in range(3):
        assert grouped.bytes_by_ipu[ipu] > interleaved.bytes_by_ipu[ipu] >= sequential.bytes_by_ipu[ipu]
    assert sequential.bubbles[0] > interleaved.bubbles[0]
    recomputed = reported("Grouped", "Auto")
    assert sum(s.stashed_bytes for s in recomputed.stages) < sum(s.stashed_bytes for s in grouped.stages)


def test_the_table_has_a_line_for_each_stage_and_ipu() -> None:
    report = reported("Interleaved")
    lines = report.table().splitlines()
    assert lines[0] == f"Pipeline schedule: Interleaved, {report.slots} slots"
    assert len(lines) == 2 + 3 + 3
    assert f"{report.stages[0].stashed_bytes:,}" in lines[2] and "waits in 25.0% of the slots" in lines[-1]


def test_counts_are_checked_under_the_name_users_know() -> None:
    step = staged_step(BATCH, 2)
    with pytest.raises(StepCountError, match="gradient_accumulation_steps_per_replica to be a multiple of 4"):
        pipeline(step.module, step.roles, Pipelining(2, 6), once=step.once, metrics=step.metrics)
    plain = staged_step(BATCH, 2, training=False)
    with pytest.raises(StepCountError, match="steps_per_execution to be a multiple of 2"):
        pipeline(plain.module, plain.roles, Pipelining(2, 5, option="steps_per_execution"), training=False)
