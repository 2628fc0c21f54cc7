"""Many models and many executions: neither threads nor executables nor memory grow."""

from __future__ import annotations

import ctypes
import gc
import resource
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.runtime.buffers import DeviceBuffer
from engine.runtime.executable import Executable
from keras_ext.queue_report import queue_report
from tests.exploring import seed
from tests.keras.helpers import Kit, data

X, Y = data(32)
MANY_X, MANY_Y = data(800)  # an epoch has a hundred executions: one of four takes hardly less time
EXECUTIONS, MODELS = (1_000, 1) if seed() is None else (10_000, 10)
pytestmark = pytest.mark.slow


def alive(kind: type) -> int:
    gc.collect()
    return sum(issubclass(type(each), kind) for each in gc.get_objects())


def census() -> tuple[int, int, int]:
    """Executables, device buffers and threads."""
    return alive(Executable), alive(DeviceBuffer), threading.active_count()


def assert_nothing_grew(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    """What other tests have left may still end meanwhile."""
    assert all(new <= old for old, new in zip(before, after, strict=True)), (before, after)


def resident() -> float:
    """Megabytes of the process, without what it has freed."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


@pytest.mark.parametrize("asynchronous", [False, True])
def test_many_executions(kit: Kit, asynchronous: bool) -> None:
    """With asynchronous callbacks each execution has a thread of its own."""
    model = kit.ipu_model(kit.functional, steps_per_execution=1)
    model.set_asynchronous_callbacks(asynchronous)
    model.fit(MANY_X, MANY_Y, batch_size=8, epochs=4, verbose=0)
    before = census()

    def iteration() -> None:
        trained = int(kit.variable(model.optimizer.iterations).numpy())
        history = model.fit(MANY_X, MANY_Y, batch_size=8, epochs=EXECUTIONS // 100, verbose=0).history
        assert queue_report(model).executions == EXECUTIONS
        assert int(kit.variable(model.optimizer.iterations).numpy()) == trained + EXECUTIONS
        assert np.isfinite(history["loss"]).all()

    assert least_growth(iteration, 5.0) < 5.0  # the history of all epochs is there as well
    assert_nothing_grew(before, census())


def least_growth(iteration: Callable[[], None], megabytes: float) -> float:
    """The growth of memory in an iteration, or the least of three: what leaks does so in each, other threads do not."""
    found: list[float] = []
    while len(found) < 3 and not any(each < megabytes for each in found):
        before = resident()
        iteration()
        found.append(resident() - before)
    return min(found)


def use(kit: Kit) -> weakref.ref[Any]:
    model = kit.ipu_model(kit.functional, steps_per_execution=2)
    model.set_asynchronous_callbacks(True)
    model.fit(X, Y, batch_size=8, verbose=0, validation_data=(X, Y))
    model.predict(X, verbose=0)
    return weakref.ref(model)


def test_dropped_models_leave_nothing(kit: Kit) -> None:
    use(kit)
    before = census()
    models = [use(kit) for _ in range(MODELS)]
    # TensorFlow keeps megabytes of every model it has traced, also without this engine: memory tells nothing.
    assert_nothing_grew(before, census())
    assert not any(model() for model in models)


def test_two_models_that_alternate(kit: Kit) -> None:
    one, other = kit.ipu_model(kit.functional, steps_per_execution=4), kit.ipu_model(steps_per_execution=4)

    def iteration(epochs: int = EXECUTIONS // 80) -> None:
        trained = int(kit.variable(one.optimizer.iterations).numpy())
        for _ in range(epochs):
            one.fit(X, Y, batch_size=8, verbose=0)
            other.fit(X, Y, batch_size=8, verbose=0)
        assert int(kit.variable(one.optimizer.iterations).numpy()) == trained + 4 * epochs

    iteration(2)
    before = census()
    assert least_growth(iteration, 5.0) < 5.0
    assert_nothing_grew(before, census())
    assert all(np.isfinite(weight).all() for weight in one.get_weights())
