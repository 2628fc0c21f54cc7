"""Optimizers of TensorFlow 1 that programs define, as their owners wrote them, in programs and in TensorFlow alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

v1 = tf.compat.v1


class Halving(v1.train.Optimizer):
    """Momentum whose rate is halved by each update; it looks for its variable in the graph that is being built."""

    def __init__(self, rate: float) -> None:
        super().__init__(False, "Halving")
        self._rate = rate

    def _create_slots(self, variables: Any) -> None:
        for each in variables:
            self._zeros_slot(each, "momentum", self._name)
        self._create_non_slot_variable(1.0, "factor", min(variables, key=lambda each: each.name))

    def _resource_apply_dense(self, gradient: tf.Tensor, variable: Any) -> tf.Operation:
        factor = self._get_non_slot_variable("factor", graph=v1.get_default_graph())
        momentum = self.get_slot(variable, "momentum")
        with tf.control_dependencies([momentum.assign(0.5 * momentum + gradient)]):
            return variable.assign_sub(self._rate * factor * momentum.read_value()).op

    def _finish(self, updates: Any, name: str) -> tf.Operation:
        factor = self._get_non_slot_variable("factor", graph=v1.get_default_graph())
        with tf.control_dependencies(updates):
            return tf.group(*updates, factor.assign(factor * 0.5), name=name)


def in_loop(step: Callable[[], Any]) -> Any:
    return ipu.loops.repeat(3, lambda: step()[1:])


def in_branch(step: Callable[[], Any]) -> Any:
    def trained() -> tf.Tensor:
        loss, train = step()
        with tf.control_dependencies([train]):
            return tf.identity(loss)

    return [v1.cond(tf.reduce_sum(v1.get_variable("w", [3])) < 9.0, trained, lambda: 0.0) for _ in range(3)]


def one_by_one(step: Callable[[], Any]) -> Any:
    return step()


@pytest.mark.parametrize("way", [in_loop, in_branch, one_by_one])
def test_an_optimizer_finds_its_variable(way: Callable[..., Any]) -> None:
    values = []
    for compiled in (False, True):
        with tf.Graph().as_default(), v1.Session() as session, v1.variable_scope("", reuse=v1.AUTO_REUSE):
            optimizer = Halving(0.1)

            def step(optimizer: Halving = optimizer) -> Any:
                loss = tf.reduce_sum(v1.get_variable("w", [3], use_resource=True) ** 2)
                return loss, optimizer.minimize(loss)

            w = v1.get_variable("w", initializer=np.float32([1, -2, 3]), use_resource=True)
            program = ipu.ipu_compiler.compile(lambda way=way, step=step: way(step)) if compiled else step()[1]
            session.run(v1.global_variables_initializer())
            for _ in range(1 if compiled and way is not one_by_one else 3):
                session.run(program)
            values.append(session.run(v1.global_variables()))
            assert w.name in [each.name for each in v1.global_variables()]
    for plain, ours in zip(*values, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-6)
