"""Optimizers with their own `apply_gradients` (in Keras 3 also `apply`) get the gradients of whole updates, once."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, data, keras3_only
from tests.keras.micro_batches import (
    Loop,
    assert_same_weights,
    batches_of,
    configure,
    ipu_twin,
    loss_of,
    network,
    plain_again,
)
from tests.keras.pipelines import mlp, set_stages

BATCH, UPDATES = 3, 2


class Own:
    """Optimizers of users for one Keras; `seen` has the dtypes of the gradients that the last trace passed."""

    def __init__(self, kit: Kit) -> None:
        self.kit, self.seen = kit, []

    def _changed(self, gradients: list[Any]) -> list[Any]:
        """The gradients scaled to a common norm of at most 0.1, without those up to 0.01: no linear function."""
        self.seen = [gradient.dtype for gradient in gradients]
        norm = tf.linalg.global_norm(gradients)
        scaled = [gradient * tf.minimum(1.0, 0.1 / norm) for gradient in gradients]
        return [tf.where(tf.abs(g) > 0.01, g, tf.zeros_like(g)) for g in scaled]

    @cached_property
    def Clipping(self) -> type:
        own = self

        class Clipping(self.kit.keras.optimizers.SGD):  # type: ignore[name-defined]
            if own.kit.is_keras3:

                def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
                    return super().apply(own._changed(list(grads)), trainable_variables)

            else:

                def apply_gradients(self, grads_and_vars: Any, *arguments: Any, **named: Any) -> Any:
                    gradients, variables = zip(*grads_and_vars, strict=True)
                    pairs = list(zip(own._changed(list(gradients)), variables, strict=True))
                    return super().apply_gradients(pairs, *arguments, **named)

        return Clipping

    def clipping(self, scaled: bool = False) -> Any:
        optimizer = self.Clipping(0.5, momentum=0.9)
        if not scaled:
            return optimizer
        keras = self.kit.keras
        if self.kit.is_keras3:
            return keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=8.0, dynamic_growth_steps=2)
        return keras.mixed_precision.LossScaleOptimizer(optimizer, initial_scale=8.0, dynamic_growth_steps=2)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("steps", "replicas", "reduction", "scaled"),
    [(3, 1, "mean", False), (1, 2, "sum", False), (2, 2, "sum", False), (2, 2, "running_mean", True)],
)
def test_it_sees_what_has_been_accumulated(kit: Kit, steps: int, replicas: int, reduction: str, scaled: bool) -> None:
    own = Own(kit)
    configure(replicas)
    x, y = data(BATCH * steps * replicas * UPDATES)
    plain = plain_again(kit)
    loop = Loop(plain, own.clipping(scaled), steps, replicas, "mean" if "mean" in reduction else "sum")
    model = ipu_twin(kit, plain.model, own.clipping(scaled), steps_per_execution=steps * UPDATES)
    model.set_gradient_accumulation_options(steps, reduction)
    loop.run(batches_of(x, y, BATCH))
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    assert_same_weights(model, plain.model)


def test_in_a_pipeline(kit: Kit) -> None:
    """Updates equal those applied by hand in plain Keras."""
    own, count = Own(kit), 4
    x, y = data(BATCH * count * UPDATES)
    with IPUStrategy().scope():
        model = mlp(kit)
        model.compile(own.clipping(), loss_of(kit), steps_per_execution=count)
    set_stages(model, (0, 0, 1, 1))
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=count, gradient_accumulation_reduction_method="mean"
    )
    plain, optimizer, loss = mlp(kit), own.clipping(), loss_of(kit)
    plain.set_weights(model.get_weights())
    optimizer.build(plain.trainable_variables)
    for big in batches_of(x, y, BATCH * count):
        with tf.GradientTape() as tape:
            value = loss(big[1], plain(big[0], training=True))
        gradients = tape.gradient(value, [kit.variable(w) for w in plain.trainable_variables])
        optimizer.apply_gradients(list(zip(gradients, plain.trainable_variables, strict=True)))
    model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0)
    assert_same_weights(model, plain)


@pytest.mark.sample(2)
@pytest.mark.parametrize("user", ["override", "update", "keras"])
def test_gradients_come_in_the_dtype_of_accumulators(kit: Kit, user: str) -> None:
    """Many halves are too small to be added to a half; Keras' optimizers get gradients in the variable's dtype."""
    own, steps = Own(kit), 64
    dtypes: list[Any] = []

    def update_step(self: Any, gradient: Any, variable: Any, *rate: Any) -> None:
        dtypes.append(gradient.dtype)
        variable.assign(tf.cast(tf.cast(variable, tf.float32) - gradient, tf.float16))

    kinds = {
        "override": lambda: own.clipping(),
        "update": lambda: type("Updating", (kit.keras.optimizers.SGD,), {"update_step": update_step})(1.0),
        "keras": lambda: kit.keras.optimizers.SGD(1.0),
    }
    with IPUStrategy().scope():
        layer = kit.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", dtype="float16")
        model = kit.keras.Sequential([kit.keras.layers.Input((1,)), layer])
        model.compile(kinds[user](), lambda y, p: tf.reduce_mean(p), steps_per_execution=steps)
    model.set_gradient_accumulation_options(steps, "sum", dtype=tf.float32)
    x = np.full((steps, 1), 2**-10, np.float16)
    x[0] = 4.0  # halves from 4 to 8 are 2**-8 apart
    model.fit(x, np.zeros((steps, 1), np.float16), batch_size=1, shuffle=False, verbose=0)
    if user == "override":
        assert own.seen == [tf.float32]
        return
    total = np.float32(4.0) + (steps - 1) * np.float32(2**-10)
    np.testing.assert_array_equal(model.get_weights()[0], np.float16(-total).reshape(1, 1))
    assert dtypes == ([tf.float32] if user == "update" else [])


def test_a_minimize_behind_a_loss_scale_is_seen(kit: Kit) -> None:
    own = Own(kit)
    own.Clipping.minimize = lambda self, *arguments, **named: None
    x, y = data(BATCH * 2)
    model = ipu_twin(kit, network(kit), own.clipping(scaled=True), steps_per_execution=2)
    model.set_gradient_accumulation_options(2)
    with pytest.raises(ValueError, match="override minimize.*Received: Clipping"):
        model.fit(x, y, batch_size=BATCH, verbose=0)


def masters(kit: Kit) -> Any:
    """An optimizer for halves as programs for BERT had it: it keeps float32 copies, and counts and assigns itself.

    Its variables are its own attributes: Keras lists none of them.
    """
    state = SimpleNamespace(copies={})

    def made(variable: Any) -> tuple[tf.Variable, tf.Variable]:
        key = variable.path if kit.is_keras3 else variable.ref()
        if key not in state.copies:
            with tf.init_scope():
                start = tf.cast(tf.convert_to_tensor(variable), tf.float32)
                made = (tf.Variable(start, trainable=False), tf.Variable(tf.zeros_like(start), trainable=False))
                state.copies[key] = made
        return state.copies[key]

    def apply_all(pairs: Any) -> None:
        if not hasattr(state, "count"):
            with tf.init_scope():
                state.count = tf.Variable(0.0, trainable=False)
        state.count.assign_add(1.0)
        pairs = [(tf.cast(gradient, tf.float32), variable) for gradient, variable in pairs]
        norm = tf.linalg.global_norm([gradient for gradient, _ in pairs])
        for gradient, variable in pairs:
            master, moment = made(variable)
            moment.assign(0.9 * moment + 0.1 * gradient / tf.maximum(norm, 1.0))
            master.assign_sub(0.3 * moment / (1.0 - 0.9**state.count))
            variable.assign(tf.cast(master, variable.dtype))

    if kit.is_keras3:

        class Masters(kit.keras.optimizers.Optimizer):  # type: ignore[name-defined]
            def apply(self, grads: Any, trainable_variables: Any = None) -> None:
                apply_all(zip(grads, trainable_variables, strict=True))

        return Masters(0.1)

    class LegacyMasters(kit.keras.optimizers.legacy.Optimizer):  # type: ignore[name-defined]
        def apply_gradients(self, grads_and_vars: Any, name: Any = None, **named: Any) -> Any:
            apply_all(grads_and_vars)
            return self.iterations.assign_add(1)

        def get_config(self) -> dict[str, Any]:
            return {}

    return LegacyMasters("masters")


def encoder(kit: Kit) -> Any:
    """Predicts masked words with the embedding's own table, in halves."""
    keras = kit.keras
    table = keras.layers.Embedding(12, 8, name="word_embeddings")
    normalization, dense = keras.layers.LayerNormalization(), keras.layers.Dense(8, "relu")

    class Encoder(keras.Model):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.normalization, self.dense = table, normalization, dense

        def call(self, words: Any) -> Any:
            hidden = self.dense(self.normalization(self.table(words)))
            return tf.cast(tf.matmul(hidden, tf.convert_to_tensor(self.table.embeddings), transpose_b=True), tf.float32)

    return Encoder()


