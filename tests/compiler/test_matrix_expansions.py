"""TensorFlow's factorizations of matrices, and their gradients, on the engine and by TensorFlow's libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import linalg
from tensorflow.python.eager import context

from engine.compile import compile_module
from engine.errors import UnsupportedOperation
from ipu._internal.compiler.custom_calls import SUFFIX
from ipu._internal.compiler.emission import module_of
from tests.engine.running import assert_near, buffers


def run(function: Callable[..., Any], a: np.ndarray) -> list[np.ndarray]:
    """The results on the engine."""
    spec = tf.TensorSpec(a.shape, a.dtype)
    module = module_of(tf.function(function, jit_compile=True).get_concrete_function(spec), [spec])
    return compile_module(module, ["variable"], {}, verify=True).run(1, [], buffers([a]))


def matrices(*shape: int) -> np.ndarray:
    """Well-conditioned matrices with distinct singular values."""
    return np.random.default_rng(3).standard_normal(shape) + np.eye(*shape[-2:]) * np.arange(2, 2 + shape[-1])


def symmetric(a: Any) -> Any:
    return a + linalg.matrix_transpose(a)


def products(a: Any) -> list[Any]:
    """Factorizations of arrays that their producers write in another shape."""
    scale = (np.eye(5) + 0.1).astype(a.dtype.as_numpy_dtype)
    values = linalg.svd(tf.reshape(a @ scale, [2, 5, 5]), compute_uv=False)
    return [values, linalg.eigvalsh(tf.reshape(a @ scale, [2, 5, 5]))]


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "svd": (lambda a: [linalg.svd(a)[0], tf.abs(linalg.svd(a)[1]), tf.abs(linalg.svd(a)[2])], (3, 7, 4)),
    "svd, wide": (lambda a: [linalg.svd(a)[0], tf.abs(linalg.svd(a)[1])], (4, 6)),
    "svd, values": (lambda a: linalg.svd(a, compute_uv=False), (3, 5, 5)),
    "svd, full": (lambda a: linalg.svd(a, full_matrices=True)[0], (5, 5)),
    "eigh": (lambda a: [linalg.eigh(symmetric(a))[0], tf.abs(linalg.eigh(symmetric(a))[1])], (3, 6, 6)),
    "eigvalsh": (lambda a: linalg.eigvalsh(symmetric(a)), (2, 6, 6)),
    "qr": (linalg.qr, (3, 7, 4)),
    "qr, full": (lambda a: linalg.qr(a, full_matrices=True)[0], (5, 5)),
    "inverse": (linalg.inv, (2, 3, 6, 6)),
    "inverse, adjoint": (lambda a: linalg.inv(a, adjoint=True), (6, 6)),
    "solve": (lambda a: linalg.solve(a, a[..., :3] + 1), (3, 6, 6)),
    "solve, adjoint": (lambda a: linalg.solve(a, a[..., :3] + 1, adjoint=True), (3, 6, 6)),
    "determinant": (lambda a: linalg.det(a / 4), (3, 6, 6)),
    "logarithm of a determinant": (linalg.slogdet, (3, 6, 6)),
    "lu": (lambda a: [linalg.lu(a)[0], linalg.lu(a, output_idx_type=tf.int64)[1]], (3, 6, 6)),
    "pseudoinverse": (linalg.pinv, (3, 6, 4)),
    "reshaped products": (products, (10, 5)),
    "least squares": (lambda a: linalg.lstsq(a, a[..., :2] + 1, fast=True), (7, 4)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_are_tensorflows(name: str) -> None:
    function, shape = FUNCTIONS[name]

    def with_gradient(a: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(a)
            results = [each for each in tf.nest.flatten(function(a)) if each.shape.num_elements()]
            floating = [each for each in results if each.dtype.is_floating]
            loss = tf.add_n([tf.reduce_sum(tf.sin(each * 1.5)) for each in floating])
        return results if name == "lu" else [*results, tape.gradient(loss, a)]  # TensorFlow has no gradient of lu

    for dtype, tolerance in ((np.float32, 2e-4), (np.float64, 1e-11)):
        a = matrices(*shape).astype(dtype)
        expected = with_gradient(tf.constant(a))
        results = run(with_gradient, a)
        assert len(results) == len(expected)
        for result, value in zip(results, expected, strict=True):
            assert_near(result, value.numpy(), tolerance)


def test_singular_matrices() -> None:
    a = np.ones((2, 3, 3), np.float32)
    assert run(linalg.det, a)[0].tolist() == [0, 0]
    sign, logarithm = run(linalg.slogdet, a)
    assert sign.tolist() == [0, 0] and logarithm.tolist() == [-np.inf, -np.inf]
    assert not np.isfinite(run(linalg.inv, a)[0]).all()


@tf.function
def inverse(a: Any) -> Any:
    return linalg.inv(a)


@tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32)])
def of_any_size(a: Any) -> Any:
    return linalg.solve(a, tf.ones_like(a)) + linalg.inv(a)


def nested(a: Any) -> Any:
    """A loop around a branch that calls a function."""

    def iteration(number: Any, a: Any) -> tuple[Any, Any]:
        b = tf.cond(a[0, 0] > 0, lambda: inverse(a), lambda: linalg.svd(a, compute_uv=False) * a)
        return number + 1, b + tf.eye(4) * 3

    return tf.while_loop(lambda number, _: number < 3, iteration, [0, a], maximum_iterations=3)[1]


def in_cases(a: Any) -> Any:
    return tf.switch_case(tf.cast(a[0, 0] > 0, tf.int32), [lambda: a, lambda: linalg.solve(a, a + 1)])


def of_constants(a: Any) -> Any:
    """Every factorization of constants in a loop, and one factorization in each branch."""
    c = tf.constant(matrices(4, 4), tf.float32)

    def iteration(number: Any, a: Any) -> tuple[Any, Any]:
        values = linalg.eigvalsh(symmetric(c)) + linalg.svd(c, compute_uv=False) + linalg.slogdet(c)[1]
        factors = linalg.qr(c)[1] + linalg.lu(c)[0] + linalg.cholesky(c @ linalg.matrix_transpose(c))
        return number + 1, tf.tanh(linalg.solve(c, a)) @ linalg.inv(c) + (values + factors) / 9

    looped = tf.while_loop(lambda number, _: number < 3, iteration, [0, a], maximum_iterations=3)[1]
    branches = [
        tf.cond(each > 0, lambda: a @ linalg.inv(c), lambda: a * linalg.det(c / 4)) for each in (a[0, 0], -a[0, 0])
    ]
    return [looped, *branches]


CALLS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "called": (inverse, (4, 4)),
    "called with two shapes that it does not know": (lambda a: [of_any_size(a), of_any_size(a[:3, :3])], (4, 4)),
    "in loops, branches and functions": (nested, (4, 4)),
    "in cases": (in_cases, (4, 4)),
    "of constants": (of_constants, (4, 4)),
    "mapped": (lambda a: tf.map_fn(lambda each: linalg.qr(each)[1], a), (3, 4, 4)),
    "vectorized": (lambda a: tf.vectorized_map(lambda each: linalg.slogdet(each)[1], a), (3, 4, 4)),
    "recomputed": (lambda a: tf.recompute_grad(inverse)(a), (4, 4)),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_functions_and_their_gradients(name: str) -> None:
    function, shape = CALLS[name]

    def with_gradient(a: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(a)
            results = tf.nest.flatten(function(a))
            loss = tf.add_n([tf.reduce_sum(tf.sin(each)) for each in results])
        return [*results, tape.gradient(loss, a)]

    a = matrices(*shape).astype(np.float32)
    for result, value in zip(run(with_gradient, a), tf.function(with_gradient)(tf.constant(a)), strict=True):
        assert_near(result, value.numpy(), 2e-4)


def test_an_error_names_the_operation_that_is_refused() -> None:
    def function(a: tf.Tensor) -> tf.Tensor:
        return linalg.det(a) + tf.reduce_sum(linalg.sqrtm(a))

    with pytest.raises(UnsupportedOperation, match="Received: MatrixSquareRoot"):
        run(function, matrices(4, 4).astype(np.float32))


def test_functions_with_custom_calls_are_removed() -> None:
    names = set(context.context().list_function_names())
    run(nested, matrices(4, 4).astype(np.float32))
    added = set(context.context().list_function_names()) - names
    assert added and not any(SUFFIX in each for each in added)


EMPTY: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "svd": (lambda a: linalg.svd(a, full_matrices=True), (2, 0, 3)),
    "eigh": (linalg.eigh, (0, 0)),
    "qr": (lambda a: [*linalg.qr(a), *linalg.qr(a, full_matrices=True)], (3, 0)),
    "lu": (linalg.lu, (0, 2, 2)),
    "inverse": (linalg.inv, (0, 3, 3)),
    "solve": (lambda a: linalg.solve(a, a[:, :0]), (3, 3)),
    "determinants": (lambda a: [linalg.det(a), *linalg.slogdet(a)], (2, 0, 0)),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_matrices(name: str) -> None:
    function, shape = EMPTY[name]
    a = np.ones(shape, np.float32)
    for result, value in zip(run(function, a), tf.nest.flatten(function(tf.constant(a))), strict=True):
        np.testing.assert_array_equal(np.asarray(result), value.numpy())


def test_singular_vectors_of_the_null_space() -> None:
    a = matrices(2, 3, 5)
    for given in (a, np.swapaxes(a, -1, -2)):
        s, u, v = run(lambda a: linalg.svd(a, full_matrices=True), given)
        padded = np.zeros(given.shape)
        padded[:, range(3), range(3)] = s
        assert_near(u @ padded @ np.swapaxes(v, -1, -2), given, 1e-13)
        for each in (u, v):
            assert_near(np.swapaxes(each, -1, -2) @ each, np.broadcast_to(np.eye(each.shape[-1]), each.shape), 1e-13)


def test_an_error_says_what_complex_matrices_can_do_instead() -> None:
    with pytest.raises(UnsupportedOperation, match=r"'Qr'.*matrices are complex"):
        run(linalg.qr, matrices(4, 4).astype(np.complex64))
