"""Train a model with plain Keras and, with one more line, on the engine; print the times of both.

    python examples/accelerate.py

The first epoch of each compiles and does not count. The data are random, because the example only measures time.
"""

from __future__ import annotations

import time

import keras
import numpy as np
from tensorflow.python import ipu

SAMPLES, FEATURES, CLASSES = 8192, 64, 10


def make() -> keras.Model:
    model = keras.Sequential(
        [keras.layers.Input((FEATURES,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(CLASSES)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def seconds(model: keras.Model) -> float:
    """The seconds of an epoch after the first one."""
    generator = np.random.default_rng(0)
    x = generator.random((SAMPLES, FEATURES), np.float32)
    y = x[:, :CLASSES].argmax(axis=1)
    model.fit(x, y, verbose=0)
    begin = time.perf_counter()
    model.fit(x, y, verbose=0)
    return time.perf_counter() - begin


def main() -> None:
    with ipu.accelerate() as acceleration:
        fast = make()
    for title, model in (("plain Keras", make()), ("accelerated", fast)):
        print(f"{title}: {seconds(model):.3f} s an epoch")
    print(f"with plain Keras after all: {[fallback.method for fallback in acceleration.fallbacks]}")


if __name__ == "__main__":
    main()
