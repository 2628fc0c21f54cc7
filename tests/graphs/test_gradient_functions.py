"""Gradients of TensorFlow 1's Defun, in a program and in TensorFlow alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.function import Defun

from ipu.ipu_compiler import compile as compile_program

v1 = tf.compat.v1
FLOATS = (tf.float32, tf.float32)
POINT = np.float32([1, 2])


@Defun(*FLOATS, tf.float32)
def thrice(a: tf.Tensor, b: tf.Tensor, gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    return gradient * b * 3, gradient * a * 5


@Defun(*FLOATS, grad_func=thrice)
def product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return a * b


@Defun(*FLOATS, python_grad_func=lambda call, gradient: (gradient * 7, call.inputs[0]))
def quotient(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    return a / b


@Defun(tf.float32)
def nested(a: tf.Tensor) -> tf.Tensor:
    return product(a, a + 1)


@Defun(tf.float32)
def deeper(a: tf.Tensor) -> tf.Tensor:
    return nested(a) + a


@Defun(tf.float32, tf.int32)
def several(a: tf.Tensor, k: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Takes an integer, and returns what no input changes, too."""
    x = deeper(a) * tf.cast(k, tf.float32)
    return x + product(x, a), a[0] * tf.cast(k, tf.float32), tf.constant(2.0)


def of_one(function: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: tf.Tensor) -> Any:
        results = function(x, 3) if function is several else [function(x)]
        y = [tf.reduce_sum(each) for each in results]
        return [y, *v1.gradients(y, x)]

    return program


def of_two(function: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: tf.Tensor) -> Any:
        y = tf.ensure_shape(function(x, x + 2), [2])
        return [y, *v1.gradients(y, x)]

    return program


def in_loop(x: tf.Tensor) -> Any:
    w = v1.get_variable("w", initializer=POINT, use_resource=True)
    _, y = v1.while_loop(
        lambda k, y: k < 3, lambda k, y: (k + 1, tf.ensure_shape(product(y, w), [2])), (0, x), maximum_iterations=3
    )
    return [y, *v1.gradients(y, [x, w])]


def in_branch(x: tf.Tensor) -> Any:
    y = v1.cond(x[0] > 0, lambda: tf.ensure_shape(product(x, x), [2]), lambda: x)
    return [y, *v1.gradients(y, x)]


def in_deep_loop(x: tf.Tensor) -> Any:
    w = v1.get_variable("w", initializer=POINT, use_resource=True)

    @Defun(tf.float32, tf.float32)
    def with_captures(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        return deeper(a) * x + product(b, x)

    _, y = v1.while_loop(
        lambda k, y: k < 2,
        lambda k, y: (k + 1, tf.ensure_shape(with_captures(y, w), [2])),
        (0, x),
        maximum_iterations=2,
    )
    return [y, *v1.gradients(y, [x, w])]


PROGRAMS = [of_two(product), of_two(quotient), of_one(nested), of_one(deeper), of_one(several), in_loop, in_branch]


@pytest.mark.parametrize("program", [*PROGRAMS, in_deep_loop])
def test_gradient_functions_are_called(program: Callable[..., Any]) -> None:
    found = []
    for compiled in (False, True):
        with tf.Graph().as_default(), v1.Session() as session:
            x = tf.constant(POINT)
            results = compile_program(program, [x]) if compiled else program(x)
            session.run(v1.global_variables_initializer())
            found.append(session.run(results))
    for plain, ours in zip(*map(tf.nest.flatten, found), strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-6)
