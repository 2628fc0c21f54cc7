"""Traces one training step of three small Keras models into this folder: python -m tests.data.trace_models.

<name>.hlo is the serialised HLO of the step, <name>.json how each captured variable begins: {"fill": number} or, for
random weights, {"scale": standard deviation}.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent


def mlp() -> tuple[Any, tuple[int, ...]]:
    import keras

    layers = keras.layers
    model = keras.Sequential([layers.Input((30,)), layers.Dense(24, "relu"), layers.Dense(10)])
    compiled(model, "rmsprop")
    return model, (16, 30)


def lenet() -> tuple[Any, tuple[int, ...]]:
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((14, 14, 1)),
            layers.Conv2D(4, 5, padding="same", activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(6, 3, activation="relu"),
            layers.AveragePooling2D(2, padding="same"),
            layers.Flatten(),
            layers.Dense(20, "tanh"),
            layers.Dense(10),
        ]
    )
    compiled(model, "adam")
    return model, (8, 14, 14, 1)


def resnet() -> tuple[Any, tuple[int, ...]]:
    import keras

    layers = keras.layers
    inputs = layers.Input((8, 8, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", use_bias=False)(inputs)))
    y = layers.Conv2D(16, 3, strides=2, padding="same", use_bias=False)(x)
    y = layers.ReLU()(layers.BatchNormalization()(y))
    y = layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same", use_bias=False)(y))
    x = layers.BatchNormalization()(layers.Conv2D(16, 1, strides=2, use_bias=False)(x))
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.Add()([x, y])))
    model = keras.Model(inputs, layers.Dense(10)(x))
    compiled(model, keras.optimizers.SGD(0.05, momentum=0.9))
    return model, (8, 8, 8, 3)


def compiled(model: Any, optimizer: Any) -> None:
    import keras

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])


def traced(model: Any, dimensions: tuple[int, ...]) -> tuple[bytes, list[dict[str, float]]]:
    """The step's HLO, and the initial values of the variables that it captures."""
    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function import compiler_ir

    x, y = tf.zeros(dimensions), tf.zeros(dimensions[:1], tf.int32)
    begin = {v.path: np.asarray(v) for v in model.variables}
    model.train_step((x, y))
    step = tf.function(lambda x, y: model.train_step((x, y)), jit_compile=True, autograph=False)
    concrete = step.get_concrete_function(tf.TensorSpec(x.shape, x.dtype), tf.TensorSpec(y.shape, y.dtype))
    specs = [tf.TensorSpec(x.shape, x.dtype), tf.TensorSpec(y.shape, y.dtype)]
    hlo = compiler_ir.from_concrete_function(concrete, specs)(stage="hlo_serialized")
    paths = {id(v.value.handle): v for v in (*model.variables, *model.optimizer.variables)}
    states = []
    for captured in concrete.captured_inputs:
        variable = paths.get(id(captured))
        value = begin.get(variable.path) if variable is not None else None
        if value is None:
            # Optimizer state and metrics begin at zero, except for the learning rate.
            rate = variable is not None and "learning_rate" in variable.path
            states.append({"fill": float(np.asarray(variable))} if rate else {"fill": 0.0})
        elif np.all(value == value.reshape(-1)[0]):
            states.append({"fill": float(value.reshape(-1)[0])})
        else:
            states.append({"scale": round(float(value.std()), 4)})
    return hlo, states


def main() -> None:
    import keras

    for make in (mlp, lenet, resnet):
        keras.utils.set_random_seed(0)
        hlo, states = traced(*make())
        (FOLDER / f"{make.__name__}.hlo").write_bytes(hlo)
        (FOLDER / f"{make.__name__}.json").write_text(json.dumps(states) + "\n")


if __name__ == "__main__":
    main()
