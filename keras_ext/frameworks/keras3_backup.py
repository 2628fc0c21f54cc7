"""Keras 3's BackupAndRestore, which keeps no state of seed generators: backups of a strategy's models have them."""

from __future__ import annotations

import os
from typing import Any

import h5py
from keras.src.backend.common import global_state
from keras.src.callbacks import BackupAndRestore
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR, global_seed_generator

from keras_ext.frameworks.common import serves
from keras_ext.processes import check_backup, writes_files
from keras_ext.random_states import random_states, restore_random_states
from keras_ext.types import KerasModel, Logs
from keras_ext.wrapping import Original, wrap

GROUP = "ipu_random_states"
"""A group in the file of weights, which Keras does not read."""
GLOBAL = "has_global_generator"


def install() -> None:
    """Wraps the callback at class level."""
    wrap(BackupAndRestore, "_save_model", _save_model)
    wrap(BackupAndRestore, "_load_model", _load_model)
    wrap(BackupAndRestore, "on_train_end", _on_train_end)


def _on_train_end(original: Original, callback: BackupAndRestore, logs: Logs = None) -> None:
    if writes_files(callback.model):
        original(callback, logs)


def _save_model(original: Original, callback: BackupAndRestore) -> None:
    if not writes_files(callback.model):
        return
    original(callback)
    if not serves(callback.model._distribute_strategy):
        return
    has_global = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR) is not None
    with h5py.File(callback._weights_path, "a") as file:
        group = file.create_group(GROUP)
        group.attrs[GLOBAL] = has_global
        for name, state in random_states(_generators(callback.model, has_global)).items():
            group[name] = state


def _load_model(original: Original, callback: BackupAndRestore) -> None:
    original(callback)
    check_backup(callback.model, callback.model._initial_epoch or 0)
    if not serves(callback.model._distribute_strategy) or not os.path.exists(callback._weights_path):
        return
    with h5py.File(callback._weights_path, "r") as file:
        if GROUP in file:  # files of plain Keras have no such group
            group = file[GROUP]
            states = {name: state[()] for name, state in group.items()}
            restore_random_states(states, _generators(callback.model, bool(group.attrs[GLOBAL])))


def _generators(model: KerasModel, has_global: bool) -> list[Any]:
    """The states of the model's seed generators, each once, and of the global one, for numbers without a seed."""
    generators = [generator for layer in model._flatten_layers() for generator in layer._seed_generators]
    if has_global:
        generators.append(global_seed_generator())
    return list({id(generator): generator.state for generator in generators}.values())
