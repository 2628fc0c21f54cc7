"""Models that are not built are built where plain Keras traces their first step, not before their callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from ipu import accelerate
from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import CLASSES, FEATURES, MODELS, Kit, assert_close, data, keras3_only

SCOPES: dict[str, Callable[[], Any]] = {"ipu": lambda: IPUStrategy().scope(), "acc": accelerate}


def assert_same_events(kit: Kit, scope: str, program: Callable[[list[Any]], Any]) -> None:
    """Compares the events that a program appends to its list."""
    found: list[list[Any]] = []
    for make in (nullcontext, SCOPES[scope]):
        kit.keras.utils.set_random_seed(4)
        found.append([])
        with make():
            program(found[-1])
    wanted, got = ([(event[0], event[1:]) for event in events] for events in found)
    assert [name for name, _ in got] == [name for name, _ in wanted] != []
    assert_close([values for _, values in got], [values for _, values in wanted])


def looking(kit: Kit, events: list[Any], change: Callable[[Any], None] = lambda model: None) -> Any:
    """A callback that notes a model's weights, metrics and slots at each event; `change` is called as epochs begin."""

    class Looks(kit.keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        def note(self, event: str) -> None:
            metrics, optimizer = self.model.metrics, self.model.optimizer
            slots = len(optimizer.variables) if kit.is_keras3 else 0
            weights = sum(len(layer.weights) for layer in self.model.layers)
            events.append((event, weights, [len(each.variables) for each in metrics], slots))

        def on_train_begin(self, logs: Any = None) -> None:
            self.note("train begin")

        def on_test_begin(self, logs: Any = None) -> None:
            self.note("test begin")

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            change(self.model)
            self.note("epoch begin")

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.note(f"begin {batch}")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.note(f"end {batch}")

    return Looks()


def halve(model: Any) -> None:
    for layer in model.layers:
        layer.set_weights([weight / 2 for weight in layer.get_weights()])


@pytest.mark.sample(4)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("name", MODELS)
def test_callbacks_find_the_variables_of_plain_keras(kit: Kit, name: str, scope: str) -> None:
    x, y = data(22)

    def program(events: list[Any]) -> None:
        model = kit.compiled(getattr(kit, name)())
        looks, named = looking(kit, events, halve), {"verbose": 0, "batch_size": 8}
        events.append(("evaluate", model.evaluate(x, y, callbacks=[looks], **named)))
        history = model.fit(x, y, epochs=2, validation_data=(x, y), shuffle=False, callbacks=[looks], **named).history
        events.append(("end", list(history.values()), model.get_weights()))

    assert_same_events(kit, scope, program)


@keras3_only
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("name", MODELS)
def test_callbacks_of_a_first_fit_change_what_exists(kit: Kit, name: str, scope: str) -> None:
    x, y = data(22)

    def program(events: list[Any]) -> None:
        model = kit.compiled(getattr(kit, name)())
        history = model.fit(x, y, verbose=0, shuffle=False, callbacks=[looking(kit, events, halve)]).history
        events.append(("end", list(history.values()), model.get_weights()))

    assert_same_events(kit, scope, program)


@pytest.mark.sample(2)
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("width", [FEATURES, FEATURES + 1])
def test_a_model_that_cannot_be_built_keeps_what_callbacks_wrote(kit: Kit, width: int, scope: str) -> None:
    x, y = np.ones((8, width), np.float32), np.zeros((8, CLASSES + 1), np.float32)

    def program(events: list[Any]) -> None:
        model = kit.compiled(kit.sequential(), loss="mse", metrics=["mae"])
        with pytest.raises(ValueError) as error:
            model.fit(x, y, verbose=0, callbacks=[looking(kit, events, halve)])
        events.append((type(error.value).__name__, model.get_weights()))

    assert_same_events(kit, scope, program)


@keras3_only
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("kind", ["generator", "tf.data"])
def test_data_are_read_as_often_as_by_plain_keras(kit: Kit, kind: str, scope: str) -> None:
    x, y = data(24)

    def items(read: list[int]) -> Iterator[Any]:
        for index in range(3):
            read.append(index)
            yield x[8 * index : 8 * index + 8], y[8 * index : 8 * index + 8]

    def program(events: list[Any]) -> None:
        read: list[int] = []
        given: Any = items(read)
        if kind == "tf.data":
            specs = tf.TensorSpec((8, FEATURES), tf.float32), tf.TensorSpec((8,), tf.int64)
            given = tf.data.Dataset.from_generator(lambda: items(read), output_signature=specs)
        begin = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: events.append(("begin", *sorted(read))))
        model = kit.compiled(kit.unbuilt())
        model.fit(given, verbose=0, shuffle=False, callbacks=[begin], steps_per_epoch=3)
        events.append(("end", *sorted(read)))

    assert_same_events(kit, scope, program)


@keras3_only
@pytest.mark.filterwarnings("ignore:Your input ran out of data")
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("method", ["fit", "evaluate"])
def test_data_without_a_batch_build_what_plain_keras_builds(kit: Kit, method: str, scope: str) -> None:
    x, y = data(4)
    empty = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda features, label: label > 9).batch(8)

    def program(events: list[Any]) -> None:
        model = kit.compiled(kit.unbuilt())
        raised = ""
        try:
            getattr(model, method)(empty, verbose=0, **({"shuffle": False} if method == "fit" else {}))
        except ValueError as error:
            raised = type(error).__name__
        events.append((raised, [*map(np.shape, model.get_weights())], len(model.metrics)))

    assert_same_events(kit, scope, program)
