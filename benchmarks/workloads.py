"""The measured workloads: a model, data, a batch, and a promised speed as a multiple of Keras'."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

Data = tuple[Any, np.ndarray]
Kind = Literal["fit", "predict", "latency"]


@dataclass(frozen=True)
class Workload:
    """`model` names a function of `benchmarks.models`; an epoch has `steps` batches, `execution` of them at once."""

    name: str
    model: str
    data: Callable[[np.random.Generator, int], Data]
    batch: int
    steps: int
    execution: int
    least_ratio: float
    """The promised speed, as a multiple of the best way of Keras."""
    arguments: tuple[Any, ...] = ()
    optimizer: str = "rmsprop"
    kind: Kind = "fit"
    policy: str = "float32"
    """The dtype policy of the layers."""
    loss: Literal["categories", "pixels"] = "categories"
    """Cross entropy from logits, with labels of classes, or with each input's value as a probability."""

    @property
    def samples(self) -> int:
        return self.batch * self.steps


def reals(*shape: int, classes: int = 10) -> Callable[[np.random.Generator, int], Data]:
    """Uniform random inputs, float32 [samples, *shape], and random labels, int64 [samples]."""
    return partial(_reals, shape, classes)


def _reals(shape: tuple[int, ...], classes: int, generator: np.random.Generator, samples: int) -> Data:
    return generator.random((samples, *shape), np.float32), generator.integers(0, classes, samples)


def words(generator: np.random.Generator, samples: int) -> Data:
    """Random texts of 128 words, int32 [samples, 128], and labels, int64 [samples]."""
    return generator.integers(0, 20_000, (samples, 128)).astype(np.int32), generator.integers(0, 10, samples)


def identifiers(generator: np.random.Generator, samples: int) -> Data:
    """Lists of 20 of 10^6 identifiers, int32 [samples, 20], with frequencies by Zipf's law, and labels, int64."""
    found = (generator.zipf(1.1, (samples, 20)) - 1) % 1_000_000
    return found.astype(np.int32), generator.integers(0, 10, samples)


def table(generator: np.random.Generator, samples: int) -> Data:
    """Random rows of eight categories, int32 [samples, 8], and thirteen numbers, float32 [samples, 13], with labels."""
    categories = generator.integers(0, 1_000, (samples, 8)).astype(np.int32)
    return [categories, generator.random((samples, 13), np.float32)], generator.integers(0, 2, samples)


def segments(generator: np.random.Generator, samples: int) -> Data:
    """Random images of 64 x 64, float32 [samples, 64, 64, 3], and a class of each pixel, int64 [samples, 64, 64]."""
    return generator.random((samples, 64, 64, 3), np.float32), generator.integers(0, 4, (samples, 64, 64))


def sentences(generator: np.random.Generator, samples: int) -> Data:
    """Random pairs of texts of 24 words, each int32 [samples, 24], and the words that follow, int64 [samples, 24]."""
    source, target, following = generator.integers(0, 2_000, (3, samples, 24))
    return [source.astype(np.int32), target.astype(np.int32)], following


def pixels(generator: np.random.Generator, samples: int) -> Data:
    """Random images, float32 [samples, 784], which are also the labels."""
    images = generator.random((samples, 784), np.float32)
    return images, images


