"""Image operations: the public name of `tensorflow.python.ipu.image_ops` (Python API, 18.14.3)."""

from __future__ import annotations

import tensorflow as tf

from ipu._internal.names.namespace import public_names
from ipu._internal.operators.checks import require
from ipu._internal.types import TensorLike

__all__ = ["normalise_image"]
__getattr__, __dir__ = public_names(__name__, __all__)


def normalise_image(
    image: TensorLike,
    channel_offsets: TensorLike,
    channel_scales: TensorLike,
    scale: float = 1,
    name: str | None = None,
) -> tf.Tensor:
    """Computes (image[c] * scale - channel_offsets[c]) * channel_scales[c] for each channel c; adds a channel of zeros.

    Args:
        image: [X, Y, Z, 3] of uint8, float16 or float32.
        channel_offsets: [3].
        channel_scales: [3].
        scale: a factor for all channels.
        name: optional op name.

    Returns:
        [X, Y, Z, 4] of the type of `image`, float16 for uint8. It is computed in float32, and rounded once.

    Raises:
        TypeError: `image` is of another type.
        ValueError: `image`, or the offsets or scales, are not of three channels.
    """
    with tf.name_scope(name or "normalise_image"):
        image = tf.convert_to_tensor(image)
        if image.dtype not in (tf.uint8, tf.float16, tf.float32):
            raise TypeError(f"Expected image of type uint8, float16 or float32. Received: {image.dtype.name}.")
        offsets, scales = (tf.cast(each, tf.float32) for each in (channel_offsets, channel_scales))
        rank = image.shape.rank
        require(rank is not None and rank > 0 and image.shape[-1] == 3, "an image of 3 channels, last", image.shape)
        for each, argument in ((offsets, "channel_offsets"), (scales, "channel_scales")):
            require(each.shape == [3], f"{argument} of 3 channels", f"the shape {each.shape}")
        result = (tf.cast(image, tf.float32) * tf.cast(scale, tf.float32) - offsets) * scales
        result = tf.pad(result, [[0, 0]] * (rank - 1) + [[0, 1]])
        return tf.cast(result, tf.float16 if image.dtype == tf.uint8 else image.dtype)
