"""Outlined functions equal inlined ones, forward and backward, and share bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.ir.outlining import is_gradient, outlined_call
from ipu._internal.compiler.trace import trace_step

outlined_function = ipu.functional_ops.outlined_function
X = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)


@pytest.fixture(scope="module")
def strategy() -> Any:
    """One device."""
    return ipu.ipu_strategy.IPUStrategy()


@pytest.fixture(scope="module")
def weights(strategy: Any) -> list[tf.Variable]:
    """Three matrices on the device."""
    with strategy.scope():
        rng = np.random.default_rng(1)
        return [tf.Variable(rng.normal(size=(5, 5)).astype(np.float32)) for _ in range(3)]


def dense(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """A dense layer."""
    return tf.nn.gelu(tf.matmul(x, w) + 0.5)


def calls_of(function: Callable[..., Any], *arguments: np.ndarray) -> list[Any]:
    """The outlined calls in the module of a function."""
    module = trace_step(function, [tf.TensorSpec(a.shape, a.dtype) for a in arguments]).module
    return [i for c in module.computations() for i in c.instructions if outlined_call(i)]


def with_gradients(
    model: Callable[[tf.Tensor], tf.Tensor], weights: list[tf.Variable]
) -> Callable[[tf.Tensor], list[tf.Tensor]]:
    """The loss of a model, and its gradients by its input and weights."""

    def step(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(model(x)))
        return [loss, *tape.gradient(loss, [x, *weights])]

    return step


def by_argument(decorate: Any, weights: list[tf.Variable]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Layers of one function, with weights as arguments."""
    layer = decorate(dense)

    def model(x: tf.Tensor) -> tf.Tensor:
        for w in weights:
            x = layer(x, w)
        return x

    return model


def by_closure(decorate: Any, weights: list[tf.Variable]) -> Callable[[tf.Tensor], tf.Tensor]:
    """Layers that share a closure, whose variable changes from call to call, and a tensor of the caller."""

    def model(x: tf.Tensor) -> tf.Tensor:
        shift, number = tf.reduce_sum(x), -1

        @decorate
        def layer(x: tf.Tensor) -> dict[str, tf.Tensor]:
            return {"y": dense(x, weights[number]) + shift, "unused": tf.cast(x, tf.int32)}

        while (number := number + 1) < len(weights):
            x = layer(x)["y"]
        return x

    return model


def nested(decorate: Any, weights: list[tf.Variable]) -> Callable[[tf.Tensor], tf.Tensor]:
    """An outlined function in another one."""
    inner = decorate(dense)
    outer = decorate(lambda x, a, b: inner(inner(x, a), b))
    return lambda x: outer(outer(x, weights[0], weights[1]), weights[1], weights[2])


@pytest.mark.sample(1)
@pytest.mark.parametrize(("build", "count"), [(by_argument, 6), (by_closure, 6), (nested, 12)])
def test_results_and_gradients_are_those_of_the_function(
    build: Callable[..., Any], count: int, strategy: Any, weights: list[tf.Variable]
) -> None:
    plain, outlined = (with_gradients(build(each, weights), weights) for each in (lambda f: f, outlined_function))
    for expected, found in zip(*(strategy.run(tf.function(f), (X,)) for f in (plain, outlined)), strict=True):
        np.testing.assert_array_equal(found, expected)
    calls = calls_of(outlined, X)
    assert [outlined_call(call) for call in calls] == [outlined_call(call) for call in calls_of(outlined, X)]
    if build is not nested:
        assert len(calls) == count and sum(map(is_gradient, calls)) == count // 2
    if build is by_argument:
        assert len({call.called for call in calls}) == 2


