"""Asynchronous callbacks of pipelined models get steps in order, while later micro-batches are computed."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from ipu.config import IPUConfig
from ipu.ipu_strategy import IPUStrategy
from ipu.ops.pipelining_ops import PipelineSchedule
from tests.keras.helpers import CLASSES, FEATURES, Kit, data, keras3_only
from tests.keras.pipelines import BATCH, loss_of, mlp, set_stages, twins
from tests.keras.test_asynchronous_callbacks import every_step, recorder

STEPS = 8


def models_for(kit: Kit, steps: int = STEPS, **pipelining: Any) -> tuple[Any, Any]:
    """The model without stages, which takes one step at a time, and the pipelined model."""
    plain, pipelined = twins(kit, mlp, [0, 0, 1, 1], 4, **pipelining)
    loss = loss_of(kit)
    plain.compile("sgd", loss, metrics=["accuracy"], steps_per_execution=1)
    pipelined.compile("sgd", loss, metrics=["accuracy"], steps_per_execution=steps)
    pipelined.set_asynchronous_callbacks(True)
    return plain, pipelined


def run(model: Any, method: str, callback: Any, steps: int = STEPS) -> Any:
    x, y = data(steps * BATCH)
    given = (x,) if method == "predict" else (x, y)
    more = {"shuffle": False} if method == "fit" else {}
    return getattr(model, method)(*given, batch_size=BATCH, verbose=0, callbacks=[callback], **more)


def assert_same_calls(received: Any, expected: Any, steps: int = STEPS) -> None:
    assert received.calls == expected.calls == every_step(steps)
    assert received.threads == {"ipu-callbacks"}
    for one, other in zip(received.logs, expected.logs, strict=True):
        assert one.keys() == other.keys()
        for key in one:
            np.testing.assert_array_equal(one[key], other[key])


@pytest.mark.sample(1)
@pytest.mark.parametrize("schedule", list(PipelineSchedule))
@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_each_step_with_its_own_logs(kit: Kit, method: str, schedule: PipelineSchedule) -> None:
    plain, pipelined = models_for(kit, pipeline_schedule=schedule)
    expected, received = recorder(kit.keras), recorder(kit.keras)
    results = run(plain, method, expected), run(pipelined, method, received)
    np.testing.assert_array_equal(*results)
    assert_same_calls(received, expected)
    again = recorder(kit.keras)
    run(pipelined, method, again)
    assert_same_calls(again, expected)
    pipelined.set_asynchronous_callbacks(False)
    once = recorder(kit.keras)
    np.testing.assert_array_equal(run(pipelined, method, once), results[0])
    assert once.calls == [("begin", 0), ("end", STEPS - 1)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("schedule", list(PipelineSchedule))
@pytest.mark.parametrize("replicas", [1, 2])
def test_each_step_of_fit(kit: Kit, schedule: PipelineSchedule, replicas: int) -> None:
    """Logs equal those of the model without stages that accumulates as many micro-batches."""
    received, results = [], []
    config = IPUConfig()
    for model, ipus in zip(twins(kit, mlp, [0, 0, 1, 1], 4, pipeline_schedule=schedule), (1, 2), strict=True):
        config.auto_select_ipus = ipus * replicas
        config.configure_ipu_system()
        model.set_asynchronous_callbacks(True)
        received.append(recorder(kit.keras))
        results.append(run(model, "fit", received[-1], steps=8 * replicas).history)
    assert results[0] == results[1]
    assert_same_calls(received[1], received[0], 8)
    assert len({float(logs["loss"]) for logs in received[1].logs}) == 8


@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_callbacks_come_while_the_pipeline_runs(kit: Kit, method: str) -> None:
    """The pipeline has space for one result, and cannot end before the first callbacks have returned."""
    _, model = models_for(kit)
    model.set_outfeed_queue_options(buffer_depth=1)
    run(model, method, recorder(kit.keras))  # compiles
    running: list[bool] = []
    variable = kit.variable(model.weights[0])

    def look(batch: int, logs: Any, model: Any) -> None:
        is_free = variable.execution_lock.acquire(blocking=False)
        if is_free:  # the last callbacks may find it free
            variable.execution_lock.release()
        running.append(not is_free)

    received = recorder(kit.keras, look)
    run(model, method, received)
    assert received.calls == every_step(STEPS)
    assert running[:4] == [True] * 4


@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_replicas(kit: Kit, method: str) -> None:
    """A call for each step of all replicas, as without stages."""
    plain, pipelined = models_for(kit, steps=4)
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    expected, received = recorder(kit.keras), recorder(kit.keras)
    one = run(plain, method, expected)
    config.auto_select_ipus = 4
    config.configure_ipu_system()
    other = run(pipelined, method, received)
    np.testing.assert_array_equal(one, other)
    assert_same_calls(received, expected, STEPS // 2)


def test_an_exception_in_a_callback(kit: Kit) -> None:
    def fail(batch: int, logs: Any, model: Any) -> None:
        if batch == 2:
            raise OSError("disk full")

    _, model = models_for(kit)
    model.set_outfeed_queue_options(buffer_depth=1)
    callback = recorder(kit.keras, fail)
    with pytest.raises(OSError, match="disk full"):
        run(model, "predict", callback)
    assert callback.calls == every_step(3)
    assert "ipu-callbacks" not in [thread.name for thread in threading.enumerate()]
    run(model, "predict", recorder(kit.keras))


@keras3_only  # tf_keras does not stop
def test_stop_predicting(kit: Kit) -> None:
    def stop(batch: int, logs: Any, model: Any) -> None:
        model.stop_predicting = batch == 1

    _, model = models_for(kit, steps=4)
    model.set_outfeed_queue_options(buffer_depth=1)
    callback = recorder(kit.keras, stop)
    predicted = run(model, "predict", callback)
    assert callback.calls == every_step(2)
    assert predicted.shape == (4 * BATCH, CLASSES)  # the first execution ran to its end


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_accumulated_outfeeds_ignore_them_but_in_predict(kit: Kit, method: str) -> None:
    _, model = models_for(kit, accumulate_outfeed=True)
    callback = recorder(kit.keras)
    run(model, method, callback)
    assert callback.calls == (every_step(STEPS) if method == "predict" else [("begin", 0), ("end", STEPS - 1)])
    assert callback.threads == {"ipu-callbacks" if method == "predict" else "MainThread"}


def test_validation_in_fit(kit: Kit) -> None:
    _, model = models_for(kit)
    x, y = data(STEPS * BATCH)
    callback = recorder(kit.keras)
    model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[callback], validation_data=(x, y))
    assert callback.calls == 2 * every_step(STEPS)


def test_several_outputs_of_different_shapes(kit: Kit) -> None:
    """Outputs are in the order of the model's own structure, not of their names."""
    layers = kit.keras.layers
    with IPUStrategy().scope():
        inputs = kit.keras.Input((FEATURES,))
        x = layers.Dense(6, "tanh")(inputs)
        outputs = {"z": layers.Dense(2)(x), "a": layers.Dense(3)(x), "m": layers.Dense(2)(x)}
        model = kit.keras.Model(inputs, outputs)
        model.compile("sgd", "mse", steps_per_execution=STEPS)
    set_stages(model, [0, 1, 1, 1])
    model.set_asynchronous_callbacks(True)
    callback = recorder(kit.keras)
    predicted = run(model, "predict", callback)
    for name, rows in predicted.items():
        # Keras 3 puts the items of a dictionary among the logs.
        each = [logs.get("outputs", logs)[name] for logs in callback.logs]
        np.testing.assert_array_equal(np.concatenate(each), rows)
    x, _ = data(STEPS * BATCH)
    expected = model(x)
    for name, rows in predicted.items():
        np.testing.assert_allclose(rows, expected[name], rtol=1e-4, atol=1e-5)
