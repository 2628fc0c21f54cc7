"""The models that training is compared on: a multilayer perceptron, a LeNet and a small ResNet with BatchNorm.

Each is built by the Keras it is given, Keras 3 or tf_keras.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

CLASSES = 10
Model = Any


def multilayer_perceptron(keras: ModuleType) -> Model:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((64,)),
            layers.Dense(128, activation="relu"),
            layers.Dense(72, activation="tanh"),
            layers.Dense(CLASSES),
        ]
    )


def lenet(keras: ModuleType) -> Model:
    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((16, 16, 1)),
            layers.Conv2D(6, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(60, activation="relu"),
            layers.Dense(CLASSES),
        ]
    )


def small_resnet(keras: ModuleType) -> Model:
    layers = keras.layers
    inputs = layers.Input((12, 12, 3))
    x = _convolution(layers, inputs, 8, 3, 1)
    x = layers.ReLU()(x)
    for filters, stride in ((8, 1), (16, 2)):
        y = layers.ReLU()(_convolution(layers, x, filters, 3, stride))
        y = _convolution(layers, y, filters, 3, 1)
        if stride != 1:
            x = _convolution(layers, x, filters, 1, stride)
        x = layers.ReLU()(layers.Add()([x, y]))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(CLASSES)(x))


def _convolution(layers: Any, x: Any, filters: int, size: int, stride: int) -> Any:
    x = layers.Conv2D(filters, size, strides=stride, padding="same", use_bias=False)(x)
    return layers.BatchNormalization()(x)


MODELS: dict[str, Callable[[ModuleType], Model]] = {
    "mlp": multilayer_perceptron,
    "lenet": lenet,
    "resnet": small_resnet,
}
OPTIMIZERS: dict[str, Callable[[ModuleType], Any]] = {
    "momentum": lambda keras: keras.optimizers.SGD(0.01, momentum=0.9),
    "rmsprop": lambda keras: keras.optimizers.RMSprop(0.001),
    "adam": lambda keras: keras.optimizers.Adam(0.001),
}
