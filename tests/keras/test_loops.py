"""Loops through Keras' and TensorFlow's doors: trained and predicted as TensorFlow does, with any number of threads."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

from ipu.ipu_strategy import IPUStrategy
from tests.interrupting import engine_runs, interrupted_when

BATCH, TIME, FEATURES = 4, 6, 5
STEPS = 3
Build = Callable[[], keras.Model]
Call = Callable[["Looping", Any], Any]


class Looping(layers.Layer):
    """Two weights of [5, 5], and a function of them and of inputs [4, 6, 5].

    Only `kernel` is trained. XLA has no gradients of loops without a known bound, so those use `fixed`.
    """

    def __init__(self, function: Call) -> None:
        super().__init__()
        self.function = function

    def build(self, shape: tuple[int, ...]) -> None:
        self.kernel = self.add_weight(shape=(FEATURES, FEATURES), initializer="orthogonal", name="kernel")
        self.fixed = self.add_weight(shape=(FEATURES, FEATURES), initializer="orthogonal", trainable=False)

    def compute_output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def call(self, x: Any) -> Any:
        return self.function(self, x) @ self.kernel


def while_until_small(layer: Looping, x: Any) -> Any:
    """Loops until the values are small, so that the data decide the number of iterations."""
    return tf.while_loop(
        lambda v: tf.reduce_sum(tf.abs(v)) > 3.0, lambda v: (0.6 * v @ layer.kernel,), (x,), maximum_iterations=20
    )[0]


def tensorflow_scan(layer: Looping, x: Any) -> Any:
    steps = tf.transpose(x, (1, 0, 2))
    return tf.transpose(tf.scan(lambda s, v: tf.tanh(s @ layer.kernel + v), steps), (1, 0, 2))


@tf.function
def range_with_break_and_continue(layer: Looping, x: Any) -> Any:
    """A loop by AutoGraph whose bound is a tensor, which leaves one iteration out and ends by the data."""
    total, count = tf.zeros_like(x), tf.cast(tf.reduce_sum(tf.ones_like(x[0, :, 0])), tf.int32)
    for i in tf.range(count + 4):
        if i == 2:
            continue
        total += tf.tanh(x @ layer.fixed) * 0.3
        if tf.reduce_sum(tf.abs(total)) > 60.0:
            break
    return total


@tf.function
def while_with_break(layer: Looping, x: Any) -> Any:
    turns = tf.constant(0)
    while tf.reduce_sum(tf.abs(x)) < 200.0:
        x = 1.3 * (x @ layer.fixed)
        turns += 1
        if turns > 12:
            break
    return 0.01 * x


@tf.function
def no_iterations(layer: Looping, x: Any) -> Any:
    while tf.reduce_sum(x) > 1e9:
        x = x * 2.0
    for _ in tf.range(tf.cast(tf.reduce_min(x) * 0.0, tf.int32)):
        x = x + 1.0
    return x @ layer.fixed


@tf.function
def nested_loops(layer: Looping, x: Any) -> Any:
    for i in tf.range(3):
        j = tf.constant(0)
        while j <= i:
            x = tf.tanh(x @ layer.fixed)
            j += 1
        for k in tf.range(2):
            x = x + 0.1 * tf.cast(k, tf.float32)
    return x


@tf.function
def tensor_array(layer: Looping, x: Any) -> Any:
    made = tf.TensorArray(tf.float32, TIME, element_shape=(BATCH, FEATURES))
    state = tf.zeros((BATCH, FEATURES))
    for t in tf.range(TIME):
        state = tf.tanh(state @ layer.kernel + x[:, TIME - 1 - t])
        made = made.write(t, state)
    return tf.transpose(made.stack(), (1, 0, 2))


def ops_scan(layer: Looping, x: Any) -> Any:
    def turn(state: Any, v: Any) -> Any:
        state = ops.tanh(ops.matmul(state, layer.fixed) + v)
        return state, state

    return ops.transpose(ops.scan(turn, ops.zeros((BATCH, FEATURES)), ops.transpose(x, (1, 0, 2)))[1], (1, 0, 2))


def ops_fori_loop(layer: Looping, x: Any) -> Any:
    return iterated(layer.kernel, x)


def iterated(kernel: Any, x: Any) -> Any:
    return ops.fori_loop(0, 4, lambda i, v: ops.tanh(ops.matmul(v, kernel)) + ops.cast(i, "float32") * 0.1, x)


def ops_while_loop(layer: Looping, x: Any) -> Any:
    return ops.while_loop(
        lambda i, v: i < 5, lambda i, v: (i + 1, ops.tanh(ops.matmul(v, layer.fixed))), (ops.convert_to_tensor(0), x)
    )[1]


def ops_cond(layer: Looping, x: Any) -> Any:
    made = ops.matmul(x, layer.fixed)
    return ops.cond(ops.sum(x) > 0.0, lambda: iterated(layer.fixed, made), lambda: ops.sin(made))


def ops_vectorized_map(layer: Looping, x: Any) -> Any:
    return ops.vectorized_map(lambda v: ops.tanh(ops.matmul(v, layer.kernel)), x)


def ops_map(layer: Looping, x: Any) -> Any:
    return ops.map(lambda v: ops.tanh(ops.matmul(v, layer.kernel)), x)


CALLS = (
    while_until_small, tensorflow_scan, range_with_break_and_continue, while_with_break, no_iterations, nested_loops,
    tensor_array, ops_scan, ops_fori_loop, ops_while_loop, ops_cond, ops_vectorized_map, ops_map,
)  # fmt: skip


def with_layer(call: Call) -> Build:
    return lambda: keras.Sequential(
        [layers.Input((TIME, FEATURES), BATCH), Looping(call), layers.Flatten(), layers.Dense(1)]
    )


def with_recurrence(make: Callable[[], list[Any]], *shape: int, batch: int | None = None) -> Build:
    return lambda: keras.Sequential([layers.Input(shape, batch), *make(), layers.Flatten(), layers.Dense(1)])


@tf.function
def damping(gradient: Any) -> Any:
    """A factor that makes a gradient small enough, and the iterations taken to find it."""
    scale, turns = tf.constant(1.0), tf.constant(0)
    while tf.reduce_sum(tf.square(gradient)) * scale > 0.5:
        turns += 1
        if turns == 2:
            continue
        scale *= 0.5
        if turns > 30:
            break
    for i in tf.range(2 + turns):
        scale += 0.01 * tf.cast(i, tf.float32)
    return scale, turns


class OwnStep(keras.Model):
    """A train step with loops of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.head = layers.Dense(7, "tanh"), layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.head(self.dense(layers.Flatten()(x)))

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        gradients = tape.gradient(loss, self.trainable_variables)
        scale, turns = damping(gradients[0])
        self.optimizer.apply_gradients(zip([g * scale for g in gradients], self.trainable_variables, strict=True))
        return {"loss": loss, "turns": tf.cast(turns, tf.float32)}


