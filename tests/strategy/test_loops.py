"""loops.repeat and loops.while_loop: arguments, refusals, results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ipu import internal_ops, loops
from ipu._internal.compiler.program import use_definitions
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from tests.strategy.helpers import compiled, numbers


def run(strategy: IPUStrategyV1, loop: Any, *args: Any) -> Any:
    """Result of a function that consists of one loop."""
    return strategy.run(compiled(loop), args=args)


def initialized(dataset: tf.data.Dataset) -> IPUInfeedQueue:
    """A queue that is ready."""
    queue = IPUInfeedQueue(dataset)
    _ = queue.initializer
    return queue


def test_what_comes_back(strategy: IPUStrategyV1) -> None:
    add = lambda a, b: (a + b, b + 1)  # noqa: E731
    one = run(strategy, lambda: loops.repeat(4, lambda a: a + 1, [0.0]))
    assert isinstance(one, tf.Tensor) and one == 4.0
    assert run(strategy, lambda: loops.repeat(4, lambda a: a + 1, 0.0)) == 4.0
    several = run(strategy, lambda: loops.repeat(4, add, [0, 0]))
    assert isinstance(several, list) and [int(x) for x in several] == [6, 4]
    assert [int(x) for x in run(strategy, lambda: loops.repeat(4, add, (0, 0), use_while_v1=False))] == [6, 4]
    assert run(strategy, lambda: loops.repeat(3, lambda: None)) is None
    several = run(strategy, lambda: loops.while_loop(lambda a, b: a < 20, add, [0, 0]))
    assert [int(x) for x in several] == [21, 7]
    assert run(strategy, lambda: loops.while_loop(lambda a: a < 9.0, lambda a: a * 2, [1.0])) == 16.0
    assert run(strategy, lambda: loops.while_loop(lambda a: True, lambda a: a * 2, 1.0, maximum_iterations=3)) == 8.0


def test_no_iterations_and_counts_in_tensors(strategy: IPUStrategyV1) -> None:
    assert run(strategy, lambda: loops.repeat(0, lambda a: a + 1, [5.0])) == 5.0
    for n in (0, 3):
        assert run(strategy, lambda n: loops.repeat(n, lambda a: a + 1, [5.0]), tf.constant(n)) == 5.0 + n


def test_shapes_and_tensor_arrays(strategy: IPUStrategyV1) -> None:
    def loop() -> Any:
        array = tf.TensorArray(tf.float32, 5)
        _, filled = loops.repeat(5, lambda i, a: [i + 1, a.write(i, tf.cast(i, tf.float32) * [1.0, 2.0])], [0, array])
        return filled.stack()

    np.testing.assert_array_equal(run(strategy, loop), np.arange(5)[:, None] * [1.0, 2.0])


def test_nested_loops_and_gradients_within(strategy: IPUStrategyV1) -> None:
    with strategy.scope():
        weight = tf.Variable(2.0)

    def inner(a: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = (weight - 1.0) ** 2
        weight.assign_sub(0.1 * tape.gradient(loss, weight))
        return a + loss

    total = run(strategy, lambda: loops.repeat(2, lambda a: loops.repeat(3, inner, [a]), [0.0]))
    expected, value = 0.0, 2.0
    for _ in range(6):
        expected += (value - 1) ** 2
        value -= 0.2 * (value - 1)
    assert float(total) == pytest.approx(expected, rel=1e-6) and float(weight) == pytest.approx(value, rel=1e-6)


def test_gradients_through_a_loop(strategy: IPUStrategyV1) -> None:
    def slope(x: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = loops.repeat(3, lambda a: a * a, [x])
        return tape.gradient(y, x)

    assert float(run(strategy, slope, tf.constant(1.5))) == pytest.approx(8 * 1.5**7, rel=1e-6)


def test_python_control_flow_on_tensors_in_bodies(strategy: IPUStrategyV1) -> None:
    def body(a: tf.Tensor, b: tf.Tensor) -> Any:
        if a % 2 == 0:
            b += a
        return a + 1, b

    assert [int(x) for x in run(strategy, lambda: loops.repeat(6, body, [0, 0]))] == [6, 6]


@pytest.mark.parametrize(
    ("of", "body"),
    [
        (lambda x: x, lambda total, x: total + x),
        (lambda x: (x,), lambda total, x: total + x),
        (lambda x: (x, 10 * x), lambda total, x, y: total + y / 10),
        (lambda x: {"x": x, "y": 3 * x}, lambda total, *, y, x: total + y - 2 * x),
        (lambda x: ({"x": x, "y": 3 * x},), lambda total, x, y: total + y - 2 * x),
        (lambda x: (x, {"y": x}), lambda total, x, named: total + named["y"]),
        (lambda x: ((x, x), x), lambda total, pair, x: total + pair[0] - pair[1] + x),
    ],
)
def test_elements_become_arguments(strategy: IPUStrategyV1, of: Any, body: Any) -> None:
    queue = initialized(numbers().map(of))
    assert run(strategy, lambda: loops.repeat(5, body, [0.0], queue)) == 10.0
    assert queue.dequeued


def test_conditions_get_no_element(strategy: IPUStrategyV1) -> None:
    queue = initialized(numbers())
    total = run(strategy, lambda: loops.while_loop(lambda a: a < 20, lambda a, x: a + x, [0.0], queue))
    assert total == 21.0


def test_operations_after_tensors(strategy: IPUStrategyV1) -> None:
    outfeed = IPUOutfeedQueue()

    def body(a: tf.Tensor) -> Any:
        return a + 1, outfeed.enqueue(a)

    assert run(strategy, lambda: loops.repeat(3, body, [0.0])) == 3.0
    np.testing.assert_array_equal(outfeed.dequeue(), [0, 1, 2])
    only = IPUOutfeedQueue()
    queue = initialized(numbers())
    assert run(strategy, lambda: loops.repeat(3, lambda x: only.enqueue(x), [], queue)) is None
    np.testing.assert_array_equal(only.dequeue(), [0, 1, 2])
    with pytest.raises(ValueError, match="an operation before a tensor"):
        run(strategy, lambda: loops.repeat(3, lambda a: body(a)[::-1], [0.0]))


def test_arguments_that_do_not_fit(strategy: IPUStrategyV1) -> None:
    queue = initialized(numbers())
    with pytest.raises(TypeError, match="body function cannot be called.*2 inputs, but the loop body needs exactly 1"):
        run(strategy, lambda: loops.repeat(3, lambda a: a, [0, 0]))
    with pytest.raises(TypeError, match="1 inputs and 1 from the infeed, but the loop body needs exactly 1"):
        run(strategy, lambda: loops.repeat(3, lambda a: a, [0], queue))
    named = initialized(numbers().map(lambda x: {"x": x}))
    with pytest.raises(TypeError, match=r"by the names x.*needs exactly 2"):
        run(strategy, lambda: loops.repeat(3, lambda a, y: a, [0], named))
    with pytest.raises(TypeError, match=r"Expected inputs to be tensors. Received: a dictionary of \['a'\]"):
        run(strategy, lambda: loops.repeat(2, lambda x: x, [{"a": tf.constant(1.0)}]))
    with pytest.raises(TypeError, match="condition function cannot be called.*needs at least 2"):
        run(strategy, lambda: loops.while_loop(lambda a, b, *c: True, lambda a: a, [0]))
    with pytest.raises(TypeError, match=r"\['int32'\]. Received: \['float32'\]"):
        run(strategy, lambda: loops.repeat(3, lambda a: tf.cast(a, tf.float32), [0]))
    with pytest.raises(TypeError, match=r"return 2 tensors .* Received: \['int32'\]"):
        run(strategy, lambda: loops.repeat(3, lambda a, b: a, [0, 0]))
    with pytest.raises(TypeError, match="infeed_queue to be an IPUInfeedQueue"):
        run(strategy, lambda: loops.repeat(3, lambda a: a, [0], infeed_queue=numbers()))


def test_bodies_know_the_iteration(strategy: IPUStrategyV1) -> None:
    counter = internal_ops.get_current_iteration_counter

    def outer(a: tf.Tensor) -> tf.Tensor:
        return loops.repeat(3, lambda a: a + counter(), [a]) + 100 * counter()

    assert run(strategy, lambda: loops.repeat(4, outer, [0])) == 4 * 3 + 600
    assert run(strategy, lambda: loops.while_loop(lambda a: a < 6, lambda a: a + counter(), [1])) == 7
    with pytest.raises(RuntimeError, match="outside of any"):
        counter()


def test_on_the_definitions_alone(strategy: IPUStrategyV1) -> None:
    queue, outfeed = initialized(numbers(8)), IPUOutfeedQueue()

    def body(total: tf.Tensor, x: tf.Tensor) -> Any:
        return total + x, outfeed.enqueue({"x": x, "total": total})

    step = compiled(lambda: loops.repeat(5, body, [0.0], queue))
    with use_definitions():
        assert strategy.run(step) == 10.0
    np.testing.assert_array_equal(outfeed.dequeue()["total"], [0, 0, 1, 3, 6])
    with pytest.raises(tf.errors.OutOfRangeError):
        strategy.run(step)


@pytest.mark.parametrize("count", [2.5, "3", None, [1, 2]])
def test_numbers_of_iterations_that_are_none(strategy: IPUStrategyV1, count: Any) -> None:
    with pytest.raises(TypeError, match="number of iterations to be an integer"):
        strategy.run(compiled(lambda: loops.repeat(count, lambda x: x, [1.0])))


@pytest.mark.parametrize("count", [3, np.int64(3), np.array(3)])
def test_numbers_of_iterations(strategy: IPUStrategyV1, count: Any) -> None:
    assert strategy.run(compiled(lambda: loops.repeat(count, lambda x: x + 1.0, [1.0]))) == 4.0
    assert strategy.run(compiled(lambda n: loops.repeat(n, lambda x: x + 1.0, [1.0])), args=(tf.constant(3),)) == 4.0


@pytest.mark.parametrize("condition", [lambda x: x, lambda x: tf.fill([2], x > 1.0)])
def test_conditions_that_are_no_boolean_scalar(strategy: IPUStrategyV1, condition: Any) -> None:
    with pytest.raises(TypeError, match="loop condition to return a boolean scalar"):
        strategy.run(compiled(lambda: loops.while_loop(condition, lambda x: x, [1.0])))
