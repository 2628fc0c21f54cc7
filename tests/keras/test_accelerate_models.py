"""Models that `ipu.accelerate` makes, copies or leaves, in any order of a program's calls."""

from __future__ import annotations

import gc
import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu
from keras_ext.acceleration import _in_force
from keras_ext.training import StepFunction
from tests.keras import orders
from tests.keras.accelerated import assert_same_fit, both
from tests.keras.helpers import CLASSES, FEATURES, Kit, both_frameworks, data


def test_a_call_is_in_force_though_its_result_is_dropped(kit: Kit) -> None:
    x, y = data(16)
    kept = list(_in_force)
    ipu.accelerate()
    try:
        gc.collect()
        model = kit.compiled(kit.sequential())
        model.fit(x, y, verbose=0)
    finally:
        (acceleration,) = [each for each in _in_force if each not in kept]
        acceleration.__exit__(None, None, None)
    assert isinstance(model.train_function, StepFunction)
    assert acceleration.fallbacks == () and not tf.distribute.has_strategy()


def test_a_call_is_in_force_until_it_ends(kit: Kit) -> None:
    acceleration = ipu.accelerate()
    model = kit.compiled(kit.sequential())
    twice = tf.function(lambda x: tf.linalg.qr(x)[1], jit_compile=True)(tf.eye(2))
    acceleration.__exit__(None, None, None)
    assert isinstance(model.make_train_function(), StepFunction)
    assert twice.shape == (2, 2)
    assert not tf.distribute.has_strategy()


def test_only_models_are_accelerated(kit: Kit) -> None:
    for other in (3, kit.keras.Sequential, kit.keras.layers.Dense(2)):
        with pytest.raises(TypeError, match="Expected a model of Keras 3 or tf_keras"):
            ipu.accelerate(other)


def test_a_model_that_cannot_be_copied_stays_plain(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    class Needs(kit.keras.Model):
        def __init__(self, units: Any) -> None:
            super().__init__()
            self.dense = units

        def get_config(self) -> Any:
            raise NotImplementedError("no configuration")

    model = Needs(kit.keras.layers.Dense(2))
    with caplog.at_level(logging.WARNING, "ipu"):
        assert ipu.accelerate(model) is model
    assert "stays with plain Keras, as it cannot be copied: no configuration" in caplog.text


def test_a_given_model_is_copied_with_its_state(kit: Kit) -> None:
    x, y = data(40)
    plain = kit.compiled(kit.sequential())
    plain.fit(x, y, verbose=0)
    fast = ipu.accelerate(plain)
    assert fast is not plain and type(fast) is type(plain)
    assert_same_fit(plain, fast, x=x, y=y, epochs=2)  # momentum goes on
    assert isinstance(fast.train_function, StepFunction) and not isinstance(plain.train_function, StepFunction)
    assert not isinstance(kit.compiled(kit.sequential()).make_train_function(), StepFunction)


@pytest.mark.parametrize("frozen", [False, True])
def test_a_copy_keeps_the_state_of_each_variable(kit: Kit, frozen: bool) -> None:
    """Keras keeps training the variables of a traced step, for any later value of `trainable`, until `compile`."""
    x, y = data(40)
    schedule = kit.keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.3)
    plain = kit.compiled(kit.functional(), optimizer=kit.keras.optimizers.Adam(schedule))
    if frozen:
        plain.layers[1].trainable = False
        kit.compiled(plain, optimizer=kit.keras.optimizers.Adam(schedule))
    plain.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    plain.layers[1].trainable = frozen
    fast = ipu.accelerate(plain)
    assert fast is not plain and int(fast.optimizer.iterations) == 5
    assert float(fast.optimizer.learning_rate) == float(plain.optimizer.learning_rate)
    assert fast.layers[1].trainable == plain.layers[1].trainable
    assert_same_fit(plain, fast, x=x, y=y, batch_size=8, epochs=2)


def test_a_copy_of_a_class_has_the_dtypes_of_the_model(kit: Kit, tmp_path: Path) -> None:
    class Model(kit.keras.Model):
        def __init__(self, **named: Any) -> None:
            super().__init__(**named)
            self.hidden, self.head = (
                kit.keras.layers.Dense(8, "tanh"),
                kit.keras.layers.Dense(CLASSES, "softmax", dtype="float32"),
            )

        def call(self, inputs: Any) -> Any:
            return self.head(self.hidden(inputs))

    x, y = data(16)
    policies = kit.keras.mixed_precision
    policies.set_global_policy("mixed_bfloat16")
    try:
        plain = kit.compiled(Model())
    finally:
        policies.set_global_policy("float32")
    plain.fit(x, y, verbose=0)
    fast = ipu.accelerate(plain)
    assert fast is not plain and fast.built
    assert [layer.compute_dtype for layer in fast.layers] == ["bfloat16", "float32"]
    assert policies.global_policy().name == "float32"
    np.testing.assert_allclose(fast.predict(x, verbose=0), plain.predict(x, verbose=0), rtol=0, atol=0.02)
    fast.save_weights(str(tmp_path / "a.weights.h5"))
    fast.hidden.kernel.assign(fast.hidden.kernel * 0)
    fast.load_weights(str(tmp_path / "a.weights.h5"))
    np.testing.assert_array_equal(fast.hidden.kernel, plain.hidden.kernel)


