"""Variables of functions on the device: copied when they were written on the host, and only then."""

from __future__ import annotations

from threading import Thread
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import HostFunctionError
from engine.runtime.buffers import DeviceBuffer
from ipu.ipu_strategy import IPUStrategy, IPUStrategyV1
from tests.strategy.helpers import compiled

SCALARS = [(tf.float32, 1.5), (tf.bfloat16, 1.5), (tf.int32, 3), (tf.bool, True)]
ARRAYS = [
    (tf.bfloat16, [1.5, 2]),
    (tf.float16, [1.5, 2]),
    (tf.int8, [1, 2]),
    (tf.bool, [True, False]),
    (tf.float32, []),
]


def made(strategy: IPUStrategyV1, owner: str, value: Any) -> tf.Variable:
    """A variable of the strategy, or one made outside of it."""
    if owner == "host":
        return tf.Variable(value)
    with strategy.scope():
        return tf.Variable(value)


@pytest.mark.parametrize("owner", ["strategy", "host"])
@pytest.mark.parametrize(("dtype", "value"), SCALARS + ARRAYS)
def test_raw_assignments_of_all_types(owner: str, dtype: tf.DType, value: Any) -> None:
    strategy = IPUStrategy()
    variable = made(strategy, owner, tf.cast(value, dtype))
    changed = tf.logical_not if dtype == tf.bool else lambda x: x + x
    step = compiled(lambda: variable.assign(changed(variable)).read_value())
    strategy.run(step)
    handle = variable.handle
    for _ in range(2):
        tf.raw_ops.AssignVariableOp(resource=handle, value=tf.cast(value, dtype))
        np.testing.assert_array_equal(strategy.run(step).numpy(), changed(tf.cast(value, dtype)).numpy())
        read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
        np.testing.assert_array_equal(read.numpy(), changed(tf.cast(value, dtype)).numpy())


