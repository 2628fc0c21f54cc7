"""Layers that stand in the middle of a model: each between trainable layers, so that gradients pass through it."""

from __future__ import annotations

import tempfile
from types import ModuleType
from typing import Any

import tensorflow as tf

from tests.differential.case import (
    CLASSES,
    Case,
    Feature,
    Make,
    classes,
    descent,
    inputs_of,
    logits_loss,
    normal,
    tokens,
)

VECTOR, SEQUENCE, IMAGE, VOLUME = normal(6), normal(6, 4), normal(8, 8, 4), normal(4, 4, 4, 2)


def layer(
    name: str,
    features: Feature | tuple[Feature, ...],
    make: Make,
    variant: str = "",
    random: bool = False,
    scale: float = 1.0,
) -> Case:
    """`make(keras, *tensors)` applies the layer; its result, times `scale`, is flattened and classified."""
    all_features = features if isinstance(features, tuple) else (features,)

    def build(keras: ModuleType) -> Any:
        inputs = inputs_of(keras, all_features)
        hidden = [
            keras.layers.Dense(each.shape[-1])(tensor) if each.smooth else tensor
            for each, tensor in zip(all_features, inputs, strict=True)
        ]
        x = make(keras, *hidden)
        x = keras.layers.Rescaling(scale)(x) if scale != 1 else x
        x = keras.layers.Flatten()(x) if len(x.shape) > 2 else x
        return keras.Model(inputs if len(inputs) > 1 else inputs[0], keras.layers.Dense(CLASSES)(x))

    return Case("layers", name, variant, all_features, classes, build, logits_loss, descent, random=random)


def plain(name: str, features: Feature, *arguments: Any, variant: str = "", random: bool = False, **named: Any) -> Case:
    """A layer of one input, given by its arguments."""
    return layer(name, features, lambda keras, x: getattr(keras.layers, name)(*arguments, **named)(x), variant, random)


def merging(name: str, *arguments: Any, features: tuple[Feature, ...] = (SEQUENCE, SEQUENCE), **named: Any) -> Case:
    """A layer that takes a list."""
    return layer(name, features, lambda keras, *x: getattr(keras.layers, name)(*arguments, **named)(list(x)))


def _saved_and_loaded(keras: ModuleType, x: Any) -> Any:
    module = tf.Module()
    module.double = tf.function(lambda y: {"doubled": tf.nn.relu(y) * 2}, [tf.TensorSpec([None, 6])])
    with tempfile.TemporaryDirectory() as directory:
        tf.saved_model.save(module, directory, signatures=module.double)
        return keras.layers.TFSMLayer(directory, call_endpoint="serving_default")(x)["doubled"]


def _activated_regularly(keras: ModuleType, x: Any) -> Any:
    return keras.layers.ActivityRegularization(l1=0.01, l2=0.02)(x)


CORE = [
    plain("Activation", SEQUENCE, "gelu"),
    layer("ActivityRegularization", SEQUENCE, _activated_regularly),
    plain("Dense", VECTOR, 5, "relu"),
    plain("Dense", SEQUENCE, 5, variant="on a sequence, without bias", use_bias=False),
    plain("EinsumDense", SEQUENCE, "abc,cd->abd", output_shape=(6, 5), bias_axes="d"),
    layer("Embedding", tokens(6), lambda keras, x: keras.layers.Embedding(10, 4)(x)),
    layer(
        "Embedding", tokens(6), lambda k, x: k.layers.LSTM(3)(k.layers.Embedding(10, 4, mask_zero=True)(x)), "masked"
    ),
    layer("ReversibleEmbedding", tokens(6), lambda keras, x: keras.layers.ReversibleEmbedding(10, 4)(x)),
    plain("Flatten", IMAGE),
    plain("Identity", SEQUENCE),
    layer("InputLayer", SEQUENCE, lambda keras, x: x),
    layer("Lambda", SEQUENCE, lambda keras, x: keras.layers.Lambda(lambda y: y * y + 1)(x)),
    layer("TFSMLayer", VECTOR, _saved_and_loaded),
    layer("Masking", SEQUENCE, lambda keras, x: keras.layers.LSTM(3)(keras.layers.Masking(0.0)(x))),
    plain("Permute", SEQUENCE, (2, 1)),
    plain("RepeatVector", VECTOR, 3),
    plain("Reshape", SEQUENCE, (4, -1)),
    layer("Bidirectional", SEQUENCE, lambda k, x: k.layers.Bidirectional(k.layers.LSTM(3))(x)),
    layer("TimeDistributed", normal(3, 6, 6, 2), lambda k, x: k.layers.TimeDistributed(k.layers.Conv2D(3, 3))(x)),
    layer("SpectralNormalization", IMAGE, lambda k, x: k.layers.SpectralNormalization(k.layers.Conv2D(3, 3))(x)),
]

