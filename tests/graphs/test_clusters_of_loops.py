"""Loops and branches on an IPU outside of programs: sessions compile them as functions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf
import tf_keras
from tensorflow.python import ipu

from engine.errors import UnsupportedOperation
from tests.graphs.test_clusters import IPU, Program, Scope, X, same, v1, values_of, variable


def branches(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.exp(x), lambda: tf.sin(x) - 1.0)
        z = tf.cond(tf.reduce_sum(x) <= 0, lambda: tf.exp(x), lambda: tf.sin(x) - 1.0)
    return [y, z * 2.0], {x: X}


def loops(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        w = variable("w", 6, 6)
        _, y = tf.while_loop(lambda k, _: k < 3, lambda k, y: [k + 1, tf.tanh(y @ w)], [0, x])
    return [y], {x: X}


def loops_of_the_host(scope: Scope) -> Any:
    """Builds a loop on the host, whose operands inside and outside are results of the device."""
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        y, z = tf.sin(x), tf.exp(-x)
    _, sums = tf.while_loop(lambda k, _: k < 3, lambda k, total: [k + 1, total + z], [0, y])
    with scope():
        return [tf.exp(sums)], {x: X}


IN_VERSION_2 = [branches, loops, loops_of_the_host]
"""Programs whose control flow consists of functions."""


@pytest.fixture
def control_flow_v2() -> Iterator[None]:
    was_on = v1.control_flow_v2_enabled()
    v1.enable_control_flow_v2()
    yield
    (v1.enable_control_flow_v2 if was_on else v1.disable_control_flow_v2)()


@pytest.mark.parametrize("program", IN_VERSION_2)
def test_control_flow_of_version_2(program: Program, control_flow_v2: None) -> None:
    received, programs = values_of(program, lambda: ipu.scopes.ipu_scope(IPU))
    assert programs > 0
    same(received, values_of(program, contextlib.nullcontext)[0])


def trained_branches(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        w = variable("w", 6, 3)
        y = v1.cond(tf.reduce_sum(x) > 0, lambda: x @ w * 2.0, lambda: tf.exp(x @ w))
        loss = tf.reduce_mean(tf.square(y))
        return [loss, v1.train.GradientDescentOptimizer(0.1).minimize(loss)], {x: X}


def trained_recurrence(scope: Scope) -> Any:
    """Trains a loop whose lists of tensors are used after an assertion of the host."""
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        w = variable("w", 6, 6)
        with tf.control_dependencies([v1.debugging.assert_less(x, 100.0)]):
            rows = tf.identity(x)
        states = tf.scan(lambda state, row: tf.tanh(row + tf.linalg.matvec(w, state)), rows, tf.zeros([6]))
        loss = tf.reduce_mean(tf.square(states))
        return [loss, v1.train.AdamOptimizer(0.1).minimize(loss)], {x: X}


def norms_by_a_placeholder(scope: Scope) -> Any:
    x, trains = v1.placeholder(tf.float32, [8, 6]), v1.placeholder_with_default(True, [])
    with scope():
        return [tf_keras.layers.BatchNormalization()(x, training=trains)], {x: X}


def maps_and_scans(scope: Scope) -> Any:
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        return [tf.map_fn(lambda row: row * 2.0, x), tf.scan(lambda total, row: total + row, x)], {x: X}


def python_in_a_branch(scope: Scope) -> Any:
    """Builds a branch that stays on the host, and operations before and after it."""
    x = v1.placeholder(tf.float32, [8, 6])
    with scope():
        y = tf.exp(x)
        z = v1.cond(y[0, 0] < 0, lambda: tf.numpy_function(lambda array: array, [y], tf.float32), lambda: y + 1.0)
        return [tf.reshape(z, [8, 6]) * 2.0], {x: X}


IN_SCOPES = [branches, loops, trained_branches, trained_recurrence, norms_by_a_placeholder, maps_and_scans]
IN_SCOPES += [python_in_a_branch]


@pytest.mark.parametrize("program", IN_SCOPES)
def test_control_flow_in_a_scope_consists_of_functions(program: Program, control_flow_v2: None) -> None:
    v1.disable_control_flow_v2()
    received, programs = values_of(program, lambda: ipu.scopes.ipu_scope(IPU))
    assert programs > 0 and not v1.control_flow_v2_enabled()
    same(received, values_of(program, contextlib.nullcontext)[0])


def test_control_flow_of_version_1_is_refused(control_flow_v2: None) -> None:
    v1.disable_control_flow_v2()

    def in_a_branch(scope: Scope) -> Any:
        def on_the_device() -> Any:
            with scope():
                return tf.exp(x)

        x = v1.placeholder(tf.float32, [8, 6])
        return [v1.cond(tf.reduce_sum(x) > 0, on_the_device, lambda: x)], {x: X}

    for program, scope in ((branches, lambda: tf.device(IPU)), (in_a_branch, lambda: ipu.scopes.ipu_scope(IPU))):
        with pytest.raises(UnsupportedOperation, match="Build the loop or branch in ipu.scopes.ipu_scope"):
            values_of(program, scope)
    with pytest.raises(UnsupportedOperation, match="enable_control_flow_v2"):
        values_of(loops_of_the_host, lambda: ipu.scopes.ipu_scope(IPU))