@pytest.mark.parametrize("owner", ["strategy", "host"])
def test_a_captured_variable_is_copied_when_it_was_written(owner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = IPUStrategy()
    variable = made(strategy, owner, tf.zeros([64, 8]))
    update = compiled(lambda: variable.assign_add(tf.ones([64, 8])).read_value())
    add_rows = tf.function(lambda: variable.scatter_nd_add([[0], [63]], tf.ones([2, 8])))
    total = compiled(lambda: tf.reduce_sum(variable))
    strategy.run(update)
    add_rows()
    strategy.run(total)
    copied: list[DeviceBuffer] = []
    write = DeviceBuffer.write
    monkeypatch.setattr(DeviceBuffer, "write", lambda self, value: (copied.append(self), write(self, value))[1])
    for k in range(1, 4):
        assert strategy.run(total) == 512 * k + 16 * k
        assert not copied
        strategy.run(update)
        add_rows()
        assert strategy.run(total) == 512 * (k + 1) + 16 * (k + 1)
        assert len(copied) == (1 if owner == "strategy" else len(copied))
        copied.clear()


@pytest.mark.parametrize("owner", ["strategy", "host"])
def test_a_tensor_keeps_its_value(owner: str) -> None:
    strategy = IPUStrategy()
    variable, other = made(strategy, owner, tf.zeros([3])), tf.Variable(tf.zeros([3]))
    step, read = compiled(lambda: variable.assign_add(tf.ones([3])).read_value()), tf.function(variable.read_value)
    seen = []
    for _ in range(3):
        strategy.run(step)
        seen.append(read())
        other.assign(seen[-1])
        strategy.run(step)
        np.testing.assert_array_equal(other, seen[-1])
    np.testing.assert_array_equal([each.numpy()[0] for each in seen], [1, 3, 5])


def test_variables_of_a_function_that_was_traced_before() -> None:
    strategy = IPUStrategy()
    with strategy.scope():
        variable = tf.Variable(tf.ones([3]))
    inner = tf.function(lambda: variable.assign_add(tf.ones([3])))
    inner()
    nested, double = compiled(lambda: inner() + 0.0), compiled(lambda: variable.assign(variable * 2) + 0.0)
    expected = variable.numpy()[0]
    for _ in range(3):
        expected += 1
        assert strategy.run(nested)[0] == expected == variable.numpy()[0]
        expected *= 2
        assert strategy.run(double)[0] == expected
        expected += 2
        inner()
        assert strategy.run(nested)[0] == expected


def test_a_handle_that_one_thread_takes_while_another_reads() -> None:
    strategy = IPUStrategy()
    with strategy.scope():
        variable = tf.Variable(tf.ones([3]))
    taken: list[Any] = []

    def read() -> None:
        thread = Thread(target=lambda: taken.append(variable.handle))
        thread.start()
        thread.join()

    variable._read(read)
    total = compiled(lambda: tf.reduce_sum(variable))
    assert strategy.run(total) == 3
    tf.raw_ops.AssignVariableOp(resource=taken[0], value=tf.zeros([3]))
    assert strategy.run(total) == 0


@pytest.mark.parametrize("owner", ["strategy", "host"])
def test_an_assignment_by_handle_in_a_call_of_the_host_is_an_error(owner: str) -> None:
    strategy = IPUStrategy()
    variable = made(strategy, owner, tf.zeros([]))
    assign = tf.function(lambda: variable.assign(5.0))
    called: list[Any] = []

    @tf.function(jit_compile=True)
    def step() -> tf.Tensor:
        one = tf.py_function(lambda: (1.0, [each() for each in called])[0], [], tf.TensorSpec([], tf.float32))
        return variable.assign_add(one).read_value()

    assert strategy.run(step) == 1
    called.append(assign)
    with pytest.raises(HostFunctionError, match="leave the variables of the program that calls them alone"):
        strategy.run(step)
    assert variable == 2
    called.clear()
    assign()
    assert strategy.run(step) == 6


def test_assignments_return_what_tensorflow_returns() -> None:
    plain = tf.Variable([1.0, 2.0])
    with IPUStrategy().scope():
        here = tf.Variable([1.0, 2.0])
    for variable in (here, plain):
        returned = variable.assign([3.0, 4.0]), variable.assign(np.float32([3, 4])), variable.assign_add([1.0, 1.0])
        assert [each.op for each in returned] == [None] * 3
        assert not hasattr(variable, "op")
        assert variable.assign_sub([1.0, 1.0], read_value=False) is None
        np.testing.assert_array_equal(returned[0] + returned[2], [6, 8])
        np.testing.assert_array_equal(returned[0].assign([5.0, 6.0]).assign_add([1.0, 1.0]), [6, 7])
        assert all(returned[1] == [6, 7]) and all(variable == [6, 7])


def test_an_assignments_result_outlives_the_variable() -> None:
    strategy = IPUStrategy()
    with strategy.scope():
        returned = tf.Variable([1.0, 2.0]).assign_add([1.0, 1.0])
    double = compiled(lambda: returned.assign(returned * 2.0).read_value())
    for times in (2, 4):
        strategy.run(double)
        np.testing.assert_array_equal(returned, np.multiply([2, 3], times))


def test_what_a_trace_executes_at_once_reads_and_writes_the_newest_value() -> None:
    """`init_scope` in a function executes operations, as optimizers do to build slots from the weights."""
    strategy = IPUStrategy()
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0])
    strategy.run(compiled(lambda: variable.assign_add([1.0, 1.0]).read_value()))
    seen = []

    def step() -> Any:
        with tf.init_scope():
            seen.append(tf.convert_to_tensor(variable).numpy())
            variable.assign_sub([10.0, 10.0])
        return variable.assign(variable * 2.0).read_value()

    np.testing.assert_array_equal(strategy.run(compiled(step)), [-16, -14])
    np.testing.assert_array_equal(seen[0], [2, 3])
    np.testing.assert_array_equal(variable, [-16, -14])
