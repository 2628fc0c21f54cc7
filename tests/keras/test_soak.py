"""Many models and many executions: neither threads nor executables nor memory grow.

On two cores the whole takes about 90 seconds.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.runtime.buffers import DeviceBuffer
from engine.runtime.executable import Executable
from keras_ext.queue_report import queue_report
from tests.keras.helpers import Kit, data

X, Y = data(32)
MEGABYTES_IN_TENSORFLOW = 12
pytestmark = pytest.mark.slow


def alive(kind: type) -> int:
    gc.collect()
    return sum(issubclass(type(each), kind) for each in gc.get_objects())


def census() -> tuple[int, int, int]:
    """Executables, device buffers and threads."""
    return alive(Executable), alive(DeviceBuffer), threading.active_count()


def resident() -> float:
    """Megabytes of the process, without what it has freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


@pytest.mark.parametrize("asynchronous", [False, True])
def test_ten_thousand_executions(kit: Kit, asynchronous: bool) -> None:
    """With asynchronous callbacks each execution has a thread of its own."""
    model = kit.ipu_model(kit.functional, steps_per_execution=1)
    model.set_asynchronous_callbacks(asynchronous)
    model.fit(X, Y, batch_size=8, epochs=100, verbose=0)
    before, memory = census(), resident()
    history = model.fit(X, Y, batch_size=8, epochs=2500, verbose=0).history
    assert queue_report(model).executions == 10_000
    assert int(kit.variable(model.optimizer.iterations).numpy()) == 10_400
    assert np.isfinite(history["loss"]).all()
    assert census() == before
    assert resident() - memory < 5  # the history of 2500 epochs is there as well


def use(kit: Kit) -> weakref.ref[Any]:
    model = kit.ipu_model(kit.functional, steps_per_execution=2)
    model.set_asynchronous_callbacks(True)
    model.fit(X, Y, batch_size=8, verbose=0, validation_data=(X, Y))
    model.predict(X, verbose=0)
    return weakref.ref(model)


def test_dropped_models_leave_nothing(kit: Kit) -> None:
    use(kit)
    before, memory = census(), resident()
    models = [use(kit) for _ in range(50)]
    assert census() == before
    # TensorFlow keeps a few megabytes of every model it has traced, with and without this engine.
    assert resident() - memory < 50 * MEGABYTES_IN_TENSORFLOW
    assert not any(model() for model in models)


def test_two_models_that_alternate(kit: Kit) -> None:
    one, other = kit.ipu_model(kit.functional, steps_per_execution=4), kit.ipu_model(steps_per_execution=4)

    def turn(epochs: int) -> None:
        for _ in range(epochs):
            one.fit(X, Y, batch_size=8, verbose=0)
            other.fit(X, Y, batch_size=8, verbose=0)

    turn(2)
    before, memory = census(), resident()
    turn(150)
    assert census() == before
    assert resident() - memory < 5
    assert int(kit.variable(one.optimizer.iterations).numpy()) == 4 * 152
    assert all(np.isfinite(weight).all() for weight in one.get_weights())
