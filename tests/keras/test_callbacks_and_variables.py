"""Asynchronous callbacks that look at variables while the engine waits for them: neither waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.runtime import rings
from ipu.config import IPUConfig
from ipu.ops.pipelining_ops import PipelineSchedule
from keras_ext.extensions import PipelineStage
from tests.keras.helpers import Kit, keras3_only
from tests.keras.test_asynchronous_callbacks import STEPS, X, Y, asynchronous, every_step, recorder, run

PATIENCE_SECONDS = 120.0


def bounded(work: Callable[[], Any]) -> Any:
    """Returns or raises what `work` does, in a thread of its own: one that hangs fails the test, and no other waits."""
    results: list[Any] = []
    failures: list[BaseException] = []

    def run_it() -> None:
        try:
            results.append(work())
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run_it, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), "the engine and a callback wait for each other"
    if failures:
        raise failures[0]
    return results[0]


def fit_looking(model: Any, keras: Any, look: Callable[[Any], Any], **arguments: Any) -> list[Any]:
    """Values that a callback sees at the end of each step of `fit`, which reports all of them."""
    looks: list[Any] = []
    callback = recorder(keras, lambda batch, logs, model: looks.append(look(model)))
    bounded(lambda: run(model, "fit", callback, **arguments))
    assert callback.calls == every_step(STEPS) * arguments.get("epochs", 1)
    return looks


def first_weight(model: Any) -> np.ndarray:
    return np.array(model.get_weights()[0])


@pytest.mark.parametrize("depth", [1, 3])
def test_weights_are_those_after_the_execution(kit: Kit, keras: Any, depth: int) -> None:
    model, twin = asynchronous(kit, steps_per_execution=5), kit.ipu_model(steps_per_execution=5)
    twin.set_weights(model.get_weights())
    model.set_outfeed_queue_options(buffer_depth=depth)
    looks = fit_looking(model, keras, first_weight)
    twin.fit(X[:40], Y[:40], batch_size=8, shuffle=False, verbose=0)
    for look in looks[:5]:
        np.testing.assert_array_equal(look, twin.get_weights()[0])
    twin.fit(X[40:], Y[40:], batch_size=8, shuffle=False, verbose=0)
    for look in looks[5:]:
        np.testing.assert_array_equal(look, twin.get_weights()[0])


def test_the_engine_waits_again_after_a_look(kit: Kit, keras: Any) -> None:
    """Reading a variable lets the execution that it waits for go on, but no later one."""
    model = asynchronous(kit, steps_per_execution=5)
    model.set_outfeed_queue_options(buffer_depth=1)
    iterations = kit.variable(model.optimizer.iterations)
    done: list[int] = []

    def look(model: Any) -> None:
        if not done:
            model.get_weights()
        done.append(int(iterations._buffer.read()))  # the device's own copy, at once

    fit_looking(model, keras, look)
    assert done[:5] == [5] * 5
    assert done[5:] == [6, 7, 8, 9, 10]


@pytest.mark.parametrize("method", ["evaluate", "predict"])
def test_without_training(kit: Kit, keras: Any, method: str) -> None:
    model = asynchronous(kit)
    model.set_outfeed_queue_options(buffer_depth=1)
    callback = recorder(keras, lambda batch, logs, model: model.get_weights())
    bounded(lambda: run(model, method, callback))
    assert callback.calls == every_step(STEPS)


def test_a_callback_that_runs_the_model(kit: Kit, keras: Any) -> None:
    """The callback's execution waits for the one that is running, as reading a variable does."""
    model = asynchronous(kit)
    model.set_outfeed_queue_options(buffer_depth=1)
    looks = fit_looking(model, keras, lambda model: np.array(model.predict_on_batch(X[:8])))
    for look in looks:
        np.testing.assert_array_equal(look, model.predict_on_batch(X[:8]))


@pytest.mark.parametrize("depth", [None, 1])
def test_with_accumulation(kit: Kit, keras: Any, depth: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results wait in a ring, which without a depth is smaller than a long execution."""
    monkeypatch.setattr(rings, "MOST_SLOTS", 2)
    model, twin = asynchronous(kit), kit.ipu_model(steps_per_execution=STEPS)
    twin.set_weights(model.get_weights())
    for each in (model, twin):
        each.set_gradient_accumulation_options(5)
    if depth is not None:
        model.set_outfeed_queue_options(buffer_depth=depth)
    looks = fit_looking(model, keras, first_weight, epochs=2)
    run(twin, "fit", recorder(keras))
    for look in looks[:STEPS]:
        np.testing.assert_array_equal(look, twin.get_weights()[0])
    np.testing.assert_array_equal(looks[-1], model.get_weights()[0])


@keras3_only
def test_with_stages(kit: Kit, keras: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "MOST_SLOTS", 2)
    config = IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()

    def build() -> Any:
        inputs = keras.Input((X.shape[1],))
        with PipelineStage(0):
            hidden = keras.layers.Dense(6, "relu")(inputs)
        with PipelineStage(1):
            outputs = keras.layers.Dense(3, "softmax")(hidden)
        return keras.Model(inputs, outputs)

    model = asynchronous(kit, build=build)
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=10, pipeline_schedule=PipelineSchedule.Sequential
    )
    looks = fit_looking(model, keras, first_weight)
    for look in looks:
        np.testing.assert_array_equal(look, model.get_weights()[0])


def test_checkpoints(kit: Kit, keras: Any, tmp_path: Path) -> None:
    model = asynchronous(kit)
    model.set_outfeed_queue_options(buffer_depth=1)
    path = tmp_path / "at.weights.h5"
    saving = keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=2)
    bounded(lambda: run(model, "fit", saving))
    saved = kit.sequential()
    saved.load_weights(path)
    for received, expected in zip(saved.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(received, expected)


def test_an_exception_after_a_look(kit: Kit, keras: Any) -> None:
    def fail(model: Any) -> None:
        model.get_weights()
        raise OSError("disk full")

    model = asynchronous(kit)
    model.set_outfeed_queue_options(buffer_depth=1)
    with pytest.raises(OSError, match="disk full"):
        fit_looking(model, keras, fail)
    assert int(kit.variable(model.optimizer.iterations).numpy()) == STEPS
    fit_looking(model, keras, first_weight)
