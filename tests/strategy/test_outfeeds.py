"""IPUOutfeedQueue: its modes, structures and errors, and elements that arrive while the program still runs."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu import loops
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedMode, IPUOutfeedQueue, ScopedIPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from tests.interrupting import PATIENCE_SECONDS, wait_for
from tests.strategy.helpers import compiled, numbers, replicas, unconverted

FailedPrecondition = tf.errors.FailedPreconditionError


def counter(queue: IPUOutfeedQueue, element: Any = lambda i: i) -> Any:
    """A function of n that enqueues `element` of 0, 1, ... n - 1."""

    @unconverted
    def count(n: int) -> None:
        def body(i: tf.Tensor) -> Any:
            return i + 1, queue.enqueue(element(i))

        loops.repeat(n, body, [0])

    return count


def test_structures_come_back(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue()
    element = lambda i: {"b": (i, [i + 1]), "a": tf.cast([i, i], tf.float16)}  # noqa: E731
    strategy.run(counter(queue, element), args=(3,))
    rows = queue.dequeue()
    assert list(rows) == ["b", "a"] and isinstance(rows["b"], tuple) and isinstance(rows["b"][1], list)
    np.testing.assert_array_equal(rows["b"][0], [0, 1, 2])
    np.testing.assert_array_equal(rows["b"][1][0], [1, 2, 3])
    assert rows["a"].dtype == tf.float16 and rows["a"].shape == (3, 2)


def test_rows_gather_until_they_are_dequeued(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue()
    count = counter(queue)
    assert queue.dequeue() == []
    strategy.run(count, args=(3,))
    strategy.run(count, args=(2,))
    np.testing.assert_array_equal(queue.dequeue(wait_for_completion=True), [0, 1, 2, 0, 1])
    nothing = queue.dequeue()
    assert nothing.shape == (0,) and nothing.dtype == tf.int32
    strategy.run(count, args=(1,))
    assert [int(i) for i in queue] == [0]
    assert list(queue) == []


def test_many_rows_through_a_small_buffer(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue(buffer_depth=1)
    element = lambda i: tf.fill([300, 1000], tf.cast(i, tf.float32))  # noqa: E731
    strategy.run(counter(queue, element), args=(60,))
    rows = queue.dequeue().numpy()
    assert rows.shape == (60, 300, 1000)
    np.testing.assert_array_equal(rows.min(axis=(1, 2)), np.arange(60))
    np.testing.assert_array_equal(rows.max(axis=(1, 2)), np.arange(60))


def test_a_hundred_thousand_rows_are_all_there(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue()
    strategy.run(counter(queue), args=(100_000,))
    np.testing.assert_array_equal(queue.dequeue(), np.arange(100_000))


def test_mode_last(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST)
    count = counter(queue, lambda i: (i, tf.stack([i, i])))
    with pytest.raises(FailedPrecondition, match="get the last value from an outfeed queue before it was executed"):
        queue.dequeue()
    strategy.run(count, args=(3,))
    strategy.run(count, args=(5,))
    number, pair = queue.dequeue()
    assert number == 4 and pair.shape == (2,)
    with pytest.raises(FailedPrecondition, match="each element can be dequeued once"):
        queue.dequeue()
    with pytest.raises(RuntimeError, match="mode ALL"):
        iter(queue)
    positional = IPUOutfeedQueue(IPUOutfeedMode.LAST)
    assert positional._outfeed_mode is IPUOutfeedMode.LAST


@pytest.mark.parametrize("count", [1, 2, 4])
def test_replicas_are_the_first_axis_of_a_row(strategy: IPUStrategyV1, count: int) -> None:
    replicas(count)
    axis = (count,) if count > 1 else ()
    everything, last = IPUOutfeedQueue(), IPUOutfeedQueue(outfeed_mode=IPUOutfeedMode.LAST)

    @unconverted
    def step() -> None:
        def body(i: tf.Tensor) -> Any:
            return i + 1.0, everything.enqueue(tf.fill([4, 4], i)), last.enqueue(tf.reduce_sum(i))

        loops.repeat(20, body, [0.0])

    strategy.run(step)
    rows = everything.dequeue()
    assert rows.shape == (20, *axis, 4, 4)
    np.testing.assert_array_equal(rows.numpy().reshape(20, -1)[:, -1], np.arange(20))
    np.testing.assert_array_equal(last.dequeue(), np.full(axis, 19.0))
    strategy.run(step)
    assert [row.shape for row in everything] == [(*axis, 4, 4)] * 20
    replicas(8)
    with pytest.raises(FailedPrecondition, match="from a program of 8 replicas"):
        strategy.run(step)


def test_one_enqueue_for_each_graph(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue()

    def twice() -> None:
        queue.enqueue(tf.constant(1.0))
        queue.enqueue(tf.constant(2.0))

    with pytest.raises(ValueError, match="An outfeed can only be enqueued once"):
        strategy.run(unconverted(twice))

    def in_a_loop_too() -> None:
        queue.enqueue(tf.constant(1.0))
        loops.repeat(2, lambda: queue.enqueue(tf.constant(2.0)))

    with pytest.raises(ValueError, match="An outfeed can only be enqueued once"):
        strategy.run(unconverted(in_a_loop_too))
    for value in (1.0, 2.0):
        strategy.run(unconverted(lambda value=value: queue.enqueue(tf.constant(value))))
    np.testing.assert_array_equal(queue.dequeue(), [1.0, 2.0])


def test_all_functions_enqueue_alike(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue()
    strategy.run(unconverted(lambda: queue.enqueue(tf.zeros([2]))))
    for other in (tf.zeros([3]), tf.zeros([2], tf.int32), (tf.zeros([2]),)):
        with pytest.raises(FailedPrecondition, match=r"to be alike: float32\[2\]. Received: .*\[[23]\]"):
            strategy.run(unconverted(lambda other=other: queue.enqueue(other)))
    _ = queue.deleter
    _ = queue.deleter
    strategy.run(unconverted(lambda: queue.enqueue(tf.zeros([3]))))
    assert queue.dequeue().shape == (1, 3)


def test_arguments_are_checked(strategy: IPUStrategyV1) -> None:
    with pytest.raises(ValueError, match="outfeed_mode to be an IPUOutfeedMode. Received: 'all'"):
        IPUOutfeedQueue(outfeed_mode="all")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="buffer_depth.*Nearest legal value: 1"):
        IPUOutfeedQueue(buffer_depth=0)
    with pytest.raises(ValueError, match="device_ordinal"):
        IPUOutfeedQueue(device_ordinal=-1)
    queue = IPUOutfeedQueue()
    with pytest.raises(RuntimeError, match="outside of any tf.function"):
        queue.enqueue(tf.constant(1.0))
    with pytest.raises(RuntimeError, match="in a function that runs elsewhere"):
        tf.function(lambda: queue.enqueue(tf.constant(1.0)))()
    with pytest.raises(ValueError, match="at least one tensor"):
        strategy.run(unconverted(lambda: queue.enqueue({})))
    with pytest.raises(RuntimeError, match="outside of tf.function"):
        strategy.run(unconverted(lambda: [x for x in queue]))
    assert isinstance(ScopedIPUOutfeedQueue(), IPUOutfeedQueue)


def test_enqueue_in_a_branch(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue()

    @compiled
    def step() -> None:
        for i in tf.range(10):
            if i % 3 == 0:
                queue.enqueue(i)

    strategy.run(step)
    np.testing.assert_array_equal(queue.dequeue(), [0, 3, 6, 9])


def test_rows_arrive_while_the_program_runs(strategy: IPUStrategyV1) -> None:
    """The program cannot end before the other thread has seen 50 rows, as its data set waits for that."""
    seen: list[int] = []
    running = threading.Event()
    enough = threading.Event()

    def gate(i: np.ndarray) -> np.ndarray:
        if i == 80:
            assert enough.wait(PATIENCE_SECONDS)
        return i

    dataset = numbers().map(lambda i: tf.ensure_shape(tf.numpy_function(gate, [i], tf.float32), []))
    infeed, outfeed = IPUInfeedQueue(dataset, prefetch_depth=1), IPUOutfeedQueue()
    _ = infeed.initializer

    def has_seen_all() -> bool:
        seen.extend(int(row) for row in outfeed)
        if len(seen) >= 50:
            enough.set()
        return len(seen) == 100

    def watch() -> None:
        running.wait(PATIENCE_SECONDS)
        wait_for(has_seen_all)

    @unconverted
    def step() -> None:
        loops.repeat(100, lambda x: outfeed.enqueue(x), [], infeed)

    watcher = threading.Thread(target=watch)
    watcher.start()
    running.set()
    strategy.run(step)
    assert enough.is_set()
    watcher.join()
    assert seen == list(range(100))


def test_waiting_for_completion_in_another_thread(strategy: IPUStrategyV1) -> None:
    """The program runs when the other thread begins to wait, and continues for a while."""
    queue = IPUOutfeedQueue()
    waits, counted = threading.Event(), []

    def gate(i: np.ndarray) -> np.ndarray:
        if i == 10:
            assert waits.wait(PATIENCE_SECONDS)
        time.sleep(0.02)
        return i

    dataset = numbers().map(lambda i: tf.ensure_shape(tf.numpy_function(gate, [i], tf.float32), []))
    infeed = IPUInfeedQueue(dataset, prefetch_depth=1)
    _ = infeed.initializer

    def wait() -> None:
        assert wait_for(lambda: queue._endpoint._running > 0)
        waits.set()
        counted.append(len(queue.dequeue(wait_for_completion=True)))

    @unconverted
    def step() -> None:
        loops.repeat(20, lambda x: queue.enqueue(x), [], infeed)

    waiter = threading.Thread(target=wait)
    waiter.start()
    strategy.run(step)
    waiter.join()
    assert counted == [20]


def test_the_thread_of_all_outfeeds_ends_when_no_program_runs_and_comes_back(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue()
    count = counter(queue)
    for _ in range(2):
        strategy.run(count, args=(3,))
        assert wait_for(lambda: "ipu-outfeeds" not in [thread.name for thread in threading.enumerate()])
        np.testing.assert_array_equal(queue.dequeue(), [0, 1, 2])
