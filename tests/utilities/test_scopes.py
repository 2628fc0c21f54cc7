"""Scopes mark operations and change no result."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python import ipu

from engine.compile import build_program
from engine.profile.options import Assumptions
from engine.profile.program_estimate import Estimate, estimate
from engine.target import target
from ipu._internal.compiler.trace import trace_step
from tests.collectives.running import on_replicas

X = np.float32([[1, 2], [3, 4]])


def attributes_of(function) -> dict[str, dict]:
    """The frontend attributes of each opcode in the program of a function of X."""
    module = trace_step(function, [tf.TensorSpec(X.shape)]).module
    found = [(i.opcode, i.get("frontend_attributes", {})) for c in module.computations() for i in c.instructions]
    # TensorFlow itself marks which operands of products are gradients.
    return {code: {name: at[name] for name in at if not name.startswith("grad_")} for code, at in found}


def estimated(partials: type | None, assumptions: Assumptions) -> Estimate:
    """The cost report of three products of halves; the scope contains the second one and a convolution after it."""

    def function(x: tf.Tensor) -> tf.Tensor:
        x = tf.matmul(x, x)
        with contextlib.nullcontext() if partials is None else ipu.scopes.partials_type(partials):
            image = tf.reshape(tf.matmul(x, x), (4, 16, 64, 64))
            x = tf.nn.conv2d(image, tf.ones((3, 3, 64, 64), tf.float16), 1, "SAME")
        x = tf.reshape(x, (512, 512))
        return tf.matmul(x, x)

    traced = trace_step(function, [tf.TensorSpec((512, 512), tf.float16)])
    return estimate(build_program(traced.module, traced.roles, traced.constants), target("ipu2"), 1, assumptions)


def test_partials_types_reach_the_plans() -> None:
    whole = Assumptions(partials_type="f32")
    plain, halves, floats = (estimated(kind, whole) for kind in (None, np.float16, np.float32))
    pairs = [(one, other) for one, other in zip(plain.costs, halves.costs, strict=True) if one.operation.unit == "AMP"]
    assert [other.compute < one.compute for one, other in pairs] == [False, True, True, False]
    assert floats.cycles == plain.cycles
    # A scope overrides the options of the whole program.
    half = Assumptions(partials_type="f16")
    assert estimated(np.float32, half).cycles > estimated(None, half).cycles


def test_frontend_attributes_reach_the_program() -> None:
    def function(x):
        with ipu.scopes.frontend_attribute("one", "1"):
            x = x * 2.0
            with ipu.scopes.frontend_attribute("two", "2", restore_to="3"):
                x = tf.sin(x)
            x = x @ x
        return tf.tanh(x)

    found = attributes_of(function)
    assert found["multiply"] == {"one": "1"}
    assert found["sine"] == {"one": "1", "two": "2"}
    assert found["dot"] == {"one": "1", "two": "3"}
    assert found["tanh"] == {}
    with pytest.raises(TypeError, match="attribute_value"), ipu.scopes.frontend_attribute("one", 1):
        pass


def test_wishes() -> None:
    def function(x):
        with ipu.scopes.partials_type(np.float16), ipu.scopes.stochastic_rounding(True):
            return x @ x

    assert attributes_of(function)["dot"] == {"PARTIALS_TYPE": "half", "STOCHASTIC_ROUNDING": "THREESTATE_ON"}
    for refused in (np.int32, np.float64, "no type"):
        with pytest.raises(ValueError, match=r"numpy\.float32"):
            ipu.scopes.partials_type(refused)


def test_the_function_of_the_chapter() -> None:
    def my_net(a):
        with ipu.scopes.ipu_scope("/device:IPU:0"), ipu.scopes.ipu_jit_scope("mine"):
            b = a * a
            with ipu.scopes.outside_compilation_scope():
                c = b + 2
            return b + c

    np.testing.assert_array_equal(on_replicas(my_net, 1, X), 2 * X * X + 2)


def test_scopes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="name of an IPU device"), ipu.scopes.ipu_scope("/device:GPU:0"):
        pass
    with pytest.raises(ValueError, match="leave|Leave"), ipu.scopes.outside_compilation_scope():
        pass

    def nested(a):
        with ipu.scopes.outside_compilation_scope("one"), ipu.scopes.outside_compilation_scope("two"):
            return a + 1

    with pytest.raises(ValueError, match="'two' inside one"):
        on_replicas(nested, 1, X)
    for index in (-1, 1.5, [0, True]):
        with pytest.raises(ValueError, match="Nearest: 0"), ipu.scopes.ipu_shard(index):
            pass


def test_shards_move_on_to_gradients() -> None:
    def function(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            with ipu.scopes.ipu_shard(1):
                y = tf.sin(x)
            with ipu.scopes.ipu_shard([0, 1]):
                y = y * y
        return tape.gradient(y, x)

    np.testing.assert_allclose(on_replicas(function, 1, X), np.sin(2 * X), rtol=1e-5, atol=1e-6)


def test_sharding_utilities() -> None:
    sharding = ipu.sharding
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [2], name="x")
        with ipu.scopes.ipu_shard(1):
            y = tf.sin(x, name="y")
        with graph.colocate_with(y.op):
            z = tf.cos(x, name="z")
        with graph.colocate_with(z.op):
            w = tf.exp(z, name="w")
        free = tf.identity(w, name="free")
        assert sharding.has_attr(y.op, "_XlaSharding")
        assert not sharding.has_attr(z.op, "_XlaSharding")
        assert isinstance(sharding.get_shard_from_colocation(z.op), attr_value_pb2.AttrValue)
        assert sharding.get_shard_from_colocation(free.op) is None
        sharding.propagate_sharding(graph)
        assert {op.name for op in graph.get_operations() if sharding.has_attr(op, "_XlaSharding")} == {"y", "z", "w"}
        assert {op.name for op in sharding.dependencies([w.op])} == {"x", "z", "w"}
