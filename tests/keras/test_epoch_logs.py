"""An epoch's logs are those of its last step, unless the metrics would give other results when asked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import CLASSES, FEATURES, data

Change = Callable[[keras.Model], None]


class CountsItsResults(keras.metrics.Mean):
    """A metric of a user's that counts how often it is asked, and changes its answer."""

    asked = 0

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        return super().update_state(keras.ops.mean(y_pred), sample_weight)

    def result(self) -> Any:
        self.asked += 1
        return super().result() + self.asked


class OwnStep(keras.Sequential):
    """A model whose step reports a loss that is not the metric's."""

    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        return {**logs, "loss": logs["loss"] + 1.0}


class After(keras.callbacks.Callback):
    """A callback that does something to its model after the last execution of an epoch."""

    def __init__(self, change: Change, last: int) -> None:
        super().__init__()
        self.change, self.last = change, last

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch >= self.last:
            self.change(self.model)


def history(
    strategy: Any, kind: type = keras.Sequential, metric: Any = "accuracy", change: Change | None = None
) -> Any:
    """The logs of two epochs, and the result of `evaluate`."""
    keras.utils.set_random_seed(3)
    features, labels = data(24)
    with strategy.scope():
        metrics = [metric() if isinstance(metric, type) else metric]
        model = kind([keras.layers.Input((FEATURES,)), keras.layers.Dense(CLASSES, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy", metrics=metrics, steps_per_execution=2)
        model.run_eagerly = not isinstance(strategy, IPUStrategy)
    callbacks = [] if change is None else [After(change, 2)]
    found = model.fit(features, labels, 8, 2, verbose=0, callbacks=callbacks, shuffle=False)
    return found.history, model.evaluate(features, labels, 8, verbose=0, return_dict=True)


def evaluated(model: keras.Model) -> None:
    features, labels = data(16, seed=1)
    model.evaluate(features, labels, 8, verbose=0)


def reset(model: keras.Model) -> None:
    model.reset_metrics()


def counted_once_more(model: keras.Model) -> None:
    total = model.metrics[0].variables[0]
    total.assign(total + 5.0)


def given_by_numpy(model: keras.Model) -> None:
    model.metrics[0].variables[0].assign(np.float32(7.0))


def looked_at(model: keras.Model) -> None:
    assert np.isfinite(float(model.metrics[0].result()))


@pytest.mark.sample(2)
@pytest.mark.parametrize("change", [None, evaluated, reset, counted_once_more, given_by_numpy, looked_at])
@pytest.mark.parametrize("kind", [keras.Sequential, OwnStep])
def test_epochs_report_the_values_of_keras(kind: type, change: Change | None) -> None:
    on_keras = history(keras_scope(), kind, change=change)
    on_ipu = history(IPUStrategy(), kind, change=change)
    assert on_keras[0].keys() == on_ipu[0].keys()
    for name, values in on_keras[0].items():
        np.testing.assert_allclose(on_ipu[0][name], values, rtol=1e-5, atol=1e-6)
    for name, value in on_keras[1].items():
        np.testing.assert_allclose(on_ipu[1][name], value, rtol=1e-5, atol=1e-6)


def keras_scope() -> Any:
    """A strategy's scope for models on TensorFlow."""
    return tf.distribute.get_strategy()


def asked_at_ends(monkeypatch: pytest.MonkeyPatch, metric: Any, change: Change | None = None) -> int:
    """Number of times that the loss is asked for its result at an epoch's end."""
    asked = 0
    original = keras.metrics.Mean.result

    def result(self: Any) -> Any:
        nonlocal asked
        asked += self.name == "loss" and tf.executing_eagerly()
        return original(self)

    monkeypatch.setattr(keras.metrics.Mean, "result", result)
    history(IPUStrategy(), metric=metric, change=change)
    return asked


def test_known_results_are_not_requested(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked_at_ends(monkeypatch, "accuracy") == 0


@pytest.mark.parametrize(("metric", "change"), [(CountsItsResults, None), ("accuracy", reset), ("accuracy", evaluated)])
def test_what_may_have_changed_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, metric: Any, change: Change | None
) -> None:
    assert asked_at_ends(monkeypatch, metric, change) >= 2


@pytest.mark.parametrize("rows", [24, 22])
@pytest.mark.parametrize("has_open_rows", [False, True])
def test_losses_of_outputs_weigh_batches_as_keras_does(rows: int, has_open_rows: bool) -> None:
    features, labels = data(rows)
    dataset = tf.data.Dataset.from_tensor_slices((features, (labels, labels[::-1].copy()))).batch(8)
    if not has_open_rows:
        dataset = dataset.take(rows // 8).apply(tf.data.experimental.assert_cardinality(rows // 8))
        dataset = dataset.map(lambda x, y: (tf.ensure_shape(x, (8, FEATURES)), y))

    def results(strategy: Any) -> list[Any]:
        keras.utils.set_random_seed(4)
        with strategy.scope():
            inputs = keras.Input((FEATURES,))
            model = keras.Model(inputs, [keras.layers.Dense(CLASSES, "softmax", name=name)(inputs) for name in "ac"])
            model.compile("sgd", "sparse_categorical_crossentropy")
        logs = model.fit(dataset, epochs=2, shuffle=False, verbose=0).history
        states = [variable.numpy() for metric in model.metrics for variable in metric.variables]
        return [*logs.values(), *states, model.evaluate(dataset, verbose=0)]

    for here, plain in zip(results(IPUStrategy()), results(keras_scope()), strict=True):
        np.testing.assert_allclose(here, plain, rtol=1e-5)


class Most(keras.metrics.Metric):
    """A metric whose state begins with ones, and is zero after a reset."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.most = self.add_weight(name="most", shape=(), initializer="ones")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.most.assign(keras.ops.maximum(self.most, keras.ops.max(y_pred)))

    def result(self) -> Any:
        return self.most + 0.0


@pytest.mark.parametrize("method", ["fit", "train_on_batch", "evaluate"])
def test_metrics_are_not_reset_before_their_first_batch(method: str) -> None:
    def results(scope: Any) -> list[Any]:
        keras.utils.set_random_seed(1)
        with scope:
            layers = [keras.layers.Input((FEATURES,)), keras.layers.Dense(CLASSES, "softmax")]
            model = keras.Sequential(layers)
            model.compile("sgd", "sparse_categorical_crossentropy", metrics=[Most(name="most")])
        x, y = data(16)
        first = model.fit(x, y, epochs=1, verbose=0).history if method == "fit" else getattr(model, method)(x, y)
        return [first, model.fit(x, y, epochs=2, verbose=0).history["most"]]

    with_engine, plain = results(IPUStrategy().scope()), results(nullcontext())
    assert str(plain[0]).count("1.0") >= 1
    tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), with_engine, plain)
