"""A vertex of your own, compiled by Numba: RMS normalization with its gradient, trained inside a Keras layer."""

import keras
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

EPSILON = np.float32(1e-6)
ONE = np.float32(1)


@ipu.custom_ops.vertex(
    split={"x": "rows", "w": "whole", "out": "rows", "inverse": "rows"},
    outputs=lambda x, w: [x, tf.TensorSpec(x.shape[:-1], x.dtype)],
    cycles=lambda x, w: 40 + x.shape[0] * (30 + 3 * x.shape[1]),
    reassociate=True,
)
def rms_norm(x, w, out, inverse):
    """Divide each row of x by the root of its mean square, and multiply it by w; `inverse` is one over that root."""
    rows, n = x.shape
    for i in range(rows):
        squares = np.float32(0)
        for j in range(n):
            squares += x[i, j] * x[i, j]
        inverse[i] = ONE / np.sqrt(squares / np.float32(n) + EPSILON)
        for j in range(n):
            out[i, j] = x[i, j] * inverse[i] * w[j]


@rms_norm.gradient
@ipu.custom_ops.vertex(
    split={"x": "rows", "w": "whole", "inverse": "rows", "d_out": "rows", "d_x": "rows", "d_w": "reduction"},
    outputs=lambda x, w, inverse, d_out: [x, w],
    cycles=lambda x, w, inverse, d_out: 60 + x.shape[0] * (40 + 6 * x.shape[1]),
    reassociate=True,
)
def rms_norm_gradient(x, w, inverse, d_out, d_x, d_w):
    """Compute the gradient of x by rows. Each slice adds its terms of the gradient of w to zeros; their sum follows."""
    rows, n = x.shape
    for i in range(rows):
        scale, dot = inverse[i], np.float32(0)
        for j in range(n):
            dot += d_out[i, j] * w[j] * x[i, j]
        factor = dot * scale * scale / np.float32(n)
        for j in range(n):
            d_x[i, j] = scale * (d_out[i, j] * w[j] - x[i, j] * factor)
            d_w[j] += d_out[i, j] * x[i, j] * scale


class RMSNorm(keras.layers.Layer):
    """RMS normalization over the last dimension, with a trained scale."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return rms_norm(x, tf.convert_to_tensor(self.scale))[0]


def model(norm=RMSNorm, width=256, layers=4):
    made = keras.Sequential([keras.Input((width,))])
    for _ in range(layers):
        made.add(keras.layers.Dense(width, "relu"))
        made.add(norm())
    made.add(keras.layers.Dense(10))
    return made


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8192, 256)).astype(np.float32)
    y = (x @ rng.normal(size=(256, 10))).argmax(-1)
    with ipu.ipu_strategy.IPUStrategy().scope():
        trained = model()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        trained.compile("adam", loss, metrics=["accuracy"], steps_per_execution=64)
    trained.fit(x, y, batch_size=128, epochs=3)
