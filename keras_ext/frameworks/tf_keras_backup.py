"""tf_keras' BackupAndRestore for a strategy's models: checkpoints also get random states that are in no variable."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from tf_keras.src.callbacks import BackupAndRestore
from tf_keras.src.distribute.worker_training_state import WorkerTrainingState

from engine.files.container import write_whole
from ipu.ipu_strategy import IPUStrategyV1
from keras_ext.frameworks.common import serves
from keras_ext.processes import check_backup, without_others, writes_files
from keras_ext.random_states import random_states, restore_random_states
from keras_ext.types import Logs
from keras_ext.wrapping import Original, wrap

SUFFIX = ".random_states.npz"
"""Suffix, after the checkpoint's name, of a file beside those of the checkpoint."""


def install() -> None:
    """Wraps the callback, and the WorkerTrainingState it saves with, at class level."""
    wrap(BackupAndRestore, "on_train_begin", _begin)
    wrap(WorkerTrainingState, "back_up", _back_up)
    wrap(WorkerTrainingState, "restore", _restore)
    wrap(WorkerTrainingState, "delete_backup", _delete_backup)


def _begin(on_train_begin: Original, callback: BackupAndRestore, logs: Logs = None) -> None:
    """Adds IPUStrategyV1 to the callback's list of supported strategies."""
    callback._supported_strategies = (*callback._supported_strategies, IPUStrategyV1)
    on_train_begin(callback, logs)


def _back_up(original: Original, state: WorkerTrainingState, *arguments: object, **named: object) -> None:
    if not writes_files(state._model):
        return
    manager, kept = state.write_checkpoint_manager, None
    if serves(state._model._distribution_strategy):
        # They are written before the checkpoint that they belong to, by its name: it counts once it is complete.
        saved = without_others(lambda: int(manager.checkpoint.save_counter))
        kept = Path(f"{manager._prefix}-{saved + 1}{SUFFIX}")
        content = io.BytesIO()
        np.savez(content, **random_states([]))  # type: ignore[arg-type]  # names, none of them allow_pickle
        write_whole(kept, content.getvalue())
    without_others(original, state, *arguments, **named)
    if kept is not None and str(kept) == f"{manager.latest_checkpoint}{SUFFIX}":
        for old in set(kept.parent.glob(f"*{SUFFIX}")) - {kept}:
            old.unlink()


def _delete_backup(original: Original, state: WorkerTrainingState) -> None:
    if writes_files(state._model):
        original(state)


def _restore(original: Original, state: WorkerTrainingState) -> None:
    original(state)
    check_backup(state._model, int(state._ckpt_saved_epoch))
    kept = Path(f"{state.read_checkpoint_manager.latest_checkpoint}{SUFFIX}")
    if serves(state._model._distribution_strategy) and kept.exists():
        with np.load(kept) as states:
            restore_random_states(states, [])
