"""A call that the engine refuses leaves no trace: data, random numbers, callbacks and counts are plain Keras'."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import ipu
from engine.errors import ConfigurationError
from keras_ext.training import StepFunction
from tests.keras.helpers import Kit, assert_close, both_frameworks

X = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(32, 1)).astype(np.float32)
BATCHES = [(X[first : first + 8], Y[first : first + 8]) for first in range(0, 32, 8)]
SIGNATURE = (tf.TensorSpec((None, 4)), tf.TensorSpec((None, 1)))
pytestmark = pytest.mark.filterwarnings("ignore:.*(ran out of data|will be ignored|PyDataset)")


class Endless:
    """An iterator that is no generator."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self) -> Endless:
        return self

    def __next__(self) -> Any:
        self.read += 1
        return BATCHES[self.read % 4]


class TwoStreams:
    """An iterator whose `iter` returns another iterator."""

    def __init__(self) -> None:
        self.stream = iter(BATCHES * 3)

    def __next__(self) -> Any:
        return next(self.stream)

    def __iter__(self) -> Iterator[Any]:
        return iter(BATCHES[::-1] * 3)


def sources(kit: Kit, name: str) -> dict[str, Any]:
    """The arguments of `fit` with data of one kind."""
    rows = tf.data.Dataset.from_tensor_slices((X, Y))
    if name == "arrays":
        return {"x": X, "y": Y, "batch_size": 8}
    if name == "shuffled data set":
        return {"x": rows.shuffle(32, seed=3).batch(8)}
    if name == "weighted data set":
        labels = tf.data.Dataset.from_tensor_slices((X, (Y > 0).astype(np.int32)))
        return {"x": labels.shuffle(32, seed=3).batch(8), "class_weight": {0: 0.3, 1: 2.0}}
    if name == "stream":
        stream = iter(BATCHES * 5)
        return {"x": tf.data.Dataset.from_generator(lambda: stream, output_signature=SIGNATURE), "steps_per_epoch": 3}
    makers: dict[str, Any] = {
        "generator": lambda: (batch for batch in BATCHES * 3),
        "iterator": Endless,
        "two streams": TwoStreams,
        "map": lambda: map(lambda batch: batch, BATCHES * 3),
        "iterator of tf.data": lambda: iter(rows.shuffle(32).batch(8).repeat()),
    }
    return {"x": makers[name](), "steps_per_epoch": 5}


def refused(kit: Kit, training: bool | None = None, dropout: float = 0.3, **compilation: Any) -> Any:
    """A model with an operation that the engine refuses in training, in inference, or in both."""

    class Refused(kit.keras.layers.Layer):
        def call(self, inputs: Any, training_now: bool | None = None, training: bool | None = None) -> Any:
            if refuses is not None and bool(training) is not refuses:
                return inputs * 1.0
            return inputs + 0.0 * tf.stop_gradient(abs(tf.linalg.qr(tf.cast(inputs[:2, :2], tf.complex64))[0][0, 0]))

    refuses, layers = training, kit.keras.layers
    parts = [Refused(), layers.Dense(3, "relu"), layers.Dropout(dropout), layers.Dense(1)]
    model = kit.keras.Sequential([layers.Input((4,)), *parts])
    model.compile(kit.keras.optimizers.Adam(0.05), "mse", metrics=["mae"], **compilation)
    return model


def in_both(kit: Kit, program: Any, **model: Any) -> list[Any]:
    """The results of a program with plain Keras and with a model that the engine refuses, of one seed."""
    results = []
    for place in (contextlib.nullcontext, ipu.accelerate):
        kit.keras.utils.set_random_seed(1)
        with place() as acceleration:
            made = refused(kit, **model)
        results.append([*program(made), made.get_weights()])
    assert len(acceleration.fallbacks) == 1
    return results


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    "source",
    [
        *("arrays", "shuffled data set", "weighted data set", "stream", "generator", "iterator", "two streams", "map"),
        "iterator of tf.data",
    ],
)
def test_data_and_random_numbers_are_as_before(kit: Kit, source: str) -> None:
    if kit.is_keras3 and source in ("iterator", "two streams", "map", "iterator of tf.data"):
        pytest.skip("Keras 3 takes generators alone")

    def program(model: Any) -> Any:
        history = model.fit(**sources(kit, source), epochs=2, verbose=0).history
        own = [float(tf.random.uniform([])), random.random(), np.random.rand()]
        return [history, int(model.optimizer.iterations), own]

    plain, fast = in_both(kit, program)
    assert_close(fast, plain)