MERGING = [
    merging("Add"),
    merging("Average"),
    merging("Concatenate", axis=1),
    merging("Dot", axes=(2, 2), normalize=True),
    merging("Maximum"),
    merging("Minimum"),
    merging("Multiply"),
    merging("Subtract"),
    merging("AdditiveAttention"),
    merging("Attention", use_scale=True),
    layer("GroupQueryAttention", SEQUENCE, lambda k, x: k.layers.GroupQueryAttention(4, 4, 2)(x, x)),
    layer("MultiHeadAttention", SEQUENCE, lambda k, x: k.layers.MultiHeadAttention(2, 3)(x, x)),
    layer(
        "MultiHeadAttention",
        SEQUENCE,
        lambda k, x: k.layers.MultiHeadAttention(2, 3, value_dim=5)(x, x, use_causal_mask=True),
        "causal",
    ),
]

ACTIVATIONS = [
    plain("ELU", SEQUENCE, 0.7),
    plain("LeakyReLU", SEQUENCE),
    plain("PReLU", IMAGE, shared_axes=[1, 2]),
    plain("ReLU", SEQUENCE, max_value=1.5),
    plain("Softmax", SEQUENCE),
    plain("ThresholdedReLU", SEQUENCE, 0.5),
]

CONVOLUTIONS = [
    plain("Conv1D", SEQUENCE, 5, 3, padding="causal"),
    plain("Conv1D", SEQUENCE, 5, 3, variant="strided", strides=2),
    plain("Conv2D", IMAGE, 5, 3, padding="same"),
    plain("Conv2D", IMAGE, 5, 3, variant="strided", strides=2, padding="same"),
    plain("Conv2D", IMAGE, 5, 3, variant="dilated", dilation_rate=2),
    plain("Conv2D", IMAGE, 6, 3, variant="grouped", groups=2),
    plain("Conv3D", VOLUME, 4, 3, padding="same"),
    plain("Conv3D", VOLUME, 4, 2, variant="strided", strides=2),
    plain("Conv1DTranspose", SEQUENCE, 5, 3, strides=2),
    plain("Conv2DTranspose", IMAGE, 5, 3, strides=2, padding="same"),
    plain("Conv3DTranspose", VOLUME, 3, 2, strides=2),
    plain("DepthwiseConv1D", SEQUENCE, 3, depth_multiplier=2),
    plain("DepthwiseConv2D", IMAGE, 3, depth_multiplier=2, padding="same"),
    plain("DepthwiseConv2D", IMAGE, 3, variant="strided", strides=2),
    plain("SeparableConv1D", SEQUENCE, 5, 3),
    plain("SeparableConv2D", IMAGE, 5, 3, strides=2, padding="same"),
    plain("LocallyConnected1D", SEQUENCE, 5, 3),
    plain("LocallyConnected2D", IMAGE, 5, 3),
]

POOLINGS = [
    *(plain(f"AveragePooling{n}D", f, 2) for n, f in ((1, SEQUENCE), (2, IMAGE), (3, VOLUME))),
    plain("AveragePooling2D", IMAGE, 3, 2, variant="overlapping, same", padding="same"),
    *(plain(f"MaxPooling{n}D", f, 2) for n, f in ((1, SEQUENCE), (2, IMAGE), (3, VOLUME))),
    plain("MaxPooling2D", IMAGE, 3, 2, variant="overlapping, same", padding="same"),
    *(plain(f"GlobalAveragePooling{n}D", f) for n, f in ((1, SEQUENCE), (2, IMAGE), (3, VOLUME))),
    *(plain(f"GlobalMaxPooling{n}D", f) for n, f in ((1, SEQUENCE), (2, IMAGE), (3, VOLUME))),
    *(plain(f"AdaptiveAveragePooling{n}D", f, 3) for n, f in ((1, SEQUENCE), (2, IMAGE), (3, VOLUME))),
    *(plain(f"AdaptiveMaxPooling{n}D", f, 3) for n, f in ((1, SEQUENCE), (2, IMAGE), (3, VOLUME))),
]

