"""No operation of a step runs in TensorFlow: what runs during a call of the train function is counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import pytest
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import op_callbacks

from tests.keras.helpers import data, functional, ipu_model

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


def executed_while_training(model: keras.Model, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What TensorFlow executes in each call of the train function during a fit."""
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


@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_training_steps(steps_per_execution: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ipu_model(functional, optimizer="adam", steps_per_execution=steps_per_execution)
    model.fit(X, Y, batch_size=8, verbose=0)
    calls = executed_while_training(model, monkeypatch)
    assert len(calls) == (3 if steps_per_execution == 1 else 2)
    # The first call sends metrics, which Keras has just reset on the host, to the device: reads of variables.
    assert set(calls[0]) <= {"ReadVariableOp"}
    assert calls[1] == []


def test_the_count_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = functional()
    plain.compile("adam", "sparse_categorical_crossentropy")
    plain.fit(X, Y, batch_size=8, verbose=0)
    assert all(calls for calls in executed_while_training(plain, monkeypatch))
