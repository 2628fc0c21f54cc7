"""Operators against their definitions in TensorFlow or NumPy, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python import ipu

from tests.collectives.running import on_replicas
from tests.operators.comparing import check

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(5, 7)) * 3
A, B = RANDOM.normal(size=(3, 4, 6)), RANDOM.normal(size=(3, 6, 10))
TABLE = RANDOM.normal(size=(6, 5, 3))
IDS = np.int32([[0, 5, 3], [3, 3, 1]])
IMAGES = RANDOM.normal(size=(2, 3, 5, 3))
OFFSETS, SCALES = np.float32([0.5, 0.25, 1]), np.float32([2, 3, 0.5])


def product(factor: int, dimension: str, **transposed: bool) -> Callable[..., Any]:
    return lambda a, b: ipu.math_ops.serialized_matmul(a, b, factor, dimension, **transposed)


def normalised(image: Any) -> Any:
    return tf.pad((image * 0.5 - OFFSETS) * SCALES, [[0, 0]] * 3 + [[0, 1]])


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...], int]] = {
    "gelu": (ipu.nn_ops.gelu, lambda x: tf.nn.gelu(x, approximate=True), (X,), 1),
    "gelu_erf": (lambda x: ipu.nn_ops.gelu(x, approximate=False), lambda x: tf.nn.gelu(x), (X,), 1),
    "hard_sigmoid": (ipu.nn_ops.hard_sigmoid, lambda x: tf.minimum(tf.nn.relu(0.2 * x + 0.5), 1.0), (X,), 1),
    "swish": (ipu.nn_ops.swish, lambda x: x * tf.sigmoid(x), (X,), 1),
    "softmax": (ipu.nn_ops.softmax, tf.nn.softmax, (X,), 1),
    "product_m": (product(2, "a_columns"), tf.matmul, (A, B), 2),
    "product_k": (product(3, "a_rows_b_columns"), tf.matmul, (A, B), 2),
    "product_n": (product(5, "b_rows"), tf.matmul, (A, B), 2),
    "product_transposed": (
        product(2, "b_rows", transpose_a=True, transpose_b=True),
        lambda a, b: tf.matmul(a, b, transpose_a=True, transpose_b=True),
        (A.swapaxes(1, 2), B.swapaxes(1, 2)),
        2,
    ),
    "product_whole": (product(1, "a_columns"), tf.matmul, (A[0], B[0]), 2),
    "segment_sum": (
        lambda x: ipu.math_ops.segment_sum(x, [0, 0, 2, 2, 2], 4),
        lambda x: tf.stack([x[0] + x[1], 0 * x[0], x[2] + x[3] + x[4], 0 * x[0]]),
        (X,),
        1,
    ),
    "lookup": (ipu.embedding_ops.embedding_lookup, tf.gather, (TABLE, IDS), 1),
    "serialized_lookup": (
        lambda table, ids: ipu.embedding_ops.embedding_lookup(table, ids, serialization_factor=3),
        tf.gather,
        (TABLE, IDS),
        1,
    ),
    "normalise_image": (lambda x: ipu.image_ops.normalise_image(x, OFFSETS, SCALES, 0.5), normalised, (IMAGES,), 1),
    "multi_conv": (
        ipu.nn_ops.multi_conv(options={"perConvReservedTiles": "50"})(
            lambda x, w: tf.nn.conv2d(x, w, 1, "SAME") + tf.nn.conv2d(-x, w, 1, "SAME") * 2.0
        ),
        lambda x, w: -tf.nn.conv2d(x, w, 1, "SAME"),
        (IMAGES, RANDOM.normal(size=(2, 2, 3, 4))),
        2,
    ),
}


@pytest.mark.sample(20)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("case", CASES)
def test_operator_is_its_definition(case: str, dtype: Any) -> None:
    operator, definition, arguments, differentiated = CASES[case]
    check(operator, definition, *arguments, dtype=dtype, differentiated=differentiated)


def test_activations_of_large_halves_have_finite_gradients() -> None:
    def gradient(x: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = ipu.nn_ops.gelu(x) + ipu.nn_ops.swish(x)
        return tape.gradient(result, x)

    np.testing.assert_array_equal(on_replicas(gradient, 1, np.float16([-6e4, -300, 300, 6e4])), [0, 0, 2, 2])


def test_look_ups_outside_of_a_serialised_table_are_zero() -> None:
    ids = np.int32([-1, 6, 2])
    found = on_replicas(
        lambda t: ipu.embedding_ops.embedding_lookup(t, ids, serialization_factor=2), 1, np.float32(TABLE)
    )
    np.testing.assert_array_equal(found, [0 * TABLE[0], 0 * TABLE[0], np.float32(TABLE[2])])


def test_pictures_of_bytes() -> None:
    pixels = RANDOM.integers(0, 256, (1, 2, 5, 3), np.uint8)
    received = on_replicas(lambda p: ipu.image_ops.normalise_image(p, OFFSETS, SCALES, 1 / 255), 1, pixels)
    assert received.dtype == np.float16
    np.testing.assert_allclose(received[..., :3], (pixels / 255 - OFFSETS) * SCALES, rtol=2e-3, atol=1e-3)
    np.testing.assert_array_equal(received[..., 3], 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("absolute", [False, True])
def test_histograms(dtype: Any, absolute: bool) -> None:
    values = np.append(RANDOM.normal(size=37), [-1, 0, 0.5, 1, np.inf, -np.inf]).astype(dtype)
    levels = np.array([-1, 0, 0.5, 1], dtype)
    counted = np.bincount(np.searchsorted(levels, abs(values) if absolute else values, "right"), minlength=5)

    def statistics(values: tf.Tensor, levels: tf.Tensor) -> list[tf.Tensor]:
        ops = ipu.statistics_ops
        first = ops.histogram(values, levels, absolute)
        second = ops.histogram_update(first, values, levels, absolute_of_input=absolute)
        return [first, second, ops.histogram_normalize(first), ops.fixed_width_bins(values[:37], 7)]

    for received in (on_replicas(statistics, 1, values, levels), statistics(values, levels)):
        assert [each.dtype for each in received] == [np.float32] * 3 + [dtype]
        np.testing.assert_array_equal(received[0], counted)
        np.testing.assert_array_equal(received[1], 2 * counted)
        np.testing.assert_allclose(received[2], counted / 43, rtol=1e-6)
        expected = np.linspace(values[:37].min().astype(float), values[:37].max(), 7)
        np.testing.assert_allclose(received[3], expected, rtol=1e-3, atol=1e-3)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "dimension": (lambda: product(2, "rows")(A, B), "one of a_columns"),
    "factor": (lambda: product(4, "a_rows_b_columns")(A, B), "divisor of 6"),
    "ranks": (lambda: product(2, "a_columns")(A[0, 0], B), "whose outer dimensions broadcast"),
    "shapes": (lambda: product(2, "a_columns")(A, A), "whose outer dimensions broadcast"),
    "lookup": (
        lambda: ipu.embedding_ops.embedding_lookup(TABLE, IDS, serialization_factor=4),
        "divisor of 6, the size of params",
    ),
    "channels": (lambda: ipu.image_ops.normalise_image(np.float32(X), OFFSETS, SCALES), "3 channels"),
    "offsets": (lambda: ipu.image_ops.normalise_image(np.float32(IMAGES), [1.0], SCALES), "channel_offsets"),
    "options": (lambda: ipu.nn_ops.multi_conv(options=["a"]), "dictionary"),
    "integers": (lambda: ipu.nn_ops.gelu(IDS), "floating-point"),
    "rank": (lambda: ipu.statistics_ops.histogram(np.float32(X), np.float32([1])), "inputs of rank 1"),
    "type": (lambda: ipu.statistics_ops.fixed_width_bins(IDS[0], 3), "float16 or float32"),
    "hist": (lambda: ipu.statistics_ops.histogram_update([1.0], [1.0], [1.0]), r"hist of the shape \(2,\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_that_are_refused(case: str) -> None:
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        call()


def test_types_of_pictures() -> None:
    with pytest.raises(TypeError, match="uint8, float16 or float32"):
        ipu.image_ops.normalise_image(np.zeros((2, 3), np.int32), OFFSETS, SCALES)


def test_second_derivatives_of_serialised_products() -> None:
    def step(a: tf.Tensor, b: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape(persistent=True) as outer:
            outer.watch([a, b])
            with tf.GradientTape() as tape:
                tape.watch([a, b])
                total = tf.reduce_sum(product(2, "a_columns")(a, b) ** 2)
            gradients = tape.gradient(total, [a, b])
            again = tf.reduce_sum(gradients[0] ** 3) + tf.reduce_sum(gradients[1])
        return [*gradients, *outer.gradient(again, [a, b])]

    def whole(a: tf.Tensor, b: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as outer:
            outer.watch([a, b])
            with tf.GradientTape() as tape:
                tape.watch([a, b])
                total = tf.reduce_sum(tf.matmul(a, b) ** 2)
            gradients = tape.gradient(total, [a, b])
            again = tf.reduce_sum(gradients[0] ** 3) + tf.reduce_sum(gradients[1])
        return [*gradients, *outer.gradient(again, [a, b])]

    received = on_replicas(step, 1, np.float32(A[0]), np.float32(B[0]))
    for value, expected in zip(received, whole(*map(tf.constant, (A[0], B[0]))), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-4, atol=1e-3)


def test_slices_of_products_need_less_memory() -> None:
    """The cost report of a step with gradients shows more code, and a lower peak where arrays are large."""

    def peak(factor: int) -> int:
        @tf.function
        def step(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                tape.watch([a, b])
                total = tf.reduce_sum(product(factor, "a_columns")(a, b) ** 2)
            return tf.add_n([tf.reduce_sum(each**2) for each in tape.gradient(total, [a, b])])

        memory = ipu.profile(step, tf.ones([512, 1024]), tf.ones([1024, 1024]), path=None).data["memory"]
        return memory["peak_fullest"]

    assert peak(4) < 0.8 * peak(1)


def test_convolutions_of_keras_under_the_decorator() -> None:
    """The documented example: layers called on the inputs of a model."""

    @ipu.nn_ops.multi_conv
    def convolved(x: Any, y: Any) -> tuple[Any, Any]:
        return keras.layers.Conv2D(2, 2)(x), keras.layers.DepthwiseConv2D(2)(y)

    inputs = [keras.Input((4, 4, 1)), keras.Input((4, 4, 3))]
    assert [each.shape for each in convolved(*inputs)] == [(None, 3, 3, 2), (None, 3, 3, 3)]
