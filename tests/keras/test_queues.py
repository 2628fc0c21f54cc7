"""What the depths of the queues do, and what the report of a run says about them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from keras_ext.queue_report import QueueReport, queue_report
from tests.keras.helpers import Kit, data

X, Y = data(8)
EXECUTIONS, STEPS = 8, 2
PAUSE = 0.06
"""Seconds that a batch takes to be made where the engine is to wait: much more than it needs for a step."""
SIGNATURE = (tf.TensorSpec([8, 5]), tf.TensorSpec([8], tf.int64))


def dataset(passes: list[list[int]], seconds: float = 0.0) -> Any:
    """A data set that notes the batches it makes in each pass, each of which takes a while."""

    def batches() -> Iterator[Any]:
        made: list[int] = []
        passes.append(made)
        for batch in range(EXECUTIONS * STEPS):
            time.sleep(seconds)
            made.append(batch)
            yield X, Y

    return tf.data.Dataset.from_generator(batches, output_signature=SIGNATURE)


def made_ahead(kit: Kit, depth: int | None) -> int:
    """How many batches have been made while the callback of the first execution waits for more."""
    model = kit.ipu_model(steps_per_execution=STEPS)
    if depth is not None:
        model.set_infeed_queue_options(prefetch_depth=depth)
    passes: list[list[int]] = []
    seen: list[int] = []

    def wait(batch: int, logs: Any) -> None:
        if not seen:
            counts = [-1]
            while counts[-1] != len(passes[-1]) or len(counts) < 9 or counts[-9] != counts[-1]:
                counts.append(len(passes[-1]))  # Keras 3 has built the model with another pass
                time.sleep(0.1)
            seen.append(counts[-1])

    callback = kit.keras.callbacks.LambdaCallback(on_train_batch_end=wait)
    steps = EXECUTIONS * STEPS
    model.fit(dataset(passes), steps_per_epoch=steps, shuffle=False, verbose=0, callbacks=[callback])
    return seen[0]


def test_so_many_executions_are_prepared_ahead(kit: Kit) -> None:
    usual, two, five = (made_ahead(kit, depth) for depth in (None, 2, 5))
    assert usual < two < five
    assert five - two == 3 * STEPS


def test_a_starved_infeed_is_reported(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    model = kit.ipu_model(steps_per_execution=STEPS)
    assert queue_report(model) == QueueReport()
    with caplog.at_level(logging.DEBUG, "ipu"):
        model.fit(dataset([], PAUSE), steps_per_epoch=EXECUTIONS * STEPS, shuffle=False, verbose=0)
    starved = queue_report(model)
    assert starved.executions == EXECUTIONS
    assert starved.infeed_waits >= EXECUTIONS - 1
    assert starved.infeed_seconds > PAUSE * STEPS * (EXECUTIONS - 2)
    lines = [record.getMessage() for record in caplog.records if "Queues of fit" in record.getMessage()]
    assert len(lines) == 1
    assert f"infeed_waits={starved.infeed_waits}" in lines[0]
    model.fit(np.tile(X, (16, 1)), np.tile(Y, 16), batch_size=8, verbose=0)
    assert queue_report(model).infeed_seconds < starved.infeed_seconds


@pytest.mark.parametrize("depth", [1, 3])
def test_a_full_outfeed_is_reported(kit: Kit, keras: Any, depth: int) -> None:
    steps = 10
    model = kit.ipu_model(steps_per_execution=steps)
    model.set_asynchronous_callbacks(True)
    model.set_outfeed_queue_options(buffer_depth=depth)
    slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.02))
    model.fit(np.tile(X, (steps, 1)), np.tile(Y, steps), batch_size=8, verbose=0, callbacks=[slow])
    assert 1 <= queue_report(model).outfeed_waits <= steps - depth
    model.set_outfeed_queue_options()
    model.fit(np.tile(X, (steps, 1)), np.tile(Y, steps), batch_size=8, verbose=0, callbacks=[slow])
    assert queue_report(model).outfeed_waits == 0


def test_reports_of_evaluation_and_training_are_apart(kit: Kit) -> None:
    model = kit.ipu_model(steps_per_execution=1)
    model.fit(X, Y, batch_size=2, verbose=0, validation_data=(X, Y), validation_batch_size=4)
    assert (queue_report(model).executions, queue_report(model, "test").executions) == (4, 2)
