"""Batch callbacks for each step while the engine runs: order, logs, stops and failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import Kit, data
from tests.keras.micro_batches import configure
from tests.keras.pipelines import loss_of

X, Y = data(80)
STEPS = 10


def recorder(keras: Any, at_end: Callable[[int, Any, Any], None] | None = None) -> Any:
    """A callback that notes every batch call and the thread it came in."""

    class Recorder(keras.callbacks.Callback):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[tuple[str, int]] = []
            self.logs: list[Any] = []
            self.threads: set[str] = set()

        def note(self, name: str, batch: int, logs: Any = None) -> None:
            self.calls.append((name, batch))
            if name == "end":
                self.logs.append(logs)
                self.threads.add(threading.current_thread().name)
                if at_end is not None:
                    at_end(batch, logs, self.model)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.note("begin", batch)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.note("end", batch, dict(logs))

        on_test_batch_begin, on_test_batch_end = on_train_batch_begin, on_train_batch_end
        on_predict_batch_begin, on_predict_batch_end = on_train_batch_begin, on_train_batch_end

    return Recorder()


def asynchronous(kit: Kit, **arguments: Any) -> Any:
    model = kit.ipu_model(**{"steps_per_execution": STEPS, **arguments})
    model.set_asynchronous_callbacks(True)
    return model


def run(model: Any, method: str, callback: Any, **arguments: Any) -> Any:
    data = (X,) if method == "predict" else (X, Y)
    more = {"shuffle": False} if method == "fit" else {}
    return getattr(model, method)(*data, batch_size=8, verbose=0, callbacks=[callback], **more, **arguments)


def every_step(steps: int) -> list[tuple[str, int]]:
    return [(name, step) for step in range(steps) for name in ("begin", "end")]


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("steps_per_execution", [STEPS, 4])
def test_each_step_in_order_with_its_own_logs(kit: Kit, keras: Any, method: str, steps_per_execution: int) -> None:
    single, model = kit.ipu_model(steps_per_execution=1), asynchronous(kit, steps_per_execution=steps_per_execution)
    model.set_weights(single.get_weights())
    expected, received = recorder(keras), recorder(keras)
    result, other = run(single, method, expected), run(model, method, received)
    assert received.calls == expected.calls == every_step(STEPS)
    assert received.threads == {"ipu-callbacks"}
    for one, two in zip(received.logs, expected.logs, strict=True):
        assert one.keys() == two.keys()
        for key in one:
            np.testing.assert_array_equal(one[key], two[key])
    if method == "fit":
        assert other.history == result.history
    else:
        np.testing.assert_array_equal(other, result)


def test_once_an_execution_when_not_asked_for(kit: Kit, keras: Any) -> None:
    callback = recorder(keras)
    model = asynchronous(kit, steps_per_execution=5)
    model.set_asynchronous_callbacks(False)
    run(model, "fit", callback)
    assert callback.calls == [("begin", 0), ("end", 4), ("begin", 5), ("end", 9)]
    assert callback.threads == {"MainThread"}


def test_steps_of_a_partial_batch_and_of_several_epochs(kit: Kit, keras: Any) -> None:
    callback = recorder(keras)
    model = asynchronous(kit)
    model.fit(X[:76], Y[:76], batch_size=8, epochs=2, verbose=0, callbacks=[callback])
    assert callback.calls == 2 * every_step(STEPS)


def test_validation_inside_fit(kit: Kit, keras: Any) -> None:
    callback = recorder(keras)
    model = asynchronous(kit)
    run(model, "fit", callback, validation_data=(X[:16], Y[:16]), validation_batch_size=8)
    assert callback.calls == every_step(STEPS) + every_step(2)


def test_callbacks_fire_while_the_engine_runs(kit: Kit, keras: Any) -> None:
    """The engine has space for one result: it cannot finish its steps before the callbacks have taken theirs."""
    seen: list[int] = []

    def look(batch: int, logs: Any, model: Any) -> None:
        time.sleep(0.02)
        seen.append(int(progress()))

    model = asynchronous(kit)
    model.set_outfeed_queue_options(buffer_depth=1)
    iterations = kit.variable(model.optimizer.iterations)

    def progress() -> int:
        # Reads the device's own copy, without waiting for the end of the execution.
        return int(iterations._buffer.read()) if iterations._buffer is not None else 0

    run(model, "fit", recorder(keras, look))
    assert seen == list(range(1, STEPS + 1))


@pytest.mark.sample(2)
@pytest.mark.parametrize("depth", [None, 1, 3])
def test_exception_in_a_callback_ends_after_a_whole_step(kit: Kit, keras: Any, depth: int | None) -> None:
    def fail(batch: int, logs: Any, model: Any) -> None:
        if batch == 3:
            raise OSError("disk full")

    model, twin = asynchronous(kit), kit.ipu_model()
    twin.set_weights(model.get_weights())
    if depth is not None:
        model.set_outfeed_queue_options(buffer_depth=depth)
    callback = recorder(keras, fail)
    with pytest.raises(OSError, match="disk full"):
        run(model, "fit", callback)
    assert callback.calls == every_step(4)
    done = int(kit.variable(model.optimizer.iterations).numpy())
    assert 4 <= done <= (STEPS if depth is None else 3 + depth)
    twin.fit(X[: 8 * done], Y[: 8 * done], batch_size=8, shuffle=False, verbose=0)
    for received, expected in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(received, expected)
    run(model, "fit", recorder(keras))
    assert "ipu-callbacks" not in [thread.name for thread in threading.enumerate()]


def test_stop_training_ends_after_a_whole_step(kit: Kit, keras: Any) -> None:
    def stop(batch: int, logs: Any, model: Any) -> None:
        if batch == 2:
            model.stop_training = True

    model = asynchronous(kit)
    model.set_outfeed_queue_options(buffer_depth=1)
    callback = recorder(keras, stop)
    history = run(model, "fit", callback, epochs=3)
    done = int(kit.variable(model.optimizer.iterations).numpy())
    assert callback.calls == every_step(3)
    assert done == 3
    assert len(history.history["loss"]) == 1


def test_a_callback_that_looks_at_weights_sees_the_execution_s_end(kit: Kit, keras: Any) -> None:
    looks: list[Any] = []
    model = asynchronous(kit, steps_per_execution=5)
    run(model, "fit", recorder(keras, lambda batch, logs, model: looks.append(model.get_weights()[0])))
    twin = kit.ipu_model(steps_per_execution=5)
    assert np.array_equal(looks[0], looks[4])
    assert np.array_equal(looks[9], model.get_weights()[0])
    assert not np.array_equal(looks[4], looks[5])
    del twin


def test_a_callback_that_assigns_is_heard_by_the_next_execution(kit: Kit, keras: Any) -> None:
    def stop_learning(batch: int, logs: Any, model: Any) -> None:
        if batch == 0:
            model.optimizer.learning_rate.assign(0.0)

    model = asynchronous(kit, steps_per_execution=5, optimizer=keras.optimizers.SGD(0.5))
    twin = kit.ipu_model(steps_per_execution=5, optimizer=keras.optimizers.SGD(0.5))
    twin.set_weights(model.get_weights())
    run(model, "fit", recorder(keras, stop_learning))
    twin.fit(X[:40], Y[:40], batch_size=8, shuffle=False, verbose=0)
    for received, expected in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(received, expected)


def test_single_batches_call_no_callbacks(kit: Kit) -> None:
    model = asynchronous(kit)
    model.train_on_batch(X[:8], Y[:8])
    assert model.predict_on_batch(X[:8]).shape == (8, 3)


def test_every_kind_of_model(kit: Kit, keras: Any) -> None:
    for build in (kit.functional, kit.Subclassed, kit.unbuilt):
        with IPUStrategy().scope():
            model = kit.compiled(build(), steps_per_execution=STEPS)
        model.set_asynchronous_callbacks(True)
        callback = recorder(keras)
        run(model, "fit", callback)
        assert callback.calls == every_step(STEPS)


@pytest.mark.sample(2)
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("depth", [None, 1])
def test_each_step_of_an_update_has_logs_of_its_own(kit: Kit, keras: Any, replicas: int, depth: int | None) -> None:
    """Logs equal those of an evaluation until the first update, and in the end those of a run without callbacks."""
    configure(replicas)
    steps, accumulated = STEPS // replicas, 5
    callback, evaluation = recorder(keras), recorder(keras)
    twin, model = kit.ipu_model(steps_per_execution=steps), asynchronous(kit, steps_per_execution=steps)
    twin.set_weights(model.get_weights())
    twin.set_asynchronous_callbacks(True)
    run(twin, "evaluate", evaluation)
    twin.set_asynchronous_callbacks(False)
    for each in (twin, model):
        each.set_gradient_accumulation_options(accumulated)
    if depth is not None:
        model.set_outfeed_queue_options(buffer_depth=depth)
    expected, history = run(twin, "fit", recorder(keras)).history, run(model, "fit", callback).history
    assert callback.calls == every_step(steps) and callback.threads == {"ipu-callbacks"}
    assert history == expected
    for received, wanted in zip(callback.logs[:accumulated], evaluation.logs, strict=False):
        assert received.keys() == wanted.keys()
        for name in received:
            np.testing.assert_allclose(received[name], wanted[name], rtol=1e-6)
    assert len({float(logs["loss"]) for logs in callback.logs}) == steps
    for one, other in zip(model.get_weights(), twin.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    run(model, "fit", recorder(keras))  # the same program again


def test_callbacks_come_before_the_update(kit: Kit, keras: Any) -> None:
    """The micro-batches of an update wait for earlier callbacks, as there is space for one result."""
    counts: list[int] = []
    model = asynchronous(kit)
    model.set_gradient_accumulation_options(5)
    model.set_outfeed_queue_options(buffer_depth=1)
    iterations = kit.variable(model.optimizer.iterations)

    def look(batch: int, logs: Any, model: Any) -> None:
        time.sleep(0.02)
        counts.append(int(iterations._buffer.read()) if iterations._buffer is not None else 0)

    run(model, "fit", recorder(keras, look))
    assert counts[:3] == [0, 0, 0] and len(counts) == STEPS


def test_logs_of_updated_variables_are_those_of_the_update(kit: Kit, keras: Any) -> None:
    """Variables have one value for each update, so its steps share it; steps without logs are reported, too."""

    class Own(keras.Model):  # type: ignore[name-defined, misc]
        tells = True

        def __init__(self) -> None:
            super().__init__()
            self.head = keras.layers.Dense(3)

        def call(self, x: Any) -> Any:
            return self.head(x)

        def train_step(self, data: Any) -> dict[str, Any]:
            x, _ = data
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(self(x, training=True)))
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
            )
            if not self.tells:
                return {}
            return {"loss": loss, "updated": tf.reduce_sum(tf.convert_to_tensor(self.head.kernel))}

    for tells in (True, False):
        with IPUStrategy().scope():
            model = Own()
            model.compile("sgd", loss_of(kit), steps_per_execution=STEPS)
        model.tells = tells
        model.set_asynchronous_callbacks(True)
        model.set_gradient_accumulation_options(5)
        callback = recorder(keras)
        run(model, "fit", callback)
        assert callback.calls == every_step(STEPS)
        if tells:
            sums = [float(logs["updated"]) for logs in callback.logs]
            assert len(set(sums[:5])) == len(set(sums[5:])) == 1 and sums[0] != sums[5]


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("depth", [None, 1])
def test_each_step_of_replicas(kit: Kit, keras: Any, method: str, depth: int | None) -> None:
    """One call reports a step of all replicas: the metrics of all, and predictions in the order of the data."""
    configure(2)
    steps = STEPS // 2
    single, model = kit.ipu_model(steps_per_execution=1), asynchronous(kit, steps_per_execution=steps)
    model.set_weights(single.get_weights())
    if depth is not None:
        model.set_outfeed_queue_options(buffer_depth=depth)
    expected, received = recorder(keras), recorder(keras)
    run(single, method, expected), run(model, method, received)
    assert received.calls == expected.calls == every_step(steps)
    assert received.params["steps"] == steps
    for one, two in zip(received.logs, expected.logs, strict=True):
        assert one.keys() == two.keys()
        for key in one:
            np.testing.assert_array_equal(one[key], two[key])
    if method == "predict":
        assert all(logs["outputs"].shape == (16, 3) for logs in received.logs)


def test_stops_after_a_whole_update_of_replicas(kit: Kit, keras: Any) -> None:
    def stop(batch: int, logs: Any, model: Any) -> None:
        if batch == 2:
            model.stop_training = True

    configure(2)
    model = asynchronous(kit, steps_per_execution=8)
    model.set_gradient_accumulation_options(2)
    model.set_outfeed_queue_options(buffer_depth=1)
    callback = recorder(keras, stop)
    model.fit(X[:64], Y[:64], batch_size=4, shuffle=False, verbose=0, callbacks=[callback])
    assert callback.calls == every_step(3), "nothing is told of the rest of the second update"
    # The third update may have begun by then, and then ends.
    assert int(kit.variable(model.optimizer.iterations).numpy()) in (2, 3)
