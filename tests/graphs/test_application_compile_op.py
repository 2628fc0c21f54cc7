"""Compile operations of a tf.Graph: its variables are there before a run, and each run writes their values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu
from tensorflow.python.eager import context

from engine.errors import UnsupportedOperation
from ipu.embedded_runtime import embedded_runtime_call, embedded_runtime_start, embedded_runtime_start_and_call
from ipu.ipu_infeed_queue import IPUInfeedQueue
from ipu.ipu_outfeed_queue import IPUOutfeedQueue

v1 = tf.compat.v1
compile_op = ipu.ops.application_compile_op.experimental_application_compile_op
X = np.arange(6, dtype=np.float32).reshape(2, 3)
W = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


@pytest.fixture(autouse=True)
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


def product(x: Any) -> Any:
    weight = v1.get_variable("weight", initializer=W, use_resource=True)
    return x @ weight


def eagerly(path: bytes, variables: Any, inputs: list[Any]) -> list[np.ndarray]:
    with context.eager_mode():
        return [each.numpy() for each in embedded_runtime_start_and_call(path.decode(), variables, inputs)]


def test_variables_are_restored_before_the_operation_is_run(tmp_path: Path) -> None:
    fed = v1.placeholder(tf.float32, [2, 3])
    operation = compile_op(product, [fed], str(tmp_path / "x.poplar_exec"), freeze_variables=True, name="compiled")
    assert [each.name for each in v1.global_variables()] == ["weight:0"] and operation.op.name == "compiled"
    saver = v1.train.Saver()
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        session.run(v1.global_variables()[0].assign(3 * W))
        saver.save(session, str(tmp_path / "saved"))
    with v1.Session() as session:
        saver.restore(session, str(tmp_path / "saved"))
        path = session.run(operation)
        session.run(v1.global_variables()[0].assign(W))
    assert path == str(tmp_path / "x.poplar_exec").encode()
    np.testing.assert_array_equal(eagerly(path, [], [X])[0], X @ (3 * W))


def test_each_session_writes_its_own_values(tmp_path: Path) -> None:
    operation = compile_op(product, [tf.TensorSpec([2, 3], tf.float32)], freeze_variables=True)
    variable = v1.global_variables()[0]
    for factor in (2.0, 5.0):
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(variable.assign(factor * W))
            path = session.run(operation)
        np.testing.assert_array_equal(eagerly(path, [], [X])[0], X @ (factor * W))
        Path(path.decode()).unlink()


def test_values_that_a_program_has_trained(tmp_path: Path) -> None:
    weight = v1.get_variable("weight", initializer=W, use_resource=True)
    with ipu.scopes.ipu_scope("/device:IPU:0"):
        train = ipu.ipu_compiler.compile(lambda: weight.assign_add(tf.ones_like(weight)))
    operation = compile_op(lambda x: x @ weight, [X], str(tmp_path / "x.poplar_exec"), freeze_variables=True)
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train)
        path = session.run(operation)
    np.testing.assert_array_equal(eagerly(path, [], [X])[0], X @ (W + 3))


def test_variables_that_are_not_frozen_are_given_by_name(tmp_path: Path) -> None:
    with v1.variable_scope("net"):
        operation = compile_op(product, [X], str(tmp_path / "x.poplar_exec"))
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        path = session.run(operation)
    np.testing.assert_array_equal(eagerly(path, {"net/weight": 2 * W}, [X])[0], X @ (2 * W))


def test_captured_tensors_have_their_values_of_the_run(tmp_path: Path) -> None:
    factor, fed = v1.placeholder(tf.float32, []), v1.placeholder(tf.float32, [None, 3])
    scale = tf.constant([1.0, 10.0, 100.0])
    operation = compile_op(lambda x: x * scale * factor, [fed], str(tmp_path / "x.poplar_exec"))
    with v1.Session() as session:
        path = session.run(operation, {factor: 3.0, fed: np.zeros([2, 3])})
    np.testing.assert_array_equal(eagerly(path, [], [X])[0], X * np.array([3, 30, 300], np.float32))


def test_a_loop_over_queues_with_variables(tmp_path: Path) -> None:
    infeed = IPUInfeedQueue(tf.data.Dataset.from_tensors(np.ones(2, np.float32)).repeat())
    outfeed = IPUOutfeedQueue()

    def body(x: Any) -> Any:
        return outfeed.enqueue(x * v1.get_variable("w", [2], use_resource=True, initializer=v1.ones_initializer()))

    path = str(tmp_path / "x.poplar_exec")
    operation = compile_op(lambda: ipu.loops.repeat(3, body, [], infeed), output_path=path, freeze_variables=True)
    (variable,) = v1.global_variables()
    assert variable.name == "w:0"
    with v1.Session() as session:
        session.run(variable.initializer)
        session.run(variable.assign([2.0, 4.0]))
        session.run(operation)
    with context.eager_mode():
        started = embedded_runtime_start(path, [], "engine")
        assert embedded_runtime_call([np.array([3, 5], np.float32)], started)[0].numpy().tolist() == [6, 20]


def test_errors_of_the_run_and_of_the_call(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="func to be a function"):
        compile_op(3)
    operation = compile_op(product, [X], str(tmp_path / "x.poplar_exec"), freeze_variables=True)
    with v1.Session() as session, pytest.raises(tf.errors.FailedPreconditionError, match="weight"):
        session.run(operation)
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)
    with pytest.raises(UnsupportedOperation, match="host resource"):
        compile_op(table.lookup, [tf.constant([1])])
