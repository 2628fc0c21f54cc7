"""A training that may be killed and started again.

`python -m tests.keras.resuming FRAMEWORK DATA DIRECTORY` kills itself. Everything random goes on where it was: the
order of the rows, Dropout, and noise that a layer draws without a seed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from ipu.utils import reset_ipu_seed
from tests.keras.helpers import CLASSES, FEATURES, KITS, data

EPOCHS = 4
ENDED_IN = 2
X, Y = data(48)


def ending(keras: Any, end: Callable[[], None]) -> Any:
    """A callback that calls `end` in the middle of the third epoch."""

    class Ending(keras.callbacks.Callback):  # type: ignore[name-defined, misc]
        epoch = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.epoch == ENDED_IN:
                end()

    return Ending()


DATA = ("arrays", "dataset", "endless")


def arguments_of_fit(kind: str) -> dict[str, Any]:
    """Shuffled rows in batches of 8: arrays, a data set of one epoch, or one that starts again within an epoch."""
    if kind == "arrays":
        return {"x": X, "y": Y, "batch_size": 8}
    rows = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(len(X))
    if kind == "dataset":
        return {"x": rows.batch(8, drop_remainder=True)}
    return {"x": rows.repeat().batch(8, drop_remainder=True), "steps_per_epoch": 6}


def train(framework: str, kind: str, directory: Path | None, *callbacks: Any, epochs: int = EPOCHS) -> Any:
    """The model after its epochs, backed up in `directory`; each epoch has two executions."""
    keras = KITS[framework].keras
    if framework == "tf_keras":  # other tests of a worker switch to generators in variables
        keras.backend.experimental.disable_tf_random_generator()
    keras.utils.set_random_seed(11)
    reset_ipu_seed(11)
    layers = keras.layers

    class Noise(layers.Layer):  # type: ignore[name-defined, misc]
        def call(self, x: Any) -> Any:
            if framework == "tf_keras":
                return x + tf.random.normal(tf.shape(x), stddev=0.1)
            return x + keras.random.normal(keras.ops.shape(x), stddev=0.1)

    with IPUStrategy().scope():
        model = keras.Sequential(
            [
                layers.Input((FEATURES,)),
                layers.Dense(16, "relu"),
                layers.BatchNormalization(),
                layers.Dropout(0.3),
                Noise(),
                layers.Dropout(0.2, seed=5),
                layers.Dense(CLASSES, "softmax"),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", steps_per_execution=3)
    backup = [] if directory is None else [keras.callbacks.BackupAndRestore(str(directory))]
    model.fit(**arguments_of_fit(kind), epochs=epochs, verbose=0, callbacks=[*backup, *callbacks])
    return model


def state(model: Any) -> list[np.ndarray]:
    """Everything that training changes."""
    optimizer = model.optimizer.variables
    return [*model.get_weights(), *map(np.asarray, optimizer() if callable(optimizer) else optimizer)]


if __name__ == "__main__":
    kill = ending(KITS[sys.argv[1]].keras, lambda: os.kill(os.getpid(), signal.SIGKILL))
    train(*sys.argv[1:3], Path(sys.argv[3]), kill)
