"""Variables that loops and branches of compiled programs create: their names are those in TensorFlow alone.

Control flow of TensorFlow 1 puts them into a scope, that of version 2 does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.ops import control_flow_util

v1 = tf.compat.v1


def scale(name: str = "v") -> tf.Tensor:
    return tf.Variable([1.0, 2.0], name=name, use_resource=True)


def branches(x: tf.Tensor) -> tf.Tensor:
    with tf.name_scope("within"):
        x = v1.cond(x[0] > 0, lambda: x * scale(), lambda: x - scale())
    return v1.cond(x[0] > 1, lambda: x * scale(), lambda: x - v1.get_variable("g", initializer=[1.0, 3.0]))


def loop(x: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        with v1.variable_scope("body"):
            return i + 1, y * scale() + v1.get_variable("g", initializer=[1.0, 3.0])

    return v1.while_loop(lambda i, y: i < 3, body, (0, x), maximum_iterations=3)[1]


def nested(x: tf.Tensor) -> tf.Tensor:
    def body(i: tf.Tensor, y: tf.Tensor) -> Any:
        return i + 1, v1.cond(i > 1, lambda: y * scale("inner"), lambda: branches(y))

    return v1.while_loop(lambda i, y: i < 3, body, (0, x), maximum_iterations=3, name="outer")[1]


def cases(x: tf.Tensor) -> tf.Tensor:
    return v1.case([(x[0] > 5, lambda: x * scale()), (x[0] > 0, lambda: x - scale())], lambda: x, name="which")


def mapped(x: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(lambda row: row * tf.reduce_sum(scale()), tf.scan(lambda a, row: a * row + scale()[0], x))


def update_in_a_branch(x: tf.Tensor) -> tf.Tensor:
    loss = tf.reduce_sum(x * scale())
    optimizer = v1.train.AdamOptimizer(0.1)

    def update() -> tf.Tensor:
        with tf.control_dependencies([optimizer.minimize(loss)]):
            return tf.identity(x)

    return v1.cond(x[0] > 0, update, lambda: x)


@pytest.mark.parametrize("program", [branches, loop, nested, cases, mapped, update_in_a_branch])
@pytest.mark.parametrize("version", [1, 2])
def test_names_are_those_without_the_program(
    program: Callable[[tf.Tensor], tf.Tensor], version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", version == 2)

    def scoped(x: tf.Tensor) -> Any:
        with v1.variable_scope("net", use_resource=True):
            y = program(x)
            if program is update_in_a_branch:
                return [y]
            return [y, v1.train.AdamOptimizer(0.01).minimize(tf.reduce_sum(y))]

    found = []
    for compiled in (False, True):
        with tf.Graph().as_default(), v1.Session() as session:
            x = tf.constant(np.float32([1, 2]))
            with ipu.scopes.ipu_scope("/device:IPU:0") if compiled else tf.device("/device:CPU:0"):
                results = ipu.ipu_compiler.compile(scoped, [x]) if compiled else scoped(x)
            variables = sorted(v1.global_variables(), key=lambda variable: variable.name)
            session.run(v1.global_variables_initializer())
            for _ in range(3):
                session.run(results)
            found.append(([each.name for each in variables], session.run(variables)))
    (names, plain), (others, ours) = found
    assert others == names
    for expected, received in zip(plain, ours, strict=True):
        np.testing.assert_allclose(received, expected, rtol=1e-5)
