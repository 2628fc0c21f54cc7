"""Outlined functions, vertices and exports in programs of TensorFlow 1, whose shapes may be of Dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

import engine
from tests import forking

v1 = tf.compat.v1
X = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)
IDS = [1, 3, 3, 8]


def trained(decorate: Any) -> list[np.ndarray]:
    """Variables after five steps of a loop; functions that `decorate` makes create them."""

    def loss_of(x: tf.Tensor) -> tf.Tensor:
        for k in range(3):
            with v1.variable_scope(f"layer_{k}", reuse=v1.AUTO_REUSE):

                @decorate
                def layer(x: tf.Tensor, seed: int = k) -> tf.Tensor:
                    w = v1.get_variable("w", [6, 6], initializer=v1.initializers.random_normal(0, 0.4, seed))
                    biases = v1.get_variable("b", [6], initializer=v1.zeros_initializer())
                    return 2.0 * tf.tanh(tf.matmul(x, w) + biases)

                x = layer(x)

        @decorate
        def rows(ids: tf.Tensor) -> tf.Tensor:
            initializer = v1.initializers.random_normal(seed=7)
            return tf.gather(v1.get_variable("table", [9, 6], initializer=initializer, use_resource=True), ids)

        return tf.reduce_mean(tf.square(x - rows(tf.constant(IDS))))

    def body(x: tf.Tensor, total: tf.Tensor) -> Any:
        loss = loss_of(x)
        with tf.control_dependencies([v1.train.AdamOptimizer(0.01).minimize(loss)]):
            return x, total + loss

    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, X.shape)
        results = ipu.ipu_compiler.compile(lambda x: ipu.loops.repeat(5, body, [x, 0.0]), [x])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            _, total = session.run(results, {x: X})
            return [total, *session.run(v1.trainable_variables())]


def test_variables_are_created_in_outlined_functions() -> None:
    plain, outlined = trained(lambda function: function), trained(ipu.functional_ops.outlined_function)
    assert len(plain) == len(outlined) == 8
    for expected, found in zip(plain, outlined, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def counted(decorate: Any, has_state: bool) -> dict[str, np.ndarray]:
    """Variables by name after four steps of a model whose layers are calls of one function.

    Its variables depend on the scope; with `has_state` it changes a variable that counts its calls.
    """

    @decorate
    def layer(x: tf.Tensor) -> tf.Tensor:
        w = v1.get_variable("w", [6, 6], initializer=v1.initializers.random_normal(0, 0.4, 3), use_resource=True)
        with v1.variable_scope(None, "inner"):
            b = v1.get_variable("b", [6], initializer=v1.zeros_initializer(), use_resource=True)
        if has_state:
            calls = v1.get_variable("calls", [], initializer=v1.zeros_initializer(), trainable=False, use_resource=True)
            with tf.control_dependencies([calls.assign_add(1.0)]):
                x = tf.identity(x)
        return tf.tanh(tf.matmul(x, w) + b)

    def step(x: tf.Tensor) -> Any:
        for k in range(2):
            with v1.variable_scope(f"layer_{k}"):
                x = layer(x)
        loss = tf.reduce_mean(tf.square(x - 0.5))
        return loss, v1.train.GradientDescentOptimizer(0.5).minimize(loss)

    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, X.shape)
        results = ipu.ipu_compiler.compile(step, [x])
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(4):
                (loss,) = session.run(results, {x: X})
            return {"loss": loss, **session.run({v.op.name: v for v in v1.global_variables()})}


@pytest.mark.parametrize("has_state", [False, True])
def test_each_call_has_the_variables_of_its_scope(has_state: bool) -> None:
    plain = counted(lambda function: function, has_state)
    outlined = counted(ipu.outlined_function, has_state)
    names = ["inner/b", "w", *(["calls"] if has_state else [])]
    assert sorted(plain) == sorted(["loss", *(f"layer_{k}/{name}" for k in range(2) for name in names)])
    assert plain.keys() == outlined.keys()
    for name, expected in plain.items():
        np.testing.assert_allclose(outlined[name], expected, rtol=1e-5, atol=1e-6, err_msg=name)


@ipu.custom_ops.vertex
def cubed(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        out[i] = x[i] * x[i] * x[i]


def with_dimensions(folder: str) -> None:
    v1.disable_v2_behavior()
    test_variables_are_created_in_outlined_functions()
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, X.shape)
        np.testing.assert_allclose(session.run(ipu.ipu_compiler.compile(cubed, [x]), {x: X})[0], X**3, rtol=1e-5)
    v1.enable_eager_execution()
    ipu.serving.export_single_step(lambda x: 2.0 * x, folder, 1, [tf.TensorSpec((4, 6))])
    (program,) = Path(folder, "assets").glob("*.popef")
    np.testing.assert_array_equal(engine.load(program).run([X])[0], 2 * X)


def test_shapes_of_version_1(tmp_path: Path) -> None:
    """`tuple(tensor.shape)` contains Dimensions there, which cannot be hashed."""
    status, output = forking.run(with_dimensions, str(tmp_path / "exported"))
    assert status == 0, output[-3000:]
