"""A training that may be killed and started again.

`python -m tests.keras.resuming FRAMEWORK DIRECTORY` kills itself. Nothing is random: Keras 3 does not save the state of
its seed generators.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.ipu_strategy import IPUStrategy
from tests.keras.helpers import CLASSES, FEATURES, KITS, data

EPOCHS = 4
KILLED_IN = 2
X, Y = data(48)


def killer(keras: Any) -> Any:
    """A callback that kills the process in the middle of an epoch."""

    class Killer(keras.callbacks.Callback):  # type: ignore[name-defined, misc]
        epoch = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if self.epoch == KILLED_IN:
                os.kill(os.getpid(), signal.SIGKILL)

    return Killer()


def train(framework: str, directory: Path | None, *callbacks: Any) -> Any:
    """The model after its epochs, backed up in `directory`; one of two executions of each epoch is in its middle."""
    keras = KITS[framework].keras
    keras.utils.set_random_seed(11)
    layers = keras.layers
    with IPUStrategy().scope():
        model = keras.Sequential(
            [
                layers.Input((FEATURES,)),
                layers.Dense(16, "relu"),
                layers.BatchNormalization(),
                layers.Dense(CLASSES, "softmax"),
            ]
        )
        model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", steps_per_execution=3)
    backup = [] if directory is None else [keras.callbacks.BackupAndRestore(str(directory))]
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8, drop_remainder=True)
    model.fit(dataset, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[*backup, *callbacks])
    return model


def state(model: Any) -> list[np.ndarray]:
    """Everything that training changes."""
    optimizer = model.optimizer.variables
    return [*model.get_weights(), *map(np.asarray, optimizer() if callable(optimizer) else optimizer)]


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]), killer(KITS[sys.argv[1]].keras))
