"""Buckets of gradients are summed between processes, here threads, while the backward pass continues."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from engine.compile import compile_module
from engine.errors import ConfigurationError
from engine.host_functions import PythonFunction
from engine.ir import Module
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.partition.accumulation import Accumulation
from engine.partition.processes import Processes
from engine.partition.repeat import repeat
from engine.runtime.feeds import RowFeed
from ipu._internal.compiler.buckets import Buckets
from ipu._internal.compiler.processes import bucket_bytes, gradient_type, processes_of
from ipu._internal.processes.settings import BUCKET_BYTES, GRADIENT_TYPE
from ipu._internal.processes.transport import Operation, SingleProcess
from tests.interrupting import PATIENCE_SECONDS
from tests.partition.steps import mark
from tests.partition.test_repeat import buffers
from tests.processes.threads import ThreadTransport, in_threads

LAYERS, SIZE, BATCH, STEPS = 3, 4, 2, 2
random = np.random.default_rng(0)
X = random.normal(size=(2, STEPS, BATCH, SIZE)).astype(np.float32)
WEIGHTS = random.normal(size=(LAYERS, SIZE, SIZE)).astype(np.float32)


def chain(function: PythonFunction) -> Module:
    """A step of dense layers with tanh whose loss is the sum of their outputs; `function` sees the first gradient."""
    b = Builder("chain")
    outputs = [b.parameter("f32", (BATCH, SIZE))]
    weights = [b.parameter("f32", (SIZE, SIZE)) for _ in range(LAYERS)]
    for weight in weights:
        outputs.append(b.elementwise("tanh", b.dot(outputs[-1], weight)))
    ones = b.splat(1, (BATCH, SIZE))
    upstream, gradients = ones, []
    for k in reversed(range(LAYERS)):
        upstream = b.multiply(upstream, b.subtract(ones, b.multiply(outputs[k + 1], outputs[k + 1])))
        gradients.insert(0, b.dot(b.transpose(outputs[k], (1, 0)), upstream))
        upstream = b.dot(upstream, b.transpose(weights[k], (1, 0)))
    seen = b.host_function(function, [gradients[0]], [gradients[0].array_shape], b.constant(0, "s32"))
    seen.attributes["custom_call_has_side_effect"] = False
    gradients[0] = b.get_tuple_element(seen, 0)
    new = [b.subtract(w, mark(b, g, f"weight{k}")) for k, (w, g) in enumerate(zip(weights, gradients, strict=True))]
    return b.module(b.tuple(*new), {k + 1: k for k in range(LAYERS)})


def expected_weights() -> np.ndarray:
    weights = WEIGHTS.astype(float)
    for step in range(STEPS):
        total = np.zeros_like(weights)
        for x in X[:, step].astype(float):
            outputs = [x]
            for weight in weights:
                outputs.append(np.tanh(outputs[-1] @ weight))
            upstream = np.ones_like(x)
            for k in reversed(range(LAYERS)):
                upstream = upstream * (1 - outputs[k + 1] ** 2)
                total[k] += outputs[k].T @ upstream
                upstream = upstream @ weights[k].T
        weights = weights - total
    return weights


def trained(transport: ThreadTransport, sees: Callable[[], None]) -> np.ndarray:
    """The weights after two steps in one of several processes; `sees` is called at the first layer's gradients."""

    def see(gradient: np.ndarray) -> list[np.ndarray]:
        sees()
        return [gradient]

    function = PythonFunction("sees the first gradient", see)
    module = chain(function)
    processes, roles = processes_of(module, transport), ["feed", *["variable"] * LAYERS]
    repeated = repeat(module, roles, Accumulation(1, 1), processes=processes)
    verify(repeated.module)
    held = buffers(list(WEIGHTS))
    feed = RowFeed(X[transport.rank].reshape(-1, SIZE))
    compile_module(repeated.module, repeated.roles, {}).run(STEPS, [feed], held)
    return np.stack([each.read() for each in held])


