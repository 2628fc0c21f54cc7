"""Gradients of TensorFlow 1's Defun, in a program and in TensorFlow alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.function import Defun

from engine.errors import UnsupportedOperation
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


@pytest.mark.parametrize("program", [of_two(product), of_two(quotient), in_loop, in_branch])
def test_gradient_functions_are_called(program: Callable[..., Any]) -> None:
    found = []
    for compiled in (False, True):
        with tf.Graph().as_default(), v1.Session() as session:
            x = tf.constant(POINT)
            results = compile_program(program, [x]) if compiled else program(x)
            session.run(v1.global_variables_initializer())
            found.append(session.run(results))
    for plain, ours in zip(*found, strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-6)


@pytest.mark.parametrize("outer", [nested, deeper])
def test_gradient_functions_in_other_functions_are_refused(outer: Callable[..., Any]) -> None:
    with tf.Graph().as_default():
        x = tf.constant(POINT)
        assert compile_program(lambda x: tf.ensure_shape(outer(x), [2]), [x])
        with pytest.raises(UnsupportedOperation, match=r"Expected calls of 'product_.*a Defun with a grad_func"):
            compile_program(lambda x: v1.gradients(outer(x), x), [x])
