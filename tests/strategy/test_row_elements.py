"""Infeeds of data sets that only select and batch rows: without tf.data, the elements are the same."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from ipu._internal.queues.elements import leaf_shapes
from ipu._internal.queues.feeding import FIRST_NAP
from ipu._internal.queues.row_elements import row_elements
from ipu._internal.queues.row_sequences import row_sequence
from tests.exploring import more_seeds

v1 = tf.compat.v1
MOST = 60
DTYPES = (np.int32, np.float32, np.float16, np.bool_, np.int8, np.uint8)


def source(generator: np.random.Generator) -> tf.data.Dataset:
    """Slices of random tensors, nested in one of several ways, or the whole of them; now and then of no rows."""
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


@pytest.mark.parametrize("seed", more_seeds(range(60), 1000))
def test_elements_of_random_chains(seed: int) -> None:
    dataset = chain(np.random.default_rng(seed))
    expected = [tf.nest.flatten(each) for each in islice(dataset.as_numpy_iterator(), MOST)]
    shapes = leaf_shapes(dataset.element_spec)
    sequence, elements = row_sequence(dataset), row_elements(dataset, shapes)
    assert sequence is not None and elements is not None
    assert min(sequence.length, MOST) == len(expected)
    if any(not shape.bytes for shape in shapes):
        return  # empty tensors are refused by the queue
    ring = elements.new_ring(1)
    ring.put(elements.take(min(7, ring.space())))
    for number, leaves in enumerate(expected):
        if not ring.available():
            ring.put(elements.take(5))
        for got, wanted in zip(ring.next_row(timeout=FIRST_NAP), leaves, strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got, wanted, err_msg=f"element {number}")
    assert len(expected) == MOST or not ring.available() and not len(elements.take(1)[0])


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
    """Also across passes, when the program ends and goes on, and at the end of the data."""
    dataset = tf.data.Dataset.from_tensor_slices({"x": ROWS, "n": np.arange(10, dtype=np.int32)})
    dataset = dataset.skip(1).repeat(3).batch(batch, drop_remainder=True)
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    _ = infeed.initializer
    expected = [each["x"] for each in dataset.as_numpy_iterator()]

    @tf.function(jit_compile=True)
    def step(count: int) -> None:
        ipu.loops.repeat(count, lambda n, x: outfeed.enqueue(x), [], infeed)

    for count in (4, len(expected) - 4):
        strategy.run(step, args=(count,))
    np.testing.assert_array_equal(outfeed.dequeue(), expected)
    with pytest.raises(tf.errors.OutOfRangeError, match="Received: its end"):
        strategy.run(step, args=(1,))


@pytest.mark.parametrize("kind", ["constant", "placeholder", "variable", "v1"])
def test_elements_in_a_session(kind: str) -> None:
    """The values of tensors are those at the initialisation, also in a second session."""
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