@both_frameworks
def test_a_copy_goes_on_with_recurrent_states(kit: Kit) -> None:
    x = np.random.default_rng(3).normal(size=(8, 3, 2)).astype(np.float32)
    layers = kit.keras.layers
    cells = layers.Bidirectional(layers.LSTM(2, stateful=True, return_sequences=True)), layers.GRU(3, stateful=True)
    plain = kit.keras.Sequential([layers.Input(batch_shape=(4, 3, 2)), *cells, layers.Dense(1)])
    kit.compiled(plain, loss="mse").fit(x, x[:, 0, :1], batch_size=4, verbose=0, shuffle=False)
    fast = ipu.accelerate(plain)
    assert fast is not plain
    here, there = (model.predict(x, batch_size=4, verbose=0) for model in (fast, plain))
    np.testing.assert_allclose(here, there, rtol=1e-5, atol=1e-6)


@both_frameworks
def test_a_copy_keeps_the_optimizer_of_traces_until_compile(kit: Kit) -> None:
    x, y = data(16)
    plain = kit.compiled(kit.sequential())
    plain.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    fast = ipu.accelerate(plain)
    for model in (plain, fast):
        model.optimizer = kit.keras.optimizers.Adam(0.5)
    assert_same_fit(plain, fast, x=x, y=y, batch_size=8)
    assert [int(model.optimizer.iterations) for model in (plain, fast)] == [0, 0]
    for model in (plain, fast):
        kit.compiled(model, optimizer=kit.keras.optimizers.Adam(0.1))
    assert_same_fit(plain, fast, x=x, y=y, batch_size=8)


def test_a_copy_whose_state_would_be_lost_is_refused(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    model, other = kit.compiled(kit.sequential()), kit.sequential()
    kit.compiled(other, optimizer=model.optimizer)
    x, y = data(8)
    other.fit(x, y, verbose=0)
    with caplog.at_level(logging.WARNING, "ipu"):
        assert ipu.accelerate(model) is model
    assert "with state of 4 other variables" in caplog.text


def test_a_model_built_before_stays_plain_with_one_line(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    x, y = data(16)
    model = kit.compiled(kit.sequential())
    with caplog.at_level(logging.WARNING, "ipu"), ipu.accelerate() as acceleration:
        model.fit(x, y, verbose=0)
        model.predict(x, verbose=0)
        inside = kit.compiled(kit.sequential())
        inside.fit(x, y, verbose=0)
    assert not isinstance(model.train_function, StepFunction) and isinstance(inside.train_function, StepFunction)
    assert caplog.text.count(f"{model.name!r} runs with plain Keras: It was built before") == 1
    assert [each.method for each in acceleration.fallbacks] == ["fit"]


def test_models_of_other_threads_are_those_of_a_call(kit: Kit) -> None:
    """A call acts in all threads, a block in its own."""

    def built_in_thread() -> Any:
        made: list[Any] = []
        thread = threading.Thread(target=lambda: made.append(kit.compiled(kit.sequential())))
        thread.start()
        thread.join()
        made[0].make_train_function()
        return made[0].train_function

    with ipu.accelerate():
        assert not isinstance(built_in_thread(), StepFunction)
    acceleration = ipu.accelerate()
    try:
        assert isinstance(built_in_thread(), StepFunction)
    finally:
        acceleration.__exit__(None, None, None)


@both_frameworks
def test_loops_of_a_programs_own_run_in_callbacks_too(kit: Kit) -> None:
    class Updates(kit.keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            optimizer = kit.keras.optimizers.SGD(0.1)
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self.model(x)))
            variables = self.model.trainable_variables
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    x, y = data(16)
    plain, fast, acceleration = both(lambda: kit.compiled(kit.sequential()))
    assert_same_fit(plain, fast, x=x, y=y, batch_size=8, epochs=3, callbacks=[Updates()])
    assert acceleration.fallbacks == ()


@both_frameworks
def test_a_step_may_apply_several_optimizers(kit: Kit) -> None:
    keras = kit.keras

    class Adversarial(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.generator, self.critic = keras.layers.Dense(3), keras.layers.Dense(1)
            self.of_generator, self.of_critic = keras.optimizers.Adam(0.05), keras.optimizers.RMSprop(0.05)

        def call(self, inputs: Any) -> Any:
            return self.critic(self.generator(inputs))

        def train_step(self, batch: Any) -> Any:
            inputs, real = batch
            for sign, layer, optimizer in (
                (1.0, self.critic, self.of_critic),
                (-1.0, self.generator, self.of_generator),
            ):
                with tf.GradientTape() as tape:
                    loss = sign * tf.reduce_mean(self(inputs) - self.critic(real))
                variables = layer.trainable_variables
                optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return {"loss": loss}

    def made() -> Any:
        model = Adversarial()
        model(np.zeros((1, FEATURES), np.float32))
        model.compile()
        return model

    x, _ = data(16)
    plain, fast, acceleration = both(made)
    assert_same_fit(plain, fast, x=x, y=x[:, :3].copy(), batch_size=8, epochs=3)
    assert acceleration.fallbacks == ()


@pytest.mark.sample(5)
@pytest.mark.parametrize("seed", range(150))
def test_any_order_of_build_compile_fit_load_and_clone(kit: Kit, seed: int) -> None:
    assert orders.difference("keras" if kit.is_keras3 else "tf_keras", orders.program_of(seed)) is None
