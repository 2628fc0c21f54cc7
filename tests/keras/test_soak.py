"""Many models and many executions: neither threads nor executables nor allocated memory grow."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.runtime.buffers import DeviceBuffer
from engine.runtime.executable import Executable
from keras_ext.queue_report import queue_report
from tests.exploring import seed
from tests.keras.helpers import Kit, data

X, Y = data(32)
MANY_X, MANY_Y = data(800)  # an epoch has a hundred executions: with four it would take hardly less time
EXECUTIONS, MODELS = (400, 1) if seed() is None else (10_000, 10)
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def earlier_objects_apart() -> None:
    """Exempts other tests' objects from garbage collection, which would take most of the time of these tests."""
    gc.collect()
    gc.freeze()


def alive(kind: type) -> int:
    gc.collect()
    return sum(issubclass(type(each), kind) for each in gc.get_objects())


def census() -> tuple[int, int, int]:
    """Executables, device buffers and threads."""
    return alive(Executable), alive(DeviceBuffer), threading.active_count()


def assert_nothing_grew(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    """Asserts that no number grew; some may fall, as other tests' remains may still end meanwhile."""
    assert all(new <= old for old, new in zip(before, after, strict=True)), (before, after)


class _Mallinfo(ctypes.Structure):
    """The result of glibc's `mallinfo2`; `hblkhd` and `uordblks` are bytes in use, mapped and in the heaps."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def allocated() -> tuple[int, int]:
    """Python's blocks and bytes of malloc that are in use: unlike resident memory, they leave out freed memory."""
    gc.collect()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    found = mallinfo()
    return sys.getallocatedblocks(), found.hblkhd + found.uordblks


def assert_allocates_nothing(iteration: Callable[[], None], executions: int) -> None:
    """Asserts that one of five iterations keeps under 4 blocks and 2 kB an execution: leaks keep more in each."""
    found: list[tuple[float, float]] = []
    while len(found) < 5 and not any(blocks < 4 and size < 2_000 for blocks, size in found):
        before = allocated()
        iteration()
        blocks, size = (new - old for new, old in zip(allocated(), before, strict=True))
        found.append((blocks / executions, size / executions))
    assert min(blocks for blocks, _ in found) < 4 and min(size for _, size in found) < 2_000, found


@pytest.mark.parametrize("asynchronous", [False, True])
def test_many_executions(kit: Kit, asynchronous: bool) -> None:
    """Each execution has a thread of its own with asynchronous callbacks."""
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

    assert_allocates_nothing(iteration, EXECUTIONS)  # includes the history of all epochs
    assert_nothing_grew(before, census())


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
    # TensorFlow keeps megabytes of every model it has traced, also without this engine: memory shows nothing.
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
    assert_allocates_nothing(iteration, EXECUTIONS)
    assert_nothing_grew(before, census())
    assert all(np.isfinite(weight).all() for weight in one.get_weights())
