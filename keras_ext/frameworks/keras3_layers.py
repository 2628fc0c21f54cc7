"""Layers of Keras 3 whose shapes XLA cannot infer, rewritten with static shapes."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf
from keras.src.backend import epsilon
from keras.src.layers import BatchNormalization, RandomCrop

from ipu._internal.compiler.batch_norm import group_moments, over_group
from ipu._internal.compiler.variables import tracing
from keras_ext.frameworks.common import KerasFunction
from keras_ext.types import Nest, Tensor


def install() -> None:
    """Wraps the layers at class level; outside a step of the engine they behave as before."""
    RandomCrop.transform_images = _with_static_size(RandomCrop.transform_images)
    BatchNormalization._moments = _over_groups(BatchNormalization._moments)


def _over_groups(original: KerasFunction) -> KerasFunction:
    """Wraps `_moments`: mean and variance over the batches of a group of replicas, where groups are configured."""

    @functools.wraps(original)
    def moments(self: BatchNormalization, inputs: Nest, mask: Nest) -> Any:
        if not over_group():
            return original(self, inputs, mask)
        if mask is None:
            return group_moments(inputs, self._reduction_axes)
        # Keras adds epsilon to the number of elements that are not masked.
        return group_moments(inputs, self._reduction_axes, tf.expand_dims(mask, -1), epsilon=epsilon())

    return moments


def _with_static_size(original: KerasFunction) -> KerasFunction:
    """Keras slices from `start` to `start + size`, whose size XLA takes to be dynamic.

    Keras then resizes to the size that the slice has already, and XLA would scale its bound, the whole image.
    """

    @functools.wraps(original)
    def transform_images(self: RandomCrop, images: Tensor, transformation: Nest, training: bool = True) -> Any:
        starts = tuple(transformation)
        if not (training and tracing() and all(tf.is_tensor(start) for start in starts)):
            return original(self, images, transformation, training)
        begin, size = [0] * len(images.shape), [-1] * len(images.shape)
        begin[self.height_axis], begin[self.width_axis] = starts
        size[self.height_axis], size[self.width_axis] = self.height, self.width
        return tf.slice(tf.cast(images, self.compute_dtype), begin, size)

    return transform_images
