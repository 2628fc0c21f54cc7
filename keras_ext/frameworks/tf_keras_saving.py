"""Options in the configs of tf_keras models."""

from __future__ import annotations

import functools
from typing import Any

from tf_keras.src.engine.functional import Functional
from tf_keras.src.engine.sequential import Sequential
from tf_keras.src.engine.training import Model
from tf_keras.src.models import cloning
from tf_keras.src.saving import saving_lib
from tf_keras.src.saving.legacy import save
from tf_keras.src.saving.legacy.saved_model import json_utils
from tf_keras.src.saving.legacy.saved_model.load import KerasObjectLoader

from keras_ext.saving import ConfigKeeper
from keras_ext.wrapping import Original, wrap


def keep_options(keeper: ConfigKeeper) -> None:
    """Wraps the methods that write and read configs, at class level, once."""
    keeper.wrap(Sequential, Functional, Model, cloning)
    keeper.write_whole((saving_lib, "save_model"), (saving_lib, "save_weights_only"))
    keeper.write_whole((save, "save_model"), (save, "save_weights"))
    wrap(KerasObjectLoader, "_reconstruct_model", functools.partial(_reconstruct, keeper))


def _reconstruct(
    keeper: ConfigKeeper,
    original: Original,
    loader: KerasObjectLoader,
    model_id: int,
    model: Model,
    layers: list[Any],
) -> None:
    """Restores options: SavedModels of sequential and functional models are loaded without `from_config`."""
    original(loader, model_id, model, layers)
    _, options = keeper.split(json_utils.decode(loader._metadata[model_id].metadata)["config"])
    keeper.restore(model, options)
