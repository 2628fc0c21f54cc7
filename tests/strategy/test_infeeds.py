"""IPUInfeedQueue: its elements, its checks, and the end or failure of its data set."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu import loops
from ipu.config import IPUConfig
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from tests.interrupting import PATIENCE_SECONDS, wait_for
from tests.strategy.helpers import compiled, numbers, replicas

ERRORS = tf.errors
ANY_DEVICE: dict[str, Any] = {"device_ordinal": None}


def taker(queue: IPUInfeedQueue) -> Any:
    """A function of n that adds n scalars of the queue."""

    @compiled
    def take(n: int) -> tf.Tensor:
        return loops.repeat(n, lambda total, x: total + x, [0.0], queue)

    return take


def test_elements_come_once_and_in_order_over_several_runs(strategy: IPUStrategyV1) -> None:
    queue, outfeed = IPUInfeedQueue(numbers(), prefetch_depth=2), IPUOutfeedQueue()
    _ = queue.initializer

    @compiled
    def step(n: int) -> None:
        loops.repeat(n, lambda x: outfeed.enqueue(x), [], queue)

    for n in (3, 1, 5, 40, 1):
        strategy.run(step, args=(n,))
    np.testing.assert_array_equal(outfeed.dequeue(), np.arange(50))
    with pytest.raises(ValueError, match="a second time.*evaluate infeed_queue.deleter first"):
        _ = queue.initializer
    strategy.run(step, args=(1,))
    np.testing.assert_array_equal(outfeed.dequeue(), [50])
    _ = queue.deleter
    _ = queue.initializer
    strategy.run(step, args=(2,))
    np.testing.assert_array_equal(outfeed.dequeue(), [0, 1])


@pytest.mark.parametrize("count", [1, 2])
def test_nothing_is_read_ahead_where_data_streams_are_not_prefetched(count: int) -> None:
    """Data sets are read only as far as programs have taken elements, with prefetch_data_streams=False."""
    config = IPUConfig()
    config.auto_select_ipus = count
    config.optimizations.prefetch_data_streams = False
    config.configure_ipu_system()
    queue = IPUInfeedQueue(numbers())
    _ = queue.initializer
    take = taker(queue)
    for runs, expected in ((5, 5), (3, 8)):
        total = IPUStrategyV1().run(take, args=(runs,))
        assert queue._endpoint is not None and queue._endpoint._feeder is not None
        assert queue._endpoint._feeder.ring.rows == expected * count
        first = sum(range((expected - runs) * count, expected * count, count))  # the elements of replica 0
        assert float(total) == first


def test_a_queue_belongs_to_its_device() -> None:
    config = IPUConfig()
    config.auto_select_ipus = [1, 1]
    config.configure_ipu_system()
    second = IPUStrategyV1("/device:IPU:1")
    default, own, free = (IPUInfeedQueue(numbers(), **given) for given in ({}, {"device_ordinal": 1}, ANY_DEVICE))
    for queue in (default, own, free):
        _ = queue.initializer
    with pytest.raises(ValueError, match=r"Received: its use in one of /device:IPU:1.*device_ordinal=1, or None"):
        second.run(taker(default), args=(3,))
    outfeed = IPUOutfeedQueue(device_ordinal=1)
    with pytest.raises(ValueError, match=r"outfeed queue of device_ordinal=1.*/device:IPU:0"):
        IPUStrategyV1().run(compiled(lambda: outfeed.enqueue(tf.constant(1.0))))
    assert [float(second.run(taker(queue), args=(3,))) for queue in (own, free)] == [3, 3]
    assert float(IPUStrategyV1().run(taker(default), args=(3,))) == 3


@pytest.mark.parametrize("count", [2, 4])
def test_element_i_goes_to_replica_i_modulo_the_replicas(strategy: IPUStrategyV1, count: int) -> None:
    replicas(count)
    queue, outfeed = IPUInfeedQueue(numbers(shape=(2,))), IPUOutfeedQueue()
    _ = queue.initializer

    @compiled
    def step() -> None:
        loops.repeat(3, lambda x: outfeed.enqueue(x), [], queue)

    strategy.run(step)
    strategy.run(step)
    rows = outfeed.dequeue().numpy()
    assert rows.shape == (6, count, 2)
    np.testing.assert_array_equal(rows[..., 0].reshape(-1), np.arange(6 * count))
    replicas(1)
    with pytest.raises(ERRORS.FailedPreconditionError, match=f"to have {count} replicas. Received: one of 1"):
        strategy.run(step)


def test_dtypes_and_structures(strategy: IPUStrategyV1) -> None:
    dtypes = [tf.int32, tf.float32, tf.float16, tf.bool, tf.int8, tf.uint8]
    dataset = numbers().map(lambda i: {"all": tuple(tf.cast([i, i % 2, 3], d) for d in dtypes), "i": (i,)})
    queue = IPUInfeedQueue(dataset)
    _ = queue.initializer
    outfeed = IPUOutfeedQueue()

    @compiled
    def step() -> None:
        def body(**element: Any) -> Any:
            assert set(element) == {"all", "i"} and isinstance(element["all"], tuple)
            return outfeed.enqueue(element)

        loops.repeat(3, body, [], queue)

    strategy.run(step)
    rows = outfeed.dequeue()
    np.testing.assert_array_equal(rows["i"][0], [0, 1, 2])
    for dtype, column in zip(dtypes, rows["all"], strict=True):
        assert column.dtype == dtype
        expected = [[i, i % 2, 3] for i in range(3)]
        np.testing.assert_array_equal(column, np.array(expected).astype(dtype.as_numpy_dtype))


def test_number_of_tuple_elements_and_dequeued(strategy: IPUStrategyV1) -> None:
    single = IPUInfeedQueue(numbers())
    assert single.number_of_tuple_elements == 1 and not single.dequeued
    assert IPUInfeedQueue(numbers().map(lambda x: (x, x, x))).number_of_tuple_elements == 3
    assert IPUInfeedQueue(numbers().map(lambda x: {"a": x, "b": x})).number_of_tuple_elements == 2
    assert IPUInfeedQueue(numbers().map(lambda x: ({"a": x, "b": x},))).number_of_tuple_elements == 2
    _ = single.initializer
    strategy.run(taker(single), args=(2,))
    assert single.dequeued
    with pytest.raises(ValueError, match="get_next, which is obsolete"):
        single.get_next()


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match=r"\(None, 2\).*drop_remainder=True"):
        IPUInfeedQueue(numbers(shape=(2,)).batch(4))
    for depth in (-1, 256):
        with pytest.raises(ValueError, match=f"prefetch_depth to be an integer from 1 to 255. Received: {depth}"):
            IPUInfeedQueue(numbers(), prefetch_depth=depth)
    for ordinal in (-1, "0", True):
        with pytest.raises(ValueError, match="device_ordinal"):
            IPUInfeedQueue(numbers(), device_ordinal=ordinal)
    first = IPUInfeedQueue(numbers(), feed_name="only one")
    with pytest.raises(ValueError, match="'only one' a second time"):
        IPUOutfeedQueue(feed_name="only one")
    _ = first.initializer
    _ = first.deleter
    assert IPUOutfeedQueue("only one", device_ordinal=None) is not None
    assert IPUInfeedQueue(numbers(), prefetch_depth=0)._prefetch_depth == 3


@pytest.mark.parametrize("dtype", [tf.int64, tf.float64, tf.string, tf.uint16])
def test_dtypes_the_device_lacks_are_refused_at_initialization(dtype: tf.DType) -> None:
    value = tf.constant("text") if dtype == tf.string else tf.cast(1, dtype)
    queue = IPUInfeedQueue(tf.data.Dataset.from_tensors((tf.constant(1), value)))
    remedy = "Encode text" if dtype == tf.string else "Cast it"
    with pytest.raises(ERRORS.FailedPreconditionError, match=f"datatype {dtype.name} on index 1.*{remedy} with map"):
        _ = queue.initializer


def test_empty_tensors_are_refused() -> None:
    queue = IPUInfeedQueue(tf.data.Dataset.from_tensors(tf.zeros([3, 0])))
    with pytest.raises(ERRORS.InvalidArgumentError, match="at least one element on index 0"):
        _ = queue.initializer


def test_life_of_a_queue(strategy: IPUStrategyV1) -> None:
    queue = IPUInfeedQueue(numbers())
    take = taker(queue)
    with pytest.raises(ERRORS.FailedPreconditionError, match="Did you initialize the infeed_queue"):
        strategy.run(take, args=(1,))
    with pytest.raises(ERRORS.NotFoundError, match="Infeed with id="):
        _ = queue.deleter
    _ = queue.initializer
    assert strategy.run(take, args=(3,)) == 3.0
    _ = queue.deleter
    with pytest.raises(ERRORS.FailedPreconditionError, match="Did you initialize"):
        strategy.run(take, args=(1,))
    with pytest.raises(ERRORS.NotFoundError):
        _ = queue.deleter
    _ = queue.initializer
    assert strategy.run(take, args=(3,)) == 3.0


def test_end_of_the_data_set_leaves_everything_usable(strategy: IPUStrategyV1) -> None:
    queue = IPUInfeedQueue(numbers(10))
    _ = queue.initializer
    with strategy.scope():
        seen = tf.Variable(0.0)

    @compiled
    def step(n: int) -> tf.Tensor:
        def body(x: tf.Tensor) -> None:
            seen.assign_add(x + 1)

        loops.repeat(n, body, [], queue)
        return seen.read_value()

    assert strategy.run(step, args=(6,)) == 21.0
    for _ in range(2):
        with pytest.raises(ERRORS.OutOfRangeError, match="Received: its end"):
            strategy.run(step, args=(6,))
        assert seen == 21.0
    _ = queue.deleter
    _ = queue.initializer
    assert strategy.run(step, args=(6,)) == 42.0
    assert strategy.run(step, args=(4,)) == 42.0 + 34.0


def test_an_error_of_the_data_set_is_raised_by_the_run_that_needs_it(strategy: IPUStrategyV1) -> None:
    dataset = numbers().map(lambda x: tf.debugging.check_numerics(tf.where(x == 7, np.nan, x), "element seven"))
    queue = IPUInfeedQueue(dataset)
    _ = queue.initializer
    take = taker(queue)
    assert strategy.run(take, args=(7,)) == 21.0
    with pytest.raises(ERRORS.InvalidArgumentError, match="element seven"):
        strategy.run(take, args=(1,))
    _ = queue.deleter
    _ = queue.initializer
    assert strategy.run(take, args=(3,)) == 3.0


def test_an_exception_of_a_generator_is_raised_by_the_run(strategy: IPUStrategyV1) -> None:
    def generate() -> Iterator[float]:
        yield 1.0
        raise LookupError("nothing on the shelf")

    queue = IPUInfeedQueue(tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([], tf.float32)))
    _ = queue.initializer
    with pytest.raises(ERRORS.OpError, match="nothing on the shelf"):
        strategy.run(taker(queue), args=(2,))
    assert strategy.run(compiled(lambda: tf.constant(1.0) + 1)) == 2.0


def test_no_more_is_read_ahead_than_asked(strategy: IPUStrategyV1) -> None:
    read: list[float] = []

    def note(x: np.ndarray) -> np.ndarray:
        read.append(float(x))
        return x

    dataset = numbers().map(lambda x: tf.ensure_shape(tf.numpy_function(note, [x], tf.float32), []))
    options = tf.data.Options()
    # Otherwise TensorFlow lets maps read ahead, too.
    options.experimental_optimization.apply_default_optimizations = False
    options.autotune.enabled = False
    queue = IPUInfeedQueue(dataset.with_options(options), prefetch_depth=4)
    _ = queue.initializer
    assert not read
    assert strategy.run(taker(queue), args=(10,)) == 45.0
    wait_for(lambda: len(read) >= 14)
    time.sleep(0.05)
    assert read == list(range(14))


def test_a_queue_without_holders_ends_its_thread(strategy: IPUStrategyV1) -> None:
    import threading

    before = {thread for thread in threading.enumerate() if thread.name == "ipu-infeed"}
    queue = IPUInfeedQueue(numbers())
    _ = queue.initializer
    take = taker(queue)
    strategy.run(take, args=(2,))
    (mine,) = {thread for thread in threading.enumerate() if thread.name == "ipu-infeed"} - before
    del queue, take
    gc.collect()
    mine.join(PATIENCE_SECONDS)
    assert not mine.is_alive()
