"""Options in the configs of tf_keras models."""

from __future__ import annotations

import functools
from typing import Any

from tf_keras.src.engine.functional import Functional
from tf_keras.src.engine.sequential import Sequential
from tf_keras.src.engine.training import Model
from tf_keras.src.models import cloning
from tf_keras.src.saving.legacy.saved_model import json_utils
from tf_keras.src.saving.legacy.saved_model.load import KerasObjectLoader

from keras_ext.frameworks.common import KerasFunction
from keras_ext.saving import ConfigKeeper


def keep_options(keeper: ConfigKeeper) -> None:
    """Wraps the methods that write and read configs, at class level, once."""
    keeper.wrap(Sequential, Functional, Model, cloning)
    KerasObjectLoader._reconstruct_model = _reconstructing(keeper, KerasObjectLoader._reconstruct_model)


def _reconstructing(keeper: ConfigKeeper, original: KerasFunction) -> KerasFunction:
    """Restores options: SavedModels of sequential and functional models are loaded without `from_config`."""

    @functools.wraps(original)
    def reconstruct_model(self: KerasObjectLoader, model_id: int, model: Model, layers: list[Any]) -> None:
        original(self, model_id, model, layers)
        _, options = keeper.split(json_utils.decode(self._metadata[model_id].metadata)["config"])
        keeper.restore(model, options)

    return reconstruct_model
