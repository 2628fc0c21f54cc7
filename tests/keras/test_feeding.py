"""Data sets reach the engine in super-batches from tf.data, or read ahead from Python, with the rows of Keras."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from keras_ext.epochs import super_batches as module
from keras_ext.epochs.feeds import BatchSource, FeedIterator, take
from keras_ext.epochs.read_ahead import ReadAhead
from keras_ext.epochs.super_batches import SuperBatches, super_batches
from tests.interrupting import PATIENCE_SECONDS, wait_for
from tests.keras.helpers import CLASSES, FEATURES, data

ROWS = np.arange(100, dtype=np.float32).reshape(50, 2)
LABELS = np.arange(50)


def arrays() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((ROWS, LABELS))


def irregular() -> tf.data.Dataset:
    """Batches of 7 and a last one of 1, twice over, so that a partial batch comes in the middle."""
    return arrays().batch(7).repeat(2)


def nested() -> tf.data.Dataset:
    def step(x: tf.Tensor, y: tf.Tensor) -> Any:
        return {"b": x, "a": (tf.cast(x, tf.float16) / 2, tf.reduce_sum(y))}, tf.reduce_sum(x, axis=1)

    return arrays().batch(4).map(step)


DATASETS: dict[str, Callable[[], tf.data.Dataset]] = {
    "static": lambda: arrays().batch(5, drop_remainder=True),
    "partial": lambda: arrays().batch(8),
    "irregular": irregular,
    "nested": nested,
    "scalars": lambda: arrays().map(lambda x, y: (tf.reduce_sum(x), y)),
    "no columns": lambda: tf.data.Dataset.from_tensor_slices((ROWS[:, :0], LABELS)).batch(6),
}


def batches_of(taken: list[BatchSource]) -> Iterator[Any]:
    for batches in taken:
        for step in range(batches.steps):
            rows = [
                feed.array[step * shape[0] : (step + 1) * shape[0]] if shape else feed.array[step]
                for feed, shape in zip(batches.feeds, batches.signature.shapes, strict=True)
            ]
            yield batches.signature.layout.unflatten(iter(rows))


def everything(iterator: FeedIterator, limits: list[int]) -> list[Any]:
    received: list[Any] = []
    while True:
        for limit in limits:
            try:
                taken = iterator.take(limit)
            except StopIteration:
                return received
            assert sum(batches.steps for batches in taken) <= limit
            received += batches_of(taken)


def assert_same_batches(received: list[Any], expected: Any) -> None:
    expected = list(expected)
    assert len(received) == len(expected)
    for mine, theirs in zip(received, expected, strict=True):
        tf.nest.assert_same_structure(mine, theirs)
        for a, b in zip(tf.nest.flatten(mine), tf.nest.flatten(theirs), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("limits", [[3], [4], [1, 6, 2]], ids=str)
@pytest.mark.parametrize("name", DATASETS)
def test_super_batches_are_the_batches_of_the_data_set(name: str, limits: list[int]) -> None:
    dataset = DATASETS[name]()
    iterator = iter(super_batches(dataset, 4))
    assert isinstance(iterator, FeedIterator)
    assert_same_batches(everything(iterator, limits), dataset.as_numpy_iterator())


@pytest.mark.parametrize("name", DATASETS)
def test_super_batches_can_be_iterated(name: str) -> None:
    dataset = DATASETS[name]()
    assert_same_batches(list(super_batches(dataset, 4)), dataset.as_numpy_iterator())


def test_python_touches_one_element_for_each_execution() -> None:
    iterator = iter(super_batches(arrays().batch(2), 5))
    touched = []
    source = iterator._source
    iterator._source = (touched.append(1) or each for each in source)  # type: ignore[func-returns-value]
    for executions in range(1, 6):
        (batches,) = iterator.take(5)
        assert batches.steps == 5 and len(touched) == executions
    with pytest.raises(StopIteration):
        iterator.take(5)


def test_the_function_that_joins_batches_is_traced_once_for_their_types() -> None:
    module._ragged_variants.cache_clear()
    for scope in (IPUStrategy().scope, contextlib.nullcontext):
        with scope():
            for rows in (8, 9):
                dataset = arrays().batch(rows)
                assert_same_batches(list(super_batches(dataset, 4)), dataset.as_numpy_iterator())
    assert module._ragged_variants.cache_info().misses == 1
    named = arrays().batch(8).map(lambda x, y: {"x": x, "y": y})
    assert_same_batches(list(super_batches(named, 4)), named.as_numpy_iterator())
    assert module._ragged_variants.cache_info().misses == 1


def test_super_batches_keep_the_data_set_its_options_and_its_order() -> None:
    def shuffled() -> tf.data.Dataset:
        options = tf.data.Options()
        options.threading.private_threadpool_size = 1
        return arrays().shuffle(50, seed=3).batch(8).with_options(options)

    iterable = super_batches(shuffled(), 4)
    gc.collect()
    expected = shuffled()
    for _ in range(2):  # another order in the second pass
        assert_same_batches(list(iter(iterable)), expected.as_numpy_iterator())


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.data.Dataset.from_tensor_slices(["a", "b"]).batch(1),
        lambda: arrays().padded_batch(3, ([None], [])),
        lambda: tf.data.Dataset.from_tensors(tf.ragged.constant([[1.0], [2.0, 3.0]])),
        lambda: tf.data.Dataset.from_tensors((1.0, tf.experimental.Optional.empty(tf.TensorSpec([], tf.float32)))),
    ],
    ids=["words", "two unknown dimensions", "ragged", "optional"],
)
def test_what_tf_data_cannot_put_together_stays_as_it_is(make: Callable[[], tf.data.Dataset]) -> None:
    dataset = make()
    expected = 1 if "None" not in str(dataset.element_spec) else None
    result = super_batches(dataset, 4)
    assert isinstance(result, tf.data.Dataset | SuperBatches)
    assert isinstance(result, tf.data.Dataset) or expected is None
    assert sum(1 for _ in result) == sum(1 for _ in dataset)


def test_large_batches_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = arrays().batch(5, drop_remainder=True)  # 80 bytes in each batch
    for limit, together in ((1000, 12), (900, 6), (300, 3), (100, 1), (1, 1)):
        monkeypatch.setattr(module, "MOST_BYTES", limit)
        assert module._together(dataset, 12) == together


def test_error_in_the_data_set_comes_after_the_batches_before_it() -> None:
    def step(x: tf.Tensor, y: tf.Tensor) -> Any:
        with tf.control_dependencies([tf.debugging.assert_less(y, tf.constant(25, y.dtype), message="limit")]):
            return tf.identity(x), y

    iterator = iter(super_batches(arrays().map(step).batch(5), 4))
    assert [batches.steps for batches in take(iterator, 3)] == [3]
    (batches,) = take(iterator, 4)
    assert batches.steps == 2 and isinstance(batches.error, tf.errors.InvalidArgumentError)


def readers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "ipu-read-ahead"]


def wait_for_readers() -> None:
    assert wait_for(lambda: not readers())


def numbers(count: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for number in range(count):
        yield np.full((2, 3), number, np.float32), np.full(2, number)


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_read_ahead_keeps_the_order_and_ends(limit: int) -> None:
    epoch = ReadAhead(lambda: numbers(7))
    for _ in range(2):
        assert_same_batches(everything(iter(epoch), [limit]), numbers(7))
    assert_same_batches(list(iter(epoch)), numbers(7))
    wait_for_readers()


def test_read_ahead_takes_other_numbers_of_batches_in_turn() -> None:
    assert_same_batches(everything(iter(ReadAhead(lambda: numbers(23))), [5, 2, 1, 7]), numbers(23))
    wait_for_readers()


@pytest.mark.parametrize("limit", [1, 3])
def test_an_iterator_may_fill_one_array_for_all_batches(limit: int) -> None:
    array, view = np.zeros((2, 3), np.float32), np.zeros((2, 2))[:, 0]

    def batches() -> Iterator[Any]:
        for rows, labels in numbers(7):
            array[:], view[:] = rows, labels
            yield array, view

    iterator = iter(ReadAhead(batches))
    taken = []
    while len(taken) < 7:
        taken += list(batches_of(iterator.take(limit)))
        wait_for_readers()  # the next batches are read before these are used
    for (rows, labels), (expected, expected_labels) in zip(taken, numbers(7), strict=True):
        np.testing.assert_array_equal(rows, expected)
        np.testing.assert_array_equal(labels, expected_labels)


def test_next_batches_are_read_while_no_call_waits() -> None:
    read = threading.Event()

    def batches() -> Iterator[Any]:
        yield from numbers(2)
        assert threading.current_thread() is not threading.main_thread()
        read.set()
        yield from numbers(2)

    iterator = iter(ReadAhead(batches))
    iterator.take(2)
    assert read.wait(PATIENCE_SECONDS)
    assert sum(batches.steps for batches in iterator.take(2)) == 2


def test_no_more_is_read_ahead_than_is_needed() -> None:
    read = []

    def batches() -> Iterator[Any]:
        for batch in numbers(20):
            read.append(1)
            yield batch

    iterator = iter(ReadAhead(batches, needed=7))
    for taken, expected in ((3, 6), (3, 7), (1, 7), (2, 9)):  # beyond those needed, only what is asked for is read
        assert sum(batches.steps for batches in iterator.take(taken)) == taken
        wait_for_readers()
        assert len(read) == expected


def test_errors_of_an_iterator_are_raised_as_they_are() -> None:
    error = ZeroDivisionError("mine")

    def batches() -> Iterator[Any]:
        yield from numbers(2)
        raise error

    iterator = iter(ReadAhead(batches))
    assert iterator.take(2)[0].steps == 2
    with pytest.raises(ZeroDivisionError) as raised:
        iterator.take(2)
    assert raised.value is error
    wait_for_readers()


def test_closing_ends_the_reading() -> None:
    made = []

    def endless() -> Iterator[Any]:
        while True:
            made.append(1)
            yield next(numbers(1))

    epoch = ReadAhead(endless)
    iterator = iter(epoch)
    iterator.take(1000)
    epoch.close()
    wait_for_readers()
    count = len(made)
    with pytest.raises(StopIteration):
        iterator.take(1)
    assert len(made) == count < 2001


class Recorded(keras.utils.PyDataset):
    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        self.threads.add(threading.current_thread().name)
        x, y = data(48)
        return x[index * 8 : index * 8 + 8], y[index * 8 : index * 8 + 8]


def model_of(steps: int) -> keras.Model:
    keras.utils.set_random_seed(1)
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(CLASSES, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=steps)
    return model


def test_a_data_set_of_python_may_fill_one_array_for_all_batches() -> None:
    x, y = data(48)
    rows, labels = np.empty((8, FEATURES), np.float32), np.empty(8, np.int64)

    class Reused(keras.utils.PyDataset):
        def __len__(self) -> int:
            return 6

        def __getitem__(self, index: int) -> Any:
            rows[:], labels[:] = x[index * 8 : index * 8 + 8], y[index * 8 : index * 8 + 8]
            return rows, labels

    one, other = model_of(4), model_of(4)
    one.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    other.fit(Reused(), shuffle=False, verbose=0)
    for mine, theirs in zip(other.get_weights(), one.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    np.testing.assert_array_equal(other.predict(Reused(), verbose=0), one.predict(x, batch_size=8, verbose=0))
    wait_for_readers()


def test_all_sources_train_the_same_bits() -> None:
    x, y = data(48)
    dataset = tf.data.Dataset.from_tensor_slices((x, y))
    recorded = Recorded()
    sources: list[Any] = [
        dataset.batch(8),
        dataset.batch(8, drop_remainder=True).prefetch(2),
        recorded,
        ((x[k : k + 8], y[k : k + 8]) for k in range(0, 48, 8)),
    ]
    expected = model_of(4)
    expected.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    for source in sources:
        model = model_of(4)
        model.fit(source, steps_per_epoch=6, shuffle=False, verbose=0)
        for mine, theirs in zip(model.get_weights(), expected.get_weights(), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert "ipu-read-ahead" in recorded.threads
    wait_for_readers()


@pytest.mark.parametrize("steps", [1, 4, 50])
@pytest.mark.parametrize("regular", [True, False])
def test_no_pass_over_a_data_set_is_opened_for_building(steps: int, regular: bool) -> None:
    """The first pass that is opened has the first order of rows, and data read from a stream has no second pass."""
    x, y = data(48)
    stream = iter(list(zip(np.split(x, 6), np.split(y, 6), strict=True)))
    rows = 8 if regular else None
    signature = tf.TensorSpec((rows, FEATURES), tf.float32), tf.TensorSpec((rows,), tf.int64)
    once = tf.data.Dataset.from_generator(lambda: stream, output_signature=signature)
    expected, model = model_of(steps), model_of(steps)
    expected.fit(x, y, batch_size=8, shuffle=False, verbose=0)
    model.fit(once, steps_per_epoch=6, shuffle=False, verbose=0)
    for mine, theirs in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_data_sets_are_shuffled_as_by_plain_keras() -> None:
    x, y = data(48)

    def shuffled() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(48, seed=3).batch(8)

    model = model_of(4)
    plain = keras.models.clone_model(model)
    plain.set_weights(model.get_weights())
    plain.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)
    for each in (plain, model):
        each.fit(shuffled(), epochs=2, shuffle=False, verbose=0)
    for mine, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_no_reader_is_left_after_an_interruption(error: type[BaseException]) -> None:
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            raise error

    def endless() -> Iterator[Any]:
        x, y = data(8)
        while True:
            yield x, y

    with pytest.raises(error):
        model_of(50).fit(endless(), steps_per_epoch=10_000, shuffle=False, verbose=0, callbacks=[Stop()])
    wait_for_readers()
