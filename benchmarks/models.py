"""The measured models, for any backend of Keras."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers

VOCABULARY = 20_000
IDENTIFIERS = 1_000_000
TRANSLATED = 2_000
"""Number of words of each language of `seq2seq`."""
CATEGORIES, CATEGORY_SIZE, NUMBERS = 8, 1_000, 13


def mlp() -> keras.Model:
    """Dense layers of 784, 256, 128 and 10 units."""
    return keras.Sequential(
        [layers.Input((784,)), layers.Dense(256, "relu"), layers.Dense(128, "relu"), layers.Dense(10)]
    )


def wide_mlp() -> keras.Model:
    """Four dense layers of 1024 units."""
    hidden = [layers.Dense(1024, "relu") for _ in range(4)]
    return keras.Sequential([layers.Input((784,)), *hidden, layers.Dense(10)])


def deep_mlp() -> keras.Model:
    """100 dense layers of 64 units."""
    hidden = [layers.Dense(64, "relu") for _ in range(100)]
    return keras.Sequential([layers.Input((64,)), *hidden, layers.Dense(10)])


def lenet() -> keras.Model:
    """LeNet-5 with rectifiers and maximum pooling, on 28 x 28 pixels."""
    return keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Conv2D(6, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 5, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(120, "relu"),
            layers.Dense(84, "relu"),
            layers.Dense(10),
        ]
    )


def resnet20() -> keras.Model:
    """ResNet-20 of He et al. for 32 x 32 pixels: three groups of three blocks of 16, 32 and 64 channels."""
    inputs = keras.Input((32, 32, 3))
    x = _normalized_convolution(inputs, 16, 1)
    for group, channels in enumerate((16, 32, 64)):
        for block in range(3):
            stride = 2 if group and not block else 1
            shortcut = _normalized_convolution(x, channels, stride, size=1, activation=None) if stride == 2 else x
            y = _normalized_convolution(x, channels, stride)
            y = _normalized_convolution(y, channels, 1, activation=None)
            x = layers.Activation("relu")(layers.Add()([shortcut, y]))
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def _normalized_convolution(x: Any, channels: int, stride: int, size: int = 3, activation: str | None = "relu") -> Any:
    x = layers.Conv2D(channels, size, stride, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.Activation(activation)(x) if activation else x


def resnet50() -> keras.Model:
    """ResNet50 of keras.applications on 64 x 64 pixels, ten classes."""
    return keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None)


def separable() -> keras.Model:
    """Depthwise and pointwise convolutions in alternation, 24 to 64 channels, on 48 x 48 pixels."""
    inputs = keras.Input((48, 48, 3))
    x = _normalized_convolution(inputs, 24, 2, activation="relu6")
    for channels, stride in ((32, 1), (48, 2), (64, 1), (64, 1)):
        x = layers.DepthwiseConv2D(3, stride, padding="same", use_bias=False)(x)
        x = layers.Activation("relu6")(layers.BatchNormalization()(x))
        x = _normalized_convolution(x, channels, 1, size=1, activation="relu6")
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def bidirectional_gru() -> keras.Model:
    """Two bidirectional layers of 48 units over 40 steps of 32 features."""
    first, second = (layers.Bidirectional(layers.GRU(48, return_sequences=more)) for more in (True, False))
    return keras.Sequential([layers.Input((40, 32)), first, second, layers.Dense(10)])


def lstm() -> keras.Model:
    """One layer of 64 units over 64 steps of 32 features."""
    return keras.Sequential([layers.Input((64, 32)), layers.LSTM(64), layers.Dense(10)])


def encoder(depth: int, width: int) -> keras.Model:
    """A transformer encoder on 64 positions: attention and a feed-forward part four times as wide, normalized first."""
    inputs = keras.Input((64, width))
    x = inputs
    for _ in range(depth):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(width // 32, 32)(y, y)])
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.Dense(width)(layers.Dense(4 * width, "gelu")(y))])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(inputs, layers.Dense(10)(x))


def large_embedding() -> keras.Model:
    """The mean of 20 rows of a table of 10^6 rows of 32, and ten classes."""
    start = [layers.Input((20,), dtype="int32"), layers.Embedding(IDENTIFIERS, 32)]
    return keras.Sequential([*start, layers.GlobalAveragePooling1D(), layers.Dense(10)])


def text_classifier() -> keras.Model:
    """An embedding of 20 000 words, averaged over 128 positions, and a dense classifier."""
    return keras.Sequential(
        [
            layers.Input((128,), dtype="int32"),
            layers.Embedding(VOCABULARY, 64),
            layers.GlobalAveragePooling1D(),
            layers.Dense(64, "relu"),
            layers.Dense(10),
        ]
    )


def tabular() -> keras.Model:
    """A model after DLRM: eight embedded categories and thirteen numbers, their pairwise products, a dense
    classifier.
    """
    categories, numbers = keras.Input((CATEGORIES,), dtype="int32"), keras.Input((NUMBERS,))
    embedded = [layers.Embedding(CATEGORY_SIZE, 16)(categories[:, column : column + 1]) for column in range(CATEGORIES)]
    bottom = layers.Dense(16, "relu")(layers.Dense(64, "relu")(numbers))
    features = layers.Concatenate(axis=1)([*embedded, layers.Reshape((1, 16))(bottom)])
    products = layers.Flatten()(layers.Dot(axes=(2, 2))([features, features]))
    x = layers.Concatenate()([products, bottom])
    x = layers.Dense(64, "relu")(layers.Dense(128, "relu")(x))
    return keras.Model([categories, numbers], layers.Dense(2)(x))


def unet() -> keras.Model:
    """A U-Net of 16 to 128 channels on 64 x 64 pixels: four classes of pixels."""
    inputs = keras.Input((64, 64, 3))
    x, skipped = inputs, []
    for channels in (16, 32, 64):
        x = _two_convolutions(x, channels)
        skipped.append(x)
        x = layers.MaxPooling2D()(x)
    x = _two_convolutions(x, 128)
    for channels, skip in zip((64, 32, 16), reversed(skipped), strict=True):
        x = layers.Conv2DTranspose(channels, 2, 2)(x)
        x = _two_convolutions(layers.Concatenate()([x, skip]), channels)
    return keras.Model(inputs, layers.Conv2D(4, 1)(x))


def _two_convolutions(x: Any, channels: int) -> Any:
    for _ in range(2):
        x = layers.Conv2D(channels, 3, padding="same", activation="relu")(x)
    return x


def mixer() -> keras.Model:
    """MLP-Mixer: four blocks over 49 patches of 4 x 4 of 28 x 28 pixels, 128 channels."""
    inputs = keras.Input((28, 28, 1))
    x = layers.Reshape((49, 128))(layers.Conv2D(128, 4, 4)(inputs))
    for _ in range(4):
        y = layers.Permute((2, 1))(layers.LayerNormalization()(x))
        y = layers.Dense(49)(layers.Dense(64, "gelu")(y))
        x = layers.Add()([x, layers.Permute((2, 1))(y)])
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.Dense(128)(layers.Dense(256, "gelu")(y))])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(inputs, layers.Dense(10)(x))


class Positions(keras.layers.Layer):
    """A layer that adds a learnt vector to each position."""

    def build(self, shape: Any) -> None:
        """Create a table of the shape of a sample."""
        self.table = self.add_weight(shape=shape[1:], initializer="uniform")

    def call(self, inputs: Any) -> Any:
        """Return the sum of the inputs and the table, [batch, positions, n]."""
        return inputs + self.table


def vision_transformer() -> keras.Model:
    """Four encoder layers of 192 over 64 patches of 4 x 4 of 32 x 32 pixels, with learnt positions."""
    inputs = keras.Input((32, 32, 3))
    x = layers.Reshape((64, 192))(layers.Conv2D(192, 4, 4)(inputs))
    x = Positions()(x)
    for _ in range(4):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(3, 64)(y, y)])
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.Dense(192)(layers.Dense(768, "gelu")(y))])
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    return keras.Model(inputs, layers.Dense(10)(x))


def seq2seq() -> keras.Model:
    """An LSTM of 96 units reads 24 words; another, with attention to the first, predicts each of 24."""
    source, target = keras.Input((24,), dtype="int32"), keras.Input((24,), dtype="int32")
    read, *state = layers.LSTM(96, return_sequences=True, return_state=True)(layers.Embedding(TRANSLATED, 96)(source))
    written = layers.LSTM(96, return_sequences=True)(layers.Embedding(TRANSLATED, 96)(target), initial_state=state)
    attended = layers.Attention()([written, read])
    return keras.Model([source, target], layers.Dense(TRANSLATED)(layers.Concatenate()([written, attended])))


class Sampled(keras.layers.Layer):
    """A layer that samples normal distributions of given means and logarithms of variances, and adds a divergence."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(0)

    def call(self, inputs: Any) -> Any:
        """Map means and logarithms of variances, each [batch, n], to samples [batch, n]."""
        mean, variance = inputs
        divergence = keras.ops.exp(variance) + keras.ops.square(mean) - 1 - variance
        self.add_loss(0.5 * keras.ops.mean(keras.ops.sum(divergence, axis=-1)) / 784)
        noise = keras.random.normal(keras.ops.shape(mean), seed=self.seeds)
        return mean + keras.ops.exp(0.5 * variance) * noise


def variational_autoencoder() -> keras.Model:
    """A variational autoencoder of 784-256-20-256-784 units with a Bernoulli decoder."""
    inputs = keras.Input((784,))
    x = layers.Dense(256, "relu")(inputs)
    x = Sampled()([layers.Dense(20)(x), layers.Dense(20)(x)])
    return keras.Model(inputs, layers.Dense(784)(layers.Dense(256, "relu")(x)))


def efficientnet() -> keras.Model:
    """EfficientNetB0 of keras.applications on 64 x 64 pixels, ten classes."""
    return keras.applications.EfficientNetB0(
        weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None
    )


def application(name: str, size: int) -> keras.Model:
    """A model of keras.applications on size x size pixels, ten classes."""
    create = getattr(keras.applications, name)
    return create(weights=None, input_shape=(size, size, 3), classes=10, classifier_activation=None)
