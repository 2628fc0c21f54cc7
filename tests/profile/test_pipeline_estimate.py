"""Estimates for each IPU of a pipeline: what it computes, holds and waits for, compared with its parts one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.compile import build_program
from engine.ir.verifier import verify
from engine.partition.part_steps import part_steps
from engine.partition.pipeline import Pipelining, pipeline
from engine.profile.links import Selection, all_reduce, transfer_cycles
from engine.profile.options import GRADIENT_ACCUMULATORS, Assumptions, EstimatedOptimizations
from engine.profile.pipeline_estimate import PipelineStep, estimate_pipeline
from engine.profile.program_estimate import estimate
from engine.profile.summary import summary
from engine.target import target
from tests.partition.stage_steps import staged_step

MK2 = target("ipu2")
WIDTH, BATCH = 128, 64
VALUE = BATCH * WIDTH * 4


def made(kind="Grouped", stages=3, *, training=True, tied=False, width=WIDTH, **pipelining):
    step = staged_step(BATCH, stages, training=training, tied=tied, width=width)
    asked = Pipelining(stages, 2 * stages, kind, **pipelining)
    named = {"once": step.once} if training else {}
    found = pipeline(step.module, step.roles, asked, metrics=step.metrics, training=training, **named)
    return PipelineStep("step", found.source, found.schedule, step.constants), found


def estimated(kind="Grouped", stages=3, *, chip=MK2, replicas=1, **arguments):
    step, found = made(kind, stages, **arguments)
    return estimate_pipeline(step, chip, build_program, replicas), found


def test_the_selection_order_decides_who_is_a_partner() -> None:
    step, _ = made()
    hoof = Selection("HOOF", 3)
    found = estimate_pipeline(
        step, MK2, build_program, assumptions=Assumptions(optimizations=EstimatedOptimizations(selection_order="HOOF"))
    )
    second = found.pipeline.part("forward", 1)
    assert second.links == sum(transfer_cycles(size, 0, 1, MK2, hoof) for size in (VALUE, 4))
    assert second.links > estimated()[0].pipeline.part("forward", 1).links


def test_copies_between_stages_wait_for_each_other_as_configured() -> None:
    """maximum_inter_ipu_copies_buffer_size limits copies of VALUE and of a seed, which the second stage receives."""
    step, _ = made()
    syncs = {}
    for most in (0, VALUE, VALUE + 4):
        options = Assumptions(optimizations=EstimatedOptimizations(inter_ipu_copies_bytes=most))
        found = estimate_pipeline(step, MK2, build_program, assumptions=options).pipeline
        syncs[most] = found.part("forward", 1).external_sync
        assert found.between_ipus[1] == sum(cost.external_sync for cost in found.critical)
    one = MK2.external_sync_cycles(3)
    assert syncs == {0: 2 * one, VALUE: 2 * one, VALUE + 4: one}


@pytest.mark.parametrize("kind", ["Grouped", "Interleaved", "Sequential"])
def test_the_step_is_the_sum_of_its_slots(kind) -> None:
    found, made = estimated(kind)
    pipeline = found.pipeline
    assert found.cycles == found.compute + found.exchange + found.sync == pipeline.cycles
    assert found.cycles == sum(cost.cycles for cost in pipeline.critical)
    assert [(r.slot, r.ipu, r.stage, r.kind, r.micro_batch) for r in pipeline.rows] == [
        (r.slot, r.ipu, r.stage, r.kind, r.micro_batch) for r in made.schedule.rows
    ]
    assert max(row.start + row.cycles for row in pipeline.rows) == found.cycles
    assert found.samples_per_replica == 6 * BATCH
    assert sum(found.shares.values()) == pytest.approx(1)


def test_a_part_costs_what_its_own_program_does() -> None:
    step, found = made()
    pipeline = estimate_pipeline(step, MK2, build_program).pipeline
    source = found.source
    for part in part_steps(source.module, source.roles, source.parts, source.placement, source.plans("none")):
        verify(part.module)
        numbers = [n for n, role in enumerate(part.roles) if role == "constant"]
        constants = {n: step.constants[part.keys[n][1]] for n in numbers}
        alone = estimate(build_program(part.module, part.roles, constants), MK2)
        cost = pipeline.part(part.kind, part.stage)
        # The pipeline adds copies of waiting values and syncs between IPUs; layouts that parts share move fewer bytes.
        assert alone.compute <= cost.compute <= alone.compute + 5000
        assert cost.sync >= alone.sync + MK2.external_sync_cycles(3)


def test_activations_come_over_links() -> None:
    found, _ = estimated()
    first, second, last = (found.pipeline.part("forward", stage) for stage in range(3))
    assert first.links == first.received_bytes == 0
    seed = 4
    assert second.received_bytes == VALUE + seed
    assert second.links == transfer_cycles(VALUE, 0, 1, MK2) + transfer_cycles(seed, 0, 1, MK2)
    # The last stage also receives a residual, from a stage that is no partner of its rung.
    assert last.received_bytes >= VALUE and last.links >= transfer_cycles(VALUE, 1, 2, MK2)
    assert found.pipeline.part("backward", 2).links == 0
    assert found.pipeline.part("backward", 0).received_bytes == VALUE


@pytest.mark.parametrize("kind", ["Grouped", "Interleaved"])
def test_stashes_are_as_deep_as_the_schedule_says(kind) -> None:
    found, made = estimated(kind)
    depths = made.schedule.stash_depths()
    for each, depth in zip(found.pipeline.ipus, depths, strict=True):
        stage = made.report.stages[each.ipu]
        assert stage.micro_batches == depth
        assert each.stash_bytes == pytest.approx(stage.stashed_bytes, abs=1000)  # counters and seeds wait, too
        stashed = [t for t in each.estimate.memory.largest if t.name.startswith("stash of ")]
        assert sum(t.bytes for t in stashed) == each.stash_bytes


def test_an_ipu_holds_its_own_variables() -> None:
    found, _ = estimated()
    for each in found.pipeline.ipus:
        variables = sum(t.bytes for t in each.estimate.memory.largest if t.always_live and "[128,128]" in t.shape)
        assert variables == WIDTH * WIDTH * 4


def test_sums_of_gradients_live_through_all_micro_batches() -> None:
    found, _ = estimated()
    for each in found.pipeline.ipus:
        sums = [t for t in each.estimate.liveness if t.name.startswith("sum of gradients")]
        assert [(t.bytes, t.first, t.last, t.category) for t in sums] == [
            (WIDTH * WIDTH * 4, 0, len(each.estimate.costs) - 1, "optimizer state")
        ]
        assert each.estimate.unknown_loops == 0 and all(cost.runs == 1 for cost in each.estimate.costs)


def test_recomputation_takes_rows_and_spares_memory() -> None:
    kept, _ = estimated()
    again, _ = estimated(recomputation_mode="Auto")
    assert {row.kind for row in again.pipeline.rows} == {"forward", "recompute", "backward", "update"}
    assert sum(e.stash_bytes for e in again.pipeline.ipus) < sum(e.stash_bytes for e in kept.pipeline.ipus)
    assert again.cycles > kept.cycles
    for stage in range(3):
        recompute, forward = (again.pipeline.part(kind, stage) for kind in ("recompute", "forward"))
        assert 0 < recompute.cycles < forward.cycles or (stage == 2 and recompute.cycles == 0)
        backward = again.pipeline.part("backward", stage).compute
        assert backward == pytest.approx(kept.pipeline.part("backward", stage).compute, rel=0.35)


def test_recomputation_within_the_backward_row() -> None:
    mode = "RecomputeAndBackpropagateInterleaved"
    apart, _ = estimated(recomputation_mode="RecomputeThenBackpropagate")
    within, _ = estimated(recomputation_mode=mode)
    for stage in range(3):
        assert within.pipeline.part("recompute", stage).cycles == 0
        both = sum(apart.pipeline.part(kind, stage).compute for kind in ("recompute", "backward"))
        assert within.pipeline.part("backward", stage).compute == both


def test_replicas_sum_gradients_stage_by_stage() -> None:
    alone, _ = estimated()
    four, _ = estimated(replicas=4)
    gradient = WIDTH * WIDTH * 4
    assert four.pipeline.gradient_bytes == (gradient,) * 3
    for stage in range(3):
        update = four.pipeline.part("update", stage)
        assert update.links == int(np.ceil(all_reduce(gradient, 4, MK2, 3).transfer * MK2.clock_hz))
        assert alone.pipeline.part("update", stage).links == 0
    assert four.between_ipus[0] > alone.between_ipus[0]
    assert four.samples_per_second == pytest.approx(4 * alone.samples_per_second, rel=0.1)
    assert four.samples_per_second < 4 * alone.samples_per_second


def test_stages_that_share_weights_share_an_ipu() -> None:
    found, _ = estimated(tied=True, device_mapping=[0, 1, 0])
    assert [each.stages for each in found.pipeline.ipus] == [(0, 2), (1,)]
    first = found.pipeline.ipus[0]
    assert sum(t.bytes for t in first.estimate.memory.largest if t.always_live and "[128,128]" in t.shape) == VALUE * 2
    assert first.waits < found.pipeline.ipus[1].waits


def test_it_fits_if_every_ipu_does() -> None:
    found, _ = estimated()
    assert found.fits and found.pipeline.fits
    fullest = max(each.estimate.memory.peak_fullest for each in found.pipeline.ipus)
    assert found.memory.peak_fullest == fullest
    small = replace(MK2, bytes_per_tile=min(e.estimate.memory.peak_fullest for e in found.pipeline.ipus))
    cramped, _ = estimated(chip=small)
    assert not cramped.fits and not cramped.pipeline.fits and any(each.fits for each in cramped.pipeline.ipus)
    assert "DOES NOT FIT" in cramped.pipeline.table()


def test_offloaded_activations_wait_in_streaming_memory() -> None:
    kept, _ = estimated()
    step, _ = made()
    found = estimate_pipeline(replace(step, offload_activations=True), MK2, build_program)
    for one, other in zip(found.pipeline.ipus, kept.pipeline.ipus, strict=True):
        assert (one.stash_bytes, one.streamed_bytes) == (0, other.stash_bytes)
        assert one.bytes < other.bytes
    for kind in ("forward", "backward"):  # the first stage keeps its results, and reads its feed again
        seconds = found.pipeline.part(kind, 0).streaming / MK2.clock_hz
        assert seconds == pytest.approx(VALUE / MK2.streaming_memory_bytes_per_second, rel=0.01)
    assert found.cycles > kept.cycles == kept.compute + kept.exchange + kept.sync
    assert found.cycles == found.compute + found.exchange + found.sync


def test_offloaded_sums_of_gradients_move_with_each_micro_batch() -> None:
    step, _ = made()
    offloaded = Assumptions(offloaded=frozenset({GRADIENT_ACCUMULATORS}))
    found = estimate_pipeline(step, MK2, build_program, assumptions=offloaded)
    gradient = WIDTH * WIDTH * 4
    for stage in range(3):
        seconds = found.pipeline.part("backward", stage).streaming / MK2.clock_hz
        assert seconds == pytest.approx(2 * gradient / MK2.streaming_memory_bytes_per_second, rel=0.01)
        seconds = found.pipeline.part("update", stage).streaming / MK2.clock_hz
        assert seconds == pytest.approx(gradient / MK2.streaming_memory_bytes_per_second, rel=0.01)
        assert found.pipeline.ipus[stage].streamed_bytes == gradient


def test_inference() -> None:
    found, _ = estimated(training=False)
    assert {part.kind for part in found.pipeline.parts} == {"forward"}
    fed, returned = found.host_bytes
    assert (fed, returned) == (2 * 6 * VALUE, 6 * VALUE)


def test_the_summary_speaks_of_all_ipus() -> None:
    found, _ = estimated(replicas=2)
    text = summary(found)
    assert "2 replicas, each 3 IPUs of 1,472 tiles" in text
    assert all(f"IPU {ipu}: fullest tile at" in text for ipu in range(3))
    assert "sync ± 58%" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 88


def test_concurrent_parts_share_the_work() -> None:
    together, _ = estimated(device_mapping=[0, [1, 2], 3])
    apart, _ = estimated(device_mapping=[0, 1, 3])
    one, two = (found.pipeline.part("forward", 1).compute for found in (apart, together))
    assert two < one
    assert [each.stages for each in together.pipeline.ipus] == [(0,), (1,), (1,), (2,)]
