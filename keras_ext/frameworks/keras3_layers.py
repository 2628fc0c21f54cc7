"""Layers of Keras 3 whose shapes XLA does not know, in a form in which it does."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from keras.src.layers import RandomCrop

from ipu.compiler.variables import tracing
from keras_ext.frameworks.common import KerasFunction


def install() -> None:
    """Wraps the layers at class level; elsewhere than in a step of the engine they do what they did."""
    RandomCrop.transform_images = _with_static_size(RandomCrop.transform_images)


def _with_static_size(original: KerasFunction) -> KerasFunction:
    """Keras slices from `start` to `start + size`, which XLA takes for a size known only at run time.

    Then Keras resizes to the size that it has, and XLA would scale the bound, which is the whole image.
    """

    @functools.wraps(original)
    def transform_images(self: Any, images: Any, transformation: Any, training: bool = True) -> Any:
        starts = tuple(transformation)
        if not (training and tracing() and all(tf.is_tensor(start) for start in starts)):
            return original(self, images, transformation, training)
        begin, size = [0] * len(images.shape), [-1] * len(images.shape)
        begin[self.height_axis], begin[self.width_axis] = starts
        size[self.height_axis], size[self.width_axis] = self.height, self.width
        return tf.slice(tf.cast(images, self.compute_dtype), begin, size)

    return transform_images
