"""Functions compiled into files, and started and called from there."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ipu.application_compile_op
import ipu.embedded_runtime
from ipu import loops
from ipu.application_compile_op import experimental_application_compile_op
from ipu.embedded_runtime import (
    RuntimeContext,
    embedded_runtime_call,
    embedded_runtime_start,
    embedded_runtime_start_and_call,
    embedded_runtime_stop,
)
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from tests.interrupting import wait_for
from tests.strategy.helpers import numbers, replicas

X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture
def weight() -> tf.Variable:
    return tf.Variable(np.array([[1, 2], [3, 4], [5, 6]], np.float32), name="weight")


def compiled(weight: tf.Variable, folder: Path, freeze: bool = True) -> str:
    def product(x: tf.Tensor) -> Any:
        return {"product": x @ weight, "sum": tf.reduce_sum(x)}

    path = experimental_application_compile_op(product, [X], str(folder / "product.poplar_exec"), freeze)
    return path.numpy().decode()


def test_a_program_from_a_file(weight: tf.Variable, tmp_path: Path) -> None:
    path = compiled(weight, tmp_path)
    right = X @ weight.numpy()
    weight.assign_add(tf.ones_like(weight))  # the file has the old values
    context = embedded_runtime_start(tf.constant(path), [], "engine")
    product, total = embedded_runtime_call([X], context)
    np.testing.assert_allclose(product, right)
    assert total == X.sum() and isinstance(product, tf.Tensor)
    assert context.output_types() == [tf.float32, tf.float32] and context.name == "engine"
    inputs, outputs = context.signature()
    assert inputs == [tf.TensorSpec((4, 3), tf.float32, "input_0")] and [o.shape for o in outputs] == [(4, 2), ()]
    in_a_graph = tf.function(lambda x: embedded_runtime_call([x], context))(X)
    np.testing.assert_allclose(in_a_graph[0], right)


def test_variables_that_are_not_frozen(weight: tf.Variable, tmp_path: Path) -> None:
    path = compiled(weight, tmp_path, freeze=False)
    for values in ([weight], {"weight": 2 * weight}):
        product, _ = embedded_runtime_start_and_call(path, values, [X])
        given = values["weight"] if isinstance(values, dict) else values[0]
        np.testing.assert_allclose(product, X @ given.numpy())
    for values in ([], [weight, weight], {"weigth": weight}):
        with pytest.raises(ValueError, match=r"Embedded application runtime expects the inputs \['weight'\]"):
            embedded_runtime_start(path, values, "engine")
    with pytest.raises(ValueError, match="Expected 'weight'"):
        embedded_runtime_start(path, [np.zeros((2, 3), np.float32)], "engine")


def test_inputs_that_do_not_fit(weight: tf.Variable, tmp_path: Path) -> None:
    context = embedded_runtime_start(compiled(weight, tmp_path), [], "engine")
    with pytest.raises(Exception, match="Embedded application runtime expects 1 inputs.*Received: 2"):
        embedded_runtime_call([X, X], context)
    with pytest.raises(ValueError, match="Mismatched input shape at position 0"):
        embedded_runtime_call([X[:2]], context)
    for dtype in (np.int32, np.float64, np.float16):
        with pytest.raises(TypeError, match=f"float32. Received: {np.dtype(dtype)}"):
            embedded_runtime_call([X.astype(dtype)], context)
    with pytest.raises(TypeError, match="a context"):
        embedded_runtime_call([X], "engine")
    with pytest.raises(NotImplementedError, match="engine"):
        embedded_runtime_stop(context)


def test_files_and_arguments_that_are_wrong(weight: tf.Variable, tmp_path: Path) -> None:
    path = compiled(weight, tmp_path)
    Path(path).write_bytes(Path(path).read_bytes()[:-7])
    with pytest.raises(ValueError, match="product.poplar_exec"):
        embedded_runtime_start(path, [], "engine")
    with pytest.raises(FileNotFoundError):
        embedded_runtime_start(str(tmp_path / "none"), [], "engine")
    with pytest.raises(ValueError, match="timeout"):
        embedded_runtime_start(path, [], "engine", timeout=-1)
    with pytest.raises(TypeError, match="function"):
        experimental_application_compile_op(3)


def test_without_a_path_there_is_a_new_file() -> None:
    paths = [experimental_application_compile_op(lambda: tf.constant(3.0)).numpy().decode() for _ in range(2)]
    assert paths[0] != paths[1] and all(path.endswith(".poplar_exec") for path in paths)
    assert embedded_runtime_start_and_call(paths[0], [], [])[0] == 3.0
    for path in paths:
        Path(path).unlink()


def test_a_function_that_takes_gradients(tmp_path: Path) -> None:
    weight = tf.Variable([1.0, 2.0, 3.0])

    def descend(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((x * weight) ** 2)
        return tape.gradient(loss, weight)

    path = experimental_application_compile_op(descend, [X], str(tmp_path / "descend"), freeze_variables=True)
    (gradient,) = embedded_runtime_start_and_call(path.numpy().decode(), [], [X])
    np.testing.assert_allclose(gradient, 2 * (X**2).sum(0) * weight.numpy())


def test_the_documented_modules_have_the_names() -> None:
    assert ipu.embedded_runtime.RuntimeContext is RuntimeContext
    assert callable(ipu.application_compile_op.experimental_application_compile_op)


def queue_program(folder: Path, factor: float, iterations: int) -> str:
    """Exports a loop over an infeed and an outfeed."""
    infeed, outfeed = IPUInfeedQueue(numbers(shape=(2,))), IPUOutfeedQueue()

    def body(x: tf.Tensor) -> Any:
        return outfeed.enqueue((x * factor, tf.reduce_sum(x)))

    path = str(folder / "queues.poplar_exec")
    compiled = experimental_application_compile_op(
        lambda: loops.repeat(iterations, body, infeed_queue=infeed), output_path=path
    )
    if not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function:
        with tf.compat.v1.Session() as session:
            assert session.run(compiled).decode() == path
    return path


@pytest.mark.explore
def test_an_engine_made_in_a_graph_or_a_function_is_called_from_others(tmp_path: Path) -> None:
    """Tested in its own process, as the first program makes the device's token."""
    program = """
import numpy as np, sys, tensorflow as tf
from pathlib import Path
from ipu.embedded_runtime import embedded_runtime_call, embedded_runtime_start
from tests.strategy.test_embedded_runtime import queue_program
x = np.ones(2, np.float32)
with tf.Graph().as_default():
    path = queue_program(Path(sys.argv[1]), 2.0, 4)
contexts = [embedded_runtime_start(path, [], "made in a graph")]
@tf.function
def make():
    contexts.append(embedded_runtime_start(queue_program(Path(sys.argv[1]), 2.0, 4), [], "made in a function"))
make()
for context in contexts:
    assert tf.function(lambda x: embedded_runtime_call([x], context))(x)[1] == 2
    assert embedded_runtime_call([x], context)[0].numpy().tolist() == [2, 2]
queue_program(Path(sys.argv[1]), 2.0, 4)
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)


def test_requests_by_queues_from_many_threads(tmp_path: Path) -> None:
    context = embedded_runtime_start(queue_program(tmp_path, 3.0, 16), [], "engine", timeout=2000)

    def client(seed: int) -> None:
        for k in range(25):
            x = np.array([seed, k], np.float32)
            scaled, total = embedded_runtime_call([x], context)
            assert scaled.numpy().tolist() == [3 * seed, 3 * k] and total == seed + k

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(client, range(4)))


def test_one_request_does_not_wait_for_more_and_nothing_runs_without_any(tmp_path: Path) -> None:
    before = threading.active_count()
    context = embedded_runtime_start(queue_program(tmp_path, 2.0, 1000), [], "engine", timeout=1000)
    assert embedded_runtime_call([np.ones(2, np.float32)], context)[1] == 2.0
    assert wait_for(lambda context=context: not context.runtime._stream._running)  # the call has ended, with zeros
    assert embedded_runtime_call([np.ones(2, np.float32)], context)[1] == 2.0
    del context
    gc.collect()
    assert wait_for(lambda: threading.active_count() <= before)


def test_a_program_of_several_replicas_is_refused() -> None:
    replicas(2)
    with pytest.raises(ValueError, match="one replica. Received: one of 2"):
        experimental_application_compile_op(lambda: tf.constant(1.0))
