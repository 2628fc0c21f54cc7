"""`iter(dataset)` in the strategy's scope, and when TensorFlow's own iterators are returned instead."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import UnsupportedOperation
from ipu.ipu_infeed_queue import IPUIterator, IPUOwnedIterator
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategy, IPUStrategyV1
from tests.keras.helpers import Kit
from tests.strategy.helpers import compiled, numbers


def test_next_takes_elements_on_the_device(strategy: IPUStrategyV1) -> None:
    @compiled
    def step(iterator: Any, n: int, queue: IPUOutfeedQueue) -> None:
        for _ in tf.range(n):
            x, y = next(iterator)
            queue.enqueue(x + y)

    with strategy.scope():
        iterator = iter(numbers().map(lambda x: (x, 10 * x)))
        assert isinstance(iterator, IPUOwnedIterator) and iter(iterator) is iterator
        queue = IPUOutfeedQueue()
        strategy.run(step, args=(iterator, 3, queue))
        strategy.run(step, args=[iterator, 2, queue])
    np.testing.assert_array_equal(queue.dequeue(), 11 * np.arange(5))


def test_what_an_iterator_refuses(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        iterator = iter(numbers())
        with pytest.raises(RuntimeError, match=r"next\(\).*inside a tf.function.*any tf.function.*on the host"):
            next(iterator)
        with pytest.raises(NotImplementedError, match="get_next_as_optional"):
            iterator.get_next_as_optional()
        with pytest.raises(ValueError, match="drop_remainder=True"):
            iter(numbers().batch(3))
        with pytest.raises(tf.errors.FailedPreconditionError, match="Unsupported datatype int64"):
            iter(tf.data.Dataset.range(3))
    with pytest.raises(ValueError, match="Received: None"):
        IPUIterator()


def test_an_iterator_from_outside_of_the_scope_is_refused_by_its_remedy(strategy: IPUStrategyV1) -> None:
    @compiled
    def step(iterator: Any) -> Any:
        return next(iterator)

    iterator = iter(numbers())
    with pytest.raises(UnsupportedOperation, match=r"Received: 'iterator.*iter\(dataset\), in the strategy's scope"):
        strategy.run(step, args=(iterator,))
    assert next(iterator).numpy() == 0


def test_who_gets_ordinary_iterators(strategy: IPUStrategyV1) -> None:
    assert [float(x) for x in numbers(3)] == [0.0, 1.0, 2.0]
    with strategy.scope():
        assert [float(x) for x in numbers(3).as_numpy_iterator()] == [0.0, 1.0, 2.0]
        assert float(numbers(3).reduce(0.0, lambda a, b: a + b)) == 3.0
        assert float(numbers(1).get_single_element()) == 0.0
    with IPUStrategy(enable_dataset_iterators=False).scope():
        assert [float(x) for x in numbers(3)] == [0.0, 1.0, 2.0]
    with tf.distribute.OneDeviceStrategy("/device:CPU:0").scope():
        assert [float(x) for x in numbers(3)] == [0.0, 1.0, 2.0]


def test_keras_gets_ordinary_iterators(strategy: IPUStrategyV1, kit: Kit) -> None:
    data = numbers(8, (3,)).batch(4).map(lambda x: (x, x[:, :1]))
    with strategy.scope():
        normalization = kit.keras.layers.Normalization()
        normalization.adapt(numbers(8, (3,)).batch(4))
        model = kit.keras.Sequential([normalization, kit.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        history = model.fit(data, epochs=2, verbose=0, shuffle=False)
    assert len(history.history["loss"]) == 2
    np.testing.assert_allclose(np.asarray(normalization.mean).reshape(-1), np.full(3, 3.5), rtol=1e-6)


def test_an_iterator_deletes_its_queue(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        iterator = iter(numbers())
    endpoint = weakref.ref(iterator._infeed_queue._endpoint)

    @compiled
    def step(iterator: Any) -> tf.Tensor:
        return next(iterator)

    assert strategy.run(step, args=(iterator,)) == 0.0
    del iterator
    gc.collect()
    assert endpoint() is None


def test_for_loops_over_an_iterator_or_a_dataset_are_refused(strategy: IPUStrategyV1) -> None:
    """The device does not see the end of a data set, and TensorFlow would trace the body for ever."""
    with strategy.scope():
        dataset = numbers(5)
        iterator = iter(dataset)

    def total(source: Any) -> tf.Tensor:
        result = 0.0
        for x in source:
            result += x
        return result

    with pytest.raises(NotImplementedError, match="n the number of elements"):
        strategy.run(compiled(lambda: total(iterator)))
    with pytest.raises(UnsupportedOperation, match=r"call next\(\) on it"):
        strategy.run(compiled(lambda: total(dataset)))