@pytest.mark.sample(1)
@pytest.mark.parametrize(("steps", "replicas"), [(2, 1), (1, 2)])
def test_pre_training_in_halves_with_float32_masters(kit: Kit, steps: int, replicas: int) -> None:
    words = np.random.default_rng(3).integers(0, 12, (8 * steps * replicas, 6)).astype(np.int32)
    set_floatx = kit.keras.backend.set_floatx
    set_floatx("float16")
    try:
        configure(1)
        kit.keras.utils.set_random_seed(2)
        big = encoder(kit)
        big(words[:1])
        with IPUStrategy().scope():
            model = encoder(kit)
            model(words[:1])
        model.set_weights(big.get_weights())
        loss = kit.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        count = steps * replicas  # the sum of so many means is that many times the mean
        big.compile(masters(kit), lambda y, p: count * loss(y, p), jit_compile=False)
        model.compile(masters(kit), loss, steps_per_execution=2 * steps)
        model.set_gradient_accumulation_options(steps, "sum")
        configure(replicas)
        big.fit(words, words, batch_size=4 * count, shuffle=False, verbose=0)
        model.fit(words, words, batch_size=4, shuffle=False, verbose=0)
    finally:
        set_floatx("float32")
    for received, expected in zip(model.get_weights(), big.get_weights(), strict=True):
        np.testing.assert_allclose(received, expected, rtol=2e-2, atol=2e-3)


@keras3_only
def test_what_an_optimizer_creates_itself_is_in_its_scope(kit: Kit) -> None:
    """Nadam's product and Adafactor's factors have names in the optimizer's scope, as in Keras' first update."""
    for optimizer in (kit.keras.optimizers.Nadam(name="own"), kit.keras.optimizers.Adafactor(name="own")):
        model = kit.ipu_model(optimizer=optimizer)
        model.fit(*data(), verbose=0)
        assert {variable.path.partition("/")[0] for variable in optimizer.variables} == {"own"}
