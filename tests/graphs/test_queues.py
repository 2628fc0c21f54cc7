"""Infeed and outfeed queues in a tf.Graph: their operations, order and errors (sections 18.4 and 18.5)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.interrupting import PATIENCE_SECONDS

v1 = tf.compat.v1


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


def numbers(count: int = 100) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).map(lambda n: tf.cast(n, tf.float32))


def summed(infeed, outfeed, iterations: int = 4):
    def body(total, x):
        return total + x, outfeed.enqueue({"x": x, "pair": (total, tf.stack([x, x]))})

    return ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(iterations, body, [0.0], infeed))


def test_elements_go_through_the_program_in_order() -> None:
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers()), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    (total,) = summed(infeed, outfeed)
    dequeued = outfeed.dequeue()
    assert dequeued["pair"][1].shape.as_list() == [None, 2]
    initialise, delete = infeed.initializer, [infeed.deleter, outfeed.deleter]
    for _ in range(2):  # sessions one after the other, the second without a deletion in the first
        with v1.Session() as session:
            session.run(initialise)
            assert session.run(total) == 0 + 1 + 2 + 3
            assert session.run(total) == 4 + 5 + 6 + 7
            rows = session.run(dequeued)
            np.testing.assert_array_equal(rows["x"], np.arange(8))
            np.testing.assert_array_equal(rows["pair"][0], [0, 0, 1, 3, 0, 4, 9, 15])
            assert rows["pair"][1].shape == (8, 2)
            assert session.run(dequeued)["x"].shape == (0,)
    with v1.Session() as session:
        session.run(delete)
        with pytest.raises(tf.errors.FailedPreconditionError, match="Did you initialize"):
            session.run(total)
        with pytest.raises(tf.errors.NotFoundError, match="Infeed with id="):
            session.run(delete[0])
        session.run(initialise)
        assert session.run(total) == 6


def test_the_last_element_alone() -> None:
    outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue(outfeed_mode=ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST)
    program = ipu.ipu_compiler.compile(
        lambda: ipu.loops.repeat(5, lambda i: (i + 1.0, outfeed.enqueue(tf.fill([2], i))), [0.0])
    )
    last = outfeed.dequeue()
    with v1.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="before it was executed"):
            session.run(last)
        session.run(program)
        np.testing.assert_array_equal(session.run(last), [4, 4])


def test_misuse_is_an_error() -> None:
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(numbers(6)), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    with pytest.raises(ValueError, match="after enqueue"):
        outfeed.dequeue()
    (total,) = summed(infeed, outfeed)
    initialise = infeed.initializer
    with pytest.raises(ValueError, match="once"):
        _ = infeed.initializer
    with pytest.raises(ValueError, match="enqueued once"):
        other = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        ipu.ipu_compiler.compile(lambda: [other.enqueue(tf.constant(1.0)), other.enqueue(tf.constant(2.0))])
    with pytest.raises(ValueError, match=r"'[Ww]here.*' of Where, of shape \(None, 1\).* a mask"):
        ipu.ipu_compiler.compile(lambda: other.enqueue(tf.where(tf.constant([True, False]))))
    with pytest.raises(RuntimeError, match="runs on the IPU"):
        outfeed.enqueue(tf.constant(1.0))
    wide = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.range(3))
    with pytest.raises(tf.errors.FailedPreconditionError, match="int64 on index 0"):
        _ = wide.initializer
    with v1.Session() as session:
        with pytest.raises(tf.errors.FailedPreconditionError, match="initialize"):
            session.run(total)
        session.run(initialise)
        assert session.run(total) == 6
        with pytest.raises(tf.errors.OutOfRangeError, match="its end"):
            session.run(total)
        session.run(initialise)
        assert session.run(total) == 6


@pytest.mark.parametrize("size", [5, 5000])  # small elements are taken several at a time
def test_another_thread_dequeues_while_the_program_runs(size: int) -> None:
    more = threading.Event()

    def elements() -> Iterator[np.ndarray]:
        for number in range(8):
            if number == 4:
                assert more.wait(PATIENCE_SECONDS)
            yield np.full(size, number, np.float32)

    dataset = tf.data.Dataset.from_generator(elements, output_signature=tf.TensorSpec([size], tf.float32))
    infeed, outfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(dataset), ipu.ipu_outfeed_queue.IPUOutfeedQueue()
    (total,) = ipu.ipu_compiler.compile(
        lambda: ipu.loops.repeat(8, lambda total, x: (total + x[0], outfeed.enqueue(x[0])), [0.0], infeed)
    )
    dequeued = outfeed.dequeue()
    with v1.Session() as session:
        session.run(infeed.initializer)
        totals: list[float] = []
        thread = threading.Thread(target=lambda: totals.append(session.run(total)))
        thread.start()
        rows: list[float] = []
        while len(rows) < 4:  # elements of the first half arrive while the program waits for the second
            rows += session.run(dequeued).tolist()
        assert not totals
        more.set()
        thread.join()
        rows += session.run(dequeued).tolist()
    assert rows == list(range(8))
    assert totals == [28]


def test_lookup_tables_of_the_session_feed_a_program() -> None:
    keys, values = tf.constant(["a", "b", "c"]), tf.constant([5.0, 6.0, 7.0])
    table = v1.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1.0)
    infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(
        tf.data.Dataset.from_tensor_slices(["a", "c", "d", "b"]).map(table.lookup)
    )
    (total,) = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(2, lambda t, x: 10 * t + x, [0.0], infeed))
    initialise, tables = infeed.initializer, v1.tables_initializer()
    for _ in range(2):  # each session has tables of its own
        with v1.Session() as session:
            session.run(tables)
            for _ in range(2):
                session.run(initialise)
                assert [session.run(total) for _ in range(2)] == [57, -4]
            with pytest.raises(tf.errors.OutOfRangeError):
                session.run(total)
