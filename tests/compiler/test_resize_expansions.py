"""Bilinear resizing by interpolations is TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import UnsupportedOperation
from engine.ir.interpolation import INTERPOLATION
from ipu._internal.compiler.emission import module_of
from tests.engine.running import fast

SIZES = [((2, 5, 7, 3), (9, 4)), ((2, 8, 8, 16), (16, 17)), ((1, 6, 1, 1), (3, 5)), ((3, 1, 4, 9), (6, 1))]


@pytest.mark.parametrize("corners, centers", [(False, True), (True, False), (False, False)])
@pytest.mark.parametrize("images, size", SIZES)
def test_values_and_gradients(images: tuple[int, ...], size: tuple[int, int], corners: bool, centers: bool) -> None:
    def function(x: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.raw_ops.ResizeBilinear(images=x, size=size, align_corners=corners, half_pixel_centers=centers)
        return y, tape.gradient(y, x, seed)

    rng = np.random.default_rng(0)
    x, seed = (rng.normal(size=s).astype(np.float32) for s in (images, (images[0], *size, images[3])))
    for found, expected in zip(by_engine(function, x, seed), function(tf.constant(x), tf.constant(seed)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "uint8"])
def test_other_types(dtype: str) -> None:
    """The result is float32; gradients of 16-bit floats are rounded to their type."""

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.raw_ops.ResizeBilinear(images=x, size=(9, 8), half_pixel_centers=True)
        return [y] if dtype == "uint8" else [y, tf.cast(tape.gradient(y, x, y), tf.float32)]

    x = tf.cast(tf.random.stateless_uniform((2, 5, 7, 3), [0, 1], 0, 200), dtype).numpy()
    for found, expected in zip(by_engine(function, x), function(tf.constant(x)), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6 if found.shape[1] == 9 else 1e-2)


@pytest.mark.parametrize("gradient", [False, True])
def test_corners_and_centers_at_once_are_an_error(gradient: bool) -> None:
    """The error says that TensorFlow's result has no meaning with both options."""
    both = {"align_corners": True, "half_pixel_centers": True}

    def function(x: tf.Tensor) -> tf.Tensor:
        if gradient:
            return tf.raw_ops.ResizeBilinearGrad(grads=x, original_image=tf.zeros((1, 8, 8, 2)), **both)
        return tf.raw_ops.ResizeBilinear(images=x, size=(6, 6), **both)

    with pytest.raises(UnsupportedOperation, match="align_corners must be False"):
        by_engine(function, np.ones((1, 4, 4, 2), np.float32))


def by_engine(function: object, *arguments: np.ndarray) -> list[np.ndarray]:
    """The results of a function on the engine, whose module contains no gather."""
    specs = [tf.TensorSpec(each.shape, each.dtype) for each in arguments]
    concrete = tf.function(function, jit_compile=True, autograph=False).get_concrete_function(*specs)
    module = module_of(concrete, specs)
    called = {each["custom_call_target"] for each in module.entry.instructions if each.opcode == "custom-call"}
    assert called <= {INTERPOLATION} and not any(
        each.opcode in ("gather", "scatter") for each in module.entry.instructions
    )
    return fast(module, list(arguments))[0]
