"""Pipelined training against the same model without stages and with the same accumulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from ipu.ops.pipelining_ops import PipelineSchedule, RecomputationMode
from keras_ext.extensions import PipelineStage
from tests.keras.helpers import CLASSES, FEATURES, Kit, data
from tests.keras.pipelines import BATCH, assert_same_bits, loss_of, mlp, train_both, twins
from tests.keras.test_pipelining_stages import chapter_model

STEPS = 8


def convolutional(kit: Kit) -> Any:
    layers = kit.keras.layers
    return kit.keras.Sequential(
        [
            layers.Input((6, 6, 2)),
            layers.Conv2D(4, 3, activation="relu"),
            layers.BatchNormalization(momentum=0.8),
            layers.Conv2D(3, 3),
            layers.BatchNormalization(momentum=0.8),
            layers.Flatten(),
            layers.Dense(CLASSES),
        ]
    )


def transformer(kit: Kit) -> Any:
    """A block of attention with dropout, and residual connections that cross stages."""
    layers = kit.keras.layers
    inputs = kit.keras.Input((4,), dtype="int32")
    x = layers.Embedding(9, 8)(inputs)
    attended = layers.MultiHeadAttention(2, 4, dropout=0.2)(x, x)
    x = layers.LayerNormalization()(layers.Add()([x, layers.Dropout(0.3)(attended)]))
    hidden = layers.Dense(8)(layers.Dense(12, "gelu")(x))
    x = layers.LayerNormalization()(layers.Add()([x, layers.Dropout(0.3)(hidden)]))
    return kit.keras.Model(inputs, layers.Dense(CLASSES)(layers.Flatten()(x)))


@pytest.mark.sample(1)
@pytest.mark.parametrize("schedule", list(PipelineSchedule))
def test_perceptron(kit: Kit, schedule: PipelineSchedule) -> None:
    models = twins(kit, mlp, [0, 1, 2, 3], STEPS, pipeline_schedule=schedule)
    train_both(kit, models, *data(2 * STEPS * BATCH))
    assert_same_bits(models)
    rows = models[1].get_pipeline_schedule("train")
    assert {(row.kind, row.stage) for row in rows} == {
        (kind, stage) for kind in ("forward", "backward", "update") for stage in range(4)
    }
    assert len([row for row in rows if row.kind == "forward"]) == 4 * STEPS


@pytest.mark.parametrize("name", ["gradients", "gradient_tape"])
def test_models_may_have_the_names_of_backward_passes(kit: Kit, name: str) -> None:
    def named(kit: Kit) -> Any:
        layers = kit.keras.layers
        return kit.keras.Sequential([layers.Input((FEATURES,)), layers.Dense(4), layers.Dense(CLASSES)], name=name)

    models = twins(kit, named, [0, 1], 4)
    train_both(kit, models, *data(8 * BATCH))
    assert_same_bits(models)


def test_derivatives_of_gelu_are_those_of_the_model_unsplit(kit: Kit) -> None:
    """Functions belong to the forward part, their gradients to the backward part."""

    def dense(kit: Kit) -> Any:
        layers = kit.keras.layers
        hidden = [layers.Dense(width, "gelu") for width in (37, 20)]
        return kit.keras.Sequential([layers.Input((6, FEATURES)), *hidden, layers.Flatten(), layers.Dense(CLASSES)])

    models = twins(kit, dense, [0, 1, 1, 1], 4)
    x, y = data(8 * 6 * BATCH)
    train_both(kit, models, x.reshape(-1, 6, FEATURES), y[::6])
    assert_same_bits(models)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("schedule", "mode"),
    [
        (PipelineSchedule.Grouped, RecomputationMode.RecomputeThenBackpropagate),
        (PipelineSchedule.Grouped, RecomputationMode.RecomputeAndBackpropagateInterleaved),
        (PipelineSchedule.Interleaved, RecomputationMode.Auto),
        (PipelineSchedule.Sequential, None),
    ],
)
def test_moving_statistics_change_once_for_each_micro_batch(kit: Kit, schedule: PipelineSchedule, mode: Any) -> None:
    """Statistics follow the definition, in the order of the micro-batches, even if forward passes run again."""
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.allow_recompute = True
    momentum, count = 0.7, 8
    layers = kit.keras.layers
    with IPUStrategy().scope():
        first, second = (layers.BatchNormalization(momentum=momentum, center=False, scale=False) for _ in range(2))
        head = layers.Dense(CLASSES)
        model = kit.keras.Sequential([layers.Input((FEATURES,)), first, layers.Dense(4, "relu"), second, head])
        model.compile(kit.keras.optimizers.SGD(0.1), loss_of(kit), steps_per_execution=count)
    model.set_pipeline_stage_assignment([0, 0, 1, 1])
    model.set_pipelining_options(count, pipeline_schedule=schedule, recomputation_mode=mode)
    config.configure_ipu_system()
    x, y = data(count * BATCH, seed=7)
    kernel, bias = model.layers[1].get_weights()
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    epsilon = 1e-3  # Keras' own
    for layer, rows in ((first, x), (second, None)):
        mean, variance = np.zeros(layer.moving_mean.shape), np.ones(layer.moving_mean.shape)
        for start in range(0, len(x), BATCH):
            batch = x[start : start + BATCH].astype(np.float64)
            if rows is None:  # the layers before have had one update, after all micro-batches
                batch = (batch - batch.mean(0)) / np.sqrt(batch.var(0) + epsilon)
                batch = np.maximum(batch @ kernel + bias, 0)
            mean = momentum * mean + (1 - momentum) * batch.mean(0)
            variance = momentum * variance + (1 - momentum) * batch.var(0)
        np.testing.assert_allclose(layer.moving_mean, mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(layer.moving_variance, variance, rtol=1e-4, atol=1e-5)


def test_chapter_subclass_trains_with_stages_that_share_a_layer(kit: Kit) -> None:
    x, _ = data(16 * BATCH)
    weights = []
    for pipelined in (False, True):
        kit.keras.utils.set_random_seed(4)
        with IPUStrategy().scope():
            model = chapter_model(kit)
            model.compile(kit.keras.optimizers.SGD(0.01), "mse", steps_per_execution=STEPS)
        if pipelined:
            model.set_pipelining_options(gradient_accumulation_steps_per_replica=STEPS)
        else:
            model.build((BATCH, FEATURES))
            model.reset_pipeline_stage_assignment()
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=STEPS)
        model.fit(x, x[:, :1], batch_size=BATCH, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    assert {row.ipu for row in model.get_pipeline_schedule()} == {0, 1, 2}
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_evaluate_and_predict(kit: Kit) -> None:
    plain, pipelined = models = twins(kit, mlp, [0, 0, 1, 1], 4)
    x, y = data(8 * BATCH)
    for method in (lambda m: m.evaluate(x, y, batch_size=BATCH, verbose=0), lambda m: m.predict(x, BATCH, verbose=0)):
        results = [method(model) for model in models]
        np.testing.assert_array_equal(results[1], results[0])
    rows = pipelined.get_pipeline_schedule("predict")
    assert {row.kind for row in rows} == {"forward"}
    assert sorted({row.micro_batch for row in rows}) == list(range(8))
    np.testing.assert_array_equal(pipelined(x[:BATCH]), plain(x[:BATCH]))


def test_two_replicas(kit: Kit) -> None:
    plain, pipelined = twins(kit, mlp, [0, 0, 1, 1], 4)
    x, y = data(16 * BATCH)
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    plain.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    pipelined.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0)
    assert_same_bits((plain, pipelined))
    predicted = [model.predict(x, batch_size=BATCH, verbose=0) for model in (plain, pipelined)]
    np.testing.assert_array_equal(predicted[1], predicted[0])


def test_accumulation_is_optional_with_the_sequential_schedule(kit: Kit) -> None:
    _, pipelined = twins(kit, mlp, [0, 0, 1, 1], 1)
    x, y = data(4 * BATCH)
    with pytest.raises(ValueError, match="multiple of 4"):
        pipelined.fit(x, y, batch_size=BATCH, verbose=0)
    pipelined.set_pipelining_options(pipeline_schedule=PipelineSchedule.Sequential)
    history = pipelined.fit(x, y, batch_size=BATCH, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    assert [row.micro_batch for row in pipelined.get_pipeline_schedule() if row.kind == "forward"] == [0, 0]


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda m: m.set_pipelining_options(), "gradient_accumulation_steps_per_replica to be set"),
        (lambda m: m.set_pipelining_options(6), r"multiple of 4.*Received: 6.*4 or 8"),
        (lambda m: m.set_pipelining_options(4, device_mapping=[0, 1, 2]), "must be mapped to an IPU"),
        (lambda m: m.set_pipelining_options(8), "to be a multiple of gradient_accumulation_steps_per_replica"),
    ],
)
def test_counts_are_checked_before_anything_runs(kit: Kit, prepare: Callable[[Any], None], message: str) -> None:
    _, model = twins(kit, mlp, [0, 0, 1, 1], 2)
    prepare(model)
    before = model.get_weights()
    x, y = data(8 * BATCH)
    with pytest.raises(ValueError, match=message) as error:
        model.fit(x, y, batch_size=BATCH, verbose=0)
    assert isinstance(error.value, RuntimeError) == ("multiple" in message), "what programs for IPUs catch"
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_executions_of_evaluate_must_suit_the_schedule(kit: Kit) -> None:
    _, model = twins(kit, mlp, [0, 1, 2, 2], 6)
    x, y = data(4 * BATCH)
    with pytest.raises(ValueError, match=r"multiple of 3.*Received: 4.*3 or 6"):
        model.evaluate(x, y, batch_size=BATCH, verbose=0)


def test_too_few_ipus(kit: Kit) -> None:
    _, model = twins(kit, mlp, [0, 1, 2, 2], 6)
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    x, y = data(12 * BATCH)
    with pytest.raises(ValueError, match="auto_select_ipus = 4"):
        model.fit(x, y, batch_size=BATCH, verbose=0)


def test_stages_that_share_a_layer_need_one_ipu(kit: Kit) -> None:
    with IPUStrategy().scope():
        shared = kit.keras.layers.Dense(FEATURES)
        inputs = kit.keras.Input((FEATURES,))
        with PipelineStage(0):
            x = shared(inputs)
        with PipelineStage(1):
            x = shared(x)
        model = kit.keras.Model(inputs, x)
        model.compile("sgd", "mse", steps_per_execution=4)
    model.set_pipelining_options(4, device_mapping=[0, 1])
    x, _ = data(4 * BATCH)
    with pytest.raises(ValueError, match=r"device_mapping\[1\] = 0"):
        model.fit(x, x, batch_size=BATCH, verbose=0)
    model.set_pipelining_options(4, device_mapping=[0, 0])
    model.fit(x, x, batch_size=BATCH, verbose=0)


def test_accumulated_outfeed_gives_means_once_an_execution(kit: Kit) -> None:
    """Keras shows the mean of all batches so far as the loss; an accumulated outfeed gives the mean of these means."""
    x, y = data(8 * BATCH)
    seen: dict[bool, list[float]] = {}
    for accumulate in (False, True):
        _, model = twins(kit, mlp, [0, 0, 1, 1], 4, accumulate_outfeed=accumulate)
        model.optimizer.learning_rate = 0.0
        model.set_asynchronous_callbacks(True)
        losses: list[float] = []
        callback = kit.keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs, seen=losses: seen.append(logs["loss"])
        )
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[callback])
        seen[accumulate] = losses
    assert [len(seen[False]), len(seen[True])] == [8, 1]
    plain, _ = twins(kit, mlp, [0, 0, 1, 1], 4)
    each = [plain.evaluate(x[s : s + BATCH], y[s : s + BATCH], BATCH, verbose=0)[0] for s in range(0, len(x), BATCH)]
    running = np.cumsum(each) / np.arange(1, 9)
    np.testing.assert_allclose(seen[True][0], running[4:].mean(), rtol=1e-5)
    tests: list[float] = []
    callback = kit.keras.callbacks.LambdaCallback()
    callback.on_test_batch_end = lambda batch, logs: tests.append(logs["loss"])
    for _ in range(2):
        evaluated = model.evaluate(x, y, batch_size=BATCH, verbose=0, return_dict=True, callbacks=[callback])
    np.testing.assert_allclose(tests, [running.mean()] * 2, rtol=1e-5)
    np.testing.assert_allclose(evaluated["loss"], running[-1], rtol=1e-5)
