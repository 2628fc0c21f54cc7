"""Infeeds of data sets that only select, batch and shuffle rows have the elements of tf.data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu._internal.queues.elements import leaf_shapes
from ipu._internal.queues.feeding import FIRST_NAP
from ipu._internal.queues.row_elements import row_elements, rows_of
from ipu._internal.queues.row_sequences import row_sequence
from tests.exploring import more_seeds

v1 = tf.compat.v1
MOST = 60
DTYPES = (np.int32, np.float32, np.float16, np.bool_, np.int8, np.uint8)


def source(generator: np.random.Generator) -> tf.data.Dataset:
    """Slices of random tensors, nested in some way, or the tensors themselves; sometimes without rows."""
    rows = int(generator.integers(0, 12))

    def tensor(*shape: int) -> np.ndarray:
        values = generator.integers(0, 100, (rows, *shape))
        return values.astype(DTYPES[generator.integers(len(DTYPES))])

    nested = [lambda: tensor(), lambda: (tensor(2), tensor()), lambda: {"b": tensor(3, 2), "a": (tensor(), tensor(1))}]
    element = nested[generator.integers(len(nested))]()
    if rows and generator.random() < 0.2:
        return tf.data.Dataset.from_tensors(element)
    return tf.data.Dataset.from_tensor_slices(element)


def chain(generator: np.random.Generator) -> tf.data.Dataset:
    """A random chain of the recognised steps."""
    dataset, number = source(generator), lambda low, high: int(generator.integers(low, high))
    steps: list[Any] = [
        lambda d: d.batch(number(1, 5), drop_remainder=True),
        lambda d: d.batch(number(1, 4), drop_remainder=True, num_parallel_calls=2),
        lambda d: d.repeat(None if generator.random() < 0.4 else number(0, 4)),
        lambda d: d.take(number(-1, 20)),
        lambda d: d.skip(number(-1, 5) if generator.random() < 0.3 else number(0, 5)),
        lambda d: d.shard(3, number(0, 3)),
        lambda d: d.prefetch(2),
        lambda d: d.cache() if d.cardinality() < 100 and d.cardinality() >= 0 else d,
        lambda d: d.concatenate(d.skip(1)),
        lambda d: tf.data.Dataset.zip((d, d.skip(2))),
        lambda d: d.with_options(tf.data.Options()),
    ]
    for _ in range(number(0, 7)):
        dataset = steps[generator.integers(len(steps))](dataset)
    return dataset


@pytest.mark.sample(30)
@pytest.mark.parametrize("seed", more_seeds(range(60), 1000))
def test_elements_of_random_chains(seed: int) -> None:
    dataset = chain(np.random.default_rng(seed))
    expected = [tf.nest.flatten(each) for each in islice(dataset.as_numpy_iterator(), MOST)]
    shapes = leaf_shapes(dataset.element_spec)
    sequence, elements = row_sequence(dataset), row_elements(dataset, shapes)
    assert sequence is not None and elements is not None
    assert min(sequence.length, MOST) == len(expected)
    if any(not shape.bytes for shape in shapes):
        return  # the queue refuses empty tensors
    ring, blocks = elements.new_ring(7), elements.blocks(5)
    for number, leaves in enumerate(expected):
        if not ring.available():
            ring.put(next(blocks))
        for got, wanted in zip(ring.next_row(timeout=FIRST_NAP), leaves, strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got, wanted, err_msg=f"element {number}")
    assert len(expected) == MOST or not ring.available() and next(blocks, None) is None


ROWS = np.arange(40, dtype=np.float32).reshape(10, 4)
NOT_RECOGNISED = {
    "map": lambda d: d.map(lambda x: x + 1),
    "shuffle": lambda d: d.shuffle(10),
    "filter": lambda d: d.filter(lambda x: x[0] > 3),
    "remainder": lambda d: d.batch(4),
    "generator": lambda d: tf.data.Dataset.from_generator(lambda: iter([1.0]), output_signature=tf.TensorSpec([])),
    "cache in a file": lambda d: d.cache("/nowhere/cache"),
    "window": lambda d: d.window(2).flat_map(lambda x: x),
    "below": lambda d: tf.data.Dataset.zip((d, d.map(tf.abs))),
    "other parts": lambda d: d.batch(2, True).concatenate(tf.data.Dataset.from_tensor_slices(ROWS.reshape(5, 2, 4))),
}


@pytest.mark.parametrize("name", NOT_RECOGNISED)
def test_other_data_sets_go_through_tf_data(name: str) -> None:
    assert row_sequence(NOT_RECOGNISED[name](tf.data.Dataset.from_tensor_slices(ROWS))) is None


@pytest.mark.parametrize("batch", [2, 3])
def test_elements_in_programs_of_a_strategy(strategy: Any, batch: int) -> None:
    """Elements are right across passes, when the program ends and continues, and at the end of the data."""
    dataset = tf.data.Dataset.from_tensor_slices({"x": ROWS, "n": np.arange(10, dtype=np.int32)})
    dataset = dataset.skip(1).repeat(3).batch(batch, drop_remainder=True)
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    _ = infeed.initializer
    expected = [each["x"] for each in dataset.as_numpy_iterator()]

    @tf.function(jit_compile=True, autograph=False)
    def step(count: int) -> None:
        ipu.loops.repeat(count, lambda n, x: outfeed.enqueue(x), [], infeed)

    for count in (4, len(expected) - 4):
        strategy.run(step, args=(count,))
    np.testing.assert_array_equal(outfeed.dequeue(), expected)
    with pytest.raises(tf.errors.OutOfRangeError, match="Received: its end"):
        strategy.run(step, args=(1,))


def drained(session: Any, element: tf.Tensor) -> Iterator[np.ndarray]:
    """All values of an iterator's element."""
    with suppress(tf.errors.OutOfRangeError):
        while True:
            yield session.run(element)


