"""Records steps of usual Keras models into engine/data/usual_steps.tar.xz: python -m tests.data.record_usual_steps.

An installation compiles the fused loops of these steps. Record them again if passes or traces have changed so much that
tests/keras/test_usual_loops.py finds loops that an installation lacks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from engine.files.container import pack, unpack
from engine.installation import STEPS

OPTIMIZERS = ("adam", "sgd", "momentum", "rmsprop", "adamw")
MEASURED = ("mlp", "mlp, batch 256", "lenet", "lstm", "text classifier", "vae", "tabular", "encoder, 2 layers")
Made = tuple[Any, Any, Any]
"""A compiled model, its inputs and its labels."""


def dense(optimizer: str, batch: int, *units: int, features: tuple[int, ...] = (28, 28)) -> Made:
    """Rectified dense layers with dropout, and the loss of scores of classes."""
    import keras

    layers = keras.layers
    hidden = [layer for n in units for layer in (layers.Dense(n, "relu"), layers.Dropout(0.2))]
    model = keras.Sequential([layers.Input(features), layers.Flatten(), *hidden, layers.Dense(10)])
    optimizers = {"momentum": lambda: keras.optimizers.SGD(0.01, momentum=0.9)}
    chosen = optimizers.get(optimizer, lambda: keras.optimizers.get(optimizer))()
    model.compile(chosen, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model, np.ones((batch, *features), np.float32), np.zeros(batch, np.int64)


def probabilities(last: str, loss: str, classes: int, batch: int) -> Made:
    """Dense layers that end with probabilities or numbers, and their usual losses and metrics."""
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [layers.Input((16,)), layers.Dense(64, "relu"), layers.Dense(64, "relu"), layers.Dense(classes, last)]
    )
    model.compile("adam", loss, metrics=["mae" if loss == "mse" else "accuracy"])
    sparse = loss.startswith("sparse")
    labels = np.zeros(batch, np.int64) if sparse else np.ones((batch, classes), np.float32)
    return model, np.ones((batch, 16), np.float32), labels


def images(optimizer: str, batch: int) -> Made:
    """Convolutions, pooling, dropout."""
    import keras

    layers = keras.layers
    convolutions = [
        layer for n in (32, 64) for layer in (layers.Conv2D(n, 3, activation="relu"), layers.MaxPooling2D())
    ]
    last = [layers.Flatten(), layers.Dropout(0.5), layers.Dense(10, "softmax")]
    model = keras.Sequential([layers.Input((28, 28, 1)), *convolutions, *last])
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model, np.ones((batch, 28, 28, 1), np.float32), np.zeros(batch, np.int64)


def residual(optimizer: str, batch: int) -> Made:
    """A residual block with batch normalisation."""
    import keras

    layers = keras.layers
    inputs = layers.Input((16, 16, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)))
    y = layers.Conv2D(32, 3, strides=2, padding="same", use_bias=False)(x)
    y = layers.Activation("relu")(layers.BatchNormalization()(y))
    y = layers.BatchNormalization()(layers.Conv2D(32, 3, padding="same", use_bias=False)(y))
    x = layers.BatchNormalization()(layers.Conv2D(32, 1, strides=2, use_bias=False)(x))
    x = layers.GlobalAveragePooling2D()(layers.Activation("relu")(layers.Add()([x, y])))
    model = keras.Model(inputs, layers.Dense(10)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model, np.ones((batch, 16, 16, 3), np.float32), np.zeros(batch, np.int64)


def recurrent(kind: str, optimizer: str) -> Made:
    """A recurrent layer over words."""
    import keras

    layers = keras.layers
    words = [layers.Input((20,), dtype="int32"), layers.Embedding(1000, 32)]
    model = keras.Sequential([*words, getattr(layers, kind)(32), layers.Dense(10)])
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model, np.ones((32, 20), np.int32), np.zeros(32, np.int64)


def measured(name: str) -> Made:
    """A workload of the benchmarks."""
    import keras

    from benchmarks import models
    from benchmarks.rivals.keras_fit import loss_of
    from benchmarks.workloads import EVERY

    workload = EVERY[name]
    model = getattr(models, workload.model)(*workload.arguments)
    metrics = ["accuracy"] if workload.loss == "categories" else []
    model.compile(keras.optimizers.get(workload.optimizer), loss_of(workload), metrics=metrics)
    return model, *workload.data(np.random.default_rng(0), workload.batch)


STEPS_OF: dict[str, Callable[[], Made]] = {
    **{name: lambda name=name: dense(name, 32, 128, 72) for name in OPTIMIZERS},
    **{f"{name}, odd": lambda name=name: dense(name, 100, 300, 96, features=(50,)) for name in OPTIMIZERS},
    "wide": lambda: dense("adam", 128, 512, 256, 64),
    "classes": lambda: probabilities("softmax", "sparse_categorical_crossentropy", 10, 32),
    "rows of classes": lambda: probabilities("softmax", "categorical_crossentropy", 10, 32),
    "two classes": lambda: probabilities("sigmoid", "binary_crossentropy", 1, 32),
    "regression": lambda: probabilities(None, "mse", 1, 32),
    "images": lambda: images("adam", 32),
    "residual": lambda: residual("adam", 32),
    "recurrent": lambda: recurrent("GRU", "adam"),
    **{name: lambda name=name: measured(name) for name in MEASURED},
}
VARIANTS = {*OPTIMIZERS[1:], *(f"{each}, odd" for each in OPTIMIZERS), "mlp", "mlp, batch 256"}
"""Models of which only training is recorded: they are evaluated as others are."""


def record(name: str, folder: Path) -> None:
    """Stores the programs of a model's training, evaluation and prediction in a folder."""
    from tensorflow.python import ipu

    config = ipu.config.IPUConfig()
    config.serialization_output_folder = str(folder)
    config.configure_ipu_system()
    with ipu.ipu_strategy.IPUStrategy().scope():
        model, inputs, labels = STEPS_OF[name]()
    count = len(labels)
    model.fit(inputs, labels, batch_size=count, verbose=0)
    if name not in VARIANTS:
        model.evaluate(inputs, labels, batch_size=count, verbose=0)
        model.predict(inputs, batch_size=count, verbose=0)


def bare(content: bytes, name: str) -> bytes:
    """The program without its names and those of operations, which make no difference to its loops."""
    header, sections = unpack(content, name)
    program = json.loads(bytes(sections["program"]))
    for number, computation in enumerate(program["module"]["computations"]):
        computation["name"] = f"c{number}"
        for position, instruction in enumerate(computation["instructions"]):
            instruction[0], instruction[-1] = f"i{position}", 0
    program["module"] |= {"name": name, "origins": [""]}
    text = json.dumps(program, separators=(",", ":"), allow_nan=False).encode()
    kept = {key: header[key] for key in ("metadata", "inputs", "outputs", "queues", "made_by")}
    return pack(kept, {"program": text, "arrays": bytes(sections["arrays"])})


def main() -> None:
    """Records each model in a process of its own, and writes the archive."""
    with tarfile.open(STEPS, "w:xz") as archive:
        for name in STEPS_OF:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, "-m", "tests.data.record_usual_steps", name, folder]
                subprocess.run(command, check=True)
                programs = [bare(path.read_bytes(), name) for path in Path(folder).glob("*.poplar_exec")]
                for number, content in enumerate(sorted(programs, key=len, reverse=True)):
                    entry = tarfile.TarInfo(f"{name} {number}")
                    entry.size = len(content)
                    archive.addfile(entry, BytesIO(content))


if __name__ == "__main__":
    record(sys.argv[1], Path(sys.argv[2])) if sys.argv[1:] else main()
