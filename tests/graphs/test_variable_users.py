"""Variables of sessions that programs and other operations use: each writer is found, or refused beside a program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from engine.errors import ConfigurationError

v1 = tf.compat.v1
Write = Callable[[Any, np.ndarray], object]


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


def run_of(operation: Any, fed: tf.Tensor) -> Write:
    return lambda session, value: session.run(operation, {fed: value})


def assigned(variable: Any, value: Any) -> Any:
    return variable.assign(value) + 0.0


def called(variable: Any, value: Any) -> Any:
    inner = tf.function(lambda x: assigned(variable, x))
    return tf.function(lambda x: inner(x) + 0.0)(value)


def branch(variable: Any, value: Any) -> Any:
    return tf.cond(tf.reduce_sum(value) < 1e9, lambda: assigned(variable, value), lambda: value)


def loop(variable: Any, value: Any) -> Any:
    body = lambda i: (i + 1, assigned(variable, value))  # noqa: E731
    return tf.while_loop(lambda i, _: i < 1, lambda i, _: body(i), [0, value])[1]


def passed_on(variable: Any, value: Any) -> Any:
    return tf.raw_ops.AssignVariableOp(resource=tf.identity(variable.handle), value=value)


def named_again(variable: Any, value: Any) -> Any:
    name = variable.handle.op.get_attr("shared_name")

    @tf.function
    def assign(x: Any) -> Any:
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[3], shared_name=name)
        tf.raw_ops.AssignVariableOp(resource=handle, value=x)
        return x + 0.0

    return assign(value)


def iterator(variable: Any, fed: tf.Tensor) -> Write:
    values: list[np.ndarray] = []

    def generate() -> Any:
        while True:
            yield values[-1]

    dataset = tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([3]))
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    made = v1.data.make_initializable_iterator(dataset.map(lambda x: assigned(variable, x)).with_options(options))
    element = made.get_next()

    def write(session: Any, value: np.ndarray) -> None:
        values.append(value)
        if len(values) == 1:
            session.run(made.initializer)
        session.run(element)

    return write


OPERATIONS = [assigned, called, branch, loop, passed_on, named_again]


@pytest.mark.parametrize("user", [*OPERATIONS, iterator])
@pytest.mark.parametrize("first", ["user", "program"])
def test_a_program_has_what_others_wrote(user: Callable[..., Any], first: str) -> None:
    fed = v1.placeholder(tf.float32, [3])
    variable = v1.get_variable("v", [3], use_resource=True, initializer=v1.zeros_initializer())
    write = (user(variable, fed) if user is iterator else run_of(user(variable, fed), fed)) if first == "user" else None
    (program,) = ipu.ipu_compiler.compile(lambda: variable.assign(variable * 2.0 + 1.0).read_value())
    write = write or (user(variable, fed) if user is iterator else run_of(user(variable, fed), fed))
    read = variable.read_value()
    with v1.Session() as session:
        session.run(variable.initializer)
        expected = np.zeros(3, np.float32)
        for k in range(3):
            expected = 2 * expected + 1
            np.testing.assert_array_equal(session.run(program), expected)
            expected = np.float32([k, 10 * k, -k])
            write(session, expected)
            if k != 1:
                np.testing.assert_array_equal(session.run(read), expected)
        np.testing.assert_array_equal(session.run(program), 2 * expected + 1)


def test_sessions_of_a_server_share_variables() -> None:
    fed = v1.placeholder(tf.float32, [])
    variable = v1.get_variable("shared", [], use_resource=True, initializer=v1.zeros_initializer())
    (program,) = ipu.ipu_compiler.compile(lambda: variable.assign(variable * 2.0 + 1.0).read_value())
    write, read = variable.assign(fed), variable.read_value()
    target = v1.train.Server.create_local_server().target
    with v1.Session(target) as first, v1.Session(target) as second:
        first.run(variable.initializer)
        assert [first.run(program), second.run(read), second.run(program), first.run(program)] == [1, 1, 3, 7]
        second.run(write, {fed: 10.0})
        assert [first.run(program), second.run(program), first.run(read)] == [21, 43, 43]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("user", [assigned, called, branch, loop])
def test_an_assignment_beside_a_program_is_refused(user: Callable[..., Any], version: int) -> None:
    if version == 1:
        v1.disable_control_flow_v2()
    try:
        variable = v1.get_variable("v", [3], use_resource=True, initializer=v1.zeros_initializer())
        (program,) = ipu.ipu_compiler.compile(lambda: variable.assign(variable * 2.0).read_value())
        written = user(variable, tf.ones([3]))
        read = tf.function(lambda: variable + 0.0)()
        either = tf.cond(v1.placeholder_with_default(True, []), lambda: variable + 1.0, lambda: variable + 2.0)
    finally:
        v1.enable_control_flow_v2()
    with v1.Session() as session:
        session.run(variable.initializer)
        with pytest.raises(ConfigurationError, match="control dependency"):
            session.run([program, written])
        session.run([program, read, either, v1.report_uninitialized_variables()])
