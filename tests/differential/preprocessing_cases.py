"""Preprocessing layers, inside the model: images of colours, numbers in bins, sounds."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensorflow as tf

from keras_ext.frameworks.common import serves
from tests.differential.case import Case, normal, pixels, tokens
from tests.differential.layer_cases import layer

COLOURS = pixels(8, 8, 3)
SOUND = normal(128)


def image(name: str, *arguments: Any, variant: str = "", random: bool = True, **named: Any) -> Case:
    """A layer on colours from 0 to 255."""
    return layer(
        name, COLOURS, lambda k, x: getattr(k.layers, name)(*arguments, **named)(x), variant, random, scale=1 / 255
    )


def cropping(name: str, *arguments: Any, make: Callable[..., Any] | None = None) -> Case:
    """A layer whose result has one size in training and another one otherwise, though Keras computes one size."""

    def pooled(keras: ModuleType, x: Any) -> Any:
        made = (make or getattr)(keras.layers, name)(*arguments)
        return keras.layers.GlobalAveragePooling2D()(made(x))

    return layer(name, COLOURS, pooled, random=True, scale=1 / 255)


def _crop(layers: ModuleType, name: str) -> Any:
    """The layer itself on the engine. For the reference, one that gives XLA the size of the crop: XLA loses it, and
    would resize the whole image."""
    crop = getattr(layers, name)
    if serves(tf.distribute.get_strategy()) or not hasattr(crop, "transform_images"):
        return crop

    class CropOfKnownSize(crop):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.supports_jit = True

        def transform_images(self, images: Any, transformation: Any, training: bool = True) -> Any:
            if not training:
                return images
            rows, columns = transformation
            return tf.slice(images, [0, rows, columns, 0], [-1, self.height, self.width, -1])

    return CropOfKnownSize


IMAGES = [
    image("CenterCrop", 5, 6, random=False),
    image("Rescaling", 1 / 127.5, -1, random=False),
    *(image("Resizing", 6, 5, e, variant=e, random=False) for e in ("bilinear", "nearest", "bicubic", "area")),
    image("AugMix", (0, 255)),
    image("AutoContrast", (0, 255), random=False),
    image("ContrastLimitedAdaptiveHistogramEqualization", (0, 255), tile_grid_size=(2, 2), random=False),
    image("CutMix"),
    image("Equalization", (0, 255), random=False),
    image("MixUp"),
    image("RandAugment", (0, 255)),
    image("RandomBrightness", 0.2),
    image("RandomColorDegeneration", 0.5, (0, 255)),
    image("RandomColorJitter", (0, 255), 0.2, 0.2, 0.2, 0.2),
    image("RandomContrast", 0.2),
    cropping("RandomCrop", 6, 5, make=_crop),
    cropping("RandomHeight", 0.2),
    cropping("RandomWidth", 0.2),
    image("RandomElasticTransform", 0.5),
    image("RandomErasing", 1.0),
    image("RandomFlip"),
    image("RandomGaussianBlur", 1.0, value_range=(0, 255)),
    image("RandomGrayscale", 0.5),
    image("RandomHue", 0.5, (0, 255)),
    image("RandomInvert", 0.5),
    image("RandomPerspective", 1.0),
    image("RandomPosterization", 4),
    image("RandomRotation", 0.2),
    image("RandomSaturation", 0.5, (0, 255)),
    image("RandomSharpness", 0.5, (0, 255)),
    image("RandomShear", 0.2, 0.2),
    image("RandomTranslation", 0.2, 0.2),
    image("RandomZoom", 0.2),
    layer(
        "Pipeline",
        COLOURS,
        lambda k, x: k.layers.Pipeline([k.layers.CenterCrop(6, 6), k.layers.Rescaling(1 / 255)])(x),
    ),
    image("Solarization", 0.1, 0.5, random=False),
]

NUMBERS = [
    layer("Normalization", normal(6), lambda k, x: k.layers.Normalization(mean=[0.5] * 6, variance=[2.0] * 6)(x)),
    layer("Discretization", normal(6), lambda k, x: k.layers.Discretization([-1.0, 0.0, 0.5])(x), scale=0.25),
    *(
        layer("CategoryEncoding", tokens(4), lambda k, x, e=e: k.layers.CategoryEncoding(10, e)(x), e)
        for e in ("multi_hot", "count")
    ),
    layer("CategoryEncoding", tokens(1), lambda k, x: k.layers.CategoryEncoding(10, "one_hot")(x), "one_hot"),
    layer("Hashing", tokens(4), lambda k, x: k.layers.Hashing(7)(x), scale=0.1),
    layer("HashedCrossing", (tokens(1), tokens(1)), lambda k, x, y: k.layers.HashedCrossing(7)((x, y)), scale=0.1),
    layer("IntegerLookup", tokens(4), lambda k, x: k.layers.IntegerLookup(vocabulary=[1, 3, 5])(x), scale=0.1),
    layer(
        "STFTSpectrogram",
        normal(128, 1),
        lambda k, x: k.layers.STFTSpectrogram(frame_length=32, frame_step=16)(x),
        scale=0.1,
    ),
    layer(
        "MelSpectrogram",
        SOUND,
        lambda k, x: k.layers.MelSpectrogram(fft_length=32, sequence_stride=16, sampling_rate=400, num_mel_bins=8)(x),
        scale=0.01,
    ),
]

PREPROCESSING_CASES = [*IMAGES, *NUMBERS]
