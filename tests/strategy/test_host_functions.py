"""tf.py_function, tf.numpy_function and tf.print inside functions that run on the IPU, against TensorFlow's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import HostFunctionError, UnsupportedOperation
from tests.interrupting import interrupted_when
from tests.strategy.helpers import written

X = np.arange(1.0, 7.0, dtype=np.float32).reshape(2, 3)


def cube(x: tf.Tensor) -> tf.Tensor:
    return x**3 if tf.reduce_sum(x) > 3 else x


def declared_in_tout(x: tf.Tensor) -> Any:
    return tf.py_function(cube, [x], tf.TensorSpec([2, 3], tf.float32))


def declared_by_set_shape(x: tf.Tensor) -> Any:
    y, n = tf.numpy_function(lambda v: (v * 2, np.int32(v.size)), [x], [tf.float32, tf.int32])
    y.set_shape(x.shape)
    n.set_shape([])
    return y, n + 1


def declared_by_ensure_shape(x: tf.Tensor) -> Any:
    return tf.ensure_shape(tf.py_function(lambda v: v > 2, [x], tf.bool), x.shape)


def in_a_branch(x: tf.Tensor) -> Any:
    return tf.cond(tf.reduce_sum(x) > 3, lambda: declared_in_tout(x), lambda: x)


@pytest.mark.parametrize("body", [declared_in_tout, declared_by_set_shape, declared_by_ensure_shape, in_a_branch])
def test_results_are_those_of_tensorflow(body: Callable[[tf.Tensor], Any], strategy: Any) -> None:
    expected = tf.function(body)(tf.constant(X))
    with strategy.scope():
        found = strategy.run(tf.function(body, jit_compile=True), (tf.constant(X),))
    for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-6)


def test_gradient_of_a_py_function_is_that_of_its_operations(strategy: Any) -> None:
    """Loops and integer operands have gradients, while TensorFlow's own function fails."""

    def scaled(v: tf.Tensor, n: tf.Tensor) -> tf.Tensor:
        return tf.sin(v) * tf.cast(n + 1, tf.float32)

    def on_host(v: tf.Tensor, n: tf.Tensor) -> Any:
        return tf.py_function(scaled, [v, n], tf.TensorSpec([2, 3], tf.float32))

    def body(function: Callable[..., Any], x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x
            for k in tf.range(3):
                y = function(y, k)
            loss = tf.reduce_sum(y * y)
        return y, tape.gradient(loss, x)

    expected = tf.function(lambda x: body(scaled, x))(tf.constant(X))
    run = tf.function(lambda x: body(on_host, x), jit_compile=True)
    for _ in range(2):
        for one, other in zip(strategy.run(run, (tf.constant(X),)), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def test_numpy_function_has_no_gradient_as_in_tensorflow(strategy: Any) -> None:
    @tf.function(jit_compile=True)
    def body(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.ensure_shape(tf.numpy_function(np.sin, [x], tf.float32), x.shape)
            loss = tf.reduce_sum(x * y)
        return tape.gradient(loss, x)

    np.testing.assert_allclose(strategy.run(body, (tf.constant(X),)), np.sin(X), rtol=1e-6)


def test_print_prints_in_order_what_tensorflow_prints(strategy: Any, capfd: pytest.CaptureFixture[str]) -> None:
    def body(x: tf.Tensor) -> tf.Tensor:
        for k in tf.range(3):
            tf.print("step", k, {"x": x, "flag": k > 1}, summarize=2, sep="|")
        tf.print("the end", end=".\n")
        return x

    tf.function(body)(tf.constant(X))
    expected = capfd.readouterr().err
    strategy.run(tf.function(body, jit_compile=True), (tf.constant(X),))
    assert written(capfd) == expected
    assert expected.count("\n") > 3


def test_each_replica_calls_once(monkeypatch: pytest.MonkeyPatch) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()
    seen = []

    @tf.function(jit_compile=True)
    def body(x: tf.Tensor) -> tf.Tensor:
        def step(total: tf.Tensor) -> tf.Tensor:
            index = tf.cast(ipu.ops.replication_ops.replication_index(), tf.float32)
            y = tf.numpy_function(lambda v: (seen.append(float(v)), v)[1], [index + total], tf.float32)
            y.set_shape([])
            return ipu.ops.cross_replica_ops.cross_replica_sum(y)

        return ipu.loops.repeat(3, step, [x])

    (found,) = tf.nest.flatten(ipu.ipu_strategy.IPUStrategy().run(body, (tf.constant(0.0),)))
    assert float(found) == 7
    assert seen == [0, 1, 1, 2, 3, 4]


def test_error_ends_the_step_and_leaves_variables(strategy: Any) -> None:
    with strategy.scope():
        total = tf.Variable(0.0)

    def limited(value: tf.Tensor) -> tf.Tensor:
        if value > 4:
            raise OverflowError(f"too large: {value.numpy()}")
        return value

    @tf.function(jit_compile=True)
    def body(x: tf.Tensor) -> tf.Tensor:
        total.assign_add(tf.py_function(limited, [x], tf.TensorSpec([], tf.float32)))
        return total.read_value()

    assert float(strategy.run(body, (tf.constant(3.0),))) == 3
    with pytest.raises(OverflowError, match="too large: 5") as caught:
        strategy.run(body, (tf.constant(5.0),))
    assert caught.traceback[-1].name == "limited"
    assert float(total) == 3
    assert float(strategy.run(body, (tf.constant(4.0),))) == 7


def test_variable_is_read_as_after_the_last_step(strategy: Any) -> None:
    with strategy.scope():
        total = tf.Variable(1.0)

    @tf.function(jit_compile=True)
    def body() -> tf.Tensor:
        y = tf.py_function(lambda: total + 1, [], tf.TensorSpec([], tf.float32))
        total.assign(y)
        return y

    assert [float(strategy.run(body)) for _ in range(3)] == [2, 3, 4]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda x: tf.py_function(lambda v: v, [x], tf.float32) + 1,
            UnsupportedOperation,
            "a static shape of result 0 of '<lambda>'",
        ),
        (
            lambda x: tf.py_function(lambda v: v, [x], tf.TensorSpec([5], tf.float32)),
            HostFunctionError,
            r"f32\[5\] as result 0 of .*Received: float32\[2, 3\]",
        ),
        (
            lambda x: tf.ensure_shape(tf.numpy_function(lambda v: v * np.float64(2), [x], tf.float32), x.shape),
            HostFunctionError,
            r"f32\[2,3\] as result 0 .*Received: float64\[2, 3\]",
        ),
        (lambda x: tf.py_function(lambda v: "text", [x], tf.string), UnsupportedOperation, "dtype string"),
        (lambda x: tf.print(tf.strings.join(["a", "b"])), UnsupportedOperation, "computed by StringJoin"),
        (lambda x: tf.print(tf.strings.as_string(x)), UnsupportedOperation, "dtype string"),
    ],
)
def test_misuse(make: Callable[[tf.Tensor], Any], error: type[Exception], message: str, strategy: Any) -> None:
    @tf.function(jit_compile=True)
    def body(x: tf.Tensor) -> Any:
        made = make(x)
        return x if made is None or isinstance(made, tf.Operation) else made

    with pytest.raises(error, match=message):
        strategy.run(body, (tf.constant(X),))