WORKLOADS = {
    each.name: each
    for each in (
        Workload("mlp", "mlp", reals(784), 32, 1000, 100, 6.0),
        Workload("mlp, batch 256", "mlp", reals(784), 256, 200, 100, 2.5),
        Workload("wide mlp", "wide_mlp", reals(784), 256, 20, 10, 2.0, optimizer="adam"),
        Workload("lenet", "lenet", reals(28, 28, 1), 32, 200, 100, 2.0),
        Workload("resnet20", "resnet20", reals(32, 32, 3), 32, 20, 10, 2.0),
        Workload("resnet50", "resnet50", reals(64, 64, 3), 8, 6, 3, 1.2),
        Workload("separable", "separable", reals(48, 48, 3), 16, 40, 20, 2.0, optimizer="adam"),
        Workload("bidirectional gru", "bidirectional_gru", reals(40, 32), 32, 40, 20, 2.0, optimizer="adam"),
        Workload("lstm", "lstm", reals(64, 32), 32, 100, 50, 5.0),
        Workload("encoder, 2 layers", "encoder", reals(64, 128), 16, 40, 20, 2.0, (2, 128), "adam"),
        Workload("encoder, 6 layers", "encoder", reals(64, 256), 16, 6, 3, 2.0, (6, 256), "adam"),
        Workload("unet", "unet", segments, 8, 20, 10, 2.0, optimizer="adam"),
        Workload("mixer", "mixer", reals(28, 28, 1), 32, 20, 10, 2.0, optimizer="adam"),
        Workload("vision transformer", "vision_transformer", reals(32, 32, 3), 16, 10, 5, 2.0, optimizer="adam"),
        Workload("seq2seq", "seq2seq", sentences, 32, 40, 20, 2.0, optimizer="adam"),
        Workload("vae", "variational_autoencoder", pixels, 128, 100, 50, 2.0, optimizer="adam", loss="pixels"),
        Workload("efficientnet", "efficientnet", reals(64, 64, 3), 8, 6, 3, 2.0, optimizer="adam"),
        Workload("text classifier", "text_classifier", words, 32, 200, 100, 4.0, optimizer="adam"),
        Workload("large embedding", "large_embedding", identifiers, 32, 40, 20, 10.0, optimizer="adam"),
        Workload("tabular", "tabular", table, 128, 200, 100, 3.0, optimizer="adam"),
        Workload("mlp, float16", "mlp", reals(784), 32, 1000, 100, 4.0, policy="mixed_float16"),
        Workload("mlp, batch 256, float16", "mlp", reals(784), 256, 200, 100, 2.0, policy="mixed_float16"),
        Workload("lenet, float16", "lenet", reals(28, 28, 1), 32, 200, 100, 2.0, policy="mixed_float16"),
        Workload(
            "encoder, 2 layers, float16",
            *("encoder", reals(64, 128), 16, 40, 20, 1.5, (2, 128), "adam", "fit", "mixed_float16"),
        ),
        Workload(
            "encoder, 2 layers, bfloat16",
            *("encoder", reals(64, 128), 16, 40, 20, 4.0, (2, 128), "adam", "fit", "mixed_bfloat16"),
        ),
        Workload("predict_on_batch, mlp", "mlp", reals(784), 1, 300, 1, 5.0, kind="latency"),
        Workload("predict_on_batch, lenet", "lenet", reals(28, 28, 1), 1, 300, 1, 5.0, kind="latency"),
        Workload("predict, mlp", "mlp", reals(784), 256, 100, 50, 1.0, kind="predict"),
        Workload("predict, resnet20", "resnet20", reals(32, 32, 3), 256, 4, 2, 1.0, kind="predict"),
    )
}
FIRST_STEPS = {
    "100 dense layers": Workload("100 dense layers", "deep_mlp", reals(64), 32, 40, 20, 1.0, optimizer="adam"),
}
"""Workloads of which only the first step is measured, not a race."""
APPLICATIONS = {
    each.name: each
    for each in (
        Workload(name.lower(), "application", reals(96, 96, 3), batch, 6, 3, 2.0, (name, 96), "adam")
        for name, batch in {
            "MobileNet": 16,
            "MobileNetV2": 16,
            "MobileNetV3Small": 16,
            "EfficientNetV2B0": 8,
            "DenseNet121": 8,
            "Xception": 8,
            "InceptionV3": 8,
            "NASNetMobile": 8,
            "VGG16": 8,
            "ResNet50V2": 8,
            "ConvNeXtTiny": 8,
        }.items()
    )
}
"""Models of keras.applications on 96 x 96 pixels, raced only if they are named. Some exceed a chip's memory.

Their least ratios are goals: no test checks them, and no page has them."""
EVERY = WORKLOADS | FIRST_STEPS | APPLICATIONS
