"""Shapes, axes and counts that a program takes from variables: XLA compiles their values into it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow.compat.v1 as v1
from tensorflow.python import ipu

from engine.errors import UnsupportedOperation
from ipu._internal.compiler import fixed_variables
from ipu._internal.compiler.calling import program_of_function
from ipu._internal.compiler.emission import module_of
from tests.keras.helpers import assert_close

Use = Callable[[tf.Variable], tf.Tensor]


def counted(n: tf.Variable) -> tf.Tensor:
    total = tf.constant(0)
    for k in tf.range(n):
        total += k * n
    return total


USES: dict[str, tuple[Any, Use]] = {
    "sizes": (3, lambda n: tf.reduce_sum(tf.fill([n], 2.0))),
    "limit": (3, lambda n: tf.reduce_sum(tf.range(n))),
    "float limit": (3.0, lambda n: tf.reduce_sum(tf.range(n))),
    "loop": (3, counted),
    "slice": (2, lambda n: tf.reduce_sum(tf.range(12.0)[:n])),
    "largest": (2, lambda n: tf.reduce_sum(tf.math.top_k(tf.range(12.0), n).values)),
    "depth": (2, lambda n: tf.reduce_sum(tf.one_hot([0, 1], n) - 0.1)),
    "rows": (2, lambda n: tf.reduce_sum(tf.reshape(tf.range(12.0), [n, -1])[0])),
    "no shape": (2, lambda n: 2 * n),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("assigned", ["in the function", "between calls"])
@pytest.mark.parametrize("of_strategy", [True, False])
@pytest.mark.sample(10)
def test_a_function_has_the_present_value(use: str, assigned: str, of_strategy: bool) -> None:
    first, value = USES[use]
    strategy = ipu.ipu_strategy.IPUStrategy()

    def results(on_engine: bool) -> list[Any]:
        made = tf.Variable(first)

        @tf.function(jit_compile=True)
        def function() -> Any:
            found = value(made)
            if assigned == "in the function":
                made.assign_add(1)
            return found

        found = []
        for _ in range(3):
            found.append(np.asarray(strategy.run(function) if on_engine else function()))
            if assigned == "between calls":
                made.assign_add(1)
        return [*found, made.numpy()]

    wanted = results(False)
    if of_strategy:
        with strategy.scope():
            found = results(True)
    else:
        found = results(True)
    assert_close(found, wanted)


def test_a_buffer_that_is_assigned_before_it_is_read_is_no_constant() -> None:
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        buffer = tf.Variable([0, 0])

        @tf.function(jit_compile=True)
        def function(x: tf.Tensor) -> tf.Tensor:
            buffer.assign(x)
            return buffer.read_value() + 1

        program = program_of_function(function, (tf.constant([1, 2]),))
        assert program is not None and not program._traced.fixed
        for x in ([1, 2], [3, 4]):
            np.testing.assert_array_equal(strategy.run(function, args=(tf.constant(x),)), np.add(x, 1))


@pytest.mark.parametrize("value", [True, False])
def test_a_variable_is_a_condition(value: bool) -> None:
    strategy = ipu.ipu_strategy.IPUStrategy()
    with strategy.scope():
        condition = tf.Variable(value)

        @tf.function(jit_compile=True)
        def function() -> tf.Tensor:
            found = tf.cond(condition, lambda: 1.0, lambda: 2.0)
            condition.assign(tf.logical_not(condition))
            return found

        assert [float(strategy.run(function)) for _ in range(3)] == ([1, 2, 1] if value else [2, 1, 2])


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (tf.int32, lambda n: tf.reduce_sum(tf.fill([n], 2.0))),
        (tf.int64, lambda n: tf.range(n)[0]),
        (tf.int32, lambda n: tf.reduce_sum(tf.reshape(tf.range(12.0), [n, 4]))),
        (tf.int32, lambda n: tf.reduce_sum(tf.range(12.0), axis=n)),
        (tf.float32, lambda n: tf.reduce_sum(tf.range(n))),
    ],
)
def test_a_session_says_that_it_has_no_value_while_it_compiles(
    dtype: tf.DType, value: Callable[[tf.Tensor], tf.Tensor]
) -> None:
    with tf.Graph().as_default():
        n = v1.get_variable("count", initializer=tf.constant(3, dtype), use_resource=True)
        other = v1.get_variable("other", initializer=tf.constant(3, dtype), use_resource=True)
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            out = ipu.ipu_compiler.compile(lambda: value(n) + tf.cast(other, value(n).dtype))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            with pytest.raises((UnsupportedOperation, tf.errors.OpError), match="variable 'count"):
                session.run(out)


@pytest.mark.parametrize("place", [0, 3, 9])
def test_a_session_finds_one_variable_of_many(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []

    def counted(*args: Any, **kwargs: Any) -> Any:
        compiled.append(args)
        return module_of(*args, **kwargs)

    monkeypatch.setattr(fixed_variables, "module_of", counted)
    with tf.Graph().as_default():
        counts = [v1.get_variable(f"count_{k}", initializer=3, use_resource=True) for k in range(10)]
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            out = ipu.ipu_compiler.compile(lambda: tf.fill([counts[place]], tf.add_n([each * 2 for each in counts])))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            with pytest.raises((UnsupportedOperation, tf.errors.OpError), match=f"variable 'count_{place}'"):
                session.run(out)
    assert len(compiled) <= 10


def test_a_session_refuses_an_operation_without_naming_variables() -> None:
    with tf.Graph().as_default():
        n = v1.get_variable("count", initializer=3, use_resource=True)
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            out = ipu.ipu_compiler.compile(lambda: tf.strings.length(tf.strings.as_string(n)))
        with v1.Session() as session:
            session.run(n.initializer)
            with pytest.raises((UnsupportedOperation, tf.errors.OpError), match="Received: .*AsString"):
                session.run(out)


@pytest.mark.parametrize(
    ("value", "shape", "message"),
    [
        ("text", [], "Received: text"),
        (np.zeros(3, np.float32), None, "static shape. Received: 'given"),
        (np.zeros(3, np.float32), [None], "static shape. Received: 'given"),
    ],
)
def test_variables_that_no_program_can_have_are_named(value: Any, shape: Any, message: str) -> None:
    with tf.Graph().as_default():
        given = v1.Variable(tf.constant(value), use_resource=True, shape=tf.TensorShape(shape), name="given")
        with ipu.scopes.ipu_scope("/device:IPU:0"):
            out = ipu.ipu_compiler.compile(lambda: tf.size(tf.identity(given)))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            with pytest.raises((UnsupportedOperation, tf.errors.OpError), match=message):
                session.run(out)