NORMALIZATIONS = [
    plain("BatchNormalization", IMAGE),
    plain("BatchNormalization", VECTOR, variant="of a vector"),
    plain("GroupNormalization", IMAGE, 2),
    plain("LayerNormalization", SEQUENCE),
    plain("RMSNormalization", SEQUENCE),
    plain("UnitNormalization", SEQUENCE),
]

SHAPES = [
    plain("Cropping1D", SEQUENCE, (1, 2)),
    plain("Cropping2D", IMAGE, ((1, 2), (0, 1))),
    plain("Cropping3D", VOLUME, 1),
    plain("UpSampling1D", SEQUENCE, 2),
    plain("UpSampling2D", IMAGE, 2),
    *(plain("UpSampling2D", IMAGE, 2, variant=each, interpolation=each) for each in ("bilinear", "bicubic")),
    plain("UpSampling3D", VOLUME, 2),
    plain("ZeroPadding1D", SEQUENCE, (1, 2)),
    plain("ZeroPadding2D", IMAGE, ((1, 2), (0, 1))),
    plain("ZeroPadding3D", VOLUME, 1),
]

RECURRENT = [
    plain("LSTM", SEQUENCE, 5),
    plain("LSTM", SEQUENCE, 5, variant="unrolled", unroll=True),
    plain("LSTM", SEQUENCE, 5, variant="all steps, backwards", return_sequences=True, go_backwards=True),
    plain("GRU", SEQUENCE, 5),
    plain("GRU", SEQUENCE, 5, variant="reset before", reset_after=False),
    plain("SimpleRNN", SEQUENCE, 5),
    *(
        layer(f"{each}Cell", SEQUENCE, lambda k, x, each=each: k.layers.RNN(getattr(k.layers, f"{each}Cell")(3))(x))
        for each in ("LSTM", "GRU", "SimpleRNN")
    ),
    layer("RNN", SEQUENCE, lambda k, x: k.layers.RNN(k.layers.LSTMCell(3), return_sequences=True)(x)),
    layer(
        "StackedRNNCells",
        SEQUENCE,
        lambda k, x: k.layers.RNN(k.layers.StackedRNNCells([k.layers.GRUCell(3), k.layers.LSTMCell(2)]))(x),
    ),
    plain("ConvLSTM1D", normal(3, 6, 2), 3, 3),
    plain("ConvLSTM2D", normal(3, 6, 6, 2), 3, 3, padding="same"),
    plain("ConvLSTM3D", normal(2, 4, 4, 4, 2), 2, 2),
]

RANDOM = [
    plain("Dropout", SEQUENCE, 0.3, random=True),
    plain("AlphaDropout", SEQUENCE, 0.3, random=True),
    plain("GaussianDropout", SEQUENCE, 0.3, random=True),
    plain("GaussianNoise", SEQUENCE, 0.3, random=True),
    plain("SpatialDropout1D", SEQUENCE, 0.3, random=True),
    plain("SpatialDropout2D", IMAGE, 0.3, random=True),
    plain("SpatialDropout3D", VOLUME, 0.3, random=True),
    plain("LSTM", SEQUENCE, 5, variant="dropout", dropout=0.3, recurrent_dropout=0.2, random=True),
    plain("GRU", SEQUENCE, 5, variant="dropout", dropout=0.3, random=True),
    layer(
        "MultiHeadAttention",
        SEQUENCE,
        lambda k, x: k.layers.MultiHeadAttention(2, 3, dropout=0.2)(x, x),
        "dropout",
        True,
    ),
]

LAYER_CASES = [
    *CORE,
    *MERGING,
    *ACTIVATIONS,
    *CONVOLUTIONS,
    *POOLINGS,
    *NORMALIZATIONS,
    *SHAPES,
    *RECURRENT,
    *RANDOM,
]