def test_program_that_calls_itself_is_refused(strategy: Any) -> None:
    @tf.function(jit_compile=True)
    def body(x: tf.Tensor) -> tf.Tensor:
        return tf.py_function(lambda v: strategy.run(body, (v,)), [x], tf.TensorSpec([2, 3], tf.float32))

    with pytest.raises(HostFunctionError, match="leave the program that calls them alone"):
        strategy.run(body, (tf.constant(X),))


def test_export_is_refused(tmp_path: Path) -> None:
    @tf.function(input_signature=[tf.TensorSpec([3], tf.float32)])
    def step(x: tf.Tensor) -> tf.Tensor:
        return tf.py_function(cube, [x], tf.TensorSpec([3], tf.float32))

    with pytest.raises(UnsupportedOperation, match="calls the host function 'cube'"):
        ipu.serving.export_single_step(step, str(tmp_path / "model"), 4)


def test_replicas_differentiate_by_themselves() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 2
    config.configure_ipu_system()

    @tf.function(jit_compile=True)
    def body(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            scaled = x * tf.cast(ipu.ops.replication_ops.replication_index() + 1, tf.float32)
            tape.watch(scaled)
            y = tf.py_function(cube, [scaled], tf.TensorSpec([2, 3], tf.float32))
        return ipu.ops.cross_replica_ops.cross_replica_sum(tape.gradient(y, scaled))

    np.testing.assert_allclose(ipu.ipu_strategy.IPUStrategy().run(body, (tf.constant(X),)), 15 * X**2)


def test_interruption(strategy: Any) -> None:
    running = []

    def endless(value: np.ndarray) -> None:
        running.append(value)
        while True:
            pass

    @tf.function(jit_compile=True)
    def body(x: tf.Tensor) -> tf.Tensor:
        tf.numpy_function(endless, [x], [])
        return x

    with interrupted_when(lambda: bool(running)):
        strategy.run(body, (tf.constant(X),))


def test_keras_steps_call_and_print(strategy: Any, capfd: pytest.CaptureFixture[str]) -> None:
    seen = []

    class Model(tf.keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.dense = tf.keras.layers.Dense(1)

        def call(self, x: tf.Tensor) -> tf.Tensor:
            return self.dense(x)

        def train_step(self, data: Any) -> Any:
            tf.print("batch", tf.shape(data[0]))
            seen_rows = tf.numpy_function(lambda v: (seen.append(len(v)), np.int32(len(v)))[1], [data[0]], tf.int32)
            seen_rows.set_shape([])
            return {**super().train_step(data), "rows": seen_rows}

    with strategy.scope():
        model = Model()
        model.compile("sgd", "mse", steps_per_execution=3)
    history = model.fit(np.ones((24, 2), np.float32), np.ones((24, 1), np.float32), batch_size=4, verbose=0)
    assert seen == [4] * 6
    assert history.history["rows"] == [4]
    assert capfd.readouterr().err.count("batch [4 2]") == 6


def test_program_with_queues_waits_for_the_host_and_not_for_itself(strategy: Any) -> None:
    """Functions run on another thread: errors and elements arrive, and using the program's variable is no deadlock."""
    queue = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensors(tf.constant(2.0)).repeat())
    with strategy.scope():
        total = tf.Variable(1.0)
        _ = queue.initializer

    def run(function: Callable[[tf.Tensor], Any]) -> float:
        def iteration(x: tf.Tensor, element: tf.Tensor) -> tf.Tensor:
            return x + tf.py_function(function, [element], tf.TensorSpec([], tf.float32))

        @tf.function(jit_compile=True)
        def body() -> tf.Tensor:
            total.assign(ipu.loops.repeat(4, iteration, [total.read_value()], queue))
            return total.read_value()

        return float(strategy.run(body))

    assert run(lambda element: 3 * element) == 25
    with pytest.raises(ZeroDivisionError):
        run(lambda element: 1 / 0)
    with pytest.raises(HostFunctionError, match="to use no variable or device of the program"):
        run(lambda element: element + total)
    assert run(lambda element: element) == 33


def test_variables_of_the_program_are_not_assigned_in_a_call(strategy: Any) -> None:
    with strategy.scope():
        total, other = tf.Variable(1.0), tf.Variable(1.0)
    writes = [lambda: total.assign(5.0), lambda: total.assign_add(1.0), lambda: total.assign(np.float32(3))]

    @tf.function(jit_compile=True)
    def body() -> tf.Tensor:
        y = tf.py_function(lambda x: (other.assign_add(1.0), uses[0](), x)[2], [total], tf.TensorSpec([], tf.float32))
        return total.assign_add(y).read_value()

    for each in writes:
        uses = [each]
        with pytest.raises(HostFunctionError, match="leave the variables of the program that calls them alone"):
            strategy.run(body)
    uses = [total.read_value]
    assert strategy.run(body) == 2
    assert other.assign_add(1.0) == 6


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("shape", [(3, 5), (0, 2)])
def test_arrays_of_any_type_and_size(dtype: str, shape: tuple[int, ...], strategy: Any) -> None:
    value = tf.cast(tf.reshape(tf.range(int(np.prod(shape))) % 3, shape), dtype)

    @tf.function(jit_compile=True)
    def body(x: tf.Tensor) -> Any:
        spec = tf.TensorSpec(shape, dtype)
        same = tf.ensure_shape(tf.numpy_function(lambda v: v[...], [x], dtype), shape)
        return tf.py_function(lambda a, b: (a, tf.equal(a, b)), [x, same], [spec, tf.TensorSpec(shape, tf.bool)])

    found, equal = strategy.run(body, (value,))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, value)
    assert equal.numpy().all()
