"""Halves through Keras: as near to the truth as TensorFlow comes, loss scaling to the bit, and float64 in full.

The truth is the same model in float64. Where TensorFlow and the engine round to half differs, so neither can be asked
to have the other's bits. But both round each result once, to the nearest: the engine may be twice as far from the
truth as TensorFlow is, and half a unit in the last place of the largest number further, which is one rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from engine.errors import ConfigurationError
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import KITS, Kit, keras3_only, tf_keras_only

BATCH, STEPS = 8, 3
RANDOM = np.random.default_rng(2)
TARGETS = RANDOM.normal(size=(BATCH * STEPS, 2)).astype(np.float32)
SEQUENCES = RANDOM.normal(size=(BATCH * STEPS, 6, 8)).astype(np.float32)
IMAGES = RANDOM.normal(size=(BATCH * STEPS, 9, 7, 3)).astype(np.float32)
TOKENS = RANDOM.integers(0, 20, (BATCH * STEPS, 6))
HALF_TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
POLICIES = ("mixed_float16", "mixed_bfloat16", "float16")
Model = Any

SLOW = {"LSTM", "MultiHeadAttention"}
LAYERS: dict[str, tuple[np.ndarray, Callable[[Any, Any], Any]]] = {
    "Dense": (SEQUENCES, lambda layers, x: layers.Dense(16, "relu")(x)),
    "Conv2D": (IMAGES, lambda layers, x: layers.Conv2D(6, 3, strides=2, padding="same", activation="tanh")(x)),
    "BatchNormalization": (IMAGES, lambda layers, x: layers.BatchNormalization()(layers.Conv2D(4, 3)(x))),
    "LSTM": (SEQUENCES, lambda layers, x: layers.LSTM(8)(x)),
    "MultiHeadAttention": (SEQUENCES, lambda layers, x: layers.MultiHeadAttention(2, 4)(x, x)),
    "Embedding": (TOKENS, lambda layers, x: layers.Embedding(20, 8)(x)),
}

CASES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in LAYERS]


@contextmanager
def policy_of(kit: Kit, name: str) -> Iterator[None]:
    before = kit.keras.mixed_precision.global_policy() if not kit.is_keras3 else kit.keras.config.dtype_policy()
    kit.keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        kit.keras.mixed_precision.set_global_policy(before)


def built(kit: Kit, policy: str, layer: str, **compilation: Any) -> Model:
    inputs, make = LAYERS[layer]
    layers = kit.keras.layers
    with policy_of(kit, policy):
        start = layers.Input(inputs.shape[1:], dtype="int32" if inputs is TOKENS else None)
        model = kit.keras.Model(start, layers.Dense(2)(layers.Flatten()(make(layers, start))))
        model.compile(**{"optimizer": kit.keras.optimizers.SGD(0.1), "loss": "mse", **compilation})
    return model


def dynamic(kit: Kit, growth_steps: int, momentum: float = 0.0) -> Any:
    """SGD under a loss scale that begins at 1024."""
    family = kit.keras.optimizers if kit.is_keras3 else kit.keras.mixed_precision
    sgd = kit.keras.optimizers.SGD(0.1, momentum=momentum)
    return family.LossScaleOptimizer(sgd, initial_scale=1024.0, dynamic_growth_steps=growth_steps)


def weights_of(model: Model) -> list[np.ndarray]:
    return [np.asarray(weight).astype(np.float64) for weight in model.get_weights()]


def results(model: Model, layer: str, weights: list[np.ndarray]) -> list[np.ndarray]:
    """Predictions, and the weights after three steps from the given ones."""
    model.set_weights([w.astype(v.dtype) for w, v in zip(weights, model.get_weights(), strict=True)])
    inputs = LAYERS[layer][0]
    predicted = model.predict(inputs[:BATCH], verbose=0).astype(np.float64)
    model.fit(inputs, TARGETS, batch_size=BATCH, shuffle=False, verbose=0)
    return [predicted, *weights_of(model)]


def farthest(a: list[np.ndarray], b: list[np.ndarray]) -> float:
    return max(float(np.abs(p - q).max()) for p, q in zip(a, b, strict=True))


def half_an_ulp(arrays: list[np.ndarray], dtype: np.dtype) -> float:
    largest = max(float(np.abs(each).max()) for each in arrays)
    return float(np.exp2(np.floor(np.log2(largest))) * float(ml_dtypes.finfo(dtype).eps) / 2)


# tf_keras has each layer with one or two of the policies, as policies mean the same casts.
HALF_CASES = [
    pytest.param(kit, policy, layer, marks=[pytest.mark.slow] if layer in SLOW else [])
    for kit in KITS
    for row, policy in enumerate(POLICIES)
    for column, layer in enumerate(LAYERS)
    if kit == "keras" or (row + column) % 2 == 0
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kit", "policy", "layer"), HALF_CASES, indirect=["kit"])
def test_halves_come_as_near_to_float64_as_in_tensorflow(kit: Kit, policy: str, layer: str) -> None:
    exact = built(kit, "float64", layer, run_eagerly=True)
    # Nothing overflows at this scale: a skipped step would compare nothing.
    scaled = policy == "mixed_float16"
    theirs = built(kit, policy, layer, run_eagerly=True, **({"optimizer": dynamic(kit, 1000)} if scaled else {}))
    with IPUStrategy().scope():
        optimizer = {"optimizer": dynamic(kit, 1000)} if scaled else {}
        ours = built(kit, policy, layer, steps_per_execution=STEPS, **optimizer)
    dtype = HALF_TYPES[policy.removeprefix("mixed_")]
    # A half can hold these weights, so all three models start from the same.
    weights = [w.astype(dtype).astype(np.float64) for w in weights_of(exact)]
    truth, expected, received = (results(model, layer, weights) for model in (exact, theirs, ours))
    allowed = 2 * farthest(expected, truth) + half_an_ulp(truth, dtype)
    assert farthest(received, truth) <= allowed
    moved = farthest(truth[1:], weights)
    assert moved > 2 * allowed, "the steps are too small to show anything"
    # The engine holds and returns the types that Keras does: half weights and predictions only without "mixed".
    assert [v.dtype for v in ours.get_weights()] == [v.dtype for v in theirs.get_weights()]


@pytest.mark.sample(1)
@pytest.mark.parametrize("layer", CASES)
def test_float64_is_computed_in_float64(kit: Kit, layer: str) -> None:
    theirs = built(kit, "float64", layer, run_eagerly=True)
    with IPUStrategy().scope():
        ours = built(kit, "float64", layer)
    weights = weights_of(theirs)
    expected, received = results(theirs, layer, weights), results(ours, layer, weights)
    single = results(built(kit, "float32", layer, run_eagerly=True), layer, weights)
    # The bound is for sums of at most a thousand terms in three steps; float32 would be a million times as far.
    assert farthest(received, expected) < 1e-12 < farthest(single, expected) / 1e3


@pytest.mark.parametrize("policy", POLICIES)
def test_predictions_have_the_dtype_of_the_policy(kit: Kit, policy: str) -> None:
    with IPUStrategy().scope():
        model = built(kit, policy, "Dense")
    assert model.predict(SEQUENCES, verbose=0).dtype == HALF_TYPES[policy.removeprefix("mixed_")]


@pytest.mark.parametrize("dtype", HALF_TYPES)
def test_one_layer_of_halves_among_others(kit: Kit, dtype: str) -> None:
    layers = kit.keras.layers

    def build() -> Model:
        return kit.keras.Sequential(
            [layers.Input((6, 8)), layers.Dense(8, dtype=dtype), layers.Flatten(), layers.Dense(2, dtype="float32")]
        )

    def program(model: Model) -> list[np.ndarray]:
        model.fit(SEQUENCES, TARGETS, batch_size=BATCH, shuffle=False, verbose=0)
        return weights_of(model)

    plain = kit.compiled(build(), loss="mse", metrics=None, run_eagerly=True)
    ours = kit.ipu_model(build, loss="mse", metrics=None)
    ours.set_weights(plain.get_weights())
    expected, received = program(plain), program(ours)
    # Three updates have a rounding each, and momentum's velocity six: nine half units on each side.
    largest = max(float(np.abs(w).max()) for w in expected)
    assert farthest(received, expected) <= 9 * float(ml_dtypes.finfo(HALF_TYPES[dtype]).eps) * largest


class Scale:
    """A model under a loss-scaling optimizer, and batches that overflow on demand."""

    def __init__(self, kit: Kit, optimizer: Any, **compilation: Any) -> None:
        self.kit = kit
        self.model = built(kit, "mixed_float16", "Dense", optimizer=optimizer, **compilation)

    @property
    def value(self) -> float:
        optimizer = self.model.optimizer
        return float(np.asarray(optimizer.dynamic_scale if self.kit.is_keras3 else optimizer.loss_scale))

    def slots(self) -> list[np.ndarray]:
        """The velocities of momentum; tf_keras updates its counter in skipped steps, too."""
        variables = self.model.optimizer.inner_optimizer.variables
        return [v.numpy() for v in (variables() if callable(variables) else variables) if len(v.shape)]

    def after(self, overflows: list[bool]) -> list[float]:
        """The scale after each step."""
        seen = []
        for overflow in overflows:
            inputs = np.full_like(SEQUENCES[:BATCH], np.inf) if overflow else SEQUENCES[:BATCH]
            self.model.train_on_batch(inputs, TARGETS[:BATCH])
            seen.append(self.value)
        return seen


def test_scale_halves_on_overflow_and_doubles_after_growth_steps(kit: Kit) -> None:
    overflows = [False, False, True, False, True, True, False, False, False]
    with IPUStrategy().scope():
        ours = Scale(kit, dynamic(kit, 2))
    received = ours.after(overflows)
    assert received == Scale(kit, dynamic(kit, 2), run_eagerly=True).after(overflows)
    assert min(received) < 1024 < max(received)


def test_step_that_overflows_leaves_everything_as_it_was(kit: Kit) -> None:
    with IPUStrategy().scope():
        scale = Scale(kit, dynamic(kit, 100, momentum=0.9))
    scale.after([False])
    before = [*scale.model.get_weights(), *scale.slots()]
    scale.after([True])
    for received, expected in zip([*scale.model.get_weights(), *scale.slots()], before, strict=True):
        np.testing.assert_array_equal(received, expected)
    scale.after([False])
    assert any((a != b).any() for a, b in zip(scale.model.get_weights(), before, strict=False))


def test_overflow_within_one_call_of_the_engine(kit: Kit) -> None:
    """Three steps in one execution, of which the middle one overflows."""
    with IPUStrategy().scope():
        ours = Scale(kit, dynamic(kit, 100))
    weights = ours.model.get_weights()
    theirs = Scale(kit, dynamic(kit, 100), run_eagerly=True)
    theirs.model.set_weights(weights)
    x = SEQUENCES.copy()
    x[BATCH : 2 * BATCH] = np.inf
    for scale in (ours, theirs):
        scale.model.fit(x, TARGETS, batch_size=BATCH, shuffle=False, verbose=0)
    assert ours.value == theirs.value == 512
    allowed = 8 * float(np.finfo(np.float16).eps) * max(float(np.abs(w).max()) for w in weights)
    assert farthest(weights_of(ours.model), weights_of(theirs.model)) <= allowed
    assert farthest(weights_of(ours.model), [w.astype(np.float64) for w in weights]) > allowed


@tf_keras_only
def test_fixed_scale_stays(kit: Kit) -> None:
    with IPUStrategy().scope():
        fixed = kit.keras.mixed_precision.LossScaleOptimizer(kit.keras.optimizers.SGD(0.01), False, 128.0)
        scale = Scale(kit, fixed)
    weights = scale.model.get_weights()
    assert scale.after([False, False]) == [128.0, 128.0]
    assert any((a != b).any() for a, b in zip(scale.model.get_weights(), weights, strict=True))


@keras3_only
def test_mixed_float16_scales_by_itself(kit: Kit) -> None:
    with IPUStrategy().scope():
        model = built(kit, "mixed_float16", "Dense")
    assert type(model.optimizer).__name__ == "LossScaleOptimizer"


def growing(kit: Kit) -> Any:
    """An optimizer whose scale doubles every second step, and whose updates are proportional to the gradients."""
    return kit.keras.optimizers.LossScaleOptimizer(
        kit.keras.optimizers.SGD(0.05), initial_scale=2.0**15, dynamic_growth_steps=2
    )


@keras3_only
@pytest.mark.parametrize("has_own_step", [False, True])
def test_the_loss_is_scaled_by_the_present_scale(kit: Kit, has_own_step: bool) -> None:
    """Keras uses the initial scale while the optimizer is not built, as when a step is first traced."""

    class Stepping(kit.keras.Sequential):  # type: ignore[name-defined, misc]
        def train_step(self, data: Any) -> Any:
            x, y = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self(x, training=True) - y) ** 2)
                scaled = self.optimizer.scale_loss(loss)
            self.optimizer.apply(tape.gradient(scaled, self.trainable_weights), self.trainable_weights)
            return {"loss": loss}

    def build() -> Any:
        layers = kit.keras.layers
        kind = Stepping if has_own_step else kit.keras.Sequential
        return kind([layers.Input((6, 8)), layers.Flatten(), layers.Dense(2)])

    def train(model: Any) -> Any:
        return model.fit(SEQUENCES, TARGETS, batch_size=4, epochs=1, shuffle=False, verbose=0).history

    kit.assert_same(train, build, optimizer=lambda: growing(kit), loss=None if has_own_step else "mse", metrics=None)


@keras3_only
@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
def test_the_loss_of_a_frozen_model_builds_no_optimizer(kit: Kit) -> None:
    """Plain Keras updates nothing then, so the optimizer has no variables until a layer is thawed."""

    def build() -> Any:
        layers = kit.keras.layers
        return kit.keras.Sequential([layers.Input((6, 8)), layers.Flatten(), layers.Dense(2, trainable=False)])

    def train(model: Any) -> Any:
        model.fit(SEQUENCES, TARGETS, batch_size=4, shuffle=False, verbose=0)
        numbers = len(model.optimizer.variables)
        model.layers[-1].trainable = True
        model.compile(optimizer=model.optimizer, loss="mse")
        return numbers, model.fit(SEQUENCES, TARGETS, batch_size=4, shuffle=False, verbose=0).history

    kit.assert_same(train, build, optimizer=lambda: growing(kit), loss="mse", metrics=None)


@keras3_only
def test_a_frozen_model_scales_no_loss_of_other_weights(kit: Kit) -> None:
    class Stepping(kit.keras.Sequential):  # type: ignore[name-defined, misc]
        def train_step(self, data: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = outside.value**2
                scaled = self.optimizer.scale_loss(loss)
            self.optimizer.apply([tape.gradient(scaled, outside.value)], [outside])
            return {"loss": loss}

    with IPUStrategy().scope():
        outside, model = kit.keras.Variable(3.0), Stepping([kit.keras.layers.Input((6, 8))])
        model.compile(optimizer=growing(kit))
        with pytest.raises(ConfigurationError, match="to have variables before a loss is scaled"):
            model.fit(SEQUENCES, TARGETS, batch_size=4, verbose=0)


@keras3_only
def test_a_loop_scales_losses_with_a_built_optimizer(kit: Kit) -> None:
    with IPUStrategy().scope():
        weight = kit.keras.Variable(3.0)
        optimizer = growing(kit)

        @tf.function(jit_compile=True)
        def step() -> None:
            with tf.GradientTape() as tape:
                scaled = optimizer.scale_loss(weight**2)
            optimizer.apply([tape.gradient(scaled, weight.value)], [weight])

        with pytest.raises(ConfigurationError, match="to have variables before a loss is scaled"):
            IPUStrategy().run(step)
        optimizer.build([weight])
        for _ in range(4):
            IPUStrategy().run(step)
    assert float(weight) == pytest.approx(3.0 * 0.9**4, rel=1e-6) and float(optimizer.dynamic_scale) == 2.0**17
