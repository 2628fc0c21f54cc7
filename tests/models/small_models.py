"""Small models of the kinds people train: each with its data, ready to be compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers, ops

from tests.models.generative_models import gan, variational_autoencoder

WORDS, LENGTH, CLASSES = 40, 12, 5
Arrays = tuple[Any, Any]


@dataclass(frozen=True)
class Example:
    """`build()` makes a compiled model, `data(generator, rows)` its x and y; y is None if it learns from x alone."""

    build: Callable[[], keras.Model]
    data: Callable[[np.random.Generator, int], Arrays]
    random: bool = False
    """Whether training draws random numbers, other ones for rows in another order."""


class Positions(layers.Layer):
    """Adds a learnt vector to each position of a sequence."""

    def build(self, shape: tuple[int, ...]) -> None:
        self.table = self.add_weight(shape=shape[1:], initializer="random_normal", name="table")

    def call(self, x: Any) -> Any:
        return x + self.table


def transformer_block(x: Any, heads: int, width: int, causal: bool) -> Any:
    """Attention and two dense layers, each behind a normalization and beside a shortcut."""
    y = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(y, y, use_causal_mask=causal)])
    y = layers.LayerNormalization()(x)
    y = layers.Dense(width)(layers.Dense(4 * width, "gelu")(y))
    return layers.Add()([x, y])


def _compiled(model: keras.Model, optimizer: Any, loss: Any = None) -> keras.Model:
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, steps_per_execution=5, jit_compile=False)
    return model


def gpt() -> keras.Model:
    tokens = keras.Input((LENGTH,), dtype="int32")
    x = Positions()(layers.Embedding(WORDS, 16)(tokens))
    for _ in range(2):
        x = transformer_block(x, 2, 16, causal=True)
    logits = layers.Dense(WORDS)(layers.LayerNormalization()(x))
    optimizer = keras.optimizers.AdamW(3e-3, weight_decay=0.01, global_clipnorm=1.0)
    return _compiled(keras.Model(tokens, logits), optimizer)


def next_words(generator: np.random.Generator, rows: int) -> Arrays:
    text = generator.integers(0, WORDS, (rows, LENGTH + 1), dtype=np.int32)
    return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])


def vision_transformer() -> keras.Model:
    image = keras.Input((16, 16, 3))
    x = layers.Reshape((16, 16))(layers.Conv2D(16, 4, strides=4)(image))
    x = Positions()(x)
    for _ in range(2):
        x = transformer_block(x, 2, 16, causal=False)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return _compiled(keras.Model(image, layers.Dense(CLASSES)(x)), keras.optimizers.Adam(1e-3))


def labelled_images(generator: np.random.Generator, rows: int) -> Arrays:
    return generator.standard_normal((rows, 16, 16, 3), dtype=np.float32), generator.integers(0, CLASSES, rows)


def lstm_classifier() -> keras.Model:
    tokens = keras.Input((LENGTH,), dtype="int32")
    x = layers.Embedding(WORDS, 8, mask_zero=True)(tokens)
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    x = layers.LSTM(8)(x)
    return _compiled(keras.Model(tokens, layers.Dense(CLASSES)(x)), keras.optimizers.Adam(3e-3))


def padded_sentences(generator: np.random.Generator, rows: int) -> Arrays:
    words = generator.integers(1, WORDS, (rows, LENGTH), dtype=np.int32)
    lengths = generator.integers(1, LENGTH + 1, rows)
    return np.where(np.arange(LENGTH) < lengths[:, None], words, 0).astype(np.int32), generator.integers(
        0, CLASSES, rows
    )


def gru_translator() -> keras.Model:
    source, target = keras.Input((LENGTH,), dtype="int32"), keras.Input((LENGTH,), dtype="int32")
    _, state = layers.GRU(12, return_state=True)(layers.Embedding(WORDS, 8)(source))
    x = layers.GRU(12, return_sequences=True)(layers.Embedding(WORDS, 8)(target), initial_state=state)
    return _compiled(keras.Model([source, target], layers.Dense(WORDS)(x)), keras.optimizers.RMSprop(1e-3))


def sentence_pairs(generator: np.random.Generator, rows: int) -> Arrays:
    shifted, words = next_words(generator, rows)
    return [generator.integers(0, WORDS, (rows, LENGTH), dtype=np.int32), shifted], words


def u_net() -> keras.Model:
    image = keras.Input((16, 16, 3))
    shortcuts, x = [], image
    for filters in (4, 8):
        x = _convolution(x, filters)
        shortcuts.append(x)
        x = layers.MaxPooling2D()(x)
    x = _convolution(x, 16)
    for filters, shortcut in zip((8, 4), reversed(shortcuts), strict=True):
        up = layers.Conv2DTranspose(filters, 3, strides=2, padding="same")(x)
        x = _convolution(layers.Concatenate()([up, layers.UpSampling2D()(x), shortcut]), filters)
    mask = layers.Conv2D(1, 1, activation="sigmoid")(x)
    return _compiled(keras.Model(image, mask), keras.optimizers.SGD(0.1, momentum=0.9), "binary_crossentropy")


def _convolution(x: Any, filters: int) -> Any:
    x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
    return ops.relu(layers.BatchNormalization()(x))


def masked_images(generator: np.random.Generator, rows: int) -> Arrays:
    images = generator.standard_normal((rows, 16, 16, 3), dtype=np.float32)
    return images, (images[..., :1] > 0).astype(np.float32)


def images_alone(generator: np.random.Generator, rows: int) -> Arrays:
    return generator.random((rows, 8, 8, 1), dtype=np.float32), None


EXAMPLES = {
    "gpt": Example(gpt, next_words),
    "vision transformer": Example(vision_transformer, labelled_images),
    "lstm classifier": Example(lstm_classifier, padded_sentences),
    "gru translator": Example(gru_translator, sentence_pairs),
    "u-net": Example(u_net, masked_images),
    "variational autoencoder": Example(variational_autoencoder, images_alone, random=True),
    "gan": Example(gan, images_alone, random=True),
}
