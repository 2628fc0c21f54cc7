"""Keras 3's BackupAndRestore for a strategy's models: backups are whole, and have the states of random generators.

Keras writes weights and metadata in place, one after the other. Here both are written beside the former backup. The
new backup counts from the rename of its file of weights, which contains the metadata and the states, too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import h5py
from keras.src.backend.common import global_state
from keras.src.callbacks import BackupAndRestore
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR, global_seed_generator
from keras.src.utils import file_utils

from engine.errors import InvalidFile
from engine.private_files import check_regular
from engine.whole_files import make_folder, put, remove, write_whole
from keras_ext.frameworks.common import serves
from keras_ext.processes import check_backup, wait_for_files, writes_files
from keras_ext.random_states import random_states, restore_random_states
from keras_ext.types import KerasModel, Logs
from keras_ext.wrapping import Original, wrap

GROUP = "ipu_random_states"
"""A group in the file of weights, which Keras does not read."""
GLOBAL = "has_global_generator"
METADATA = "training_metadata"
"""The attribute of that group which contains Keras' metadata of the same moment."""
STAGE = ".being-written"
"""The folder of an incomplete backup, inside the backup's folder."""
logger = logging.getLogger("ipu")


def install() -> None:
    """Wraps the callback at class level."""
    wrap(BackupAndRestore, "_save_model", _save_model)
    wrap(BackupAndRestore, "_load_model", _load_model)
    wrap(BackupAndRestore, "on_train_begin", _on_train_begin)
    wrap(BackupAndRestore, "on_train_end", _on_train_end)


def _on_train_end(original: Original, callback: BackupAndRestore, logs: Logs = None) -> None:
    if not writes_files(callback.model):
        return
    if not _is_ours(callback):
        original(callback, logs)
    elif callback.delete_checkpoint:
        remove(Path(callback.backup_dir))


def _is_ours(callback: BackupAndRestore) -> bool:
    return serves(callback.model._distribute_strategy) and not file_utils.is_remote_path(callback.backup_dir)


def _save_model(original: Original, callback: BackupAndRestore) -> None:
    if not writes_files(callback.model):
        return
    if not _is_ours(callback):
        original(callback)
        return
    weights, metadata = Path(callback._weights_path), Path(callback._training_metadata_path)
    stage = Path(callback.backup_dir) / STAGE
    shutil.rmtree(stage, ignore_errors=True)
    make_folder(stage)
    try:
        _write(original, callback, stage)
        if callback.double_checkpoint:
            _keep(weights, Path(callback._prev_weights_path), stage)
            _keep(metadata, Path(callback._prev_training_metadata_path), stage)
        put(stage / weights.name, weights)
        put(stage / metadata.name, metadata)
    finally:
        shutil.rmtree(stage, ignore_errors=True)  # a full disk needs the space


def _write(original: Original, callback: BackupAndRestore, stage: Path) -> None:
    """Writes a whole backup to a folder of its own."""
    weights, metadata = callback._weights_path, callback._training_metadata_path
    callback._weights_path = str(stage / Path(weights).name)
    callback._training_metadata_path = str(stage / Path(metadata).name)
    try:
        original(callback)
        _add_states(callback)
    finally:
        callback._weights_path, callback._training_metadata_path = weights, metadata


def _add_states(callback: BackupAndRestore) -> None:
    has_global = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR) is not None
    with h5py.File(callback._weights_path, "a") as file:
        group = file.create_group(GROUP)
        group.attrs[GLOBAL] = has_global
        group.attrs[METADATA] = Path(callback._training_metadata_path).read_text()
        for name, state in random_states(_generators(callback.model, has_global)).items():
            group[name] = state


def _keep(path: Path, former: Path, stage: Path) -> None:
    """Copies the file at `path` to `former`, by way of the folder `stage`."""
    if path.exists():
        shutil.copyfile(path, stage / former.name)
        put(stage / former.name, former)


def _on_train_begin(original: Original, callback: BackupAndRestore, logs: Logs = None) -> None:
    """Restores the backup, or, where that is damaged, the one before, if Keras keeps two."""
    if not _is_ours(callback):
        original(callback, logs)
        return
    wait_for_files(callback.model)
    weights, former = Path(callback._weights_path), Path(callback._prev_weights_path)
    check_regular(weights, former, callback._training_metadata_path, callback._prev_training_metadata_path)
    try:
        callback._load_model()
    except (OSError, ValueError, KeyError) as error:
        if not callback.model.built or _metadata(weights) is not None:  # the file is whole, and something else is wrong
            raise
        if not former.exists():
            raise InvalidFile(
                f"Expected a whole backup in {callback.backup_dir}. Received: {weights.name}, which is damaged or of "
                f"another model: {error}. Delete the folder to train from the beginning."
            ) from error
        logger.warning("%s is damaged (%s), so %s is restored", weights, error, former)
        write_whole(weights, former.read_bytes())
        with contextlib.suppress(FileNotFoundError):
            write_whole(callback._training_metadata_path, Path(callback._prev_training_metadata_path).read_bytes())
        callback._load_model()


def _metadata(weights: Path) -> str | None:
    """The metadata in a file of weights, which is then whole; None for a damaged one and for plain Keras' own."""
    with contextlib.suppress(OSError, KeyError), h5py.File(weights, "r") as file:
        return str(file[GROUP].attrs[METADATA])
    return None


def _load_model(original: Original, callback: BackupAndRestore) -> None:
    weights = Path(callback._weights_path)
    is_ours = _is_ours(callback)
    metadata = _metadata(weights) if is_ours else None
    if metadata is not None and writes_files(callback.model):
        write_whole(callback._training_metadata_path, metadata)
    began = callback.model._initial_epoch
    with callback.model.distribute_strategy.scope():  # since Keras 3.15.1 it makes the optimizer's slots
        original(callback)
    if metadata is not None:
        callback.model._initial_epoch = json.loads(metadata)["epoch"]
    elif is_ours and not weights.exists():  # the rest of a killed deletion would skip epochs of an untrained model
        callback.model._initial_epoch = began
    check_backup(callback.model, callback.model._initial_epoch or 0)
    if is_ours and weights.exists():
        with h5py.File(weights, "r") as file:
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
