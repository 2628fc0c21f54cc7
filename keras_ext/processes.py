"""Models that several processes train: statistics that each has of its own, and the files that one of them writes."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.errors import ConfigurationError
from ipu._internal.compiler.processes import transport_of
from ipu._internal.processes.active import alone
from ipu._internal.processes.transport import Transport
from keras_ext.pipelining.outfeed import has_accumulated_logs
from keras_ext.step_callbacks import model_of
from keras_ext.types import KerasModel, Logs
from keras_ext.wrapping import Original, wrap


def install(checkpoint: type, callback_list: type) -> None:
    """Wraps classes of one framework: process 0 alone writes ModelCheckpoint's files, and all end epochs together."""
    wrap(checkpoint, "_save_model", _save_in_first)
    wrap(callback_list, "on_epoch_end", _end_epoch_together)


def _end_epoch_together(original: Original, callbacks: Any, epoch: int, logs: Logs = None) -> None:
    """Raises ProcessError if processes have different numbers of batches: steps of two epochs would be summed."""
    model = model_of(callbacks)
    transport = None if model is None else _transport(model)
    if transport is not None:
        transport.barrier(f"at the end of epoch {epoch + 1}")
    original(callbacks, epoch, logs)


def _save_in_first(original: Original, callback: Any, *arguments: Any, **named: Any) -> None:
    if writes_files(callback.model):
        without_others(original, callback, *arguments, **named)


def without_others(original: Original, *arguments: Any, **named: Any) -> Any:
    """Calls a function in this process alone: variables that it creates do not get the values of process 0."""
    with alone():
        return original(*arguments, **named)


def writes_files(model: KerasModel) -> bool:
    """Whether this process writes the files of a model: process 0 alone does."""
    transport = _transport(model)
    return transport is None or transport.rank == 0


def wait_for_files(model: KerasModel) -> None:
    """Waits until process 0 has written and deleted the files of fits that have ended, before they are read."""
    transport = _transport(model)
    if transport is not None:
        transport.barrier("before a backup is read")


def check_backup(model: KerasModel, epoch: int) -> None:
    """Raises ConfigurationError unless all processes have read a backup of the same epoch."""
    transport = _transport(model)
    if transport is None:
        return
    epochs = transport.all_gather(np.array(epoch), "epoch of the backup").tolist()
    if len(set(epochs)) > 1:
        raise ConfigurationError(
            f"Expected a folder of BackupAndRestore that all processes share. Received: backups of epochs {epochs}, by "
            f"process. Give all the same folder, on a file system that all machines mount."
        )


def transport_of_step(model: KerasModel, mode: str) -> Transport | None:
    """The transport over whose processes a step of a mode sums gradients and metrics; None where it sums none.

    Raises ConfigurationError for metrics that are means over micro-batches: they must be totals over an update.
    """
    transport = None if mode == "predict" else transport_of(model.distribute_strategy)
    if transport is not None and has_accumulated_logs(model, mode):
        raise ConfigurationError(
            f"Expected accumulate_outfeed=False in several processes, whose metrics are totals over an update. "
            f"Received: accumulate_outfeed=True with {transport.size} processes. Set accumulate_outfeed=False in "
            f"set_pipelining_options."
        )
    return transport


def _transport(model: KerasModel) -> Transport | None:
    strategy = model.distribute_strategy
    return transport_of(strategy) if getattr(strategy, "serves_keras", False) else None


def share_statistics(model: KerasModel) -> None:
    """Gives all processes the moving statistics of process 0, as programs of one process show those of replica 0."""
    transport = transport_of(model.distribute_strategy)
    if transport is None or not model.built:
        return
    weights: list[Any] = getattr(model, "non_trainable_weights")  # noqa: B009 - both Keras have it
    for number, weight in enumerate(weights):
        own = np.asarray(weight)
        if own.dtype.kind in "fiubV":  # V is bfloat16
            value = transport.broadcast(own, 0, f"weight {number}")
            if transport.rank:
                weight.assign(value)
