"""IPUStrategy: its scope, its variables, the functions that it runs and refuses."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import UnsupportedOperation
from ipu._internal.compiler.variables import IPUVariable
from ipu.ipu_strategy import IPUStrategy, IPUStrategyV1


def test_alias_and_properties(strategy: IPUStrategyV1) -> None:
    assert IPUStrategy is IPUStrategyV1
    assert isinstance(strategy, tf.distribute.Strategy)
    assert strategy.num_replicas_in_sync == 1
    assert strategy.supports_loss_scaling


def test_variables_live_on_the_device(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        variable = tf.Variable([1.0, 2.0], name="weights")
        dtypes = [tf.Variable(tf.cast(1, dtype)) for dtype in (tf.bfloat16, tf.int64, tf.bool, tf.float64)]
    assert isinstance(variable, IPUVariable) and isinstance(variable, tf.Variable)
    assert variable.device.endswith("/device:IPU:0")
    assert variable.name == "weights:0"
    assert all(v.device_buffer().read() == v.numpy() for v in dtypes)
    assert not isinstance(tf.Variable(1.0), IPUVariable)


def test_scopes_nest_and_strategies_are_interchangeable(strategy: IPUStrategyV1) -> None:
    other = IPUStrategy()
    with strategy.scope(), other.scope(), strategy.scope():
        variable = tf.Variable(1.0)

        @tf.function
        def step() -> tf.Tensor:
            variable.assign_add(1.0)
            return variable * 2

        assert other.run(step) == 4.0
    assert strategy.run(step) == 6.0
    assert variable.numpy() == 3.0


def test_plain_function_is_refused_in_eager(strategy: IPUStrategyV1) -> None:
    with pytest.raises(ValueError, match="does not support eager execution.*tf.function"):
        strategy.run(lambda: tf.constant(1.0))


def test_plain_function_within_a_function(strategy: IPUStrategyV1) -> None:
    @tf.function
    def outer(x: tf.Tensor) -> tf.Tensor:
        return strategy.run(lambda y: y + 1, args=(x,))

    assert strategy.run(outer, args=(tf.constant(1.0),)) == 2.0
    assert outer(tf.constant(1.0)) == 2.0


def test_run_returns_the_functions_structure(strategy: IPUStrategyV1) -> None:
    @tf.function(jit_compile=True)
    def step(x: tf.Tensor, factor: float, offset: Any = None) -> dict[str, Any]:
        return {"sum": [tf.reduce_sum(x) * factor, None], "x": (x + offset["by"], 3)}

    result = strategy.run(step, args=(np.ones((2, 3), np.float32), 2.0), kwargs={"offset": {"by": tf.ones([3])}})
    assert result["sum"][0] == 12.0 and result["sum"][1] is None
    np.testing.assert_array_equal(result["x"][0], np.full((2, 3), 2.0))
    assert isinstance(result["x"][0], tf.Tensor)


def test_shapes_and_python_values_retrace(strategy: IPUStrategyV1) -> None:
    traces = []

    @tf.function
    def step(x: tf.Tensor, add: int) -> tf.Tensor:
        traces.append(1)
        return x + add

    for size, add in [(2, 1), (2, 1), (3, 1), (2, 5), (3, 1)]:
        result = strategy.run(step, args=(tf.zeros([size], tf.int64), add))
        np.testing.assert_array_equal(result, np.full(size, add))
    assert len(traces) == 3


def test_variables_created_by_the_function(strategy: IPUStrategyV1) -> None:
    made: list[tf.Variable] = []

    @tf.function
    def count() -> tf.Tensor:
        if not made:
            made.append(tf.Variable(10.0))
        return made[0].assign_add(1.0)

    assert [float(strategy.run(count)) for _ in range(3)] == [11.0, 12.0, 13.0]
    assert isinstance(made[0], IPUVariable)


def test_variables_from_outside_and_constants(strategy: IPUStrategyV1) -> None:
    outside, constant = tf.Variable([1.0, 2.0]), tf.constant([10.0, 20.0])

    @tf.function
    def step() -> tf.Tensor:
        outside.assign(outside + constant)
        return outside.read_value()

    np.testing.assert_array_equal(strategy.run(step), [11.0, 22.0])
    outside.assign([0.0, 0.0])
    strategy.run(step)
    np.testing.assert_array_equal(outside, [10.0, 20.0])


def test_gradients(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        weight = tf.Variable([[2.0], [3.0]])

    @tf.function
    def descend(x: tf.Tensor) -> tf.Tensor:
        for _ in range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum((x @ weight) ** 2)
            weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return loss

    expected = np.array([[2.0], [3.0]])
    for _ in range(3):
        expected = expected - 0.1 * 2 * expected
    strategy.run(descend, args=(tf.eye(2),))
    np.testing.assert_allclose(weight, expected, rtol=1e-6)


def test_no_program_outlives_its_function(strategy: IPUStrategyV1) -> None:
    from ipu._internal.compiler import calling

    @tf.function
    def step() -> tf.Tensor:
        return tf.constant(1.0) + 1

    strategy.run(step)
    gc.collect()  # functions of other tests
    before = len(calling._functions)
    del step
    gc.collect()
    assert len(calling._functions) == before - 1


def test_refused_operation_is_named(strategy: IPUStrategyV1) -> None:
    @tf.function
    def step(text: tf.Tensor) -> tf.Tensor:
        return tf.strings.length(text)

    with pytest.raises(UnsupportedOperation, match="dtype string"):
        strategy.run(step, args=(tf.constant("abc"),))

    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)

    @tf.function
    def look_up() -> tf.Tensor:
        return table.lookup(tf.constant(1))

    with pytest.raises(UnsupportedOperation, match="resources that are variables"):
        strategy.run(look_up)

    @tf.function
    def random_gamma() -> tf.Tensor:
        with tf.name_scope("noise"):
            return tf.random.gamma([3], 1.0)

    with pytest.raises(UnsupportedOperation, match="RandomGamma at .* in layer 'random_gamma'"):
        strategy.run(random_gamma)

    @tf.function
    def range_of(limit: tf.Tensor) -> tf.Tensor:
        return tf.range(limit)

    with pytest.raises(UnsupportedOperation, match="Range at 'range'. Its shape depends on values"):
        strategy.run(range_of, args=(tf.constant(3.0),))
