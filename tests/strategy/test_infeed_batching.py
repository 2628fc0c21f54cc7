"""Infeeds whose elements tf.data batches, and infeeds where a program could notice that."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu._internal.queues.autotuning import without_idle_tuner
from ipu._internal.queues.batching import is_harmless, never_fails
from ipu.ipu_strategy import IPUStrategyV1
from tests.strategy.helpers import compiled

Dataset = tf.data.Dataset


def pair(x: tf.Tensor) -> Any:
    """A map function whose batching cannot be noticed."""
    return tf.cast(x, tf.float32) / 255.0, {"label": tf.one_hot(tf.cast(x, tf.int32), 3)}


def checked(x: tf.Tensor) -> tf.Tensor:
    """A map function that may fail."""
    return tf.debugging.check_numerics(tf.cast(x, tf.float32), "bad")


def called(x: tf.Tensor) -> tf.Tensor:
    """A map function that calls Python."""
    return tf.ensure_shape(tf.numpy_function(lambda y: y, [x], tf.int64), [])


HARMLESS = {
    "slices": lambda: Dataset.from_tensor_slices(np.ones((6, 2), np.float32)).shuffle(6).batch(2).repeat(),
    "tensors": lambda: Dataset.from_tensors(1.0).repeat(),
    "mapped": lambda: Dataset.range(5).map(pair).prefetch(2),
    "mapped in parallel": lambda: Dataset.range(5).map(pair, num_parallel_calls=2),
    "zipped": lambda: Dataset.zip((Dataset.range(3), Dataset.range(4).skip(1).take(2))),
}
NOTICED = {
    "generator": lambda: Dataset.from_generator(lambda: iter([1]), output_signature=tf.TensorSpec([], tf.int32)),
    "check": lambda: Dataset.range(5).map(checked),
    "python": lambda: Dataset.range(5).map(called).repeat(),
    "random": lambda: Dataset.range(5).map(lambda x: tf.random.uniform([2])),
    "unknown shapes": lambda: Dataset.range(5).batch(2).map(pair),
    "filter": lambda: Dataset.range(5).filter(lambda x: x > 1),
    "cache": lambda: Dataset.range(5).cache(),
    "one of two": lambda: Dataset.zip((Dataset.range(5), Dataset.range(5).map(called))),
}


def is_tuned(dataset: tf.data.Dataset) -> bool:
    return without_idle_tuner(dataset).options().autotune.enabled is not False


def test_only_steps_that_run_in_parallel_are_tuned() -> None:
    cases = HARMLESS | NOTICED
    assert {name for name in cases if is_tuned(cases[name]())} == {
        *("mapped", "mapped in parallel", "check", "python", "random", "unknown shapes", "one of two")
    }
    options = tf.data.Options()
    options.autotune.enabled = True
    assert is_tuned(Dataset.range(5).with_options(options))


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_datasets(name: str) -> None:
    assert is_harmless(HARMLESS[name]())


def test_datasets_that_never_fail() -> None:
    cases = HARMLESS | NOTICED
    failing = {name for name in cases if not never_fails(cases[name]())}
    assert failing == {"generator", "check", "python", "one of two"}
    assert not never_fails(Dataset.range(6).batch(4).map(lambda x: x + x[:2]))
    assert not never_fails(Dataset.range(6).filter(lambda x: checked(x) > 1.0))


@pytest.mark.parametrize("name", NOTICED)
def test_datasets_in_which_it_would_be_noticed(name: str) -> None:
    assert not is_harmless(NOTICED[name]())


@compiled
def total(iterator: Any, count: tf.Tensor) -> tf.Tensor:
    """The sum of the next `count` elements, which are small whole numbers."""
    result = 0.0
    for _ in tf.range(count):
        result += next(iterator)
    return result


def test_elements_put_together_come_in_order_to_the_last(strategy: IPUStrategyV1) -> None:
    """The 100 elements are not a multiple of tf.data's batch, nor of a run."""
    with strategy.scope():
        iterator = iter(Dataset.range(100).map(lambda i: tf.cast(i, tf.float32)))
    for start in range(0, 100, 20):
        assert strategy.run(total, args=(iterator, tf.constant(20))) == sum(range(start, start + 20))
    with pytest.raises(tf.errors.OutOfRangeError):
        strategy.run(total, args=(iterator, tf.constant(1)))


def test_elements_before_an_error_are_not_lost(strategy: IPUStrategyV1) -> None:
    values = np.arange(12, dtype=np.float32)
    values[10] = np.nan
    with strategy.scope():
        iterator = iter(Dataset.from_tensor_slices(values).map(lambda x: tf.debugging.check_numerics(x, "no number")))
    assert strategy.run(total, args=(iterator, tf.constant(6))) == 15
    assert strategy.run(total, args=(iterator, tf.constant(4))) == 6 + 7 + 8 + 9
    with pytest.raises(tf.errors.InvalidArgumentError, match="no number"):
        strategy.run(total, args=(iterator, tf.constant(1)))
