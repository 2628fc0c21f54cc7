"""Run by two workers of TF_CONFIG with a folder: backups of trainings that an error or SIGKILL ends."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow.python.ipu.ipu_multi_worker_strategy import IPUMultiWorkerStrategy

from engine.errors import ProcessError
from ipu._internal.processes.time_limits import COLLECTIVE, time_limit

strategy = IPUMultiWorkerStrategy(tf.distribute.cluster_resolver.TFConfigClusterResolver())
rank, folder = strategy.transport.rank, sys.argv[1]
x = np.random.default_rng(rank).normal(size=(8, 3)).astype(np.float32)


def train(framework: Any, *callbacks: Any) -> list[int]:
    """The epochs that a new model is trained for, up to epoch 3; its backup is in the folder.

    Worker 1 may train again before worker 0 has deleted the backup.
    """
    slow = framework.callbacks.LambdaCallback(on_train_end=lambda logs: time.sleep(0.5 * (rank == 0)))
    with strategy.scope():
        model = framework.Sequential([framework.Input((3,)), framework.layers.Dense(1)])
        model.compile(framework.optimizers.SGD(0.01), "mse", steps_per_execution=2)
        backup = framework.callbacks.BackupAndRestore(os.path.join(folder, framework.__name__))
        history = model.fit(x, x.sum(-1), batch_size=4, epochs=4, verbose=0, callbacks=[slow, backup, *callbacks])
    return list(history.epoch)


def at_the_end_of_epoch_1(framework: Any, action: Any) -> Any:
    """A callback that calls `action` at the end of epoch 1."""
    return framework.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: action() if epoch == 1 else None)


def fail() -> None:
    raise ArithmeticError("at the end of epoch 1")


def kill() -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


print("epochs of fits in turn:", [len(train(kind)) for kind in (keras, keras, tf_keras, tf_keras)], flush=True)
try:
    train(keras, at_the_end_of_epoch_1(keras, fail))
except ArithmeticError:
    assert os.path.exists(os.path.join(folder, "keras"))
print("epochs after an error:", train(keras), os.path.exists(os.path.join(folder, "keras")) and rank == 0, flush=True)
begin = time.monotonic()
try:
    train(tf_keras, at_the_end_of_epoch_1(tf_keras, kill))
except ProcessError as error:
    at_once = time.monotonic() - begin < time_limit(COLLECTIVE)
    print(f"ProcessError: {error}", at_once, float(tf.reduce_sum(tf.ones(3))), flush=True)
