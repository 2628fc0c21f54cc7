"""Effects of the queues' depths, and what the report of a run says about them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.runtime.observer import RunningCall
from keras_ext.callback_thread import CallbackThread
from keras_ext.queue_report import QueueReport, queue_report
from tests.interrupting import wait_for
from tests.keras.helpers import Kit, data

X, Y = data(8)
EXECUTIONS, STEPS = 8, 2
PAUSE = 0.02
"""Seconds that it takes to make a batch, in tests where the engine must wait for it."""
SIGNATURE = (tf.TensorSpec([8, 5]), tf.TensorSpec([8], tf.int64))


def dataset(passes: list[list[int]], begin: Callable[[int], None] = lambda batch: None) -> Any:
    """A data set that notes the batches it makes, by pass; `begin` is called before each batch."""

    def batches() -> Iterator[Any]:
        made: list[int] = []
        passes.append(made)
        for batch in range(EXECUTIONS * STEPS):
            begin(batch)
            made.append(batch)
            yield X, Y

    return tf.data.Dataset.from_generator(batches, output_signature=SIGNATURE)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("depth", "executions"), [(None, 1), (2, 2), (5, 5)])
def test_so_many_executions_are_prepared_ahead(kit: Kit, depth: int | None, executions: int) -> None:
    """The depth decides how many batches are made while the callback of the first execution waits."""
    model = kit.ipu_model(steps_per_execution=STEPS)
    if depth is not None:
        model.set_infeed_queue_options(prefetch_depth=depth)
    passes: list[list[int]] = []
    seen: list[int] = []
    expected = (1 + executions) * STEPS

    def wait(batch: int, logs: Any) -> None:
        if not seen:
            wait_for(lambda: len(passes[-1]) >= expected)  # Keras 3 has built the model with another pass
            time.sleep(0.3)
            seen.append(len(passes[-1]))

    callback = kit.keras.callbacks.LambdaCallback(on_train_batch_end=wait)
    steps = EXECUTIONS * STEPS
    model.fit(dataset(passes), steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[callback])
    assert seen == [expected]


def test_a_starved_infeed_is_reported(
    kit: Kit, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No batch is begun before it is asked for, except those of the first execution."""
    asked, fetching = 0, QueueReport.fetching

    def noting(report: QueueReport) -> Any:
        nonlocal asked
        asked += 1
        return fetching(report)

    def begin(batch: int) -> None:
        wait_for(lambda: batch < STEPS or asked > batch // STEPS)
        time.sleep(PAUSE)

    monkeypatch.setattr(QueueReport, "fetching", noting)
    model = kit.ipu_model(steps_per_execution=STEPS)
    assert queue_report(model) == QueueReport()
    with caplog.at_level(logging.DEBUG, "ipu"):
        model.fit(dataset([], begin), steps_per_epoch=EXECUTIONS * STEPS, shuffle=False, verbose=0)
    starved = queue_report(model)
    assert starved.executions == EXECUTIONS
    assert starved.infeed_waits >= EXECUTIONS - 1
    assert starved.infeed_seconds > PAUSE * STEPS * (EXECUTIONS - 1)
    lines = [record.getMessage() for record in caplog.records if "Queues of fit" in record.getMessage()]
    assert len(lines) == 1
    assert f"infeed_waits={starved.infeed_waits}" in lines[0]


def test_arrays_are_ready(kit: Kit) -> None:
    """Arrays are ready at once; a fetch may still take long if others use the core, but not always."""
    model = kit.ipu_model(steps_per_execution=STEPS)

    def is_ready() -> bool:
        model.fit(np.tile(X, (16, 1)), np.tile(Y, 16), batch_size=8, shuffle=False, verbose=0)
        return queue_report(model).executions == EXECUTIONS and queue_report(model).infeed_waits == 0

    assert wait_for(is_ready)


@pytest.mark.parametrize("depth", [1, 3])
def test_a_full_outfeed_is_reported(kit: Kit, keras: Any, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 10
    model = kit.ipu_model(steps_per_execution=steps)
    model.set_asynchronous_callbacks(True)
    model.set_outfeed_queue_options(buffer_depth=depth)
    calls, begin = [], CallbackThread.begin

    def noting(thread: CallbackThread, call: RunningCall) -> None:
        calls.append(call)
        begin(thread, call)

    def wait(batch: int, logs: Any) -> None:
        if batch == 0:
            waited.append(wait_for(lambda: calls[-1].waits() > 0))

    waited: list[bool] = []
    monkeypatch.setattr(CallbackThread, "begin", noting)
    slow = keras.callbacks.LambdaCallback(on_train_batch_end=wait)
    model.fit(np.tile(X, (steps, 1)), np.tile(Y, steps), batch_size=8, verbose=0, callbacks=[slow])
    assert waited == [True]
    assert 1 <= queue_report(model).outfeed_waits <= steps - depth
    slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.02))
    model.set_outfeed_queue_options()
    model.fit(np.tile(X, (steps, 1)), np.tile(Y, steps), batch_size=8, verbose=0, callbacks=[slow])
    assert queue_report(model).outfeed_waits == 0


def test_reports_of_evaluation_and_training_are_apart(kit: Kit) -> None:
    model = kit.ipu_model(steps_per_execution=1)
    model.fit(X, Y, batch_size=2, verbose=0, validation_data=(X, Y), validation_batch_size=4)
    assert (queue_report(model).executions, queue_report(model, "test").executions) == (4, 2)
