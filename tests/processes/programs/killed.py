"""Run by each process: a training with a backup, in which some processes kill themselves.

killed.py FOLDER LOG SECONDS RANKS. RANKS are digits, one for each process that kills itself after SECONDS seconds.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import keras
import numpy as np
import popdist
import popdist.tensorflow
from tensorflow.python import ipu

from tests.keras.resuming import state
from tests.kills import EPOCHS, Log, digest

if __name__ == "__main__":
    folder, log, seconds, ranks = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    popdist.init()
    config = ipu.config.IPUConfig()
    popdist.tensorflow.set_ipu_config(config)
    config.configure_ipu_system()
    strategy = ipu.distributed.popdist_strategy.PopDistStrategy()
    rank = popdist.getInstanceIndex()
    x = np.random.default_rng(rank).normal(size=(32, 3)).astype(np.float32)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
        model.compile(keras.optimizers.Adam(0.01), "mse", steps_per_execution=2)
        progress = Log(log if rank == 0 else Path(os.devnull), seconds if str(rank) in ranks else None)
        backup = keras.callbacks.BackupAndRestore(folder)
        callbacks = [backup, progress.callback(keras)]
        model.fit(x, x.sum(-1), batch_size=8, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=callbacks)
    if rank == 0:
        progress.write(f"digest {digest(state(model))}")