def test_a_bucket_is_sent_before_the_last_gradient_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BUCKET_BYTES, str(4 * SIZE * SIZE))
    sent, computed = [threading.Semaphore(0) for _ in range(2)], [threading.Semaphore(0) for _ in range(2)]

    class Slow(ThreadTransport):
        """The sum of the last layer's gradients lasts until the first layer's have been computed."""

        def _all_reduce(self, array: np.ndarray, operation: Operation) -> np.ndarray:
            if "bucket 0" in self.calls[-1]:
                sent[self.rank].release()
                assert computed[self.rank].acquire(timeout=PATIENCE_SECONDS)
            return super()._all_reduce(array, operation)

    def work(transport: ThreadTransport) -> np.ndarray:
        transport.__class__ = Slow

        def sees() -> None:
            assert sent[transport.rank].acquire(timeout=PATIENCE_SECONDS)
            computed[transport.rank].release()

        weights = trained(transport, sees)
        in_order = [f"bucket {k}" for k in range(LAYERS)] * STEPS
        assert all(name in call for name, call in zip(in_order, transport.calls, strict=True))
        assert transport.background_seconds > 0
        return weights

    one, other = in_threads(2, work)
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(one, expected_weights(), rtol=1e-4, atol=1e-5)
    monkeypatch.setenv(BUCKET_BYTES, str(2 * 4 * SIZE * SIZE))
    two_buckets, _ = in_threads(2, lambda transport: (trained(transport, lambda: None), transport.calls))
    assert len(two_buckets[1]) == 2 * STEPS
    np.testing.assert_array_equal(one, two_buckets[0])
    monkeypatch.delenv(BUCKET_BYTES)
    at_once, _ = in_threads(2, lambda transport: (trained(transport, lambda: None), transport.calls))
    assert len(at_once[1]) == STEPS and "bucket" not in at_once[1][0]
    np.testing.assert_array_equal(one, at_once[0])


def test_buckets_of_empty_values_and_of_none() -> None:
    b = Builder("empty")
    values = [b.parameter("f32", (size,)) for size in (0, 1, 2, 9, 0)]
    nothing = PythonFunction("nothing", lambda *_: [])
    processes = Processes(2, 0, *5 * (nothing,), bucket_bytes=12)
    assert processes._buckets(values) == [values[:3], values[3:4], values[4:]]
    before = len(b.instructions)
    assert processes.reduced(b, {}) == {} and len(b.instructions) == before


def test_errors_of_the_thread_end_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BUCKET_BYTES, "1")

    class Failing(ThreadTransport):
        """A transport whose first collective fails."""

        def _agree(self, call: str) -> None:
            raise ConfigurationError(call)

    transport = Failing(0, 2, [None] * 2, threading.Barrier(2))
    with pytest.raises(ConfigurationError, match="bucket 0 in program"):
        trained(transport, lambda: None)
    for wrong in ("0", "4 MB"):
        monkeypatch.setenv(BUCKET_BYTES, wrong)
        with pytest.raises(ConfigurationError, match=f"{BUCKET_BYTES} to be an integer of at least 1"):
            bucket_bytes()


def test_a_bucket_that_an_error_has_left_begins_again_after_its_sum() -> None:
    summed = []

    class Slow(SingleProcess):
        """A transport that reads its arrays late."""

        def _all_reduce(self, array: np.ndarray, operation: Operation) -> np.ndarray:
            time.sleep(0.05)
            summed.append(array.tolist())
            return array

    buckets = Buckets(Slow(), "x")
    for value in (1.0, 2.0):
        buckets.beginning()(np.array(0), np.float32([value]))
    assert buckets.end(np.array(1))[0].tolist() == [2.0] and summed == [[1.0], [2.0]]


def test_gradients_are_rounded_between_processes_by_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(2, 1001)).astype(np.float32)
    counts = np.int32([3, 4])

    def work(transport: ThreadTransport) -> list[np.ndarray]:
        buckets = Buckets(transport, "x")
        arrays = values[transport.rank, :1000].reshape(10, 100), counts, values[transport.rank, 1000]
        buckets.beginning(gradient_type())(np.array(0), *arrays)
        buckets.beginning()(np.array(1), values[transport.rank])
        *rounded, exact = buckets.end(np.array(2))
        np.testing.assert_array_equal(exact, values.sum(0))
        return [np.array(each) for each in rounded]

    for whole, number, scalar in in_threads(2, work):
        np.testing.assert_array_equal(whole.reshape(-1), values.sum(0)[:1000])
        assert number.tolist() == [6, 8] and scalar == values.sum(0)[1000]
    monkeypatch.setenv(GRADIENT_TYPE, "bfloat16")
    rounded = values.astype(ml_dtypes.bfloat16).astype(np.float32).sum(0).astype(ml_dtypes.bfloat16).astype(np.float32)
    for whole, number, scalar in in_threads(2, work):
        assert whole.dtype == np.float32 and number.tolist() == [6, 8] and scalar == rounded[1000]
        np.testing.assert_array_equal(whole.reshape(-1), rounded[:1000])
    monkeypatch.setenv(GRADIENT_TYPE, "int8")
    with pytest.raises(ConfigurationError, match="float32 or bfloat16. Received: 'int8'"):
        gradient_type()