@pytest.mark.parametrize("seed", more_seeds(range(4), 100))
def test_numbers_are_shuffled_as_the_rows_would_be(seed: int) -> None:
    generator = np.random.default_rng(seed)
    number = lambda low, high: int(generator.integers(low, high))  # noqa: E731
    steps: list[Any] = [
        lambda d: d.shuffle(number(1, 9), seed=number(1, 99), reshuffle_each_iteration=bool(number(0, 2))),
        lambda d: d.repeat(number(1, 4)),
        lambda d: d.batch(number(1, 4), drop_remainder=True),
        lambda d: d.skip(1).prefetch(2),
        lambda d: d.take(19),
        lambda d: d.shard(2, 1).with_options(tf.data.Options()),
    ]
    for _ in range(4):
        with tf.Graph().as_default(), v1.Session() as session:
            dataset = tf.data.Dataset.from_tensor_slices(np.arange(30, dtype=np.int32)).repeat(2)
            for step in [steps[0], *generator.permuted(np.array(steps, object))[:4]]:
                dataset = step(dataset)
            rows = rows_of(dataset)
            assert rows is not None and rows[1] is not None and rows[0].length == 60
            elements = [v1.data.make_one_shot_iterator(each).get_next() for each in (dataset, rows[1])]
            assert elements[0].shape == elements[1].shape
            values, numbers = ([*drained(session, each)] for each in elements)
            assert len(values) == len(numbers)
            np.testing.assert_array_equal(values, np.array(numbers) % 30)


def test_shuffled_rows_in_programs(strategy: Any) -> None:
    """Each pass has all rows if shuffles have no seeds; with seeds, the data set itself must shuffle."""
    tf.random.set_seed(None)  # another test's seed would seed each shuffle
    slices = tf.data.Dataset.from_tensor_slices(ROWS)
    assert rows_of(slices.shuffle(10, seed=1)) is None
    assert rows_of(slices.shuffle(10, reshuffle_each_iteration=False)) is None
    assert rows_of(slices.map(tf.abs).shuffle(10)) is None
    dataset = slices.shuffle(10).batch(5, drop_remainder=True).repeat()
    assert row_elements(dataset, leaf_shapes(dataset.element_spec)) is not None
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    _ = infeed.initializer

    @tf.function(jit_compile=True, autograph=False)
    def step(count: int) -> None:
        ipu.loops.repeat(count, lambda x: outfeed.enqueue(x), [], infeed)

    for count in (3, 7):
        strategy.run(step, args=(count,))
    passes = outfeed.dequeue().numpy().reshape(5, 10, 4)
    for each in passes:
        np.testing.assert_array_equal(each[np.argsort(each[:, 0])], ROWS)
    assert any((each != passes[0]).any() for each in passes[1:])


def test_shuffled_rows_in_a_session() -> None:
    """A seed gives the order of plain iteration, from the first element, whenever the queue is initialised."""
    with tf.Graph().as_default():
        dataset = tf.data.Dataset.from_tensor_slices({"x": ROWS, "n": np.arange(10, dtype=np.int32)})
        dataset = dataset.shuffle(4, seed=3).repeat(2).batch(4, drop_remainder=True)
        infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        program = ipu.ipu_compiler.compile(
            lambda: ipu.loops.repeat(5, lambda n, x: outfeed.enqueue((n, x)), [], infeed)
        )
        dequeued, initializer = outfeed.dequeue(), infeed.initializer
        plain = v1.data.make_one_shot_iterator(dataset).get_next()
        with v1.Session() as session:
            expected = [session.run(plain) for _ in range(5)]
            for _ in range(2):
                session.run(initializer)
                session.run(program)
                numbers, rows = session.run(dequeued)
                np.testing.assert_array_equal(numbers, [each["n"] for each in expected])
                np.testing.assert_array_equal(rows, [each["x"] for each in expected])
            with pytest.raises(tf.errors.OutOfRangeError, match="Received: its end"):
                session.run(program)


@pytest.mark.parametrize("kind", ["constant", "placeholder", "variable", "v1"])
def test_elements_in_a_session(kind: str) -> None:
    """Tensors have the values of the initialisation, also in a second session."""
    with tf.Graph().as_default():
        tensor: Any = tf.constant(ROWS)
        if kind == "placeholder":
            tensor = v1.placeholder(tf.float32, [10, 4])
        elif kind == "variable":
            tensor = v1.get_variable("rows", initializer=ROWS, use_resource=True)
        slices = (v1.data.Dataset if kind == "v1" else tf.data.Dataset).from_tensor_slices(tensor)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(slices.batch(5, drop_remainder=True).repeat())
        (total,) = ipu.ipu_compiler.compile(
            lambda: ipu.loops.repeat(2, lambda a, x: 2 * a + x, [tf.zeros([5, 4])], infeed)
        )
        initializer, fed = infeed.initializer, {tensor: ROWS} if kind == "placeholder" else {}
        for _ in range(2):
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                session.run(initializer, fed)
                for _ in range(3):
                    np.testing.assert_array_equal(session.run(total), 2 * ROWS[:5] + ROWS[5:])
