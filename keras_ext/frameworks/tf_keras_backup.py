"""tf_keras' BackupAndRestore for a strategy's models: checkpoints also get random states that are in no variable."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import tensorflow as tf
from tf_keras.src.callbacks import BackupAndRestore
from tf_keras.src.distribute.worker_training_state import WorkerTrainingState

from engine.errors import InvalidFile
from engine.private_files import read_regular
from engine.whole_files import remove, write_whole
from ipu._internal import checkpoints
from ipu.ipu_strategy import IPUStrategyV1
from keras_ext.frameworks.common import serves
from keras_ext.processes import check_backup, wait_for_files, without_others, writes_files
from keras_ext.random_states import random_states, restore_random_states
from keras_ext.types import Logs
from keras_ext.wrapping import Original, wrap

SUFFIX = ".random_states.npz"
"""Suffix of the file of states beside a checkpoint, after the checkpoint's name."""


def install() -> None:
    """Wraps the callback, and the WorkerTrainingState it saves with, at class level."""
    wrap(BackupAndRestore, "on_train_begin", _begin)
    wrap(WorkerTrainingState, "back_up", _back_up)
    wrap(WorkerTrainingState, "restore", _restore)
    wrap(WorkerTrainingState, "delete_backup", _delete_backup)


def _begin(on_train_begin: Original, callback: BackupAndRestore, logs: Logs = None) -> None:
    """Adds IPUStrategyV1 to the callback's list of supported strategies."""
    callback._supported_strategies = (*callback._supported_strategies, IPUStrategyV1)
    if serves(callback.model._distribution_strategy):
        for folder in Path(callback.backup_dir).glob("*/"):
            checkpoints.check_files(folder)
    on_train_begin(callback, logs)


def _back_up(original: Original, state: WorkerTrainingState, *arguments: object, **named: object) -> None:
    if not writes_files(state._model):
        return
    manager, kept = state.write_checkpoint_manager, None
    if _is_ours(state):
        # The states are written before their checkpoint, under its name: a checkpoint counts once it is complete.
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
    manager = state.write_checkpoint_manager
    if not writes_files(state._model):
        return
    if _is_ours(state) and manager is state.read_checkpoint_manager:
        remove(Path(manager.directory))
    else:
        original(state)


def _is_ours(state: WorkerTrainingState) -> bool:
    is_local = "://" not in os.fspath(state.read_checkpoint_manager.directory)
    return serves(state._model._distribution_strategy) and is_local


def _restore(original: Original, state: WorkerTrainingState) -> None:
    manager = state.read_checkpoint_manager
    if _is_ours(state):
        if writes_files(state._model):
            checkpoints.mend(manager.directory)
        wait_for_files(state._model)
        manager._latest_checkpoint = tf.train.latest_checkpoint(manager.directory)
    original(state)
    check_backup(state._model, int(state._ckpt_saved_epoch))
    kept = Path(f"{manager.latest_checkpoint}{SUFFIX}")
    if _is_ours(state) and kept.exists():
        try:
            with np.load(io.BytesIO(read_regular(kept))) as file:
                states = dict(file)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise InvalidFile(f"Expected random states in {kept}. Received: a damaged file: {error}.") from error
        restore_random_states(states, [])