def own_step() -> keras.Model:
    model = OwnStep()
    model(np.zeros((BATCH, TIME, FEATURES), np.float32))
    return model


RECURRENT: dict[str, Build] = {
    "lstm of 30 steps": with_recurrence(lambda: [layers.LSTM(8)], 30, 3),
    "masked": with_recurrence(lambda: [layers.Masking(), layers.LSTM(6, return_sequences=True), layers.GRU(4)], 6, 5),
    "bidirectional": with_recurrence(lambda: [layers.Bidirectional(layers.GRU(5, return_sequences=True))], 6, 5),
    "stacked": with_recurrence(lambda: [layers.LSTM(6, return_sequences=True), layers.SimpleRNN(4)], 6, 5),
    "conv_lstm": with_recurrence(lambda: [layers.ConvLSTM1D(3, 3, return_sequences=True)], 4, 7, 2),
    "backwards": with_recurrence(lambda: [layers.LSTM(6, go_backwards=True, return_sequences=True)], 6, 5),
    "stateful": with_recurrence(lambda: [layers.GRU(6, stateful=True)], 6, 5, batch=BATCH),
    "unrolled": with_recurrence(lambda: [layers.LSTM(6, unroll=True)], 6, 5),
}
MODELS: dict[str, Build] = {
    **{call.__name__: with_layer(call) for call in CALLS},
    **RECURRENT,
    "train step": own_step,
}


