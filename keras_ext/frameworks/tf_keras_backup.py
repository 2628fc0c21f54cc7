"""tf_keras' BackupAndRestore for a strategy's models: checkpoints also get random states that are in no variable."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from tf_keras.src.callbacks import BackupAndRestore
from tf_keras.src.distribute.worker_training_state import WorkerTrainingState

from ipu.ipu_strategy import IPUStrategyV1
from keras_ext.frameworks.common import KerasFunction, serves
from keras_ext.random_states import random_states, restore_random_states
from keras_ext.types import Logs

SUFFIX = ".random_states.npz"
"""Suffix, after the checkpoint's name, of a file beside those of the checkpoint."""


def install() -> None:
    """Wraps the callback, and the WorkerTrainingState it saves with, at class level."""
    BackupAndRestore.on_train_begin = _with_our_strategy(BackupAndRestore.on_train_begin)
    WorkerTrainingState.back_up = _saving(WorkerTrainingState.back_up)
    WorkerTrainingState.restore = _restoring(WorkerTrainingState.restore)


def _with_our_strategy(on_train_begin: KerasFunction) -> KerasFunction:
    """Adds IPUStrategyV1 to the callback's list of supported strategies."""

    @functools.wraps(on_train_begin)
    def begin(callback: BackupAndRestore, logs: Logs = None) -> None:
        callback._supported_strategies = (*callback._supported_strategies, IPUStrategyV1)
        on_train_begin(callback, logs)

    return begin


def _saving(original: KerasFunction) -> KerasFunction:
    @functools.wraps(original)
    def back_up(self: WorkerTrainingState, *arguments: object, **named: object) -> None:
        original(self, *arguments, **named)
        checkpoint = self.write_checkpoint_manager.latest_checkpoint
        if serves(self._model._distribution_strategy) and checkpoint is not None:
            kept = Path(checkpoint + SUFFIX)
            np.savez(kept, **random_states([]))  # type: ignore[arg-type]  # names, none of them allow_pickle
            for old in set(kept.parent.glob(f"*{SUFFIX}")) - {kept}:
                old.unlink()

    return back_up


def _restoring(original: KerasFunction) -> KerasFunction:
    @functools.wraps(original)
    def restore(self: WorkerTrainingState) -> None:
        original(self)
        kept = Path(f"{self.read_checkpoint_manager.latest_checkpoint}{SUFFIX}")
        if serves(self._model._distribution_strategy) and kept.exists():
            with np.load(kept) as states:
                restore_random_states(states, [])

    return restore
