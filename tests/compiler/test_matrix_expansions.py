"""TensorFlow's factorizations of matrices, and their gradients, on the engine and by TensorFlow's libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import linalg

from engine.compile import compile_module
from engine.errors import UnsupportedOperation
from ipu._internal.compiler.emission import module_of
from tests.engine.running import assert_near, buffers


def run(function: Callable[..., Any], a: np.ndarray) -> list[np.ndarray]:
    """The results on the engine."""
    spec = tf.TensorSpec(a.shape, a.dtype)
    module = module_of(tf.function(function, jit_compile=True).get_concrete_function(spec), [spec])
    return compile_module(module, ["variable"], {}, verify=True).run(1, [], buffers([a]))


def matrices(*shape: int) -> np.ndarray:
    """Well conditioned ones, with distinct singular values."""
    return np.random.default_rng(3).standard_normal(shape) + np.eye(*shape[-2:]) * np.arange(2, 2 + shape[-1])


def symmetric(a: Any) -> Any:
    return a + linalg.matrix_transpose(a)


def products(a: Any) -> list[Any]:
    """Factorizations of arrays whose producers write them in another shape."""
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


def test_an_error_says_that_factors_in_branches_do_not_run() -> None:
    with pytest.raises(UnsupportedOperation, match=r"'Qr'.*in a loop, branch or called tf\.function"):
        run(lambda a: tf.cond(tf.reduce_sum(a) > 0, lambda: linalg.inv(a), lambda: a), matrices(4, 4))
