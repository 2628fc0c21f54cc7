"""No operation of a step runs in TensorFlow: operations during a call of the train function are counted."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import op_callbacks

from tests.keras.helpers import Kit, data

X, Y = data()


@contextmanager
def counted_operations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the operations and functions that TensorFlow executes."""
    executed: list[str] = []
    call_flat = atomic_function.AtomicFunction.call_flat

    def counting_call(self: Any, *arguments: Any) -> Any:
        executed.append(self.name)
        return call_flat(self, *arguments)

    def count(op_type: Any, *arguments: Any, **named: Any) -> None:
        executed.append(str(op_type))

    with monkeypatch.context() as patch:
        patch.setattr(atomic_function.AtomicFunction, "call_flat", counting_call)
        op_callbacks.add_op_callback(count)
        try:
            yield executed
        finally:
            op_callbacks.remove_op_callback(count)


def executed_while_training(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Operations that TensorFlow executes in each call of the train function during a fit."""
    calls: list[list[str]] = []
    function = model.train_function

    def observed(iterator: Any) -> Any:
        with counted_operations(monkeypatch) as executed:
            result = function(iterator)
        calls.append(executed)
        return result

    model.train_function = observed
    model.fit(X, Y, batch_size=8, verbose=0)
    return calls


@pytest.fixture
def nothing_collected() -> Iterator[None]:
    """Keeps graphs that Keras has dropped alive, as they may stay in a user's process."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("nothing_collected")
@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_training_steps(kit: Kit, steps_per_execution: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = kit.ipu_model(kit.functional, optimizer="adam", steps_per_execution=steps_per_execution)
    model.fit(X, Y, batch_size=8, verbose=0)
    calls = executed_while_training(model, monkeypatch)
    assert len(calls) == (3 if steps_per_execution == 1 else 2)
    # The first call reads variables to send metrics, which Keras has just reset on the host, to the device, and
    # draws the order of rows of a seeded program by tf.data.
    drawing = {"AnonymousIteratorV3", "IteratorGetNext", "MakeIterator"}
    assert set(calls[0]) <= {"ReadVariableOp", "Identity", *drawing}
    # tf_keras keeps steps_per_execution in a variable, which is read each time.
    assert calls[1] == ([] if kit.is_keras3 else ["ReadVariableOp", "Identity"])


def test_the_count_would_notice(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = kit.functional()
    plain.compile("adam", "sparse_categorical_crossentropy")
    plain.fit(X, Y, batch_size=8, verbose=0)
    assert all(calls for calls in executed_while_training(plain, monkeypatch))
