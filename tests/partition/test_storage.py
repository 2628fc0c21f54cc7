"""Options that move a pipeline's data change the place of arrays and the schedule's transfers, never the program."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from engine.ir import Module
from engine.partition.pipeline import Pipelined, Pipelining, pipeline
from engine.partition.storage import Storage
from tests.partition.stage_steps import staged_step

STAGES, STEPS = 3, 12
NONE, ALL = Storage(), Storage(*[True] * 6)


def made(storage: Storage = NONE, schedule: str = "Grouped", replicas: int = 1, mode: str | None = None) -> Pipelined:
    step = staged_step(4, STAGES)
    pipelining = Pipelining(STAGES, STEPS, schedule, replicas=replicas, recomputation_mode=mode, storage=storage)  # type: ignore[arg-type]
    return pipeline(step.module, step.roles, pipelining, once=step.once, metrics=step.metrics)


def text(module: Module) -> str:
    return str([[str(i) for i in c.instructions] for c in module.computations()])


def test_contents_without_options() -> None:
    """Weights, momenta and accumulators of a stage have the same size."""
    report = made().report
    step = staged_step(4, STAGES)
    weights = sum(p.array_shape.bytes for p in step.of_role("variable") if p["parameter_number"] not in step.once)
    assert sum(stage.contents.weights + stage.contents.states for stage in report.stages) <= weights
    for stage in report.stages:
        held = stage.contents
        assert held.weights == held.accumulators > 0 and held.output_sums == 0
        assert stage.streaming_bytes == 0
        buffers = held.weights + held.states + held.optimizer_state + held.accumulators
        assert stage.tile_bytes == buffers + stage.stashed_bytes + stage.arriving_bytes
    assert report.transfers == () and "streaming" not in report.table()


@pytest.mark.parametrize("option", list(asdict(Storage())))
@pytest.mark.parametrize("schedule", ["Grouped", "Interleaved", "Sequential"])
def test_options_change_no_program(option: str, schedule: str) -> None:
    plain = made(schedule=schedule)
    other = made(replace(NONE, **{option: True}), schedule)
    assert text(other.module) == text(plain.module) and other.schedule == plain.schedule
    assert other.report.stages[0].contents == plain.report.stages[0].contents


def test_offloaded_activations() -> None:
    """Activations of all micro-batches but the current one are offloaded; each is stored and loaded once."""
    report = made(Storage(offload_activations=True)).report
    for stage, plain in zip(report.stages, made().report.stages, strict=True):
        waiting = (stage.micro_batches - 1) * stage.activation_bytes
        assert stage.streaming_bytes == waiting and stage.tile_bytes == plain.tile_bytes - waiting
        moved = [t for t in report.transfers if t.stage == stage.stage]
        assert {t.what for t in moved} <= {"activations"}
        for direction in ("store", "load"):
            those = [t for t in moved if t.direction == direction]
            assert [t.micro_batch for t in those] == list(range(STEPS)) and {t.bytes for t in those} == {
                stage.activation_bytes
            }
    assert made(Storage(offload_activations=True), "Sequential").report.transfers == ()


def test_recomputation_loads_before_it() -> None:
    pipelined = made(Storage(offload_activations=True), mode="RecomputeThenBackpropagate")
    kinds = {(row.slot, row.ipu): row.kind for row in pipelined.schedule.rows}
    loads = [t for t in pipelined.report.transfers if t.direction == "load"]
    assert loads and {kinds[t.slot, t.ipu] for t in loads} == {"recompute"}


def test_offloaded_accumulators_and_optimizer_state() -> None:
    report = made(Storage(offload_gradient_accumulation_buffers=True, offload_weight_update_variables=True)).report
    step = staged_step(4, STAGES)
    counts = sum(p.array_shape.bytes for p in step.of_role("variable") if p["parameter_number"] in step.once)
    for stage in report.stages:
        held = stage.contents
        assert held.optimizer_state == (counts if stage.stage == 0 else 0)
        assert stage.streaming_bytes == held.accumulators + held.optimizer_state
        moved = [t for t in report.transfers if t.stage == stage.stage]
        loaded = [t for t in moved if (t.what, t.direction) == ("accumulators", "load")]
        assert len(loaded) == STEPS + 1 and {t.bytes for t in loaded} == {held.accumulators}
        assert len([t for t in moved if (t.what, t.direction) == ("accumulators", "store")]) == STEPS
        state = [(t.direction, t.bytes, t.micro_batch) for t in moved if t.what == "optimizer state"]
        assert state == [("load", counts, None), ("store", counts, None)][: 2 * bool(held.optimizer_state)]
    assert "bytes in streaming memory" in report.table() and "moved for it" in report.table()


@pytest.mark.parametrize("replicas", [2, 4])
def test_sharding_divides_among_replicas(replicas: int) -> None:
    sharded = made(Storage(replicated_weight_sharding=True), replicas=replicas).report
    offloaded = made(ALL, replicas=replicas).report
    for stage, plain, other in zip(sharded.stages, made().report.stages, offloaded.stages, strict=True):
        held = stage.contents
        part = -(-held.weights // replicas)
        assert stage.tile_bytes == plain.tile_bytes - held.weights + part
        gathered = [t for t in sharded.transfers if t.stage == stage.stage]
        assert {(t.what, t.direction, t.bytes) for t in gathered} == {("weights", "gather", held.weights - part)}
        assert len(gathered) == 2 * STEPS  # forward and backward
        state = -(-held.optimizer_state // replicas)
        stash = (other.micro_batches - 1) * other.activation_bytes
        assert other.streaming_bytes == part + state + held.accumulators + stash


def test_offloaded_weights_need_sharding() -> None:
    report = made(Storage(offload_weights=True)).report
    assert report.transfers == () and all(stage.streaming_bytes == 0 for stage in report.stages)


def test_inference_has_no_updates() -> None:
    step = staged_step(4, STAGES, training=False)
    report = pipeline(step.module, step.roles, Pipelining(STAGES, STEPS, storage=ALL), training=False).report
    for stage in report.stages:
        assert stage.contents.accumulators == stage.contents.optimizer_state == stage.stashed_bytes == 0
        assert stage.streaming_bytes == stage.contents.weights > 0
    assert {t.what for t in report.transfers} == {"weights"}