def test_functions_of_equal_structure_share_bodies(strategy: Any, weights: list[tf.Variable]) -> None:
    narrow = tf.Variable(np.float32(2.0))

    def model(decorate: Any) -> Callable[[tf.Tensor], tf.Tensor]:
        def layer(factor: float, w: tf.Variable, scale: tf.Tensor) -> Callable[[tf.Tensor], tf.Tensor]:
            return decorate(lambda x: tf.tanh(tf.matmul(x, tf.broadcast_to(w, [5, 5]))) * factor + scale)

        def run(x: tf.Tensor) -> tf.Tensor:
            for factor, w in ((2.0, weights[0]), (3.0, weights[1]), (2.0, weights[2]), (2.0, narrow)):
                x = layer(factor, w, tf.reduce_sum(x))(x)
            return x

        return run

    plain, outlined = (with_gradients(model(each), [*weights, narrow]) for each in (lambda f: f, outlined_function))
    for expected, found in zip(*(strategy.run(tf.function(f), (X,)) for f in (plain, outlined)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    calls = [call for call in calls_of(outlined, X) if not is_gradient(call)]
    bodies = {call.called for call in calls}
    assert len(calls) == 4 and len(bodies) == 3  # another constant, and a variable of another shape


def test_a_gradient_of_a_gradient(strategy: Any) -> None:
    cube = outlined_function(lambda x: x * x * x)

    def second(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = cube(x)
            first = inner.gradient(y, x)
        return outer.gradient(first, x)

    np.testing.assert_allclose(strategy.run(tf.function(second), (X,)), 6 * X, rtol=1e-6)


def test_more_tapes_than_one(strategy: Any, weights: list[tf.Variable]) -> None:
    """A tape appends intermediate values to the results of a traced body; later calls must not return them."""

    def layer(x: tf.Tensor) -> tf.Tensor:
        h = tf.tanh(tf.matmul(x, weights[0]))
        return tf.sin(2.0 * h) * h

    def steps(call: Any) -> Callable[[tf.Tensor], list[tf.Tensor]]:
        def run(x: tf.Tensor) -> list[tf.Tensor]:
            for _ in range(2):
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    loss = tf.reduce_sum(tf.square(call(x)))
                by_x, by_weights = tape.gradient(loss, [x, weights[0]])
                x -= 0.01 * by_x
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    loss = tf.reduce_sum(tf.square(call(x)))
                squares = tf.reduce_sum(tf.square(inner.gradient(loss, x)))
            return [loss, by_weights, *outer.gradient(squares, [x, weights[0]])]

        return run

    outlined = strategy.run(tf.function(steps(outlined_function(layer))), (X,))
    for found, expected in zip(outlined, strategy.run(tf.function(steps(layer)), (X,)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_rows_of_a_table(strategy: Any, weights: list[tf.Variable]) -> None:
    """Gradients are IndexedSlices for tables within the body and for tables that are operands."""

    def step(decorate: Any) -> Callable[[tf.Tensor], list[tf.Tensor]]:
        rows = decorate(lambda table, ids: 2.0 * tf.gather(table, ids) * tf.nn.embedding_lookup(weights[0], ids))

        def run(x: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(rows(x, tf.constant([1, 2, 2])) * rows(x, tf.constant([0, 1, 2])))
            gradients = tape.gradient(loss, [x, weights[0]])
            assert all(isinstance(each, tf.IndexedSlices) for each in gradients)
            squares = [tf.IndexedSlices(each.values**2, each.indices, each.dense_shape) for each in gradients]
            return [tf.convert_to_tensor(each) for each in (*gradients, *squares)]

        return run

    plain, outlined = (strategy.run(tf.function(step(each)), (X,)) for each in (lambda f: f, outlined_function))
    for expected, found in zip(plain, outlined, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_sparse_upstream_gradients_without_a_tape(strategy: Any) -> None:
    def model(decorate: Any) -> Callable[[tf.Tensor], Any]:
        square = decorate(lambda x: x * x)
        return lambda x: tf.gradients(tf.gather(square(x), [2, 0]), x)[0]

    expected = np.stack([2 * X[0], 0 * X[1], 2 * X[2]])
    np.testing.assert_allclose(strategy.run(tf.function(model(outlined_function)), (X,)), expected, rtol=1e-6)
    assert sum(map(is_gradient, calls_of(model(outlined_function), X))) == 1


def test_stateful_functions_are_inlined(strategy: Any) -> None:
    with strategy.scope():
        count = tf.Variable(0.0)

    @outlined_function
    def counted(x: tf.Tensor) -> tf.Tensor:
        return x + count.assign_add(1.0)

    assert not calls_of(lambda x: counted(counted(x)), X)
    np.testing.assert_allclose(strategy.run(tf.function(lambda x: counted(counted(x))), (X,)), X + 3, rtol=1e-6)


def test_arguments(strategy: Any) -> None:
    @outlined_function(name="options", unique_sharding=True, keep_input_layouts=False)
    def scaled(x: tf.Tensor, factor: Any, *, negative: bool = False) -> tuple[tf.Tensor, list[tf.Tensor]]:
        y = x * tf.cast(factor, x.dtype)
        return -y if negative else y, [tf.reduce_sum(y)]

    def step(x: tf.Tensor) -> Any:
        return scaled(x, 2), scaled(x, np.float32(3), negative=True)

    (y, [total]), (z, _) = strategy.run(tf.function(step), (X,))
    np.testing.assert_allclose(y, 2 * X, rtol=1e-6)
    np.testing.assert_allclose(total, 2 * X.sum(), rtol=1e-5)
    np.testing.assert_allclose(z, -3 * X, rtol=1e-6)
    np.testing.assert_allclose(scaled(X, 2)[0], 2 * X, rtol=1e-6)
    with pytest.raises(ValueError, match="Expected an outlined function that returns at least one tensor"):
        strategy.run(tf.function(lambda x: outlined_function(lambda _: None)(x)), (X,))


class Block(keras.layers.Layer):
    """A residual layer whose call is outlined."""

    def build(self, shape: Any) -> None:
        self.w = self.add_weight(shape=(shape[-1], shape[-1]))

    @outlined_function
    def call(self, x: Any, training: bool = False) -> Any:
        return x + keras.ops.tanh(keras.ops.matmul(x, self.w)) * (0.5 if training else 1.0)


@pytest.mark.sample(1)
@pytest.mark.parametrize(("policy", "accumulated"), [("float32", 1), ("mixed_float16", 1), ("float32", 2)])
def test_keras_layers(policy: str, accumulated: int, strategy: Any) -> None:
    def trained(plain: bool) -> list[np.ndarray]:
        keras.utils.set_random_seed(3)
        with strategy.scope():
            layers = [Block(dtype=policy) for _ in range(3)]
            if plain:
                for layer in layers:
                    layer.call = Block.call.__wrapped__.__get__(layer)
            model = keras.Sequential([keras.Input((5,)), *layers])
            model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=2)
            model.set_gradient_accumulation_options(gradient_accumulation_steps_per_replica=accumulated)
            model.fit(X[:2].repeat(4, 0), X[1:].repeat(4, 0), batch_size=2, shuffle=False, verbose=0)
            return [*model.get_weights(), model.predict(X, batch_size=3, verbose=0)]

    for found, expected in zip(trained(False), trained(True), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_in_a_graph_of_tensorflow_1() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 1
    config.configure_ipu_system()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float32, X.shape)

        def model(x: tf.Tensor) -> Any:
            w = tf.compat.v1.get_variable("w", initializer=np.eye(5, dtype=np.float32), use_resource=True)
            layer = outlined_function(lambda x: tf.tanh(tf.matmul(x, w)))
            loss = tf.reduce_sum(layer(layer(x)))
            return [loss, tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss)]

        with ipu.scopes.ipu_scope("/device:IPU:0"):
            step = ipu.ipu_compiler.compile(model, [x])
        session.run(tf.compat.v1.global_variables_initializer())
        losses = [session.run(step, {x: X})[0] for _ in range(2)]
    w = tf.Variable(np.eye(5, dtype=np.float32))
    for loss in losses:
        with tf.GradientTape() as tape:
            expected = tf.reduce_sum(tf.tanh(tf.matmul(tf.tanh(tf.matmul(X, w)), w)))
        np.testing.assert_allclose(loss, expected, rtol=1e-4)
        w.assign_sub(0.1 * tape.gradient(expected, w))
