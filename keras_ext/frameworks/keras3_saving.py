"""Options in the configs of Keras 3 models."""

from __future__ import annotations

from keras.src.models import cloning
from keras.src.models.functional import Functional
from keras.src.models.model import Model
from keras.src.models.sequential import Sequential

from keras_ext.saving import ConfigKeeper


def keep_options(keeper: ConfigKeeper) -> None:
    """Wraps the methods that write and read configs, at class level, once."""
    keeper.wrap(Sequential, Functional, Model, cloning)
