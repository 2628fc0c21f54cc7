"""Many models and many executions: neither threads nor executables nor device memory grow."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from engine.runtime.buffers import DeviceBuffer
from engine.runtime.executable import Executable
from tests.keras.helpers import Kit, data

X, Y = data(32)
pytestmark = pytest.mark.slow


def alive(kind: type) -> int:
    gc.collect()
    return sum(issubclass(type(each), kind) for each in gc.get_objects())


def census() -> tuple[int, int, int]:
    """Executables, device buffers and threads."""
    return alive(Executable), alive(DeviceBuffer), threading.active_count()


def use(kit: Kit) -> weakref.ref[Any]:
    model = kit.ipu_model(kit.functional, steps_per_execution=2)
    model.set_asynchronous_callbacks(True)
    model.fit(X, Y, batch_size=8, verbose=0, validation_data=(X, Y))
    model.predict(X, verbose=0)
    return weakref.ref(model)


def test_dropped_models_leave_nothing(kit: Kit) -> None:
    use(kit)
    before = census()
    models = [use(kit) for _ in range(50)]
    assert census() == before
    assert not any(model() for model in models)


def test_two_models_that_alternate(kit: Kit) -> None:
    one, other = kit.ipu_model(kit.functional, steps_per_execution=4), kit.ipu_model(steps_per_execution=4)

    def turn(epochs: int) -> None:
        for _ in range(epochs):
            one.fit(X, Y, batch_size=8, verbose=0)
            other.fit(X, Y, batch_size=8, verbose=0)

    turn(2)
    before = census()
    turn(150)
    assert census() == before
    assert int(kit.variable(one.optimizer.iterations).numpy()) == 4 * 152
    assert all(np.isfinite(weight).all() for weight in one.get_weights())
