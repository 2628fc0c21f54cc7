"""Elements of data, rows of arrays that are trained on, and batches that come before an error of the data."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from ipu import accelerate
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, assert_close, keras3_only, tf_keras_only

pytestmark = pytest.mark.filterwarnings("ignore:.*(ran out of data|shuffle=True).*:UserWarning")
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(24, 4)).astype(np.float32)
Y = RANDOM.normal(size=(24, 1)).astype(np.float32)
SCOPES: dict[str, Callable[[], Any]] = {"strategy": lambda: IPUStrategy().scope(), "accelerated": accelerate}
everywhere = pytest.mark.parametrize("scope", SCOPES)


def dense(kit: Kit) -> Any:
    return kit.keras.Sequential([kit.keras.layers.Input((4,)), kit.keras.layers.Dense(1)])


def results(
    kit: Kit, scope: str | None, program: Callable[[Any], Any], build: Callable[[Kit], Any] = dense, **compilation: Any
) -> Any:
    """The results of a program and the final weights, for a model of plain Keras, a strategy or `ipu.accelerate`."""
    kit.keras.utils.set_random_seed(1)
    with nullcontext() if scope is None else SCOPES[scope]():
        model = build(kit)
        model.compile(kit.keras.optimizers.SGD(0.05), "mse", **compilation)
    try:
        result = program(model)
    except Exception:  # of a type that tf.data may have changed
        result = -1.0
    return result, model.get_weights()


def assert_as_keras(kit: Kit, scope: str, program: Callable[[Any], Any], *build: Callable[[Kit], Any]) -> None:
    assert_close(results(kit, scope, program, *build), results(kit, None, program, *build))


def losses(model: Any, *data: Any, **arguments: Any) -> Any:
    return model.fit(*data, **{"shuffle": False, "verbose": 0, **arguments}).history["loss"]


def broken(count: int, error: Exception, rows: int = 4) -> Iterator[Any]:
    for first in range(0, count * rows, rows):
        yield X[first : first + rows], Y[first : first + rows]
    raise error


def failing_dataset() -> tf.data.Dataset:
    def check(x: tf.Tensor, y: tf.Tensor) -> Any:
        return tf.debugging.check_numerics(x / tf.cast(y[0, 0] != Y[12, 0], tf.float32), "broken"), y

    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(4).map(check)


ERRORS: dict[str, Callable[[], Any]] = {
    "second batch": lambda: broken(1, ValueError("broken")),
    "third batch": lambda: broken(2, KeyError("broken")),
    "fourth batch": lambda: broken(3, RuntimeError("broken")),
    "data set": failing_dataset,
    "data set of unknown length": lambda: failing_dataset().filter(lambda x, y: True),
    "generator in a data set": lambda: tf.data.Dataset.from_generator(
        lambda: broken(3, ValueError("broken")), output_signature=(tf.TensorSpec((4, 4)), tf.TensorSpec((4, 1)))
    ),
}


@everywhere
@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ERRORS)
def test_batches_before_an_error_are_trained_on(kit: Kit, name: str, scope: str) -> None:
    assert_as_keras(kit, scope, lambda model: model.fit(ERRORS[name](), shuffle=False, verbose=0))


@keras3_only
def test_an_error_is_raised_once_and_with_its_type(kit: Kit) -> None:
    with accelerate():
        model = dense(kit)
        model.compile("sgd", "mse")
    seen: list[int] = []
    watch = kit.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: seen.append(batch))
    for callbacks in ([], [watch]):
        with pytest.raises(ZeroDivisionError, match="mine"):
            model.fit(broken(3, ZeroDivisionError("mine")), shuffle=False, verbose=0, callbacks=callbacks)
    assert seen == [0, 1, 2]
    assert len(losses(model, broken(4, KeyError("later")), steps_per_epoch=4)) == 1


HOOKS = ("on_train_begin", "on_epoch_begin", "on_train_batch_end", "on_epoch_end", "on_test_begin", "on_test_end")


@everywhere
@pytest.mark.sample(2)
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("given", [lambda x: x, lambda x: x[:, ::-1], lambda x: np.frombuffer(x).reshape(24, 4)])
def test_rows_are_those_of_when_keras_opens_the_arrays(
    kit: Kit, given: Callable[[np.ndarray], np.ndarray], hook: str, scope: str
) -> None:
    def program(model: Any) -> Any:
        x, y, validation, weights = X.astype(np.float64), Y.copy(), X.copy(), np.linspace(0, 1, 24)

        def change(*_: Any, **__: Any) -> None:
            x[:], y[:], validation[:], weights[:] = 0.5 - x, -y, 0.9 * validation, 0.5 * weights

        callback = type("Changes", (kit.keras.callbacks.Callback,), {hook: change})()
        arguments = {"sample_weight": weights, "validation_data": (validation, y), "callbacks": [callback]}
        history = model.fit(given(x), y, batch_size=8, epochs=3, shuffle=False, verbose=0, **arguments).history
        return [history["loss"], history["val_loss"]]

    assert_as_keras(kit, scope, program)


@everywhere
@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.sample(2)
def test_lists_of_numbers_with_steps_of_an_epoch(kit: Kit, steps: int, scope: str) -> None:
    x = X if kit.is_keras3 else X.tolist()
    y, weights = (Y, np.ones(24)) if kit.is_keras3 else (Y.tolist(), np.linspace(0, 2, 24).tolist())
    arguments = {"batch_size": 7, "epochs": 3, "steps_per_epoch": steps, "sample_weight": weights}
    assert_as_keras(kit, scope, lambda model: losses(model, x, y, **arguments))


@everywhere
@keras3_only
@pytest.mark.parametrize("method", ["train_on_batch", "test_on_batch"])
@pytest.mark.sample(1)
def test_lists_of_weights_of_one_batch(kit: Kit, method: str, scope: str) -> None:
    weights = np.linspace(0, 2, 24).tolist()
    assert_as_keras(kit, scope, lambda model: getattr(model, method)(X, Y, sample_weight=weights))


def batches_of(count: int = 3) -> Iterator[Any]:
    return ((X[8 * k : 8 * k + 8], Y[8 * k : 8 * k + 8]) for k in range(count))


GENERATORS: dict[str, Callable[[], Any]] = {
    "integers, then floats": lambda: (
        ((3 * x).astype(int) if k == 0 else x, y) for k, (x, y) in enumerate(batches_of())
    ),
    "floats, then integers": lambda: (
        (x if k < 2 else (3 * x).astype(int), y) for k, (x, y) in enumerate(batches_of())
    ),
    "tensors": lambda: ((tf.constant(x), tf.constant(y)) for x, y in batches_of()),
    "other numbers of rows": lambda: ((x[: 3 + k], y[: 3 + k]) for k, (x, y) in enumerate(batches_of())),
    "sparse": lambda: ((scipy.sparse.csr_matrix(x * (x > 0)), y) for x, y in batches_of()),
    "no weights": lambda: ((x, y, None) for x, y in batches_of()),
    "other columns, late": lambda: ((x, y if k < 2 else np.tile(y, 2)) for k, (x, y) in enumerate(batches_of())),
    "numbers": lambda: ((x, 1.0) for x, _ in batches_of()),
    "lists": lambda: ((x.tolist(), y.tolist()) for x, y in batches_of()),
}


@everywhere
@keras3_only
@pytest.mark.sample(3)
@pytest.mark.parametrize("name", GENERATORS)
def test_batches_of_a_generator_have_the_specs_of_the_first_two(kit: Kit, name: str, scope: str) -> None:
    assert_as_keras(kit, scope, lambda model: losses(model, GENERATORS[name]()))


@everywhere
@keras3_only
@pytest.mark.parametrize("empty", [lambda: (X[:0], Y[:0]), lambda: (tf.data.Dataset.from_tensors((X, Y)).take(0),)])
@pytest.mark.sample(2)
def test_data_without_rows(kit: Kit, empty: Callable[[], Any], scope: str) -> None:
    def program(model: Any) -> Any:
        trained = model.fit(*empty(), verbose=0).history
        validation = empty() if len(empty()) == 2 else empty()[0]
        return [
            list(trained),
            losses(model, X, Y, validation_data=validation),
            len(model.evaluate(*empty(), verbose=0)),
        ]

    assert_as_keras(kit, scope, program)
    with IPUStrategy().scope(), pytest.raises(ValueError, match="at least one sample"):
        dense(kit).predict(X[:0], verbose=0)


@everywhere
@keras3_only
@pytest.mark.parametrize("own_step", [False, True])
@pytest.mark.sample(2)
def test_data_without_a_batch_build_the_optimizer(kit: Kit, own_step: bool, scope: str) -> None:
    class Own(kit.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = kit.keras.layers.Dense(1)

        def call(self, inputs: Any) -> Any:
            return self.dense(inputs)

        def train_step(self, batch: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(batch[0]) - batch[1]))
            variables = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return {"loss": loss}

    def shapes(scope: str | None) -> list[Any]:
        with nullcontext() if scope is None else SCOPES[scope]():
            model = Own() if own_step else dense(kit)
            model.compile(kit.keras.optimizers.Adam(use_ema=True), None if own_step else "mse")
        history = model.fit(tf.data.Dataset.from_tensor_slices((X, Y)).batch(32, drop_remainder=True), verbose=0)
        assert history.history == {}
        return [tuple(variable.shape) for variable in model.optimizer.variables]

    assert shapes(scope) == shapes(None)


def named_inputs(kit: Kit) -> Any:
    inputs = {name: kit.keras.layers.Input((4,), name=name) for name in ("a", "b")}
    return kit.keras.Model(inputs, kit.keras.layers.Dense(1)(kit.keras.layers.Concatenate()(list(inputs.values()))))


@everywhere
@pytest.mark.parametrize("kind", [dict, OrderedDict])
@pytest.mark.sample(2)
def test_mappings_keep_their_order(kit: Kit, kind: type, scope: str) -> None:
    data = kind([("b", 2 * X), ("a", X)])
    assert_as_keras(kit, scope, lambda model: losses(model, data, Y, batch_size=8), named_inputs)


def sequences(kit: Kit) -> Any:
    return kit.keras.Sequential([kit.keras.layers.Input((None, 4)), kit.keras.layers.Dense(2)])


def lengths(*lengths: int) -> tf.data.Dataset:
    batches = [np.full((2, length, 4), length, np.float32) for length in lengths]
    dataset = tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=tf.TensorSpec((None, None, 4)))
    return dataset.apply(tf.data.experimental.assert_cardinality(len(batches)))


@everywhere
@pytest.mark.parametrize("of_batches", [(3, 5, 4), (3, 3, 5), (3, 3)])
@pytest.mark.sample(2)
def test_predictions_of_several_lengths_are_ragged(kit: Kit, of_batches: tuple[int, ...], scope: str) -> None:
    def program(model: Any) -> Any:
        result = model.predict(lengths(*of_batches), verbose=0)
        assert isinstance(result, np.ndarray) == (len(set(of_batches)) == 1)
        return [np.asarray(row) for row in result]

    assert_as_keras(kit, scope, program, sequences)


@tf_keras_only
@pytest.mark.parametrize("x", [np.array([[1.0], [2.0, 3.0]] * 12, dtype=object), X.astype(object)])
def test_arrays_of_objects_are_refused_as_by_keras(kit: Kit, x: np.ndarray) -> None:
    with IPUStrategy().scope():
        model = dense(kit)
    model.compile("sgd", "mse")
    with pytest.raises(ValueError, match="Failed to convert a NumPy array to a Tensor"):
        model.fit(x, Y, verbose=0)


@everywhere
@tf_keras_only
@pytest.mark.sample(1)
def test_validation_data_of_unknown_length(kit: Kit, scope: str) -> None:
    def program(model: Any) -> Any:
        return model.fit(X, Y, verbose=0, shuffle=False, validation_data=batches_of()).history["val_loss"]

    assert_as_keras(kit, scope, program)
