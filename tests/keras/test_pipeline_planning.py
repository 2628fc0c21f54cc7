"""`plan_pipeline`: proposals for all kinds of models, which train to the bits of the model without stages."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import ConfigurationError, OutOfTileMemory, StepCountError
from engine.target import target
from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from ipu.ops.pipelining_ops import PipelineSchedule
from keras_ext.chip import chip_estimate, chip_scaling, chip_summary
from keras_ext.pipelining.errors import StageAssignmentError
from tests.exploring import sample
from tests.keras.helpers import CLASSES, FEATURES, Kit, data
from tests.keras.pipelines import BATCH, assert_same_bits, loss_of, mlp, train_both

STEPS = 8
WORDS, LENGTH, DEPTH = 11, 6, 8


def transformer(kit: Kit) -> Any:
    """A block of attention, or four, and a head."""
    layers = kit.keras.layers
    inputs = kit.keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, DEPTH)(inputs)
    for _ in sample(range(4), 1):
        x = layers.LayerNormalization()(layers.Add()([x, layers.MultiHeadAttention(2, 4)(x, x)]))
        hidden = layers.Dense(DEPTH)(layers.Dense(2 * DEPTH, "relu")(x))
        x = layers.LayerNormalization()(layers.Add()([x, hidden]))
    return kit.keras.Model(inputs, layers.Dense(CLASSES)(layers.Flatten()(x)))


def compiled(kit: Kit, build: Any = mlp, **arguments: Any) -> Any:
    kit.keras.utils.set_random_seed(11)
    with IPUStrategy().scope():
        model = build(kit)
        optimizer = kit.keras.optimizers.SGD(0.05, momentum=0.9)
        model.compile(optimizer, loss_of(kit), metrics=["accuracy"], steps_per_execution=2 * STEPS, **arguments)
    return model


def quiet(model: Any, ipus: int, **arguments: Any) -> Any:
    arguments = {"batch_size": BATCH, "gradient_accumulation_steps_per_replica": STEPS, "print_fn": None, **arguments}
    return model.plan_pipeline(ipus, **arguments)


@pytest.mark.sample(1)
@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_the_plan_trains_with_the_bits_of_the_model_unsplit(kit: Kit, schedule: PipelineSchedule) -> None:
    plain, planned = compiled(kit), compiled(kit)
    plain.set_gradient_accumulation_options(
        gradient_accumulation_steps_per_replica=STEPS, gradient_accumulation_reduction_method="mean"
    )
    planned.set_pipelining_options(gradient_accumulation_reduction_method="mean", accumulate_outfeed=True)
    before = [weight.copy() for weight in planned.get_weights()]
    plan = quiet(planned, 2, pipeline_schedule=schedule)
    for one, other in zip(planned.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)  # no step has run
    plan.apply()
    assert [a.pipeline_stage for a in planned.get_pipeline_stage_assignment()] == list(plan.stages)
    train_both(kit, (plain, planned), *data(2 * STEPS * BATCH), epochs=1)
    assert_same_bits((plain, planned))
    rows = planned.get_pipeline_schedule("train")
    assert {row.ipu for row in rows} == {0, 1} and {row.micro_batch for row in rows} == {*range(STEPS), None}


def test_what_has_run_costs_what_was_planned(kit: Kit) -> None:
    model = compiled(kit)
    plan = quiet(model, 3, gradient_accumulation_steps_per_replica=6)
    plan.apply()
    model.fit(*data(12 * BATCH), batch_size=BATCH, verbose=0, shuffle=False)
    planned, ran = plan.estimate.pipeline, chip_estimate(model).pipeline
    assert (ran.schedule, ran.stages, ran.micro_batches) == ("Grouped", 3, 6)
    for part in planned.parts:
        assert ran.part(part.kind, part.stage).cycles == pytest.approx(part.cycles, rel=0.15, abs=500)
    assert ran.cycles == pytest.approx(planned.cycles, rel=0.1)
    text = chip_summary(model)
    assert "3 IPUs of 1,472 tiles" in text and "Grouped, 3 stages, 6 micro-batches" in text
    model.predict(data(12 * BATCH)[0], batch_size=BATCH, verbose=0, steps=12)
    assert {part.kind for part in chip_estimate(model, "predict").pipeline.parts} == {"forward"}


def test_a_transformer_on_four_ipus(kit: Kit) -> None:
    model = compiled(kit, transformer)
    printed: list[str] = []
    plan = quiet(model, 4, print_fn=printed.append)
    assert list(plan.stages) == sorted(plan.stages) and set(plan.stages) == {0, 1, 2, 3}
    layers = plan.plan.profile.layers
    work = [layer.forward + layer.backward for layer in layers]
    stages = [sum(w for w, s in zip(work, plan.stages, strict=True) if s == stage) for stage in range(4)]
    assert max(stages) < max(1.6 * sum(stages) / 4, 1.1 * max(work))  # attention is one layer, and so in one stage
    assert printed == [plan.table()]
    assert max(map(len, plan.table().splitlines())) <= 92
    words = " ".join(plan.table().split())
    assert f"IPUs wait {plan.bubble_share:.0%} of it" in words
    assert all(name in words for name in ("embedding", "4 IPUs", "fits", "Grouped schedule, 8 micro-batches"))
    plan.apply()
    words = np.random.default_rng(0).integers(0, WORDS, (STEPS * BATCH, LENGTH)).astype(np.int32)
    model.fit(words, np.zeros(STEPS * BATCH, np.int32), batch_size=BATCH, verbose=0)
    assert {row.ipu for row in model.get_pipeline_schedule()} == {0, 1, 2, 3}


def test_scaling_of_what_was_planned_and_of_what_has_run(kit: Kit) -> None:
    model = compiled(kit)
    plan = quiet(model, 2)
    lines = plan.scaling().splitlines()
    assert [line.split()[:2] for line in lines[1:12]] == [[f"{n:,}", f"{2 * n:,}"] for n in (2**k for k in range(11))]
    assert "Assumed: gradients are summed by ring" in lines[12]
    deeper = plan.scaling([1, 8], depths=[1, 2, 4], kind="strong").splitlines()
    assert [line.split()[1] for line in deeper if line.split()[0] == "8"] == ["8", "16", "32"]
    with pytest.raises(ConfigurationError, match="'weak' or 'strong'"):
        plan.scaling(kind="medium")
    model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=STEPS)
    model.fit(*data(2 * STEPS * BATCH), batch_size=BATCH, verbose=0)
    one, many = chip_scaling(model, replicas=[1, 1024])
    found = chip_estimate(model)
    assert one.seconds == pytest.approx(found.seconds_per_step, rel=1e-3)
    assert one.accumulation == STEPS and one.samples_per_second == pytest.approx(found.samples_per_second, rel=1e-3)
    assert many.gradient_share > 0.05 > one.gradient_share == 0


def test_loss_scaling_leaves_updates_in_their_stages(kit: Kit) -> None:
    def build(kit: Kit) -> Any:
        layers = kit.keras.layers
        return kit.keras.Sequential([layers.Input((32,)), *(layers.Dense(32) for _ in range(3)), layers.Dense(CLASSES)])

    with IPUStrategy().scope():
        model = build(kit)
        inner = kit.keras.optimizers.SGD(0.05, momentum=0.9)
        wrapper = kit.keras.mixed_precision.LossScaleOptimizer if not kit.is_keras3 else None
        optimizer = wrapper(inner) if wrapper else kit.keras.optimizers.LossScaleOptimizer(inner)
        model.compile(optimizer, loss_of(kit))
    plan = quiet(model, 2)
    for each in plan.estimate.pipeline.ipus:
        layers = sum(stage == each.ipu for stage in plan.stages)
        matrices = [t for t in each.estimate.liveness if t.shape == "f32[32,32]" and t.always_live]
        assert len(matrices) == 2 * (layers - (each.ipu == 1))  # weights and momentum of its own layers


def test_more_micro_batches_leave_fewer_bubbles(kit: Kit) -> None:
    model = compiled(kit)
    shares = [quiet(model, 2, gradient_accumulation_steps_per_replica=n).bubble_share for n in (4, 16, 64)]
    assert shares == sorted(shares, reverse=True) and shares[0] > shares[2] + 0.05


def test_subclasses_and_nested_models(kit: Kit) -> None:
    class Nested(kit.keras.Model):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            layers = kit.keras.layers
            self.first = layers.Dense(6, "relu")
            self.body = kit.keras.Sequential([layers.Input((6,)), layers.Dense(6, "tanh"), layers.Dense(6, "relu")])
            self.head = layers.Dense(CLASSES)

        def call(self, inputs: Any) -> Any:
            return self.head(self.body(self.first(inputs)))

    model = compiled(kit, lambda kit: Nested())
    with pytest.raises(StageAssignmentError, match="has been built"):
        quiet(model, 2)
    plan = quiet(model, 4, x=tf.TensorSpec((None, FEATURES), tf.float32))
    assert plan.stages == (0, 1, 2, 3)
    plan.apply()
    model.fit(*data(STEPS * BATCH), batch_size=BATCH, verbose=0)
    assert {row.stage for row in model.get_pipeline_schedule()} == {0, 1, 2, 3}


def test_layers_that_share_weights_stay_in_one_stage(kit: Kit) -> None:
    def tied(kit: Kit) -> Any:
        layers = kit.keras.layers
        inputs, shared = kit.keras.Input((FEATURES,)), kit.keras.layers.Dense(FEATURES, "tanh")
        x = shared(layers.Dense(FEATURES, "relu")(shared(inputs)))
        return kit.keras.Model(inputs, layers.Dense(CLASSES)(layers.Dense(4)(x)))

    model = compiled(kit, tied)
    assert quiet(model, 3, gradient_accumulation_steps_per_replica=6).stages == (0, 0, 0, 1, 2)
    with pytest.raises(
        ConfigurationError, match="5 calls of layers, which can be cut into 3. Nearest legal num_ipus: 3"
    ):
        quiet(model, 4)


def test_without_training(kit: Kit) -> None:
    with IPUStrategy().scope():
        model = mlp(kit)
    plan = model.plan_pipeline(2, batch_size=BATCH, print_fn=None)
    assert repr(plan) == plan.table() and plan.table().splitlines()[0] in plan._repr_html_()
    assert not plan.estimate.pipeline.training and plan.estimate.pipeline.micro_batches == 8
    plan.apply()
    model.compile(steps_per_execution=8)
    assert model.predict(data(8 * BATCH)[0], batch_size=BATCH, steps=8, verbose=0).shape == (8 * BATCH, CLASSES)


def test_shapes_from_data_and_options_from_before(kit: Kit) -> None:
    with IPUStrategy().scope():
        model = kit.keras.Sequential([kit.keras.layers.Dense(6, "relu"), kit.keras.layers.Dense(CLASSES)])
        model.compile("sgd", "mse")
    with pytest.raises(ConfigurationError, match="give x"):
        model.plan_pipeline(2)
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=6, pipeline_schedule=PipelineSchedule.Interleaved
    )
    x, y = np.zeros((64, FEATURES), np.float32), np.zeros((64, CLASSES), np.float32)
    plan = model.plan_pipeline(2, x, y, batch_size=16, print_fn=None)
    pipeline = plan.estimate.pipeline
    assert (pipeline.schedule, pipeline.micro_batches) == ("Interleaved", 6)
    assert plan.estimate.samples_per_replica == 6 * 16
    dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(8, drop_remainder=True)
    assert model.plan_pipeline(2, dataset, print_fn=None).estimate.samples_per_replica == 6 * 8


def test_recomputation_as_configured(kit: Kit) -> None:
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = True
    config.configure_ipu_system()
    plan = quiet(compiled(kit), 2)
    assert any(part.kind == "recompute" and part.cycles for part in plan.estimate.pipeline.parts)


def test_too_few_layers_and_bad_counts(kit: Kit) -> None:
    model = compiled(kit)
    with pytest.raises(ConfigurationError, match="5 stages.* Received: 4 calls .*Nearest legal num_ipus: 4"):
        quiet(model, 5)
    for wrong in (1, 0, 2.0, True, None):
        with pytest.raises(ConfigurationError, match=re.escape(f"Received: {wrong!r}. Nearest legal value: 2")):
            quiet(model, wrong)
    with pytest.raises(StepCountError, match="multiple of 4.*nearest legal count is 4 or 8"):
        quiet(model, 2, gradient_accumulation_steps_per_replica=6)
    with pytest.raises(ConfigurationError, match="batch_size.*Received: 0"):
        quiet(model, 2, batch_size=0)


def test_models_too_large_for_so_many_ipus(kit: Kit) -> None:
    def wide(kit: Kit) -> Any:
        layers = kit.keras.layers
        return kit.keras.Sequential(
            [layers.Input((160,)), *(layers.Dense(160) for _ in range(6)), layers.Dense(CLASSES)]
        )

    model, chip = compiled(kit, wide), target("ipu2", tiles=1)
    with pytest.raises(
        OutOfTileMemory, match=r"tiles of 2 IPUs.*Nearest num_ipus that fits, by estimate: [3-7]"
    ) as error:
        quiet(model, 2, chip=chip)
    nearest = int(re.findall(r"by estimate: (\d)", str(error.value))[0])
    unit = 2 * nearest
    assert quiet(model, nearest, chip=chip, gradient_accumulation_steps_per_replica=unit).estimate.fits
    with pytest.raises(OutOfTileMemory, match="No number of IPUs up to 7 holds it"):
        quiet(model, 2, chip=chip, batch_size=2000)
