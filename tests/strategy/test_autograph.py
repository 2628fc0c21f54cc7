"""AutoGraph within functions that call users' functions: it converts `if` and `for` over tensors as around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.autograph.impl import api as autograph

from ipu import ipu_compiler, loops
from ipu.custom_ops import vertex
from ipu.functional_ops import outlined_function
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue
from ipu.ipu_strategy import IPUStrategyV1
from ipu.map_gradient_optimizer import MapGradientOptimizer
from ipu.pipelining_ops import OptimizerFunctionOutput, pipeline
from tests.strategy.helpers import compiled, numbers


def branch(x: Any) -> Any:
    """Returns 20 + 3 for x > 0, else -x + 3."""
    if x > 0.0:
        x = x * 0.0 + 20.0
    else:
        x = -x
    for _ in tf.range(3):
        x += 1.0
    return x


def oracle(x: float) -> float:
    return 23.0 if x > 0 else 3.0 - x


def in_run(strategy: IPUStrategyV1, x: Any) -> Any:
    return strategy.run(branch, (x,))


def in_replica_calls(strategy: IPUStrategyV1, x: Any) -> Any:
    return strategy.run(lambda y: strategy.run(branch, (y,)), (x,))


def in_loops(strategy: IPUStrategyV1, x: Any) -> Any:
    return loops.repeat(1, branch, [x])


def in_conditions(strategy: IPUStrategyV1, x: Any) -> Any:
    def condition(y: Any, count: Any) -> Any:
        going = tf.constant(True)
        if count > 0:
            going = tf.constant(False)
        return going

    return loops.while_loop(condition, lambda y, count: (branch(y), count + 1), [x, tf.constant(0)])[0]


def in_outlined(strategy: IPUStrategyV1, x: Any) -> Any:
    return outlined_function(branch)(x)


def in_inlined(strategy: IPUStrategyV1, x: Any) -> Any:
    """Calls an outlined function that is inlined, because it has hidden state."""
    return outlined_function(lambda y: branch(y) + 0.0 * tf.random.uniform([]))(x)


def in_compile(strategy: IPUStrategyV1, x: Any) -> Any:
    return ipu_compiler.compile(branch, [x])[0]


USERS = (in_run, in_replica_calls, in_loops, in_conditions, in_outlined, in_inlined, in_compile)


@pytest.mark.parametrize("user", USERS, ids=lambda user: user.__name__)
def test_functions_given_to_operators_are_converted(strategy: IPUStrategyV1, user: Callable[..., Any]) -> None:
    function = compiled(lambda x: user(strategy, x))
    for x in (2.0, -5.0):
        assert float(strategy.run(function, (tf.constant(x),))) == oracle(x)


def test_stages_and_optimizer_functions_are_converted(strategy: IPUStrategyV1) -> None:
    infeed, outfeed = IPUInfeedQueue(numbers(4)), IPUOutfeedQueue()
    _ = infeed.initializer
    with strategy.scope():
        weight = tf.Variable(1.0)

    def first(x: Any) -> Any:
        if x > 1.5:
            x = x * 10.0
        return x * weight

    def optimizer_function(loss: Any) -> OptimizerFunctionOutput:
        if loss > 25.0:
            loss = loss * 2.0
        return OptimizerFunctionOutput(tf.compat.v1.train.GradientDescentOptimizer(1.0), loss)

    @compiled
    def train() -> None:
        pipeline(
            [first, lambda x: x],
            gradient_accumulation_count=4,
            infeed_queue=infeed,
            outfeed_queue=outfeed,
            optimizer_function=optimizer_function,
        )

    strategy.run(train)
    np.testing.assert_array_equal(outfeed.dequeue(), [[0.0, 1.0, 20.0, 30.0]])
    assert float(weight) == 1.0 - (0.0 + 1.0 + 20.0 + 2 * 30.0)


def test_gradients_of_vertices_are_converted(strategy: IPUStrategyV1) -> None:
    @vertex(split={"x": "elementwise", "out": "elementwise"}, outputs=lambda x: x)
    def double(x: Any, out: Any) -> None:
        for i in range(len(x)):
            out[i] = 2 * x[i]

    @double.gradient
    def gradient(x: Any, d_out: Any) -> Any:
        if tf.reduce_sum(x) > 0.0:
            d_out = d_out * 7.0
        return d_out

    @compiled
    def slope(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = double(x)
        return tape.gradient(y, x)

    assert strategy.run(slope, (tf.constant([3.0]),)).numpy().tolist() == [7.0]
    assert strategy.run(slope, (tf.constant([-3.0]),)).numpy().tolist() == [1.0]


def test_wrapped_optimizers_are_converted(strategy: IPUStrategyV1) -> None:
    class Clipping(tf.compat.v1.train.GradientDescentOptimizer):
        def apply_gradients(self, grads_and_vars: Any, *arguments: Any, **named: Any) -> Any:
            ((gradient, variable),) = grads_and_vars
            if gradient > 10.0:
                gradient = tf.constant(10.0)
            return super().apply_gradients([(gradient, variable)], *arguments, **named)

    def mapping(gradient: Any, value: Any) -> Any:
        if value > 0.0:
            gradient = gradient * 2.0
        return gradient

    with strategy.scope():
        weight = tf.Variable(1.0)
    optimizer = MapGradientOptimizer(Clipping(1.0), mapping)

    @compiled
    def train(x: Any) -> Any:
        return optimizer.apply_gradients(optimizer.compute_gradients(weight * x, [weight]))

    strategy.run(train, (tf.constant(3.0),))
    assert float(weight) == 1.0 - 2 * 3.0
    strategy.run(train, (tf.constant(50.0),))
    assert float(weight) == -5.0 - 10.0


def test_nothing_is_converted_where_the_caller_is_not(strategy: IPUStrategyV1) -> None:
    function = tf.function(lambda x: loops.repeat(1, branch, [x]), jit_compile=True, autograph=False)
    with pytest.raises(Exception, match="symbolic|Python bool"):
        strategy.run(function, (tf.constant(2.0),))


def test_functions_of_these_packages_are_not_converted(
    strategy: IPUStrategyV1, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, seen = autograph._convert_actual, []
    monkeypatch.setattr(autograph, "_convert_actual", lambda f, context: (seen.append(f), original(f, context))[1])
    with strategy.scope():
        weight = tf.Variable(1.0)

    @compiled
    def step(x: Any) -> Any:
        weight.assign_add(x)
        return strategy.run(branch, (loops.repeat(2, lambda y: y * weight, [x]),))

    strategy.run(step, (tf.constant(1.0),))
    homes = {function.__module__.partition(".")[0] for function in seen}
    assert branch in seen
    assert homes <= {"tests"}, seen
