"""The models that are measured, compiled alike for the software IPU and for plain Keras."""

from __future__ import annotations

import keras
from keras import layers

STEPS_PER_EXECUTION = 100
BATCH_SIZE = 32


def mlp() -> keras.Model:
    """784-256-128-10."""
    return keras.Sequential(
        [
            layers.Input((784,)),
            layers.Dense(256, "relu"),
            layers.Dense(128, "relu"),
            layers.Dense(10),
        ]
    )


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


def compiled(
    model: keras.Model, jit_compile: bool | str = "auto", steps_per_execution: int = STEPS_PER_EXECUTION
) -> keras.Model:
    """The model with RMSprop, sparse cross-entropy and accuracy."""
    model.compile(
        optimizer=keras.optimizers.RMSprop(),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=steps_per_execution,
        jit_compile=jit_compile,
    )
    return model
