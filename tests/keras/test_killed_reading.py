"""The thread that reads batches ahead is killed at any of its waits: the next call raises the error, never waits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest

from engine.errors import InternalError
from ipu.ipu_strategy import IPUStrategy
from keras_ext.epochs.read_ahead import ReadAhead
from tests.keras.helpers import data
from tests.strategy.test_killed_threads import Killed, called

NAME = "ipu-read-ahead"


class KillingArray:
    """An array that kills the thread that reads it."""

    shape, dtype, ndim = (8, 5), np.dtype(np.float32), 2

    def __array__(self, *arguments: Any, **named: Any) -> np.ndarray:
        raise Killed


def batches(number: int, wait: str) -> Iterator[Any]:
    """Batches for ever; the wait before the one of that number, or its conversion, kills the reading thread."""
    x, y = data(8)
    for current in range(1_000_000):
        if current == number:
            assert threading.current_thread().name == NAME
            if wait == "conversion":
                yield KillingArray(), y
            raise Killed
        time.sleep(0.001)
        yield x, y


@pytest.fixture(scope="module")
def model() -> keras.Model:
    """A model that takes two steps in each call of the engine."""
    with IPUStrategy().scope():
        model = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", steps_per_execution=2)
    return model


@pytest.mark.parametrize("wait", ["source", "conversion"])
@pytest.mark.parametrize("number", [3, 4, 9])
def test_fit_ends_and_the_next_one_trains(model: keras.Model, number: int, wait: str) -> None:
    before = int(model.optimizer.iterations.numpy())
    error = called(lambda: model.fit(batches(number, wait), epochs=3, steps_per_epoch=4, shuffle=False, verbose=0))
    assert isinstance(error, Killed), error
    assert "batches" in _functions(error) or wait == "conversion"
    done = int(model.optimizer.iterations.numpy()) - before
    assert done <= number
    assert called(lambda: model.fit(batches(-1, wait), epochs=2, steps_per_epoch=4, shuffle=False, verbose=0)) is None
    assert int(model.optimizer.iterations.numpy()) - before == done + 8


@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_other_methods_end(model: keras.Model, method: str) -> None:
    run: Callable[..., Any] = getattr(model, method)
    assert isinstance(called(lambda: run(batches(5, "source"), steps=8, verbose=0)), Killed)
    assert called(lambda: run(batches(-1, "source"), steps=8, verbose=0)) is None


def _functions(error: BaseException) -> list[str]:
    traceback, names = error.__traceback__, []
    while traceback is not None:
        names.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    return names


def stuck() -> tuple[ReadAhead, threading.Event]:
    """Data whose third batch waits for the event."""
    go = threading.Event()

    def batches() -> Iterator[Any]:
        yield data(8)
        yield data(8)
        go.wait(60)
        yield data(8)

    return ReadAhead(batches), go


def test_an_interrupted_wait_is_short_while_the_source_waits() -> None:
    source, go = stuck()
    iterator = iter(source)
    iterator.take(2)
    begin = time.monotonic()
    assert called(source.close) is None and time.monotonic() - begin < 30
    with pytest.raises(StopIteration):
        iterator.take(2)
    go.set()


def test_a_fork_has_no_thread_that_reads() -> None:
    source, go = stuck()
    iterator = iter(source)
    iterator.take(1)
    iterator.take(1)
    child = os.fork()
    if child == 0:
        try:
            iterator.take(1)
        except InternalError:
            os._exit(3)
        os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    go.set()
    assert iterator.take(1)[0].steps == 1
