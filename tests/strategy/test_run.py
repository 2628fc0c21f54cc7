"""IPUStrategy.run: arguments, refused dtypes, trip counts from tensors, reductions, functions called directly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import ConfigurationError, UnsupportedOperation
from ipu._internal.compiler import calling
from ipu._internal.compiler.variables import IPUVariable
from ipu.cross_replica_ops import cross_replica_sum
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategy, IPUStrategyV1
from tests.strategy.helpers import compiled, replicas, unconverted


def programs(function: Any) -> int:
    """Number of programs of a function."""
    return len(calling._functions[function]._programs)


def test_doubles_are_refused(strategy: IPUStrategyV1) -> None:
    double = compiled(lambda x: x * 2)
    message = "Unsupported data type for input/output: float64"
    for value in (np.zeros(2), tf.zeros([2], tf.float64), np.float64(1.0), {"x": [np.zeros(2)]}):
        with pytest.raises(TypeError, match=message):
            strategy.run(double, args=(value,))
    with pytest.raises(TypeError, match=message):
        strategy.run(compiled(lambda x: {"y": tf.cast(x, tf.float64)}), args=(np.float32(1),))
    assert strategy.run(double, args=(2.0,)) == 4.0
    inside = compiled(lambda x: tf.cast(tf.cast(x, tf.float64) * 2, tf.float32))
    assert strategy.run(inside, args=(np.float32(1),)) == 2.0


def test_text_is_refused_by_its_name(strategy: IPUStrategyV1) -> None:
    text, one = tf.constant("a"), tf.constant([1.0])
    functions: dict[str, Any] = {
        "a result at": lambda: tf.constant("b"),
        "a captured tensor at": lambda: tf.equal(text, "a"),
        "StatelessWhile": lambda: tf.while_loop(lambda k, t: k < 2, lambda k, t: [k + 1, t], [0, tf.constant("b")])[1],
        "an operand of a device operation": lambda: IPUOutfeedQueue().enqueue({"x": one, "name": tf.constant("b")}),
    }
    for place, function in functions.items():
        with pytest.raises(UnsupportedOperation, match=f"Received: text, of dtype string, in {place}.*Encode it"):
            strategy.run(unconverted(function))
    with pytest.raises(UnsupportedOperation, match="Received: a tensor of dtype string. Encode text"):
        strategy.run(compiled(lambda t: one), args=(text,))


def test_defaults_names_and_objects(strategy: IPUStrategyV1) -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

    @tf.function
    def step(x: tf.Tensor, scale: Scale, *more: tf.Tensor, offset: float = 1.0, **named: Any) -> tf.Tensor:
        return x * scale.factor + offset + tf.add_n(list(more)) + named["last"]

    scale = Scale(3.0)
    arguments = (tf.constant(2.0), scale, tf.constant(10.0), tf.constant(20.0))
    assert strategy.run(step, arguments, {"last": np.float32(100.0)}) == 137.0
    assert strategy.run(step, arguments, {"last": np.float32(200.0)}) == 237.0
    assert strategy.run(step, list(arguments), {"last": tf.constant(200.0), "offset": 0.0}) == 236.0
    assert programs(step) == 2


def test_methods_signatures_and_concrete_functions(strategy: IPUStrategyV1) -> None:
    class Counter:
        def __init__(self) -> None:
            self.value = tf.Variable(1.0)

        @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
        def add(self, x: tf.Tensor) -> tf.Tensor:
            return self.value.assign_add(tf.reduce_sum(x))

    with strategy.scope():
        counter = Counter()
    assert strategy.run(counter.add, args=([1.0, 2.0],)) == 4.0
    assert strategy.run(counter.add, args=(np.ones(2, np.float32),)) == 6.0
    concrete = tf.function(lambda x: x + 1).get_concrete_function(tf.TensorSpec([3], tf.int32))
    np.testing.assert_array_equal(strategy.run(concrete, args=(tf.constant([1, 2, 3]),)), [2, 3, 4])


def test_variables_stay_on_the_device_between_functions(
    strategy: IPUStrategyV1, monkeypatch: pytest.MonkeyPatch
) -> None:
    with strategy.scope():
        weights = tf.Variable(tf.zeros([4]))
    increment = compiled(lambda: weights.assign_add(tf.ones([4])))
    total = compiled(lambda: tf.reduce_sum(weights))
    strategy.run(increment)
    moved: list[str] = []
    for name in ("_upload", "_fetch"):
        original = getattr(IPUVariable, name)
        monkeypatch.setattr(
            IPUVariable, name, lambda self, name=name, original=original: (moved.append(name), original(self))[1]
        )
    for _ in range(3):
        strategy.run(increment)
    assert strategy.run(total) == 16.0
    assert not moved
    np.testing.assert_array_equal(weights, np.full(4, 4.0))
    assert moved


def test_trip_counts(strategy: IPUStrategyV1) -> None:
    @compiled
    def count(n: Any) -> tf.Tensor:
        total = tf.constant(0)
        for i in tf.range(n):
            total += i
        return total

    assert [int(strategy.run(count, args=(n,))) for n in (0, 1, 10, 10)] == [0, 0, 45, 45]
    assert programs(count) == 3


def test_a_tensor_that_shapes_depend_on_becomes_a_constant(strategy: IPUStrategyV1) -> None:
    @compiled
    def numbers(n: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
        assert tf.is_tensor(n)
        return tf.range(n) * tf.cast(tf.reduce_sum(factor), tf.int32)

    for n in (3, 5, 3):
        np.testing.assert_array_equal(strategy.run(numbers, args=(tf.constant(n), tf.ones([2]))), 2 * np.arange(n))
    assert programs(numbers) == 2

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def fixed(n: tf.Tensor) -> tf.Tensor:
        return tf.range(n)

    with pytest.raises(UnsupportedOperation, match="Its shape depends on values"):
        strategy.run(fixed, args=(tf.constant(3),))


def test_operations_may_be_returned(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue()
    result = strategy.run(compiled(lambda x: (x, queue.enqueue(x))), args=(tf.constant(1.0),))
    assert result[0] == 1.0 and result[1] is None


@pytest.mark.parametrize("count", [1, 2, 4])
def test_reductions_are_over_replicas_inside_functions(strategy: IPUStrategyV1, count: int) -> None:
    replicas(count)
    total, mean = tf.distribute.ReduceOp.SUM, tf.distribute.ReduceOp.MEAN
    three = tf.constant(3.0)
    assert strategy.num_replicas_in_sync == 1
    assert strategy.reduce(total, three, axis=None) == 3.0
    assert strategy.run(compiled(lambda x: strategy.reduce(total, x, axis=None)), (three,)) == 3.0 * count
    assert strategy.run(compiled(lambda x: strategy.reduce("MEAN", x, axis=None)), (three,)) == 3.0
    rows = tf.constant([[1.0, 2.0], [3.0, 6.0]])
    np.testing.assert_array_equal(strategy.reduce(total, rows, axis=0), [4.0, 8.0])
    means = strategy.run(compiled(lambda x: strategy.reduce("MEAN", x, axis=1)), (rows,))
    np.testing.assert_array_equal(means, [1.5, 4.5])
    gathered = compiled(lambda x: tf.distribute.get_replica_context().all_reduce(mean, [x, x]))
    assert [float(x) for x in strategy.run(gathered, (three,))] == [3.0, 3.0]
    with pytest.raises(ValueError, match="SUM or MEAN"):
        strategy.reduce("MAX", three, axis=None)


def test_small_things(strategy: IPUStrategyV1) -> None:
    assert strategy.experimental_local_results(5) == (5,)
    with pytest.raises(RuntimeError, match="experimental_run_v2, which was removed"):
        strategy.experimental_run_v2(tf.function(lambda: None))
    dataset = strategy.distribute_datasets_from_function(
        lambda context: tf.data.Dataset.range(context.num_input_pipelines + context.input_pipeline_id)
    )
    assert [int(x) for x in dataset] == [0]
    assert strategy.run(tf.function(lambda x: x * 2, jit_compile=True), (tf.constant(1.5, tf.bfloat16),)) == 3.0


def test_compiled_functions_called_in_the_scope_run_on_the_engine(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue()

    @tf.function(jit_compile=True)
    def step(x: tf.Tensor, n: int = 2) -> tf.Tensor:
        for i in tf.range(n):
            queue.enqueue(tf.cast(i, tf.float32) + x)
        return x + 1

    with strategy.scope():
        assert step(tf.constant(1.0)) == 2.0
        assert step(1.0, n=1) == 2.0
        np.testing.assert_array_equal(queue.dequeue(), [1.0, 2.0, 1.0])
    with pytest.raises(RuntimeError, match="in a function that runs elsewhere"):
        step(tf.constant(2.0))


def test_functions_that_stay_with_tensorflow(strategy: IPUStrategyV1) -> None:
    square = compiled(lambda x: x * x)
    plain = tf.function(lambda x: x * x)
    variable = tf.Variable(3.0)
    with strategy.scope():
        assert plain(tf.constant(3.0)) == 9.0 and plain not in calling._functions
        with tf.GradientTape() as tape:
            result = square(variable)
        assert tape.gradient(result, variable) == 6.0
    assert square(tf.constant(3.0)) == 9.0
    assert square not in calling._functions
    with tf.distribute.OneDeviceStrategy("/device:CPU:0").scope():
        assert square(tf.constant(3.0)) == 9.0
    assert square not in calling._functions


def test_other_configuration_other_program(strategy: IPUStrategyV1) -> None:
    queue = IPUOutfeedQueue()
    step = compiled(lambda: queue.enqueue(tf.constant(1.0)))
    strategy.run(step)
    assert queue.dequeue().shape == (1,)
    replicas(2)
    _ = queue.deleter
    strategy.run(step)
    assert queue.dequeue().shape == (1, 2)
    assert programs(step) == 1


def test_ordinals_have_programs_of_their_own() -> None:
    from ipu.config import IPUConfig

    config = IPUConfig()
    config.auto_select_ipus = [1, 2]
    config.configure_ipu_system()
    queues = [IPUOutfeedQueue(device_ordinal=ordinal) for ordinal in range(2)]
    for ordinal, queue in enumerate(queues):
        strategy = IPUStrategy(f"/device:IPU:{ordinal}")
        strategy.run(compiled(lambda queue=queue: queue.enqueue(tf.constant(1.0))))
        assert queue.dequeue().shape == ((1,) if ordinal == 0 else (1, 2))


@pytest.mark.parametrize("name", ["/device:GPU:0", "/cpu:0", "/device:IPU:", "/device:IPU:-1", "nonsense", 3, None])
def test_devices_that_are_no_ipu_are_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="Expected the name of an IPU device, as '/device:IPU:0'. Received: "):
        IPUStrategy(name)


def test_errors_of_traced_operations_keep_their_class(strategy: IPUStrategyV1) -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        return cross_replica_sum(x, replica_group_size=-1)

    with pytest.raises(ConfigurationError, match="replica_group_size to be an integer of at least 1"):
        strategy.run(compiled(lambda x: step(x)), args=(tf.constant(1.0),))


@pytest.mark.parametrize("jit_compile", [None, True])
def test_variables_may_be_arguments_and_defaults(strategy: IPUStrategyV1, jit_compile: bool | None) -> None:
    """Each of these variables is updated itself, whether it was made in the scope or not."""
    before = tf.Variable([5.0, 6.0])
    with strategy.scope():
        first, second = tf.Variable([1.0, 2.0]), tf.Variable([10.0, 20.0])

        @tf.function(jit_compile=jit_compile)
        def add(variable: Any, x: Any = 1.0, *, others: Any = (first, {"second": second})) -> Any:
            others[0].assign_add([100.0, 100.0])
            return variable.assign_add(tf.ones(2) * x).read_value() + others[1]["second"]

        np.testing.assert_array_equal(strategy.run(add, (second,)), [22, 42])
        np.testing.assert_array_equal(strategy.run(add, (before, 2.0)), [18, 29])
        np.testing.assert_array_equal(strategy.run(add, (before,), {"others": [first, {"second": before}]}), [16, 18])
        np.testing.assert_array_equal(add(first) if jit_compile else strategy.run(add, (first,)), [413, 424])
        default = tf.function(lambda v=second: v.assign_add([1.0, 1.0]).read_value(), jit_compile=jit_compile)
        np.testing.assert_array_equal(strategy.run(default), [12, 22])
        np.testing.assert_array_equal(strategy.run(default), [13, 23])
    np.testing.assert_array_equal([before, first, second], [[8, 9], [402, 403], [13, 23]])
