"""Hooks of `ipu.accelerate` into Keras 3: its iterators, its validation data, and callbacks that act by epoch."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import keras
from keras.src.backend.tensorflow import trainer as keras_trainer
from keras.src.callbacks.progbar_logger import ProgbarLogger

from keras_ext import accelerated_methods, batch_hooks


def idle_hooks() -> batch_hooks.Idle:
    """The methods for batches of Keras' own callbacks, which do nothing if these act by epoch."""
    callbacks = keras.callbacks
    by_epoch, bars = batch_hooks.by_epoch, (f"on_{mode}_batch_end" for mode in ("train", "test", "predict"))
    saved = by_epoch(callbacks.ModelCheckpoint, "_should_save_on_batch")
    backed_up = by_epoch(callbacks.BackupAndRestore, "_should_save_on_batch")
    shown = batch_hooks.by_epoch(callbacks.TensorBoard)
    return {
        callbacks.ModelCheckpoint.on_train_batch_end: saved,
        callbacks.BackupAndRestore.on_train_batch_end: backed_up,
        callbacks.TensorBoard.on_train_batch_begin: shown,
        callbacks.TensorBoard.on_train_batch_end: shown,
        callbacks.TensorBoard.on_test_batch_begin: shown,
        **{getattr(ProgbarLogger, bar): batch_hooks.is_of(ProgbarLogger, "_update_progbar") for bar in bars},
    }


def _remake_validation(model: keras.Model, again: Callable[[Any], Any]) -> None:
    epoch: Any = getattr(model, "_eval_epoch_iterator", None)
    if hasattr(epoch, "arguments"):  # the engine's, not Keras' own
        given = {**epoch.arguments, "x": again(epoch.arguments["x"]), "steps_per_execution": model.steps_per_execution}
        model._eval_epoch_iterator = keras_trainer.TFEpochIterator(model.distribute_strategy, **given)


def _set_steps(model: keras.Model, steps: int) -> None:
    model.steps_per_execution = steps


ACCELERATED = accelerated_methods.AcceleratedKeras(
    *("_distribute_strategy", _set_steps),
    steps_need_length=False,
    shows_means=lambda model, mode: False,
    iterator=lambda data: isinstance(data, types.GeneratorType),
    as_source=lambda reader: reader.generator(),
    remake_validation=_remake_validation,
)
