"""The program of section 18.3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from tests.graphs.chapters.programs import run, v1


def test_outside_compilation() -> None:
    names = run("18_3_outside_compilation", **vars(ipu.scopes))
    a = v1.placeholder(np.float32, [2, 3])
    (result,) = ipu.ipu_compiler.compile(names["my_net"], [a])
    value = np.float32([[1, 2, -3], [0, 0.5, 1e3]])
    with v1.Session() as session:
        np.testing.assert_array_equal(session.run(result, {a: value}), value * value + (value * value + 2))


def cycles(computation: Callable[..., Any], *inputs: np.ndarray) -> int:
    """The cycles that a program in a tf.Graph takes on the chip."""
    return ipu.profile(ipu.ipu_compiler.compile(computation, inputs), path=None).cycles["total"]


def test_partials_type_is_in_the_cost_report() -> None:
    def product(x: tf.Tensor, kind: type = np.float32) -> tf.Tensor:
        with ipu.scopes.partials_type(kind):
            return x @ x

    x = np.ones((512, 512), np.float16)
    assert cycles(lambda x: product(x, np.float16), x) < cycles(product, x) == cycles(lambda x: x @ x, x)


def test_shards_make_replicas() -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 8
    config.configure_ipu_system()

    def net(x: tf.Tensor) -> tf.Tensor:
        with ipu.scopes.ipu_shard(0):
            y = x * x
        with ipu.scopes.ipu_shard(1):
            return ipu.cross_replica_ops.cross_replica_sum(y + 1)

    with ipu.scopes.ipu_scope("/device:IPU:0"):
        (two,) = ipu.ipu_compiler.compile(net, [np.float32([1, 2])])
        (one,) = ipu.ipu_compiler.compile(ipu.cross_replica_ops.cross_replica_sum, [np.float32([1, 2])])
    with v1.Session() as session:
        np.testing.assert_array_equal(session.run(two), [8, 20])
        np.testing.assert_array_equal(session.run(one), [8, 16])


def test_variables_are_initialised_on_the_host() -> None:
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        variable = v1.get_variable("v", [3], use_resource=True, initializer=v1.ones_initializer())
        (result,) = ipu.ipu_compiler.compile(lambda: variable + 1.0)
    ipu.utils.move_variable_initialization_to_cpu()
    assert "CPU:0" in variable.initializer.device
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(result), [2, 2, 2])


def test_sessions_place_variables_without_warnings() -> None:
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        variables = [v1.get_variable("v", [3]), v1.get_variable("w", [3], use_resource=False)]
    other = v1.get_variable("other", [3])
    assert ["IPU:0" in variable.device for variable in variables] == [True, True]
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
    # TensorFlow's C++ would warn of variables that it must place elsewhere.
    assert [variable.device for variable in (*variables, other)] == ["/device:CPU:0", "/device:CPU:0", ""]