def data(model: keras.Model, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs; the last steps of some are zero, and a mask leaves them out."""
    shape = model.input_shape[1:] if getattr(model, "inputs", None) else (TIME, FEATURES)
    random = np.random.default_rng(seed)
    x = random.normal(size=(BATCH * STEPS, *shape)).astype(np.float32)
    x[::3, shape[0] // 2 :] = 0.0
    return x, random.normal(size=(len(x), 1)).astype(np.float32)


def compiled(build: Build, eager: bool = False) -> keras.Model:
    keras.utils.set_random_seed(5)
    model = build()
    model.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=STEPS, run_eagerly=eager)
    return model


def outcome(model: keras.Model) -> list[np.ndarray]:
    """Predictions before and after training, the logs, and the weights."""
    x, y = data(model)
    for layer in model.layers:
        if getattr(layer, "stateful", False):
            layer.reset_states()
    before = model.predict(x, batch_size=BATCH, verbose=0)
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0).history
    after = model.predict(x, batch_size=BATCH, verbose=0)
    return [before, after, *(np.array(values) for values in history.values()), *model.get_weights()]


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", MODELS)
def test_as_tensorflow_does_with_any_number_of_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runtime.executable.inline_work", lambda: 0)
    expected = outcome(compiled(MODELS[name], eager=True))
    with IPUStrategy().scope():
        model = compiled(MODELS[name])
    start = [v.numpy() for v in model.variables]
    found = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
        for variable, value in zip(model.variables, start, strict=False):
            variable.assign(value)
        found.append(outcome(model))
    for received, wanted in zip(found[0], expected, strict=True):
        np.testing.assert_allclose(received, wanted, rtol=2e-4, atol=2e-5)
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert one.tobytes() == two.tobytes()


@tf.function
def endless_beyond(layer: Looping, x: Any) -> Any:
    """Loops for ever for inputs above 1000."""
    made = x @ layer.kernel
    turns = tf.constant(0)
    while tf.reduce_max(x) > 1000.0:
        turns += 1
        x = tf.abs(x)
    return made + tf.cast(turns, tf.float32)


@tf.function
def thousand_million_iterations(layer: Looping, x: Any) -> Any:
    made = x @ layer.kernel
    for _ in tf.range(10**9):
        made = tf.tanh(made)
    return made


@pytest.mark.sample
@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("mode", ["fit", "predict"])
def test_an_endless_loop_is_interrupted(threads: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps end and the third does not: Keras raises, and has trained two steps."""
    monkeypatch.setenv("NUMBA_NUM_THREADS", threads)
    with IPUStrategy().scope():
        model = compiled(with_layer(endless_beyond))
        twin = compiled(with_layer(endless_beyond))
    x, y = data(model)
    run = (
        (lambda m, u, v: m.fit(u, v, batch_size=BATCH, shuffle=False, verbose=0))
        if mode == "fit"
        else (lambda m, u, v: m.predict(u, batch_size=BATCH, verbose=0))
    )
    run(model, x, y)
    twin.set_weights(model.get_weights())
    trained = int(model.optimizer.iterations.numpy())
    x[-1] += 2000.0
    wanted = trained + STEPS - 1

    def is_in_third_step() -> bool:
        # The device's own copy, without waiting for the end of the execution.
        buffer = model.optimizer.iterations.value._buffer
        return engine_runs() and (mode == "predict" or (buffer is not None and int(buffer.read()) == wanted))

    with interrupted_when(is_in_third_step, lambda: os.kill(os.getpid(), signal.SIGINT)):
        run(model, x, y)
    if mode == "fit":
        assert int(model.optimizer.iterations.numpy()) == wanted
        run(twin, x[:-BATCH], y[:-BATCH])
    for one, two in zip(model.get_weights(), twin.get_weights(), strict=True):
        assert one.tobytes() == two.tobytes()
    run(model, *data(model))
    assert all(np.isfinite(w).all() for w in model.get_weights())


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
def test_a_very_long_loop_is_interrupted() -> None:
    with IPUStrategy().scope():
        model = compiled(with_layer(thousand_million_iterations))
    x, _ = data(model)
    weights = model.get_weights()
    with interrupted_when(engine_runs, lambda: os.kill(os.getpid(), signal.SIGINT)):
        model.predict(x, batch_size=BATCH, verbose=0)
    for one, two in zip(model.get_weights(), weights, strict=True):
        assert one.tobytes() == two.tobytes()