@pytest.mark.sample(6)
@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("elements", ["words", "ragged"])
def test_elements_that_the_engine_cannot_take_are_read_once(
    kit: Kit, elements: str, is_stream: bool, method: str
) -> None:
    """A tf.data set that the engine refuses gives plain Keras its first batch, too; a stream gives each batch once."""
    lengths = np.array([2, 0, 3, 1, 4, 2, 1, 3] * 2)
    numbers = np.arange(lengths.sum(), dtype=np.float32)
    values = numbers.astype(str) if elements == "words" else numbers
    rows = tf.RaggedTensor.from_row_lengths(values, lengths)
    rows = rows.to_tensor(default_value="-1") if elements == "words" else rows
    labels = () if method == "predict" else (np.arange(16, dtype=np.float32)[:, None],)

    class Sums(kit.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = kit.keras.layers.Dense(1, kernel_initializer="ones")

        def call(self, inputs: Any) -> Any:
            numbers = tf.strings.to_number(inputs) if elements == "words" else inputs
            return self.dense(tf.reshape(tf.reduce_sum(numbers, axis=1), (-1, 1)) / 20)

    def data() -> tf.data.Dataset:
        made = tf.data.Dataset.from_tensor_slices((rows, *labels) if labels else rows).batch(4)
        if not is_stream:
            return made
        batches = iter(made.repeat(3))
        return tf.data.Dataset.from_generator(lambda: batches, output_signature=made.element_spec)

    def program() -> Any:
        kit.keras.utils.set_random_seed(1)
        model = Sums()
        model.compile("sgd", "mse")
        if method != "fit":
            return getattr(model, method)(data(), verbose=0, **({"steps": 5} if is_stream else {}))
        given = {"epochs": 2, **({"steps_per_epoch": 5} if is_stream else {})}
        return [model.fit(data(), verbose=0, **given).history, int(model.optimizer.iterations), model.get_weights()]

    wanted = program()
    with ipu.accelerate() as acceleration:
        found = program()
    assert_close(found, wanted)
    assert [each.method for each in acceleration.fallbacks] == [method]


@both_frameworks
def test_items_that_are_drawn_at_random_are_drawn_once(kit: Kit) -> None:
    """Items that were read ahead are not drawn again: the next items continue NumPy's and Python's streams."""

    def program(model: Any) -> Any:
        def drawn() -> Iterator[Any]:
            for _ in range(6):
                x = np.random.normal(size=(8, 4)).astype(np.float32)
                seen.append([float(x[0, 0]), random.random()])
                yield x, x[:, :1]

        seen: list[Any] = []
        history = model.fit(drawn(), epochs=1, verbose=0).history
        return [history, np.array(seen), np.random.rand(), random.random()]

    plain, fast = in_both(kit, program, dropout=0.0)
    assert_close(fast, plain)


@both_frameworks
def test_a_later_call_that_is_refused_shuffles_as_the_first(kit: Kit) -> None:
    def program(model: Any) -> Any:
        numbers = [model.fit(X, Y, batch_size=8, shuffle=False, verbose=0).history]
        model.layers[0].refuses = True
        kit.keras.utils.set_random_seed(2)
        numbers.append(model.fit(X[:30], Y[:30], batch_size=10, epochs=2, verbose=0).history)
        return [*numbers, np.random.rand()]

    class Later(kit.keras.layers.Layer):
        refuses = False

        def call(self, inputs: Any) -> Any:
            lost = abs(tf.linalg.qr(tf.cast(inputs[:2, :2], tf.complex64))[0][0, 0]) if self.refuses else 0.0
            return inputs + 0.0 * tf.stop_gradient(lost)

    results = []
    for place in (contextlib.nullcontext, ipu.accelerate):
        kit.keras.utils.set_random_seed(1)
        with place() as acceleration:
            layers = [kit.keras.layers.Input((4,)), Later(), kit.keras.layers.Dense(1)]
            model = kit.keras.Sequential(layers)
            model.compile("sgd", "mse")
        results.append([*program(model), model.get_weights()])
    assert len(acceleration.fallbacks) == 1
    assert_close(*results[::-1])


def test_an_error_leaves_the_number_of_steps_that_a_progress_bar_changes() -> None:
    def rows(x: tf.Tensor) -> Any:
        return tf.debugging.assert_all_finite(x, "broken"), x[:1]

    broken = np.ones((40, 4), np.float32)
    broken[21] = np.nan
    with ipu.accelerate():
        model = tf_keras.Sequential([tf_keras.layers.Input((4,)), tf_keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(tf.data.Dataset.from_tensor_slices(broken[:20]).map(rows).batch(1), verbose=1)
    steps = int(model._steps_per_execution.numpy())
    with pytest.raises(tf.errors.InvalidArgumentError, match="broken"):
        model.fit(tf.data.Dataset.from_tensor_slices(broken).map(rows).batch(1), verbose=1)
    assert int(model._steps_per_execution.numpy()) == steps > 1


@both_frameworks
def test_predictions_of_several_lengths_in_an_execution_name_their_shapes(kit: Kit) -> None:
    def batches() -> Iterator[Any]:
        yield from ((np.ones((2, length, 4), np.float32),) for length in (3, 5))

    model = kit.ipu_model(lambda: kit.keras.Sequential([kit.keras.layers.Input((None, 4)), kit.keras.layers.Dense(1)]))
    model.compile("sgd", "mse", steps_per_execution=2)
    data = tf.data.Dataset.from_generator(batches, output_signature=(tf.TensorSpec((2, None, 4)),))
    with pytest.raises(ConfigurationError, match=r"\[2, 3, 1\], \[2, 5, 1\]. Compile"):
        model.predict(data, steps=2, verbose=0)


@both_frameworks
def test_callbacks_see_a_call_once(kit: Kit) -> None:
    """Callbacks draw the same random numbers, and end training after the same batch, as in plain Keras."""

    class Recorder(kit.keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[Any] = []

        def set_model(self, model: Any) -> None:
            super().set_model(model)
            self.seen.append("model")

        def set_params(self, params: Any) -> None:
            super().set_params(params)
            self.seen.append("params")

        def on_train_begin(self, logs: Any = None) -> None:
            self.seen.append(("begin", np.random.rand()))

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.seen.append((epoch, random.random()))

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.seen.append(batch)
            self.model.stop_training = True

        def on_test_begin(self, logs: Any = None) -> None:
            self.seen.append("test")

    def program(model: Any) -> Any:
        recorder = Recorder()
        arguments = {"validation_data": (X, Y), "epochs": 3, "verbose": 0, "callbacks": [recorder]}
        losses = model.fit(X, Y, batch_size=8, **arguments).history["val_loss"]
        kinds = [each if isinstance(each, tuple) else (each, 0) for each in recorder.seen]
        return [losses, [number for _, number in kinds], [str(kind) for kind, _ in kinds]]

    plain, fast = in_both(kit, program)
    assert fast.pop(2) == plain.pop(2)
    assert_close(fast, plain)


@both_frameworks
def test_an_error_of_the_data_is_that_of_plain_keras(kit: Kit) -> None:
    """An execution that reads several batches at once gets the error before it is refused."""

    def batches() -> Iterator[Any]:
        yield from BATCHES[:3]
        raise OSError("cannot read on")

    def program(model: Any, x: Any) -> Any:
        with pytest.raises(tf.errors.UnknownError, match="cannot read on"):
            model.fit(x, steps_per_epoch=6, verbose=0)
        return [int(model.optimizer.iterations)]

    for source in (batches, lambda: tf.data.Dataset.from_generator(batches, output_signature=SIGNATURE)):
        plain, fast = in_both(kit, lambda model, source=source: program(model, source()))  # type: ignore[misc]
        assert plain[0] >= 3
        assert_close(fast, plain)


@both_frameworks
def test_a_refused_validation_reads_its_first_batches(kit: Kit) -> None:
    """Plain Keras loses the batches that it has read ahead, so only the first validation is compared."""

    def program(model: Any) -> Any:
        numbered = ((x + number, y) for number, (x, y) in enumerate(BATCHES * 3))
        valid = {"validation_data": numbered, "validation_steps": 3}
        history = model.fit(X, Y, batch_size=8, shuffle=False, verbose=0, **valid).history
        assert not isinstance(model.test_function, StepFunction)
        return [history]

    plain, fast = in_both(kit, program, training=False, dropout=0.0)
    assert_close(fast, plain)


@both_frameworks
def test_methods_of_a_sequence_are_called_once(kit: Kit) -> None:
    base = kit.keras.utils.PyDataset if kit.is_keras3 else kit.keras.utils.Sequence
    events: list[str] = []

    class Rows(base):  # type: ignore[misc, valid-type]
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return BATCHES[index]

        def on_epoch_begin(self) -> None:
            events.append("begin")

        def on_epoch_end(self) -> None:
            events.append("end")

    def program(model: Any) -> Any:
        events.clear()
        losses = model.fit(Rows(), epochs=2, verbose=0).history["loss"]
        return [losses, [name == "begin" for name in events]]

    plain, fast = in_both(kit, program)
    assert_close(fast, plain)


def test_a_model_that_runs_eagerly_is_refused_without_a_trace(kit: Kit) -> None:
    plain, fast = in_both(kit, lambda model: [model.fit(X, Y, verbose=0).history], run_eagerly=True)
    assert_close(fast, plain)
